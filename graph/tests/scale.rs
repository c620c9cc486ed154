//! Programs as large as an actual training step must be planned quickly.

use std::time::Instant;

use graph::Program;
use graph::autodiff::differentiate;

use crate::common::toy::Toy;
use crate::common::{Build, on_streams, vector};

/// Planning a step of this many nodes must take less than a second.
const NODES: usize = 2000;

/// A deep net and its backward pass: every activation stays alive until its gradient is computed,
/// which is the hardest case for the planner. Tensor lengths vary like those of feature maps.
fn training_like() -> Program {
    let mut program = Program::new();
    let seed = program.input("seed", vector(1));
    let mut losses = Vec::new();
    let mut params = Vec::new();
    let mut branch = 0;
    while 3 * program.nodes().len() < NODES {
        let len = 64 << (branch % 7);
        let mut x = program.state(&format!("w{branch}"), vector(len));
        params.push(x);
        for depth in 0..20 {
            x = match depth % 3 {
                0 => {
                    let [_, product] = program.apply(Toy::Cross, [x, x]).expect("f32");
                    product
                }
                _ => program.node(Toy::Square, [x]),
            };
        }
        losses.push(program.node(Toy::Total, [x]));
        branch += 1;
    }
    differentiate(&mut program, &losses, seed, &params).expect("reached");
    program
}

#[test]
fn two_thousand_nodes_are_planned_in_one_second() {
    let program = training_like();
    let n = program.nodes().len();
    assert!(n >= NODES, "{n} nodes");
    for count in [1, 4] {
        let streams: Vec<_> = (0..n).map(|i| i / 7 % count).collect();
        let seconds = (0..3).map(|_| {
            let started = Instant::now();
            let (schedule, plan) = on_streams(&program, &streams);
            let seconds = started.elapsed().as_secs_f64();
            let peak = plan.peak_live_bytes(&schedule);
            let ratio = plan.arena_bytes() as f64 / peak as f64;
            let blocks = plan.blocks().len();
            println!("{n} nodes, {blocks} blocks, {count} streams: {seconds:.3} s, {ratio:.3}");
            assert!(count > 1 || ratio <= 1.05, "{ratio:.3} times the bytes alive at once");
            seconds
        });
        let best = seconds.fold(f64::INFINITY, f64::min);
        if cfg!(not(debug_assertions)) {
            assert!(best < 1.0, "{count} streams: {best:.3} s");
        }
    }
}
