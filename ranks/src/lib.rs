//! The processes (ranks) of a run: determining the rank, joining, all-reduce on CPUs, and detecting
//! lost ranks.
//!
//! | for | read |
//! |---|---|
//! | rank and number of ranks, from the launcher's variables | [`Launch`] |
//! | the connections: join, gather, agree, sum, leave | [`Group`] |
//! | a rank that died, hung or gave up | [`Lost`] |

mod error;
mod frame;
mod group;
mod handshake;
mod join;
mod launch;
mod links;
mod lost;
mod member;
mod options;
mod rendezvous;
mod sum;

pub use error::RanksError;
pub use group::Group;
pub use launch::{Launch, Launcher};
pub use lost::Lost;
pub use member::Member;
pub use options::{JoinOptions, Lookup, Say};
