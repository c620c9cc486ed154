//! Counts of passes over the banks and of sectors, for strides whose counts are known.

use device::Launch;
use emulated::{EmulatedDevice, Operation, Order, Requests};

use crate::support::{Bench, orders};

/// The requests of planted_traffic for a stride and a shift.
fn traffic(order: Order, stride: usize, shift: usize) -> impl Fn(Operation) -> Requests {
    let bench = Bench::of(EmulatedDevice::new(order).counting());
    let (from, to) = (bench.upload(&[0.0f32; 32 * 32 + 8]), bench.alloc(128));
    let launch = Launch::new("planted_traffic", [1, 1, 1]).block(32).arg(from.read());
    bench.run(&launch.arg(to.write()).int(stride).int(shift)).unwrap();
    let counted = bench.device.take_counted();
    assert_eq!(counted.len(), 1);
    move |operation| counted[0].requests(operation)
}

/// Lanes a stride apart share a bank with as many as the stride and the 32 banks have in common;
/// of 16 bytes a lane, with as many of the eight lanes of a quarter.
#[test]
fn a_stride_has_the_conflicts_that_it_shares_with_the_banks() {
    let narrow = [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (8, 8), (12, 4), (32, 32)];
    for order in orders().take(3) {
        for (stride, passes) in narrow {
            let got = traffic(order, stride, 0)(Operation::StoreShared);
            assert_eq!(
                (got.count, got.bytes, got.units, got.least),
                (1, 128, passes, 1),
                "{stride}"
            );
        }
        for (stride, ways) in [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (5, 1), (6, 2), (8, 8)] {
            let of = traffic(order, stride, 0);
            for operation in [Operation::LoadShared, Operation::Ldmatrix, Operation::CopyToShared] {
                let got = of(operation);
                assert_eq!((got.units, got.least), (4 * ways, 4), "{operation:?}, {stride}");
                assert_eq!((got.worst, got.ratio()), (4 * ways, ways as f64));
            }
        }
    }
}

#[test]
fn sectors_are_those_that_the_lanes_touch() {
    // Stride, shift, sectors, and those that would do.
    for (stride, shift, sectors, least) in
        [(0, 0, 1, 1), (1, 0, 4, 4), (1, 3, 5, 4), (2, 0, 8, 4), (8, 0, 32, 4), (32, 7, 32, 4)]
    {
        let of = traffic(Order::Given, stride, shift);
        let got = of(Operation::LoadGlobal);
        assert_eq!((got.count, got.units, got.least), (1, sectors, least), "{stride}, {shift}");
        let copied = of(Operation::CopyFromGlobal);
        assert_eq!((copied.bytes, copied.units, copied.least), (512, 16, 16));
        assert_eq!(of(Operation::StoreGlobal).units, 4);
    }
}

#[test]
fn products_are_counted_by_warp() {
    let bench = Bench::of(EmulatedDevice::new(Order::Random(3)).with_os_threads(2).counting());
    let out = bench.alloc(4096);
    let launch = Launch::new("planted_products", [1, 1, 1]).block(96).arg(out.write()).int(7);
    bench.run(&launch).unwrap();
    let counted = bench.device.take_counted();
    assert_eq!(counted[0].requests(Operation::Mma).count, 3 * 7);
    assert!(counted[0].sites[0].place.starts_with("semantics.cu:"), "{:?}", counted[0].sites);
    assert!(bench.device.take_counted().is_empty());
}

/// A device that does not count keeps nothing.
#[test]
fn counting_is_off_by_default() {
    let bench = Bench::new(Order::Given);
    let out = bench.alloc(4096);
    let launch = Launch::new("planted_products", [1, 1, 1]).block(32).arg(out.write()).int(1);
    bench.run(&launch).unwrap();
    assert!(bench.device.take_counted().is_empty());
}
