//! Top-down step of a feature pyramid: `y = lateral + nearest(top)`.
//!
//! Matches `lateral + torch.nn.functional.interpolate(top, size, mode="nearest")`: output row `y`
//! reads row `floor(y * h / H)`, also for odd sizes; computed in integers.

mod cases;

use std::ops::Range;
use std::sync::Arc;

use device::{Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, TensorRef};
use crate::{
    BackwardRule, Fusion, GradEpilogue, OpError, OpRef, Sink, Source, TensorDesc, Traits, check, op,
};

pub use cases::cases;

op! {
    /// `y = lateral + nearest(top)`. The gradient of `lateral` is the gradient of `y`. Each
    /// position of the gradient of `top` is the sum, in row-major order, over the outputs that read
    /// this position. Memory-bound.
    pub struct UpsampleAdd = "upsample_add" {}
    in UpsampleAddInputs {
        /// The finer map.
        lateral: real "[N, H, W, C]",
        /// The coarser map.
        top: real "[N, h, w, C]",
    }
    out {
        /// Row Y reads row floor(Y * h / H) of the coarser map.
        y: Activation "[N, H, W, C]",
    }
}

/// Resizes `map [N,h,w,C]` to a larger or smaller size by nearest-neighbour interpolation.
pub(crate) fn enlarge(map: &TensorRef<'_>, [height, width]: [usize; 2]) -> Vec<f32> {
    let [n, h, w, c] = [0, 1, 2, 3].map(|i| map.desc.dim(i));
    let values = map.f32();
    let mut enlarged = Vec::with_capacity(n * height * width * c);
    for line in 0..n * height {
        let row = line / height * h + line % height * h / height;
        for x in 0..width {
            let from = (row * w + x * w / width) * c;
            enlarged.extend_from_slice(&values[from..from + c]);
        }
    }
    enlarged
}

impl Kernel for UpsampleAdd {
    const FLOPS: Flops = Flops::Output(1);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        if !inputs[0].is_empty() && inputs[1].is_empty() {
            let expected = "[N, h, w, C] with at least one position".into();
            return Err(check::shape_error(dims.op(), "top", &inputs[1], expected));
        }
        Ok(())
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let [height, width] = [1, 2].map(|i| inputs[1].dim(i));
        BackwardRule::default().alias(Source::GradOutput(0), 0).step(
            UpsampleGrad { height, width, epilogue: GradEpilogue::default() },
            &[Source::GradOutput(0)],
            &[Sink::GradInput(1)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (lateral, top, y) = (args.inputs[0], args.inputs[1], args.outputs[0]);
        let (sizes, wide) = sizes(&lateral, &top);
        let kernel = if wide { "upsample_add_f16x8" } else { "upsample_add_f16" };
        vec![Launch::new(kernel, grid(&y, wide)).tensors(args).arg(sizes)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (lateral, top) = (args.inputs[0], args.inputs[1]);
        let [out_h, out_w, c] = [1, 2, 3].map(|i| lateral.desc.dim(i));
        let [h, w] = [1, 2].map(|i| top.desc.dim(i));
        let (lateral, top) = (lateral.f32(), top.f32());
        if lateral.is_empty() {
            return;
        }
        let lines = args.outputs[0].f32().par_chunks_mut(out_w * c);
        lines.zip(lateral.par_chunks(out_w * c)).enumerate().for_each(|(line, (y, lateral))| {
            let row = line / out_h * h + line % out_h * h / out_h;
            let top = &top[row * w * c..(row + 1) * w * c];
            let cells = y.chunks_exact_mut(c).zip(lateral.chunks_exact(c));
            for (x, (y, lateral)) in cells.enumerate() {
                let from = x * w / out_w * c;
                for ((y, l), t) in y.iter_mut().zip(lateral).zip(&top[from..from + c]) {
                    *y = l + t;
                }
            }
        });
    }
}

/// The kernel argument `Sizes`, and true if the channels are a multiple of 8.
fn sizes(big: &Buffer<'_>, small: &Buffer<'_>) -> (Arg, bool) {
    let extents = [big.dim(1), big.dim(2), small.dim(1), small.dim(2), big.dim(3)];
    (StructArg::new().ints(extents).arg(), big.dim(3).is_multiple_of(8))
}

/// Launch grid with one row of blocks per row of `map`.
fn grid(map: &Buffer<'_>, wide: bool) -> [usize; 3] {
    let vectors = map.dim(2) * map.dim(3) / if wide { 8 } else { 1 };
    [map.dim(0) * map.dim(1), vectors.div_ceil(BLOCK as usize), 1]
}

op! {
    /// `dtop[y, x] = sum of g` over the outputs whose source is `(y, x)`.
    pub struct UpsampleGrad = "upsample_grad" {
        /// Height of the map that was upsampled.
        pub height: usize,
        /// Width of the map that was upsampled.
        pub width: usize,
        /// The epilogue.
        pub epilogue: GradEpilogue,
    }
    in UpsampleGradInputs {
        /// Gradient of the finer map.
        g: real "[N, H, W, C]",
    }
    optional {
        /// An additional gradient of the coarser map, which is added to the result.
        other: real "[N, height, width, C]" if |op| op.epilogue.other,
    }
    out {
        /// Gradient of the coarser map.
        dtop: Gradient "[N, height, width, C]",
    }
}

/// Outputs `o` in `0..outputs` with `floor(o * inputs / outputs) = i`.
fn readers(i: usize, inputs: usize, outputs: usize) -> Range<usize> {
    (i * outputs).div_ceil(inputs)..((i + 1) * outputs).div_ceil(inputs)
}

impl Kernel for UpsampleGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check::parameter(
            dims.op(),
            "epilogue.mask",
            !self.epilogue.mask,
            "false",
            self.epilogue.mask,
        )
    }

    fn traits(&self) -> Traits {
        Traits { epilogue: Some(self.epilogue), ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let Fusion::GradEpilogue(epilogue @ GradEpilogue { mask: false, .. }) = fusion else {
            return None;
        };
        Some(Arc::new(Self { epilogue, ..self.clone() }))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (g, dtop) = (args.inputs[0], args.outputs[0]);
        let (sizes, wide) = sizes(&g, &dtop);
        let kernel = if wide { "upsample_grad_f16x8" } else { "upsample_grad_f16" };
        let other = UpsampleGradInputs::of(&args.inputs, [self.epilogue.other]).other;
        vec![
            Launch::new(kernel, grid(&dtop, wide))
                .arg(g.read())
                .arg(other.map_or(Arg::Null, |other| other.read()))
                .arg(dtop.write())
                .arg(sizes),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let g = args.inputs[0];
        let [out_h, out_w, c] = [1, 2, 3].map(|i| g.desc.dim(i));
        let (g, dtop) = (g.f32(), args.outputs[0].f32());
        if dtop.is_empty() {
            return;
        }
        dtop.par_chunks_mut(self.width * c).enumerate().for_each(|(line, dtop)| {
            dtop.fill(0.0);
            let image = line / self.height * out_h;
            for y in readers(line % self.height, self.height, out_h) {
                let g = &g[(image + y) * out_w * c..(image + y + 1) * out_w * c];
                for (x, dtop) in dtop.chunks_exact_mut(c).enumerate() {
                    let columns = readers(x, self.width, out_w);
                    for g in g[columns.start * c..columns.end * c].chunks_exact(c) {
                        dtop.iter_mut().zip(g).for_each(|(d, g)| *d += g);
                    }
                }
            }
        });
        self.epilogue.split(&args.inputs).1.run_cpu(dtop);
    }
}
