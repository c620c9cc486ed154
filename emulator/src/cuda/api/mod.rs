//! The functions of the C interface. NVIDIA's documentation describes each.
#![allow(unsafe_code)]

mod device;
mod event;
mod exit;
mod graph;
mod hook;
mod in_process;
mod memory;
mod module;
mod nvml;
mod stream;
mod tensor;

use std::cell::RefCell;

use super::errors::{INVALID_VALUE, NOT_INITIALIZED, Outcome, is_sticky, misuse};
use super::injection;
use super::report;
use super::state::lock;

thread_local! {
    /// The last error of this thread, and its details.
    static LAST: RefCell<Option<(i32, Option<String>)>> = const { RefCell::new(None) };
}

/// The cause, if this was the last error of this thread and the cause is known.
fn why(code: i32) -> Option<String> {
    let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
    last.filter(|(of, _)| *of == code).and_then(|(_, why)| why)
}

/// Functions that can be called before `cuInit`.
const ALWAYS: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName"];

/// Output parameter: a pointer to the result in C.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    pub(super) fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(misuse(INVALID_VALUE, "there is no place for a result"));
        }
        // SAFETY: the C caller provides a place for one value, by the function's documentation.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// True if the pointer is aligned to this many bytes.
    fn is_aligned_to(&self, bytes: usize) -> bool {
        self.0.addr().is_multiple_of(bytes)
    }
}

/// Defines functions of the C interface. The body returns an [`Outcome`]; an injected failure is
/// checked first. With `in`, the function gets the current context, which has not failed.
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(in $context:ident)?
        $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in the documentation of the function: pointers must be valid for its use of them.
        // SAFETY: no other function of the process has this name, except the real driver's, which
        // this library replaces.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            $crate::cuda::api::call(stringify!($name), || {
                $(
                    let mut state = $crate::cuda::state::lock();
                    let $context = state.healthy()?;
                )?
                $body
            })
        }
    )*};
}
use api;

/// Performs a call: its error code.
fn call(function: &str, body: impl FnOnce() -> Outcome) -> i32 {
    let outcome = match injection::of_call(function) {
        Some(code) => {
            inject_into_context(code);
            Err(code.into())
        }
        None if ALWAYS.contains(&function) || lock().is_initialized => body(),
        None => Err(misuse(NOT_INITIALIZED, "before cuInit")),
    };
    let code = outcome.as_ref().map_or_else(|failure| failure.code, |()| 0);
    if let Err(failure) = outcome {
        report::misuse_in(function, &failure);
        let why = failure.misuse.or_else(|| lock().context().ok()?.why.clone());
        // A thread that is exiting needs no text.
        let _ = LAST.try_with(|last| last.replace(Some((code, why))));
    }
    report::trace(function, code);
    code
}

/// Makes later calls fail too, if the error is sticky.
fn inject_into_context(code: i32) {
    if is_sticky(code)
        && let Ok(context) = lock().context()
    {
        context.fail(code);
        super::state::changed();
    }
}
