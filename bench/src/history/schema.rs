//! The schema of a file in `bench/history`: the results of one measurement session on one machine.
//!
//! Unknown fields are rejected. A change that breaks older files raises [`VERSION`], and the files
//! are rewritten with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of this schema.
pub(crate) const VERSION: u32 = 1;

/// One session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    /// Version of the schema.
    pub(crate) version: u32,
    /// Day, `YYYY-MM-DD`, UTC.
    pub(crate) date: String,
    /// Time of that day, `HH:MM`, UTC: orders the sessions of one day.
    pub(crate) time: String,
    /// The device: the GPU under its driver's name, or `cpu: NAME, N threads`.
    pub(crate) device: String,
    /// The commit, from `git describe --always --dirty --tags`.
    pub(crate) commit: String,
    /// CUDA version that the driver supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cuda: Option<String>,
    /// Version of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// Compute capability, such as `9.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capability: Option<String>,
    /// GPU clocks under load, in nvidia-smi's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clocks: Option<String>,
    /// GPU power, drawn and allowed, in nvidia-smi's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) power: Option<String>,
    /// The host machine: processor and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    /// Remarks for readers: other load on the machine, a fault along the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
    /// Training steps (`bench`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<Step>,
    /// Detection (`bench infer`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) infer: Vec<Infer>,
    /// Baselines: other programs on the same task and machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peers: Vec<Peer>,
    /// Distinct kernels and shapes of a step, each timed in place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<Node>,
    /// Cases of the table of ops (`bench ops`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ops: Vec<Op>,
    /// Kernel variants, compared with one another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) probe: Vec<Probe>,
    /// Any other single numbers, by name; the unit is the suffix of the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) counts: BTreeMap<String, f64>,
}

/// A prediction of a figure, made before it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prediction {
    /// The predicted value, in the unit of the figure.
    pub(crate) value: f64,
    /// Its stated margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) margin: Option<f64>,
    /// Its source.
    pub(crate) source: String,
}

/// The training step of a preset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Preset, or path of the config.
    pub(crate) preset: String,
    /// Images per step.
    pub(crate) batch: u64,
    /// What sums gradients over a group of one rank, such as `nccl`; nothing if they are not
    /// summed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) all_reduce: Option<String>,
    /// Padded shapes, `HEIGHTxWIDTH`, one after the other.
    pub(crate) padded: String,
    /// Mean over all steps.
    pub(crate) images_per_second: f64,
    /// Median of the steps' milliseconds.
    pub(crate) p50_ms: f64,
    /// 95th percentile of them.
    pub(crate) p95_ms: f64,
    /// Number of steps timed.
    pub(crate) steps: u64,
    /// Milliseconds per step that training waited for data.
    pub(crate) data_ms: f64,
    /// Bytes of state and arena.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Prediction of `p50_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

impl Step {
    /// What is trained: the preset, and whether gradients are summed over ranks.
    pub(crate) fn title(&self) -> String {
        let through = self.all_reduce.as_ref().map(|through| format!(" + all-reduce ({through})"));
        format!("{}{}", self.preset, through.unwrap_or_default())
    }

    /// Whether it is the training step of one process at full size: batch 12 of this shape.
    pub(crate) fn is_full_size(&self, padded: &str) -> bool {
        self.title() == "torchvision_r50" && self.batch == 12 && self.padded == padded
    }
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
    /// Images per run.
    pub(crate) batch: u64,
    /// Padded shapes, `HEIGHTxWIDTH`, one after the other.
    pub(crate) padded: String,
    /// Source of the weights; `random` for initial ones.
    pub(crate) weights: String,
    /// Minimum score of a detection.
    pub(crate) score_threshold: f64,
    /// Detections per image.
    pub(crate) detections_per_image: f64,
    /// Number of images timed.
    pub(crate) images: u64,
    /// The detection program alone; on a device including the copy of its inputs.
    pub(crate) program: Rate,
    /// Including filling its inputs and reading the results.
    pub(crate) boxes: Rate,
    /// Including pasting and encoding masks.
    pub(crate) masks: Rate,
    /// Images per second including COCO scoring of the set.
    pub(crate) scored_images_per_second: f64,
    /// Prediction of `masks.p50_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

/// A baseline: the result of another program on some task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// Product and version.
    pub(crate) product: String,
    /// The task, how it was run, and its shape.
    pub(crate) what: String,
    /// The result.
    pub(crate) value: f64,
    /// Unit of the value: `images/s`, `TFLOP/s`, `GB/s`, `ms`.
    pub(crate) unit: String,
    /// Median milliseconds, if the value is a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    /// Detections per image, if it detects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) detections_per_image: Option<f64>,
}

/// Nodes of the same op and shapes, timed in place in the step (`bench nodes`).
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
    /// Their number in a step.
    pub(crate) count: u64,
    /// Microseconds of all of them together.
    pub(crate) us: f64,
    /// Each of their kernels, with the microseconds of all its launches.
    pub(crate) kernels: Vec<(String, f64)>,
    /// FLOPs of one.
    pub(crate) flops: f64,
    /// Bytes of one.
    pub(crate) bytes: f64,
    /// Share of the ceiling that bounds it, 0..1, if ceilings are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_of_ceiling: Option<f64>,
    /// Prediction of the microseconds of one.
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
    /// FLOPs.
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
    /// The result.
    pub(crate) value: f64,
    /// Unit of the value.
    pub(crate) unit: String,
    /// Prediction of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prediction: Option<Prediction>,
}

impl Node {
    /// Prediction of the microseconds of one.
    pub(crate) fn each_us(&self) -> f64 {
        self.us / self.count as f64
    }
}

impl Session {
    /// Whether its device is a GPU.
    pub(crate) fn is_gpu(&self) -> bool {
        !self.device.starts_with("cpu")
    }

    /// The device's name without the driver's additions.
    pub(crate) fn device_name(&self) -> &str {
        let whole = &self.device;
        if self.is_gpu() { whole.split(", ").next().unwrap_or(whole) } else { whole }
    }

    /// File name: day, device and commit, in portable characters.
    pub(crate) fn file_name(&self) -> String {
        let device = if self.is_gpu() { self.device_name() } else { "cpu" };
        format!("{}-{}-{}.json", self.date, plain(device), plain(&self.commit))
    }

    /// When it was, and of what.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.date, self.commit)
    }

    /// Number of figures of each kind.
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

    /// As JSON for a file in git: one figure per line.
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

/// Lower case, with a hyphen for each run of other characters than letters, digits and dots.
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
