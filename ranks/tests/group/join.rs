//! Ranks join the group, and exchange messages.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::common::{join_some, logged, options, run};
use ranks::{Group, JoinOptions, RanksError};

#[test]
fn runs_of_1_2_4_and_8_ranks_join_without_settings() {
    std::thread::scope(|scope| {
        // The four runs start concurrently on one node; each rank must join its own run.
        for ranks in [1, 2, 4, 8] {
            scope.spawn(move || {
                let groups = run(ranks, &options(), |group| {
                    group.barrier("the start").expect("all are there");
                    let seen: Vec<usize> = group.members().iter().map(|m| m.rank).collect();
                    assert_eq!(seen, (0..ranks).collect::<Vec<_>>());
                    assert_eq!((group.ranks(), group.hosts()), (ranks, 1));
                    assert_eq!(group.is_first_of_host(), group.is_first());
                    assert_eq!(group.members()[group.rank()].pid, std::process::id());
                    group.leave(None);
                    group
                });
                for (rank, group) in groups.iter().enumerate() {
                    assert_eq!((group.rank(), group.lost()), (rank, None));
                }
            });
        }
    });
}

#[test]
fn missing_ranks_are_reported_on_joined_ranks() {
    let options = JoinOptions { join_timeout: Duration::from_millis(700), ..options() };
    let results = join_some([0, 2], 4, &options, &|_| ());
    for result in results {
        let error = result.expect_err("two are missing").to_string();
        assert!(error.starts_with("ranks 1 and 3 of 4 did not join within 0.7 s"), "{error}");
    }
    let late = join_some([1], 2, &options, &|_| ());
    let error = late[0].as_ref().expect_err("rank 0 is missing").to_string();
    assert!(error.starts_with("rank 1 did not find rank 0 within 0.7 s"), "{error}");
}

#[test]
fn megabyte_messages_arrive_complete_and_in_order() {
    let bytes = |rank: usize| -> Vec<u8> {
        (0..3_000_001 + rank).map(|i| (i * 31 + rank * 7) as u8).collect()
    };
    run(4, &options(), |group| {
        let mine = bytes(group.rank());
        for what in ["the scores", "the rest"] {
            let gathered = group.gather(what, &mine).expect("all are there");
            match group.is_first() {
                true => assert_eq!(gathered, (0..4).map(bytes).collect::<Vec<_>>()),
                false => assert!(gathered.is_empty()),
            }
        }
        let from_first = group.broadcast("the order", &mine).expect("all are there");
        assert_eq!(from_first, bytes(0));
        assert!(group.broadcast("nothing", &[]).expect("all are there").is_empty());
        group.leave(None);
    });
}

#[test]
fn barrier_waits_for_last_rank() {
    let late = Duration::from_millis(300);
    let begin = Barrier::new(3);
    let waited = run(3, &options(), |group| {
        begin.wait();
        let begin = Instant::now();
        if group.rank() == 2 {
            std::thread::sleep(late);
        }
        group.barrier("the end").expect("all are there");
        let waited = begin.elapsed();
        group.leave(None);
        waited
    });
    assert!(waited.iter().all(|waited| *waited >= late), "{waited:?}");
}

#[test]
fn wait_has_no_timeout_while_ranks_are_alive() {
    let options = JoinOptions { timeout: Duration::from_millis(400), ..options() };
    run(2, &options, |group| {
        if group.is_first() {
            // The sleep simulates scoring that takes longer than the time limit.
            std::thread::sleep(Duration::from_millis(1200));
        }
        group.broadcast("the scores", &[]).expect("rank 0 lives");
        group.leave(None);
    });
}

#[test]
fn differing_setting_is_reported_on_every_rank() {
    let long = |text: &str| text.repeat(200);
    let same = vec![("config", long("x")), ("seed", "7".into())];
    let other = vec![("config", long("x")), ("seed", "8".into())];
    for (own, last, expected) in [
        (same.clone(), same.clone(), None),
        (same.clone(), other, Some("in seed: `8` and `7`; start all".to_owned())),
        (same.clone(), same[..1].to_vec(), Some("in seed: none and `7`; ".into())),
        (same[..1].to_vec(), same, Some("in seed: `7` and none; ".into())),
        (
            vec![("config", long("a"))],
            vec![("config", long("b"))],
            Some(format!("in config: `{}..` and `{}..`", "b".repeat(60), "a".repeat(60))),
        ),
    ] {
        run(3, &options(), |group| {
            let result = group.agree(if group.rank() == 2 { &last } else { &own });
            let said = result.err().map(|error| error.to_string());
            group.leave(None);
            let Some(expected) = &expected else { return assert_eq!(said, None) };
            let host = &group.members()[2].host;
            let begin = format!("rank 2 on host {host} differs from rank 0 {expected}");
            assert!(said.as_ref().is_some_and(|said| said.starts_with(&begin)), "{said:?}");
        });
    }
}

#[test]
fn error_at_different_operations_names_both() {
    let results = run(2, &options(), |group| {
        let result = match group.rank() {
            0 => group.gather("the scores", &[]).map(|_| ()),
            _ => group.barrier("the checkpoint"),
        };
        let fault = result.as_ref().err().map(ToString::to_string);
        group.leave(fault.as_deref().map(|fault| (1, fault)));
        result
    });
    let Err(RanksError::Diverged(error)) = &results[0] else { panic!("{results:?}") };
    assert!(error.contains("is at `the checkpoint`, and rank 0 at `the scores`"), "{error}");
    assert!(matches!(results[1], Err(RanksError::Lost(_))), "{results:?}");
}

#[test]
fn group_of_one_needs_no_peers() {
    let (options, lines) = logged(JoinOptions::default());
    let group = Group::join(&ranks::Launch::single(), options).expect("nobody is missing");
    assert_eq!(group.gather("x", b"1").expect("alone"), [b"1"]);
    assert_eq!(group.broadcast("x", b"1").expect("alone"), b"1");
    group.agree(&[("seed", "1".into())]).expect("alone");
    group.barrier("x").expect("alone");
    group.set_doing(1, "training");
    group.leave(None);
    assert!(group.is_first_of_host() && lines.lock().expect("no panic").is_empty());
}
