//! The ranks of a run as one group: the messages between their hosts, and how the loss of a rank
//! ends the others.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::control::Control;
use crate::error::RanksError;
use crate::frame::{Frame, MAX_PIECE_BYTES};
use crate::host::Member;
use crate::join;
use crate::launch::Launch;
use crate::lost::Lost;
use crate::options::JoinOptions;

/// The most characters of a value that [`Group::agree`] shows.
const MAX_SHOWN: usize = 60;

/// The control connection of this rank: a star of TCP connections around rank 0.
///
/// All ranks call [`broadcast`](Self::broadcast), [`gather`](Self::gather),
/// [`all_gather`](Self::all_gather), [`barrier`](Self::barrier) and [`agree`](Self::agree) in the
/// same order, from one thread at a time. Such a call has no time limit of its own: it waits as
/// long as all ranks give signs of life, and ends with [`RanksError::Lost`] when one does not.
///
/// If the last handle is dropped without [`leave`](Self::leave), the others see this rank as lost.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    rank: usize,
    members: Vec<Member>,
    /// None if the group has one rank.
    control: Option<Arc<Control>>,
    /// Held during one operation of all ranks.
    operation: Mutex<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(control) = &self.control {
            control.close();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank(), self.ranks())
    }
}

impl Group {
    /// A group of this process only.
    pub fn alone() -> Self {
        let members = vec![Member::this(0, 0)];
        Self(Arc::new(Inner { rank: 0, members, control: None, operation: Mutex::new(()) }))
    }

