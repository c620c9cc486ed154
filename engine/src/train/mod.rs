//! Training: the trainer, which runs steps, and the session, which runs a whole training run.

mod banner;
mod divergence;
mod feed;
mod journal;
mod memory;
mod programs;
mod report;
mod scores;
mod session;
mod start;
mod steps;
mod trainer;

pub use memory::MemoryNeed;
pub use session::{Outcome, Session, SessionOptions};
pub use steps::Submit;
pub use trainer::Trainer;
