//! Maximum over square windows, and its index.
//!
//! Matches `torch.nn.functional.max_pool2d(x, kernel, stride, pad, return_indices=True)`: padding
//! never wins, equal values go to the first in row-major order, a NaN wins over numbers. Kernel 1
//! with stride 2 computes P6 from P5.

mod cases;

use std::ops::Range;
use std::sync::Arc;

use device::{Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::matmul::out_extent;
use crate::{BackwardRule, Cost, Fusion, OpError, OpRef, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Maximum over windows of `kernel` x `kernel`; `P = (H + 2 pad - kernel) / stride + 1`.
    ///
    /// Memory-bound. The gradient is gathered by input row, and needs `argmax`.
    pub struct MaxPool = "max_pool" {
        /// Side of a window.
        pub kernel: usize,
        /// Step between windows, both axes.
        pub stride: usize,
        /// Padding rows and columns, which never win; at most half of `kernel`.
        pub pad: usize,
        /// There is an output `argmax`, which the gradient needs.
        pub argmax: bool,
    }
    in MaxPoolInputs {
        /// Map.
        x: float "[N, H, W, C]",
    }
    out {
        /// Maxima, with the role of `x`.
        y: Activation "[N, P, Q, C]",
        /// Index of the maximum, h * W + w; only if the flag is set.
        argmax: Index "[N, P, Q, C]",
    }
}

impl MaxPool {
    fn check_window(&self, op: &'static str) -> Result<(), OpError> {
        check::parameter(op, "kernel", self.kernel > 0, "at least 1", self.kernel)?;
        check::parameter(op, "stride", self.stride > 0, "at least 1", self.stride)?;
        // With more padding, a window could be entirely in the padding and would have no maximum.
        check::parameter(op, "pad", 2 * self.pad <= self.kernel, "at most kernel / 2", self.pad)
    }

    /// Height or width of the output.
    fn extent(&self, input: usize) -> Option<usize> {
        out_extent(input, self.kernel, self.stride, self.pad)
    }
}

impl Kernel for MaxPool {
    const KEEPS_ROLE: bool = true;

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        self.check_window(dims.op())?;
        let extents = ["H", "W"].map(|name| self.extent(dims.get(name)));
        let [Some(p), Some(q)] = extents else {
            let expected = format!("[N, H, W, C] that holds a window of {}", self.kernel);
            return Err(check::shape_error(dims.op(), "x", &inputs[0], expected));
        };
        dims.bind("P", p);
        dims.bind("Q", q);
        Ok(())
    }

    fn adjust(&self, _inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs.truncate(1 + usize::from(self.argmax));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let compares = outputs[0].len() * self.kernel * self.kernel;
        Cost::streaming(inputs, outputs, compares as u64)
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::DropLast && self.argmax;
        can.then(|| Arc::new(Self { argmax: false, ..self.clone() }) as _)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        if !self.argmax {
            return BackwardRule::default();
        }
        let [height, width] = [1, 2].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            MaxPoolGrad { pool: self.clone(), height, width },
            &[Source::GradOutput(0), Source::Output(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, y) = (args.inputs[0], args.outputs[0]);
        let argmax = args.outputs.get(1).map_or(Arg::Null, |argmax| argmax.write());
        let (kernel, vector) =
            if x.dim(3).is_multiple_of(8) { ("max_pool_f16x8", 8) } else { ("max_pool_f16", 1) };
        vec![
            Launch::new(kernel, grid(&y, vector))
                .arg(x.read())
                .arg(y.write())
                .arg(argmax)
                .arg(pool_arg(self, &x, &y)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let x = args.inputs[0];
        let (y, argmax) = match &mut args.outputs[..] {
            [y] => (y, None),
            [y, argmax] => (y, Some(argmax.i32())),
            _ => unreachable!("one output or two"),
        };
        let size = [1, 2, 3].map(|i| x.desc.dim(i));
        let out = [1, 2].map(|i| y.desc.dim(i));
        max_pool(self, x.f32(), size, out, y.f32(), argmax);
    }
}

/// The kernel argument `Pool`, for maps of the size of `x` and outputs of the size of `y`.
fn pool_arg(pool: &MaxPool, x: &Buffer<'_>, y: &Buffer<'_>) -> Arg {
    let extents = [x.dim(1), x.dim(2), y.dim(1), y.dim(2), x.dim(3)];
    StructArg::new().ints(extents).ints([pool.kernel, pool.stride, pool.pad]).arg()
}

/// Launch grid with one row of blocks per row of `map`.
fn grid(map: &Buffer<'_>, vector: usize) -> [usize; 3] {
    let vectors = map.dim(2) * map.dim(3) / vector;
    [map.dim(0) * map.dim(1), vectors.div_ceil(BLOCK as usize), 1]
}

op! {
    /// Gradient of [`MaxPool`] for an input of `height` x `width`. Windows that share a maximum add
    /// their gradients in row-major order. Memory-bound.
    pub struct MaxPoolGrad = "max_pool_grad" {
        /// The forward op.
        pub pool: MaxPool,
        /// H.
        pub height: usize,
        /// W.
        pub width: usize,
    }
    in MaxPoolGradInputs {
        /// Gradient of the maxima.
        g: float "[N, P, Q, C]",
        /// Indices of the maxima.
        argmax: i32 "[N, P, Q, C]",
    }
    out {
        /// Gradient of the map.
        dx: Gradient "[N, height, width, C]",
    }
}

impl Kernel for MaxPoolGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        self.pool.check_window(dims.op())?;
        let extents = [self.height, self.width].map(|e| self.pool.extent(e));
        if extents == [Some(dims.get("P")), Some(dims.get("Q"))] {
            return Ok(());
        }
        let expected = format!("[N, {:?}, {:?}, C]", extents[0], extents[1]);
        Err(check::shape_error(dims.op(), "g", &inputs[0], expected))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (g, dx) = (args.inputs[0], args.outputs[0]);
        let (kernel, vector) = if g.dim(3).is_multiple_of(8) {
            ("max_pool_grad_f16x8", 8)
        } else {
            ("max_pool_grad_f16", 1)
        };
        let pool = pool_arg(&self.pool, &dx, &g);
        vec![Launch::new(kernel, grid(&dx, vector)).tensors(args).arg(pool)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (g, argmax) = (args.inputs[0], args.inputs[1]);
        let size = [self.height, self.width, g.desc.dim(3)];
        let out = [1, 2].map(|i| g.desc.dim(i));
        let dx = args.outputs[0].f32();
        max_pool_grad(&self.pool, g.f32(), argmax.i32(), size, out, dx);
    }
}

/// Channels whose maxima are kept in registers together.
const LANES: usize = 8;

/// Input coordinates that window `o` covers along an axis of `extent`.
fn window(pool: &MaxPool, o: usize, extent: usize) -> Range<usize> {
    let start = o * pool.stride;
    start.saturating_sub(pool.pad)..(start + pool.kernel).saturating_sub(pool.pad).min(extent)
}

/// `x` holds maps of `[H, W, C]`; `y` and the optional `argmax` hold maps of `[P, Q, C]`.
fn max_pool(
    pool: &MaxPool,
    x: &[f32],
    [h, w, c]: [usize; 3],
    [p, q]: [usize; 2],
    y: &mut [f32],
    argmax: Option<&mut [i32]>,
) {
    if y.is_empty() {
        return;
    }
    let line = |line: usize, y: &mut [f32], mut argmax: Option<&mut [i32]>| {
        let image = &x[line / p * h * w * c..][..h * w * c];
        let rows = window(pool, line % p, h);
        for (o, y) in y.chunks_exact_mut(c).enumerate() {
            let columns = window(pool, o, w);
            let pixels = || rows.clone().flat_map(|r| columns.clone().map(move |s| r * w + s));
            let mut keep = |channel: usize, places: &[i32]| {
                if let Some(argmax) = argmax.as_deref_mut() {
                    argmax[o * c + channel..][..places.len()].copy_from_slice(places);
                }
            };
            let (groups, rest) = y.as_chunks_mut::<LANES>();
            let done = LANES * groups.len();
            for (i, y) in groups.iter_mut().enumerate() {
                let places: [i32; LANES];
                (*y, places) = largest(image, pixels(), c, LANES * i);
                keep(LANES * i, &places);
            }
            for (i, y) in rest.iter_mut().enumerate() {
                let places: [i32; 1];
                ([*y], places) = largest(image, pixels(), c, done + i);
                keep(done + i, &places);
            }
        }
    };
    let lines = y.par_chunks_mut(q * c).enumerate();
    match argmax {
        Some(argmax) => lines
            .zip(argmax.par_chunks_mut(q * c))
            .for_each(|((i, y), argmax)| line(i, y, Some(argmax))),
        None => lines.for_each(|(i, y)| line(i, y, None)),
    }
}

/// For each of `N` channels, starting at `channel`: the maximum over `pixels`, and its pixel index.
fn largest<const N: usize>(
    image: &[f32],
    mut pixels: impl Iterator<Item = usize>,
    channels: usize,
    channel: usize,
) -> ([f32; N], [i32; N]) {
    let at = |pixel: usize| -> &[f32] { &image[pixel * channels + channel..][..N] };
    let (mut best, mut place) = ([f32::NEG_INFINITY; N], [0; N]);
    if let Some(first) = pixels.next() {
        best.copy_from_slice(at(first));
        place = [first as i32; N];
    }
    for pixel in pixels {
        for ((best, place), &v) in best.iter_mut().zip(&mut place).zip(at(pixel)) {
            // A NaN wins; nothing is larger than it, so only a later NaN replaces it.
            let wins = v > *best || v.is_nan();
            *best = if wins { v } else { *best };
            *place = if wins { pixel as i32 } else { *place };
        }
    }
    (best, place)
}

/// `dx` holds maps of `[H, W, C]`; one task per row of `dx` reads the windows that overlap the row
/// and adds the gradients of the maxima in that row.
fn max_pool_grad(
    pool: &MaxPool,
    g: &[f32],
    argmax: &[i32],
    [h, w, c]: [usize; 3],
    [p, q]: [usize; 2],
    dx: &mut [f32],
) {
    if dx.is_empty() {
        return;
    }
    dx.par_chunks_mut(w * c).enumerate().for_each(|(line, dx)| {
        dx.fill(0.0);
        let (image, row) = (line / h, line % h);
        let first = (row + pool.pad + 1).saturating_sub(pool.kernel).div_ceil(pool.stride);
        let last = ((row + pool.pad) / pool.stride + 1).min(p);
        let pixels = (row * w) as i32..((row + 1) * w) as i32;
        for o in first..last {
            let at = (image * p + o) * q * c..(image * p + o + 1) * q * c;
            let cells = g[at.clone()].chunks_exact(c).zip(argmax[at].chunks_exact(c));
            for (g, maxima) in cells {
                for (channel, (&g, &pixel)) in g.iter().zip(maxima).enumerate() {
                    if pixels.contains(&pixel) {
                        dx[(pixel - pixels.start) as usize * c + channel] += g;
                    }
                }
            }
        }
    });
}
