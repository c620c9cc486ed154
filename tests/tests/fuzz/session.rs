//! Runs a target on a sequence of inputs, and prints the input with which it failed.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::mutate::{Random, mutate};

/// Time limit per input, longer than any input needs even on a busy machine.
const MAX_RUN: Duration = Duration::from_secs(30);
/// Memory limit, higher than all targets together need.
const MAX_RESIDENT_BYTES: usize = 4 << 30;
/// Maximum number of inputs that are kept for further mutation.
const MAX_POOL: usize = 512;

/// The current input, for the watchdog.
#[derive(Default)]
struct Current {
    input: Vec<u8>,
    since: Option<Instant>,
}

/// Runs `target` on the seeds, on the files in `tests/fuzz/NAME`, and on mutations of both,
/// repaired by `fix`. `run` returns the outcome as text: an input with a new outcome is kept for
/// further mutation.
pub(crate) fn fuzz(
    target: &'static str,
    seeds: Vec<Vec<u8>>,
    fix: fn(&mut [u8]),
    mut run: impl FnMut(&[u8]) -> String,
) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(number("ONEGRAPH_FUZZ_SECONDS").unwrap_or(1));
    let mut random = Random::new(number("ONEGRAPH_FUZZ_SEED").unwrap_or(0));
    let current = Arc::new(Mutex::new(Current::default()));
    watch(target, Arc::clone(&current));

    let mut pool: Vec<Vec<u8>> = seeds.into_iter().chain(kept(target)).collect();
    let num_sound = pool.len();
    let (mut outcomes, mut accepted, mut count) = (HashSet::new(), 0_u64, 0_usize);
    let begun = Instant::now();
    while count < num_sound || begun.elapsed() < time {
        let from = match count {
            // First run each input unchanged.
            first if first < num_sound => first,
            // Mutate valid inputs half of the time, since broken ones are rejected early.
            odd if odd % 2 == 1 => random.below(num_sound),
            _ => random.below(pool.len()),
        };
        let mut input = pool[from].clone();
        if count >= num_sound {
            let other = pool[random.below(pool.len())].clone();
            mutate(&mut input, &other, &mut random);
            fix(&mut input);
        }
        {
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            current.input.clone_from(&input);
            current.since = Some(Instant::now());
        }
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(&input))) else {
            panic!("{target}: an input panics: {}", save(target, &input).display());
        };
        count += 1;
        accepted += u64::from(outcome.is_empty());
        // Numbers and names differ between inputs; the kind of error does not.
        let kind: String =
            outcome.chars().filter(|c| c.is_ascii_lowercase() || *c == ' ').take(80).collect();
        if outcomes.insert(kind) && pool.len() < MAX_POOL {
            pool.push(input);
        }
    }
    current.lock().unwrap_or_else(PoisonError::into_inner).since = None;
    println!(
        "fuzz {target}: {count} inputs in {:.0} s, {} kinds of outcome, {accepted} accepted",
        begun.elapsed().as_secs_f64(),
        outcomes.len()
    );
}

/// Inputs that failed once.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(target);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a kept input")).collect()
}

/// Saves the current input and ends the process if the input takes too long or too much memory.
fn watch(target: &'static str, current: Arc<Mutex<Current>>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let current = current.lock().unwrap_or_else(PoisonError::into_inner);
            let hangs = current.since.is_some_and(|since| since.elapsed() > MAX_RUN);
            if hangs || resident_bytes() > MAX_RESIDENT_BYTES {
                let path = save(target, &current.input);
                let fault = if hangs { "hangs" } else { "may take too much memory" };
                eprintln!("{target}: an input {fault}: {}", path.display());
                std::process::exit(101);
            }
        }
    });
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

fn save(target: &str, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("onegraph-fuzz-{target}-{}", input.len()));
    std::fs::write(&path, input).expect("the input is saved");
    path
}
