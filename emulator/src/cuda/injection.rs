//! Failures injected by a test: `DRIVER_PLANT`.
//!
//! The value is a comma-separated list. `cuMemAlloc_v2:3=2`: the third call of `cuMemAlloc_v2`
//! returns error 2. `hang:NAME:2`: the second execution of kernel NAME never ends. `lost:12`: after
//! 12 executed kernels the device is lost, with error 719, like most hardware errors (Xid). A
//! program cannot distinguish a lost device from a kernel crash, and must exit in both cases.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The failures of one GPU, or of a process.
#[derive(Debug, Default)]
pub(super) struct Injections {
    /// Function, number of the call, error code.
    calls: Vec<(String, u64, i32)>,
    /// Kernel, number of the execution.
    hangs: Vec<(String, u64)>,
    /// Number of kernels before the device is lost.
    lost: Option<u64>,
    counts: Mutex<BTreeMap<String, u64>>,
}

/// The outcome of a kernel execution.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs.
    Runs,
    /// It never ends.
    Hangs,
    /// The device is lost.
    Lost,
}

/// The error injected into this call of a function, if any.
pub(super) fn of_call(function: &str) -> Option<i32> {
    injections().of_call(function)
}

fn injections() -> &'static Injections {
    static INJECTIONS: OnceLock<Injections> = OnceLock::new();
    INJECTIONS.get_or_init(|| Injections::of(&env::var("DRIVER_PLANT").unwrap_or_default()))
}

/// Parses the list; returns the invalid entry on failure.
fn parse(text: &str) -> Result<Injections, String> {
    let mut injections = Injections::default();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let wrong = || entry.to_string();
        let (kind, rest) = entry.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        match kind {
            "lost" => injections.lost = Some(number(rest)?),
            "hang" => {
                let (kernel, nth) = rest.rsplit_once(':').ok_or_else(wrong)?;
                injections.hangs.push((kernel.into(), number(nth)?));
            }
            function => {
                let (nth, code) = rest.split_once('=').ok_or_else(wrong)?;
                let code = code.parse().map_err(|_| wrong())?;
                injections.calls.push((function.into(), number(nth)?, code));
            }
        }
    }
    Ok(injections)
}

impl Injections {
    /// Panics with the first invalid entry.
    pub(super) fn of(text: &str) -> Self {
        parse(text).unwrap_or_else(|entry| panic!("DRIVER_PLANT: {entry:?} is invalid"))
    }

    fn of_call(&self, function: &str) -> Option<i32> {
        let mut named = self.calls.iter().filter(|(name, ..)| name == function).peekable();
        named.peek()?;
        let count = self.count(function);
        named.find(|(_, nth, _)| *nth == count).map(|(.., code)| *code)
    }

    /// The outcome of this execution of a kernel.
    pub(super) fn of_kernel(&self, kernel: &str) -> Fate {
        if let Some(before) = self.lost
            && self.count("lost:") > before
        {
            return Fate::Lost;
        }
        let mut named = self.hangs.iter().filter(|(name, _)| name == kernel).peekable();
        if named.peek().is_none() {
            return Fate::Runs;
        }
        let count = self.count(&format!("hang:{kernel}"));
        if named.any(|(_, nth)| *nth == count) { Fate::Hangs } else { Fate::Runs }
    }

    /// Increments a counter.
    fn count(&self, what: &str) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(what.into()).or_default();
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_injection_entry_is_reported() {
        for wrong in ["cuA", "cuA:2", "cuA:x=1", "hang:k", "lost:-1"] {
            assert_eq!(parse(&format!("lost:1,{wrong}")).err().as_deref(), Some(wrong));
        }
    }
}
