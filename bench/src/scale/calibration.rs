//! Factors that bring the model's parts to the review's table, for the code as it is and after its
//! changes.

use configs::Config;
use dali::order::PaddedShape;
use device::Gpu;
use serde::Serialize;

use super::model::{Model, PARTS, Work};
use super::rates::GAP_MS;
use super::simulate::Task;
use super::stage::Stage;

/// Positive RoIs of an image in the review's table.
pub(super) const POSITIVES: f64 = 64.0;
/// The step of the table.
const PRESET: &str = "torchvision_r50";
const IMAGES: usize = 12;
const PADDED: PaddedShape = PaddedShape { height: 800, width: 1344 };

/// ms of 12 images of 800x1344, by [`PARTS`]: now, after change 9, after change 10.
const A100: [[f64; 3]; 8] = [
    [19.4, 14.8, 14.8],
    [30.5, 18.8, 18.8],
    [27.0, 19.7, 19.7],
    [6.9, 5.4, 5.4],
    [23.2, 11.7, 11.7],
    [4.1, 3.0, 3.0],
    [3.5, 1.8, 1.8],
    [1.9, 1.1, 1.1],
];
const H100: [[f64; 3]; 8] = [
    [11.9, 8.3, 7.1],
    [16.3, 10.6, 9.1],
    [14.1, 10.8, 8.5],
    [3.8, 2.9, 2.2],
    [13.6, 6.4, 5.1],
    [2.5, 1.5, 1.1],
    [2.2, 1.2, 1.2],
    [1.3, 0.7, 0.7],
];
/// The review's whole steps on an H200, for which it has no parts.
const H200_STEP: [f64; 3] = [62.0, 39.7, 31.7];

/// Factors on the model's times for the code that the review saw, by [`PARTS`]: what [`A100`] and
/// [`H100`] gave on 2026-11-22, before the first of its changes was built. Today's step has these
/// factors too, so that what a change saves is the model's own prediction.
const A100_FACTORS: [f64; 8] = [0.9020, 0.9014, 0.9128, 0.9268, 1.0154, 1.0960, 2.1097, 0.6161];
const H100_FACTORS: [f64; 8] = [0.8881, 0.8521, 0.8993, 0.9013, 0.7933, 0.9372, 2.2516, 0.6296];
/// The factor of an H200 on top.
const H200_FACTOR: f64 = 0.9884;

/// Factors on the model's times, by [`PARTS`], and how they were found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Calibration {
    pub(super) stage: Stage,
    /// The GPU of the table: an H200 takes the factors of an H100.
    pub(super) table: &'static str,
    pub(super) parts: Vec<Part>,
    /// The factor of an H200 on top, for the review's whole step; else 1.
    pub(super) whole: f64,
    /// The calibrated model's sum for the table's step, nodes one after the other.
    pub(super) serial_ms: f64,
    /// The review's.
    pub(super) review_ms: f64,
}

/// A part of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Part {
    pub(super) part: &'static str,
    /// Before calibration.
    pub(super) model_ms: f64,
    pub(super) review_ms: f64,
    pub(super) factor: f64,
}

