//! Fusions: nodes that are removed, nodes that must stay, and values that do not change.

use std::sync::Arc;

use graph::autodiff::differentiate;
use graph::fuse::{bias_gradients, grad_mask_add, join_gradients};
use graph::fuse::{projections, relu_signs, scaled_weights, upsample_add};
use graph::prune::prune;
use graph::{GraphError, Program, StateSet, TensorId};
use kernels::case::normal;
use kernels::cpu::HostTensor;
use kernels::ops::bias_grad::BiasGrad;
use kernels::ops::class_masks::{ClassMasks, ClassMasksInputs};
use kernels::ops::conv_transpose::{ConvTranspose, ConvTransposeInputs};
use kernels::ops::conv2d::{Conv2d, Conv2dInputs};
use kernels::ops::sum::Sum;
use kernels::ops::upsample_add::UpsampleAdd;
use kernels::{OpRef, Role, TensorDesc};

use crate::common::toy::Toy;
use crate::common::{Build, bound, on_one_stream};

/// A chain of convolutions under construction, whose weights are trained.
struct Net {
    program: Program,
    weights: Vec<TensorId>,
    shape: [usize; 4],
}

impl Net {
    fn new() -> Self {
        Self::of([3, 6, 5, 4])
    }

    /// A net whose input map has this shape.
    fn of(shape: [usize; 4]) -> Self {
        let mut program = Program::new();
        program.set_part("net");
        Self { program, weights: vec![], shape }
    }

    fn x(&mut self) -> TensorId {
        self.program.input("x", TensorDesc::new(Role::Activation, &self.shape))
    }

    /// Inputs for a convolution of `x` with new filters.
    fn reads(&mut self, x: TensorId, kernel: usize) -> Conv2dInputs<TensorId> {
        let name = format!("w{}", self.weights.len());
        let filters = [self.shape[3], kernel, kernel, self.shape[3]];
        let w = self.program.state(&name, TensorDesc::new(Role::Weight, &filters));
        self.weights.push(w);
        Conv2dInputs { x, w, scale: None, bias: None, residual: None, count: None }
    }

    /// Inputs for a convolution with new filters and a frozen norm.
    fn frozen(&mut self, x: TensorId, kernel: usize) -> Conv2dInputs<TensorId> {
        let inputs = self.reads(x, kernel);
        let [scale, bias] = ["scale", "bias"].map(|name| {
            let desc = TensorDesc::new(Role::Master, &[self.shape[3]]);
            Some(self.program.state(&format!("{name}{}", self.weights.len()), desc))
        });
        Conv2dInputs { scale, bias, ..inputs }
    }

    fn conv(&mut self, x: TensorId, kernel: usize, relu: bool) -> TensorId {
        let inputs = self.reads(x, kernel);
        self.apply(Conv2d { relu, ..Conv2d::new(1, kernel / 2) }, inputs)
    }

    fn apply(&mut self, op: Conv2d, inputs: Conv2dInputs<TensorId>) -> TensorId {
        self.program.node(op.reading(&inputs), inputs)
    }

    /// The step with the gradients of all weights, as an unfused and a fused program.
    fn into_programs(mut self, loss: TensorId) -> [Program; 2] {
        let loss = self.program.node(Toy::Total, [loss]);
        let seed = self.program.input("seed", TensorDesc::new(Role::Scalar, &[1]));
        let gradients =
            differentiate(&mut self.program, &[loss], seed, &self.weights).expect("gradients");
        for (i, gradient) in gradients.iter().enumerate() {
            self.program.keep(&format!("grad/w{i}"), *gradient);
        }
        prune(&mut self.program);
        let mut fused = self.program.clone();
        grad_mask_add(&mut fused);
        [self.program, fused]
    }
}

fn count(program: &Program, op: &str) -> usize {
    program.nodes().iter().filter(|node| node.op.name() == op).count()
}

/// Number of nodes of an op, before and after the fusion.
fn counts(programs: &[Program; 2], op: &str) -> [usize; 2] {
    programs.each_ref().map(|program| count(program, op))
}

/// Runs the program on fixed values, and returns all kept tensors.
fn results(program: &Program) -> Vec<(String, HostTensor)> {
    let mut state = StateSet::new();
    for (i, (_, tensor)) in program.states().enumerate() {
        state
            .insert(&tensor.name, normal(tensor.desc.role, &tensor.desc.shape, 10 + i as u32, 0.4));
    }
    let mut run = bound(program, &state);
    for (i, (_, tensor)) in program.inputs().enumerate() {
        let values = match tensor.desc.role {
            Role::Index => HostTensor::i32(tensor.desc.clone(), vec![2; tensor.desc.len()]),
            _ => normal(tensor.desc.role, &tensor.desc.shape, 50 + i as u32, 1.0),
        };
        let input = run.input_mut(&tensor.name).expect("an input");
        input.bytes_mut().copy_from_slice(values.bytes());
    }
    run.run(&mut state);
    let kept = program.kept_names();
    kept.iter().map(|(name, _)| (name.to_string(), run.read(name).expect("kept"))).collect()
}

