//! Training: the trainer, which runs steps, and the session, which runs a whole training run.

mod agreement;
mod background;
mod banner;
mod best;
mod checkpoints;
mod collect;
mod divergence;
mod evaluation_report;
mod feed;
mod journal;
mod memory;
mod observer;
mod options;
mod periods;
mod programs;
mod repeats;
mod replay;
mod report;
mod resume;
mod scores;
mod session;
mod start;
mod steps;
mod totals;
mod trainer;
mod validation;
mod verdict;

pub use agreement::{check_config, check_model};
pub use memory::MemoryNeed;
pub(crate) use memory::checkpoint_bytes;
pub use observer::{Event, Observer};
pub use options::{Outcome, SessionOptions};
pub use replay::Replay;
pub use session::Session;
pub use steps::Submit;
pub use trainer::Trainer;