impl Calibration {
    /// Compares the model of the table's step with the table.
    pub(super) fn new(gpu: &Gpu, stage: Stage) -> anyhow::Result<Self> {
        let (table, rows, factors, of) = match gpu.capability.major {
            ..9 => ("A100", A100, A100_FACTORS, Gpu::a100()),
            _ => ("H100", H100, H100_FACTORS, Gpu::h100()),
        };
        let config = Config::load(PRESET, &[])?;
        let works = Model::new(&config, IMAGES, PADDED, &of)?.at(stage).works(POSITIVES);
        let part = |(row, name): (usize, &&'static str)| {
            let (gaps, body) = sums(works.iter().filter(|work| work.part == row), stage);
            let review_ms = rows[row][stage.column()];
            let factor = match stage {
                _ if stage.is_today() => factors[row],
                _ => (review_ms - gaps) / body,
            };
            Part { part: name, model_ms: gaps + body, review_ms, factor }
        };
        let parts: Vec<Part> = PARTS.iter().enumerate().map(part).collect();
        let review_ms = rows.iter().map(|row| row[stage.column()]).sum();
        let mut found = Self { stage, table, parts, whole: 1.0, serial_ms: 0.0, review_ms };
        let own = Model::new(&config, IMAGES, PADDED, gpu)?.at(stage).works(POSITIVES);
        if gpu.name == "H200" {
            found.review_ms = H200_STEP[stage.column()];
            let (gaps, _) = sums(own.iter(), stage);
            let bodies = found.by_part(&own).iter().sum::<f64>() - gaps;
            found.whole = match stage {
                _ if stage.is_today() => H200_FACTOR,
                _ => (found.review_ms - gaps) / bodies,
            };
        }
        found.serial_ms = found.by_part(&own).iter().sum();
        Ok(found)
    }

    /// Milliseconds of each part, its nodes one after the other.
    pub(super) fn by_part(&self, works: &[Work]) -> [f64; PARTS.len()] {
        let mut parts = [0.0; PARTS.len()];
        for work in works {
            parts[work.part] += self.time(work).ms;
        }
        parts
    }

    /// The nodes of one rank in launch order, as tasks of a time line.
    pub(super) fn tasks(&self, works: Vec<Work>) -> Vec<Task> {
        let task = |work: Work| {
            let timed = self.time(&work);
            Task {
                stream: work.stream,
                ms: timed.ms,
                share: timed.share,
                keeps: false,
                waits: work.waits,
            }
        };
        works.into_iter().map(task).collect()
    }

    /// How long a node takes alone, and how much of the GPU it takes meanwhile.
    pub(super) fn time(&self, work: &Work) -> Timed {
        let factor = self.whole * self.parts[work.part].factor;
        let mut timed = Timed { ms: 0.0, share: 0.0 };
        let mut ideal = 0.0;
        for piece in work.pieces.iter().filter(|p| self.stage.is_today() || !p.fused_later) {
            timed.ms += GAP_MS + factor * piece.alone.ms;
            ideal += factor * piece.alone.ideal_ms;
        }
        if timed.ms > 0.0 {
            timed.share = (ideal / timed.ms).clamp(0.0, 1.0);
        }
        timed
    }
}

/// A node's time and share of the GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timed {
    pub(super) ms: f64,
    pub(super) share: f64,
}

/// Gaps and bodies of the launches that are left at a stage, in ms.
fn sums<'a>(works: impl Iterator<Item = &'a Work>, stage: Stage) -> (f64, f64) {
    let pieces = works.flat_map(|work| &work.pieces);
    let left = pieces.filter(|piece| stage.is_today() || !piece.fused_later);
    left.fold((0.0, 0.0), |(gaps, body), piece| (gaps + GAP_MS, body + piece.alone.ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calibrated step takes what the review says after its changes, and today's no more than
    /// before them; no factor is far from 1.
    #[test]
    fn the_calibrated_step_is_that_of_the_review() {
        for gpu in Gpu::NAMES.map(|name| Gpu::named(name).expect(name)) {
            for stage in [Stage::Review, Stage::Now, Stage::Step9, Stage::Step10] {
                let found = Calibration::new(&gpu, stage).expect("a calibration");
                let ratio = found.serial_ms / found.review_ms;
                match stage {
                    _ if stage.is_today() => {
                        assert!((0.5..1.001).contains(&ratio), "{}: {ratio}", gpu.name)
                    }
                    _ => assert!((ratio - 1.0).abs() < 1e-9, "{} {stage:?}: {ratio}", gpu.name),
                }
                assert!((found.whole - 1.0).abs() < 0.1, "{} {stage:?}: {found:?}", gpu.name);
                for part in &found.parts {
                    // The review's table has less than today's step in some parts.
                    assert!((0.2..4.0).contains(&part.factor), "{} {stage:?}: {part:?}", gpu.name);
                }
            }
        }
    }
}
