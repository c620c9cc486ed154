//! `probe --list`: the available measurements, and the predictions.

use device::manifest::Kernel;
use kernels::compiled::kernels;
use probe::compiled::variants;
use probe::expected::{Gpu, expected};
use probe::identity::CANDIDATES;
use probe::shapes::STEP;
use probe::variants::VARIANTS;

/// Prints all tables.
pub(crate) fn print() -> anyhow::Result<()> {
    println!("{:<14} {:>15} {:>11}  question", "variant", "registers 80/90", "shared KiB");
    for variant in VARIANTS {
        let set = if variant.is_baseline() { kernels() } else { variants() };
        let registers = |kernel: &Kernel, sm: &str| match kernel.on.get(sm) {
            Some(taken) => taken.registers.to_string(),
            None => "-".to_string(),
        };
        let h100 = device::Gpu::h100().capability;
        let taken = match set.manifest().kernel(variant.kernel, h100) {
            Some((_, kernel)) => {
                format!("{}/{}", registers(kernel, "sm_80"), registers(kernel, "sm_90a"))
            }
            None => "not compiled".into(),
        };
        let shared = variant.shared_bytes() / 1024;
        println!("{:<14} {taken:>15} {shared:>11}  {}", variant.name, variant.question);
    }
    println!("\n{:<14} {:>9} {:>7}  node of the step", "shape", "GFLOP", "MB");
    for shape in STEP {
        let (gflop, mb) = (shape.flops() / 1e9, shape.bytes() / 1e6);
        println!("{:<14} {gflop:>9.1} {mb:>7.1}  {}", shape.name, shape.node);
    }
    println!("\nexpected TFLOP/s on A100 / H100 / H200: predictions, not verified on hardware");
    print!("{:<14}", "");
    STEP.iter().for_each(|shape| print!(" {:>17}", shape.name));
    println!();
    for variant in VARIANTS {
        print!("{:<14}", variant.name);
        for shape in STEP {
            let figure = |gpu| match expected(&variant, &shape, gpu) {
                Some(expected) => format!("{:.0}", expected.tflops),
                None => "-".into(),
            };
            let cell = [Gpu::A100, Gpu::H100, Gpu::H200].map(figure).join("/");
            print!(" {cell:>17}");
        }
        println!();
    }
    println!("\nidentity: descriptors of sm_90a, checked before the wgmma variants run");
    for candidate in CANDIDATES {
        let holds = if candidate.holds { "holds" } else { "does not hold" };
        println!("{:<24} expected: {holds}", candidate.name);
    }
    Ok(())
}
