//! The table of `docs/expected.md`, made by the model.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use configs::Config;
use dali::order::PaddedShape;
use device::Gpu;
use device::architecture::Architecture;
use kernels::time::Case;

use super::model::Model;
use super::nodes;
use super::print::range;
use super::step::{Setting, plan};
use super::wires::{Fabric, MACHINES, NODE_GPUS};

/// A table of a document: the line before it, and how it is made.
type Table = (&'static str, fn() -> anyhow::Result<String>);

const TABLES: [Table; 2] = [
    ("<!-- bench plan --table: begin -->\n", steps_of_gpus),
    ("<!-- bench plan --table: models -->\n", models),
];
/// The line behind it.
const END: &str = "<!-- end -->\n";
const SHAPES: [PaddedShape; 2] =
    [PaddedShape { height: 800, width: 1344 }, PaddedShape { height: 800, width: 1088 }];
const IMAGES: usize = 12;
/// Ranks of one image, compared with one node of twelve.
const FAR: usize = 256;

/// The presets of whole models, one line each.
const MODELS: [&str; 23] = [
    "torchvision_r18",
    "torchvision_r34",
    "torchvision_r50",
    "torchvision_r101",
    "torchvision_r152",
    "torchvision_resnext50",
    "torchvision_resnext101",
    "convnext_tiny",
    "torchvision_r50_v2",
    "torchvision_keypoint_r50",
    "faster_r50",
    "detectron2_r50_1x",
    "detectron2_r50_3x",
    "detectron2_r101_3x",
    "detectron2_faster_r50_3x",
    "detectron2_r50_c4_3x",
    "detectron2_r101_c4_3x",
    "detectron2_r50_dc5_3x",
    "detectron2_x101_3x",
    "detectron2_cascade_r50_3x",
    "detectron2_keypoint_r50_3x",
    "detectron2_r50_lsj",
    "mlperf_r50",
];

/// Rewrites the table of a document.
pub(super) fn rewrite(path: &Path) -> anyhow::Result<()> {
    let at = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(at)?;
    let made = with_table(&text).with_context(at)?;
    engine::run_dir::write_whole(path, made.as_bytes())?;
    say!("{}: {}", path.display(), if made == text { "is as it was" } else { "was made anew" });
    Ok(())
}

/// The document with its table made anew.
fn with_table(text: &str) -> anyhow::Result<String> {
    for (begin, made) in TABLES {
        let Some((before, rest)) = text.split_once(begin) else { continue };
        let Some((_, after)) = rest.split_once(END) else { break };
        return Ok(format!("{before}{begin}{}{END}{after}", made()?));
    }
    let begins = TABLES.map(|(begin, _)| format!("`{}`", begin.trim())).join(" or ");
    bail!("has no table between {begins} and `{}`", END.trim())
}

/// Milliseconds of a step in each case.
fn steps(model: &Model, fabric: Fabric) -> [f64; 3] {
    let setting = |case| Setting { model, case, fabric, bucket_mib: 50.0, positives: 64.0 };
    Case::ALL.map(|case| plan(&setting(case)).step_ms)
}

fn steps_of_gpus() -> anyhow::Result<String> {
    let mut text = "| GPU, 12 images of | kernels | TFLOP, GB an image | floor, ms | step, ms | \
                    images/s |\n|---|---|---|---|---|---|\n"
        .to_string();
    let mut far =
        "\n| GPU, network | 8 GPUs of 12 images, images/s/GPU | 256 GPUs of one | kept |\n\
                   |---|---|---|---|\n"
            .to_string();
    let config = Config::load("mlperf_r50", &[])?;
    for machine in MACHINES {
        let gpu = Gpu::named(machine.gpu).with_context(|| machine.gpu.to_string())?;
        let fabric = |ranks, network| Fabric { ranks, nvlink: machine.nvlink, network };
        let of = |images, shape| Model::new(&config, images, shape, &gpu);
        let name = machine.gpu.to_uppercase();
        let plain = Gpu { wgmma: false, ..gpu.clone() };
        let is_hopper = gpu.runs(Architecture::COMPUTE_90A);
        let without = is_hopper.then(|| (format!("{name} without warpgroups"), &plain));
        for (name, gpu) in [(name.clone(), &gpu)].into_iter().chain(without) {
            for shape in SHAPES {
                let model = Model::new(&config, IMAGES, shape, gpu)?;
                text += &row(&name, &model, fabric(1, machine.efa), shape);
            }
        }
        let (full, single) = (of(IMAGES, SHAPES[0])?, of(1, SHAPES[0])?);
        for network in [machine.efa, machine.infiniband] {
            let rate = |model: &Model, ranks| {
                steps(model, fabric(ranks, network)).map(|ms| 1e3 * model.images as f64 / ms)
            };
            let (near, apart) = (rate(&full, NODE_GPUS), rate(&single, FAR));
            let kept = [0, 1, 2].map(|case| 100.0 * apart[case] / near[case]);
            writeln!(
                far,
                "| {name}, {} | {} | {} | {} % |",
                network.name,
                range(near, 0),
                range(apart, 0),
                range(kept, 0)
            )?;
        }
    }
    Ok(text + &far)
}

/// The row of a step of one GPU.
fn row(name: &str, model: &Model, fabric: Fabric, shape: PaddedShape) -> String {
    let (case, positives) = (Case::Expected, 64.0);
    let whole = nodes::plan(&Setting { model, case, fabric, bucket_mib: 50.0, positives }).whole();
    let of_image = |value: f64| value / IMAGES as f64;
    let ms = steps(model, fabric);
    format!(
        "| {name}, {shape} | {} | {:.2}, {:.2} | {:.1} | {} | {} |\n",
        whole.kernels,
        of_image(whole.flops / 1e12),
        of_image(whole.bytes / 1e9),
        whole.floor_ms,
        range(ms, 1),
        range(ms.map(|ms| 1e3 * IMAGES as f64 / ms), 0),
    )
}

/// The cost of each model: what it trains, and a step of one H100.
fn models() -> anyhow::Result<String> {
    let mut text = "| preset | trained parameters, M | TFLOP an image | one H100, images/s |\n\
                    |---|---|---|---|\n"
        .to_string();
    let machine = MACHINES.iter().find(|machine| machine.gpu == "h100").context("h100")?;
    let gpu = Gpu::named(machine.gpu).context("h100")?;
    let fabric = Fabric { ranks: 1, nvlink: machine.nvlink, network: machine.efa };
    for preset in MODELS {
        let config = Config::load(preset, &[])?;
        let model = Model::new(&config, IMAGES, SHAPES[0], &gpu).context(preset)?;
        let trained: usize =
            model.grads.iter().map(|grad| model.prepared.program.desc(*grad).len()).sum();
        let setting = Setting {
            model: &model,
            case: Case::Expected,
            fabric,
            bucket_mib: 50.0,
            positives: 64.0,
        };
        let whole = nodes::plan(&setting).whole();
        let rate = steps(&model, fabric).map(|ms| 1e3 * IMAGES as f64 / ms);
        writeln!(
            text,
            "| `{preset}` | {:.1} | {:.2} | {} |",
            trained as f64 / 1e6,
            whole.flops / 1e12 / IMAGES as f64,
            range(rate, 0),
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_documents_are_those_of_the_command() {
        for page in ["expected", "models"] {
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
            let path = docs.join(format!("{page}.md"));
            let text = std::fs::read_to_string(path).expect("a page");
            let made = with_table(&text).expect("marks");
            assert!(made == text, "bench plan --table docs/{page}.md writes:\n{made}");
        }
    }
}