/// Both programs give equal results, except for rounding due to the summation order.
fn assert_same([plain, fused]: &[Program; 2]) {
    let [plain, fused] = [plain, fused].map(results);
    assert_eq!(plain.len(), fused.len());
    for ((name, want), (_, got)) in plain.iter().zip(&fused) {
        let scale = want.as_f32().iter().fold(1e-3f32, |scale, v| scale.max(v.abs()));
        for (got, want) in got.as_f32().iter().zip(want.as_f32()) {
            assert!((got - want).abs() <= 1e-5 * scale, "{name}: {got}, plain {want}");
        }
    }
}

/// A residual block: the masked gradient is also the residual's gradient; one GEMM adds it to its
/// own result, and masks the sum by the block's input.
#[test]
fn residual_block_fuses_sum_and_relu_mask() {
    let mut net = Net::new();
    let x = net.x();
    let first = net.conv(x, 3, true);
    let inner = net.conv(first, 1, true);
    let inputs = Conv2dInputs { residual: Some(first), ..net.reads(inner, 3) };
    let last = net.apply(Conv2d { relu: true, ..Conv2d::new(1, 1) }, inputs);
    let end = net.conv(last, 1, false);
    let programs = net.into_programs(end);
    assert_eq!(["sum", "relu_mask"].map(|op| counts(&programs, op)), [[1, 0], [3, 0]]);
    assert_same(&programs);
}

/// Three GEMM results in one sum: each GEMM adds the previous result, and the last one masks.
#[test]
fn gemms_with_common_sum_accumulate() {
    let mut net = Net::new();
    let x = net.x();
    let y = net.conv(x, 3, true);
    let branches = [1, 3, 1].map(|kernel| net.conv(y, kernel, false));
    let sum = net.program.node(Sum, branches);
    let programs = net.into_programs(sum);
    assert_eq!(["sum", "relu_mask"].map(|op| counts(&programs, op)), [[1, 0], [1, 0]]);
    assert_same(&programs);
    let [plain, fused] = programs.map(|program| on_one_stream(&program).1.arena_bytes());
    assert!(fused <= plain, "{fused} more than {plain}");
}

/// A gradient that is kept, or that is not computed by a GEMM, remains a separate tensor.
#[test]
fn kept_or_non_gemm_gradient_is_not_fused() {
    let mut net = Net::new();
    let x = net.x();
    let y = net.conv(x, 3, true);
    let doubled = net.program.node(Toy::Scale(2.0), [y]);
    let programs = net.into_programs(doubled);
    assert_eq!(count(&programs[1], "relu_mask"), 1);
    assert_same(&programs);

    let mut net = Net::new();
    let x = net.x();
    let y = net.conv(x, 3, true);
    let end = net.conv(y, 3, false);
    let [plain, _] = net.into_programs(end);
    let mut kept = plain.clone();
    let product = plain.nodes().iter().find(|node| node.op.name() == "conv2d_grad_input");
    kept.keep("before the mask", product.expect("a product").outputs[0]);
    let before = kept.clone();
    grad_mask_add(&mut kept);
    assert_eq!(count(&kept, "relu_mask"), 1);
    assert_same(&[before, kept]);
}

/// GEMMs with the same row count fuse the sum of their gradients. With different row counts, no
/// gradient is defined in all rows, which is an error.
#[test]
fn gradient_with_different_row_counts_is_rejected() {
    let net = |is_counted: [bool; 2]| {
        let mut net = Net::new();
        let x = net.x();
        let rows = net.program.input("rows", TensorDesc::new(Role::Index, &[1]));
        let y = net.conv(x, 3, true);
        let ends = is_counted.map(|is_counted| {
            let inputs = Conv2dInputs { count: is_counted.then_some(rows), ..net.reads(y, 3) };
            net.apply(Conv2d::new(1, 1), inputs)
        });
        let sum = net.program.node(Sum, ends);
        (net, sum)
    };
    let (same, sum) = net([true, true]);
    assert_eq!(counts(&same.into_programs(sum), "sum"), [1, 0]);
    let (mut other, sum) = net([true, false]);
    let seed = other.program.input("seed", TensorDesc::new(Role::Gradient, &other.shape));
    let fault = differentiate(&mut other.program, &[sum], seed, &other.weights);
    assert!(matches!(fault, Err(GraphError::DifferentCounts(_))), "{fault:?}");
}

