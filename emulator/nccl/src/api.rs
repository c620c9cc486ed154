//! The NCCL functions that onegraph calls.
#![allow(unsafe_code, non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{ptr, thread};

use crate::add::Type;
use crate::group::{Group, Sum};
use crate::hook::{Declared, Driver, driver};
use crate::injection::{check, injected};
use crate::rendezvous::{self, UniqueId};
use crate::report::{
    Failure, INVALID_ARGUMENT, INVALID_USAGE, SUCCESS, SYSTEM, UNHANDLED_CUDA, failure, last,
    misuse, report, set_last,
};

/// A communicator handle: a number that is never reused.
pub type Raw = *mut c_void;

const VERSION: c_int = 22907;
/// The first NCCL version that connects ranks at their first all-reduce instead of in
/// `ncclCommInitRank`.
const FIRST_LATE: c_int = 22200;
const FIRST_HANDLE: usize = 0x4e43_434c_0000;
/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: i32 = 999;

type Groups = BTreeMap<usize, Option<Arc<Group>>>;
/// Communicators by handle; `None` for aborted ones.
static GROUPS: Mutex<Groups> = Mutex::new(BTreeMap::new());
/// All-reduces that the driver may still execute. The key is the number passed to the driver as the
/// operation's data.
static SUMS: Mutex<BTreeMap<usize, (Arc<Group>, Sum)>> = Mutex::new(BTreeMap::new());

/// Writes the version.
///
/// # Safety
/// `version` must be null or valid for a write.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    finish("ncclGetVersion", None, || {
        // SAFETY: guaranteed by the caller.
        unsafe { write(version, self::version()) }
    })
}

/// Writes an identifier, and opens the rendezvous for it.
///
/// # Safety
/// `id` must be null or valid for a write.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    finish("ncclGetUniqueId", None, || {
        let opened = rendezvous::open()?;
        // SAFETY: guaranteed by the caller.
        unsafe { write(id, opened) }
    })
}

/// Waits until all ranks have joined, and writes a communicator handle.
///
/// # Safety
/// `raw` must be null or valid for a write.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    raw: *mut Raw,
    count: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    finish("ncclCommInitRank", Some(rank), || {
        // SAFETY: guaranteed by the caller.
        unsafe { write(raw, ptr::null_mut()) }?;
        while injected("init", Some(rank)).is_some() {
            thread::park();
        }
        let handle = join(count, &id, rank)?;
        // SAFETY: as above.
        unsafe { write(raw, ptr::without_provenance_mut(handle)) }
    })
}

/// Enqueues an all-reduce.
///
/// # Safety
/// The stream must be from the driver; handles and addresses may be invalid.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    dtype: c_int,
    operation: c_int,
    raw: Raw,
    stream: *mut c_void,
) -> c_int {
    let group = live(raw);
    finish("ncclAllReduce", rank_of(&group), || {
        let group = group?;
        let Ok(_inside) = group.inside.try_lock() else {
            return Err(misuse(INVALID_USAGE, "two threads use one communicator at the same time"));
        };
        if let Some(fault) = group.fault() {
            return Err(failure(fault.code, fault.text));
        }
        let of = Type::of(dtype).filter(|_| operation == 0);
        let Some(of) = of else {
            let text = format!("type {dtype} and operation {operation} are not modelled");
            return Err(misuse(INVALID_ARGUMENT, text));
        };
        let sum = Sum { from: from.addr() as u64, to: to.addr() as u64, count, of, call: 0 };
        if count == 0 {
            return Ok(());
        }
        check_addresses(&sum, group.driver)?;
        group.connect(sum.bytes())?;
        // SAFETY: guaranteed by the caller.
        unsafe { enqueue(&group, Sum { call: group.next_call(), ..sum }, stream) }
    })
}

/// Writes the error of an earlier all-reduce.
///
/// # Safety
/// `error` must be null or valid for a write; the handle may be invalid.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(raw: Raw, error: *mut c_int) -> c_int {
    let group = live(raw);
    finish("ncclCommGetAsyncError", rank_of(&group), || {
        let fault = group?.fault();
        if let Some(fault) = &fault {
            set_last(&fault.text);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { write(error, fault.map_or(SUCCESS, |fault| fault.code)) }
    })
}

/// Ends the group's all-reduces. Like NCCL 2.16 to 2.30, returns once no stream or graph contains
/// an all-reduce of the group.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(raw: Raw) -> c_int {
    let group = live(raw);
    finish("ncclCommAbort", rank_of(&group), || {
        group?;
        // Another thread may have removed the group.
        let group = lock(&GROUPS).get_mut(&raw.addr()).and_then(Option::take).ok_or_else(gone)?;
        group.leave();
        while injected("abort", Some(group.rank as c_int)).is_some() {
            thread::park();
        }
        Ok(())
    })
}

/// The message for a result code.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// The message of the process's last error, valid until this thread's next call. The handle is
/// ignored.
// SAFETY: no other function in the process has this NCCL name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_raw: Raw) -> *const c_char {
    last()
}

