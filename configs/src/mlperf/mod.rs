//! MLPerf Training v3.1's rules of Mask R-CNN: hyper-parameters by global batch, and how fast a run
//! may converge.

mod rcp;
mod recipe;
mod rules;

pub use rcp::{Convergence, Verdict};
pub use recipe::{Recipe, TRAIN_IMAGES};
pub use rules::Deviation;
