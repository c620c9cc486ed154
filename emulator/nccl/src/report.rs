//! Output for tests: findings in a file, and the message of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const UNHANDLED_CUDA: c_int = 1;
pub(crate) const SYSTEM: c_int = 2;
pub(crate) const INVALID_ARGUMENT: c_int = 4;
pub(crate) const INVALID_USAGE: c_int = 5;
pub(crate) const REMOTE: c_int = 6;

/// An NCCL error with a one-line message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: String,
    /// True for a mistake in the tested program; such failures are added to the report.
    pub(crate) is_misuse: bool,
}

/// A failure that can occur in a correct program.
pub(crate) fn failure(code: c_int, text: impl Into<String>) -> Failure {
    Failure { code, text: text.into(), is_misuse: false }
}

/// A failure that never occurs in a correct program.
pub(crate) fn misuse(code: c_int, text: impl Into<String>) -> Failure {
    Failure { code, text: text.into(), is_misuse: true }
}

/// Writes a finding to stderr, and to the file in `DRIVER_REPORT`.
pub(crate) fn report(place: &str, text: &str) {
    let line = format!("misuse: {place}: {text}\n");
    eprint!("{line}");
    let path = std::env::var_os("DRIVER_REPORT").filter(|path| !path.is_empty());
    let Some(path) = path else { return };
    let file = OpenOptions::new().append(true).create(true).open(path);
    // One write, so that the lines of several processes do not mix.
    if let Err(e) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("DRIVER_REPORT: {e}");
    }
}

static LAST: Mutex<String> = Mutex::new(String::new());

/// Stores the message for `ncclGetLastError`.
pub(crate) fn set_last(text: &str) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = text.replace('\0', " ");
}

/// The last message; valid until this thread's next call.
pub(crate) fn last() -> *const c_char {
    thread_local! {
        static GIVEN: RefCell<CString> = RefCell::default();
    }
    let text = LAST.lock().unwrap_or_else(PoisonError::into_inner).clone();
    GIVEN.with(|given| {
        *given.borrow_mut() = CString::new(text).unwrap_or_default();
        given.borrow().as_ptr()
    })
}
