//! Bugs between the threads of a block: barriers, warp operations, shared memory, waits.

use device::Launch;
use emulated::Order;

use crate::support::{Bench, assert_says, fault, orders, place};

/// A launch of one block.
fn one_block(kernel: &'static str, threads: u32) -> Launch {
    Launch::new(kernel, [1, 1, 1]).block(threads)
}

#[test]
fn barriers_in_two_branches_are_reported() {
    for order in orders() {
        let bench = Bench::new(order);
        let launch = one_block("planted_divergent_barrier", 64).arg(bench.alloc(256).write());
        let first = format!("waits at {}", place("barriers.cu", "barrier of the first warp"));
        let others = format!("at {}", place("barriers.cu", "barrier of the others"));
        let report = fault(&bench, &launch);
        assert_says(&report, &["`planted_divergent_barrier`", "barrier divergence", "thread 0"]);
        assert_says(&report, &[&first, &others, "thread 32"]);
    }
}

#[test]
fn threads_that_return_before_a_barrier_are_reported() {
    for order in orders() {
        let bench = Bench::new(order);
        let launch = one_block("planted_early_return", 64).arg(bench.alloc(256).write()).int(40);
        let place = place("barriers.cu", "barrier that some threads miss");
        let text = format!("barrier at {place} reached by 40 of 64 threads");
        assert_says(&fault(&bench, &launch), &[&text, "the others have returned"]);
    }
}

#[test]
fn a_deadlock_is_reported_with_both_places() {
    for order in orders() {
        let bench = Bench::new(order);
        let warp = place("barriers.cu", "warp operation beside a barrier");
        let barrier = place("barriers.cu", "barrier beside a warp operation");
        let report = fault(&bench, &one_block("planted_deadlock", 32));
        assert_says(&report, &["deadlock", &format!("thread 0 waits at warp operation {warp}")]);
        assert_says(&report, &[&format!("thread 16 waits at barrier {barrier}")]);
    }
}

#[test]
fn warp_operations_that_differ_are_reported() {
    for order in orders() {
        let report = |kernel| {
            let bench = Bench::new(order);
            fault(&bench, &one_block(kernel, 32).arg(bench.alloc(128).write()))
        };
        let text = report("planted_divergent_mask");
        assert_says(&text, &["divergent warp operation", &place("barriers.cu", "two masks")]);
        let text = report("planted_divergent_operation");
        assert_says(&text, &["divergent warp operation", "with another operation or mask"]);
        assert_says(&text, &[&place("barriers.cu", "shuffle"), &place("barriers.cu", "ballot")]);
        let text = report("planted_mask_without_self");
        let line = place("barriers.cu", "mask without its own lane");
        assert_says(&text, &[&format!("{line}: warp operation with a mask that lacks its own")]);
        let text = report("planted_returned_lane");
        let line = place("barriers.cu", "a lane has returned");
        assert_says(&text, &[&format!("{line}: warp operation with lane "), "which has returned"]);
    }
}

#[test]
fn a_missing_barrier_gives_a_wrong_sum() {
    if emulated::SANITIZE == "thread" {
        return; // it ends the process at the race: a test in sanitizers.rs
    }
    let values: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let right = [255.0 * 128.0, 255.0 * 128.0 + 65536.0];
    let sums = |kernel, order| {
        let bench = Bench::new(order);
        let (input, output) = (bench.upload(&values), bench.alloc(8));
        let launch = Launch::new(kernel, [2, 1, 1]).arg(input.read()).arg(output.write());
        bench.run(&launch).unwrap();
        bench.download::<f32>(output)
    };
    for order in orders() {
        assert_eq!(sums("planted_tree_sum", order), right, "{order:?}");
    }
    let wrong = orders().filter(|&o| sums("planted_missing_barrier", o) != right).count();
    assert!(wrong >= 10, "the missing barrier shows in {wrong} of 13 orders");
}

#[test]
fn writes_past_shared_memory_are_reported() {
    if !emulated::SANITIZE.is_empty() {
        return; // the sanitizer ends the process: tests in sanitizers.rs
    }
    let bench = Bench::new(Order::Given);
    let launch = one_block("planted_shared_write_past_end", 64);
    let report = fault(&bench, &launch.arg(bench.alloc(256).write()).int(1));
    let line = place("shared_memory.cu", "the array that is too short");
    assert_says(&report, &[&format!("{line}: a thread wrote past the end of this shared memory")]);
    assert_says(&report, &["256 bytes, at byte 256"]);
    let bench = Bench::new(Order::Given);
    let launch = one_block("planted_dynamic_write_past_end", 64).shared(400);
    let report = fault(&bench, &launch.arg(bench.alloc(256).write()).int(101));
    assert_says(&report, &["dynamic shared memory", "400 bytes, at byte 400"]);
}

