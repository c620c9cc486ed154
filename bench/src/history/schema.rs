//! The schema of a file of `bench/history`: what one session of measuring on one machine came to.
//!
//! A field that this version does not know is refused. A change that older files do not survive
//! raises [`VERSION`], and the files are rewritten with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Of this schema.
pub(crate) const VERSION: u32 = 1;

/// One session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    /// Version of the schema.
    pub(crate) version: u32,
    /// Day, `YYYY-MM-DD`, UTC.
    pub(crate) date: String,
    /// Time of that day, `HH:MM`, UTC: orders the sessions of a day.
    pub(crate) time: String,
    /// What ran: the GPU as its driver names it, or `cpu: NAME, N threads`.
    pub(crate) device: String,
    /// What was measured, as `git describe --always --dirty --tags` says it.
    pub(crate) commit: String,
    /// CUDA version that the driver speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cuda: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// Compute capability, such as `9.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capability: Option<String>,
    /// Clocks of the GPU while it worked, in nvidia-smi's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clocks: Option<String>,
    /// Power of the GPU, drawn and allowed, in nvidia-smi's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) power: Option<String>,
    /// The machine around the device: processor and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    /// What a reader must know beside the figures: other work on the machine, a fault on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
    /// Training steps (`bench`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<Step>,
    /// Detection (`bench infer`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) infer: Vec<Infer>,
    /// What others make of the same work on the same machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peers: Vec<Peer>,
    /// Distinct kernels and shapes of a step, each timed where it stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<Node>,
    /// Cases of the table of ops (`bench ops`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ops: Vec<Op>,
    /// Variants of kernels that were tried against one another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) probe: Vec<Probe>,
    /// Whatever else is one number, by name; the unit comes last in the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) counts: BTreeMap<String, f64>,
}

/// What was said of a figure before it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prediction {
    /// The figure, in the unit of what carries it.
    pub(crate) value: f64,
    /// How far off it allowed itself to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) margin: Option<f64>,
    /// Who said so, and where.
    pub(crate) source: String,
}

/// The training step of a preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Preset, or path of the config.
    pub(crate) preset: String,
    /// Images a step.
    pub(crate) batch: u64,
    /// Padded shapes, `HEIGHTxWIDTH`, one after the other.
    pub(crate) padded: String,
    /// Mean over all steps.
    pub(crate) images_per_second: f64,
    /// Median of the steps' milliseconds.
    pub(crate) p50_ms: f64,
    /// 95th percentile of them.
    pub(crate) p95_ms: f64,
    /// Steps that were timed.
    pub(crate) steps: u64,
    /// Milliseconds a step that training waited for data.
    pub(crate) data_ms: f64,
    /// Bytes of state and arena.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Of `p50_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

/// Rate and latency of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    /// Mean over all runs.
    pub(crate) images_per_second: f64,
    /// Median of the runs' milliseconds.
    pub(crate) p50_ms: f64,
    /// 95th percentile of them.
    pub(crate) p95_ms: f64,
}

/// Detection with a preset's model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Infer {
    /// Preset, or path of the config.
    pub(crate) preset: String,
    /// Images a run.
    pub(crate) batch: u64,
    /// Padded shapes, `HEIGHTxWIDTH`, one after the other.
    pub(crate) padded: String,
    /// Where the weights come from; `random` for initial ones.
    pub(crate) weights: String,
    /// Detections have scores over this.
    pub(crate) score_threshold: f64,
    /// Detections that there were, an image.
    pub(crate) detections_per_image: f64,
    /// Images that were timed.
    pub(crate) images: u64,
    /// The detection program alone; on a device with the copy of its inputs.
    pub(crate) program: Rate,
    /// With filling its inputs and reading what it found.
    pub(crate) boxes: Rate,
    /// With masks pasted and encoded.
    pub(crate) masks: Rate,
    /// Images a second with COCO's scores of the set too.
    pub(crate) scored_images_per_second: f64,
    /// Of `masks.p50_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

/// What somebody else's program makes of some work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// Whose: product and version.
    pub(crate) product: String,
    /// The work and how it was done, with its shape.
    pub(crate) what: String,
    /// How fast.
    pub(crate) value: f64,
    /// Of the value: `images/s`, `TFLOP/s`, `GB/s`, `ms`.
    pub(crate) unit: String,
    /// Median milliseconds, where the value is a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    /// Detections of an image, where it detects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detections_per_image: Option<f64>,
}

/// Nodes of the same op and shapes, as they stand in the step (`bench nodes`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// Op, or the launch at either end of a step.
    pub(crate) op: String,
    /// `forward`, `backward`, `update`, or `step` at either end.
    pub(crate) pass: String,
    /// Inputs and outputs.
    pub(crate) shapes: String,
    /// The first of them, by its name in the program.
    pub(crate) first: String,
    /// How many there are in a step.
    pub(crate) count: u64,
    /// Microseconds of all of them.
    pub(crate) us: f64,
    /// Each kernel of theirs, with the microseconds of all its launches.
    pub(crate) kernels: Vec<(String, f64)>,
    /// Operations of one.
    pub(crate) flops: f64,
    /// Bytes of one.
    pub(crate) bytes: f64,
    /// Of the ceiling that bounds it, 0..1, where ceilings were known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_of_ceiling: Option<f64>,
    /// Microseconds of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

