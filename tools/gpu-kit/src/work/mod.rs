//! The work of stages that are no command of their own.

mod checks;
mod group;
mod items;
mod train;

use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
pub use train::{bits, steps};

use super::{Kit, clocks};

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
    /// The first item to run, of a stage that is made of items.
    #[arg(long, default_value_t = 0)]
    from: usize,
    /// The only items to run, by number.
    #[arg(long, value_delimiter = ',')]
    only: Vec<usize>,
    /// Groups of items that are not run any more.
    #[arg(long)]
    skip: Vec<String>,
    /// Items are begun for so long.
    #[arg(long)]
    seconds: Option<u64>,
    /// The stage `train` in f32 on the CPU: tries its thresholds.
    #[arg(long)]
    on_cpu: bool,
    /// The command onegraph, for the stage `two ranks`.
    #[arg(long)]
    onegraph: Option<PathBuf>,
    /// Steps of the stage `train`, if not all.
    #[arg(long)]
    steps: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Clocks,
    Device,
    Ops,
    SmallOps,
    Step,
    Train,
    Repeat,
    Sums,
    TwoRanks,
    Hang,
}

/// Does the work of one stage. A fault is the last line, after `error: `.
pub(super) fn run(kit: &Kit, args: &WorkArgs) -> ExitCode {
    use rustix::process::{Signal, set_parent_process_death_signal};
    // A runner that is killed leaves no work behind that would keep the device. But a tool may
    // start its program from a thread that ends first, and that, too, sends the signal.
    if !matches!(args.what, What::SmallOps) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    panic::set_hook(Box::new(|fault| {
        let said = said(fault.payload()).replace('\n', "; ");
        let place = fault.location().map(|at| format!(" [{}:{}]", at.file(), at.line()));
        eprintln!("error: {said}{}", place.unwrap_or_default());
    }));
    let quick = args.quick;
    let small = if quick { SMALL / 100 } else { SMALL };
    let checks = if quick { 2 } else { kit.checks.len() };
    match args.what {
        What::Clocks => clocks::describe(),
        What::Hang => loop {
            std::thread::park();
        },
        What::Device => with_items(kit, args, checks::device),
        What::Ops => with_items(kit, args, |items| {
            checks::ops(items, if quick { SMALL / 3 } else { u64::MAX });
        }),
        What::SmallOps => with_items(kit, args, |items| checks::ops(items, small)),
        What::Step => with_items(kit, args, |items| checks::step(items, kit, checks)),
        What::Train => in_one_piece(|| train::train(kit, args)),
        What::Repeat => in_one_piece(|| train::repeat(kit, args)),
        What::Sums => in_one_piece(|| group::sums(kit, quick)),
        What::TwoRanks => in_one_piece(|| group::two_ranks(kit, args)),
    }
}

/// Work that is made of items, on a device that is opened before the first.
fn with_items(kit: &Kit, args: &WorkArgs, work: impl FnOnce(&mut items::Items)) -> ExitCode {
    match (kit.open)(None) {
        Ok(device) => {
            let mut items = items::Items::new(device, args);
            work(&mut items);
            items.end()
        }
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Work whose first fault is its end.
fn in_one_piece(work: impl FnOnce() -> Result<String, String>) -> ExitCode {
    match panic::catch_unwind(panic::AssertUnwindSafe(work)) {
        Ok(Ok(figure)) => {
            println!("{figure}");
            ExitCode::SUCCESS
        }
        Ok(Err(fault)) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// The words of a panic.
fn said(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
