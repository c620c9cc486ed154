//! What the stages do that are no command of their own.

use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use configs::Config;
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use kernels::case::{OpCase, all, check_on_device};
use kernels::cpu::HostTensor;
use kernels::device::Device;

use super::Kit;
use crate::step::{CHECKS, bits, relative, steps};

/// Ops of more FLOPs than this run once instead of twice.
const LARGE_FLOPS: u64 = 20_000_000_000;
/// Cases for tools under which kernels are slow: operations, or bytes of tensors.
const SMALL: u64 = 300_000;

#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    #[arg(value_enum)]
    what: What,
    #[arg(long)]
    images: PathBuf,
    #[arg(long)]
    annotations: PathBuf,
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Device,
    Ops,
    SmallOps,
    Step,
    Train,
    Repeat,
    Hang,
}

/// Does the work of one stage. What is wrong is the last line, after `error: `.
pub(super) fn run(kit: &Kit, args: &WorkArgs) -> ExitCode {
    panic::set_hook(Box::new(|fault| {
        let payload = fault.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        let said = text.unwrap_or("a panic without words").replace('\n', "; ");
        let place = fault.location().map(|at| format!(" [{}:{}]", at.file(), at.line()));
        eprintln!("error: {said}{}", place.unwrap_or_default());
    }));
    let device = match (kit.open)(None) {
        Ok(device) => device,
        Err(fault) => {
            eprintln!("error: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let done = panic::catch_unwind(panic::AssertUnwindSafe(|| match args.what {
        What::Device => ready(device.as_ref()),
        What::Ops => ops(device.as_ref(), if args.quick { 4 * SMALL } else { u64::MAX }),
        What::SmallOps => ops(device.as_ref(), if args.quick { SMALL / 100 } else { SMALL }),
        What::Step => step(kit, if args.quick { 2 } else { CHECKS.len() }),
        What::Train => train(device, args),
        What::Repeat => repeat(kit, args),
        What::Hang => loop {
            std::thread::park();
        },
    }));
    match done {
        Ok(figure) => {
            println!("{figure}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// The device, with all kernels loaded: a capture loads them.
fn ready(device: &dyn Device) -> String {
    let started = Instant::now();
    let stream = device.stream().unwrap_or_else(|e| panic!("{e}"));
    device.begin_capture(stream).unwrap_or_else(|e| panic!("{e}"));
    device.end_capture(stream).unwrap_or_else(|e| panic!("{e}"));
    let seconds = started.elapsed().as_secs_f64();
    let memory = device.memory().unwrap_or_else(|e| panic!("{e}"));
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    format!(
        "figure: {}, {:.1} of {:.1} GiB free, all kernels loaded in {seconds:.1} s",
        device.name(),
        gib(memory.free),
        gib(memory.total)
    )
}

/// All cases of at most `most` operations and bytes, against the CPU reference.
fn ops(device: &dyn Device, most: u64) -> String {
    let cases: Vec<OpCase> = all().into_iter().filter(|case| size(case) <= most).collect();
    let (mut ops, mut worst, mut failed) = (0, (0.0, String::new()), Vec::new());
    for case in &cases {
        match check_on_device(case, device, LARGE_FLOPS) {
            Ok(report) => {
                ops += report.ops;
                if report.worst > worst.0 {
                    worst = (report.worst, case.to_string());
                }
            }
            Err(fault) => {
                println!("FAILED {fault}");
                failed.push(fault.to_string());
            }
        }
    }
    let (count, wrong) = (cases.len(), failed.len());
    assert!(failed.is_empty(), "{wrong} of {count} cases failed, the first: {}", failed[0]);
    format!(
        "figure: {count} cases, {ops} ops, worst {:.3} of what is allowed: {}",
        worst.0, worst.1
    )
}

fn size(case: &OpCase) -> u64 {
    let descs = |tensors: &[HostTensor]| tensors.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates).expect("a case fits its op");
    let cost = case.op.cost(&inputs, &outputs);
    cost.flops.max(cost.bytes)
}

/// Capture and replay of the whole step of `micro`: the first `count` checks.
fn step(kit: &Kit, count: usize) -> String {
    let open = |seed| (kit.open)(seed).unwrap_or_else(|e| panic!("{e}"));
    for (name, check) in &CHECKS[..count] {
        println!("{name}");
        check(&open);
    }
    format!("figure: {count} checks")
}

/// Images and config of the stages that train; none where the kit holds no images.
fn data(args: &WorkArgs) -> Result<(Config, DataSet), String> {
    if !args.images.is_dir() || !args.annotations.is_file() {
        return Err(format!("SKIPPED: the kit holds no {}", args.images.display()));
    }
    let preset = if args.quick { "micro" } else { "overfit_coco8" };
    let set = [
        format!("data.train_images={}", args.images.display()),
        format!("data.train_annotations={}", args.annotations.display()),
        "data.ids=[]".into(),
        "data.synthetic=none".into(),
        "solver.dynamic_loss_scale=true".into(),
        "solver.initial_loss_scale=1024".into(),
        format!("train.steps={}", if args.quick { 12 } else { 200 }),
    ];
    let config = Config::load(preset, &set).unwrap_or_else(|e| panic!("{e}"));
    let data = DataSet::open(&config, Split::Train, &Progress::quiet());
    Ok((config, data.unwrap_or_else(|e| panic!("{e}"))))
}

fn trainer(config: &Config, data: &DataSet, backend: &Backend) -> Trainer {
    Trainer::new(config, data, backend).unwrap_or_else(|e| panic!("{e}"))
}

fn mean(records: &[StepRecord]) -> f64 {
    records.iter().map(|r| f64::from(r.loss)).sum::<f64>() / records.len() as f64
}

/// A short training in fp16: its first losses are the CPU's, all are numbers, and they fall.
fn train(device: Arc<dyn Device>, args: &WorkArgs) -> String {
    let (config, data) = match data(args) {
        Ok(found) => found,
        Err(why) => return why,
    };
    let (on_cpu, all) = if args.quick { (4, 12) } else { (10, 200) };
    let cpu = steps(&mut trainer(&config, &data, &Backend::Cpu), on_cpu);
    let started = Instant::now();
    let mut on_device = trainer(&config, &data, &Backend::Device(device));
    let records = steps(&mut on_device, all);
    let seconds = started.elapsed().as_secs_f64();
    for (got, want) in records.iter().zip(&cpu) {
        println!("step {}: {:.5}, in f32 {:.5}", got.step, got.loss, want.loss);
    }
    let first = relative(records[0].loss.into(), cpu[0].loss.into());
    assert!(first < 0.01, "the first loss is {first:.4} off that of f32");
    let window = relative(mean(&records[..cpu.len()]), mean(&cpu));
    assert!(window < 0.05, "the mean of the first {on_cpu} losses is {window:.4} off that of f32");
    let bad = records.iter().find(|r| !r.loss.is_finite());
    assert!(bad.is_none(), "{bad:?}");
    let skipped = records.iter().filter(|r| !r.applied).count();
    assert!(skipped <= 4, "{skipped} of {all} steps were skipped");
    let (begin, end) = (mean(&records[..cpu.len()]), mean(&records[records.len() - cpu.len()..]));
    assert!(args.quick || end < 0.8 * begin, "the loss goes from {begin:.3} to {end:.3} only");
    format!(
        "figure: {all} steps in {seconds:.1} s, loss {begin:.3} to {end:.3}; off f32: first step \
         {first:.1e}, mean of {on_cpu} {window:.1e}; {skipped} skipped"
    )
}

/// Two runs from the same state make the same bits.
fn repeat(kit: &Kit, args: &WorkArgs) -> String {
    let (config, data) = match data(args) {
        Ok(found) => found,
        Err(why) => return why,
    };
    let count = if args.quick { 4 } else { 40 };
    let [first, second] = [None, Some(3)].map(|seed| {
        let device = (kit.open)(seed).unwrap_or_else(|e| panic!("{e}"));
        let mut trainer = trainer(&config, &data, &Backend::Device(device));
        let losses: Vec<u32> =
            steps(&mut trainer, count).iter().map(|r| r.loss.to_bits()).collect();
        (losses, bits(&mut trainer))
    });
    let step = first.0.iter().zip(&second.0).position(|(a, b)| a != b);
    assert!(step.is_none(), "the losses part at step {}", step.map_or(0, |s| s + 1));
    let differ: Vec<&str> =
        first.1.iter().zip(&second.1).filter(|(a, b)| a != b).map(|(a, _)| a.0.as_str()).collect();
    assert!(differ.is_empty(), "{} tensors differ, the first is {}", differ.len(), differ[0]);
    format!("figure: {count} steps twice, {} tensors the same in every bit", first.1.len())
}
