//! Random programs of real ops on the emulated CUDA driver: results in adversarial stream order
//! equal those of the CPU, and an error in a plan or schedule is detected.

use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Buffer, Device, DevicePtr, Gpu, LaunchArgs, Stream, Target, Workspace};
use graph::capture::{Body, LaunchList, Work, capture};
use graph::exec::device::Prepared;
use graph::plan::Owner;
use graph::program::Pass;
use graph::prune::prune;
use graph::{Program, Schedule, StateSet, TensorId, TensorKind};
use kernels::cpu::HostTensor;
use kernels::on_device::host_tensor;
use kernels::ops::all_reduce::AllReduce;
use kernels::ops::fill::Fill;
use kernels::ops::publish::Publish;
use kernels::ops::relu_mask::ReluMask;
use kernels::ops::sum::Sum;
use kernels::ops::upsample_add::UpsampleAdd;
use kernels::{Precision, Role, TensorDesc};

use crate::common::on_device::prepared as as_in_training;
use crate::common::on_device::{captured, halves, pattern, refusals_without_a_wait};
use crate::common::random::{Rng, streams};
use crate::common::{Build, bound};

/// `[N, H, W, C]` of the full-size maps; maps of half the extents are inputs of the upsampling.
const FULL: [usize; 4] = [1, 6, 8, 8];
const HALF: [usize; 4] = [1, 3, 4, 8];
const RING: [usize; 2] = [4, 3];

fn map(shape: &[usize]) -> TensorDesc {
    TensorDesc::new(Role::Gradient, shape)
}

/// A program of about `nodes` real ops over maps of two sizes; some values are kept, and the last
/// two nodes update state. With `sums` it contains all-reduces, which are copies on a single rank.
fn program(seed: u32, nodes: usize, sums: bool) -> Program {
    let mut rng = Rng::new(seed);
    let mut p = Program::new();
    let mut full = vec![p.input("a", map(&FULL)), p.input("b", map(&FULL))];
    let mut half = vec![p.input("c", map(&HALF))];
    let mut losses = vec![];
    p.set_pass(Pass::Backward);
    let near = |rng: &mut Rng, of: &[TensorId]| {
        let reach = if rng.one_in(4) { of.len() } else { of.len().min(4) };
        of[of.len() - 1 - rng.below(reach)]
    };
    for i in 0..nodes {
        let (x, y) = (near(&mut rng, &full), near(&mut rng, &full));
        let (u, v) = (near(&mut rng, &half), near(&mut rng, &half));
        let (made, list) = match rng.below(6 + usize::from(sums)) {
            6 => (p.node(AllReduce, [x]), &mut full),
            0 => (p.node(ReluMask, [x, y]), &mut full),
            1 => (p.node(ReluMask, [u, v]), &mut half),
            2 => (p.node(Sum, [x, y]), &mut full),
            3 => (p.node(UpsampleAdd, [x, u]), &mut full),
            4 => {
                let value = rng.below(5) as f32 - 2.0;
                (p.node(Fill { desc: map(&HALF), value }, []), &mut half)
            }
            _ => {
                let desc = TensorDesc::new(Role::Loss, &[1]);
                (p.node(Fill { desc, value: i as f32 }, []), &mut losses)
            }
        };
        list.push(made);
        if rng.one_in(6) {
            p.keep(&format!("kept{i}"), made);
        }
    }
    p.keep("last", full[full.len() - 1]);
    let ring = p.state("ring", TensorDesc::new(Role::Scalar, &RING));
    let step = p.state("step", TensorDesc::new(Role::Index, &[1]));
    losses.truncate(RING[1] - 1);
    p.set_pass(Pass::Update);
    p.add(Arc::new(Publish), &losses, &[ring, step]).expect("room in a row");
    prune(&mut p);
    p
}

fn state() -> StateSet {
    let mut state = StateSet::new();
    let ring = TensorDesc::new(Role::Scalar, &RING);
    state.insert("ring", HostTensor::f32(ring, vec![0.0; RING[0] * RING[1]]));
    state.insert("step", HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![0]));
    state
}

