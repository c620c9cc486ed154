//! Gradients all-reduced in buckets: correct on every rank, for any execution order, and concurrent
//! with the rest of the backward pass.

use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Device, Gpu};
use graph::buckets::all_reduce_buckets;
use graph::capture::{Work, capture};
use graph::program::Pass;
use graph::{Program, Schedule, StateSet, TensorId, streams};
use kernels::ops::bias_grad::BiasGrad;
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::relu_mask::ReluMask;
use kernels::{Role, TensorDesc};

use crate::common::Build;
use crate::common::on_device::{captured, launches, prepared, refusals_without_a_wait};
use crate::common::random::Rng;

const ROWS: usize = 4;
/// Number of columns of each layer, which is the length of its gradient.
const WIDTHS: [usize; 9] = [3, 64, 81, 130, 8, 257, 1, 40, 12];
const STEPS: usize = 3;

/// A backward pass with one gradient per width, on the second stream, then the first node of the
/// update. With `buckets` (ranks and bucket bytes) the update reads the means of the gradients over
/// ranks.
fn program(buckets: Option<(usize, usize)>) -> (Program, Vec<TensorId>) {
    let mut p = Program::new();
    p.set_pass(Pass::Backward);
    let layer = |(i, width): (usize, &usize)| {
        let x = p.input(&format!("x{i}"), TensorDesc::new(Role::Gradient, &[ROWS, *width]));
        let masked = p.node(ReluMask, [x, x]);
        p.node(BiasGrad { counted: false }, [masked])
    };
    let grads: Vec<TensorId> = WIDTHS.iter().enumerate().map(layer).collect();
    let mut sums = grads.clone();
    if let Some((ranks, bytes)) = buckets {
        // The gradients are listed in a different order than the nodes.
        let shuffled: Vec<TensorId> = (0..grads.len()).map(|i| grads[i * 5 % 9]).collect();
        let means = all_reduce_buckets(&mut p, &shuffled, 1.0 / ranks as f32, bytes);
        for (i, mean) in means.expect("gradients").into_iter().enumerate() {
            sums[i * 5 % 9] = mean;
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        p.keep(&format!("sum{i}"), *sum);
    }
    p.set_pass(Pass::Update);
    let [_, finite] = p.apply(GradNorms {}, sums).expect("gradients");
    p.keep("finite", finite);
    (p, grads)
}

/// The inputs of a layer on one rank.
fn layer(width: usize, step: usize, rank: usize, factor: f32) -> Vec<half::f16> {
    let mut rng = Rng::new((width * 100 + step * 10 + rank) as u32);
    (0..ROWS * width).map(|_| half::f16::from_f32((rng.value() - 0.3) * factor)).collect()
}

/// The means of a layer's gradients over ranks.
fn means(width: usize, step: usize, ranks: usize, factor: f32) -> Vec<f64> {
    let mut means = vec![0.0; width];
    for rank in 0..ranks {
        for (i, x) in layer(width, step, rank, factor).iter().enumerate() {
            means[i % width] += x.to_f64().max(0.0) / ranks as f64;
        }
    }
    means
}

/// Runs a captured graph on one rank; returns the kept tensors after each step: all sums, then the
/// finite flag.
fn run(device: CudaDevice, program: Program, factor: f32) -> Vec<(Vec<f32>, i32)> {
    let rank = device.ranks().rank;
    let programs = vec![prepared(&device, Arc::new(program))];
    let captured = captured(Arc::new(device), programs, &StateSet::new(), &[]);
    let (_, mut executor) = captured.expect("a captured step");
    let step = |step: usize| {
        for (i, width) in WIDTHS.iter().enumerate() {
            let x = layer(*width, step, rank, factor);
            let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_ne_bytes()).collect();
            executor.write_input(0, &format!("x{i}"), &bytes).expect("an input");
        }
        let number = executor.submit(0).expect("a launch");
        executor.until_done(number).expect("no fault");
        let mut sums = vec![];
        for i in 0..WIDTHS.len() {
            let sum = executor.read(0, &format!("sum{i}")).expect("kept");
            sums.extend_from_slice(sum.as_f32());
        }
        (sums, executor.read(0, "finite").expect("kept").as_i32()[0])
    };
    (0..STEPS).map(step).collect()
}

/// Runs all ranks, each in its own thread; the results must be bit-identical on all ranks.
fn run_group(seed: u32, ranks: usize, bytes: usize, factor: f32) -> Vec<(Vec<f32>, i32)> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let devices = test_gpu::group(&format!("A100 SEED={seed}"), ranks).into_iter();
        let start =
            |device| scope.spawn(move || run(device, program(Some((ranks, bytes))).0, factor));
        let threads: Vec<_> = devices.map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let bits = |steps: &[(Vec<f32>, i32)]| -> Vec<u32> {
        steps.iter().flat_map(|(sums, _)| sums.iter().map(|v| v.to_bits())).collect()
    };
    for rank in &results {
        assert_eq!(bits(rank), bits(&results[0]), "{ranks} ranks, {bytes} bytes, seed {seed}");
    }
    results.into_iter().next().expect("a rank")
}

