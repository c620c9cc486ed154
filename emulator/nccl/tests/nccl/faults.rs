//! Ranks that differ, die, hang or leave.

use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::{env, process};

use emulator_nccl::{Raw, ncclCommAbort};

use super::common::*;

const NOTHING: [&str; 0] = [];

/// Joins, and makes a first sum.
fn join() -> Option<([i32; 2], Raw, Stream)> {
    let (id, place) = place()?;
    let (raw, stream) = (init(id, place).expect("joins"), Stream::new());
    assert_eq!(sum_all(raw, &Buffer::new(&[0f32]), &stream), 0);
    stream.wait();
    Some((place, raw, stream))
}

/// The sum hangs, and ends undefined when this rank leaves.
fn hangs_until_left(raw: Raw, buffer: &Buffer, stream: &Stream) {
    let end = stream.end();
    assert_eq!(end.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout), "the sum has ended");
    assert_eq!(ncclCommAbort(raw), 0);
    assert_eq!(end.recv_timeout(PATIENCE), Ok(()), "the sum hangs still");
    assert!(buffer.is_undefined() && !buffer.is_written());
}

#[test]
fn ranks_that_differ_in_count_type_or_order_are_told_and_none_hangs() {
    let Some((place, raw, stream)) = join() else {
        for (what, said) in [
            ("count", ["adds 4 of float (call 2, sum 2)", "adds 3 of float (call 2, sum 2)"]),
            ("type", ["adds 4 of float (call 2, sum 2)", "adds 4 of half (call 2, sum 2)"]),
            ("order", ["adds 4 of float (call 2, sum 2)", "adds 4 of float (call 3, sum 2)"]),
        ] {
            let test = ranks_that_differ_in_count_type_or_order_are_told_and_none_hangs;
            let ended = processes(test, 3, &[("TEST_WHAT", what)]);
            let line = format!("misuse: ncclAllReduce: rank 0 {}, rank 1 {}", said[0], said[1]);
            assert_eq!(reports(&ended), [[line.as_str()]; 3], "{what}");
        }
        return;
    };
    let odd = if place[0] == 1 { env::var("TEST_WHAT").unwrap() } else { String::new() };
    let [a, b] = [(); 2].map(|()| Buffer::new(&[1f32; 4]));
    let (count, of) = match odd.as_str() {
        "count" => (3, FLOAT),
        "type" => (4, HALF),
        _ => (4, FLOAT),
    };
    let [first, second] =
        [&a, &b].map(|x| capture(|| assert_eq!(sum(raw, [x; 2], count, of, &stream), 0)));
    // The same sums of the same sizes, but the other one first.
    let order = if odd == "order" { [&second, &first] } else { [&first, &second] };
    order.iter().for_each(|graph| stream.launch(graph));
    stream.wait();
    assert_eq!(async_error(raw), 5);
    assert!(last_error().contains("rank 1 adds"), "{}", last_error());
    assert!([&a, &b].iter().all(|x| x.values::<u8>().starts_with(&[0xff; 6])));
    assert_eq!(sum_all(raw, &a, &stream), 5);
    drop((first, second));
    assert_eq!(ncclCommAbort(raw), 0);
}

