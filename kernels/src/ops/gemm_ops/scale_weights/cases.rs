//! Test and benchmark cases of `scale_weights`, a backward op without a gradient.

use super::ScaleWeights;
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No tensor; sizes 0, 1, prime numbers and near the block size; filters whose length is not a
/// multiple of a vector; more tensors than a launch supports; and a bottleneck of res4.
pub fn cases() -> Vec<OpCase> {
    let lists: [(&str, &[&[usize]]); 5] = [
        ("no weights", &[]),
        ("no filters", &[&[0, 3], &[3, 0]]),
        ("one number", &[&[1, 1]]),
        ("blocks and neighbours", &[&[4095, 1], &[512, 8], &[4097, 1], &[13, 3, 3, 7], &[11, 384]]),
        ("a bottleneck of res4", &[&[256, 1, 1, 1024], &[256, 3, 3, 256], &[1024, 1, 1, 256]]),
    ];
    let shapes: Vec<[usize; 2]> = (0..131).map(|i| [i % 7 + 1, i * i % 97]).collect();
    let many: Vec<&[usize]> = shapes.iter().map(<[usize; 2]>::as_slice).collect();
    let named = lists.into_iter().chain([("131 tensors", many.as_slice())]);
    named.map(|(label, shapes)| case(label, shapes)).collect()
}

fn case(label: &str, shapes: &[&[usize]]) -> OpCase {
    let numbered = || (0..).zip(shapes);
    let weights = numbered().map(|(i, shape)| normal(Role::Weight, shape, i, 0.1));
    let scale =
        |(i, shape): (u32, &&[usize])| uniform(Role::Master, &shape[..1], 1000 + i, 0.5, 1.5);
    let inputs = weights.chain(numbered().map(scale)).collect();
    OpCase::new(label, ScaleWeights, inputs)
}
