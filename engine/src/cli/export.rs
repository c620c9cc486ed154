//! `onegraph export`: a trained model as an ONNX file, or its weights under torchvision or
//! detectron2 names.

use std::path::PathBuf;

use crate::config::NormKind;
use clap::{Args, ValueEnum};
use onnx::OPSET;

use super::model::ModelArgs;
use crate::EngineError;
use crate::model::{ImageSize, classes_of};
use crate::onnx_file::{onnx_bytes, square};
use crate::progress::{Progress, counted};
use crate::run_dir::write_whole;
use crate::runtime::Backend;
use crate::weights::{
    self, Dialect, EPS, ExportForm, detectron2_settings, differences, export_weights, fold_eps,
};

#[derive(Debug, Args)]
#[command(after_long_help = published())]
pub(super) struct ExportArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The complete detection pass for other runtimes (onnx), or weights with the names and class
    /// order of another project (torchvision, detectron2).
    #[arg(long)]
    format: Format,
    /// File to write. For weights, the extension selects the format: .safetensors or .pth.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// With onnx: height and width that images are padded to. Default: a square with sides of
    /// input.max_size, which holds any resized image.
    #[arg(long, value_name = "HxW", value_parser = parse_shape)]
    shape: Option<ImageSize>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Weights for torchvision's models (maskrcnn_resnet50_fpn etc.): the background is the first
    /// class.
    Torchvision,
    /// Weights for detectron2's GeneralizedRCNN: the background is the last class.
    Detectron2,
    /// ONNX with standard ops: pixels in, detections out (docs/deploy.md).
    Onnx,
}

/// Maximum height and width of the images in an ONNX file, which stores all anchors as constants.
const MAX_SIDE: usize = 8192;

fn parse_shape(text: &str) -> Result<ImageSize, String> {
    let sides = text.split_once('x').map(|(height, width)| (height.parse(), width.parse()));
    match sides {
        Some((Ok(height), Ok(width))) if height <= MAX_SIDE && width <= MAX_SIDE => {
            Ok(ImageSize { height, width })
        }
        Some((Ok(_), Ok(_))) => Err(format!("a side may have at most {MAX_SIDE} pixels")),
        _ => Err("give HEIGHTxWIDTH, such as 800x1344".to_string()),
    }
}

pub(super) fn run(args: &ExportArgs) -> Result<(), EngineError> {
    match args.format {
        Format::Onnx => onnx(args),
        _ if args.shape.is_some() => {
            Err(EngineError::Usage("--shape only applies to --format onnx: remove it".into()))
        }
        Format::Torchvision => weights(args, Dialect::Torchvision),
        Format::Detectron2 => weights(args, Dialect::Detectron2),
    }
}

fn onnx(args: &ExportArgs) -> Result<(), EngineError> {
    if args.out.extension().is_none_or(|ending| ending != "onnx") {
        let out = args.out.display();
        return Err(EngineError::Usage(format!("--out {out}: the name must end in .onnx")));
    }
    let mut model = args.model.open(&Backend::Cpu, &Progress::loud())?;
    let shape = args.shape.unwrap_or_else(|| square(&model.config));
    let bytes = onnx_bytes(&mut model, shape)?;
    write_whole(&args.out, &bytes)?;
    let ImageSize { height, width } = shape;
    let out = args.out.display();
    let mut text = format!("{out}: opset {OPSET}, images [N, 3, {height}, {width}]\n");
    let input = &model.config.input;
    if height.min(width) < input.min_size || height.max(width) < input.max_size {
        text += &format!(
            "not all images fit: the model resizes images to up to {} by {} pixels\n",
            input.min_size, input.max_size
        );
    }
    if let Some(threshold) = model.config.model.detections.class_agnostic_nms_threshold {
        text +=
            &format!("the file omits the model's class-agnostic NMS with threshold {threshold}\n");
    }
    super::print(&text)
}

fn weights(args: &ExportArgs, dialect: Dialect) -> Result<(), EngineError> {
    let form = ExportForm::of(&args.out)?;
    let progress = Progress::loud();
    let mut model = args.model.open(&Backend::Cpu, &progress)?;
    // If the config's epsilon is not the one that other projects use, the difference is folded into
    // the variances of frozen norms.
    let eps = model.config.model.backbone.norm_eps;
    let mut config = model.config.clone();
    let has_variances = model.params.iter().any(|param| param.name.ends_with(".running_var"));
    let folds = eps != EPS && has_variances && !config.model.has_norm(NormKind::GroupNorm);
    if folds {
        config.model.backbone.norm_eps = EPS;
    }
    let found = differences(&config, dialect);
    if !found.is_empty() && !args.model.names_only() {
        return Err(EngineError::Usage(format!(
            "{} models lack properties of this model: {}; --names-only writes the tensors anyway",
            dialect.name(),
            found.join("; ")
        )));
    }
    let (params, classes) = (&model.params, model.categories.as_deref());
    let mut state = model.state.fetch()?.clone();
    if folds {
        fold_eps(params, &mut state, eps);
    }
    let classes = classes.map(|classes| (classes, model.keypoints.as_slice()));
    let bytes = export_weights(params, &state, classes, form, dialect)?;
    write_whole(&args.out, &bytes)?;
    let mut text = format!(
        "{}: {} under the names of {}\n",
        args.out.display(),
        counted(params.len(), "tensor"),
        dialect.name()
    );
    if folds {
        text += &format!(
            "the norms' epsilon {eps} was folded into their variances: load the file with \
             model.backbone.norm_eps={EPS}\n"
        );
    }
    for what in &found {
        text += &format!("{} models lack: {what}\n", dialect.name());
    }
    if dialect == Dialect::Detectron2 {
        text += "class i in detectron2, from 0, is class i + 1 here; in detectron2's config set\n";
        for setting in detectron2_settings(&model.config, classes_of(params)) {
            text += &format!("  {setting}\n");
        }
    }
    super::print(&text)
}

/// Help text: the supported published weights files, each with its URL.
fn published() -> String {
    let lines = weights::published().map(|(what, url)| format!("  {what}\n    {url}"));
    let lines: Vec<String> = lines.collect();
    format!("Published weights files for --init, --weights and configs:\n{}", lines.join("\n"))
}