    /// Meets the other ranks of the run; returns when all are there.
    ///
    /// # Errors
    /// In one sentence: no usable address or token, the port is taken, this rank was refused, or
    /// the ranks that did not come in time.
    pub fn join(launch: &Launch, options: JoinOptions) -> Result<Self, RanksError> {
        if launch.ranks == 1 {
            return Ok(Self::alone());
        }
        let joined = join::join(launch, &options)?;
        let members = joined.members.clone();
        let control = Some(Control::start(launch.rank, joined, options.timeout)?);
        Ok(Self(Arc::new(Inner { rank: launch.rank, members, control, operation: Mutex::new(()) })))
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are.
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

    /// How many hosts the ranks are on.
    pub fn hosts(&self) -> usize {
        let mut hosts: Vec<&str> = self.members().iter().map(|m| m.host_id.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len()
    }

    /// Notes what this rank does, as words that follow "was": "reducing the gradients". The others
    /// hear it with its signs of life.
    pub fn set_doing(&self, step: u64, what: &str) {
        if let Some(control) = &self.0.control {
            control.set_doing(step, what);
        }
    }

    #[cfg(feature = "mpi")]
    /// Runs `wait`, which waits for other ranks by other means; `what` follows the words "waiting
    /// for".
    pub(crate) fn waiting<T>(&self, what: &str, wait: impl FnOnce() -> T) -> T {
        let Some(control) = &self.0.control else { return wait() };
        control.set_waiting(Some(what));
        let result = wait();
        control.set_waiting(None);
        result
    }

    /// Rank 0's bytes, on every rank; `from_first` is ignored on the others.
    ///
    /// # Errors
    /// If a rank is lost, or another is at another operation.
    pub fn broadcast(&self, what: &str, from_first: &[u8]) -> Result<Vec<u8>, RanksError> {
        let _operation = self.operation();
        self.broadcast_within(what, from_first)
    }

    /// The bytes of all ranks, by rank, on rank 0; nothing elsewhere, without waiting.
    ///
    /// # Errors
    /// If a rank is lost, or another is at another operation.
    pub fn gather(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let _operation = self.operation();
        self.gather_within(what, mine)
    }

    /// The bytes of all ranks, by rank, on every rank.
    ///
    /// # Errors
    /// If a rank is lost, or another is at another operation.
    pub fn all_gather(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let _operation = self.operation();
        let gathered = self.gather_within(what, mine)?;
        let together = self.broadcast_within(what, &pack(&gathered))?;
        let parts = unpack(&together).filter(|parts| parts.len() == self.ranks());
        parts.ok_or_else(|| {
            RanksError::Diverged(format!("rank 0 sent something else than {what} of all ranks"))
        })
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// If a rank is lost, or another is at another operation.
    pub fn barrier(&self, what: &str) -> Result<(), RanksError> {
        let _operation = self.operation();
        self.gather_within(what, &[])?;
        self.broadcast_within(what, &[]).map(|_| ())
    }

    /// Compares facts, as name and value, with those of rank 0.
    ///
    /// # Errors
    /// On every rank, if one differs: rank, host, name and both values. If a rank is lost.
    pub fn agree(&self, facts: &[(&str, String)]) -> Result<(), RanksError> {
        let what = "the comparison of what the ranks run";
        let _operation = self.operation();
        let texts = facts.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        let mine = pack(&texts.collect::<Vec<_>>());
        let gathered = self.gather_within(what, &mine)?;
        let verdict = match self.is_first() {
            true => self.verdict(facts, &gathered),
            false => String::new(),
        };
        let verdict = self.broadcast_within(what, verdict.as_bytes())?;
        if verdict.is_empty() {
            return Ok(());
        }
        Err(RanksError::Differs(String::from_utf8_lossy(&verdict).into_owned()))
    }

    /// The first difference from rank 0's facts, as a sentence; empty if there is none.
    fn verdict(&self, facts: &[(&str, String)], gathered: &[Vec<u8>]) -> String {
        for (member, theirs) in self.members().iter().zip(gathered).skip(1) {
            let (rank, host) = (member.rank, &member.host);
            let texts = unpack(theirs).unwrap_or_default();
            let theirs: Vec<(Cow<'_, str>, Cow<'_, str>)> = texts
                .chunks_exact(2)
                .map(|pair| (String::from_utf8_lossy(&pair[0]), String::from_utf8_lossy(&pair[1])))
                .collect();
            let own = facts.iter().map(|(name, value)| (*name, value.as_str()));
            let other = theirs.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
            if let Some((name, value, other)) = difference(own.collect(), other.collect()) {
                return format!(
                    "rank {rank} on host {host} differs from rank 0 in {name}: {} and {}; start \
                     all ranks with the same",
                    shown(other),
                    shown(value)
                );
            }
        }
        String::new()
    }

    /// The first rank that was lost, if one was.
    pub fn lost(&self) -> Option<Lost> {
        self.0.control.as_ref()?.lost().cloned()
    }

    /// Has `f` called once when a rank is lost, from a thread of the group; at once if one is lost
    /// already. A later call replaces `f`.
    pub fn on_loss(&self, f: Box<dyn FnOnce(&Lost) + Send>) {
        if let Some(control) = &self.0.control {
            control.on_loss(f);
        }
    }

    /// Ends this rank's part: in order, or with its exit code and an error, which the others quote.
    /// Waits at most a second until they have read it. Nothing may follow but drop.
    pub fn leave(&self, fault: Option<(u8, &str)>) {
        if let Some(control) = &self.0.control {
            control.leave(fault);
        }
    }

    fn operation(&self) -> impl Drop + '_ {
        self.0.operation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gather_within(&self, what: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let Some(control) = &self.0.control else { return Ok(vec![mine.to_vec()]) };
        if !self.is_first() {
            send(control, 0, what, mine)?;
            return Ok(Vec::new());
        }
        let others = (1..self.ranks()).map(|rank| control.receive(rank, what));
        std::iter::once(Ok(mine.to_vec())).chain(others).collect()
    }

    fn broadcast_within(&self, what: &str, from_first: &[u8]) -> Result<Vec<u8>, RanksError> {
        let Some(control) = &self.0.control else { return Ok(from_first.to_vec()) };
        if !self.is_first() {
            return control.receive(0, what);
        }
        for rank in 1..self.ranks() {
            send(control, rank, what, from_first)?;
        }
        Ok(from_first.to_vec())
    }
}

/// Queues a message of any length, in pieces.
fn send(control: &Control, to: usize, what: &str, bytes: &[u8]) -> Result<(), RanksError> {
    control.check(to, what)?;
    let mut pieces = bytes.chunks(MAX_PIECE_BYTES).peekable();
    loop {
        let bytes = pieces.next().unwrap_or_default().to_vec();
        let last = pieces.peek().is_none();
        control.send(to, &Frame::Piece { what: what.to_owned(), last, bytes });
        if last {
            return Ok(());
        }
    }
}

/// Parts with their lengths before them.
fn pack(parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts.iter().map(AsRef::as_ref) {
        out.extend((part.len() as u64).to_le_bytes());
        out.extend(part);
    }
    out
}

/// None unless they are whole.
fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (part, rest) = rest.split_at_checked(u64::from_le_bytes(*length).try_into().ok()?)?;
        parts.push(part.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(parts)
}

/// The first fact of `own` that `other` lacks or has otherwise, else the first that only `other`
/// has: its name, and the two values.
fn difference<'a>(
    own: Vec<(&'a str, &'a str)>,
    other: Vec<(&'a str, &'a str)>,
) -> Option<(&'a str, Option<&'a str>, Option<&'a str>)> {
    let find = |facts: &[(&'a str, &'a str)], name| {
        facts.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    };
    let names = own.iter().chain(&other).map(|(name, _)| *name);
    let mut both = names.map(|name| (name, find(&own, name), find(&other, name)));
    both.find(|(_, own, other)| own != other)
}

/// A value for a sentence.
fn shown(value: Option<&str>) -> String {
    let Some(value) = value else { return "none".into() };
    match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("`{}..`", &value[..end]),
        None => format!("`{value}`"),
    }
}
