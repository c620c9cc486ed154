//! Faults that tests plant through `NCCL_TEST_PLANT`.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::{Failure, failure, report};

const VARIABLE: &str = "NCCL_TEST_PLANT";
/// The functions that return a code.
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
    /// No end until the group is left, or none at all.
    Hang,
    /// An error that the group reports later.
    Error,
    /// The process dies.
    Die,
    /// The function returns this.
    Code(c_int),
}

#[derive(Debug)]
struct Plant {
    /// The only rank that it affects.
    rank: Option<c_int>,
    place: String,
    /// The one pass of this place, from 1, at which it occurs; without it, each pass.
    time: Option<u64>,
    fault: Fault,
    passed: AtomicU64,
}

/// The fault planted for this rank at this place.
pub(crate) fn planted(place: &str, rank: Option<c_int>) -> Option<Fault> {
    static PLANTS: OnceLock<Vec<Plant>> = OnceLock::new();
    let plants = PLANTS.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let known = entries.filter_map(|entry| {
            let plant = parse(entry);
            if plant.is_none() {
                report(VARIABLE, &format!("`{entry}` plants nothing"));
            }
            plant
        });
        known.collect()
    });
    find(plants, place, rank)
}

/// The failure of a function that is planted to fail.
pub(crate) fn check(function: &str, rank: Option<c_int>) -> Result<(), Failure> {
    match planted(function, rank) {
        Some(Fault::Code(code)) => Err(failure(code, format!("{function} fails as planted"))),
        _ => Ok(()),
    }
}

fn find(plants: &[Plant], place: &str, rank: Option<c_int>) -> Option<Fault> {
    let here =
        |plant: &&Plant| plant.place == place && plant.rank.is_none_or(|only| Some(only) == rank);
    // Each one counts, so all are looked at.
    let hit = plants.iter().filter(here).filter(|plant| {
        let passed = plant.passed.fetch_add(1, Ordering::SeqCst) + 1;
        plant.time.is_none_or(|time| time == passed)
    });
    hit.map(|plant| plant.fault).reduce(|first, _| first)
}

fn parse(entry: &str) -> Option<Plant> {
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
    Some(Plant { rank, place: place.into(), time, fault, passed: AtomicU64::new(0) })
}
