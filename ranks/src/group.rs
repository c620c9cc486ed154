//! The group of a run's ranks: collective operations on messages, and the handling of a lost rank.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::RanksError;
use crate::join;
use crate::launch::Launch;
use crate::links::Links;
use crate::lost::Lost;
use crate::member::Member;
use crate::options::JoinOptions;

/// Maximum number of characters of a value in an error of [`Group::agree`].
const MAX_SHOWN: usize = 60;

/// Names and values that ranks compare.
type Facts = Vec<(String, String)>;

/// This rank's view of the group. Rank 0 is connected to all other ranks, which have no other
/// connections.
///
/// All ranks call [`broadcast`](Self::broadcast), [`gather`](Self::gather),
/// [`barrier`](Self::barrier), [`agree`](Self::agree) and [`sum`](Self::sum) in the same order,
/// from one thread at a time. These calls have no timeout: they wait as long as all ranks send
/// heartbeats, and fail with [`RanksError::Lost`] when a rank stops.
///
/// If the last handle is dropped without [`leave`](Self::leave), the other ranks treat this rank as
/// lost.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    rank: usize,
    members: Vec<Member>,
    /// `None` if the group has only one rank.
    links: Option<Arc<Links>>,
    /// Locked during a collective operation.
    operation: Mutex<()>,
    /// The reason why a sum failed.
    fault: OnceLock<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(links) = &self.links {
            links.close();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.ranks())
    }
}

impl Group {
    fn new(rank: usize, members: Vec<Member>, links: Option<Arc<Links>>) -> Self {
        let (operation, fault) = (Mutex::new(()), OnceLock::new());
        Self(Arc::new(Inner { rank, members, links, operation, fault }))
    }

    /// A group that contains only this process.
    pub fn single() -> Self {
        Self::new(0, vec![Member::this(0, 0)], None)
    }

    /// Joins the run's other ranks; returns when all ranks have joined.
    ///
    /// # Errors
    /// If there is no usable address or token, the port is in use, this rank was rejected, or some
    /// ranks did not join in time. The message is one line.
    pub fn join(launch: &Launch, options: JoinOptions) -> Result<Self, RanksError> {
        if launch.ranks == 1 {
            return Ok(Self::single());
        }
        let joined = join::join(launch, &options)?;
        let members = joined.members.clone();
        let links = Links::start(launch.rank, joined, options.timeout)?;
        Ok(Self::new(launch.rank, members, Some(links)))
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.members.len()
    }

    /// True on rank 0.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// All ranks, in order.
    pub fn members(&self) -> &[Member] {
        &self.0.members
    }

    /// True if no lower rank is on this rank's host.
    pub fn is_first_of_host(&self) -> bool {
        let host = |rank: usize| &self.members()[rank].host_id;
        (0..self.rank()).all(|rank| host(rank) != host(self.rank()))
    }

