//! The results of `bench infer`: rates and latencies up to each stage of the pipeline from pixels
//! to scores.

use engine::evaluate::{ImageDetections, Stages};
use serde_json::{Value, json};

use crate::report::percentile;

/// One run of a batch.
pub(super) struct Run {
    stages: Stages,
    detections: usize,
}

/// All runs of one batch size.
pub(super) struct Case {
    /// Images per run.
    pub(super) size: usize,
    /// Padded shapes of the batches.
    pub(super) padded: Vec<String>,
    pub(super) runs: Vec<Run>,
    /// Milliseconds of scoring, per image.
    pub(super) score_ms: f64,
    /// Number of images scored.
    pub(super) scored: usize,
    /// Bytes of a run's inputs.
    pub(super) input_bytes: usize,
    /// CPU time of a run in milliseconds, over all threads, including decoding.
    pub(super) processor_ms: Option<f64>,
    /// Milliseconds to copy a run's inputs to the device, by the device's clock.
    pub(super) copy_ms: Option<f64>,
}

/// Seconds of a run up to a stage.
type Depth = fn(&Stages) -> f64;

/// The stages up to which time is reported, by name, in order.
const DEPTHS: [(&str, Depth); 3] = [
    ("program", |s| s.program),
    ("boxes", |s| s.fill + s.program + s.read),
    ("masks", |s| s.fill + s.program + s.read + s.paste),
];

impl Run {
    pub(super) fn new(stages: Stages, found: &[ImageDetections]) -> Self {
        Self { stages, detections: found.iter().map(|image| image.objects.len()).sum() }
    }
}

impl Case {
    fn images(&self) -> usize {
        self.size * self.runs.len()
    }

    fn detections_per_image(&self) -> f64 {
        self.runs.iter().map(|run| run.detections).sum::<usize>() as f64 / self.images() as f64
    }

    /// Images per second, and median and 95th percentile of the milliseconds per run.
    fn timed(&self, depth: Depth) -> (f64, f64, f64) {
        let ms: Vec<f64> = self.runs.iter().map(|run| 1e3 * depth(&run.stages)).collect();
        let rate = 1e3 * self.images() as f64 / ms.iter().sum::<f64>();
        (rate, percentile(&ms, 0.5), percentile(&ms, 0.95))
    }

    /// Images per second over all stages, including scoring.
    fn scored_rate(&self) -> f64 {
        1.0 / (1.0 / self.timed(DEPTHS[2].1).0 + self.score_ms / 1e3)
    }

    fn padded(&self) -> String {
        self.padded.join(" ")
    }

    pub(super) fn print(&self) {
        let rates = DEPTHS.map(|(_, depth)| self.timed(depth));
        let rate = |i: usize| {
            let (rate, p50, p95) = rates[i];
            format!("{rate:>9.2} {p50:>8.2} {p95:>8.2}")
        };
        say!(
            "{:>5} {:>12} {:>6} {:>10.1} {} {} {} {:>9.2}",
            self.size,
            self.padded(),
            self.images(),
            self.detections_per_image(),
            rate(0),
            rate(1),
            rate(2),
            self.scored_rate(),
        );
        if let Some(ms) = self.processor_ms.filter(|_| self.copy_ms.is_none()) {
            say!("      CPU time {ms:.0} ms per run");
        }
        if let Some(ms) = self.copy_ms {
            let mib = self.input_bytes as f64 / (1 << 20) as f64;
            say!("      `program` begins with copying {mib:.2} MiB of inputs: {ms:.3} ms");
        }
    }

    pub(super) fn json(&self) -> Value {
        let stage = |depth: Depth| self.timed(depth).1;
        let mut value = json!({
            "batch_size": self.size,
            "padded": self.padded,
            "images": self.images(),
            "runs": self.runs.len(),
            "detections_per_image": self.detections_per_image(),
            "fill_ms": stage(|s| s.fill),
            "read_ms": stage(|s| s.read),
            "paste_ms": stage(|s| s.paste),
            "input_bytes": self.input_bytes,
            "copy_ms": self.copy_ms,
            "processor_ms": self.processor_ms,
            "scored_images": self.scored,
            "score_ms_per_image": self.score_ms,
            "scored": {"images_per_second": self.scored_rate()},
        });
        for (name, depth) in DEPTHS {
            let (rate, p50, p95) = self.timed(depth);
            value[name] = json!({"images_per_second": rate, "p50_ms": p50, "p95_ms": p95});
        }
        value
    }
}

pub(super) fn print_head() {
    let columns = "   images/s  p50 ms   p95 ms";
    say!(
        "{:>36} {columns:>27} {columns:>27} {columns:>27}  images/s",
        "", // the next line contains the column names
    );
    say!(
        "{:>5} {:>12} {:>6} {:>10} {:>27} {:>27} {:>27} {:>9}",
        "batch",
        "padded",
        "images",
        "found each",
        "program",
        "+ read (boxes)",
        "+ masks",
        "+ scores"
    );
}

pub(super) fn print_foot(is_device: bool) {
    let copy = if is_device { " (with the copy of the inputs)" } else { "" };
    say!(
        "program: resizing to mask probabilities{copy}; + read: filling the inputs before it, and \
         copying its outputs to the host; + masks: pasting, threshold, run lengths; + scores: \
         COCO's scores of the set, by image. None includes decoding."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(size: usize, program: &[f64]) -> Case {
        let run = |program: &f64| {
            let stages = Stages { fill: 0.001, program: *program, read: 0.002, paste: 0.003 };
            Run { stages, detections: 3 * size }
        };
        Case {
            size,
            padded: vec!["64x64".into()],
            runs: program.iter().map(run).collect(),
            score_ms: 4.0,
            scored: 2,
            input_bytes: 9,
            processor_ms: None,
            copy_ms: None,
        }
    }

    #[test]
    fn time_up_to_a_stage_includes_earlier_stages() {
        let value = case(2, &[0.010, 0.014, 0.012]).json();
        let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64).expect(pointer);
        let close = |pointer: &str, wanted: f64| {
            assert!((number(pointer) / wanted - 1.0).abs() < 1e-9, "{pointer}: {value}");
        };
        close("/program/images_per_second", 6.0 / 0.036);
        close("/program/p50_ms", 12.0);
        close("/boxes/p50_ms", 15.0);
        close("/masks/p50_ms", 18.0);
        close("/masks/p95_ms", 19.8);
        close("/masks/images_per_second", 6.0 / 0.054);
        // 9 ms per image, plus 4 ms of scoring.
        close("/scored/images_per_second", 1.0 / 0.013);
        close("/detections_per_image", 3.0);
    }
}
