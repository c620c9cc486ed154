//! The processes of one run: how each learns its rank, how they find each other, and what happens
//! when one is lost.
//!
//! | for | read |
//! |---|---|
//! | rank and number of ranks, from the launcher's variables | [`Launch`] |
//! | the control connection: join, gather, agree, leave | [`Group`] |
//! | a rank that died, hung or gave up | [`Lost`] |
//! | values between CPU ranks, over MPI | `MpiExchange`, with the feature `mpi` |
//! | values between threads, for tests | [`in_process()`] |
//! | the bytes on the wire, as a pure function | [`frame::Frame`] |

mod control;
mod error;
pub mod frame;
mod group;
mod handshake;
mod host;
mod in_process;
mod join;
mod launch;
mod lost;
#[cfg(feature = "mpi")]
mod mpi_exchange;
mod options;
mod rendezvous;

pub use error::RanksError;
pub use group::Group;
pub use host::Member;
pub use in_process::in_process;
pub use launch::{Launch, Launcher};
pub use lost::Lost;
#[cfg(feature = "mpi")]
pub use mpi_exchange::MpiExchange;
pub use options::{JoinOptions, Lookup, Say};
