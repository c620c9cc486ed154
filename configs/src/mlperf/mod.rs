//! MLPerf Training v3.1's rules of Mask R-CNN: hyper-parameters by global batch, and how fast a run
//! may converge.

mod rcp;
mod recipe;

pub use rcp::{Convergence, Verdict};
pub use recipe::{Recipe, TRAIN_IMAGES};
