//! All-reduces over the ranks of a run, by NVIDIA's NCCL.
#![allow(unsafe_code)]

mod library;
mod member;

use std::ffi::{OsString, c_int, c_void};
use std::ptr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::context::Context;
use super::memory::Allocation;
use super::stream::Stream;
use crate::{AllReduce, DType, DeviceError, Priority, Ranks};

use library::{FLOAT, HALF, Library, SUM, UniqueId, library, major_minor};
use member::Member;

/// The NCCL variable for all-reduces in the switch (NVLink SHARP).
const NVLS: &str = "NCCL_NVLS_ENABLE";
/// The variable of NCCL (2.22 and newer) that postpones an algorithm's connections until its first
/// use, which would be during a capture.
const LATE_CONNECTIONS: &str = "NCCL_RUNTIME_CONNECT";

/// Options for joining a group of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclOptions {
    /// Lets NCCL reduce in the switch (NVLink SHARP).
    pub nvls: bool,
    /// Time limit for all ranks to join.
    pub timeout: Duration,
}

/// A new identifier for a group of ranks: one rank creates it, and all ranks pass it to
/// [`super::CudaDevice::join`].
///
/// # Errors
/// [`DeviceError::Absent`] in one line if NCCL is missing or too old; NCCL's own errors.
pub fn nccl_id() -> Result<[u8; 128], DeviceError> {
    let library = library()?;
    let mut id = UniqueId([0; 128]);
    // SAFETY: the function writes one identifier, to memory of that size.
    let result = unsafe { (library.get_unique_id)(&mut id) };
    library.check(result, ptr::null_mut(), || "opening a group of GPUs".into())?;
    Ok(id.0)
}

/// Major and minor version of the installed NCCL.
///
/// # Errors
/// [`DeviceError::Absent`] with a one-line message if it is missing or too old.
pub fn nccl_version() -> Result<(u32, u32), DeviceError> {
    Ok(major_minor(library()?.version))
}

/// Environment variables that a process needs before it joins a group. NCCL reads them once, so the
/// parent process sets them, or the process itself before it starts a thread.
pub fn nccl_variables(nvls: bool) -> Vec<(&'static str, &'static str)> {
    let switch = (!nvls).then_some((NVLS, "0"));
    std::iter::once((LATE_CONNECTIONS, "0")).chain(switch).collect()
}

