//! How long training waits for an evaluation: the detection pass of all images, spread over the
//! ranks, with its images already on the GPUs.

use graph::{Program, TensorKind};
use serde::Serialize;

use super::calibration::Calibration;
use super::minutes::of_real_shapes;
use super::model::Model;
use super::simulate::simulate;

/// Images of COCO's val2017.
const IMAGES: usize = 5000;
/// Padded shapes, whose last batches are not full.
const SHAPES: usize = 6;
/// A copy from a GPU to memory that is not pinned, in GB/s: about a third of PCIe 4's.
const RESULTS_GB_S: f64 = 8.0;
/// A wait of the host and its next call, for each tensor of a batch's results, in ms.
const CALL_MS: f64 = 0.03;

/// A projected evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Evaluation {
    pub(super) images: usize,
    /// Images of a batch.
    pub(super) batch: usize,
    /// Batches of the rank that has most.
    pub(super) batches: usize,
    /// ms of the model for a batch, over real shapes.
    pub(super) model_ms: f64,
    /// ms to copy its inputs within the GPU, and its results to the host.
    pub(super) copies_ms: f64,
    /// Seconds to copy weights and optimizer to the host before.
    pub(super) state_seconds: f64,
    /// Seconds that training waits.
    pub(super) seconds: f64,
}

/// Projects an evaluation on `ranks` GPUs that train `step` and detect by `detection`.
pub(super) fn project(
    step: &Model,
    detection: &Model,
    calibration: &Calibration,
    ranks: usize,
) -> Evaluation {
    let program = &detection.prepared.program;
    let tasks = calibration.tasks(detection.works(detection.capacity));
    let whole_ms = simulate(&tasks).iter().map(|span| span.end).fold(0.0, f64::max);
    let model_ms = whole_ms * of_real_shapes(&detection.gpu);
    let target = &detection.prepared.target;
    let bytes = |program: &Program, kind: TensorKind, keeps: &dyn Fn(&str) -> bool| -> f64 {
        let tensors = program.tensors().iter().filter(|t| t.kind == kind && keeps(&t.name));
        tensors.map(|t| target.bytes(&t.desc) as f64).sum()
    };
    let results = |name: &str| name.starts_with("det_") || name == "mask_probs";
    // Within the GPU a copy reads and writes.
    let inputs_ms = detection.rates.stream_ms(2.0 * bytes(program, TensorKind::Input, &|_| true));
    let results_ms =
        bytes(program, TensorKind::Value, &results) / RESULTS_GB_S / 1e6 + 6.0 * CALL_MS;
    // Copied to the host, and there once more, as training goes on in the first copy.
    let state = bytes(&step.prepared.program, TensorKind::State, &|_| true);
    let state_seconds = 2.0 * state / RESULTS_GB_S / 1e9;
    let batches = (IMAGES.div_ceil(detection.images) + SHAPES - 1).div_ceil(ranks);
    let copies_ms = inputs_ms + results_ms;
    Evaluation {
        images: IMAGES,
        batch: detection.images,
        batches,
        model_ms,
        copies_ms,
        state_seconds,
        seconds: batches as f64 * (model_ms + copies_ms) / 1e3 + state_seconds,
    }
}

#[cfg(test)]
mod tests {
    use configs::Config;
    use dali::order::PaddedShape;
    use device::Gpu;

    use super::*;
    use crate::scale::stage::Stage;

    /// On 8 H100 training waits for less than the record's 3.1 s, and more GPUs wait less.
    #[test]
    fn ranks_share_an_evaluation() {
        let config = Config::load("mlperf_r50", &[]).expect("a preset");
        let gpu = Gpu::named("h100").expect("a GPU");
        let shape = PaddedShape { height: 800, width: 1344 };
        let step = Model::new(&config, 12, shape, &gpu).expect("a step");
        let model = Model::detection(&config, 12, shape, &gpu).expect("a model");
        let calibration = Calibration::new(&gpu, Stage::Now).expect("a calibration");
        let [one, eight] = [1, 8].map(|ranks| project(&step, &model, &calibration, ranks));
        assert_eq!((one.batches, eight.batches), (422, 53));
        assert!(eight.seconds < 3.1 && one.seconds > 5.0 * eight.seconds, "{one:?} {eight:?}");
        // A third of a training step's products, on as many images.
        assert!((5.0..20.0).contains(&eight.model_ms), "{eight:?}");
    }
}
