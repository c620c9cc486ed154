//! Compares every op of the table on the emulated driver, forward and backward, with the CPU
//! reference.
//!
//! `ONEGRAPH_CASES=<text>` runs only cases whose name contains the text, and prints one line per
//! case; use it while working on one op.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use device::Device;
use device::cuda::CudaDevice;
use kernels::case::{CUT_FLOOR, CaseError, DeviceReport, OpCase, check_on_device};
use kernels::compiled::kernels;
use kernels::cpu::HostTensor;
use kernels::gemm_check::{check_gemm_kernels, is_gemm_kernel};
use kernels::ops::cases;
use kernels::{Cost, Precision};

/// Ops with more FLOPs than this run once instead of twice, since the emulator reaches only a few
/// GFLOP/s.
const LARGE_FLOPS: u64 = 200_000_000;
/// Ops with up to this many FLOPs also run with accumulations truncated as in tensor cores, which
/// takes ten times as long.
const CUT_FLOPS: u64 = 20_000_000;

/// Cases with more FLOPs are skipped in fp32 and tf32.
const PLAIN_FLOPS: u64 = 60_000_000;
/// Fused ops that exist only in fp16.
const OF_FP16_ALONE: [&str; 3] = ["projected", "rpn_head", "stem"];

/// The emulated GPUs of one thread: one rounds accumulations, the other truncates them like tensor
/// cores.
struct Gpus {
    rounded: CudaDevice,
    cut: CudaDevice,
}

impl Gpus {
    /// GPUs of a model; `seed` selects the order of streams, blocks and warps.
    fn new(model: &str, seed: usize) -> Self {
        let rounded = test_gpu::open(&format!("{model} SEED={seed}"));
        let sums = model.to_lowercase();
        Self { rounded, cut: test_gpu::open(&format!("{model} SEED={seed} SUMS={sums}")) }
    }

    fn run(&self, case: &OpCase, precision: Precision) -> Result<DeviceReport, CaseError> {
        let cut = case.op.traits().on_tensor_cores && cost(case).flops <= CUT_FLOPS;
        let device = if cut { &self.cut } else { &self.rounded };
        check_on_device(case, device, precision, LARGE_FLOPS)
    }
}

fn cost(case: &OpCase) -> Cost {
    let descs = |tensors: &[HostTensor]| tensors.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates).expect("a case fits its op");
    case.op.cost(&inputs, &outputs)
}

#[test]
fn every_op_matches_cpu_reference() {
    compare("A100", Precision::Fp16, |_| true);
}

/// The GEMMs, which have separate kernels on Hopper.
#[test]
fn every_gemm_matches_cpu_reference_on_hopper() {
    compare("H100", Precision::Fp16, |case| case.op.traits().on_tensor_cores);
}

/// Each single GEMM kernel, even if no plan uses it, is correct and bit-identical in three orders
/// of blocks and warps.
#[test]
fn every_gemm_kernel_matches_cpu_reference() {
    for model in ["A100", "H100"] {
        let check = |seed: u64| {
            let device = test_gpu::open(&format!("{model} SEED={seed}"));
            let all = |_: &str| true;
            let checked =
                check_gemm_kernels(&device, &all).unwrap_or_else(|e| panic!("{model}: {e}"));
            (device.gpu().capability, checked)
        };
        let (capability, (launched, bits)) = check(1);
        let sources = kernels().manifest().sources.iter();
        let sources = sources.filter(|s| s.real == Precision::Fp16);
        let sources = sources.filter(|s| s.architecture.runs_on(capability));
        let names = sources.flat_map(|source| &source.kernels).map(|kernel| &kernel.name);
        let missing: Vec<&String> =
            names.filter(|name| is_gemm_kernel(name) && !launched.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{model} launches none of {missing:?}");
        for seed in [2, 3] {
            assert_eq!(check(seed).1, (launched.clone(), bits), "{model}, seed {seed}");
        }
    }
}

/// Every op that exists in fp32; for the largest cases the emulated fp32 GEMMs are too slow.
#[test]
fn every_op_matches_cpu_reference_in_fp32() {
    compare("A100", Precision::Fp32, |case| {
        !OF_FP16_ALONE.contains(&case.op.name()) && cost(case).flops <= PLAIN_FLOPS
    });
}

/// Only GEMMs, since all other ops use the fp32 kernels.
#[test]
fn every_gemm_matches_cpu_reference_in_tf32() {
    compare("A100", Precision::Tf32, |case| {
        case.op.traits().on_tensor_cores
            && !OF_FP16_ALONE.contains(&case.op.name())
            && cost(case).flops <= PLAIN_FLOPS
    });
}

fn compare(model: &str, precision: Precision, suits: impl Fn(&OpCase) -> bool) {
    let filter = std::env::var("ONEGRAPH_CASES").unwrap_or_default();
    let wanted = |c: &OpCase| c.to_string().contains(&filter) && suits(c);
    let cases: Vec<OpCase> = cases().into_iter().filter(wanted).collect();
    // Only the first test has every op, so a filter may match no case in the other tests.
    if cases.is_empty() && !filter.is_empty() && (model, precision) != ("A100", Precision::Fp16) {
        println!("SKIPPED: no case's name contains `{filter}` on {model} in {}", precision.name());
        return;
    }
    assert!(!cases.is_empty(), "no case's name contains `{filter}`");
    let failed: Mutex<Vec<String>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (cases, failed, next, filter) = (&cases, &failed, &next, &filter);
            scope.spawn(move || {
                let gpus = Gpus::new(model, thread);
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let result = gpus.run(case, precision);
                    if !filter.is_empty() {
                        println!("{case}: {result:?} {:.2?}", started.elapsed());
                    }
                    failed.lock().unwrap().extend(result.err().map(|e| e.to_string()));
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let shown = failed[..failed.len().min(12)].join("\n");
    assert!(failed.is_empty(), "{} of {} cases failed:\n{shown}", failed.len(), cases.len());
}

/// Tolerances of op cases are twice the error of the tensor core model.
#[test]
fn case_tolerances_are_twice_truncation_error() {
    assert_eq!(CUT_FLOOR, 2.0 * test_gpu::CUT_PER_PRODUCT);
}