/// Inputs of a step by name.
fn inputs(step: u32) -> [(&'static str, Vec<f32>); 3] {
    let len = |shape: [usize; 4]| shape.iter().product();
    [
        ("a", pattern(step, len(FULL), 9)),
        ("b", pattern(step + 40, len(FULL), 9)),
        ("c", pattern(step + 80, len(HALF), 9)),
    ]
}

fn prepared(seed: u32, nodes: usize, count: usize) -> Prepared {
    let program = program(seed, nodes, count > 2);
    let mut streams = streams(seed, &program, count);
    // All-reduces must be ordered, so they share a stream.
    for (stream, node) in streams.iter_mut().zip(program.nodes()) {
        *stream = if node.op.traits().communicates { count - 1 } else { *stream };
    }
    let schedule = Schedule::with_streams(&program, &streams).expect("ordered");
    Prepared::with_schedule(Arc::new(program), schedule, Target::Gpu(Gpu::a100()))
}

/// The kept tensors and the state on the CPU after each of `steps` steps.
fn on_cpu(program: &Program, steps: u32) -> Vec<(Vec<Vec<f32>>, StateSet)> {
    let mut state = state();
    let mut cpu = bound(program, &state);
    let step = |step| {
        for (name, values) in inputs(step) {
            cpu.input_mut(name).expect("an input").as_f32_mut().copy_from_slice(&values);
        }
        cpu.run(&mut state);
        let kept = |name: &String| cpu.f32(name).expect("kept").to_vec();
        (maps(program).iter().map(kept).collect(), state.clone())
    };
    (0..steps).map(step).collect()
}

/// Names of the kept maps.
fn maps(program: &Program) -> Vec<String> {
    program.kept().iter().map(|t| program.tensors()[t.index()].name.clone()).collect()
}

#[test]
fn random_programs_on_random_streams_match_cpu() {
    let (mut waits, mut third) = (0, 0);
    for seed in 0..32 {
        let prepared = match 2 + seed as usize % 4 {
            5 => as_in_training(
                &test_gpu::open("A100"),
                program(seed, 8 + seed as usize, true).into(),
            ),
            streams => prepared(seed, 8 + seed as usize, streams),
        };
        third += usize::from(prepared.schedule.num_streams() > 2);
        waits += prepared.schedule.launches().iter().map(|l| l.waits.len()).sum::<usize>();
        let program = prepared.program.clone();
        let truth = on_cpu(&program, 4);
        for order in 1..4 {
            let device = Arc::new(test_gpu::open(&format!("A100 SEED={order}")));
            let captured = captured(device, vec![prepared.clone()], &state(), &["ring"]);
            let (memory, mut executor) = captured.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            for (step, (kept, _)) in truth.iter().enumerate() {
                for (name, values) in inputs(step as u32) {
                    executor.write_input(0, name, &halves(&values)).expect("an input");
                }
                executor.submit(0).expect("a launch");
                // Read back only some steps, so that the remaining steps run back to back.
                if step % 2 == 1 {
                    for (name, want) in maps(&program).iter().zip(kept) {
                        let got = executor.read(0, name).expect("kept");
                        assert_eq!(got.as_f32(), want, "seed {seed}, order {order}, {name}");
                    }
                }
            }
            let mut got = StateSet::new();
            memory.download(&mut got).expect("no fault");
            let bits = |s: &StateSet| s.iter().map(|(_, t)| t.bytes().to_vec()).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&truth[3].1), "seed {seed}, order {order}");
        }
    }
    assert!(waits > 100 && third > 15, "only {waits} waits, {third} with a third stream");
}

