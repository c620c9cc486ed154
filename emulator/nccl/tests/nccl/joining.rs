//! Groups that do not come to be.

use std::env;
use std::thread;
use std::time::Duration;

use emulator_nccl::{UniqueId, ncclCommAbort};

use super::common::*;

/// Runs a test as processes whose ranks all report this.
fn all_report(test: impl Fn(), count: usize, variables: &[(&str, &str)], wanted: &str) {
    for report in reports(&processes(test, count, variables)) {
        assert_eq!(report.len(), 1, "{report:?}");
        assert!(report[0].contains(wanted), "{report:?}");
    }
}

#[test]
fn a_rank_that_comes_twice_or_of_another_number_of_ranks_is_refused_with_all() {
    let test = a_rank_that_comes_twice_or_of_another_number_of_ranks_is_refused_with_all;
    let Some((id, [rank, count])) = place() else {
        let start = "misuse: ncclCommInitRank: rank";
        all_report(test, 3, &[("TEST_WHAT", "twice")], &format!("{start} 0 has come twice"));
        all_report(test, 3, &[("TEST_WHAT", "count")], start);
        return;
    };
    let refused = match env::var("TEST_WHAT").unwrap().as_str() {
        "twice" => init(id, [0, count]),
        _ => init(id, [rank, count + rank % 2]),
    };
    assert_eq!(refused, Err(5));
}

#[test]
fn ranks_on_one_gpu_are_refused_unless_they_may() {
    let Some((id, place)) = place() else {
        let one_gpu = "ranks 0 and 1 are both on GPU ";
        let test = ranks_on_one_gpu_are_refused_unless_they_may;
        let may = ("NCCL_MULTI_RANK_GPU_ENABLE", "1");
        all_report(test, 2, &[("TEST_DEVICES", "0,0"), ("TEST_CODE", "5")], one_gpu);
        // The ranks share a GPU under any numbers that their processes have for it.
        let visible = ("CUDA_VISIBLE_DEVICES", "3, 3");
        all_report(test, 2, &[visible, ("TEST_DEVICES", "0,1"), ("TEST_CODE", "5")], one_gpu);
        for variables in [[may, ("TEST_DEVICES", "0,0")], [visible, ("TEST_DEVICES", "1,2")]] {
            let ended = processes(test, 2, &[variables[0], variables[1], ("TEST_CODE", "0")]);
            assert!(reports(&ended).iter().all(|report| report.is_empty()));
        }
        return;
    };
    let devices = env::var("TEST_DEVICES").unwrap();
    DEVICE.set(devices.split(',').nth(place[0] as usize).unwrap().parse().unwrap());
    let code = init(id, place).map_or_else(|code| code, |_| 0);
    assert_eq!(code.to_string(), env::var("TEST_CODE").unwrap());
}

#[test]
fn a_rank_outside_of_the_group_or_without_a_context_or_with_a_used_identifier_is_refused() {
    let Some((id, _)) = place() else {
        let test =
            a_rank_outside_of_the_group_or_without_a_context_or_with_a_used_identifier_is_refused;
        let ended = processes(test, 1, &[]);
        let start = "misuse: ncclCommInitRank";
        let wanted = [
            "rank 2 of 2 ranks",
            "rank -1 of 2 ranks",
            "rank 0 of 0 ranks",
            "the identifier is not one of ncclGetUniqueId",
            "this thread has no context",
            "the identifier has served a group already",
        ];
        assert_eq!(reports(&ended), [wanted.map(|text| format!("{start}: {text}"))]);
        return;
    };
    let refused = [[2, 2], [-1, 2], [0, 0]].map(|place| init(id, place));
    assert_eq!(refused, [Err(4); 3]);
    assert_eq!(init(UniqueId([7; 128]), [0, 1]), Err(5));
    DEVICE.set(-1);
    assert_eq!(init(id, [0, 1]), Err(1));
    DEVICE.set(0);
    let raw = init(id, [0, 1]).expect("joins");
    assert_eq!(init(id, [0, 1]), Err(5));
    assert_eq!(ncclCommAbort(raw), 0);
}

#[test]
fn an_interface_that_is_not_there_is_no_meeting() {
    let Some((id, place)) = place() else {
        let variables = [("NCCL_SOCKET_IFNAME", "=nobody-has-this")];
        let ended = processes(an_interface_that_is_not_there_is_no_meeting, 1, &variables);
        assert!(reports(&ended)[0].is_empty());
        return;
    };
    assert_eq!(init(id, place), Err(5));
    assert!(last_error().contains("NCCL_SOCKET_IFNAME"), "{}", last_error());
}

#[test]
fn a_rank_that_comes_late_is_waited_for() {
    let Some((id, place)) = place() else {
        assert!(reports(&processes(a_rank_that_comes_late_is_waited_for, 2, &[]))[0].is_empty());
        return;
    };
    thread::sleep(Duration::from_millis(place[0] as u64 * 200));
    assert!(init(id, place).is_ok());
}
