//! Initial values of parameters: a pure function of seed, parameter name and index.

use kernels::philox::philox4x32;

use crate::model::{Init, Param};

/// Initial values of `param`, in our layout.
pub(super) fn values(param: &Param, seed: u64) -> Vec<f32> {
    let len: usize = param.shape.iter().product();
    let stream = fnv1a(&param.name);
    let word = |i: usize| {
        let counter = [i as u32, (i as u64 >> 32) as u32, stream as u32, (stream >> 32) as u32];
        philox4x32([seed as u32, (seed >> 32) as u32], counter)
    };
    match param.init {
        Init::Constant(value) => vec![value; len],
        Init::Uniform { bound } => {
            (0..len).map(|i| bound * (2.0 * unit(word(i)[0]) - 1.0)).collect()
        }
        Init::Normal { std } => (0..len)
            .map(|i| {
                let w = word(i);
                let radius = (-2.0 * (1.0 - unit(w[0])).ln()).sqrt();
                std * radius * (2.0 * std::f32::consts::PI * unit(w[1])).cos()
            })
            .collect(),
    }
}

/// A number in [0, 1) from 32 random bits.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / (1u32 << 24) as f32
}

/// FNV-1a, 64 bits: selects a separate random stream for each parameter.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
