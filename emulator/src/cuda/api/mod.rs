//! The functions of the C interface; NVIDIA's documentation describes them.
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

/// The cause of error `code`, if it is this thread's last error and the cause is known.
fn why(code: i32) -> Option<String> {
    let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
    last.filter(|(of, _)| *of == code).and_then(|(_, why)| why)
}

/// Functions that may be called before `cuInit`.
const ALWAYS: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName"];

/// Output parameter: a pointer to the result in C.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    pub(super) fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(misuse(INVALID_VALUE, "the pointer for a result is null"));
        }
        // SAFETY: the C caller passes a pointer that is valid for a write, as the function's
        // documentation requires.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// True if the pointer is aligned to this many bytes.
    fn is_aligned_to(&self, bytes: usize) -> bool {
        self.0.addr().is_multiple_of(bytes)
    }
}

/// Defines functions of the C interface. The body returns an [`Outcome`], and runs only if no
/// failure is injected. With `in NAME`, the body has the current context as `NAME`; the function
/// fails if the context has failed.
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(in $context:ident)?
        $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers must be valid as NVIDIA's documentation of the function requires.
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

/// Performs a call; returns its error code.
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
        // Fails only on a thread that is exiting, which needs no text.
        let _ = LAST.try_with(|last| last.replace(Some((code, why))));
    }
    report::trace(function, code);
    code
}

/// If the injected error is sticky, makes all later calls fail too.
fn inject_into_context(code: i32) {
    if is_sticky(code)
        && let Ok(context) = lock().context()
    {
        context.fail(code);
        super::state::changed();
    }
}
