//! Nodes whose tasks are not kernels, in captured steps: a copy, and an all-reduce over a group.

use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{AllReduce, Device, DeviceCopy, Gpu, LaunchArgs, Task};
use graph::program::Pass;
use graph::{Program, StateSet};
use kernels::cpu::CpuArgs;
use kernels::ops::relu_mask::ReluMask;
use kernels::{Op, OpError, Precision, Role, TensorDesc};

use crate::common::Build;
use crate::common::on_device::{captured, halves, prepared};

const LEN: usize = 300;

/// `y = sum over ranks of x`: a copy to scratch memory, then an all-reduce of the copy into `y`.
#[derive(Debug)]
struct AllReduceOp;

impl Op for AllReduceOp {
    fn name(&self) -> &'static str {
        "sum_over_ranks"
    }

    fn infer(&self, i: &[TensorDesc], _: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![i[0].clone()])
    }

    fn cuda_workspace_bytes(&self, _: &Gpu, i: &[TensorDesc], _: &[TensorDesc]) -> usize {
        i[0].gpu_bytes(Precision::Fp16)
    }

    fn tasks(&self, args: &LaunchArgs<'_>) -> Vec<Task> {
        let [x, y] = [args.inputs[0], args.outputs[0]];
        let copy = DeviceCopy {
            to: args.workspace.ptr,
            from: x.ptr,
            bytes: x.desc.gpu_bytes(Precision::Fp16),
        };
        let sum = AllReduce { to: y.ptr, from: copy.to, len: y.len(), dtype: y.dtype() };
        vec![Task::Copy(copy), Task::AllReduce(sum)]
    }

    fn run_cpu(&self, _: &mut CpuArgs<'_>) {
        unreachable!("only for the device")
    }
}

/// Two all-reduces between ReLU gradients, some of them on the second stream.
fn program() -> Arc<Program> {
    let mut program = Program::new();
    let halves = TensorDesc::new(Role::Gradient, &[LEN]);
    let (a, b) = (program.input("a", halves.clone()), program.input("b", halves));
    program.set_pass(Pass::Backward);
    let x = program.node(ReluMask, [a, b]);
    let first = program.node(AllReduceOp, [x]);
    let masked = program.node(ReluMask, [first, b]);
    let second = program.node(AllReduceOp, [masked]);
    program.keep("first", first);
    program.keep("second", second);
    Arc::new(program)
}

/// An element of the first input.
fn value(i: usize, step: usize, rank: usize) -> f32 {
    ((i * 7 + step * 5 + rank) % 11) as f32 - 4.0
}

/// The kept tensors of three steps on one device.
fn run(device: CudaDevice) -> Vec<f32> {
    let rank = device.ranks().rank;
    let programs = vec![prepared(&device, program())];
    let captured = captured(Arc::new(device), programs, &StateSet::new(), &[]);
    let (_, mut executor) = captured.expect("a captured step");
    let mut seen = vec![];
    for step in 0..3 {
        let a: Vec<f32> = (0..LEN).map(|i| value(i, step, rank)).collect();
        executor.write_input(0, "a", &halves(&a)).expect("an input");
        // The mask is the same on every rank.
        executor.write_input(0, "b", &halves(&[1.0; LEN])).expect("an input");
        let number = executor.submit(0).expect("a launch");
        executor.until_done(number).expect("no fault");
        for name in ["first", "second"] {
            seen.extend_from_slice(executor.read(0, name).expect("kept").as_f32());
        }
    }
    seen
}

/// Runs all ranks, each in its own thread.
fn run_group(gpu: &str, count: usize) -> Vec<Vec<f32>> {
    std::thread::scope(|scope| {
        let ranks = test_gpu::group(gpu, count).into_iter();
        let threads: Vec<_> = ranks.map(|device| scope.spawn(|| run(device))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn all_reduce_nodes_sum_over_ranks() {
    for (gpu, count) in [("A100", 2), ("A100 SEED=5", 3)] {
        let ranks = run_group(gpu, count);
        assert!(ranks.iter().all(|rank| *rank == ranks[0]), "every rank holds the same bits");
        let sum = |i, step| (0..count).map(|rank| value(i, step, rank)).sum::<f32>();
        for (step, kept) in ranks[0].chunks_exact(2 * LEN).enumerate() {
            for i in 0..LEN {
                assert_eq!(kept[i], sum(i, step));
                assert_eq!(kept[LEN + i], count as f32 * sum(i, step));
            }
        }
    }
}

#[test]
fn single_device_matches_group_of_one() {
    let alone = run(test_gpu::open("A100"));
    assert_eq!(run_group("A100", 1), [alone]);
}

/// If ranks pass different lengths, all ranks get the error, and no rank hangs.
#[test]
fn mismatched_all_reduce_lengths_fail_on_every_rank() {
    let faults: Vec<_> = std::thread::scope(|scope| {
        let ranks = test_gpu::group("A100", 2).into_iter().enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, device)| {
                scope.spawn(move || {
                    let [from, to] = [64, 64].map(|bytes| device.alloc(bytes).expect("memory"));
                    let stream = device.stream().expect("a stream");
                    let sum = AllReduce { to, from, len: 4 + rank, dtype: device::DType::F32 };
                    device.all_reduce(stream, &sum).expect("it is given");
                    // NCCL's error is returned when the caller polls the device, as the host does
                    // between steps.
                    std::iter::repeat_with(|| device.idle()).find_map(Result::err)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (rank, fault) in faults.iter().enumerate() {
        let fault = fault.as_ref().expect("lengths differ").to_string();
        let wanted = "rank 0 adds 4 of float (call 2, sum 2), rank 1 adds 5 of float";
        assert!(fault.contains(wanted), "rank {rank}: {fault}");
    }
}

/// Two unordered all-reduces could run in different orders on different ranks.
#[test]
fn unordered_all_reduces_are_rejected() {
    let device = test_gpu::group("A100", 1).remove(0);
    let [a, b, c, d] = [16; 4].map(|bytes| device.alloc(bytes).expect("memory"));
    let (first, second) = (device.stream().expect("one"), device.stream().expect("one"));
    let sum = |from, to| AllReduce { to, from, len: 4, dtype: device::DType::F32 };
    let event = || device.event().expect("an event");
    device.begin_capture(first).expect("a capture");
    let (fork, join) = (event(), event());
    device.record(fork, first).expect("an event");
    device.wait(second, fork).expect("a wait");
    device.all_reduce(first, &sum(a, b)).expect("it is captured");
    device.all_reduce(second, &sum(c, d)).expect("it is captured");
    device.record(join, second).expect("an event");
    device.wait(first, join).expect("a wait");
    let refused = device.end_capture(first).expect_err("no order").to_string();
    assert!(refused.contains("are unordered"), "{refused}");
}
