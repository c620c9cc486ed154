//! The ops, one folder each, in folders by what they are for. Outside, an op's name stands alone:
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

/// The cases of convolutions and linear layers alone, with the ops that are fused into them.
pub(crate) fn product_cases() -> Vec<OpCase> {
    products::cases()
}
