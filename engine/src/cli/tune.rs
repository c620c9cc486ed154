//! `onegraph tune`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use configs::Config;
use dali::order::PaddedShape;
use device::Device;

use super::device::ORDINAL;
use crate::EngineError;
use crate::dataset::{DataSet, Split};
use crate::progress::{Progress, counted};
use crate::tuning::{Row, Session, Shapes, Start, Table, Tuned, end_with_parent, run_trials};

#[derive(Debug, Args)]
pub(super) struct TuneArgs {
    /// Config file, or the name of a preset: the products of its training step are measured.
    config: String,
    /// Override a config value, such as --set train.batch_size=96.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Measure the step of one padded shape, such as 800x1344, without the config's data: its
    /// products are those of COCO's 80 classes, if the config states no number.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// Measure the step of one rank of this many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1(4096))]
    ranks: usize,
    /// Timed runs of each choice; their median counts.
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = at_least_1(1000))]
    repeats: usize,
    /// The table's file, for train.tuning.
    #[arg(long, value_name = "FILE", default_value = "tuning.json")]
    out: PathBuf,
    /// Measure from this product and choice on, and print events: the command runs itself so.
    #[arg(long, hide = true, num_args = 2, value_names = ["PRODUCT", "CHOICE"])]
    from: Option<Vec<usize>>,
}

fn at_least_1(most: u64) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=most)
}

pub(super) fn run(args: &TuneArgs) -> Result<(), EngineError> {
    match &args.from {
        Some(from) => measure(args, Start { product: from[0], choice: from[1] }),
        None => watch(args),
    }
}

/// Starts processes that measure, and writes the table.
fn watch(args: &TuneArgs) -> Result<(), EngineError> {
    let config = Config::load(&args.config, &args.set)?;
    let progress = Progress::loud();
    if args.padded.is_none() {
        // Drawn, or refused, here: the other processes find it.
        DataSet::open(&config, Split::Train, &progress)?;
    }
    let (gpu, name) = {
        let cuda = crate::tuning::open(ORDINAL, super::device::notice)?;
        (cuda.gpu().name.clone(), cuda.name())
    };
    let program = std::env::current_exe()
        .map_err(|e| EngineError::Usage(format!("this program does not find itself: {e}")))?;
    let start = |at: Start| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).arg("--from");
        command.args([at.product.to_string(), at.choice.to_string()]);
        command
    };
    let mut done = |table: &Table, name: &str, at: (usize, usize)| {
        progress.say(&line(name, &table.products[name], at));
        // As it grows: an interruption leaves what was measured.
        crate::run_dir::write_whole(&args.out, table.to_json().as_bytes())
    };
    let session = Session::new((gpu, name), args.repeats, &start, &mut done);
    let Tuned { table, sums: [model, best] } = session.run()?;
    if table.products.is_empty() {
        return Err(EngineError::Usage("no product of this config could be measured".into()));
    }
    let out = args.out.display();
    super::print(&format!(
        "written: {out}; a run follows it with --set train.tuning={out}\n\
         {} of a step: {model:.3} ms by the model's choices, {best:.3} ms by these ({:.3})\n",
        counted(table.products.len(), "product"),
        best / model
    ))
}

/// A product's row as a line: the best choice beside the model's.
fn line(name: &str, row: &Row, (index, of): (usize, usize)) -> String {
    let Row { best, best_ms, model, model_ms, refused, .. } = row;
    let mut text =
        format!("{}/{of} {name}: {} x {}, {best_ms:.4} ms", index + 1, best.kernel, best.splits);
    text += &match model_ms {
        _ if best == model => "; the model's".into(),
        Some(ms) => format!("; the model's {} x {}, {ms:.4} ms", model.kernel, model.splits),
        None => format!("; the model's {} x {} refused", model.kernel, model.splits),
    };
    for refused in refused {
        let (choice, reason) = (&refused.choice, &refused.reason);
        text += &format!("\n  refused: {} x {}: {reason}", choice.kernel, choice.splits);
    }
    text
}

/// Measures, and prints events.
fn measure(args: &TuneArgs, start: Start) -> Result<(), EngineError> {
    end_with_parent();
    let config = Config::load(&args.config, &args.set)?;
    let data;
    let shapes = match args.padded {
        Some(shape) => Shapes::Padded(shape),
        None => {
            data = DataSet::open(&config, Split::Train, &Progress::quiet())?;
            Shapes::Of(&data)
        }
    };
    let cuda = crate::tuning::open(ORDINAL, |_| ())?;
    let mut out = std::io::stdout();
    let mut tell = |event: &crate::tuning::Event| {
        let text = serde_json::to_string(event).unwrap_or_default();
        // Nobody reads on: the process is about to be ended.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    };
    run_trials((&config, shapes), (&cuda, args.ranks), (start, args.repeats), &mut tell)
}
