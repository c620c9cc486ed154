//! Faults that tests inject with `NCCL_TEST_PLANT`.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::{Failure, failure, report};

const VARIABLE: &str = "NCCL_TEST_PLANT";
/// The functions that can return an injected code.
const FUNCTIONS: [&str; 6] = [
    "ncclGetVersion",
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclAllReduce",
    "ncclCommGetAsyncError",
    "ncclCommAbort",
];

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The operation does not end until the rank leaves the group, or never ends.
    Hang,
    /// The operation hangs, and the communicator reports an error.
    Error,
    /// The process aborts.
    Die,
    /// The function returns this code.
    Code(c_int),
}

#[derive(Debug)]
struct Injection {
    /// The only rank that the fault affects; `None`: all ranks.
    rank: Option<c_int>,
    place: String,
    /// The 1-based occurrence at which the fault applies; `None`: every occurrence.
    time: Option<u64>,
    fault: Fault,
    passed: AtomicU64,
}

/// The fault injected for this rank into `place`: a function, or `init`, `sum` or `abort`.
pub(crate) fn injected(place: &str, rank: Option<c_int>) -> Option<Fault> {
    static INJECTIONS: OnceLock<Vec<Injection>> = OnceLock::new();
    let injections = INJECTIONS.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let known = entries.filter_map(|entry| {
            let plant = parse(entry);
            if plant.is_none() {
                report(VARIABLE, &format!("`{entry}` is not a valid injection"));
            }
            plant
        });
        known.collect()
    });
    find(injections, place, rank)
}

/// The injected failure of a function, if any.
pub(crate) fn check(function: &str, rank: Option<c_int>) -> Result<(), Failure> {
    match injected(function, rank) {
        Some(Fault::Code(code)) => Err(failure(code, format!("injected failure of {function}"))),
        _ => Ok(()),
    }
}

fn find(injections: &[Injection], place: &str, rank: Option<c_int>) -> Option<Fault> {
    let here = |plant: &&Injection| {
        plant.place == place && plant.rank.is_none_or(|only| Some(only) == rank)
    };
    // Every injection must count this occurrence, so the iteration has no early exit.
    let hit = injections.iter().filter(here).filter(|plant| {
        let passed = plant.passed.fetch_add(1, Ordering::SeqCst) + 1;
        plant.time.is_none_or(|time| time == passed)
    });
    hit.map(|plant| plant.fault).reduce(|first, _| first)
}

fn parse(entry: &str) -> Option<Injection> {
    let (rank, entry) = match entry.split_once('/') {
        Some((rank, entry)) => (Some(rank.parse().ok()?), entry),
        None => (None, entry),
    };
    let (place, rest) = entry.split_once(':')?;
    let (time, fault) = match (place, rest) {
        ("init", "never") | ("abort", "hang") => (None, Fault::Hang),
        _ => {
            let (time, fault) = rest.split_once('=')?;
            let fault = match (place, fault) {
                ("sum", "hang") => Fault::Hang,
                ("sum", "error") => Fault::Error,
                ("sum", "die") => Fault::Die,
                (function, code) if FUNCTIONS.contains(&function) => {
                    Fault::Code(code.parse().ok()?)
                }
                _ => return None,
            };
            (Some(time.parse().ok().filter(|time| *time > 0)?), fault)
        }
    };
    Some(Injection { rank, place: place.into(), time, fault, passed: AtomicU64::new(0) })
}
