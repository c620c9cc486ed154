//! Sessions that were never measured, for the tests of this folder.

use super::schema::{Infer, Node, Peer, Rate, Session, Step, VERSION};

fn step(padded: &str, p50_ms: f64) -> Step {
    Step {
        preset: "torchvision_r50".into(),
        batch: 12,
        padded: padded.into(),
        images_per_second: 12e3 / p50_ms,
        p50_ms,
        p95_ms: 1.1 * p50_ms,
        steps: 100,
        data_ms: 0.5,
        bytes: Some(7 << 30),
        prediction: None,
    }
}

fn node(part: &str, kernel: &str, launches: u64, us: f64) -> Node {
    Node {
        part: part.into(),
        kernel: kernel.into(),
        shape: "12x200x336x256".into(),
        launches,
        us,
        flops: Some(1e9),
        bytes: None,
        prediction: None,
    }
}

/// An H100 whose step takes so long.
pub(super) fn gpu(date: &str, commit: &str, p50_ms: f64) -> Session {
    let rate = Rate { images_per_second: 100.0, p50_ms: 10.0, p95_ms: 12.0 };
    Session {
        version: VERSION,
        date: date.into(),
        time: "12:00".into(),
        device: "NVIDIA H100 80GB HBM3, driver for CUDA 12.8".into(),
        commit: commit.into(),
        clocks: Some("SM 1755 MHz".into()),
        steps: vec![step("800x1344", p50_ms), step("800x1088", 0.9 * p50_ms)],
        infer: vec![Infer {
            preset: "torchvision_r50".into(),
            batch: 1,
            padded: "800x1344".into(),
            weights: "random".into(),
            score_threshold: 0.0,
            detections_per_image: 100.0,
            images: 64,
            program: rate.clone(),
            boxes: rate.clone(),
            masks: rate,
            scored_images_per_second: 80.0,
            prediction: None,
        }],
        peers: vec![Peer {
            product: "torchvision 0.26.0".into(),
            what: "eval amp masks, batch 1, 800x1344, scores over 0".into(),
            value: 50.0,
            unit: "images/s".into(),
            p50_ms: Some(20.0),
            detections_per_image: Some(100.0),
        }],
        nodes: vec![
            node("fpn.output forward", "conv2d_f16_large", 1, 2000.0),
            node("fpn.output forward", "conv2d_f16_large", 1, 500.0),
            node("backbone.layer1 backward", "relu_mask_f16", 10, 300.0),
            node("backbone.layer2 backward", "sum_f16", 20, 200.0),
        ],
        ..Session::default()
    }
}
