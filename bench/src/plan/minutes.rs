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
/// A step with the padded shapes of a real epoch, by one where every image has the largest.
const REAL_SHAPES: f64 = 0.9;
/// Seconds that training waits for an evaluation, and those before the first epoch and after the
/// last one: guesses about what NVIDIA's entry takes (3.1 on H100; 0.45 and 9.3).
const EVALUATION_SECONDS: [f64; 3] = [1.9, 2.8, 4.0];
const ENDS_SECONDS: [f64; 3] = [7.5, 10.0, 13.0];
/// The best entries on one node of 8, in minutes: GIGABYTE's v2.1, and NVIDIA's v3.0.
const A100_RECORD: f64 = 37.92;
const H100_RECORD: f64 = 19.18;

/// A projected run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Minutes {
    pub(super) global_batch: usize,
    pub(super) epochs: f64,
    /// From fast to slow.
    pub(super) total: [f64; 3],
    pub(super) record: Option<f64>,
}

/// Projects the run of these ranks, if epochs to the target are known for their global batch.
pub(super) fn project(
    args: &PlanArgs,
    gpu: &Gpu,
    images: usize,
    step_ms: [f64; 3],
) -> Option<Minutes> {
    let global_batch = args.gpus * images;
    let (_, epochs) = *EPOCHS.iter().find(|(batch, _)| *batch == global_batch)?;
    let steps = epochs * (TRAIN_IMAGES / global_batch + 1) as f64;
    let record = match (args.gpus, gpu.capability.major) {
        (8, ..9) => Some(A100_RECORD),
        (8, _) => Some(H100_RECORD),
        _ => None,
    };
    let case = |i: usize| {
        let evaluation = args.evaluation_seconds.unwrap_or(EVALUATION_SECONDS[i]);
        minutes(epochs, steps * REAL_SHAPES * step_ms[i] / 1e3, evaluation, ENDS_SECONDS[i])
    };
    Some(Minutes { global_batch, epochs, total: [0, 1, 2].map(case), record })
}

/// Minutes of training, of evaluations, and of start and end, all in seconds. The last evaluation
/// is waited for; it is in the end.
fn minutes(epochs: f64, training: f64, evaluation: f64, ends: f64) -> f64 {
    (training + (epochs - 1.0) * evaluation + ends) / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVIDIA's own steps give its own minutes: 64.3 ms on H100 and 134.9 on A100, median epochs.
    #[test]
    fn the_record_comes_back() {
        let run = |step_ms: f64, evaluation: f64| {
            let steps = 14.0 * (TRAIN_IMAGES / 96 + 1) as f64;
            minutes(14.0, steps * step_ms / 1e3, evaluation, 9.75)
        };
        // Its evaluations block for 3.1 s.
        assert!((run(64.3, 3.1) / H100_RECORD - 1.0).abs() < 0.01);
        assert!((run(134.9, 5.1) / 40.134 - 1.0).abs() < 0.02);
    }
}
