//! Mask logits of each row's own class: a mask predictor that computes only the channel of that
//! class.
//!
//! Equals a 1x1 convolution of `x` with all filters `w`, from which each row keeps only the channel
//! of its label; a training step needs no other channels.

mod cases;

use std::sync::Arc;

use device::{Access, Arg, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::matmul::{ConvShape, Epilogue, conv_forward, filter_gradient, gather_workspace_len};
use crate::ops::bias_grad;
use crate::{
    BackwardRule, Cost, DType, Fusion, OpError, OpRef, Sink, Source, TensorDesc, Traits, check, op,
};

pub use cases::cases;

op! {
    /// The channel of a 1x1 convolution that belongs to each row's class. Memory-bound: x is read
    /// once. Deterministic; on the CPU bit-identical to the convolution.
    #[derive(Copy, Eq)]
    pub struct ClassMasks = "class_masks" {
        /// x is the output of a ReLU, and the backward op computes the gradient of the ReLU's
        /// input.
        pub relu: bool,
    }
    in ClassMasksInputs {
        /// A map per row.
        x: real "[M, H, W, C]",
        /// A filter per class.
        w: real "[K, 1, 1, C]",
        /// Bias.
        b: f32 "[K]",
        /// Class of each row, at most K-1; 0 or below: no mask.
        labels: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows at or past the count and where the label is 0 or below.
        logits: Activation "[M, H, W]",
    }
}

op! {
    /// Gradients of the input, the filters and the bias. Memory-bound: x is read once, dx written
    /// once.
    ///
    /// On the CPU bit-identical (up to the sign of zeros) to the gradients of the full convolution
    /// for a `g` that is 0 in all other channels. On CUDA sums within a row are in fp32 and sums
    /// over rows in fp64, in order. Deterministic.
    #[derive(Copy, Eq)]
    pub struct ClassMasksGrad = "class_masks_grad" {
        /// x is the output of a ReLU, and `dx` the gradient of its input: 0 where x is not
        /// positive.
        pub relu: bool,
        /// The last output is the bias gradient of the layer that computes x.
        pub bias_grad: bool,
    }
    in ClassMasksGradInputs {
        /// Gradient of the logits.
        g: real "[M, H, W]",
        /// A map per row.
        x: real "[M, H, W, C]",
        /// A filter per class.
        w: real "[K, 1, 1, C]",
        /// Class of each row, at most K-1; 0 or below: no mask.
        labels: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows without a mask; not written past the count.
        dx: Gradient "[M, H, W, C]",
        /// 0 for classes without rows.
        dw: WeightGradient "[K, 1, 1, C]",
        /// 0 for classes without rows.
        db: WeightGradient "[K]",
        /// Sum of `dx` over rows and positions; only with `bias_grad`.
        sums: WeightGradient "[C]",
    }
}

/// Fails unless there is at least one class.
fn check_classes(op: &'static str, dims: &Dims) -> Result<(), OpError> {
    let classes = dims.get("K");
    check::parameter(op, "K", classes > 0, "at least 1", classes)
}

/// One multiply-add per element of x.
fn flops(x: &TensorDesc) -> u64 {
    2 * x.len() as u64
}

impl Kernel for ClassMasks {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_classes(dims.op(), dims)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, flops(&inputs[0]))
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        BackwardRule::default().step(
            ClassMasksGrad { relu: self.relu, bias_grad: false },
            &[
                Source::GradOutput(0),
                Source::Input(0),
                Source::Input(1),
                Source::Input(3),
                Source::Input(4),
            ],
            &[Sink::GradInput(0), Sink::GradInput(1), Sink::GradInput(2)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, w) = (args.inputs[0], args.inputs[1]);
        let name = kernel(["class_masks_f16x8", "class_masks_f16"], x.dim(3));
        vec![sizes(Launch::new(name, [x.dim(0), 1, 1]).tensors(args), x.desc, w.desc)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ClassMasksInputs { x, w, b, labels, count } = ClassMasksInputs::of(&args.inputs);
        let shape = row_shape(x.desc);
        let (pixels, channels) = (shape.out_positions(), shape.channels);
        let (x, w, b) = (x.f32(), w.f32(), b.f32());
        let logits = args.outputs[0].f32();
        logits.fill(0.0);
        if pixels == 0 {
            return;
        }
        let classes = classes(labels.i32(), count.i32(), b.len());
        let (rows, isa) = (logits.par_chunks_mut(pixels).zip(&classes).enumerate(), Isa::get());
        rows.for_each(|(row, (logits, class))| {
            let Some(class) = *class else { return };
            let x = &x[row * pixels * channels..][..pixels * channels];
            let w = &w[class * channels..][..channels];
            let epilogue = Epilogue { bias: Some(&b[class..=class]), ..Epilogue::default() };
            let mut workspace = vec![0.0; gather_workspace_len(&shape)];
            isa.within(|| conv_forward(&shape, x, w, epilogue, logits, &mut workspace));
        });
    }
}

/// Halves per 16-byte load; as in `vector.cuh`.
const WIDE: usize = 8;
/// Columns per block of the kernel that sums rows by class.
const COLUMNS: usize = 32;

fn kernel(wide: [&'static str; 2], channels: usize) -> &'static str {
    wide[usize::from(!channels.is_multiple_of(WIDE))]
}

/// Adds the arguments `M`, positions per row, `C` and `K`.
fn sizes(launch: Launch, x: &TensorDesc, w: &TensorDesc) -> Launch {
    launch.int(x.dim(0)).int(x.dim(1) * x.dim(2)).int(x.dim(3)).int(w.dim(0))
}

/// Number of sums per row: the filter gradient of each channel, and the sum of g; with `bias_grad`
/// also the sum of dx of each channel.
fn row_sums(x: &TensorDesc, bias_grad: bool) -> usize {
    x.dim(3) + 1 + if bias_grad { x.dim(3) } else { 0 }
}

/// Bytes for the sums of all rows.
fn partial_bytes(x: &TensorDesc, bias_grad: bool) -> usize {
    x.dim(0) * row_sums(x, bias_grad) * size_of::<f32>()
}

impl Kernel for ClassMasksGrad {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_classes(dims.op(), dims)
    }

    fn adjust(&self, _inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs.truncate(3 + usize::from(self.bias_grad));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 2 * flops(&inputs[1]))
    }

    fn traits(&self) -> Traits {
        Traits { count_input: Some(ClassMasksGradInputs::LEN - 1), ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::BiasGrad && !self.bias_grad;
        can.then(|| Arc::new(Self { bias_grad: true, ..*self }) as OpRef)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let x = &inputs[1];
        let rows = x.shape[..3].iter().product();
        if self.bias_grad { bias_grad::workspace_len(rows, x.dim(3)) } else { 0 }
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        partial_bytes(&inputs[1], self.bias_grad)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let relu = self.relu;
        let ClassMasksGradInputs { g, x, w, labels, count } =
            ClassMasksGradInputs::of(&args.inputs);
        let [dx, dw, db] = [0, 1, 2].map(|i| args.outputs[i]);
        for weights in [dw, db] {
            assert_eq!(
                weights.dtype(),
                DType::F32,
                "{:?}: gradients of weights are f32",
                weights.desc
            );
        }
        let bias_grad = args.outputs.get(3);
        let sums = row_sums(x.desc, bias_grad.is_some());
        let bytes = partial_bytes(x.desc, bias_grad.is_some());
        let partials = |access| args.workspace.piece(0, bytes, access);
        let name = kernel(["class_masks_grad_f16x8", "class_masks_grad_f16"], x.dim(3));
        let rows = Launch::new(name, [x.dim(0), 1, 1])
            .reads([g, x, w, labels, count])
            .arg(dx.write())
            .arg(partials(Access::Write));
        let classes = w.dim(0) + usize::from(bias_grad.is_some());
        let total = [(x.dim(3) + 1).div_ceil(COLUMNS), classes, 1];
        let total = Launch::new("class_masks_grad_total", total)
            .arg(partials(Access::Read))
            .reads([labels, count])
            .arg(dw.write())
            .arg(db.write())
            .arg(bias_grad.map_or(Arg::Null, |sums| sums.write()));
        let rows = sizes(rows, x.desc, w.desc).arg(relu).int(sums);
        let total = total.int(x.dim(0)).int(x.dim(3)).int(w.dim(0)).int(sums);
        vec![rows, total]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        grad(self.relu, args);
        if self.bias_grad {
            let x = args.inputs[1].desc;
            let count = rows_in_use(args.inputs[4].i32(), x.dim(0));
            let [dx, .., sums] = &mut args.outputs[..] else { unreachable!("four outputs") };
            let len = count * x.dim(1) * x.dim(2) * x.dim(3);
            bias_grad::sum_rows(&dx.f32()[..len], sums.f32(), args.workspace);
        }
    }
}

/// The GEMM of one row with one filter.
fn row_shape(x: &TensorDesc) -> ConvShape {
    ConvShape::matrix(x.dim(1) * x.dim(2), x.dim(3), 1)
}

/// Class of each row in use; `None` if it has no mask.
fn classes(labels: &[i32], count: &[i32], num_classes: usize) -> Vec<Option<usize>> {
    let labels = &labels[..rows_in_use(count, labels.len())];
    let class = |(row, label): (usize, &i32)| {
        let class = usize::try_from(*label).ok().filter(|class| *class > 0)?;
        assert!(class < num_classes, "label {class} of {num_classes} classes in row {row}");
        Some(class)
    };
    labels.iter().enumerate().map(class).collect()
}

fn grad(relu: bool, args: &mut CpuArgs<'_>) {
    let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(&args.inputs);
    let (num_classes, shape) = (w.desc.dim(0), row_shape(x.desc));
    let (pixels, channels) = (shape.out_positions(), shape.channels);
    let (g, x, w) = (g.f32(), x.f32(), w.f32());
    let classes = classes(labels.i32(), count.i32(), num_classes);
    let [dx, dw, db, ..] = &mut args.outputs[..] else { unreachable!("three outputs at least") };
    let (dx, isa) = (dx.f32(), Isa::get());
    if !dx.is_empty() {
        let rows = dx.par_chunks_mut(pixels * channels).take(classes.len());
        rows.enumerate().for_each(|(row, dx)| {
            let Some(class) = classes[row] else { return dx.fill(0.0) };
            let filter = &w[class * channels..][..channels];
            let x = &x[row * pixels * channels..][..dx.len()];
            spread(isa, dx, &g[row * pixels..][..pixels], filter, relu.then_some(x));
        });
    }
    let rows_of = |class: usize| -> Vec<usize> {
        let own = classes.iter().enumerate().filter(|(_, own)| **own == Some(class));
        own.map(|(row, _)| row).collect()
    };
    let rows: Vec<Vec<usize>> = (0..num_classes).map(rows_of).collect();
    if channels > 0 {
        dw.f32().par_chunks_mut(channels).zip(&rows).for_each(|(dw, rows)| {
            filter_gradient(x, g, pixels, rows, dw);
        });
    }
    for (db, rows) in db.f32().iter_mut().zip(&rows) {
        *db = bias_grad::sum_of_rows(g, pixels, rows);
    }
}

wide! {
    /// `dx[pixel][c] = g[pixel] * filter[c]`; 0 where `x` is given and not positive.
    fn spread(dx: &mut [f32], g: &[f32], filter: &[f32], x: Option<&[f32]>) {
        let channels = filter.len();
        for (i, (dx, g)) in dx.chunks_exact_mut(channels).zip(g).enumerate() {
            match x {
                None => dx.iter_mut().zip(filter).for_each(|(dx, w)| *dx = g * w),
                Some(x) => {
                    let x = &x[i * channels..][..channels];
                    for ((dx, w), x) in dx.iter_mut().zip(filter).zip(x) {
                        *dx = if *x > 0.0 { g * w } else { 0.0 };
                    }
                }
            }
        }
    }
}
