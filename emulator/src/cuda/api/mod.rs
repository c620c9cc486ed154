//! The functions, as C has them. NVIDIA's documentation says what each does.
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
use super::plant;
use super::report;
use super::state::lock;

thread_local! {
    /// The last error of this thread, and what happened.
    static LAST: RefCell<Option<(i32, Option<String>)>> = const { RefCell::new(None) };
}

/// The cause, if this was the last error of this thread and the driver knows.
fn why(code: i32) -> Option<String> {
    let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
    last.filter(|(of, _)| *of == code).and_then(|(_, why)| why)
}

/// Functions that need no `cuInit`.
const ALWAYS: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName"];

/// Where a function writes a result: what C passes as a pointer.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result.
    pub(super) fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(misuse(INVALID_VALUE, "there is no place for a result"));
        }
        // SAFETY: C's caller gives a place for one value, by the function's documentation.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// True if the place is at a multiple of so many bytes.
    fn is_aligned_to(&self, bytes: usize) -> bool {
        self.0.addr().is_multiple_of(bytes)
    }
}

/// Makes functions of the C interface. The body gives an [`Outcome`]; a planted failure comes
/// before it. Behind `in`, the function takes the context that is current, which has not failed.
macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(in $context:ident)?
        $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the documentation of the function says: pointers lead to what it asks for.
        // SAFETY: no other function of the process has this name, but the driver's own that this
        // library is loaded in place of.
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

/// Makes a call: its error number.
fn call(function: &str, body: impl FnOnce() -> Outcome) -> i32 {
    let outcome = match plant::of_call(function) {
        Some(code) => {
            plant_in_context(code);
            Err(code.into())
        }
        None if ALWAYS.contains(&function) || lock().is_initialized => body(),
        None => Err(misuse(NOT_INITIALIZED, "before cuInit")),
    };
    let code = outcome.as_ref().map_or_else(|failure| failure.code, |()| 0);
    if let Err(failure) = outcome {
        report::misuse_in(function, &failure);
        let why = failure.misuse.or_else(|| lock().context().ok()?.why.clone());
        // A thread that is ending asks for no text.
        let _ = LAST.try_with(|last| last.replace(Some((code, why))));
    }
    report::trace(function, code);
    code
}

/// Lets later calls fail too, if the error lasts.
fn plant_in_context(code: i32) {
    if is_sticky(code)
        && let Ok(context) = lock().context()
    {
        context.fail(code);
        super::state::changed();
    }
}
