//! Training: the trainer, which makes steps, and the session, which makes a run of them.

mod feed;
mod journal;
mod session;
mod steps;
mod trainer;

pub use session::{Outcome, Session, SessionOptions};
pub use steps::Submit;
pub use trainer::{MemoryNeed, Trainer};
