//! Made-up sessions, for the tests of this folder.

use super::schema::{Infer, Node, Peer, Rate, Session, Step, VERSION};

fn step(padded: &str, p50_ms: f64) -> Step {
    Step {
        preset: "torchvision_r50".into(),
        batch: 12,
        all_reduce: None,
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

fn node(op: &str, pass: &str, shapes: &str, count: u64, us: f64) -> Node {
    Node {
        op: op.into(),
        pass: pass.into(),
        shapes: shapes.into(),
        first: format!("part.{op}#7"),
        count,
        us,
        kernels: vec![(format!("{op}_f16x8"), us)],
        flops: 1e9,
        bytes: 1e6,
        share_of_ceiling: None,
        prediction: None,
    }
}

/// An H100 with this step time.
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
            node(
                "conv2d",
                "forward",
                "12x200x336x256 256x3x3x256 256 -> 12x200x336x256",
                2,
                4000.0,
            ),
            node("max_pool", "forward", "12x400x672x64 -> 12x200x336x64", 10, 3000.0),
            node("upsample_grad", "backward", "12x200x336x256 -> 12x100x168x256", 20, 4000.0),
        ],
        ..Session::default()
    }
}
