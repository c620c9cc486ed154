//! Process exit: waits for unfinished work, and reports leaks.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::report;
use crate::cuda::state::{State, changed, try_lock};
use crate::exec::coverage;

/// Maximum time that process exit waits for unfinished work. If it elapses, leaks are not reported.
const MAX_WAIT: Duration = Duration::from_millis(300);

// SAFETY: the declaration matches ISO C's.
unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Registers the report of leaks at process exit.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `at_exit` is available until this library is unloaded, and the C library calls it
        // before unloading.
        let refused = unsafe { atexit(at_exit) };
        assert!(refused == 0, "atexit failed");
    });
}

extern "C" fn at_exit() {
    let start = Instant::now();
    while start.elapsed() < MAX_WAIT {
        if let Some(state) = try_lock()
            && is_idle(&state)
        {
            if let Err(e) = coverage::write() {
                eprintln!("DRIVER_COVERAGE: {e}");
            }
            let healthy = state.contexts.values().filter(|context| context.failed.is_none());
            for context in healthy {
                context.leaks().iter().for_each(|leak| report::finding(leak));
            }
            return;
        }
        changed();
        thread::sleep(Duration::from_millis(2));
    }
}

fn is_idle(state: &State) -> bool {
    let mut contexts = state.contexts.values();
    contexts.all(|context| context.failed.is_some() || context.is_done(None, u64::MAX))
}
