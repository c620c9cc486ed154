//! The processes of one run: how each determines its rank, how they find each other, how they
//! all-reduce on CPUs, and what happens when one is lost.
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
