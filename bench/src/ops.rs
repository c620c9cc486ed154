//! `bench ops`: checks and times every op of the table of cases (op and shapes), on the CPU or a
//! GPU.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use engine::cli::DeviceArgs;
use engine::runtime::Backend;
use kernels::case::{OpCase, check_gradients, check_runs};
use kernels::cpu::HostTensor;
use kernels::on_cpu::run_updating;
use kernels::ops::cases;
use serde_json::{Value, json};

use crate::cuda_ops;
use crate::report::{commit, cpu, gemm_gflops, percentile, write_json};

#[derive(Debug, Args)]
pub(crate) struct OpsArgs {
    /// Only run cases whose name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Timed runs of each case.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &OpsArgs) -> anyhow::Result<()> {
    let cases: Vec<OpCase> =
        cases().into_iter().filter(|case| case.to_string().contains(&args.filter)).collect();
    anyhow::ensure!(!cases.is_empty(), "--filter `{}` matches no case", args.filter);
    let value = match args.device.open()? {
        Backend::Device(device) => cuda_ops::run(device.as_ref(), &cases, args.repeats.max(1)),
        Backend::Cpu => on_cpu(&cases, args.repeats.max(1)),
    }?;
    if let Some(path) = &args.json {
        write_json(path, &value)?;
    }
    let failed = value["failed"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(failed == 0, "{failed} of {} cases failed", cases.len());
    Ok(())
}

fn on_cpu(cases: &[OpCase], repeats: usize) -> anyhow::Result<Value> {
    let gemm = gemm_gflops()?;
    say!("{} | GEMM {gemm:.0} GFLOP/s", cpu());
    say!("{:<64} {:>10} {:>10} {:>9}", "case", "ms", "GFLOP/s", "GB/s");
    let mut rows = Vec::new();
    for case in cases {
        check_runs(case)?;
        check_gradients(case)?;
        let (ms, flops, bytes) = time(case, repeats)?;
        let rate = |count: u64| count as f64 / (ms / 1e3) / 1e9;
        say!("{:<64} {ms:>10.4} {:>10.2} {:>9.2}", case.to_string(), rate(flops), rate(bytes));
        rows.push(json!({"case": case.to_string(), "ms": ms, "flops": flops, "bytes": bytes}));
    }
    Ok(json!({"device": cpu(), "commit": commit(), "gemm_gflops": gemm, "cases": rows}))
}

/// Median milliseconds, FLOPs and bytes of a case.
fn time(case: &OpCase, repeats: usize) -> anyhow::Result<(f64, u64, u64)> {
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, mut updates) = (descs(&case.inputs), case.updates.clone());
    let cost = case.op.cost(&inputs, &case.op.infer(&inputs, &descs(&updates))?);
    let mut ms = Vec::new();
    for _ in 0..repeats {
        let started = Instant::now();
        run_updating(case.op.as_ref(), &case.inputs, &mut updates)?;
        ms.push(1e3 * started.elapsed().as_secs_f64());
    }
    Ok((percentile(&ms, 0.5), cost.flops, cost.bytes))
}
