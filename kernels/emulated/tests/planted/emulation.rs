//! Right kernels, and what CUDA's documents say of their results.

use device::Launch;
use emulated::{EmulatedDevice, Order};
use half::f16;

use crate::support::{Bench, orders};

/// Cheap random words.
fn random(seed: u32) -> impl Iterator<Item = u32> {
    let mut state = u64::from(seed) * 0x9E37_79B9_7F4A_7C15 + 1;
    std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    })
}

fn to_half(bench: &Bench, values: &[f32]) -> Vec<u16> {
    let (input, output) = (bench.upload(values), bench.alloc(2 * values.len()));
    let launch = Launch::over("planted_round_to_half", values.len()).arg(input.read());
    bench.run(&launch.arg(output.write()).int(values.len())).unwrap();
    bench.download(output)
}

fn from_half(bench: &Bench, values: &[u16]) -> Vec<f32> {
    let (input, output) = (bench.upload(values), bench.alloc(4 * values.len()));
    let launch = Launch::over("planted_widen_half", values.len()).arg(input.read());
    bench.run(&launch.arg(output.write()).int(values.len())).unwrap();
    bench.download(output)
}

#[test]
fn every_half_survives_a_float() {
    let bench = Bench::new(Order::Given);
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let floats = from_half(&bench, &all);
    let back = to_half(&bench, &floats);
    for bits in all {
        let (float, half) = (floats[bits as usize], f16::from_bits(back[bits as usize]));
        if f16::from_bits(bits).is_nan() {
            assert!(float.is_nan() && half.is_nan(), "{bits:#x}");
        } else {
            assert_eq!(float.to_bits(), f16::from_bits(bits).to_f32().to_bits(), "{bits:#x}");
            assert_eq!(half.to_bits(), bits);
        }
    }
}

#[test]
fn floats_round_to_the_nearest_half() {
    let bench = Bench::new(Order::Given);
    let count = if emulated::SANITIZE.is_empty() { 2_000_000 } else { 20_000 };
    // All floats, and those near the halves, where ties and subnormal results are.
    let mut values: Vec<f32> = random(1).take(count).map(f32::from_bits).collect();
    values.extend(random(2).take(count).map(|word| {
        let near = f16::from_bits(word as u16).to_f32().to_bits();
        f32::from_bits(near.wrapping_add(word >> 16 & 0x3000).wrapping_add(word >> 30))
    }));
    for (value, got) in values.iter().zip(to_half(&bench, &values)) {
        let (got, expected) = (f16::from_bits(got), f16::from_f32(*value));
        let equal = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(equal, "{value:e} became {got:?}, not {expected:?}");
    }
}

/// Row `row` of planted_warp_operations, for thread `t` of `values`.
fn warp_operation(row: usize, values: &[i32], t: usize) -> i32 {
    let (warp, lane) = (t / 32 * 32, t % 32);
    let (value, of) = (values[t], |l: usize| values[warp + l]);
    let mask = |test: &dyn Fn(i32) -> bool| {
        (0..32).filter(|l| test(of(*l))).fold(0u32, |mask, l| mask | 1 << l) as i32
    };
    match row {
        0 => of(value as usize % 32),
        1 => of(lane / 8 * 8 + value as usize % 8),
        2 => of(if lane >= 3 { lane - 3 } else { lane }),
        3 => of(if lane % 16 + 5 < 16 { lane + 5 } else { lane }),
        4 => of(lane ^ 9),
        5 => mask(&|v| v % 3 == 0),
        6 => mask(&|v| v % 5 == value % 5),
        7 => i32::from((0..32).any(|l| of(l) > 40)),
        8 => i32::from((0..32).all(|l| of(l) >= 0)),
        9 => of(lane ^ if lane < 16 { 1 } else { 2 }),
        _ => values.iter().filter(|v| *v % 2 != 0).count() as i32,
    }
}

#[test]
fn warp_operations_do_what_the_programming_guide_says() {
    for (i, order) in orders().enumerate() {
        let bench = Bench::new(order);
        let values: Vec<i32> = random(i as u32).take(64).map(|w| (w % 43) as i32).collect();
        let (input, output) = (bench.upload(&values), bench.alloc(4 * 64 * 11));
        let launch = Launch::new("planted_warp_operations", [1, 1, 1]).block(64);
        bench.run(&launch.arg(input.read()).arg(output.write())).unwrap();
        for (i, got) in bench.download::<i32>(output).into_iter().enumerate() {
            let (row, t) = (i / 64, i % 64);
            assert_eq!(got, warp_operation(row, &values, t), "row {row}, thread {t}, {order:?}");
        }
    }
}

