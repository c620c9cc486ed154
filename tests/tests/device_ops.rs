//! Every op of the table on the emulated device, forward and backward, against the CPU reference.
//!
//! `ONEGRAPH_CASES=<text>` runs only the cases whose name holds the text, and one line is printed
//! for each; it is for work on one op. `ONEGRAPH_MAX_FLOPS=<number>` leaves out cases of more
//! operations, or more bytes of tensors, than that: sanitizers make kernels slow.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use emulated::{EmulatedDevice, Order};
use kernels::case::{CUT_FLOOR, CaseError, OpCase, check_on_device};
use kernels::cpu::HostTensor;
use kernels::ops::cases;
use kernels::{Cost, Precision};

/// Ops of more FLOPs than this run once instead of twice: emulation makes 0.3 to 0.6 GFLOP/s.
const LARGE_FLOPS: u64 = 200_000_000;
/// Ops of up to this many FLOPs sum as tensor cores do, which takes ten times as long.
const CUT_FLOPS: u64 = 20_000_000;

/// Cases of more FLOPs are left out in fp32 and tf32.
const PLAIN_FLOPS: u64 = 60_000_000;
/// Fusions that a step in another precision leaves out.
const OF_FP16_ALONE: [&str; 2] = ["rpn_head", "stem"];

#[derive(Debug, Default)]
struct Row {
    cases: usize,
    ops: usize,
    worst: f64,
    seconds: f64,
    failures: Vec<String>,
}

fn run(case: &OpCase, precision: Precision, index: usize) -> Result<(usize, f64), CaseError> {
    let cut = case.op.traits().on_tensor_cores && cost(case).flops <= CUT_FLOPS;
    // Half of the cases run in an odd order of blocks and threads.
    let order = if index.is_multiple_of(2) { Order::Given } else { Order::Random(index as u64) };
    // Races between blocks show only where blocks share no thread of the machine; but threads that
    // the sanitizer has to make for each launch cost it a hundred times the launch.
    let apart = emulated::SANITIZE == "thread" && index.is_multiple_of(8);
    let os_threads = if apart { 2 } else { 1 };
    let device = EmulatedDevice::new(order).with_os_threads(os_threads);
    let device = if cut { device.with_tensor_core_sums() } else { device };
    check_on_device(case, &device, precision, LARGE_FLOPS).map(|report| (report.ops, report.worst))
}

/// True if the case is within the bounds that the environment sets.
fn small_enough(case: &OpCase) -> bool {
    let Ok(most) = std::env::var("ONEGRAPH_MAX_FLOPS") else { return true };
    let most: u64 = most.parse().expect("ONEGRAPH_MAX_FLOPS is a number");
    let cost = cost(case);
    cost.flops.max(cost.bytes) <= most
}

fn cost(case: &OpCase) -> Cost {
    let descs = |tensors: &[HostTensor]| tensors.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates).expect("a case fits its op");
    case.op.cost(&inputs, &outputs)
}

#[test]
fn every_op_matches_the_reference() {
    compare(Precision::Fp16, |_| true);
}

/// Every op but those of fp16 alone; the plain products are too slow for the largest cases.
#[test]
fn every_op_matches_the_reference_in_fp32() {
    compare(Precision::Fp32, |case| {
        !OF_FP16_ALONE.contains(&case.op.name()) && cost(case).flops <= PLAIN_FLOPS
    });
}

/// The matrix products: all else has the kernels of fp32.
#[test]
fn every_product_matches_the_reference_in_tf32() {
    compare(Precision::Tf32, |case| {
        case.op.traits().on_tensor_cores
            && !OF_FP16_ALONE.contains(&case.op.name())
            && cost(case).flops <= PLAIN_FLOPS
    });
}

fn compare(precision: Precision, suits: impl Fn(&OpCase) -> bool) {
    let filter = std::env::var("ONEGRAPH_CASES").unwrap_or_default();
    let wanted = |c: &OpCase| c.to_string().contains(&filter) && suits(c);
    let cases: Vec<OpCase> = cases().into_iter().filter(wanted).collect();
    if cases.is_empty() && !filter.is_empty() && precision != Precision::Fp16 {
        println!("SKIPPED: no case's name holds `{filter}` in {}", precision.name());
        return;
    }
    assert!(!cases.is_empty(), "no case's name holds `{filter}`");
    let (cases, large): (Vec<_>, Vec<_>) = cases.into_iter().partition(small_enough);
    if !large.is_empty() {
        println!("SKIPPED: {} cases of more than ONEGRAPH_MAX_FLOPS operations", large.len());
    }
    let rows: Mutex<BTreeMap<&'static str, Row>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((i, case)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|i| Some((i, cases.get(i)?)))
                {
                    let started = Instant::now();
                    let result = run(case, precision, i);
                    let seconds = started.elapsed().as_secs_f64();
                    if !filter.is_empty() {
                        println!("{case}: {result:?} {seconds:.2} s");
                    }
                    let mut rows = rows.lock().unwrap();
                    let row = rows.entry(case.op.name()).or_default();
                    row.cases += 1;
                    row.seconds += seconds;
                    match result {
                        Ok((ops, worst)) => {
                            row.ops += ops;
                            row.worst = row.worst.max(worst);
                        }
                        Err(e) => row.failures.push(e.to_string()),
                    }
                }
            });
        }
    });
    report(&rows.into_inner().unwrap());
}

fn report(rows: &BTreeMap<&'static str, Row>) {
    println!("{:<24} {:>5} {:>5} {:>14} {:>8}", "op", "cases", "ops", "worst/allowed", "seconds");
    for (op, row) in rows {
        let Row { cases, ops, worst, seconds, failures } = row;
        let failed = if failures.is_empty() {
            String::new()
        } else {
            format!("  FAILED {}", failures.len())
        };
        println!("{op:<24} {cases:>5} {ops:>5} {worst:>14.3} {seconds:>8.2}{failed}");
    }
    let failed: Vec<_> = rows.values().flat_map(|row| &row.failures).collect();
    let sum = |of: fn(&Row) -> usize| rows.values().map(of).sum::<usize>();
    println!("{:<24} {:>5} {:>5}", "all", sum(|row| row.cases), sum(|row| row.ops));
    let shown: Vec<_> = failed.iter().take(12).map(|s| s.as_str()).collect();
    assert!(failed.is_empty(), "{} cases failed:\n{}", failed.len(), shown.join("\n"));
}

/// Cases allow twice what the model of tensor cores shows.
#[test]
fn cases_allow_twice_what_cutting_costs() {
    assert_eq!(CUT_FLOOR, 2.0 * emulated::CUT_PER_PRODUCT);
}