/// One node scales the weights that two gradients read; the results do not change.
#[test]
fn weights_are_scaled_once_per_step() {
    let mut net = Net::new();
    let x = net.x();
    let first = net.conv(x, 3, false);
    let w = net.program.state("w", TensorDesc::new(Role::Weight, &[4, 3, 3, 4]));
    let scale = net.program.state("scale", TensorDesc::new(Role::Master, &[4]));
    let mut y = first;
    for _ in 0..2 {
        let (bias, residual, count) = (None, None, None);
        let inputs = Conv2dInputs { x: y, w, scale: Some(scale), bias, residual, count };
        y = net.apply(Conv2d::new(1, 1), inputs);
    }
    let [plain, _] = net.into_programs(y);
    let mut fused = plain.clone();
    scaled_weights(&mut fused);
    assert_eq!((count(&fused, "scale_weights"), fused.nodes().len()), (1, plain.nodes().len() + 1));
    let node = fused.nodes().iter().find(|node| node.op.name() == "scale_weights");
    assert_eq!(node.expect("one").outputs.len(), 1);
    assert_same(&[plain, fused]);
}

/// A convolution adds an upsampled map; in the backward pass, the op that computes this map's
/// gradient adds the map's second gradient.
#[test]
fn sum_with_upsampled_map_is_fused() {
    let mut net = Net::new();
    let x = net.x();
    let small = net.conv(x, 3, false);
    let large = net.program.input("large", TensorDesc::new(Role::Activation, &[3, 11, 10, 4]));
    let lateral = net.conv(large, 1, false);
    let merged = net.program.node(UpsampleAdd, [lateral, small]);
    // Added after the upsampling, so that its gradient is computed first, as in a feature pyramid.
    let own = net.conv(small, 3, false);
    let ends = [own, merged].map(|map| net.program.node(Toy::Total, [map]));
    let loss = net.program.node(Toy::Add, ends);
    let [plain, masked] = net.into_programs(loss);
    assert_eq!((count(&plain, "sum"), count(&masked, "sum")), (1, 1));
    let mut fused = masked;
    upsample_add(&mut fused);
    assert_eq!(["sum", "upsample_add"].map(|op| count(&fused, op)), [0, 0]);
    assert_same(&[plain, fused]);
}

/// The last convolution of a bottleneck also computes its projection shortcut, bit-identically,
/// unless the projection has a kernel larger than 1x1, a ReLU, or another consumer.
#[test]
fn last_bottleneck_conv_computes_projection() {
    let projected = |kernel: usize, relu: bool, kept: bool| {
        let mut net = Net::of([2, 6, 4, 64]);
        let x = net.x();
        let mut conv = |x, kernel, stride, relu, residual| {
            let inputs = Conv2dInputs { residual, ..net.frozen(x, kernel) };
            net.apply(Conv2d { relu, ..Conv2d::new(stride, kernel / 2) }, inputs)
        };
        let inner = conv(x, 3, 2, true, None);
        let shortcut = conv(x, kernel, 2, relu, None);
        let block = conv(inner, 1, 1, true, Some(shortcut));
        let end = conv(block, 1, 1, false, None);
        if kept {
            net.program.keep("shortcut", shortcut);
        }
        let [_, mut plain] = net.into_programs(end);
        relu_signs(&mut plain);
        let mut fused = plain.clone();
        projections(&mut fused);
        assert!(results(&plain) == results(&fused), "other values by {kernel}, {relu}, {kept}");
        assert_eq!(plain.nodes().len(), fused.nodes().len() + count(&fused, "projected"));
        count(&fused, "projected")
    };
    assert_eq!(projected(1, false, false), 1);
    assert_eq!([projected(3, false, false), projected(1, true, false)], [0, 0]);
    assert_eq!(projected(1, false, true), 0);
}

/// In a residual block the ReLU gradient reads stored sign bits, with the same results as if it
/// read the map, with and without unused images. Maps of other shapes have no sign bits, so the
/// ReLU gradient reads the map.
#[test]
fn relu_gradient_uses_stored_signs() {
    let signs_of = |shape: [usize; 4], counted: bool| {
        let mut net = Net::of(shape);
        let x = net.x();
        let count = counted.then(|| net.program.input("count", TensorDesc::new(Role::Index, &[1])));
        let mut conv = |x, kernel, relu, residual| {
            let inputs = Conv2dInputs { residual, count, ..net.reads(x, kernel) };
            net.apply(Conv2d { relu, ..Conv2d::new(1, kernel / 2) }, inputs)
        };
        let first = conv(x, 3, true, None);
        let last = conv(first, 3, true, Some(first));
        let end = conv(last, 1, false, None);
        let [_, masked] = net.into_programs(end);
        let mut fused = masked.clone();
        relu_signs(&mut fused);
        assert!(results(&masked) == results(&fused), "other values on {shape:?}");
        fused.nodes().iter().filter(|node| node.outputs.len() == 2).count()
    };
    assert_eq!((signs_of([2, 3, 2, 64], false), signs_of([4, 3, 1, 64], true)), (2, 2));
    assert_eq!((signs_of([1, 3, 2, 64], false), signs_of([2, 3, 2, 4], false)), (0, 0));
}

