//! Square neighbourhoods of the feature cells of selected anchors: the input of the sparse RPN
//! head.
//!
//! A 3x3 convolution (padding 1) at only the cells of sampled anchors is a GEMM of 3x3 patches and
//! the weights `[K, 3, 3, C]`, so the head's backward pass need not be dense. Two consecutive
//! convolutions need 5x5 patches, with `clear_outside` in between.

mod cases;

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, TensorMut, TensorRef};
use crate::ops::roi_align::pyramid::Pyramid;
use crate::{BackwardRule, Role, Sink, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// Gathers patches at anchors, 3x3 or 5x5 (the sizes that the gradient kernels support). A
    /// copy: exact. Memory-bound.
    #[derive(Eq)]
    pub struct GatherPatches = "gather_patches" {
        /// A, anchors per feature cell.
        pub anchors_per_cell: usize [|cells| *cells > 0, "at least 1"],
        /// Cells on each side of the anchor's cell.
        pub reach: usize [|reach| (1..=2).contains(reach), "1 or 2"],
    }
    lists {
        /// Map of a level.
        features: real "[N, h, w, C]",
    }
    in GatherPatchesInputs {
        /// Index among the anchors of an image, ordered by (level, y, x, anchor of the cell); -1:
        /// none.
        idx: i32 "[N, B]",
    }
    out {
        /// 0 outside the map and in rows without an anchor; S = 2 `reach` + 1. Has the role of the
        /// maps.
        patches: Activation "[N*B, S, S, C]",
    }
}

impl Kernel for GatherPatches {
    const KEEPS_ROLE: bool = true;

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("S", 2 * self.reach + 1);
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let levels = inputs.len() - 1;
        let level_sizes = inputs[..levels].iter().map(|f| [f.dim(1), f.dim(2)]).collect();
        let Self { anchors_per_cell, reach } = *self;
        let grad = GatherPatchesGrad { anchors_per_cell, reach, level_sizes };
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &[Source::GradOutput(0), Source::Input(levels)], &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let GatherPatchesInputs { features, idx } = GatherPatchesInputs::of(&args.inputs);
        let sizes: Vec<_> = features.iter().map(|f| [f.dim(1), f.dim(2)]).collect();
        let pyramid = Pyramid {
            maps: features.iter().map(|map| map.read()).collect(),
            sizes: &sizes,
            scales: &[],
            images: features[0].dim(0),
            channels: features[0].dim(3),
        };
        let wide = pyramid.vector() == 8;
        let kernel = if wide { "gather_patches_f16x8" } else { "gather_patches_f16" };
        vec![
            Launch::new(kernel, [idx.len(), 1, 1])
                .arg(pyramid.arg())
                .arg(idx.read())
                .arg(args.outputs[0].write())
                .int(idx.dim(1))
                .int(self.anchors_per_cell)
                .int(self.reach),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let GatherPatchesInputs { features, idx } = GatherPatchesInputs::of(&args.inputs);
        gather([self.anchors_per_cell, self.reach], &features, idx, args.outputs[0].f32());
    }
}

/// The kernel argument `PatchGradients` for `g` and `idx`, or for no patches if `inputs` is `None`.
pub(crate) fn gradients_arg(inputs: Option<[Buffer<'_>; 2]>, anchors_per_cell: usize) -> Arg {
    let (pointers, per_image) = match inputs {
        Some([g, idx]) => (vec![g.read(), idx.read()], idx.dim(1)),
        None => (vec![], 0),
    };
    StructArg::new().pointers(pointers, 2).ints([per_image, anchors_per_cell]).arg()
}

op! {
    /// Adds the gradients of patches to the maps: an output `[N, h, w, C]` for each level.
    /// Overlapping patches are added in the order of their rows, so the result is deterministic.
    #[derive(Eq)]
    pub struct GatherPatchesGrad = "gather_patches_grad" {
        /// A, anchors per feature cell.
        pub anchors_per_cell: usize [|cells| *cells > 0, "at least 1"],
        /// Cells on each side of the anchor's cell.
        pub reach: usize [|reach| (1..=2).contains(reach), "1 or 2"],
        /// Height and width of each level's map.
        pub level_sizes: Vec<[usize; 2]>,
    }
    in GatherPatchesGradInputs {
        /// Gradient of the patches.
        grad_output: real "[N*B, S, S, C]",
        /// As in [`GatherPatches`].
        idx: i32 "[N, B]",
    }
    out {}
}

impl Kernel for GatherPatchesGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("S", 2 * self.reach + 1);
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let (images, channels) = (inputs[1].dim(0), inputs[0].dim(3));
        outputs.extend(self.level_sizes.iter().map(|&[height, width]| {
            TensorDesc::new(Role::Gradient, &[images, height, width, channels])
        }));
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [anchors_per_cell, reach] = [self.anchors_per_cell, self.reach];
        let level_sizes = &self.level_sizes;
        let (g, idx) = (args.inputs[0], args.inputs[1]);
        let pyramid = Pyramid {
            maps: args.outputs.iter().map(Buffer::write).collect(),
            sizes: level_sizes,
            scales: &[],
            images: idx.dim(0),
            channels: g.dim(3),
        };
        let wide = pyramid.vector() == 8;
        let kernel = match (reach, wide) {
            (1, true) => "gather_patches_grad_f16x8",
            (1, false) => "gather_patches_grad_f16",
            (_, true) => "gather_patches_grad_5x5_f16x8",
            (_, false) => "gather_patches_grad_5x5_f16",
        };
        vec![
            Launch::new(kernel, pyramid.tile_grid())
                .arg(gradients_arg(Some([g, idx]), anchors_per_cell))
                .arg(pyramid.arg()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (grad_output, idx) = (args.inputs[0], args.inputs[1]);
        let op = [self.anchors_per_cell, self.reach];
        scatter(op, &self.level_sizes, &grad_output, &idx, &mut args.outputs);
    }
}

/// Feature rows that a task of the gradient writes.
const BAND: usize = 8;

/// A feature cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) level: usize,
    pub(crate) y: usize,
    pub(crate) x: usize,
}