#[test]
fn a_rank_that_dies_is_missed_by_all_and_their_sums_hang_until_they_leave() {
    let Some((_, raw, stream)) = join() else {
        for dead in [0, 2] {
            let test = a_rank_that_dies_is_missed_by_all_and_their_sums_hang_until_they_leave;
            let plant = format!("{dead}/sum:2=die");
            let said = format!("rank {dead} has closed its connection");
            let ended = processes(test, 3, &[("NCCL_TEST_PLANT", &plant), ("TEST_SAID", &said)]);
            for (rank, ended) in ended.iter().enumerate() {
                assert_eq!(ended.status.success(), rank != dead, "rank {rank}, {dead} dies");
                assert_eq!(ended.report, NOTHING);
            }
        }
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    assert_eq!(sum_all(raw, &buffer, &stream), 0);
    assert_eq!(wait_for_error(raw), 6);
    assert_eq!(last_error(), env::var("TEST_SAID").unwrap());
    // A new sum is refused with the same error.
    assert_eq!(sum_all(raw, &buffer, &stream), 6);
    hangs_until_left(raw, &buffer, &stream);
}

#[test]
fn a_planted_hang_or_error_of_a_sum_ends_when_the_rank_leaves() {
    let Some((place, raw, stream)) = join() else {
        for (fault, code) in [("hang", "0"), ("error", "2")] {
            let test = a_planted_hang_or_error_of_a_sum_ends_when_the_rank_leaves;
            let plant = format!("1/sum:2={fault}");
            let ended = processes(test, 2, &[("NCCL_TEST_PLANT", &plant), ("TEST_CODE", code)]);
            assert_eq!(reports(&ended), [&NOTHING as &[&str]; 2]);
        }
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    assert_eq!(sum_all(raw, &buffer, &stream), 0);
    if place[0] == 0 {
        assert_eq!(wait_for_error(raw), 6);
    } else {
        thread::sleep(A_WHILE);
        assert_eq!(async_error(raw).to_string(), env::var("TEST_CODE").unwrap());
    }
    hangs_until_left(raw, &buffer, &stream);
}

#[test]
fn leaving_ends_the_sums_at_once_but_waits_for_the_graphs() {
    let Some((_, raw, stream)) = join() else {
        // The other rank never sums again, and a communicator of one rank holds no reference.
        for (plant, ranks) in [("1/sum:2=hang", 2), ("0/sum:2=hang", 2), ("0/sum:2=hang", 1)] {
            let test = leaving_ends_the_sums_at_once_but_waits_for_the_graphs;
            reports(&processes(test, ranks, &[("NCCL_TEST_PLANT", plant)]));
        }
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    let graph = capture(|| assert_eq!(sum_all(raw, &buffer, &stream), 0));
    stream.launch(&graph);
    let end = stream.end();
    assert_eq!(end.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    let address = raw.addr();
    let left = thread::spawn(move || ncclCommAbort(std::ptr::without_provenance_mut(address)));
    assert_eq!(end.recv_timeout(PATIENCE), Ok(()));
    assert!(buffer.is_undefined());
    let (_, place) = place().unwrap();
    thread::sleep(A_WHILE);
    assert_eq!(left.is_finished(), place[1] == 1, "while a graph holds a sum");
    drop(graph);
    assert_eq!(left.join().unwrap(), 0);
}

#[test]
fn a_late_replay_after_leaving_ends_at_once() {
    let Some((_, raw, stream)) = join() else {
        reports(&processes(a_late_replay_after_leaving_ends_at_once, 1, &[]));
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    let graph = capture(|| assert_eq!(sum_all(raw, &buffer, &stream), 0));
    assert_eq!(ncclCommAbort(raw), 0);
    stream.launch(&graph);
    stream.wait();
    assert!(buffer.is_undefined());
}

/// Ends the process well while a call does not return.
fn never_returns(call: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(call);
    thread::sleep(A_WHILE);
    process::exit(i32::from(thread.is_finished()));
}

#[test]
fn a_planted_abort_never_returns_but_ends_the_sums() {
    let Some((_, raw, stream)) = join() else {
        let plant = [("NCCL_TEST_PLANT", "abort:hang,sum:2=hang")];
        reports(&processes(a_planted_abort_never_returns_but_ends_the_sums, 1, &plant));
        return;
    };
    let buffer = Buffer::new(&[1f32; 4]);
    assert_eq!(sum_all(raw, &buffer, &stream), 0);
    let address = raw.addr();
    let end = stream.end();
    thread::spawn(move || {
        assert_eq!(end.recv_timeout(PATIENCE), Ok(()));
        assert!(buffer.is_undefined());
    });
    never_returns(move || {
        ncclCommAbort(std::ptr::without_provenance_mut(address));
    });
}

#[test]
fn a_rank_planted_never_to_join_keeps_the_others_waiting() {
    let Some((id, place)) = place() else {
        let plant = [("NCCL_TEST_PLANT", "1/init:never")];
        let ended = processes(a_rank_planted_never_to_join_keeps_the_others_waiting, 2, &plant);
        assert_eq!(reports(&ended), [&NOTHING as &[&str]; 2]);
        return;
    };
    never_returns(move || {
        begin(place[0]);
        let _ = init(id, place);
    });
}

#[test]
fn a_planted_code_is_returned_once_at_its_call() {
    let Some((id, place)) = place() else {
        let plant = "ncclAllReduce:2=3,ncclCommInitRank:1=2,ncclCommAbort:1=1,nothing:1=1";
        let test = a_planted_code_is_returned_once_at_its_call;
        let ended = processes(test, 1, &[("NCCL_TEST_PLANT", plant)]);
        let line = "misuse: NCCL_TEST_PLANT: `nothing:1=1` plants nothing";
        assert_eq!(reports(&ended), [[line]]);
        return;
    };
    assert_eq!(init(id, place), Err(2));
    assert_eq!(last_error(), "ncclCommInitRank fails as planted");
    let raw = init(id, place).expect("joins");
    let (buffer, stream) = (Buffer::new(&[1f32]), Stream::new());
    assert_eq!([(); 3].map(|()| sum_all(raw, &buffer, &stream)), [0, 3, 0]);
    stream.wait();
    assert_eq!([(); 2].map(|()| ncclCommAbort(raw)), [1, 0]);
}
