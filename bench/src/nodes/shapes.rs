//! `bench nodes --shapes FILE`: writes the distinct convolutions and linear layers of the step, so
//! that an external program can time the same GEMMs.

use std::any::Any;
use std::collections::BTreeMap;

use dali::order::PaddedShape;
use device::{Gpu, Target};
use engine::config::Config;
use engine::model::{Division, ModelSpec, Part, SlotShape, training_program};
use graph::{Node, Program, TensorId};
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::gemm_op::{GradInput, GradWeight};
use kernels::ops::layer::Layer;
use kernels::ops::linear::Linear;
use kernels::ops::projected::{Projected, ProjectedInputs};
use kernels::ops::rpn_head::{RpnHead, RpnHeadInputs};
use kernels::ops::stem::{self, Stem};
use serde::Serialize;
use serde_json::{Value, json};

/// COCO's number of classes, for configs that take the number from the data.
const CLASSES: usize = 80;
/// Objects per image; they affect no GEMM.
const OBJECTS: usize = 100;

/// A GEMM: the convolution of `n` maps of `h` x `w` x `c` with `k` filters of `r` x `s`, forward or
/// one of its gradients. In a linear layer `n` is the number of rows. In a transposed convolution
/// `h` and `w` are the input's extents, and the output's are `stride` times as large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Gemm {
    op: &'static str,
    pass: &'static str,
    n: usize,
    h: usize,
    w: usize,
    c: usize,
    k: usize,
    r: usize,
    s: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    groups: usize,
}

impl Gemm {
    /// A GEMM with all extents 1.
    const PIXEL: Self = Self {
        op: "",
        pass: "",
        n: 1,
        h: 1,
        w: 1,
        c: 1,
        k: 1,
        r: 1,
        s: 1,
        stride: 1,
        pad: 0,
        dilation: 1,
        groups: 1,
    };
}

/// The shapes of a preset's step, each with its number of occurrences.
pub(crate) fn shapes(config: &Config, preset: &str, padded: PaddedShape) -> anyhow::Result<Value> {
    let program = program(config, padded)?;
    let mut counts: BTreeMap<Gemm, usize> = BTreeMap::new();
    for product in program.nodes().iter().flat_map(|node| gemms(&program, node)) {
        *counts.entry(product).or_default() += 1;
    }
    let with_count = |(product, count): (Gemm, usize)| -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(product)?;
        value["count"] = count.into();
        Ok(value)
    };
    let shapes: Vec<Value> = counts.into_iter().map(with_count).collect::<Result<_, _>>()?;
    let batch = config.train.micro_batch();
    Ok(json!({
        "preset": preset, "batch": batch, "padded": padded.to_string(), "shapes": shapes,
    }))
}

fn program(config: &Config, padded: PaddedShape) -> anyhow::Result<Program> {
    let target = Target::Gpu(Gpu::h100());
    let division = Division::single(&config.train, &target);
    let spec = ModelSpec {
        config,
        num_classes: config.model.classes_or(CLASSES),
        images: division.images,
        padded: padded.into(),
        slot: SlotShape::imagined(padded.height, padded.width, OBJECTS),
        target,
        part: Part::updating(&division),
        observe: false,
    };
    Ok(training_program(&spec)?.program)
}

/// The GEMMs of a node.
fn gemms(program: &Program, node: &Node) -> Vec<Gemm> {
    let op: &dyn Any = node.op.as_ref();
    if let Some(op) = op.downcast_ref::<Projected>() {
        return of_projected(program, node, op).to_vec();
    }
    if !op.is::<RpnHead>() {
        return gemm(program, node).into_iter().collect();
    }
    let len = |input: usize| program.desc(node.inputs[input]).len();
    let [hidden, logits, deltas] = [1, 3, 5].map(len);
    let of_map = |map: &TensorId| {
        let [n, h, w, c] = [0, 1, 2, 3].map(|i| program.desc(*map).dim(i));
        let conv = |c, k, r, pad| {
            let (op, pass) = ("conv2d", "forward");
            Gemm { op, pass, n, h, w, c, k, r, s: r, pad, ..Gemm::PIXEL }
        };
        [conv(c, hidden, 3, 1), conv(hidden, logits, 1, 0), conv(hidden, deltas, 1, 0)]
    };
    node.inputs[RpnHeadInputs::LEN..].iter().flat_map(of_map).collect()
}

/// The convolution and the projection of a fused bottleneck output.
fn of_projected(program: &Program, node: &Node, op: &Projected) -> [Gemm; 2] {
    let ProjectedInputs { x, w, from, w_from, .. } = ProjectedInputs::of(&node.inputs);
    [(x, w, 1), (from, w_from, op.stride)].map(|(x, w, stride)| {
        let [n, h, wide, c] = [0, 1, 2, 3].map(|i| program.desc(*x).dim(i));
        let k = program.desc(*w).dim(0);
        Gemm { op: "conv2d", pass: "forward", n, h, w: wide, c, k, stride, ..Gemm::PIXEL }
    })
}