/// A transposed convolution whose output `class_masks` reads, with trainable weights and biases.
/// The first bias gradient sums as many rows as the layers use, or the number of rows in the input
/// named `rows`.
fn biased(rows: Option<&str>) -> [Program; 2] {
    let mut program = Program::new();
    program.set_part("net");
    let input =
        |p: &mut Program, name, role, shape: &[usize]| p.input(name, TensorDesc::new(role, shape));
    let x = input(&mut program, "x", Role::Activation, &[3, 2, 2, 4]);
    let labels = input(&mut program, "labels", Role::Index, &[3]);
    let count = input(&mut program, "count", Role::Index, &[1]);
    let [w, v] = [("w", [4, 2, 2, 8]), ("v", [3, 1, 1, 8])]
        .map(|(name, shape)| program.state(name, TensorDesc::new(Role::Weight, &shape)));
    let [b, c] = [("b", 8), ("c", 3)]
        .map(|(name, len)| program.state(name, TensorDesc::new(Role::Master, &[len])));
    let op = ConvTranspose { pad: 0, relu: true, counted: true, masked: true };
    let y = program.node(op, ConvTransposeInputs { x, w, b, count: Some(count) });
    let inputs = ClassMasksInputs { x: y, w: v, b: c, labels, count };
    let z = program.node(ClassMasks { relu: true }, inputs);
    let loss = program.node(Toy::Total, [z]);
    let seed = program.input("seed", TensorDesc::new(Role::Scalar, &[1]));
    let mut gradients =
        differentiate(&mut program, &[loss], seed, &[w, b, v, c]).expect("gradients");
    if let Some(rows) = rows {
        let rows = input(&mut program, rows, Role::Index, &[1]);
        let mut nodes = program.nodes().iter();
        let sum = nodes.find(|node| node.op.name() == "bias_grad").expect("one");
        let g = sum.inputs[0];
        gradients[1] = program.node(BiasGrad { counted: true }, [g, rows]);
    }
    for (name, gradient) in ["w", "b", "v", "c"].iter().zip(gradients) {
        program.keep(&format!("grad/{name}"), gradient);
    }
    prune(&mut program);
    let mut fused = program.clone();
    bias_gradients(&mut fused);
    [program, fused]
}

/// The op that writes a gradient also computes the bias gradient from it, unless the two have
/// different row counts.
#[test]
fn bias_gradient_is_fused_into_writer_of_same_rows() {
    for (rows, left) in [(None, 0), (Some("others"), 1)] {
        let programs = biased(rows);
        assert_eq!(counts(&programs, "bias_grad"), [1, left]);
        let [plain, fused] = programs.each_ref().map(results);
        assert!(plain == fused, "the CPU sums as before, in every bit");
    }
}

/// Two nodes that copy inputs, and the sum of the copies, with or without a third term.
fn copies(third: bool, kept: bool) -> Program {
    let mut program = Program::new();
    program.set_part("net");
    let desc = TensorDesc::new(Role::Activation, &[3, 5]);
    let inputs = ["x", "y", "z"].map(|name| program.input(name, desc.clone()));
    let [a, b] = [inputs[0], inputs[1]].map(|x| program.node(Toy::Scale(1.0), [x]));
    let terms = if third { vec![a, inputs[2], b] } else { vec![a, b] };
    let sum = program.node(Sum, terms);
    program.keep("sum", sum);
    if kept {
        program.keep("a", a);
    }
    program
}

/// Joins the copies into one node that sums their inputs.
fn join_copies(program: &mut Program) {
    let is_copy = |op: &OpRef| op.name() == "scale";
    join_gradients(program, is_copy, |ops| {
        (ops.len() == 2).then(|| (Arc::new(Sum) as _, vec![1, 0]))
    });
}

/// Nodes whose outputs are terms of a sum become one node, which replaces the sum or these terms.
#[test]
fn gradients_with_common_sum_are_joined() {
    for (third, sums) in [(false, 1), (true, 2)] {
        let plain = copies(third, false);
        let mut joined = plain.clone();
        join_copies(&mut joined);
        assert_eq!((count(&joined, "scale"), count(&joined, "sum")), (0, sums));
        assert_same(&[plain, joined]);
    }
}

/// Nodes are not joined if one of their outputs has an additional reader.
#[test]
fn gradients_with_another_reader_are_not_joined() {
    let mut program = copies(false, true);
    join_copies(&mut program);
    assert_eq!((count(&program, "scale"), count(&program, "sum")), (2, 1));
}