/// With three streams, the step counter increments only when all of them are done.
#[test]
fn completed_step_is_done_on_every_stream() {
    let mut program = Program::new();
    let loss = TensorDesc::new(Role::Loss, &[1]);
    let fill = Fill { desc: loss, value: 1.0 };
    let mut x = program.node(fill.clone(), []);
    for _ in 0..8 {
        x = program.node(Sum, [x, x]);
    }
    let ring = program.state("ring", TensorDesc::new(Role::Scalar, &RING));
    let step = program.state("step", TensorDesc::new(Role::Index, &[1]));
    program.add(Arc::new(Publish), &[x], &[ring, step]).expect("room in a row");
    let beside = program.node(fill, []);
    program.keep("beside", beside);
    let mut streams = vec![1; program.nodes().len()];
    *streams.last_mut().expect("nodes") = 2;
    let schedule = Schedule::with_streams(&program, &streams).expect("ordered");
    let prepared = Prepared::with_schedule(Arc::new(program), schedule, Target::Gpu(Gpu::a100()));
    for order in 1..5 {
        let device = Arc::new(test_gpu::open(&format!("A100 SEED={order}")));
        let captured = captured(device.clone(), vec![prepared.clone()], &state(), &["ring"]);
        let (memory, mut executor) = captured.expect("a capture");
        let number = executor.submit(0).expect("a launch");
        executor.until_done(number).expect("no fault");
        let mut row = [0; 8];
        device.read_pinned(memory.mapped("ring").expect("mapped"), 0, &mut row);
        let row: [u32; 2] = bytemuck::cast(row);
        assert_eq!(row, [number, 256f32.to_bits()], "order {order}");
    }
}

/// The memory of one program, laid out by the test, which can move a value to a wrong offset.
struct Bench {
    device: CudaDevice,
    stream: Stream,
    arena: DevicePtr,
    inputs: Vec<(TensorId, DevicePtr)>,
    states: Vec<(TensorId, DevicePtr)>,
}

impl Bench {
    fn new(prepared: &Prepared, seed: u32) -> Self {
        let device = test_gpu::open(&format!("A100 SEED={seed}"));
        let stream = device.stream().expect("a stream");
        let place = |bytes: &[u8]| {
            let (ptr, staging) = (device.alloc(bytes.len()), device.alloc_pinned(bytes.len()));
            let (ptr, staging) = (ptr.expect("memory"), staging.expect("memory"));
            device.write_pinned(staging, 0, bytes);
            device.upload(stream, ptr, staging, 0, bytes.len()).expect("a copy");
            ptr
        };
        let find = |name: &str| prepared.program.find(name);
        let inputs = inputs(0).into_iter().filter_map(|(name, v)| Some((find(name)?, halves(&v))));
        let inputs = inputs.map(|(id, bytes)| (id, place(&bytes))).collect();
        let state = state();
        let states = state.iter().filter_map(|(name, t)| Some((find(name)?, place(t.bytes()))));
        let states = states.collect();
        device.synchronize().expect("copies");
        let arena = device.alloc(prepared.plan.arena_bytes()).expect("memory");
        Self { device, stream, arena, inputs, states }
    }

