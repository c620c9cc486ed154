//! Bank conflicts and sectors of the GEMMs' shared and global memory requests, counted by the
//! emulated driver and compared with a record.
//!
//! The rules are in `emulator/src/exec/counts.rs`: 32 banks of 4 bytes; requests with 16 bytes per
//! lane are served in quarter warps, with 8 bytes in half warps; sectors have 32 bytes. The ratio 1
//! is the minimum: no pass requests two words of a bank, and sectors are fully used. Not verified
//! on hardware.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use device::Device;
use kernels::case::{integers, normal};
use kernels::cpu::HostTensor;
use kernels::on_device::OpRun;
use kernels::ops::conv2d::Conv2d;
use kernels::ops::gemm_op::{GradInput, GradWeight};
use kernels::ops::layer::Layer;
use kernels::signs::signs_of;
use kernels::{GradEpilogue, OpRef, Role, TensorDesc};
use test_gpu::{Counted, Operation, TestGpu};

/// Side of the map: a 3x3 convolution of 16x16 has complete tiles, and padding at the edges.
const SIDE: usize = 16;

/// The memory operations of a GEMM, in the order of the columns of [`RECORD`].
const OPERATIONS: [Operation; 7] = [
    Operation::Ldmatrix,
    Operation::CopyToShared,
    Operation::StoreShared,
    Operation::LoadShared,
    Operation::CopyFromGlobal,
    Operation::LoadGlobal,
    Operation::StoreGlobal,
];

/// Passes or sectors relative to the minimum, for each kernel and operation; 0 if there are no such
/// requests.
///
/// A chunk of eight floats is accessed as two vectors of four, each half of a sector, so requests
/// for floats (fp32 outputs and partial sums, scale, bias) touch twice the minimum number of
/// sectors. Sign bits are complete sectors in large tiles; a warp of a small tile has half of each
/// sector. In the small tiles of weight gradients, the compiler does not read a thread's eight
/// accumulators with two loads, but with more and narrower ones.
const RECORD: [(&str, [f64; 7]); 10] = [
    ("conv2d_f16_large", [1.0, 1.0, 1.0, 2.0, 1.0, 1.059, 1.0]),
    ("conv2d_f16_small", [1.0, 1.0, 1.0, 2.0, 1.0, 1.111, 1.059]),
    ("conv2d_f16_small, split", [1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 2.0]),
    ("conv2d_reduce_f16", [0.0, 0.0, 0.0, 0.0, 0.0, 1.909, 1.059]),
    ("conv2d_grad_input_f16_large", [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]),
    ("conv2d_grad_input_f16_small", [1.0, 1.0, 1.0, 2.0, 1.0, 1.059, 1.0]),
    ("conv2d_grad_input_f16_small, split", [1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 2.0]),
    ("conv2d_reduce_gradient_f16", [0.0, 0.0, 0.0, 0.0, 0.0, 1.89, 1.0]),
    ("conv2d_grad_weight_f16_large", [1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0]),
    ("conv2d_grad_weight_f16_small", [1.0, 1.0, 1.0, 6.0, 1.0, 1.0, 2.0]),
];

/// Normally distributed inputs, each with a separate seed.
fn values(descs: &[(Role, &[usize])]) -> Vec<HostTensor> {
    let of = |(seed, (role, shape)): (u32, &(Role, &[usize]))| normal(*role, shape, seed, 0.1);
    (0..).zip(descs).map(of).collect()
}

/// The three passes (forward, both gradients) with all parts of their epilogues.
fn passes(channels: usize) -> [(OpRef, Vec<HostTensor>); 3] {
    let map: &[usize] = &[1, SIDE, SIDE, channels];
    let weight: &[usize] = &[channels, 3, 3, channels];
    let column: &[usize] = &[channels];
    let (activation, gradient, master) = (Role::Activation, Role::Gradient, Role::Master);
    let forward = Conv2d {
        scale: true,
        bias: true,
        residual: true,
        relu: true,
        signs: true,
        ..Conv2d::new(1, 1)
    };
    let x = [(activation, map), (Role::Weight, weight), (master, column), (master, column)];
    let layer = Layer::conv2d(1, 1);
    let grad_input = GradInput {
        layer,
        x: map.to_vec(),
        scale: false,
        counted: false,
        epilogue: GradEpilogue { other: true, mask: true },
    };
    let w = weight.to_vec();
    let grad_weight = GradWeight { layer, w, scale: true, counted: false };
    let g = (gradient, map);
    let mut masked = values(&[g, (Role::Weight, weight), g]);
    let signs = signs_of(&TensorDesc::new(activation, map)).expect("whole groups");
    masked.push(integers(&signs.shape, 9, i32::MIN / 2, i32::MAX / 2));
    [
        (Arc::new(forward), values(&[x[0], x[1], x[2], x[3], (activation, map)])),
        (Arc::new(grad_input), masked),
        (Arc::new(grad_weight), values(&[(activation, map), g, (master, column)])),
    ]
}

/// The counted launches of an op on a GPU with this many SMs; if few tiles fill the GPU, large
/// tiles are used.
fn launches(op: &OpRef, inputs: &[HostTensor], multiprocessors: usize) -> Vec<Counted> {
    let gpu = TestGpu::new(&format!("A100:{multiprocessors} COUNT=1"));
    let device = gpu.open();
    let stream = device.stream().unwrap();
    let run = OpRun::new(&device, stream, device.gpu(), op.as_ref(), inputs, &[]).unwrap();
    run.launch().unwrap();
    run.outputs().unwrap();
    gpu.take_counted()
}

/// No kernel requests more than recorded; if it requests less, the record must be updated.
#[test]
fn gemm_memory_traffic_is_not_above_record() {
    // Settings for large tiles, small tiles, and small tiles with split-k.
    let settings = [(128, 1), (64, 1), (128, 108)];
    let of_setting = |(channels, multiprocessors)| {
        let launches_of =
            move |(op, inputs): (OpRef, Vec<_>)| launches(&op, &inputs, multiprocessors);
        passes(channels).into_iter().flat_map(launches_of)
    };
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for launch in settings.into_iter().flat_map(of_setting) {
        let split = if launch.grid[2] > 1 { ", split" } else { "" };
        let name = format!("{}{split}", launch.kernel);
        let (_, record) = RECORD.iter().find(|(known, _)| *known == name).unwrap();
        for (operation, recorded) in OPERATIONS.iter().zip(record) {
            let ratio = (launch.requests(*operation).ratio() * 1e3).round() / 1e3;
            if ratio != *recorded {
                wrong.push(format!("{name}, {operation:?}: {ratio}, {recorded} is recorded"));
            }
        }
        seen.insert(name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.len(), RECORD.len(), "{seen:?}");
}