#[test]
fn every_rank_gets_gradient_mean() {
    for ranks in [1, 2, 4] {
        let first = run_group(9, ranks, 1 << 20, 1.0);
        for (step, (sums, finite)) in first.iter().enumerate() {
            assert_eq!(*finite, 1);
            let want: Vec<f64> =
                WIDTHS.iter().flat_map(|width| means(*width, step, ranks, 1.0)).collect();
            assert_eq!(sums.len(), want.len());
            for (got, want) in sums.iter().zip(&want) {
                // Each rank rounds its gradient to fp16, and the sum is rounded again.
                let allowed = want / 1024.0 * 1.001 + 1e-6;
                assert!((f64::from(*got) - want).abs() <= allowed, "{ranks}: {got}, {want}");
            }
        }
        // The result is bit-identical for any buckets and any order of blocks, threads and streams.
        for (seed, bytes) in [(1, 0), (2, 1), (3, 64), (4, 300), (5, 1 << 20), (6, usize::MAX)] {
            assert_eq!(run_group(seed, ranks, bytes, 1.0), first, "{bytes} bytes");
        }
    }
}

/// If a gradient of one rank overflows fp16, all ranks detect that the step must be skipped.
#[test]
fn gradient_overflow_is_detected_on_every_rank() {
    for (_, finite) in run_group(1, 2, 300, 60_000.0) {
        assert_eq!(finite, 0);
    }
}

/// Positions of the nodes of this op.
fn nodes(program: &Program, op: &str) -> Vec<usize> {
    let named = |(i, node): (usize, &graph::Node)| (node.op.name() == op).then_some(i);
    program.nodes().iter().enumerate().filter_map(named).collect()
}

#[test]
fn bucket_all_reduce_overlaps_backward() {
    let (program, grads) = program(Some((2, 300)));
    let schedule = Schedule::gpu_streams(&program, &Gpu::a100()).expect("ordered");
    let launches = schedule.launches();
    let (fills, sums) = (nodes(&program, "fill_bucket"), nodes(&program, "all_reduce"));
    assert_eq!(sums.len(), 3, "3 + 64 + 81 + 130, 8 + 257, 1 + 40 + 12 halves");
    let gradients = nodes(&program, "bias_grad");
    let last = gradients[gradients.len() - 1];
    assert!(!schedule.happens_before(last, sums[0]), "the first sum waits for the last gradient");
    assert!(!schedule.happens_before(sums[0], last), "the last gradient waits for the first sum");
    for (i, fill) in fills.iter().enumerate() {
        let members = &program.nodes()[*fill].inputs;
        let writer = |t: &TensorId| gradients[grads.iter().position(|g| g == t).expect("one")];
        assert!(members.iter().all(|t| schedule.happens_before(writer(t), *fill)));
        // A bucket waits only for its last gradient.
        let latest = members.iter().map(writer).max().expect("not empty");
        assert_eq!(launches[*fill].waits, [latest], "bucket {i}");
    }
    for pair in sums.windows(2) {
        assert!(schedule.happens_before(pair[0], pair[1]), "two ranks could sum in two orders");
    }
    for launch in launches {
        let communicates = program.nodes()[launch.node.index()].op.traits().communicates;
        assert_eq!(launch.stream == streams::COMMUNICATION, communicates);
    }
}

/// The remaining nodes run on the same streams as without ranks.
#[test]
fn buckets_do_not_change_other_streams() {
    let streams = |buckets| -> Vec<(String, usize, Vec<usize>)> {
        let program = program(buckets).0;
        let schedule = Schedule::gpu_streams(&program, &Gpu::a100()).expect("ordered");
        let of = |launch: &graph::schedule::Launch| {
            let node = &program.nodes()[launch.node.index()];
            let backward = !node.op.traits().communicates && node.pass == Pass::Backward;
            backward.then(|| (node.op.name().into(), launch.stream, launch.waits.clone()))
        };
        schedule.launches().iter().filter_map(of).collect()
    };
    let alone = streams(None);
    assert!(alone.iter().any(|(_, stream, _)| *stream == 1));
    assert_eq!(streams(Some((2, 300))), alone);
    assert_eq!(
        Schedule::gpu_streams(&program(None).0, &Gpu::a100()).expect("ordered").num_streams(),
        2
    );
}

/// The capture fails if one of the waits of a bucket, or of the update for a bucket, is removed.
#[test]
fn missing_bucket_wait_is_rejected() {
    let device = test_gpu::open("A100");
    let prepared = prepared(&device, Arc::new(program(Some((2, 300))).0));
    let list = launches(&device, &prepared);
    capture(&device, &list).expect("all waits are there");
    let concerns =
        |work: &Work| work.stream == streams::COMMUNICATION || work.name.contains("grad_norms");
    let refused = refusals_without_a_wait(&device, &list, concerns);
    assert_eq!(refused, 4, "three buckets and the update");
}

#[test]
fn empty_and_repeated_gradients_are_accepted() {
    let mut p = Program::new();
    assert!(all_reduce_buckets(&mut p, &[], 0.5, 8).expect("nothing to do").is_empty());
    assert!(p.nodes().is_empty());
    let wide = |name: &str, len| (name.to_string(), TensorDesc::new(Role::WeightGradient, &[len]));
    let [a, huge, empty] = [wide("a", 1), wide("huge", 1000), wide("empty", 0)]
        .map(|(name, desc)| p.input(&name, desc));
    let sums = all_reduce_buckets(&mut p, &[a, huge, a, empty], 0.5, 8).expect("gradients");
    assert_eq!((sums.len(), sums[0]), (4, sums[2]));
    assert_eq!(sums.iter().map(|t| p.desc(*t).len()).collect::<Vec<_>>(), [1, 1000, 1, 0]);
    assert_eq!(nodes(&p, "all_reduce").len(), 1, "the empty rest joins the bucket");
    let half = p.input("half", TensorDesc::new(Role::Gradient, &[2]));
    let refused = all_reduce_buckets(&mut p, &[half], 0.5, 8).expect_err("fp16 on a GPU");
    assert!(refused.to_string().contains("role of grad_i"), "{refused}");
}