/// The cell of an anchor; `None` for -1.
pub(crate) fn cell(anchor: i32, anchors_per_cell: usize, sizes: &[[usize; 2]]) -> Option<Cell> {
    let mut rest = usize::try_from(anchor).ok()? / anchors_per_cell;
    for (level, [height, width]) in sizes.iter().enumerate() {
        if rest < height * width {
            return Some(Cell { level, y: rest / width, x: rest % width });
        }
        rest -= height * width;
    }
    panic!("anchor {anchor} is beyond the maps {sizes:?} with {anchors_per_cell} anchors a cell");
}

/// The cells of the patch inside the map: (offset in the patch, y, x).
pub(crate) fn neighbours(
    c: Cell,
    reach: usize,
    [height, width]: [usize; 2],
) -> impl Iterator<Item = (usize, usize, usize)> {
    let side = 2 * reach + 1;
    (0..side * side).filter_map(move |k| {
        let y = (c.y + k / side).checked_sub(reach).filter(|&y| y < height)?;
        let x = (c.x + k % side).checked_sub(reach).filter(|&x| x < width)?;
        Some((k, y, x))
    })
}

/// Copies the patch of each anchor; one task per patch.
fn gather(
    [anchors_per_cell, reach]: [usize; 2],
    features: &[&TensorRef<'_>],
    idx: &TensorRef<'_>,
    patches: &mut [f32],
) {
    let channels = features[0].shape()[3];
    if patches.is_empty() {
        return;
    }
    let sizes: Vec<_> = features.iter().map(|f| [f.shape()[1], f.shape()[2]]).collect();
    let maps: Vec<_> = features.iter().map(|f| f.f32()).collect();
    let (per_image, idx) = (idx.shape()[1], idx.i32());
    let area = (2 * reach + 1).pow(2);
    patches.par_chunks_mut(area * channels).enumerate().for_each(|(row, patch)| {
        patch.fill(0.0);
        let Some(c) = cell(idx[row], anchors_per_cell, &sizes) else { return };
        let [height, width] = sizes[c.level];
        let image = row / per_image;
        for (k, y, x) in neighbours(c, reach, [height, width]) {
            let from = ((image * height + y) * width + x) * channels;
            patch[k * channels..][..channels]
                .copy_from_slice(&maps[c.level][from..from + channels]);
        }
    });
}

/// Adds the gradient of each patch to its map. Each task writes a band of rows of one image, and
/// adds the patches that overlap the band in order.
fn scatter(
    [anchors_per_cell, reach]: [usize; 2],
    sizes: &[[usize; 2]],
    grad_output: &TensorRef<'_>,
    idx: &TensorRef<'_>,
    grads: &mut [TensorMut<'_>],
) {
    let channels = grad_output.shape()[3];
    let area = (2 * reach + 1).pow(2);
    let per_image = idx.shape()[1];
    let grad_output = grad_output.f32();
    let cells: Vec<_> = idx.i32().iter().map(|&a| cell(a, anchors_per_cell, sizes)).collect();
    for (level, grad) in grads.iter_mut().enumerate() {
        let [height, width] = sizes[level];
        let row_len = width * channels;
        if height * row_len == 0 {
            continue;
        }
        grad.f32().par_chunks_mut(height * row_len).enumerate().for_each(|(image, grad)| {
            let rows = image * per_image..(image + 1) * per_image;
            let of_level: Vec<(usize, Cell)> = rows
                .filter_map(|row| Some((row, cells[row].filter(|c| c.level == level)?)))
                .collect();
            grad.par_chunks_mut(BAND * row_len).enumerate().for_each(|(band, grad)| {
                grad.fill(0.0);
                let first = band * BAND;
                let rows = first..first + grad.len() / row_len;
                for &(row, c) in &of_level {
                    let patch = &grad_output[row * area * channels..][..area * channels];
                    for (k, y, x) in neighbours(c, reach, [height, width]) {
                        if rows.contains(&y) {
                            let to = ((y - first) * width + x) * channels;
                            let g = &patch[k * channels..][..channels];
                            add(&mut grad[to..to + channels], g);
                        }
                    }
                }
            });
        });
    }
}

fn add(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}
