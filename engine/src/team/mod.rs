//! The ranks of a run, as its session sees them.

mod cores;
mod watchdog;

use std::time::Duration;

use device::Ranks;
use ranks::Group;

pub(crate) use cores::own_cores;
use watchdog::Advance;

use crate::error::EngineError;

/// This rank and its connection to the others.
#[derive(Debug, Clone)]
pub struct Team {
    group: Group,
    advance: Advance,
}

impl Team {
    /// A run of one process.
    pub fn alone() -> Self {
        Self::new(Group::alone())
    }

    /// A rank of several.
    pub fn new(group: Group) -> Self {
        Self { group, advance: Advance::new() }
    }

    /// This rank's number, and how many there are.
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

    /// Ranks on this rank's machine, itself among them.
    pub fn local_ranks(&self) -> usize {
        let members = self.group.members();
        let host = members.get(self.group.rank()).map(|own| &own.host_id);
        members.iter().filter(|member| Some(&member.host_id) == host).count().max(1)
    }

    /// The connection.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// [`EngineError::RankLost`].
    pub fn meet(&self, what: &str) -> Result<(), EngineError> {
        Ok(self.advance.waiting(|| self.group.barrier(what))?)
    }

    /// Gives all ranks what the first one has.
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

    /// Collects a message of every rank on the first one; empty on the others.
    ///
    /// # Errors
    /// [`EngineError::RankLost`].
    pub fn gather(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, EngineError> {
        Ok(self.advance.waiting(|| self.group.gather(what, mine))?)
    }

    /// Does work that one rank of each host does, the first one there; the others wait, and then do
    /// it themselves, when it is little.
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

    /// Checks that all ranks have the same `facts`, each a name and a value.
    ///
    /// # Errors
    /// [`EngineError::OfAllRanks`] naming a rank that differs, and in what.
    pub fn agree(&self, facts: &[(&str, String)]) -> Result<(), EngineError> {
        Ok(self.advance.waiting(|| self.group.agree(facts))?)
    }

    /// Says what this rank does, for the messages of others if it is lost.
    pub fn set_doing(&self, step: u64, what: &str) {
        self.advance.begin(step, what);
        self.group.set_doing(step, what);
    }

    /// Says that what this rank does has advanced.
    pub fn go_on(&self) {
        self.advance.go_on();
    }

    /// Calls `end` with a sentence once this rank has made no progress for `limit`.
    pub(crate) fn watch(&self, limit: Duration, end: impl FnOnce(&str) + Send + 'static) {
        self.advance.watch(limit, end);
    }
}

/// The message that holds a value.
///
/// # Errors
/// [`EngineError::RankLost`]; none in practice.
pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, EngineError> {
    postcard::to_stdvec(value).map_err(|fault| message(&fault))
}

/// The value of a message from another rank.
///
/// # Errors
/// [`EngineError::RankLost`] for a message that holds no such value.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, EngineError> {
    postcard::from_bytes(bytes).map_err(|fault| message(&fault))
}

fn message(fault: &postcard::Error) -> EngineError {
    EngineError::RankLost(format!("a message between ranks cannot be read: {fault}"))
}
