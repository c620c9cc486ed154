//! The ops, one folder each, grouped by purpose. They are re-exported without the group:
//! `kernels::ops::conv2d`.

mod boxes;
mod exchange;
mod losses;
mod maps;
mod products;
mod targets;
mod update;

pub use boxes::*;
pub use exchange::*;
pub use losses::*;
pub use maps::*;
pub use products::*;
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
        products::cases(),
        targets::cases(),
        update::cases(),
    ]
    .concat()
}

/// The cases of convolutions, linear layers and the ops fused into them.
pub(crate) fn product_cases() -> Vec<OpCase> {
    products::cases()
}
