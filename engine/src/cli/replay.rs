//! `onegraph replay`.

use std::path::PathBuf;

use clap::Args;

use super::device::DeviceArgs;
use crate::EngineError;
use crate::train::Replay;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// File in the `replay` folder of a run.
    file: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &ReplayArgs) -> Result<(), EngineError> {
    let replay = Replay::load(&args.file)?;
    let backend = args.device.open()?;
    let found = replay.run(&args.file, &backend)?;
    let ids: Vec<String> = replay.image_ids.iter().map(u64::to_string).collect();
    let mut text =
        format!("step {} on {}, images {}\n", replay.step, backend.name(), ids.join(", "));
    for (title, losses) in [("in the run", &replay.losses), ("again", &found.losses)] {
        text += &format!("{title}:");
        losses.iter().for_each(|(name, value)| text += &format!("  {name} {value:.4}"));
        text += "\n";
    }
    text += &match found.non_finite {
        Some(tensor) => format!("first non-finite: {tensor}\n"),
        None => "all values are finite\n".into(),
    };
    super::print(&text)
}
