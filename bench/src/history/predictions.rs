//! Predictions made before anything ran on a GPU, as data, so that a measurement can show how wrong
//! they were.

use super::schema::{Node, Prediction, Session};

/// Sources of the predictions, which ran nothing: a review that read the code, and our own model.
const SECTION_6: &str = "performance review at 8ab8d50, section 6";
const PLAN: &str = "bench --plan, 2026-11-22";

/// One prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// A part of the device's name.
    pub(super) device: &'static str,
    /// In words.
    pub(super) what: &'static str,
    of: Of,
    pub(super) value: f64,
    /// Its stated margin.
    pub(super) margin: Option<f64>,
    pub(super) unit: &'static str,
    pub(super) source: &'static str,
}

/// The figure that is predicted.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// Median milliseconds of a step of `torchvision_r50`, 12 images, of this padded shape.
    StepMs(&'static str),
    /// One of the nodes of an op and a pass whose shapes hold this, in milliseconds.
    NodeMs(&'static str, &'static str, &'static str),
    /// All launches of these kernels in a step, in milliseconds.
    KernelsMs(&'static [&'static str]),
    /// A counter of this name.
    Count(&'static str),
}

const fn step(device: &'static str, value: f64, margin: Option<f64>) -> Row {
    let (what, of) = ("step, batch 12, 800x1344, 64 positives", Of::StepMs("800x1344"));
    Row { device, what, of, value, margin, unit: "ms", source: PLAN }
}

const fn node(
    (device, source): (&'static str, &'static str),
    what: &'static str,
    value: f64,
    of: Of,
) -> Row {
    Row { device, what, of, value, margin: None, unit: "ms", source }
}

const H100: (&str, &str) = ("H100", PLAN);
const A100: (&str, &str) = ("A100", PLAN);
const P2: Of = Of::NodeMs("conv2d", "forward", "12x200x336x256 256x3x3x256 256 ->");
const P2_WGRAD: Of = Of::NodeMs("conv2d_grad_weight", "backward", "12x200x336x256 -> 256x3x3x256");
const RES2_C3: Of =
    Of::NodeMs("conv2d", "forward", "12x200x336x64 256x1x1x64 256 256 12x200x336x256 ->");
const STEM: Of = Of::NodeMs("stem", "forward", "12x800x1344x4 64x7x7x3 ");

/// All of them. Milliseconds are for 12 images of 800x1344 and 64 mask positives per image.
pub(super) static TABLE: &[Row] = &[
    step("H100", 38.0, Some(4.0)),
    step("A100", 71.3, None),
    step("H200", 36.5, None),
    node(H100, "FPN output on P2, forward", 2.0, P2),
    node(H100, "FPN output on P2, gradient of the weights", 2.1, P2_WGRAD),
    node(
        H100,
        "all max_pool and upsample_grad of a step",
        0.48,
        Of::KernelsMs(&["max_pool_f16x8", "upsample_grad_f16x8"]),
    ),
    node(H100, "res2 c3, forward", 0.29, RES2_C3),
    Row {
        device: "H100",
        what: "tensor pipe active in the large forward convolution",
        of: Of::Count("conv2d_f16_large tensor pipe active, %"),
        value: 60.0,
        margin: Some(5.0),
        unit: "%",
        source: SECTION_6,
    },
    node(H100, "stem, forward", 0.55, STEM),
    node(A100, "stem, forward", 0.91, STEM),
];

/// A prediction and its measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    pub(super) row: &'static Row,
    pub(super) measured: f64,
}

impl Judged {
    /// `within its margin`, or its error as a share of the measurement.
    pub(super) fn verdict(&self) -> String {
        verdict(self.row.value, self.row.margin, self.measured)
    }
}

/// How a prediction compares with the measurement.
pub(super) fn verdict(value: f64, margin: Option<f64>, measured: f64) -> String {
    if margin.is_some_and(|margin| (measured - value).abs() <= margin) {
        return "within its margin".into();
    }
    format!("wrong by {:+.1} %", 100.0 * (measured / value - 1.0))
}

impl Row {
    /// The value and its margin.
    pub(super) fn text(&self) -> String {
        let margin = self.margin.map_or(String::new(), |margin| format!(" +- {margin}"));
        format!("{}{margin} {}", self.value, self.unit)
    }

    fn measured(&self, session: &Session) -> Option<f64> {
        if !session.is_gpu() || !session.device.contains(self.device) {
            return None;
        }
        match self.of {
            Of::StepMs(padded) => {
                session.steps.iter().find(|s| s.is_full_size(padded)).map(|s| s.p50_ms)
            }
            Of::NodeMs(op, pass, shapes) => {
                let ours = session.nodes.iter().filter(|node| fits(node, op, pass, shapes));
                ours.map(|node| node.each_us() / 1e3).max_by(f64::total_cmp)
            }
            Of::KernelsMs(kernels) => {
                let all = session.nodes.iter().flat_map(|node| &node.kernels);
                let ours = all.filter(|(name, _)| kernels.contains(&name.as_str()));
                let ms: Vec<f64> = ours.map(|(_, us)| us / 1e3).collect();
                (!ms.is_empty()).then(|| ms.iter().sum())
            }
            Of::Count(name) => session.counts.get(name).copied(),
        }
    }
}

fn fits(node: &Node, op: &str, pass: &str, shapes: &str) -> bool {
    node.op == op && node.pass == pass && node.shapes.contains(shapes)
}

