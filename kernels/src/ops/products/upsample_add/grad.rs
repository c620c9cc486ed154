//! Gradient of nearest upsampling: the sum over the outputs that read a position, and another
//! gradient of the map if its [`Finish`] has one; it has no mask.

use std::ops::Range;
use std::sync::Arc;

use device::{Arg, Launch, LaunchArgs};
use rayon::prelude::*;

use super::{grid, sizes};
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{Finish, Fusion, OpError, OpRef, TensorDesc, Traits, check, op};

op! {
    /// `dtop[y, x] = sum of g` over the outputs whose source is `(y, x)`.
    pub struct UpsampleGrad = "upsample_grad" {
        /// Height of the map that was upsampled.
        pub height: usize,
        /// Width of the map that was upsampled.
        pub width: usize,
        /// The finish of the sums.
        pub finish: Finish,
    }
    in UpsampleGradInputs {
        /// Gradient of the finer map.
        g: real "[N, H, W, C]",
    }
    optional {
        /// Another gradient of the coarser map.
        other: real "[N, height, width, C]" if |op| op.finish.other,
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

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("height", self.height);
        dims.bind("width", self.width);
    }

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check::parameter(dims.op(), "finish.mask", !self.finish.mask, "false", self.finish.mask)
    }

    fn traits(&self) -> Traits {
        Traits { finish: Some(self.finish), ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let Fusion::Finish(finish @ Finish { mask: false, .. }) = fusion else { return None };
        Some(Arc::new(Self { finish, ..self.clone() }))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (g, dtop) = (args.inputs[0], args.outputs[0]);
        let (sizes, wide) = sizes(&g, &dtop);
        let kernel = if wide { "upsample_grad_f16x8" } else { "upsample_grad_f16" };
        let other = UpsampleGradInputs::of(&args.inputs, [self.finish.other]).other;
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
        self.finish.split(&args.inputs).1.run_cpu(dtop);
    }
}