    /// The number of hosts.
    pub fn hosts(&self) -> usize {
        let mut hosts: Vec<&str> = self.members().iter().map(|m| m.host_id.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len()
    }

    /// Records this rank's step and activity, which its heartbeats contain. The activity must fit
    /// after "was", such as "reducing the gradients".
    pub fn set_doing(&self, step: u64, what: &str) {
        if let Some(links) = &self.0.links {
            links.set_doing(step, what);
        }
    }

    /// Broadcasts rank 0's bytes to all ranks; `from_first` is used only on rank 0.
    ///
    /// # Errors
    /// If a rank is lost, or ranks are in different operations.
    pub fn broadcast(&self, what: &str, from_first: &[u8]) -> Result<Vec<u8>, RanksError> {
        let _operation = self.operation();
        self.broadcast_within(what, from_first)
    }

    /// Gathers the bytes of all ranks on rank 0, in rank order. Other ranks return an empty list,
    /// without waiting.
    ///
    /// # Errors
    /// If a rank is lost, or ranks are in different operations.
    pub fn gather(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let _operation = self.operation();
        self.gather_within(what, mine)
    }

    /// Returns when all ranks have called this function.
    ///
    /// # Errors
    /// If a rank is lost, or ranks are in different operations.
    pub fn barrier(&self, what: &str) -> Result<(), RanksError> {
        let _operation = self.operation();
        self.gather_within(what, &[])?;
        self.broadcast_within(what, &[]).map(|_| ())
    }

    /// Compares name-value pairs with rank 0's.
    ///
    /// # Errors
    /// On every rank, if a value differs; the message has rank, host, name and both values. Also if
    /// a rank is lost.
    pub fn agree(&self, facts: &[(&str, String)]) -> Result<(), RanksError> {
        let what = "the comparison of the ranks' settings";
        let _operation = self.operation();
        // Vectors of strings can always be serialized.
        let gathered = self.gather_within(what, &postcard::to_stdvec(facts).unwrap_or_default())?;
        let all: Vec<Facts> =
            gathered.iter().map(|facts| postcard::from_bytes(facts).unwrap_or_default()).collect();
        let verdict = self.broadcast_within(what, self.verdict(&all).as_bytes())?;
        if verdict.is_empty() {
            return Ok(());
        }
        Err(RanksError::Differs(String::from_utf8_lossy(&verdict).into_owned()))
    }

    /// A message about the first difference from rank 0's values; empty if there is none.
    fn verdict(&self, all: &[Facts]) -> String {
        let Some((own, others)) = all.split_first() else { return String::new() };
        let find = |facts: &Facts, name: &str| {
            facts.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        for (member, other) in self.members().iter().skip(1).zip(others) {
            for (name, _) in own.iter().chain(other) {
                let [mine, theirs] = [own, other].map(|facts| find(facts, name));
                if mine != theirs {
                    return format!(
                        "rank {} on host {} differs from rank 0 in {name}: {} and {}; start all \
                         ranks with the same",
                        member.rank,
                        member.host,
                        shown(theirs),
                        shown(mine)
                    );
                }
            }
        }
        String::new()
    }

    /// The reason why a [`sum`](Self::sum) failed, if any did.
    pub fn fault(&self) -> Option<String> {
        self.0.fault.get().cloned()
    }

    pub(crate) fn fail(&self, fault: String) {
        self.0.fault.get_or_init(|| fault);
    }

    /// The first rank that was lost, if any.
    pub fn lost(&self) -> Option<Lost> {
        self.0.links.as_ref()?.lost().cloned()
    }

    /// Registers `f`, which is called once when a rank is lost, on a thread of the group; if a rank
    /// is already lost, it is called at once. A later call replaces `f`.
    pub fn on_loss(&self, f: Box<dyn FnOnce(&Lost) + Send>) {
        if let Some(links) = &self.0.links {
            links.on_loss(f);
        }
    }

    /// Leaves the group: normally (`None`), or with an exit code and an error, which the other
    /// ranks report. Waits at most a second until the other ranks have read the message. Afterwards
    /// the group may only be dropped.
    pub fn leave(&self, fault: Option<(u8, &str)>) {
        if let Some(links) = &self.0.links {
            links.leave(fault);
        }
    }

    fn operation(&self) -> impl Drop + '_ {
        self.0.operation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gather_within(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let Some(links) = &self.0.links else { return Ok(vec![mine.to_vec()]) };
        if !self.is_first() {
            links.send(&[0], what, mine)?;
            return Ok(Vec::new());
        }
        let others = (1..self.ranks()).map(|rank| links.receive(rank, what));
        std::iter::once(Ok(mine.to_vec())).chain(others).collect()
    }

    fn broadcast_within(&self, what: &str, from_first: &[u8]) -> Result<Vec<u8>, RanksError> {
        let Some(links) = &self.0.links else { return Ok(from_first.to_vec()) };
        if !self.is_first() {
            return links.receive(0, what);
        }
        let others: Vec<usize> = (1..self.ranks()).collect();
        links.send(&others, what, from_first)?;
        Ok(from_first.to_vec())
    }
}

/// Formats a value for a message.
fn shown(value: Option<String>) -> String {
    let Some(value) = value else { return "none".into() };
    match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("`{}..`", &value[..end]),
        None => format!("`{value}`"),
    }
}