#[test]
fn ldmatrix_hands_out_fragments_as_ptx_says() {
    let bench = Bench::new(Order::Given);
    let rows: Vec<u16> = (0..256).collect(); // row r, column c: 8 * r + c
    let (input, output) = (bench.upload(&rows), bench.alloc(32 * 8 * 4));
    let launch = Launch::new("planted_fragments", [1, 1, 1]).block(32);
    bench.run(&launch.arg(input.read()).arg(output.write())).unwrap();
    let got = bench.download::<u32>(output);
    for lane in 0..32 {
        for matrix in 0..4 {
            let element = |row: usize, column: usize| (64 * matrix + 8 * row + column) as u32;
            let (row, column) = (lane / 4, 2 * (lane % 4));
            let plain = element(row, column) | element(row, column + 1) << 16;
            let transposed = element(column, row) | element(column + 1, row) << 16;
            assert_eq!(got[lane * 8 + matrix], plain, "lane {lane}, matrix {matrix}");
            assert_eq!(got[lane * 8 + 4 + matrix], transposed, "lane {lane}, matrix {matrix}");
        }
    }
}

/// A product of small integers is exact in every order of summation.
fn product(device: EmulatedDevice, [m, n, k]: [usize; 3]) -> (Vec<f32>, Vec<f32>) {
    let bench = Bench::of(device);
    let integers =
        |seed, len| -> Vec<f32> { random(seed).take(len).map(|w| (w % 17) as f32 - 8.0).collect() };
    let (a, b) = (integers(3, m * k), integers(4, k * n));
    let halves = |v: &[f32]| v.iter().map(|x| f16::from_f32(*x).to_bits()).collect::<Vec<_>>();
    let (da, db) = (bench.upload(&halves(&a)), bench.upload(&halves(&b)));
    let dc = bench.alloc(4 * m * n);
    let launch = Launch::new("planted_gemm", [n / 64, m / 64, 1]).block(128);
    let launch = launch.arg(da.read()).arg(db.read()).arg(dc.write()).int(n).int(k);
    bench.run(&launch).unwrap();
    let sum = |i: usize| (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]).sum();
    (bench.download(dc), (0..m * n).map(sum).collect())
}

#[test]
fn tensor_core_products_are_those_of_matrices() {
    for order in orders() {
        let (got, expected) = product(EmulatedDevice::new(order), [64, 128, 48]);
        assert_eq!(got, expected, "{order:?}");
    }
    let device = EmulatedDevice::new(Order::Random(5)).with_os_threads(2);
    let (got, expected) = product(device, [128, 128, 32]);
    assert_eq!(got, expected);
}

#[test]
fn a_right_kernel_gives_the_same_bits_in_every_order_of_blocks() {
    let values: Vec<f32> = random(7).take(37 * 256).map(|w| w as f32 * 1e-9 - 2.0).collect();
    let run = |device| {
        let bench = Bench::of(device);
        let (input, output) = (bench.upload(&values), bench.alloc(4 * 37));
        let launch = Launch::new("planted_tree_sum", [37, 1, 1]).arg(input.read());
        bench.run(&launch.arg(output.write())).unwrap();
        bench.download::<u32>(output)
    };
    let expected = run(EmulatedDevice::new(Order::Given));
    for order in orders() {
        assert_eq!(run(EmulatedDevice::new(order)), expected, "{order:?}");
        assert_eq!(run(EmulatedDevice::new(order).with_os_threads(3)), expected, "{order:?}");
    }
}

#[test]
fn every_block_of_every_dimension_runs_once() {
    for order in orders() {
        for grid in [[1, 1, 1], [2, 1, 1], [7, 5, 3], [64, 2, 1], [3, 1, 11]] {
            let bench = Bench::of(EmulatedDevice::new(order).with_os_threads(2));
            let count = bench.upload(&[0i32]);
            let launch = Launch::new("planted_count_blocks", grid).block(32).arg(count.update());
            bench.run(&launch).unwrap();
            let blocks: usize = grid.iter().product();
            assert_eq!(bench.download::<i32>(count), [blocks as i32], "{grid:?}, {order:?}");
        }
    }
}
