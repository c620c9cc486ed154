//! Minutes of a timed run to MLPerf's target, box AP 0.377 and mask AP 0.339: epochs, evaluations,
//! start and end.

use configs::mlperf::TRAIN_IMAGES;
use device::Gpu;
use serde::Serialize;

use super::PlanArgs;

/// Epochs to the target by global batch: the olympic means of MLPerf's reference convergence points
/// (mlcommons/logging, rcp_checker 3.1.0), rounded to whole epochs.
const EPOCHS: [(usize, f64); 7] =
    [(8, 13.0), (48, 14.0), (64, 14.0), (96, 14.0), (128, 14.0), (256, 17.0), (272, 17.0)];
/// From run_start to the first epoch, and after the last one, in seconds: the same entry.
const START_SECONDS: f64 = 0.45;
const END_SECONDS: f64 = 9.3;
/// The best entries on one node of 8, in minutes: GIGABYTE's v2.1, and NVIDIA's v3.0.
const A100_RECORD: f64 = 37.92;
const H100_RECORD: f64 = 19.18;

/// A projected run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Minutes {
    pub(super) global_batch: usize,
    pub(super) epochs: f64,
    /// ms of a step, over the padded shapes of a real epoch.
    pub(super) step_ms: f64,
    pub(super) training: f64,
    pub(super) evaluation: f64,
    /// Seconds that training waits for each evaluation.
    pub(super) evaluation_seconds: f64,
    pub(super) start_and_end: f64,
    pub(super) total: f64,
    pub(super) record: Option<f64>,
}

/// A step with the padded shapes of a real epoch, by one where every image has the largest: three
/// shapes an orientation, as the performance review counts them (section 1).
pub(super) fn of_real_shapes(gpu: &Gpu) -> f64 {
    match gpu.capability.major {
        ..9 => 105.8 / 116.5,
        _ => 60.3 / 65.7,
    }
}

/// Projects the run of these ranks, if epochs to the target are known for their global batch.
pub(super) fn project(
    args: &PlanArgs,
    gpu: &Gpu,
    images: usize,
    step_ms: f64,
    evaluation_seconds: f64,
) -> Option<Minutes> {
    let global_batch = args.gpus * images;
    let (_, epochs) = *EPOCHS.iter().find(|(batch, _)| *batch == global_batch)?;
    let step_ms = step_ms * of_real_shapes(gpu);
    let steps = epochs * (TRAIN_IMAGES / global_batch + 1) as f64;
    let [training, evaluation, start_and_end] = times(epochs, steps, step_ms, evaluation_seconds);
    let record = match (args.gpus, gpu.capability.major) {
        (8, ..9) => Some(A100_RECORD),
        (8, _) => Some(H100_RECORD),
        _ => None,
    };
    let total = training + evaluation + start_and_end;
    Some(Minutes {
        global_batch,
        epochs,
        step_ms,
        training,
        evaluation,
        evaluation_seconds,
        start_and_end,
        total,
        record,
    })
}

/// Minutes of training, of evaluations, and of start and end.
fn times(epochs: f64, steps: f64, step_ms: f64, evaluation_seconds: f64) -> [f64; 3] {
    // The last evaluation is waited for; it is in the end.
    let evaluation = (epochs - 1.0) * evaluation_seconds / 60.0;
    [steps * step_ms / 60e3, evaluation, (START_SECONDS + END_SECONDS) / 60.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVIDIA's own steps give its own minutes: 64.3 ms on H100 and 134.9 on A100, median epochs.
    #[test]
    fn the_record_comes_back() {
        let run = |step_ms: f64, evaluation_seconds: f64| {
            let steps = 14.0 * (TRAIN_IMAGES / 96 + 1) as f64;
            let parts = times(14.0, steps, step_ms, evaluation_seconds);
            parts.iter().sum::<f64>()
        };
        // Its evaluations block for 3.1 s.
        assert!((run(64.3, 3.1) / H100_RECORD - 1.0).abs() < 0.01);
        assert!((run(134.9, 5.1) / 40.134 - 1.0).abs() < 0.02);
    }
}