/// The predictions that apply to a session.
pub(super) fn judged(session: &Session) -> Vec<Judged> {
    let judge = |row: &'static Row| Some(Judged { row, measured: row.measured(session)? });
    TABLE.iter().filter_map(judge).collect()
}

/// Attaches to each figure the prediction for exactly that figure.
pub(super) fn attach(session: &mut Session) {
    let name = session.device.clone();
    if !session.is_gpu() {
        return;
    }
    for row in TABLE.iter().filter(|row| name.contains(row.device)) {
        let said = |scale: f64| Prediction {
            value: scale * row.value,
            margin: row.margin.map(|margin| scale * margin),
            source: row.source.into(),
        };
        match row.of {
            Of::StepMs(padded) => {
                let ours = session.steps.iter_mut().filter(|s| s.is_full_size(padded));
                ours.for_each(|step| step.prediction = Some(said(1.0)));
            }
            Of::NodeMs(op, pass, shapes) => {
                // Milliseconds there, microseconds here.
                let ours = session.nodes.iter_mut().filter(|n| fits(n, op, pass, shapes));
                ours.for_each(|node| node.prediction = Some(said(1e3)));
            }
            Of::KernelsMs(_) | Of::Count(_) => {}
        }
    }
}

/// The source of the predictions, for the heading of a table.
pub(super) fn source() -> &'static str {
    PLAN
}

#[cfg(test)]
mod tests {
    use device::{Gpu, Target};
    use engine::model::{ImageSize, Inject, ModelSpec, Part, SlotShape, training_program};
    use graph::TensorId;

    use super::*;
    use crate::history::samples;

    #[test]
    fn a_measurement_says_how_wrong_the_prediction_was() {
        assert_eq!(verdict(66.0, Some(7.0), 73.0), "within its margin");
        assert_eq!(verdict(66.0, Some(7.0), 99.0), "wrong by +50.0 %");
        assert_eq!(verdict(2.0, None, 1.5), "wrong by -25.0 %");
        assert_eq!(verdict(2.0, None, 2.0), "wrong by +0.0 %");
    }

    #[test]
    fn predictions_are_set_against_their_own_device_and_figure() {
        let mut session = samples::gpu("2026-12-01", "abc", 80.0);
        let said = judged(&session);
        let of = |what: &str| said.iter().find(|j| j.row.what.contains(what)).expect(what);
        assert_eq!((of("step, ").measured, of("step, ").row.value), (80.0, 38.0));
        // 3 ms of the one kernel and 4 of the other.
        assert!((of("max_pool and").measured - 7.0).abs() < 1e-9);
        assert_eq!(of("P2, forward").measured, 2.0, "one of two");
        assert_eq!(said.len(), 3, "nothing is said of what was not measured: {said:?}");
        attach(&mut session);
        let step = session.steps[0].prediction.as_ref().expect("a prediction");
        assert_eq!((step.value, step.margin, step.source.as_str()), (38.0, Some(4.0), PLAN));
        assert_eq!(session.steps[1].prediction, None, "of another shape");
        assert_eq!(session.nodes[0].prediction.as_ref().map(|p| p.value), Some(2000.0));
        session.device = "cpu: H100, 2 threads".into();
        assert!(judged(&session).is_empty());
    }

    /// Every node that something was predicted of is one of the step, as its row would be told.
    #[test]
    fn predicted_nodes_are_those_of_the_step() {
        let set = ["train.batch_size=12".to_string(), "train.images_per_group=12".into()];
        let config = configs::Config::load("torchvision_r50", &set).expect("a preset");
        let spec = ModelSpec {
            config: &config,
            num_classes: 80,
            images: 12,
            padded: ImageSize { height: 800, width: 1344 },
            slot: SlotShape { pixels: 9, objects: 9, parts: 9, coords: 9, runs: 9 },
            target: Target::Gpu(Gpu::h100()),
            part: Part::whole(),
            inject: Inject::default(),
        };
        let program = training_program(&spec).expect("the step").program;
        let shapes = |ids: &[TensorId]| {
            let shape = |id: &TensorId| {
                let extents = program.desc(*id).shape.iter().map(usize::to_string);
                extents.collect::<Vec<_>>().join("x")
            };
            ids.iter().map(shape).collect::<Vec<_>>().join(" ")
        };
        let rows: Vec<(String, String, String, String)> = program
            .nodes()
            .iter()
            .map(|n| {
                let shapes = format!("{} -> {}", shapes(&n.inputs), shapes(&n.outputs));
                (n.op.name().to_string(), n.pass.to_string(), shapes, n.part.clone())
            })
            .collect();
        for (of, part) in [
            (P2, "fpn.output"),
            (P2_WGRAD, "fpn.output"),
            (RES2_C3, "backbone.layer1.1"),
            (STEM, "backbone.stem"),
        ] {
            let Of::NodeMs(op, pass, held) = of else { panic!("{of:?}") };
            let ours = rows.iter().filter(|r| r.0 == op && r.1 == pass && r.2.contains(held));
            let parts: Vec<&str> = ours.map(|row| row.3.as_str()).collect();
            assert!(parts.contains(&part), "{of:?} is found in {parts:?}");
            // The RPN's head on P2 is the same convolution; three blocks have the same c3.
            assert!(parts.len() <= 3, "{of:?} is found in {parts:?}");
        }
    }
}
