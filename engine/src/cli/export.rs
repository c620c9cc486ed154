//! `onegraph export`: a trained model under the names of torchvision or detectron2.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model::ModelArgs;
use crate::EngineError;
use crate::model::classes_of;
use crate::progress::{Progress, counted};
use crate::run_dir::write_whole;
use crate::runtime::Backend;
use crate::weights::{
    Dialect, ExportForm, PUBLISHED, detectron2_settings, differences, export_weights,
};

#[derive(Debug, Args)]
#[command(after_long_help = published())]
pub(super) struct ExportArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Project whose names and order of classes the file gets.
    #[arg(long, value_name = "PROJECT")]
    format: Format,
    /// File to write; its ending, .safetensors or .pth, decides the form.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// torchvision's maskrcnn_resnet50_fpn and the like: the background is the first class.
    Torchvision,
    /// detectron2's GeneralizedRCNN: the background is the last class.
    Detectron2,
}

impl Format {
    fn dialect(self) -> Dialect {
        match self {
            Format::Torchvision => Dialect::Torchvision,
            Format::Detectron2 => Dialect::Detectron2,
        }
    }
}

pub(super) fn run(args: &ExportArgs) -> Result<(), EngineError> {
    let form = ExportForm::of(&args.out)?;
    let progress = Progress::loud();
    let mut model = args.model.open(&[], &Backend::Cpu, &progress)?;
    let dialect = args.format.dialect();
    let found = differences(&model.config, dialect);
    if !found.is_empty() && !args.model.names_only() {
        return Err(EngineError::Usage(format!(
            "{} has no place for what this model has: {}; --names-only writes the tensors all the \
             same",
            dialect.name(),
            found.join("; ")
        )));
    }
    let (params, classes) = (&model.params, model.categories.as_deref());
    let state = model.state.fetch()?;
    let bytes = export_weights(params, state, classes, form, dialect)?;
    write_whole(&args.out, &bytes)?;
    let mut text = format!(
        "{}: {} under the names of {}\n",
        args.out.display(),
        counted(params.len(), "tensor"),
        dialect.name()
    );
    for what in &found {
        text += &format!("not in the file: {what}\n");
    }
    if dialect == Dialect::Detectron2 {
        text += "class i of detectron2, from 0, is class i + 1 here; in its config set\n";
        for setting in detectron2_settings(&model.config, classes_of(params)) {
            text += &format!("  {setting}\n");
        }
    }
    super::print(&text)
}

/// The published files that are read, each with its URL.
fn published() -> String {
    let line = |file: &crate::weights::Published| format!("  {}\n    {}", file.what, file.url);
    let lines: Vec<String> = PUBLISHED.iter().map(line).collect();
    format!("Published weights that --init, --weights and configs take:\n{}", lines.join("\n"))
}