/// Checks for an injected failure first, and records every failure.
fn finish(
    function: &str,
    rank: Option<c_int>,
    call: impl FnOnce() -> Result<(), Failure>,
) -> c_int {
    let Err(failure) = check(function, rank).and_then(|()| call()) else { return SUCCESS };
    set_last(&failure.text);
    if failure.is_misuse {
        report(function, &failure.text);
    }
    failure.code
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(misuse(INVALID_ARGUMENT, "the pointer for the result is null"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(value) };
    Ok(())
}

fn version() -> c_int {
    let set = std::env::var("NCCL_TEST_VERSION").ok();
    set.and_then(|version| version.parse().ok()).unwrap_or(VERSION)
}

fn join(count: c_int, id: &UniqueId, rank: c_int) -> Result<usize, Failure> {
    if count < 1 || !(0..count).contains(&rank) {
        return Err(misuse(INVALID_ARGUMENT, format!("rank {rank} of {count} ranks")));
    }
    let driver = driver().ok_or_else(|| failure(SYSTEM, "the emulated driver is not loaded"))?;
    // SAFETY: the function has no arguments.
    let device = unsafe { (driver.current_device)() };
    if device < 0 {
        return Err(misuse(UNHANDLED_CUDA, "this thread has no context"));
    }
    let place = [rank as usize, count as usize];
    let peers = rendezvous::meet(id, place, device)?;
    let is_lazy = std::env::var("NCCL_RUNTIME_CONNECT").map_or(true, |value| value != "0");
    let group = Group::new(place, driver, peers, is_lazy && version() >= FIRST_LATE)?;
    let mut groups = lock(&GROUPS);
    let handle = groups.last_key_value().map_or(FIRST_HANDLE, |(last, _)| last + 16);
    groups.insert(handle, Some(group));
    Ok(handle)
}

fn live(raw: Raw) -> Result<Arc<Group>, Failure> {
    match lock(&GROUPS).get(&raw.addr()) {
        Some(Some(group)) => Ok(group.clone()),
        Some(None) => Err(gone()),
        None => Err(misuse(INVALID_ARGUMENT, format!("{raw:?} is not a communicator"))),
    }
}

fn gone() -> Failure {
    misuse(INVALID_ARGUMENT, "the communicator was aborted by ncclCommAbort")
}

fn rank_of(group: &Result<Arc<Group>, Failure>) -> Option<c_int> {
    group.as_ref().ok().map(|group| group.rank as c_int)
}

fn check_addresses(sum: &Sum, driver: &Driver) -> Result<(), Failure> {
    let bytes = sum.bytes() as u64;
    for address in [sum.from, sum.to] {
        // SAFETY: the function accepts any address and length.
        let is_memory = unsafe { !(driver.address)(address, bytes).is_null() };
        if !is_memory || !address.is_multiple_of(sum.of.bytes() as u64) {
            let text = format!("{address:#x} is not the address of {} {:?}", sum.count, sum.of);
            return Err(misuse(INVALID_ARGUMENT, text));
        }
    }
    if sum.from != sum.to && sum.from.abs_diff(sum.to) < bytes {
        return Err(misuse(INVALID_ARGUMENT, "the output partly overlaps the input"));
    }
    Ok(())
}

/// # Safety
/// The stream must be from the driver.
unsafe fn enqueue(group: &Arc<Group>, sum: Sum, stream: *mut c_void) -> Result<(), Failure> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let key = NEXT.fetch_add(1, Ordering::SeqCst);
    let hook = group.driver.enqueue;
    group.hold();
    lock(&SUMS).insert(key, (group.clone(), sum));
    let data: *mut c_void = ptr::without_provenance_mut(key);
    let declared = [(sum.from, 0), (sum.to, 1)];
    let declared =
        declared.map(|(first, writes)| Declared { first, bytes: sum.bytes() as u64, writes });
    // SAFETY: `declared` has this many entries.
    unsafe { (group.driver.declare)(declared.as_ptr(), declared.len()) };
    // SAFETY: the caller guarantees that the stream is valid; `execute` and `release` accept any
    // number as data.
    let code = unsafe { hook(stream, c"ncclAllReduce".as_ptr(), execute, release, data) };
    if code == 0 {
        return Ok(());
    }
    drop_sum(key);
    Err(failure(UNHANDLED_CUDA, format!("enqueueing the all-reduce: CUDA error {code}")))
}

extern "C" fn execute(data: *mut c_void) -> i32 {
    let found = lock(&SUMS).get(&data.addr()).map(|(group, sum)| (group.clone(), *sum));
    let Some((group, sum)) = found else {
        report("driverEnqueue", "an all-reduce is executed after its release");
        return UNKNOWN;
    };
    group.execute(&sum)
}

extern "C" fn release(data: *mut c_void) {
    drop_sum(data.addr());
}

/// Removes an all-reduce that the driver rejected from `SUMS`, unless the driver has already
/// released it.
fn drop_sum(key: usize) {
    let removed = lock(&SUMS).remove(&key);
    if let Some((group, _)) = removed {
        group.release();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