/// The GEMM of a node; `None` if its op is not a GEMM.
fn gemm(program: &Program, node: &Node) -> Option<Gemm> {
    let op: &dyn Any = node.op.as_ref();
    let input = |i: usize| program.desc(node.inputs[i]);
    let output = || program.desc(node.outputs[0]);
    let forward = |layer| (layer, "forward", input(0), input(1));
    let (layer, pass, x, w) = if let Some(conv) = op.downcast_ref::<Conv2d>() {
        forward(conv.layer())
    } else if op.is::<Stem>() {
        forward(Layer::conv2d(stem::STRIDE, stem::KERNEL / 2))
    } else if op.is::<Linear>() {
        forward(Layer::Linear)
    } else if let Some(&ConvTranspose { pad, .. }) = op.downcast_ref() {
        forward(Layer::ConvTranspose { pad })
    } else if let Some(op) = op.downcast_ref::<GradInput>() {
        (op.layer, "grad_input", output(), input(1))
    } else if let Some(op) = op.downcast_ref::<GradWeight>() {
        (op.layer, "grad_weight", input(0), output())
    } else {
        return None;
    };
    let [n, h, wide, c] = [0, 1, 2, 3].map(|i| x.shape.get(i).copied().unwrap_or(1));
    let plain = Gemm { op: "", pass, n, h, w: wide, c, k: w.dim(0), ..Gemm::PIXEL };
    Some(match layer {
        Layer::Linear => {
            let c = x.len() / n.max(1);
            Gemm { op: "linear", h: 1, w: 1, c, ..plain }
        }
        Layer::Conv2d { stride, pad, dilation, groups } => {
            // Images have a padding channel for which the filters have no weights; the filters'
            // number of channels counts.
            let [r, s, c] = [1, 2, 3].map(|i| w.dim(i));
            Gemm { op: "conv2d", c: c * groups, r, s, stride, pad, dilation, groups, ..plain }
        }
        Layer::ConvTranspose { pad } => {
            let (op, r, k) = ("conv_transpose2d", w.dim(1), w.dim(3));
            Gemm { op, k, r, s: r, stride: 2, pad, ..plain }
        }
    })
}

#[cfg(test)]
mod tests {
    use dali::order::PaddedShape;
    use engine::config::Config;

    use super::shapes;

    /// Expected counts of R50-FPN's layers, from its paper and torchvision, counted by hand.
    #[test]
    fn r50_gemm_shapes_match_its_layers() {
        let set = ["train.batch_size=12".to_string()];
        let config = Config::load("torchvision_r50", &set).expect("the preset loads");
        let padded = PaddedShape { height: 800, width: 1344 };
        let value = shapes(&config, "torchvision_r50", padded).expect("a program");
        let all = value["shapes"].as_array().expect("a list");
        let find = |op: &str, pass: &str, extents: [u64; 9]| {
            let names = ["n", "h", "w", "c", "k", "r", "s", "stride", "pad"];
            let is = |v: &&serde_json::Value| {
                v["op"] == op
                    && v["pass"] == pass
                    && names.iter().zip(extents).all(|(n, e)| v[n] == e)
            };
            all.iter().find(is).map(|v| v["count"].as_u64().expect("a count"))
        };
        let stem = [12, 800, 1344, 3, 64, 7, 7, 2, 3];
        assert_eq!(find("conv2d", "forward", stem), Some(1));
        assert_eq!(find("conv2d", "grad_weight", stem), None, "the stem is frozen");
        // The 3x3 convolutions of res2's three blocks; then, on P2, the FPN's output convolution
        // and the RPN's hidden layer.
        assert_eq!(find("conv2d", "forward", [12, 200, 336, 64, 64, 3, 3, 1, 1]), Some(3));
        assert_eq!(find("conv2d", "forward", [12, 200, 336, 256, 256, 3, 3, 1, 1]), Some(2));
        // fc6 of 512 RoIs per image.
        assert_eq!(
            find("linear", "grad_weight", [6144, 1, 1, 256 * 49, 1024, 1, 1, 1, 0]),
            Some(1)
        );
        let deconv = all.iter().filter(|v| v["op"] == "conv_transpose2d");
        assert_eq!(deconv.count(), 3, "forward and both gradients");
        assert_eq!(value["padded"], "800x1344");
        assert!((90..200).contains(&all.len()), "{} shapes", all.len());
    }
}
