//! Calls that a faultless program does not make, and connections in a capture.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::{env, fs, ptr};

use emulator_nccl::{Raw, ncclAllReduce, ncclCommAbort, ncclCommGetAsyncError};

use super::common::*;

const GIVEN_UP: &str = "the communicator was given up by ncclCommAbort";

fn join() -> Option<(Raw, Stream)> {
    let (id, place) = place()?;
    Some((init(id, place).expect("joins"), Stream::new()))
}

#[test]
fn a_communicator_that_was_left_is_of_no_use() {
    let Some((raw, stream)) = join() else {
        let ended = processes(a_communicator_that_was_left_is_of_no_use, 1, &[]);
        let functions = ["ncclAllReduce", "ncclCommGetAsyncError", "ncclCommAbort"];
        let mut wanted = functions.map(|name| format!("misuse: {name}: {GIVEN_UP}")).to_vec();
        wanted.push("misuse: ncclCommAbort: 0x7 is no communicator".into());
        assert_eq!(reports(&ended)[0], wanted);
        return;
    };
    assert_eq!(ncclCommAbort(raw), 0);
    assert_eq!(sum_all(raw, &Buffer::new(&[1f32]), &stream), 4);
    // SAFETY: one number is written, or none.
    assert_eq!(unsafe { ncclCommGetAsyncError(raw, &mut 0) }, 4);
    assert_eq!(ncclCommAbort(raw), 4);
    assert_eq!(last_error(), GIVEN_UP);
    assert_eq!(ncclCommAbort(ptr::without_provenance_mut(7)), 4);
}

#[test]
fn sums_of_what_is_no_memory_or_not_modelled_are_refused() {
    let Some((raw, stream)) = join() else {
        let test = sums_of_what_is_no_memory_or_not_modelled_are_refused;
        let ended = processes(test, 1, &[]);
        let report = &reports(&ended)[0];
        let wanted = ["not modelled", "not modelled", "5 Float", "1 Float", "part of its own"];
        assert_eq!(report.len(), wanted.len(), "{report:?}");
        for (line, wanted) in report.iter().zip(wanted) {
            assert!(line.starts_with("misuse: ncclAllReduce: ") && line.contains(wanted), "{line}");
        }
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    let at = |offset: usize| ptr::with_exposed_provenance_mut(buffer.at as usize + offset);
    let call = |[from, to]: [usize; 2], count, of, operation| {
        // SAFETY: the stream lives as long as the process.
        unsafe { ncclAllReduce(at(from), at(to), count, of, operation, raw, stream.raw()) }
    };
    assert_eq!(call([0, 0], 4, 8, 0), 4);
    assert_eq!(call([0, 0], 4, FLOAT, 1), 4);
    assert_eq!(call([0, 0], 5, FLOAT, 0), 4);
    assert_eq!(call([2, 2], 1, FLOAT, 0), 4);
    assert_eq!(call([0, 4], 3, FLOAT, 0), 4);
    assert_eq!(call([0, 8], 2, FLOAT, 0), 0);
}

#[test]
fn memory_that_is_gone_when_a_sum_is_executed_is_an_illegal_address() {
    let Some((raw, stream)) = join() else {
        let ended =
            processes(memory_that_is_gone_when_a_sum_is_executed_is_an_illegal_address, 1, &[]);
        assert!(reports(&ended)[0][0].ends_with("are no memory of the device any more"));
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    let graph = capture(|| assert_eq!(sum_all(raw, &buffer, &stream), 0));
    buffer.forget();
    stream.launch(&graph);
    stream.wait();
    assert_eq!(*STICKY.lock().unwrap(), [700]);
}

#[test]
fn a_sum_that_the_driver_refuses_is_a_cuda_error_and_holds_nobody() {
    let Some((raw, _)) = join() else {
        let test = a_sum_that_the_driver_refuses_is_a_cuda_error_and_holds_nobody;
        assert!(reports(&processes(test, 2, &[])).iter().all(|report| report.is_empty()));
        return;
    };
    let buffer = Buffer::new(&[1f32]);
    let at = ptr::with_exposed_provenance_mut(buffer.at as usize);
    // SAFETY: the driver refuses the stream.
    assert_eq!(unsafe { ncclAllReduce(at, at, 1, FLOAT, 0, raw, ptr::null_mut()) }, 1);
    assert_eq!(last_error(), "enqueueing the sum: CUDA error 400");
    assert_eq!(ncclCommAbort(raw), 0);
}

#[test]
fn two_sums_of_a_group_at_once_are_reported() {
    let Some((raw, first)) = join() else {
        let plant = [("NCCL_TEST_PLANT", "sum:1=hang")];
        let ended = processes(two_sums_of_a_group_at_once_are_reported, 1, &plant);
        let line = "misuse: ncclAllReduce: two sums of a group are executed at once";
        assert_eq!(reports(&ended), [[line]]);
        return;
    };
    let (second, buffer) = (Stream::new(), Buffer::new(&[1f32]));
    for stream in [&first, &second] {
        assert_eq!(sum_all(raw, &buffer, stream), 0);
    }
    let report = env::var("DRIVER_REPORT").unwrap();
    wait_until("a report", || fs::exists(&report).unwrap());
    assert_eq!(ncclCommAbort(raw), 0);
    [first, second].iter().for_each(Stream::wait);
}

#[test]
fn a_first_sum_of_its_size_connects_which_a_capture_does_not_allow() {
    let Some((raw, stream)) = join() else {
        let test = a_first_sum_of_its_size_connects_which_a_capture_does_not_allow;
        let none = ("NCCL_TEST_VERSION", "22907");
        for (late, version, code) in
            [("1", none, "1"), ("0", none, "0"), ("1", ("NCCL_TEST_VERSION", "22105"), "0")]
        {
            let late = ("NCCL_RUNTIME_CONNECT", late);
            let ended = processes(test, 2, &[late, version, ("TEST_CODE", code)]);
            assert!(reports(&ended).iter().all(|report| report.is_empty()));
        }
        return;
    };
    let [small, large] = [1, 1000].map(|len| Buffer::new(&vec![1f32; len]));
    assert_eq!(sum_all(raw, &small, &stream), 0);
    let mut codes = vec![];
    let mut graph = capture(|| codes.extend([&small, &large].map(|b| sum_all(raw, b, &stream))));
    assert_eq!(codes[0], 0);
    assert_eq!(codes[1].to_string(), env::var("TEST_CODE").unwrap());
    if codes[1] != 0 {
        assert!(last_error().contains("sum of 4000 bytes: CUDA error 900"), "{}", last_error());
        assert_eq!(sum_all(raw, &large, &stream), 0);
        graph = capture(|| assert_eq!([&small, &large].map(|b| sum_all(raw, b, &stream)), [0; 2]));
    }
    stream.launch(&graph);
    stream.wait();
    assert_eq!(async_error(raw), 0);
    assert_eq!(Arc::into_inner(graph).map(drop), Some(()));
    assert_eq!(ncclCommAbort(raw), 0);
}
