//! The ranks of a run, as a training session uses them.

mod cores;
mod watchdog;

use std::time::Duration;

use device::Ranks;
use ranks::Group;

pub(crate) use cores::own_cores;
use watchdog::Advance;

use crate::error::EngineError;

/// This rank and its connection to the other ranks.
#[derive(Debug, Clone)]
pub struct Team {
    group: Group,
    advance: Advance,
}

impl Team {
    /// A run with a single rank.
    pub fn single() -> Self {
        Self::new(Group::single())
    }

    /// One of several ranks.
    pub fn new(group: Group) -> Self {
        Self { group, advance: Advance::new() }
    }

    /// This rank's number, and the number of ranks.
    pub fn ranks(&self) -> Ranks {
        Ranks { rank: self.group.rank(), count: self.group.ranks() }
    }

    /// True if this rank writes the run's files.
    pub fn is_first(&self) -> bool {
        self.group.is_first()
    }

    /// True if the run has one process.
    pub fn is_alone(&self) -> bool {
        self.group.ranks() == 1
    }

    /// Number of ranks on this machine, including this one.
    pub fn local_ranks(&self) -> usize {
        let members = self.group.members();
        let host = members.get(self.group.rank()).map(|own| &own.host_id);
        members.iter().filter(|member| Some(&member.host_id) == host).count().max(1)
    }

    /// The connection to the other ranks.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Barrier: waits until all ranks have called it.
    ///
    /// # Errors
    /// [`EngineError::RankLost`].
    pub fn meet(&self, what: &str) -> Result<(), EngineError> {
        Ok(self.advance.waiting(|| self.group.barrier(what))?)
    }

    /// Broadcasts rank 0's value to all ranks.
    ///
    /// # Errors
    /// [`EngineError::RankLost`].
    pub fn share<T>(
        &self,
        what: &str,
        of_first: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        if self.is_alone() {
            return of_first();
        }
        if self.is_first() {
            let value = of_first()?;
            self.group.broadcast(what, &encode(&value)?)?;
            return Ok(value);
        }
        decode(&self.advance.waiting(|| self.group.broadcast(what, &[]))?)
    }

    /// Gathers a message from every rank on rank 0. Empty on the other ranks.
    ///
    /// # Errors
    /// [`EngineError::RankLost`].
    pub fn gather(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
        Ok(self.advance.waiting(|| self.group.gather(what, mine))?)
    }

    /// Runs `work` on the first rank of each host, then on the host's other ranks. For work whose
    /// result is cached, such as building a store.
    ///
    /// # Errors
    /// Errors of the work; [`EngineError::RankLost`].
    pub fn first_of_host_first<T>(
        &self,
        what: &str,
        mut work: impl FnMut() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        if self.is_alone() {
            return work();
        }
        if self.group.is_first_of_host() {
            let done = work()?;
            self.meet(what)?;
            return Ok(done);
        }
        self.meet(what)?;
        work()
    }

    /// Checks that `facts`, pairs of name and value, are equal on all ranks.
    ///
    /// # Errors
    /// [`EngineError::OfAllRanks`] names a rank that differs, and the difference.
    pub fn agree(&self, facts: &[(&str, String)]) -> Result<(), EngineError> {
        Ok(self.advance.waiting(|| self.group.agree(facts))?)
    }

    /// Records what this rank is doing, for the other ranks' messages if it is lost.
    pub fn set_doing(&self, step: u64, what: &str) {
        self.advance.begin(step, what);
        self.group.set_doing(step, what);
    }

    /// Records that the current work has made progress.
    pub fn record_progress(&self) {
        self.advance.record_progress();
    }

    /// Starts a watchdog, which calls `end` with a message once this rank has made no progress for
    /// `limit`.
    pub(crate) fn watch(&self, limit: Duration, end: impl FnOnce(&str) + Send + 'static) {
        self.advance.watch(limit, end);
    }
}

/// Encodes a value as a message.
///
/// # Errors
/// [`EngineError::RankLost`]; none in practice.
pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, EngineError> {
    postcard::to_stdvec(value).map_err(|fault| message(&fault))
}

/// Decodes a value from another rank's message.
///
/// # Errors
/// [`EngineError::RankLost`] if the message cannot be decoded.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, EngineError> {
    postcard::from_bytes(bytes).map_err(|fault| message(&fault))
}

fn message(fault: &postcard::Error) -> EngineError {
    EngineError::RankLost(format!("a message between ranks cannot be read: {fault}"))
}
