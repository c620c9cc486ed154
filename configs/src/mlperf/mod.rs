//! MLPerf Training v3.1's rules of Mask R-CNN: hyper-parameters by global batch, and how fast a run
//! may converge.

mod curve;
mod rcp;
mod recipe;
mod rules;

pub use curve::Curve;
pub use rcp::{Convergence, Verdict};
pub use recipe::{Recipe, TRAIN_IMAGES};
pub use rules::Deviation;
