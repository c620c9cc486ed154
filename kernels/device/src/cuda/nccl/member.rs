//! A communicator that one thread can leave while another is in an NCCL call.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::Duration;

use super::library::{Library, Raw};
use crate::DeviceError;

/// Maximum time to wait for another thread's NCCL call before leaving the group, and for the leave
/// itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// A communicator; null once it is released.
#[derive(Debug)]
pub(super) struct Handle(Raw);

// SAFETY: a communicator belongs to no thread; the mutex around it serializes access.
unsafe impl Send for Handle {}

/// A communicator that any thread may leave, even while another is in an NCCL call.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) library: &'static Library,
    handle: Mutex<Handle>,
    /// Set before the communicator is released, which may take a while.
    has_left: AtomicBool,
}

impl Member {
    pub(super) fn new(library: &'static Library, raw: Raw) -> Self {
        Self { library, handle: Mutex::new(Handle(raw)), has_left: AtomicBool::new(false) }
    }

    /// Returns the error of an earlier all-reduce, if there is one; `Ok` while another thread is in
    /// an NCCL call.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if self.has_left.load(Ordering::SeqCst) {
            return Err(left());
        }
        let handle = match self.handle.try_lock() {
            Ok(handle) => handle,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let raw = self.raw(&handle)?;
        let mut fault = 0;
        // SAFETY: the communicator is alive as long as the lock is held; one number is written.
        let result = unsafe { (self.library.async_error)(raw, &mut fault) };
        let call = || "all-reduce".to_string();
        self.library.check(result, raw, call)?;
        self.library.check(fault, raw, call)
    }

    /// Makes later calls fail. True for the first caller, which must then leave the group.
    pub(super) fn begin_to_leave(&self) -> bool {
        !self.has_left.swap(true, Ordering::SeqCst)
    }

    /// Releases the communicator, once, on a separate thread that calls `prepare` first. The
    /// calling thread waits at most [`PATIENCE`] for the separate one.
    pub(super) fn leave(
        &self,
        prepare: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Driver { call: LEAVING.into(), reason };
        let handle = self.take().ok_or_else(|| fault("another thread is calling NCCL".into()))?;
        let (library, (sender, receiver)) = (self.library, mpsc::channel());
        let give_up = move || {
            // Captures the whole struct, which is `Send`, not only the pointer.
            let handle = handle;
            let ended = prepare().and_then(|()| {
                // SAFETY: the handle was taken, so it is released once, and no other thread is
                // using it.
                let result = unsafe { (library.abort)(handle.0) };
                library.check(result, ptr::null_mut(), || LEAVING.into())
            });
            drop(sender.send(ended));
        };
        let spawned = thread::Builder::new().name("nccl abort".into()).spawn(give_up);
        spawned.map_err(|e| fault(e.to_string()))?;
        let seconds = PATIENCE.as_secs_f32();
        receiver
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err(fault(format!("NCCL did not return within {seconds} s"))))
    }

    /// Takes the communicator, unless another thread's NCCL call with it takes longer than
    /// [`PATIENCE`].
    fn take(&self) -> Option<Handle> {
        const LOOKS: u32 = 100;
        for _ in 0..LOOKS {
            let mut handle = match self.handle.try_lock() {
                Ok(handle) => handle,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    thread::sleep(PATIENCE / LOOKS);
                    continue;
                }
            };
            return Some(std::mem::replace(&mut *handle, Handle(ptr::null_mut())));
        }
        None
    }

    pub(super) fn raw(&self, handle: &Handle) -> Result<Raw, DeviceError> {
        if handle.0.is_null() { Err(left()) } else { Ok(handle.0) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LEAVING: &str = "leaving the group of GPUs";

/// The error of a call after the group was left.
fn left() -> DeviceError {
    let call = "all-reduce".to_string();
    DeviceError::Driver { call, reason: "this rank has left the group of GPUs".into() }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int, c_void};
    use std::sync::Arc;

    use cudarc::driver::sys;

    use super::super::library::{OLDEST, UniqueId};
    use super::super::tests::message;
    use super::*;

    /// An abort that does not return, like NCCL's while a graph contains an all-reduce.
    extern "C" fn never(_: Raw) -> c_int {
        loop {
            thread::park();
        }
    }

    extern "C" fn at_once(_: Raw) -> c_int {
        0
    }

    extern "C" fn no_fault(_: Raw, fault: *mut c_int) -> c_int {
        // SAFETY: the caller passes a valid pointer to one number.
        unsafe { *fault = 0 };
        0
    }

    /// A member whose library has this abort function; the tests never call the functions named
    /// `unused_*`.
    fn member(abort: extern "C" fn(Raw) -> c_int) -> Arc<Member> {
        extern "C" fn unused_id(_: *mut UniqueId) -> c_int {
            1
        }
        extern "C" fn unused_init(_: *mut Raw, _: c_int, _: UniqueId, _: c_int) -> c_int {
            1
        }
        extern "C" fn unused_sum(
            _: *const c_void,
            _: *mut c_void,
            _: usize,
            _: c_int,
            _: c_int,
            _: Raw,
            _: sys::CUstream,
        ) -> c_int {
            1
        }
        extern "C" fn no_text(_: c_int) -> *const c_char {
            ptr::null()
        }
        extern "C" fn no_detail(_: Raw) -> *const c_char {
            ptr::null()
        }
        // SAFETY: any installed library will do, since none of its functions is called.
        let some = unsafe { libloading::Library::new("libc.so.6") }.expect("libc");
        let library = Box::leak(Box::new(Library {
            version: OLDEST,
            get_unique_id: unused_id,
            init_rank: unused_init,
            all_reduce: unused_sum,
            async_error: no_fault,
            abort,
            error_string: no_text,
            last_error: no_detail,
            _library: some,
        }));
        Arc::new(Member::new(library, ptr::without_provenance_mut(16)))
    }

    #[test]
    fn leaving_nccl_group_times_out_if_nccl_hangs() {
        let member = member(never);
        assert_eq!(member.check(), Ok(()));
        let (sender, receiver) = mpsc::channel();
        let leaver = member.clone();
        assert!(member.begin_to_leave() && !member.begin_to_leave(), "only once");
        thread::spawn(move || sender.send(leaver.leave(|| Ok(()))));
        // The training thread gets the error at once, while NCCL's abort still waits.
        assert_eq!(member.check(), Err(left()));
        let ended = receiver.recv_timeout(60 * PATIENCE).expect("it returns");
        assert!(message(&ended.expect_err("still inside")).contains("did not return within 1 s"));
    }

    #[test]
    fn check_and_leave_return_while_another_thread_is_in_nccl() {
        let member = member(at_once);
        let inside = member.lock();
        assert_eq!(member.check(), Ok(()));
        let leaver = member.clone();
        let ended = thread::spawn(move || leaver.leave(|| Ok(()))).join().expect("no panic");
        assert!(message(&ended.expect_err("it is inside")).contains("is calling NCCL"));
        drop(inside);
    }

    #[test]
    fn calls_after_leaving_nccl_group_fail() {
        let member = member(at_once);
        assert_eq!(member.leave(|| Ok(())), Ok(()));
        assert_eq!(member.raw(&member.lock()), Err(left()));
        assert_eq!(member.check(), Err(left()));
    }
}
