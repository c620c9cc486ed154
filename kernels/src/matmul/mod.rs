//! GEMMs of the dense ops: convolutions, transposed convolutions and linear layers.
//!
//! One register tile ([`tile`]) does all the arithmetic: 14 x 32 in AVX-512, 6 x 16 in AVX2. A
//! convolution is not unfolded in memory: the rows of the left matrix are gathered through
//! pointers, one for each kernel tap ([`gather`]), so that a 3x3 convolution needs no copy, and a
//! strided or transposed convolution no wasted multiplications. A 3x3 convolution may use Winograd
//! F(2x2, 3x3), with fewer multiplications ([`winograd`]). Only the weights are packed ([`pack`]).
//! The weight gradient reduces over positions ([`reduce`]).
//!
//! **Determinism.** Every output element is a chain of fused multiply-adds in the order of the
//! reduction, split into blocks that depend only on the shapes. Threads divide output elements,
//! never a sum, so results are bit-identical for any number of threads and any tile size.

mod axis;
mod bf16;
mod class;
mod epilogue;
mod filter;
mod gather;
mod grid;
mod groups;
pub(crate) mod launch;
mod pack;
mod reduce;
mod rows;
mod shape;
#[cfg(test)]
mod tests;
mod tile;
mod transpose;
mod winograd;

pub(crate) use epilogue::Epilogue;
pub(crate) use filter::filter_gradient;
pub(crate) use gather::{conv_forward, conv_grad_input, gather_workspace_len};
pub(crate) use reduce::{conv_grad_weight, reduce_workspace_len};
pub(crate) use shape::{ConvShape, out_extent};

/// Maximum elements of a packed operand: 4 MiB, so that it stays in the last-level cache during a
/// pass.
const PACK_LIMIT: usize = 1 << 20;

/// Positions, or Winograd tiles, in a block of a weight gradient's sum.
const BLOCK: usize = 256;

/// Minimum channels and filters of merged groups.
const GROUP: usize = 32;

/// The part of `workspace` that starts on a cache line, `len` elements long.
fn aligned(workspace: &mut [f32], len: usize) -> &mut [f32] {
    let skip = workspace.as_ptr().align_offset(64).min(ALIGN_SLACK);
    &mut workspace[skip..skip + len]
}

/// Elements that [`aligned`] may skip.
const ALIGN_SLACK: usize = 16;
