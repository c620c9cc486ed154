//! Sums of ranks that are threads, and of ranks that are processes.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::thread;
use std::time::{Duration, Instant};

use super::common::*;
use emulator_nccl::{Raw, ncclCommAbort, ncclGetErrorString, ncclGetVersion};

/// Runs ranks as threads of this process.
fn threads(count: i32, body: impl Fn(Raw, i32, &Stream) + Sync) {
    begin(0);
    let id = new_id();
    thread::scope(|scope| {
        for rank in 0..count {
            let body = &body;
            scope.spawn(move || {
                begin(rank);
                let raw = init(id, [rank, count]).expect("joins");
                let stream = Stream::new();
                body(raw, rank, &stream);
                stream.wait();
                assert_eq!((async_error(raw), ncclCommAbort(raw)), (0, 0));
            });
        }
    });
}

/// The values that a rank brings: numbers whose sum depends on the order.
fn value(rank: i32, i: usize) -> f32 {
    (i as f32 + 1.0) / [3.0, 7e-4, 1e5, 11.0][rank as usize]
}

#[test]
fn threads_get_sums_in_rank_order_whatever_the_number_of_ranks_and_elements() {
    for count in 1..=4 {
        threads(count, |raw, rank, stream| {
            for len in [1, 3, 4096, 4097, 200_001] {
                let own: Vec<f32> = (0..len).map(|i| value(rank, i)).collect();
                let total = |i| (1..count).fold(value(0, i), |sum, rank| sum + value(rank, i));
                let wanted: Vec<u32> = (0..len).map(|i| total(i).to_bits()).collect();
                let [from, to] = [Buffer::new(&own), Buffer::new(&vec![0f32; len])];
                assert_eq!(sum(raw, [&from, &to], len, FLOAT, stream), 0);
                assert_eq!(sum_all(raw, &from, stream), 0);
                stream.wait();
                assert_eq!([to.values::<u32>(), from.values()], [wanted.clone(), wanted]);
                assert!(to.is_written() && from.is_written());
            }
        });
    }
}

#[test]
fn halves_are_added_in_floats_and_rounded_once() {
    // 2048, 1 and 1: no sum of two of them is a half but the last.
    threads(3, |raw, rank, stream| {
        let buffer = Buffer::new(&[[0x6800u16, 0x3c00, 0x3c00][rank as usize]; 9]);
        assert_eq!(sum(raw, [&buffer; 2], 9, HALF, stream), 0);
        stream.wait();
        assert_eq!(buffer.values::<u16>(), [0x6801; 9]);
    });
}

#[test]
fn no_elements_are_no_sum() {
    threads(2, |raw, _, stream| {
        let buffer = Buffer::new(&[1f32]);
        assert_eq!(sum(raw, [&buffer; 2], 0, FLOAT, stream), 0);
        stream.wait();
        assert!(!buffer.is_written());
    });
}

#[test]
fn each_replay_sums_again_while_ranks_keep_different_times() {
    threads(3, |raw, rank, stream| {
        let [a, b] = [2, 5000].map(|len| Buffer::new(&vec![1f32; len]));
        assert_eq!([&a, &b].map(|buffer| sum_all(raw, buffer, stream)), [0, 0]);
        let graph = capture(|| {
            assert_eq!([&a, &b].map(|buffer| sum_all(raw, buffer, stream)), [0, 0]);
        });
        for replay in 0..6 {
            thread::sleep(Duration::from_millis((replay + rank as u64) % 3 * 5));
            stream.launch(&graph);
        }
        stream.wait();
        let wanted = 3f32.powi(7);
        assert_eq!((a.values(), b.values()), (vec![wanted; 2], vec![wanted; 5000]));
    });
}

#[test]
fn processes_sum_as_threads_do() {
    let Some((id, place)) = place() else {
        let ended = processes(processes_sum_as_threads_do, 4, &[]);
        assert_eq!(reports(&ended), [&[] as &[String]; 4]);
        return;
    };
    let raw = init(id, place).expect("joins");
    let stream = Stream::new();
    let buffers = [10, 2_000_000, 7].map(|len| Buffer::new(&vec![place[0] as f32; len]));
    let start = Instant::now();
    for buffer in &buffers {
        assert_eq!(sum_all(raw, buffer, &stream), 0);
    }
    stream.wait();
    println!("{:?}", start.elapsed());
    assert!(buffers.iter().all(|buffer| buffer.values::<f32>().iter().all(|sum| *sum == 6.0)));
    assert_eq!(ncclCommAbort(raw), 0);
}

#[test]
fn a_rank_that_leaves_after_the_last_sum_is_not_missed() {
    threads(4, |raw, rank, stream| {
        let buffer = Buffer::new(&[1f32]);
        assert_eq!(sum_all(raw, &buffer, stream), 0);
        stream.wait();
        // The others have left meanwhile; `threads` asks for no error.
        thread::sleep(Duration::from_millis(40 * rank as u64));
    });
}

#[test]
fn version_and_sentences_are_nccls() {
    let Some(_) = place() else {
        let name = version_and_sentences_are_nccls;
        assert_eq!(reports(&processes(name, 1, &[("TEST_WANTED", "22907")])).len(), 1);
        let variables = [("NCCL_TEST_VERSION", "21602"), ("TEST_WANTED", "21602")];
        assert_eq!(reports(&processes(name, 1, &variables)).len(), 1);
        return;
    };
    let mut version = 0;
    // SAFETY: one number is written.
    assert_eq!(unsafe { ncclGetVersion(&mut version) }, 0);
    assert_eq!(version.to_string(), std::env::var("TEST_WANTED").unwrap());
    for (code, begin) in [(0, "no error"), (5, "invalid usage"), (6, "remote process"), (9, "unk")]
    {
        // SAFETY: a text that lives as long as the process.
        let text = unsafe { CStr::from_ptr(ncclGetErrorString(code)) }.to_str().unwrap();
        assert!(text.starts_with(begin), "{text}");
    }
}
