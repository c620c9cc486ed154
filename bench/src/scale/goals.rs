//! What the step of Mask R-CNN R50 keeps to, counted on paper: a change that adds work, bytes or
//! launches shows here.

use configs::Config;
use dali::order::PaddedShape;
use device::Gpu;

use super::calibration::{Calibration, POSITIVES};
use super::model::Model;
use super::nodes::{self, NodesPlan};
use super::plan::Setting;
use super::stage::Stage;
use super::wires::{Fabric, MACHINES};

const IMAGES: usize = 12;

fn step(gpu: &Gpu, padded: PaddedShape) -> NodesPlan {
    let config = Config::load("torchvision_r50", &[]).expect("a preset");
    let model = Model::new(&config, IMAGES, padded, gpu).expect("a model");
    let calibration = Calibration::new(gpu, Stage::Now).expect("a calibration");
    nodes::plan(&Setting {
        model: &model,
        calibration: &calibration,
        fabric: Fabric { ranks: 1, nvlink: MACHINES[0].nvlink, network: MACHINES[0].efa },
        bucket_mib: 50.0,
        positives: POSITIVES,
        equal: true,
    })
}

/// TFLOP, GB and kernels of a step at 800x1088, 64 positives an image.
const TFLOP: f64 = 0.99;
const GIGABYTES: f64 = 3.4;
const KERNELS: usize = 343;

#[test]
fn the_step_keeps_to_its_work() {
    let step = step(&Gpu::h100(), PaddedShape { height: 800, width: 1088 });
    let whole = step.whole();
    let of_image = |value: f64, unit: f64| value / unit / IMAGES as f64;
    let (tflop, gigabytes) = (of_image(whole.flops, 1e12), of_image(whole.bytes, 1e9));
    assert!(tflop <= TFLOP, "{tflop} TFLOP an image, of {TFLOP}");
    assert!(gigabytes <= GIGABYTES, "{gigabytes} GB an image, of {GIGABYTES}");
    assert!(whole.kernels <= KERNELS, "{} kernels, of {KERNELS}", whole.kernels);
}

/// Kernels of the main stream that come between the dense RPN head and the sampled RoIs.
const CHAIN: usize = 14;

#[test]
fn few_kernels_come_between_rpn_and_rois() {
    let step = step(&Gpu::h100(), PaddedShape { height: 800, width: 1344 });
    let main: Vec<_> = step.nodes.iter().filter(|node| node.stream == 0).collect();
    let last = |name: &str| main.iter().rposition(|node| node.name.starts_with(name));
    let head = last("rpn.head").expect("the RPN's head");
    let sampled = last("roi_sampling.sample_rois").expect("sampled RoIs");
    let between: usize = main[head + 1..=sampled].iter().map(|node| node.kernels.len()).sum();
    assert!(between <= CHAIN, "{between} kernels, of {CHAIN}");
}

/// Predicted ms of a step at 800x1344.
const PREDICTED: [(&str, f64); 3] = [("a100", 73.0), ("h100", 39.0), ("h200", 37.2)];

#[test]
fn the_predicted_step_does_not_grow() {
    for (name, limit) in PREDICTED {
        let gpu = Gpu::named(name).expect("a name");
        let step = step(&gpu, PaddedShape { height: 800, width: 1344 });
        assert!(step.step_ms <= limit, "{name}: {:.2} ms, of {limit}", step.step_ms);
    }
}
