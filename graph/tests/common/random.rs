//! Random programs of [`Mix`] nodes, determined by a seed.

use std::sync::Arc;

use graph::{Program, StateSet, TensorId};
use kernels::cpu::HostTensor;
use kernels::philox::philox4x32;

use super::mix::Mix;
use super::{tensor, vector};

/// Random numbers determined by a seed.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    seed: u32,
    count: u32,
}

impl Rng {
    pub(crate) fn new(seed: u32) -> Self {
        Self { seed, count: 0 }
    }

    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.count += 1;
        philox4x32([self.seed, 0x6772_6170], [self.count, 0, 0, 0])[0] as usize % bound
    }

    /// True with probability 1/`n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A multiple of 1/64 in 0..1.
    pub(crate) fn value(&mut self) -> f32 {
        self.below(64) as f32 / 64.0
    }

    pub(crate) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.value()).collect()
    }
}

/// A program with values for its inputs and state.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) program: Program,
    pub(crate) inputs: Vec<(String, Vec<f32>)>,
    pub(crate) state: StateSet,
}

impl Sample {
    /// The value of an input.
    pub(crate) fn input(&self, name: &str) -> HostTensor {
        let found = self.inputs.iter().find(|(n, _)| n == name);
        tensor(&found.expect("every input has contents").1)
    }
}

/// A program of `nodes` nodes with 0 to 4 inputs and 1 to 3 outputs each, lengths from 0 to 2,000
/// (few are large), scratch memory in a third of the nodes, near and far readers and some kept
/// tensors; at the end, after all readers, nodes update the state.
pub(crate) fn sample(seed: u32, nodes: usize) -> Sample {
    let mut rng = Rng::new(seed);
    let mut program = Program::new();
    let mut state = StateSet::new();
    let mut inputs = Vec::new();
    let mut readable: Vec<TensorId> = Vec::new();
    for i in 0..2 {
        let len = 1 + rng.below(50);
        readable.push(program.input(&format!("x{i}"), vector(len)));
        inputs.push((format!("x{i}"), rng.values(len)));
    }
    let mut states = Vec::new();
    for i in 0..3 {
        let len = 1 + rng.below(50);
        states.push(program.state(&format!("s{i}"), vector(len)));
        state.insert(&format!("s{i}"), tensor(&rng.values(len)));
    }
    readable.extend(&states);
    for i in 0..nodes {
        program.set_part(&format!("part{}", i % 3));
        let from = draw(&mut rng, &readable, 5);
        let op = random_op(&mut rng);
        let outputs = program.add(Arc::new(op), &from, &[]).expect("mix takes any f32");
        for (k, t) in outputs.iter().enumerate() {
            if rng.one_in(8) {
                program.keep(&format!("kept{i}.{k}"), *t);
            }
        }
        readable.extend(outputs);
    }
    let values: Vec<_> = readable.iter().copied().filter(|t| !states.contains(t)).collect();
    for s in states {
        let from = draw(&mut rng, &values, 3);
        let salt = rng.value();
        let op = Mix { outputs: vec![3], scratch: 0, salt };
        program.add(Arc::new(op), &from, &[s]).expect("state may be updated");
    }
    Sample { program, inputs, state }
}

fn draw(rng: &mut Rng, from: &[TensorId], below: usize) -> Vec<TensorId> {
    let count = rng.below(below);
    let pick = |rng: &mut Rng| {
        // Mostly recent tensors, as in a chain; otherwise any tensor, since a backward pass reads
        // old ones.
        let near = if rng.one_in(4) { from.len() } else { from.len().min(6) };
        from[from.len() - 1 - rng.below(near)]
    };
    (0..count).map(|_| pick(rng)).collect()
}

fn random_op(rng: &mut Rng) -> Mix {
    let len = |rng: &mut Rng| match rng.below(10) {
        0 => 0,
        1 => 2000,
        2..=4 => 64 * rng.below(8),
        _ => rng.below(300),
    };
    let outputs = (0..1 + rng.below(3)).map(|_| len(rng)).collect();
    let scratch = if rng.one_in(3) { 1 + rng.below(500) } else { 0 };
    Mix { outputs, scratch, salt: rng.value() }
}

/// A random stream in `0..count` for each node of `program`.
pub(crate) fn streams(seed: u32, program: &Program, count: usize) -> Vec<usize> {
    let mut rng = Rng::new(seed ^ 0x5EED);
    program.nodes().iter().map(|_| rng.below(count)).collect()
}
