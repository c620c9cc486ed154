//! Process exit, and the work that is left at that point.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::report;
use crate::cuda::state::{State, changed, try_lock};
use crate::exec::coverage;

/// Timeout for work that is left. A device with more than that was abandoned.
const MAX_WAIT: Duration = Duration::from_millis(300);

// SAFETY: the function of the C library, as ISO C declares it.
unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Reports leaks at the end of the process.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function is available until the library is unloaded, and then the C library
        // calls it too.
        let refused = unsafe { atexit(at_exit) };
        assert!(refused == 0, "the C library calls no function at the end");
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
