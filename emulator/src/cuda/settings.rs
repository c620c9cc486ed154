//! Settings: from the environment for all GPUs, or from a test in the same process for the GPU that
//! it adds.

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;

use super::injection::Injections;
use crate::exec::{Counted, Options, Sums};

/// The rule that selects the next stream to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Immediately selects the stream whose next work was enqueued first.
    Eager,
    /// Once the host waits, selects the stream with the most recently enqueued work.
    Late,
    /// Any.
    Random,
}

/// The settings of one GPU.
#[derive(Debug)]
pub(super) struct Settings {
    /// The seed of all random choices.
    pub(super) seed: u64,
    pub(super) schedule: Schedule,
    pub(super) options: Options,
    pub(super) injections: Injections,
    /// An instruction to replace: see `edit`.
    pub(super) edit: Option<String>,
    /// Bytes of memory, at most the model's; default: the model's.
    pub(super) memory_bytes: Option<usize>,
    /// The counted launches, until a test takes them.
    pub(super) counted: Mutex<Vec<Counted>>,
}

impl Settings {
    /// Settings from `DRIVER_SEED` and the related variables.
    ///
    /// Panics with the variable's name if a value is invalid.
    pub(super) fn of_environment() -> Self {
        Self::read(|name| env::var(name).ok())
    }

    /// Splits `words` into its first word, a model, and settings from words such as `SEED=3`.
    pub(super) fn of_words(words: &str) -> (&str, Self) {
        let mut words = words.split_whitespace();
        let model = words.next().unwrap_or_default();
        let pairs: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let key = |name: &str| name.strip_prefix("DRIVER_").and_then(|key| pairs.get(key));
        (model, Self::read(|name| key(name).map(|value| value.to_string())))
    }

    fn read(value: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| value(name).unwrap_or_default();
        let schedule = match text("DRIVER_SCHEDULE").as_str() {
            "eager" => Schedule::Eager,
            "late" => Schedule::Late,
            "random" | "" => Schedule::Random,
            other => panic!("DRIVER_SCHEDULE: {other:?} is not eager, late or random"),
        };
        let sums = match text("DRIVER_SUMS").as_str() {
            // Fasi et al. 2021, PeerJ CS 7:e330; Khattak and Mikaitis 2025, arXiv 2512.07004.
            "a100" => Sums::Cut { group: 8, bits: 1 },
            "h100" => Sums::Cut { group: 16, bits: 2 },
            _ => Sums::Rounded,
        };
        let memory = value("DRIVER_MEMORY").map(|bytes| {
            bytes.parse().unwrap_or_else(|_| panic!("DRIVER_MEMORY: {bytes:?} is not a number"))
        });
        Self {
            seed: text("DRIVER_SEED").parse().unwrap_or(1),
            schedule,
            options: Options {
                sums,
                watch_shared: text("DRIVER_CHECKS") != "0",
                watch_global: text("DRIVER_CHECKS") == "races",
                count: text("DRIVER_COUNT") == "1",
            },
            injections: Injections::of(&text("DRIVER_PLANT")),
            edit: value("DRIVER_EDIT"),
            memory_bytes: memory,
            counted: Mutex::default(),
        }
    }
}
