//! The planned offsets must be valid in every order of streams that the waits allow.

use graph::Schedule;

use crate::common::interpreter::{Adversary, naive};
use crate::common::random::{Rng, sample, streams};
use crate::common::{on_one_stream, on_streams};

#[test]
fn every_allowed_order_matches_naive_result() {
    for seed in 0..150 {
        let sample = sample(seed, 5 + seed as usize % 30);
        let streams = streams(seed, &sample.program, 1 + seed as usize % 6);
        let (schedule, plan) = on_streams(&sample.program, &streams);
        let truth = naive(&sample);
        for order in 0..3 {
            let run = Adversary::new(&sample, &schedule, &plan, 1000 * seed + order).run();
            let outcome = run.unwrap_or_else(|e| panic!("seed {seed}, order {order}: {e}"));
            for (tensor, value) in &outcome.values {
                assert_eq!(value, &truth.values[tensor], "seed {seed}, order {order}");
            }
            assert!(outcome.state.iter().eq(truth.state.iter()), "seed {seed}, order {order}");
        }
    }
}

/// Checks the test method itself: offsets planned for one stream are found to be invalid on four.
#[test]
fn random_order_exposes_plan_made_for_fewer_streams() {
    let mut found = 0;
    for seed in 0..40 {
        let sample = sample(seed, 30);
        let (_, plan) = on_one_stream(&sample.program);
        let (many, _) = on_streams(&sample.program, &streams(seed, &sample.program, 4));
        let truth = naive(&sample);
        let wrong = |order: u32| match Adversary::new(&sample, &many, &plan, order).run() {
            Ok(outcome) => outcome.values.iter().any(|(t, v)| *v != truth.values[t]),
            Err(_) => true,
        };
        found += usize::from((0..5).any(wrong));
    }
    assert!(found > 30, "found {found} of 40");
}

/// Compares `happens_before` with the transitive closure of the direct edges.
#[test]
fn happens_before_follows_streams_and_waits() {
    for seed in 0..100 {
        let program = sample(seed, 20).program;
        let streams = streams(seed, &program, 1 + Rng::new(seed).below(5));
        let schedule = Schedule::with_streams(&program, &streams).expect("ordered");
        let launches = schedule.launches();
        let n = launches.len();
        // Floyd-Warshall over direct edges: the previous launch on its stream, and its waits.
        let direct = |a: usize, b: usize| {
            a < b && (launches[a].stream == launches[b].stream || launches[b].waits.contains(&a))
        };
        let mut reach: Vec<Vec<bool>> =
            (0..n).map(|a| (0..n).map(|b| direct(a, b)).collect()).collect();
        for k in 0..n {
            let through = reach[k].clone();
            for row in reach.iter_mut().filter(|row| row[k]) {
                row.iter_mut().zip(&through).for_each(|(r, t)| *r |= t);
            }
        }
        for (a, row) in reach.iter().enumerate() {
            for (b, reached) in row.iter().enumerate() {
                assert_eq!(schedule.happens_before(a, b), *reached, "seed {seed}: {a}, {b}");
            }
        }
    }
}
