//! The ops, one folder each, grouped by purpose. The public path of an op does not contain the
//! group: `kernels::ops::conv2d`.

mod boxes;
mod exchange;
mod gemm_ops;
mod losses;
mod maps;
mod targets;
mod update;

pub use boxes::*;
pub use exchange::*;
pub use gemm_ops::*;
pub use losses::*;
pub use maps::*;
pub use targets::*;
pub use update::*;

use crate::case::OpCase;

/// The cases of every op.
pub fn cases() -> Vec<OpCase> {
    [
        boxes::cases(),
        exchange::cases(),
        losses::cases(),
        maps::cases(),
        gemm_ops::cases(),
        targets::cases(),
        update::cases(),
    ]
    .concat()
}

/// The cases of convolutions, linear layers and the ops fused into them.
pub(crate) fn gemm_cases() -> Vec<OpCase> {
    gemm_ops::cases()
}