#[test]
fn too_much_shared_memory_is_reported() {
    let bench = Bench::new(Order::Given);
    let launch = one_block("planted_too_much_shared", 32).arg(bench.alloc(128).write());
    let line = place("shared_memory.cu", "256 KiB of shared memory");
    assert_says(&fault(&bench, &launch), &[&format!("{line}: more shared memory than a block")]);
}

#[test]
fn shared_memory_starts_as_nan() {
    let bench = Bench::new(Order::Given);
    // A first kernel leaves numbers there: the second must not see them.
    let out = bench.alloc(1024);
    let fill = one_block("planted_dynamic_write_past_end", 256).shared(2048);
    bench.run(&fill.arg(out.write()).int(512)).unwrap();
    bench.run(&one_block("planted_shared_unwritten", 256).arg(out.write())).unwrap();
    let values = bench.download::<f32>(out);
    let nans: Vec<usize> = (0..256).filter(|i| values[*i].is_nan()).collect();
    assert_eq!(nans, [3]);
}

#[test]
fn misaligned_asynchronous_copies_are_reported() {
    let line = place("shared_memory.cu", "asynchronous copy");
    for (from, to, which) in [(4, 0, "global"), (0, 8, "shared")] {
        let bench = Bench::new(Order::Given);
        let (input, output) = (bench.alloc(1040), bench.alloc(1024));
        let launch = one_block("planted_staged_copy", 64).arg(input.read()).arg(output.write());
        let report = fault(&bench, &launch.int(from).int(to));
        let text =
            format!("misaligned asynchronous copy: the {which} address is no multiple of 16");
        assert_says(&report, &[&line, &text, "thread (0,0,0) of block (0,0,0)"]);
    }
}

#[test]
fn a_late_wait_reads_poison() {
    for order in orders() {
        let bench = Bench::new(order);
        let values: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let (input, output) = (bench.upload(&values), bench.alloc(1024));
        let right = one_block("planted_staged_copy", 64).arg(input.read()).arg(output.write());
        bench.run(&right.int(0).int(0)).unwrap();
        assert_eq!(bench.download::<f32>(output), values);
        let wrong = one_block("planted_late_wait", 64).arg(input.read()).arg(output.write());
        bench.run(&wrong).unwrap();
        let poison = bench.download::<f32>(output).iter().filter(|v| v.is_nan()).count();
        match order {
            Order::Given => assert_eq!(poison, 256),
            Order::Random(_) => assert!((1..256).contains(&poison), "{poison}, some land early"),
        }
    }
}

#[test]
fn a_stage_that_is_filled_too_early_gives_a_wrong_sum() {
    if emulated::SANITIZE == "thread" {
        return; // it ends the process at the race
    }
    const STEPS: usize = 4;
    let values: Vec<f32> = (0..256 * STEPS).map(|i| (i * i % 997) as f32).collect();
    let place = |step: usize, thread: usize| values[4 * (64 * step + 63 - thread)];
    let right: Vec<f32> =
        (0..64).map(|thread| (0..STEPS).map(|step| place(step, thread)).sum()).collect();
    let sums = |kernel, order| {
        let bench = Bench::new(order);
        let (input, output) = (bench.upload(&values), bench.alloc(256));
        let launch = one_block(kernel, 64).arg(input.read()).arg(output.write());
        bench.run(&launch.int(STEPS)).unwrap();
        bench.download::<f32>(output)
    };
    for order in orders() {
        assert_eq!(sums("planted_ring_of_one", order), right, "{order:?}");
    }
    for order in orders().filter(|order| *order != Order::Given) {
        assert_ne!(sums("planted_early_fill", order), right, "{order:?}");
    }
}

#[test]
fn a_copy_that_outlives_its_thread_is_reported() {
    let line = place("shared_memory.cu", "asynchronous copy");
    for order in orders() {
        let bench = Bench::new(order);
        let (input, output) = (bench.alloc(1024), bench.alloc(1024));
        let launch = one_block("planted_forgotten_wait", 64).arg(input.read()).arg(output.write());
        let text = format!("{line}: asynchronous copy that is still pending as its thread returns");
        assert_says(&fault(&bench, &launch), &[&text, " of block (0,0,0)"]);
    }
}

#[test]
fn a_misaligned_ldmatrix_is_reported() {
    let bench = Bench::new(Order::Given);
    let launch = one_block("planted_misaligned_ldmatrix", 32).arg(bench.alloc(128).write());
    let line = place("shared_memory.cu", "misaligned ldmatrix");
    assert_says(&fault(&bench, &launch.int(8)), &[&format!("{line}: misaligned ldmatrix")]);
}
