//! The memory plan: sound in every order that a schedule allows, and not much larger than it must
//! be.

use graph::{Plan, Program, Schedule};

use crate::common::checker::{first_clash, regions};
use crate::common::mix::Mix;
use crate::common::random::{sample, streams};
use device::Target;

/// Programs a property is tried on; each differs in everything but its number of nodes.
const PROGRAMS: u32 = 300;

fn mix(outputs: &[usize]) -> Mix {
    Mix { outputs: outputs.to_vec(), scratch: 0, salt: 0.0 }
}

#[test]
fn blocks_that_overlap_are_ordered_in_every_order() {
    let mut shared = 0;
    for seed in 0..PROGRAMS {
        let sample = sample(seed, 5 + seed as usize % 40);
        let count = 1 + seed as usize % 5;
        let streams = streams(seed, &sample.program, count);
        let schedule = Schedule::with_streams(&sample.program, &streams).expect("ordered");
        let plan = Plan::new(&sample.program, &schedule, &Target::Cpu);
        let regions = regions(&sample.program, &schedule, &plan);
        assert_eq!(first_clash(&regions, &schedule), None, "seed {seed}, {count} streams");
        for r in &regions {
            assert!(r.offset + r.bytes <= plan.arena_bytes(), "seed {seed}: {r:?} sticks out");
            assert_eq!(r.offset % graph::plan::ALIGNMENT, 0, "seed {seed}: {r:?}");
        }
        assert_eq!(regions.len(), plan.blocks().len(), "seed {seed}");
        shared += usize::from(plan.arena_bytes() < plan.unshared_bytes());
    }
    assert!(shared as u32 > PROGRAMS / 2, "only {shared} plans share memory: nothing was tested");
}

/// The test of the test: a plan that is wrong by one block is found out.
#[test]
fn the_checker_catches_a_broken_plan() {
    let mut caught = 0;
    for seed in 0..50 {
        let sample = sample(seed, 20);
        let streams = streams(seed, &sample.program, 3);
        let schedule = Schedule::with_streams(&sample.program, &streams).expect("ordered");
        let plan = Plan::new(&sample.program, &schedule, &Target::Cpu);
        let mut regions = regions(&sample.program, &schedule, &plan);
        // An output moved onto another output of the same launch: alive together in any order.
        let together = |a: usize, b: usize, regions: &[crate::common::checker::Region]| {
            let (a, b) = (&regions[a], &regions[b]);
            a.users[0] == b.users[0] && a.bytes > 0 && b.bytes > 0
        };
        let pair = (1..regions.len()).find(|i| together(*i, i - 1, &regions));
        let Some(i) = pair else { continue };
        regions[i].offset = regions[i - 1].offset;
        assert!(first_clash(&regions, &schedule).is_some(), "seed {seed}");
        caught += 1;
    }
    assert!(caught > 40, "only {caught} programs had a pair to break");
}

/// A plan for one stream is not safe on several: the waits decide, not the order of launches.
#[test]
fn the_checker_catches_a_plan_made_for_fewer_streams() {
    let mut caught = 0;
    for seed in 0..50 {
        let sample = sample(seed, 30);
        let single = Schedule::single_stream(&sample.program).expect("ordered");
        let plan = Plan::new(&sample.program, &single, &Target::Cpu);
        let streams = streams(seed, &sample.program, 4);
        let many = Schedule::with_streams(&sample.program, &streams).expect("ordered");
        let regions = regions(&sample.program, &many, &plan);
        caught += usize::from(first_clash(&regions, &many).is_some());
    }
    assert!(caught > 40, "only {caught} of 50 plans for one stream clash on four");
}

#[test]
fn the_arena_is_close_to_the_lower_bound() {
    let (mut worst, mut total, mut worst_seed) = (0.0f64, 0.0, 0);
    for seed in 0..PROGRAMS {
        let sample = sample(seed, 5 + seed as usize % 80);
        let schedule = Schedule::single_stream(&sample.program).expect("ordered");
        let plan = Plan::new(&sample.program, &schedule, &Target::Cpu);
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

/// The peak, counted again from the program: bytes of all values and scratch that a launch lies
/// between the first and the last user of.
#[test]
fn the_lower_bound_counts_what_is_alive() {
    for seed in 0..50 {
        let sample = sample(seed, 25);
        let schedule = Schedule::single_stream(&sample.program).expect("ordered");
        let plan = Plan::new(&sample.program, &schedule, &Target::Cpu);
        let regions = regions(&sample.program, &schedule, &plan);
        let alive_at = |launch: usize| -> usize {
            let alive = regions.iter().filter(|r| {
                let last = r.users.iter().max().expect("has a writer");
                r.users[0] <= launch && (r.kept || launch <= *last)
            });
            alive.map(|r| r.bytes.next_multiple_of(graph::plan::ALIGNMENT)).sum()
        };
        let peak = (0..schedule.launches().len()).map(alive_at).max();
        assert_eq!(Some(plan.peak_live_bytes(&schedule)), peak, "seed {seed}");
    }
}

#[test]
fn a_chain_needs_two_buffers_only() {
    let mut program = Program::new();
    let mut x = program.input("x", crate::common::vector(64));
    for _ in 0..10 {
        x = program.apply1(mix(&[64]), [x]).expect("mix");
    }
    let schedule = Schedule::single_stream(&program).expect("ordered");
    let plan = Plan::new(&program, &schedule, &Target::Cpu);
    assert_eq!(plan.arena_bytes(), 2 * 256);
    assert_eq!(plan.unshared_bytes(), 10 * 256);
}

#[test]
fn a_kept_tensor_shares_with_nothing_that_comes_later() {
    let mut program = Program::new();
    let first = program.apply1(mix(&[64]), []).expect("mix");
    program.keep("first", first);
    let mut x = first;
    for _ in 0..5 {
        x = program.apply1(mix(&[64]), [x]).expect("mix");
        let schedule = Schedule::single_stream(&program).expect("ordered");
        let plan = Plan::new(&program, &schedule, &Target::Cpu);
        assert_ne!(plan.offset(x), plan.offset(first));
    }
}

#[test]
fn a_program_without_nodes_needs_nothing() {
    let mut program = Program::new();
    let x = program.input("x", crate::common::vector(64));
    let schedule = Schedule::single_stream(&program).expect("ordered");
    let plan = Plan::new(&program, &schedule, &Target::Cpu);
    assert_eq!((plan.arena_bytes(), plan.peak_live_bytes(&schedule)), (0, 0));
    assert_eq!(plan.offset(x), None);
}
