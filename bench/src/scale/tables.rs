//! What scaling keeps: many ranks of one image against one node of twelve, and weak scaling.

use serde::Serialize;

use super::model::PARTS;
use super::plan::{Setting, StepPlan, plan};
use super::wires::{Fabric, NODE_GPUS};

/// Ranks of the weak-scaling table, at one image each.
const RANKS: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// Images of a GPU in the step that others are compared with, on one node.
pub(super) const FULL_IMAGES: usize = 12;

/// Images/s/GPU at 256 ranks of one image, over those at 8 ranks of twelve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Kept {
    pub(super) full: f64,
    pub(super) single: f64,
    pub(super) percent: f64,
    /// The same if all-reduces took no time in either step: what one image a GPU costs.
    pub(super) percent_without_communication: f64,
    /// The same if every image had equally many positives: no rank waits for a slower one.
    pub(super) percent_of_equal_images: f64,
    pub(super) by_part: Vec<PartOfImage>,
}

/// What one image costs alone and among twelve, nodes one after the other, mean positives.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PartOfImage {
    pub(super) part: &'static str,
    pub(super) alone_ms: f64,
    pub(super) of_twelve_ms: f64,
}

/// A row of the weak-scaling table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Weak {
    pub(super) ranks: usize,
    pub(super) step_ms: f64,
    pub(super) communication_ms: f64,
    pub(super) exposed_ms: f64,
    pub(super) positives: f64,
    pub(super) images_per_second_per_gpu: f64,
    /// Of images/s/GPU at the first row.
    pub(super) percent: f64,
}

/// The rank counts of weak scaling for a step of one image.
pub(super) fn weak(single: &Setting<'_>) -> Vec<Weak> {
    let steps: Vec<StepPlan> = RANKS.iter().map(|ranks| plan(&at(single, *ranks))).collect();
    let first = steps[0].images_per_second_per_gpu;
    let row = |(ranks, step): (&usize, &StepPlan)| Weak {
        ranks: *ranks,
        step_ms: step.step_ms,
        communication_ms: step.communication_ms,
        exposed_ms: step.exposed_ms,
        positives: step.positives,
        images_per_second_per_gpu: step.images_per_second_per_gpu,
        percent: 100.0 * step.images_per_second_per_gpu / first,
    };
    RANKS.iter().zip(&steps).map(row).collect()
}

/// What is kept from steps of twelve images and of one.
pub(super) fn kept(full: &Setting<'_>, single: &Setting<'_>) -> Kept {
    let rates = |equal: bool| {
        let of = |setting: &Setting<'_>, ranks| plan(&Setting { equal, ..at(setting, ranks) });
        (of(full, NODE_GPUS), of(single, RANKS[RANKS.len() - 1]))
    };
    let percent = |(full, single): (f64, f64)| 100.0 * single / full;
    let (far, equal) = (rates(false), rates(true));
    let speed = |(full, single): &(StepPlan, StepPlan)| {
        (full.images_per_second_per_gpu, single.images_per_second_per_gpu)
    };
    let silent = percent((
        full.model.images as f64 / far.0.compute_ms,
        single.model.images as f64 / far.1.compute_ms,
    ));
    Kept {
        full: far.0.images_per_second_per_gpu,
        single: far.1.images_per_second_per_gpu,
        percent: percent(speed(&far)),
        percent_without_communication: silent,
        percent_of_equal_images: percent(speed(&equal)),
        by_part: by_part(full, single),
    }
}

fn by_part(full: &Setting<'_>, single: &Setting<'_>) -> Vec<PartOfImage> {
    let parts = |setting: &Setting<'_>| {
        let works = setting.model.works(setting.positives);
        setting.calibration.by_part(&works).map(|ms| ms / setting.model.images as f64)
    };
    let rows = PARTS.iter().zip(parts(single).into_iter().zip(parts(full)));
    rows.map(|(part, (alone_ms, of_twelve_ms))| PartOfImage { part, alone_ms, of_twelve_ms })
        .collect()
}

fn at<'a>(setting: &Setting<'a>, ranks: usize) -> Setting<'a> {
    Setting { fabric: Fabric { ranks, ..setting.fabric }, ..*setting }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::ValueEnum;
    use configs::Config;
    use dali::order::PaddedShape;
    use device::Gpu;

    use super::*;
    use crate::scale::calibration::{Calibration, POSITIVES};
    use crate::scale::model::Model;
    use crate::scale::stage::Stage;
    use crate::scale::wires::MACHINES;

    /// Percentage points by which the document may lag behind the Program.
    const NEAR: f64 = 2.0;

    /// Kept and weak scaling with 50 MiB, in percent.
    fn figures(gpu: &str, is_efa: bool, stage: Stage) -> (f64, f64) {
        let machine = MACHINES.iter().find(|machine| machine.gpu == gpu).expect(gpu);
        let gpu = Gpu::named(gpu).expect(gpu);
        let config = Config::load("mlperf_r50", &[]).expect("a preset");
        let padded = PaddedShape { height: 800, width: 1344 };
        let model = |images| Model::new(&config, images, padded, &gpu).expect("a model");
        let (twelve, one) = (model(FULL_IMAGES), model(1));
        let calibration = Calibration::new(&gpu, stage).expect("a calibration");
        let network = if is_efa { machine.efa } else { machine.infiniband };
        let single = Setting {
            model: &one,
            calibration: &calibration,
            fabric: Fabric { ranks: 8, nvlink: machine.nvlink, network },
            bucket_mib: 50.0,
            positives: POSITIVES,
            equal: false,
        };
        let full = Setting { model: &twelve, ..single };
        let last = weak(&single).pop().expect("rows");
        (kept(&full, &single).percent, last.percent)
    }

    #[test]
    fn the_figures_of_the_document_are_near_those_of_the_command() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scaling.md");
        let text = std::fs::read_to_string(path).expect("docs/scaling.md");
        let mut rows = 0;
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> =
                line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let Some(stage) = cells.get(2).and_then(|cell| Stage::from_str(cell, false).ok())
            else {
                continue;
            };
            let (gpu, network) = cells[1].split_once(", ").expect("a GPU and a network");
            let found = figures(&gpu.to_lowercase(), network == "EFA", stage);
            let said = |cell: usize| -> f64 {
                cells[cell].trim_end_matches(" %").parse().expect("a percentage")
            };
            let near = |said: f64, found: f64| (said - found).abs() < NEAR;
            assert!(near(said(5), found.0) && near(said(6), found.1), "{line}: now {found:?}");
            rows += 1;
        }
        assert_eq!(rows, 16);
    }
}
