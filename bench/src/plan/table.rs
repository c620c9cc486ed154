//! The table of `docs/expected.md`, made by the model.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use configs::Config;
use dali::order::PaddedShape;
use device::Gpu;
use kernels::time::Case;

use super::model::Model;
use super::nodes;
use super::print::range;
use super::step::{Setting, plan};
use super::wires::{Fabric, MACHINES, NODE_GPUS};

/// The markers before and after the table.
const MARKS: [&str; 2] = ["<!-- bench plan --table: begin -->\n", "<!-- end -->\n"];
const SHAPES: [PaddedShape; 2] =
    [PaddedShape { height: 800, width: 1344 }, PaddedShape { height: 800, width: 1088 }];
const IMAGES: usize = 12;
/// Ranks of one image, compared with one node of twelve.
const FAR: usize = 256;

/// Rewrites the table of a document.
pub(super) fn rewrite(path: &Path) -> anyhow::Result<()> {
    let at = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(at)?;
    let made = with_table(&text, &made()?).with_context(at)?;
    engine::run_dir::write_whole(path, made.as_bytes())?;
    say!("{}: {}", path.display(), if made == text { "is as it was" } else { "was made anew" });
    Ok(())
}

/// The document with this table between its marks.
fn with_table(text: &str, table: &str) -> anyhow::Result<String> {
    let parts = text
        .split_once(MARKS[0])
        .and_then(|(before, rest)| rest.split_once(MARKS[1]).map(|(_, after)| (before, after)));
    ensure!(
        parts.is_some(),
        "has no table between `{}` and `{}`",
        MARKS[0].trim(),
        MARKS[1].trim()
    );
    let (before, after) = parts.unwrap_or_default();
    Ok(format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]))
}

/// Milliseconds of a step in each case.
fn steps(model: &Model, fabric: Fabric) -> [f64; 3] {
    let setting = |case| Setting { model, case, fabric, bucket_mib: 50.0, positives: 64.0 };
    Case::ALL.map(|case| plan(&setting(case)).step_ms)
}

fn made() -> anyhow::Result<String> {
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
        for shape in SHAPES {
            let model = of(IMAGES, shape)?;
            let alone = fabric(1, machine.efa);
            let ms = steps(&model, alone);
            let setting = Setting {
                model: &model,
                case: Case::Expected,
                fabric: alone,
                bucket_mib: 50.0,
                positives: 64.0,
            };
            let whole = nodes::plan(&setting).whole();
            let of_image = |value: f64| value / IMAGES as f64;
            writeln!(
                text,
                "| {name}, {shape} | {} | {:.2}, {:.2} | {:.1} | {} | {} |",
                whole.kernels,
                of_image(whole.flops / 1e12),
                of_image(whole.bytes / 1e9),
                whole.floor_ms,
                range(ms, 1),
                range(ms.map(|ms| 1e3 * IMAGES as f64 / ms), 0),
            )?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_document_is_that_of_the_command() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/expected.md");
        let text = std::fs::read_to_string(path).expect("docs/expected.md");
        let made = with_table(&text, &made().expect("a table")).expect("marks");
        assert!(made == text, "bench plan --table docs/expected.md writes:\n{made}");
    }
}
