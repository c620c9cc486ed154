//! Sums as tensor cores make them: aligned and cut off, where fp32 on the processor rounds. What it
//! costs is the measurement behind [`CUT_PER_PRODUCT`].

use device::Launch;
use emulated::{CUT_PER_PRODUCT, EmulatedDevice, Order};
use half::f16;

use crate::support::Bench;

/// Rows and columns of the product: one tile of `planted_gemm`.
const SIDE: usize = 64;
/// Lengths of the sums.
const PRODUCTS: [usize; 3] = [512, 4_096, 32_768];

fn device(cut: bool) -> EmulatedDevice {
    let device = EmulatedDevice::new(Order::Given);
    if cut { device.with_tensor_core_sums() } else { device }
}

/// `a [64, k] * b [k, 64]` on a device.
fn product(cut: bool, a: &[f16], b: &[f16]) -> Vec<f32> {
    let bench = Bench::of(device(cut));
    let bits = |v: &[f16]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let (a_memory, b_memory) = (bench.upload(&bits(a)), bench.upload(&bits(b)));
    let c = bench.alloc(4 * SIDE * SIDE);
    let launch = Launch::new("planted_gemm", [1, 1, 1]).block(128);
    let launch = launch.arg(a_memory.read()).arg(b_memory.read()).arg(c.write());
    bench.run(&launch.int(SIDE).int(a.len() / SIDE)).unwrap();
    bench.download(c)
}

/// Worst error over the root mean square of the product of matrices of normal values.
fn worst(cut: bool, k: usize) -> f64 {
    let normal = |seed: u64| -> Vec<f16> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        // Twelve uniform values have variance 1.
        let value = |_| f16::from_f64((0..12).map(|_| uniform()).sum::<f64>() - 6.0);
        (0..SIDE * k).map(value).collect()
    };
    let (a, b) = (normal(3), normal(4));
    let got = product(cut, &a, &b);
    let mut exact = vec![0.0; SIDE * SIDE];
    for (i, row) in exact.chunks_exact_mut(SIDE).enumerate() {
        for (left, right) in a[i * k..(i + 1) * k].iter().zip(b.chunks_exact(SIDE)) {
            let left = left.to_f64();
            row.iter_mut().zip(right).for_each(|(sum, r)| *sum += left * r.to_f64());
        }
    }
    let rms = (exact.iter().map(|e| e * e).sum::<f64>() / exact.len() as f64).sqrt();
    let errors = got.iter().zip(&exact).map(|(g, e)| (f64::from(*g) - e).abs());
    errors.fold(0.0, f64::max) / rms
}

/// 1 - 1.75 * 2^-24: fp32 rounds it to 1 - 2^-23, the model cuts the small term to 2^-24 first.
#[test]
fn a_sum_is_cut_off_below_the_largest_term() {
    let (mut a, mut b) = (vec![f16::ZERO; SIDE * 32], vec![f16::ZERO; 32 * SIDE]);
    let put = |a: &mut [f16], b: &mut [f16], k: usize, value: [f64; 2]| {
        (a[k], b[k * SIDE]) = (f16::from_f64(value[0]), f16::from_f64(value[1]));
    };
    put(&mut a, &mut b, 0, [1.0, 1.0]);
    // In another group of eight, so that 1 is the running sum.
    put(&mut a, &mut b, 8, [-1.75 / 4096.0, 1.0 / 4096.0]);
    assert_eq!(product(false, &a, &b)[0], 1.0 - 2.0f32.powi(-23));
    assert_eq!(product(true, &a, &b)[0], 1.0 - 2.0f32.powi(-24));
    // Zeros before it change nothing.
    a[0] = f16::ZERO;
    assert_eq!(product(true, &a, &b)[0], -1.75 * 2.0f32.powi(-24));
    // Infinity and NaN pass.
    put(&mut a, &mut b, 9, [f64::INFINITY, 1.0]);
    assert_eq!(product(true, &a, &b)[0], f32::INFINITY);
    put(&mut a, &mut b, 10, [f64::NEG_INFINITY, 1.0]);
    assert!(product(true, &a, &b)[0].is_nan());
}

/// The error of cutting grows with the length of the sum, beyond what rounding would show, and
/// stays within [`CUT_PER_PRODUCT`].
#[test]
fn what_cutting_costs_grows_with_the_length_of_the_sum() {
    println!("products  rounding  cutting   for each product");
    for k in PRODUCTS {
        let (rounding, cutting) = (worst(false, k), worst(true, k));
        println!("{k:>8}  {rounding:.2e}   {cutting:.2e}   {:.2e}", cutting / k as f64);
        assert!(cutting <= CUT_PER_PRODUCT * k as f64, "{k}: {cutting:e}");
    }
}
