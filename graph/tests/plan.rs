//! The memory plan: valid in every order that a schedule allows, and close to the lower bound.

use graph::Program;
use graph::plan::ALIGNMENT;

use crate::common::checker::{first_clash, regions};
use crate::common::mix::Mix;
use crate::common::random::{sample, streams};
use crate::common::{Build, on_one_stream, on_streams, vector};

/// Number of random programs on which each property is tested.
const PROGRAMS: u32 = 300;

#[test]
fn overlapping_blocks_are_ordered_in_every_schedule() {
    let mut shared = 0;
    for seed in 0..PROGRAMS {
        let program = sample(seed, 5 + seed as usize % 40).program;
        let count = 1 + seed as usize % 5;
        let (schedule, plan) = on_streams(&program, &streams(seed, &program, count));
        let regions = regions(&program, &schedule, &plan);
        assert_eq!(first_clash(&regions, &schedule), None, "seed {seed}, {count} streams");
        for r in &regions {
            assert!(r.offset + r.bytes <= plan.arena_bytes(), "seed {seed}: {r:?} sticks out");
            assert_eq!(r.offset % ALIGNMENT, 0, "seed {seed}: {r:?}");
        }
        assert_eq!(regions.len(), plan.blocks().len(), "seed {seed}");
        shared += usize::from(plan.arena_bytes() < plan.unshared_bytes());
    }
    assert!(shared as u32 > PROGRAMS / 2, "only {shared} plans share memory: nothing was tested");
}

/// A plan made for one stream is invalid on several streams, where only the waits order launches.
#[test]
fn checker_rejects_plan_made_for_fewer_streams() {
    let mut caught = 0;
    for seed in 0..50 {
        let program = sample(seed, 30).program;
        let (_, plan) = on_one_stream(&program);
        let (many, _) = on_streams(&program, &streams(seed, &program, 4));
        let regions = regions(&program, &many, &plan);
        caught += usize::from(first_clash(&regions, &many).is_some());
    }
    assert!(caught > 40, "only {caught} of 50 plans for one stream clash on four");
}

#[test]
fn arena_size_is_close_to_lower_bound() {
    let (mut worst, mut total, mut worst_seed) = (0.0f64, 0.0, 0);
    for seed in 0..PROGRAMS {
        let (schedule, plan) = on_one_stream(&sample(seed, 5 + seed as usize % 80).program);
        let bound = plan.peak_live_bytes(&schedule);
        assert!(plan.arena_bytes() >= bound, "seed {seed}: below what is alive at once");
        let ratio = plan.arena_bytes() as f64 / bound.max(1) as f64;
        total += ratio;
        if ratio > worst {
            (worst, worst_seed) = (ratio, seed);
        }
    }
    let mean = total / f64::from(PROGRAMS);
    println!("arena over lower bound: mean {mean:.4}, worst {worst:.4} (seed {worst_seed})");
    assert!(worst <= 1.3, "seed {worst_seed}: {worst:.3} times the bytes alive at once");
    assert!(mean <= 1.02, "mean {mean:.3}");
}

/// Computes the peak independently, from the program: bytes of all values and scratch memory that
/// are alive at a launch.
#[test]
fn lower_bound_counts_live_tensors() {
    for seed in 0..50 {
        let program = sample(seed, 25).program;
        let (schedule, plan) = on_one_stream(&program);
        let regions = regions(&program, &schedule, &plan);
        let alive_at = |launch: usize| -> usize {
            let alive = regions.iter().filter(|r| {
                let last = r.users.iter().max().expect("has a writer");
                r.users[0] <= launch && (r.kept || launch <= *last)
            });
            alive.map(|r| r.bytes.next_multiple_of(ALIGNMENT)).sum()
        };
        let peak = (0..schedule.launches().len()).map(alive_at).max();
        assert_eq!(Some(plan.peak_live_bytes(&schedule)), peak, "seed {seed}");
    }
}

/// A chain alternates between two buffers; a kept tensor shares no memory with later tensors.
#[test]
fn chain_needs_two_buffers_and_one_per_kept_tensor() {
    for (keeps, buffers) in [(false, 2), (true, 3)] {
        let mut program = Program::new();
        let first = program.node(Mix::of(&[64]), []);
        if keeps {
            program.keep("first", first);
        }
        let mut x = first;
        for _ in 1..10 {
            x = program.node(Mix::of(&[64]), [x]);
            let (_, plan) = on_one_stream(&program);
            assert!(!keeps || plan.offset(x) != plan.offset(first));
        }
        let (_, plan) = on_one_stream(&program);
        assert_eq!((plan.arena_bytes(), plan.unshared_bytes()), (buffers * 256, 10 * 256));
    }
}

#[test]
fn empty_program_needs_no_memory() {
    let mut program = Program::new();
    let x = program.input("x", vector(64));
    let (schedule, plan) = on_one_stream(&program);
    assert_eq!((plan.arena_bytes(), plan.peak_live_bytes(&schedule)), (0, 0));
    assert_eq!(plan.offset(x), None);
}
