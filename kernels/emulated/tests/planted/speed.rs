//! How fast emulation is: everything that is tested here waits for it. Prints; asserts nothing.

use std::time::Instant;

use emulated::{EmulatedDevice, Order};
use kernels::device::Launch;

use crate::support::Bench;

/// Seconds of the fastest of three runs.
fn seconds(bench: &Bench, launch: &Launch) -> f64 {
    let run = |_| {
        let started = Instant::now();
        bench.run(launch).unwrap();
        started.elapsed().as_secs_f64()
    };
    (0..3).map(run).fold(f64::INFINITY, f64::min)
}

#[test]
fn prints_the_cost_of_what_kernels_do() {
    for order in [Order::Given, Order::Random(2)] {
        let bench = Bench::of(EmulatedDevice::new(order));
        let count = if emulated::SANITIZE.is_empty() { 2000 } else { 20 };
        let out = bench.alloc(4 * 1024);
        let each = |kernel, threads: u32| {
            let launch = Launch::new(kernel, [1, 1, 1]).block(threads).arg(out.write()).int(count);
            let warps = f64::from(threads / 32);
            seconds(&bench, &launch) * 1e9 / count as f64 / warps
        };
        println!("{order:?}:");
        for threads in [32, 256, 1024] {
            println!(
                "  {threads:>4} threads: shuffle {:.0} ns, product {:.0} ns, barrier {:.0} ns a warp",
                each("planted_shuffles", threads),
                each("planted_products", threads),
                each("planted_barriers", threads)
            );
        }
        let elements = if emulated::SANITIZE.is_empty() { 1 << 20 } else { 1 << 12 };
        let big = bench.alloc(4 * elements);
        let fill = Launch::over("planted_fill", elements).arg(big.write()).arg(1.0f32);
        let fill = seconds(&bench, &fill.int(0).int(elements));
        println!("  a thread without waits: {:.1} ns", fill * 1e9 / elements as f64);
        let (m, n, k) = if emulated::SANITIZE.is_empty() { (512, 256, 576) } else { (64, 64, 64) };
        let (a, b, c) = (bench.alloc(2 * m * k), bench.alloc(2 * k * n), bench.alloc(4 * m * n));
        let gemm = Launch::new("planted_gemm", [n / 64, m / 64, 1]).block(128);
        let gemm = gemm.arg(a.read()).arg(b.read()).arg(c.write()).int(n).int(k);
        let gflops = 2e-9 * (m * n * k) as f64 / seconds(&bench, &gemm);
        println!("  matrix product: {gflops:.2} GFLOP/s");
    }
}