    /// The program's launches; the value in `moved`, if any, has the given offset instead of the
    /// planned one.
    fn launches(&self, prepared: &Prepared, moved: Option<(TensorId, usize)>) -> LaunchList {
        let (program, plan) = (&prepared.program, &prepared.plan);
        let address = |id: &TensorId| -> DevicePtr {
            let found = self.inputs.iter().chain(&self.states).find(|(known, _)| known == id);
            let planned = || match moved {
                Some((other, offset)) if other == *id => Some(offset),
                _ => plan.offset(*id),
            };
            found.map_or_else(|| self.arena + planned().expect("a value") as u64, |(_, ptr)| *ptr)
        };
        let buffers = |ids: &[TensorId]| -> Vec<Buffer<'_>> {
            ids.iter()
                .map(|id| Buffer {
                    desc: program.desc(*id),
                    ptr: address(id),
                    precision: Precision::Fp16,
                })
                .collect()
        };
        let mut list = LaunchList::default();
        for launch in prepared.schedule.launches() {
            let node = &program.nodes()[launch.node.index()];
            let args = LaunchArgs {
                gpu: self.device.gpu(),
                inputs: buffers(&node.inputs),
                outputs: buffers(&node.outputs),
                updates: buffers(&node.updates),
                workspace: Workspace::default(),
            };
            list.push(Work {
                name: program.node_name(launch.node),
                body: Body::Tasks(node.op.tasks(&args)),
                stream: launch.stream,
                waits: launch.waits.clone(),
            });
        }
        list
    }

    /// True if the capture fails, or the results differ from `truth`.
    fn catches(&self, prepared: &Prepared, list: &LaunchList, truth: &[Vec<f32>]) -> bool {
        let Ok(graph) = capture(&self.device, list) else { return true };
        self.device.replay(graph.handle, self.stream).expect("a launch");
        let kept = prepared.program.kept().iter().zip(truth);
        kept.into_iter().any(|(t, want)| {
            let desc = prepared.program.desc(*t);
            let mut bytes = vec![0; desc.gpu_bytes(Precision::Fp16)];
            let offset = prepared.plan.offset(*t).expect("kept") as u64;
            self.device.download(self.stream, self.arena + offset, &mut bytes).expect("no fault");
            host_tensor(Precision::Fp16, desc, &bytes).as_f32() != want
        })
    }
}

/// Every wait of a schedule is needed: if one is removed, two launches race, and the capture
/// reports this.
#[test]
fn capture_fails_if_any_wait_is_removed() {
    let mut dropped = 0;
    for seed in 0..12 {
        let prepared = prepared(seed, 25, 3);
        let bench = Bench::new(&prepared, seed);
        let list = bench.launches(&prepared, None);
        let truth = on_cpu(&prepared.program, 1).remove(0).0;
        assert!(!bench.catches(&prepared, &list, &truth), "seed {seed}: the list as it is");
        dropped += refusals_without_a_wait(&bench.device, &list, |_| true);
    }
    assert!(dropped > 60, "only {dropped} waits");
}

/// If a value is moved onto a different value that is live at the same time, the capture fails or a
/// result is wrong, with rare exceptions: a ReLU mask can hide the overwritten values, or both
/// values can be equal.
#[test]
fn value_moved_onto_live_memory_is_detected() {
    let (mut tried, mut caught) = (0, 0);
    for seed in 0..20 {
        let prepared = prepared(seed, 20, 2);
        let truth = on_cpu(&prepared.program, 1).remove(0).0;
        let bench = Bench::new(&prepared, seed);
        let blocks = prepared.plan.blocks();
        for (i, a) in blocks.iter().enumerate() {
            let Owner::Tensor(tensor) = a.owner else { continue };
            if prepared.program.kept().contains(&tensor) {
                continue;
            }
            // The first block that conflicts with this block and that no launch uses together with
            // it.
            let beside = |b: &&graph::plan::Block| {
                let apart = !shares_a_launch(&prepared.program, a.owner, b.owner);
                apart && b.bytes >= a.bytes && a.conflicts(b, &prepared.schedule)
            };
            let Some(other) = blocks[i + 1..].iter().find(beside) else { continue };
            let list = bench.launches(&prepared, Some((tensor, other.offset)));
            tried += 1;
            caught += usize::from(bench.catches(&prepared, &list, &truth));
        }
    }
    println!("{caught} of {tried} caught");
    assert!(tried > 90 && 100 * caught >= 85 * tried, "{caught} of {tried} caught");
}

/// True if one node uses both tensors: ops may work in place.
fn shares_a_launch(program: &Program, a: Owner, b: Owner) -> bool {
    let (Owner::Tensor(a), Owner::Tensor(b)) = (a, b) else { return false };
    assert!(program.tensors()[a.index()].kind == TensorKind::Value);
    program.nodes().iter().any(|n| {
        let has = |t| n.inputs.contains(&t) || n.outputs.contains(&t);
        has(a) && has(b)
    })
}
