//! Test and benchmark cases of `stem`. The op is frozen and has no gradient.

use super::{CHANNELS, KERNEL, STORED_CHANNELS, Stem};
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No images, maps smaller than the window, odd heights, more positions than a tile, filters that
/// are not a multiple of a tile or of 8, and a part of a training image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        ([0, 5, 4], 3),
        ([1, 1, 2], 1),
        ([2, 5, 6], 11),
        ([2, 13, 22], 72),
        ([1, 11, 8], 64),
        ([1, 64, 96], 64),
    ];
    shapes.into_iter().map(|(image, filters)| case(image, filters)).collect()
}

fn case([images, height, width]: [usize; 3], filters: usize) -> OpCase {
    let mut x = normal(Role::Activation, &[images, height, width, STORED_CHANNELS], 1, 1.0);
    for pixel in x.as_f32_mut().chunks_exact_mut(STORED_CHANNELS) {
        pixel[CHANNELS..].fill(0.0);
    }
    let scale = 1.0 / ((KERNEL * KERNEL * CHANNELS) as f32).sqrt();
    let inputs = vec![
        x,
        normal(Role::Weight, &[filters, KERNEL, KERNEL, CHANNELS], 2, scale),
        uniform(Role::Master, &[filters], 3, 0.5, 2.0),
        normal(Role::Master, &[filters], 4, 1.0),
    ];
    OpCase::new(format!("{images} of {height}x{width}, {filters} filters"), Stem, inputs)
}
