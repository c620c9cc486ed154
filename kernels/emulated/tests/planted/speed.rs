//! How fast emulation is: every test of a kernel waits for it. Prints; asserts nothing.

use device::Launch;
use emulated::{EmulatedDevice, Order};

use crate::support::Bench;

/// Seconds that this thread has spent on a processor: others may be at work on the machine.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}

/// Seconds of the fastest of five runs.
fn seconds(bench: &Bench, launch: &Launch) -> f64 {
    let run = |_| {
        let started = processor_seconds();
        bench.run(launch).unwrap();
        processor_seconds() - started
    };
    (0..3).map(run).fold(f64::INFINITY, f64::min)
}

#[test]
fn prints_the_cost_of_what_kernels_do() {
    if !emulated::SANITIZE.is_empty() {
        println!("SKIPPED: instrumented code says nothing about speed");
        return;
    }
    for order in [Order::Given, Order::Random(2)] {
        let bench = Bench::of(EmulatedDevice::new(order));
        let out = bench.alloc(4 * 1024);
        let each = |kernel, threads: u32| {
            let warps = threads as usize / 32;
            let count = 30_000 / warps;
            let launch = Launch::new(kernel, [1, 1, 1]).block(threads).arg(out.write()).int(count);
            seconds(&bench, &launch) * 1e9 / (count * warps) as f64
        };
        println!("{order:?}:");
        for threads in [32, 256, 1024] {
            println!(
                "  {threads:>4} threads: a warp's shuffle {:.0}, product {:.0}, barrier {:.0} ns",
                each("planted_shuffles", threads),
                each("planted_products", threads),
                each("planted_barriers", threads)
            );
        }
        let elements = 1 << 19;
        let big = bench.alloc(4 * elements);
        let fill = Launch::over("planted_fill", elements).arg(big.write()).arg(1.0f32);
        let fill = seconds(&bench, &fill.int(0).int(elements));
        println!("  a thread without waits: {:.1} ns", fill * 1e9 / elements as f64);
        let (m, n, k) = (256, 256, 288);
        let (a, b, c) = (bench.alloc(2 * m * k), bench.alloc(2 * k * n), bench.alloc(4 * m * n));
        let gemm = Launch::new("planted_gemm", [n / 64, m / 64, 1]).block(128);
        let gemm = gemm.arg(a.read()).arg(b.read()).arg(c.write()).int(n).int(k);
        let gflops = 2e-9 * (m * n * k) as f64 / seconds(&bench, &gemm);
        println!("  matrix product: {gflops:.2} GFLOP/s");
    }
}
