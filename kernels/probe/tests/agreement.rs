//! Every variant that is not for Hopper alone, on the emulated device, against today's kernel: the
//! same bits where it sums in the same order, else within rounding. The wgmma variants do not run
//! here.

use device::Device;
use emulated::{EmulatedDevice, Order};
use probe::Trial;
use probe::shapes::{SMALL, Shape};
use probe::variants::{VARIANTS, Variant};

fn trial(device: &dyn Device, shape: Shape) -> Trial<'_> {
    Trial::new(device, shape, &VARIANTS[0]).expect("the baseline runs")
}

#[test]
fn every_variant_agrees_with_todays_kernel() {
    for (seed, shape) in SMALL.into_iter().enumerate() {
        let device = EmulatedDevice::new(Order::Random(seed as u64 + 1)).with_os_threads(2);
        let trial = trial(&device, shape);
        for variant in VARIANTS.into_iter().filter(|variant| !variant.hopper) {
            let found = trial.check(&variant).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
            let fault = found.fault(variant.same_bits(&shape), &shape);
            assert_eq!(fault, None, "{}", variant.name);
        }
    }
}

/// The comparison sees what is not written, other orders of sums, and other sums.
#[test]
fn a_variant_that_is_wrong_is_told_so() {
    let device = EmulatedDevice::new(Order::Given).with_os_threads(2);
    let shape = SMALL[0];
    let trial = trial(&device, shape);
    let [baseline, ..] = VARIANTS;
    let half = Variant { tile: [256, 128], ..baseline };
    let found = trial.check(&half).expect("it runs");
    let sentence = found.fault(true, &shape).expect("half of the output is poison");
    // Two column tiles and one row tile instead of two: rows from 128 on are not written.
    assert!(sentence.starts_with("small_3x3: 9520 values differ by more than"), "{sentence}");
    assert!(sentence.ends_with("first row 128, column 0"), "{sentence}");

    let other = Variant::named("taps_ca").expect("a variant");
    let found = trial.check(&other).expect("it runs");
    assert!(found.fault(false, &shape).is_none() && found.worst < 1.0, "{found:?}");
    let sentence = found.fault(true, &shape).expect("another order has other bits");
    assert!(sentence.contains("values differ in bits"), "{sentence}");
}