/// A case of the table of ops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Op {
    /// Its name.
    pub(crate) case: String,
    /// Median milliseconds.
    pub(crate) ms: f64,
    /// Operations.
    pub(crate) flops: f64,
    /// Bytes.
    pub(crate) bytes: f64,
}

/// A variant of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Probe {
    /// Variant and shape.
    pub(crate) name: String,
    /// How fast.
    pub(crate) value: f64,
    /// Of the value.
    pub(crate) unit: String,
    /// Of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

impl Node {
    /// Microseconds of one of them.
    pub(crate) fn each_us(&self) -> f64 {
        self.us / self.count as f64
    }
}

impl Session {
    /// Whether its device is a GPU.
    pub(crate) fn is_gpu(&self) -> bool {
        !self.device.starts_with("cpu")
    }

    /// The device's name without what the driver adds to it.
    pub(crate) fn device_name(&self) -> &str {
        let whole = &self.device;
        if self.is_gpu() { whole.split(", ").next().unwrap_or(whole) } else { whole }
    }

    /// Name of its file: day, device and commit, in characters that any file system takes.
    pub(crate) fn file_name(&self) -> String {
        let device = if self.is_gpu() { self.device_name() } else { "cpu" };
        format!("{}-{}-{}.json", self.date, plain(device), plain(&self.commit))
    }

    /// When it was, and of what.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.date, self.commit)
    }

    /// How many figures of each kind it holds.
    pub(crate) fn contents(&self) -> String {
        let kinds = [
            (self.steps.len(), "steps"),
            (self.infer.len(), "detection"),
            (self.peers.len(), "peers"),
            (self.nodes.len(), "nodes"),
            (self.ops.len(), "ops"),
            (self.probe.len(), "probe"),
            (self.counts.len(), "counts"),
        ];
        let there = kinds.iter().filter(|(count, _)| *count > 0);
        there.map(|(count, kind)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// As JSON for a file in git: one figure a line.
    pub(crate) fn text(&self) -> serde_json::Result<String> {
        let value = serde_json::to_value(self)?;
        let fields = value.as_object().into_iter().flatten();
        let mut lines = Vec::new();
        for (name, field) in fields {
            let head = format!("  {}: ", serde_json::to_string(name)?);
            lines.push(match field.as_array() {
                Some(list) => {
                    let rows = list.iter().map(|row| Ok(format!("    {}", to_line(row)?)));
                    let rows = rows.collect::<serde_json::Result<Vec<_>>>()?;
                    format!("{head}[\n{}\n  ]", rows.join(",\n"))
                }
                None => head + &to_line(field)?,
            });
        }
        Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
    }
}

fn to_line(value: &serde_json::Value) -> serde_json::Result<String> {
    serde_json::to_string(value)
}

/// Lower case, and a hyphen for each run of what is neither letter, digit nor dot.
fn plain(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { ' ' };
    let lower: String = text.to_lowercase().chars().map(kept).collect();
    lower.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written() {
        let mut session = super::super::samples::gpu("2026-12-01", "abc1234", 66.0);
        session.remarks = vec!["a remark".into()];
        let text = session.text().expect("numbers are finite");
        assert_eq!(serde_json::from_str::<Session>(&text).expect(&text), session);
        let lines = text.lines().filter(|line| line.contains("images_per_second"));
        assert_eq!(lines.count(), session.steps.len() + session.infer.len(), "one a line: {text}");
    }

    #[test]
    fn a_field_that_is_not_known_is_refused() {
        let text = super::super::samples::gpu("2026-12-01", "abc1234", 66.0).text().expect("text");
        for (at, more) in [("\"version\"", "\"colour\": 1, "), ("\"preset\"", "\"colour\": 1, ")] {
            let other = text.replacen(at, &format!("{more}{at}"), 1);
            let fault = serde_json::from_str::<Session>(&other).expect_err("a field too many");
            assert!(fault.to_string().contains("unknown field `colour`"), "{fault}");
        }
    }

    #[test]
    fn files_are_named_after_day_device_and_commit() {
        let mut session = super::super::samples::gpu("2026-12-01", "v1.0-3-gabc", 66.0);
        assert_eq!(session.file_name(), "2026-12-01-nvidia-h100-80gb-hbm3-v1.0-3-gabc.json");
        session.device = "cpu: AMD EPYC (TM)/x, 2 threads".into();
        assert_eq!(session.file_name(), "2026-12-01-cpu-v1.0-3-gabc.json");
        session.device = "NVIDIA A100-SXM4-40GB, driver for CUDA 13.0".into();
        assert_eq!(session.file_name(), "2026-12-01-nvidia-a100-sxm4-40gb-v1.0-3-gabc.json");
    }
}
