//! The arguments that the losses' kernels share, and the sizes of their launches.
//!
//! The structs equal those of `cuda/losses.cuh`.

use device::{Arg, Buffer, StructArg};

use crate::{DType, TensorDesc};

/// Threads per block that works on rows.
pub(crate) const ROW_THREADS: u32 = 1024;

/// Blocks of a launch at most. Every block counts the rows of all groups, so more than one a
/// multiprocessor (A100: 108, H100: 132) would count without gaining parallelism.
pub(crate) const MAX_BLOCKS: usize = 128;

/// The rows of a loss, as `LossRows` of the kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossRows<'a> {
    /// Class or sign of each row.
    pub(crate) labels: Buffer<'a>,
    /// Image of each row.
    pub(crate) image_idx: Buffer<'a>,
    /// Images in use.
    pub(crate) num_images: Buffer<'a>,
    /// Rows in use, if not all.
    pub(crate) count: Option<Buffer<'a>>,
    /// Images whose rows share a mean.
    pub(crate) ipg: usize,
    /// Least label that the mean counts.
    pub(crate) least_label: i32,
    /// Rows of each image that the divisor takes for granted; `None` counts them.
    pub(crate) rows_per_image: Option<usize>,
}

impl LossRows<'_> {
    /// The argument.
    pub(crate) fn arg(&self) -> Arg {
        let count = self.count.map_or(Arg::Null, |count| count.read());
        let pointers = [self.labels.read(), self.image_idx.read(), self.num_images.read(), count];
        // More images a group than an int holds are all images in one group either way.
        let ipg = i32::try_from(self.ipg).unwrap_or(i32::MAX);
        let rows = match i32::try_from(self.labels.len()) {
            Ok(rows) => rows,
            Err(_) => panic!("a loss of {} rows", self.labels.len()),
        };
        let rows_per_image = match i32::try_from(self.rows_per_image.unwrap_or(0)) {
            Ok(rows) => rows,
            Err(_) => panic!("a loss over {:?} rows of an image", self.rows_per_image),
        };
        StructArg::new()
            .pointers(&pointers, pointers.len())
            .field(rows)
            .field(ipg)
            .field(self.least_label)
            .field(rows_per_image)
            .arg()
    }
}

/// The gradient that reaches a loss, as `LossGradient` of the kernels: the loss scale is f32, a
/// gradient that ops computed is in the precision's.
pub(crate) fn loss_gradient(grad_output: Buffer<'_>) -> Arg {
    let (wide, narrow) = match grad_output.dtype() {
        DType::F16 => (Arg::Null, grad_output.read()),
        _ => (grad_output.read(), Arg::Null),
    };
    StructArg::new().pointers(&[wide, narrow], 2).arg()
}

/// Blocks for `rows` rows of which a block takes `rows_a_block` at a time: at least one, as a loss
/// without rows is still written.
pub(crate) fn blocks(rows: usize, rows_a_block: usize) -> usize {
    rows.div_ceil(rows_a_block).clamp(1, MAX_BLOCKS)
}

/// Scratch bytes of the partial sums of `blocks` blocks.
pub(crate) fn partial_bytes(blocks: usize) -> usize {
    blocks * size_of::<f32>()
}

/// The kernels take logits in the precision's element type.
pub(crate) fn assert_real(logits: &TensorDesc) {
    assert!(logits.role.follows_precision(), "{logits:?}: losses read activations");
}