/// Checks the variables before NCCL reads them. Any value of [`NVLS`] that the user has set is
/// accepted. Delayed connections are rejected: they would begin during a capture, where CUDA does
/// not allow them.
fn check_variables(
    nvls: bool,
    value_of: impl Fn(&str) -> Option<OsString>,
) -> Result<(), DeviceError> {
    let refused = |reason| DeviceError::Driver { call: "joining a group of GPUs".into(), reason };
    for (name, value) in nccl_variables(nvls) {
        match value_of(name) {
            None => {
                let mend = format!("start each rank with {name}={value}");
                return Err(refused(format!("{name} is not set; {mend}")));
            }
            Some(set) if name == LATE_CONNECTIONS && set != value => {
                let set = set.display();
                return Err(refused(format!("{name} is {set}, and must be {value}, or unset")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// This rank's communicator of a group.
#[derive(Debug)]
pub(super) struct Communicator {
    pub(super) ranks: Ranks,
    member: Member,
    context: Arc<Context>,
}

impl Communicator {
    /// Joins the group, and runs a first all-reduce.
    pub(super) fn join(
        context: &Arc<Context>,
        ranks: Ranks,
        id: &[u8; 128],
        options: &NcclOptions,
    ) -> Result<Self, DeviceError> {
        let library = library()?;
        check_variables(options.nvls, |name| std::env::var_os(name))?;
        let (context, id) = (context.clone(), UniqueId(*id));
        let (sender, receiver) = mpsc::channel();
        // Joins on a separate thread, as NCCL waits for the other ranks without a time limit. A
        // thread that waits forever ends with the process; if the ranks join too late, its result
        // is dropped.
        let start = move || drop(sender.send(Self::start(library, context, ranks, id)));
        let call = || call(ranks);
        let spawned = thread::Builder::new().name("nccl join".into()).spawn(start);
        spawned.map_err(|e| DeviceError::Driver { call: call(), reason: e.to_string() })?;
        receiver.recv_timeout(options.timeout).unwrap_or_else(|_| {
            let seconds = options.timeout.as_secs();
            let reason = format!("not all ranks joined within {seconds} s");
            Err(DeviceError::Driver { call: call(), reason })
        })
    }

    fn start(
        library: &'static Library,
        context: Arc<Context>,
        ranks: Ranks,
        id: UniqueId,
    ) -> Result<Self, DeviceError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the GPU's context is current on this thread, and NCCL uses this context's GPU; it
        // writes one handle.
        let result =
            unsafe { (library.init_rank)(&mut raw, ranks.count as c_int, id, ranks.rank as c_int) };
        library.check(result, ptr::null_mut(), || call(ranks))?;
        let communicator = Self { ranks, member: Member::new(library, raw), context };
        // The first all-reduce also initialises NCCL, which should not happen during a capture.
        let context = &communicator.context;
        let stream = Stream::new(context, Priority::Normal)?;
        let [from, to] = [Allocation::new(context, 4)?, Allocation::new(context, 4)?];
        let sum = AllReduce { to: to.ptr, from: from.ptr, len: 1, dtype: DType::F32 };
        communicator.all_reduce(&stream, &sum)?;
        stream.download(to.ptr, &mut [0; 4])?;
        communicator.check()?;
        Ok(communicator)
    }

    /// Enqueues an all-reduce. The caller has checked that both ranges are inside allocations.
    pub(super) fn all_reduce(&self, stream: &Stream, sum: &AllReduce) -> Result<(), DeviceError> {
        let call = || format!("summing {} elements over {} ranks", sum.len, self.ranks.count);
        let dtype = match sum.dtype {
            DType::F16 => HALF,
            DType::F32 => FLOAT,
            other => {
                let reason = format!("{other:?} is not supported");
                return Err(DeviceError::Driver { call: call(), reason });
            }
        };
        if sum.len == 0 {
            return Ok(());
        }
        let handle = self.member.lock();
        let raw = self.member.raw(&handle)?;
        self.context.bind()?;
        let (from, to) = (sum.from as *const c_void, sum.to as *mut c_void);
        let library = self.member.library;
        // SAFETY: communicator and stream are alive, and belong to the current context. Both ranges
        // are inside allocations, which are released only once the device's work is done; the lock
        // keeps other threads from releasing the communicator meanwhile.
        let result =
            unsafe { (library.all_reduce)(from, to, sum.len, dtype, SUM, raw, stream.raw()) };
        library.check(result, raw, call)
    }

    /// Returns the error of an earlier all-reduce, if it is already known. Never waits.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        self.member.check()
    }

    /// Ends the all-reduces that wait for other ranks, with undefined results, and leaves the
    /// group.
    ///
    /// `graphs` returns the graphs that contain all-reduces, which are dropped: NCCL's abort waits
    /// until they are destroyed. The driver destroys a running graph once it has ended, which the
    /// abort causes.
    pub(super) fn abort<G: Send + 'static>(
        &self,
        graphs: impl FnOnce() -> G,
    ) -> Result<(), DeviceError> {
        if !self.member.begin_to_leave() {
            return Ok(());
        }
        let (context, graphs) = (self.context.clone(), graphs());
        self.member.leave(move || {
            drop(graphs);
            context.bind()
        })
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Aborts instead of calling ncclCommDestroy, which may wait for the other ranks. The device
        // has dropped its graphs and waited for its work; an error can no longer be reported.
        let _ = self.abort(|| ());
    }
}

fn call(Ranks { rank, count }: Ranks) -> String {
    format!("joining a group of GPUs as rank {rank} of {count}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one-line error message for users.
    pub(super) fn message(error: &DeviceError) -> String {
        let sentence = error.to_string();
        assert!(!sentence.contains('\n'), "{sentence}");
        sentence
    }

    #[test]
    fn missing_or_wrong_nccl_variables_are_rejected() {
        let set = |names: &'static [&str], value: &'static str| {
            move |name: &str| names.contains(&name).then(|| value.into())
        };
        let both: &[&str] = &[LATE_CONNECTIONS, NVLS];
        let refusal = |nvls, names, value| {
            message(&check_variables(nvls, set(names, value)).expect_err("a refusal"))
        };
        let said = refusal(true, &[], "0");
        assert!(said.ends_with("start each rank with NCCL_RUNTIME_CONNECT=0"), "{said}");
        assert_eq!(check_variables(true, set(&[LATE_CONNECTIONS], "0")), Ok(()));
        let said = refusal(false, &[LATE_CONNECTIONS], "0");
        assert!(said.ends_with("start each rank with NCCL_NVLS_ENABLE=0"), "{said}");
        assert_eq!(check_variables(false, set(both, "0")), Ok(()));
        let said = refusal(true, both, "1");
        assert!(said.ends_with("NCCL_RUNTIME_CONNECT is 1, and must be 0, or unset"), "{said}");
    }
}
