//! Timed, stamped and observed steps on the emulated CUDA driver: they compute the same results as
//! normal steps, and their reports are complete.

use std::cell::RefCell;
use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Device, Launch, LaunchArgs};
use graph::check::{NodeCheck, Verdict};
use graph::exec::device::{DeviceExecutor, DeviceState, Stopwatch};
use graph::program::Pass;
use graph::timeline::StampCost;
use graph::{Program, StateSet};
use kernels::cpu::{CpuArgs, HostTensor};
use kernels::ops::accumulate::Accumulate;
use kernels::ops::relu_mask::ReluMask;
use kernels::ops::sum::Sum;
use kernels::{Op, OpError, Precision, Role, TensorDesc};

use crate::common::Build;
use crate::common::on_device::{captured, halves, pattern, prepared};

const LEN: usize = 700;

/// An op that computes the sum on a device, while its CPU reference wrongly returns the first term.
#[derive(Debug)]
struct Wrong;

impl Op for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn infer(&self, i: &[TensorDesc], _: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![i[0].clone()])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        Sum.launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let x = args.inputs[0].f32().to_vec();
        args.outputs[0].f32().copy_from_slice(&x);
    }
}

/// Nodes on two streams, including one op twice with equal shapes, and state that counts the steps.
fn program(wrong: bool) -> Program {
    let mut program = Program::new();
    program.set_part("model");
    let halves = TensorDesc::new(Role::Gradient, &[LEN]);
    let (a, b) = (program.input("a", halves.clone()), program.input("b", halves));
    let gradient = program.input("gradient", TensorDesc::new(Role::WeightGradient, &[LEN]));
    let total = program.state("total", TensorDesc::new(Role::Master, &[LEN]));
    let held = program.state("held", TensorDesc::new(Role::Index, &[1]));
    let mut x = program.node(Sum, [a, b, a]);
    if wrong {
        program.set_part("planted");
        x = program.node(Wrong, [x, b]);
        program.set_part("model");
    }
    program.set_pass(Pass::Backward);
    for i in 0..4 {
        let beside = program.node(ReluMask, [x, b]);
        program.keep(&format!("beside{i}"), beside);
        x = program.node(ReluMask, [x, if i % 2 == 0 { b } else { a }]);
    }
    program.keep("x", x);
    program.set_pass(Pass::Update);
    program.add(Arc::new(Accumulate), &[gradient], &[total, held]).expect("shapes that fit");
    program
}

struct Run {
    device: Arc<dyn Device>,
    executor: DeviceExecutor,
    state: DeviceState,
    steps: u32,
}

impl Run {
    fn on(device: CudaDevice, wrong: bool) -> Self {
        let device: Arc<dyn Device> = Arc::new(device);
        let prepared = prepared(device.as_ref(), Arc::new(program(wrong)));
        let mut set = StateSet::new();
        for (_, tensor) in prepared.program.states() {
            let zero = match tensor.desc.role {
                Role::Index => HostTensor::i32(tensor.desc.clone(), vec![0]),
                _ => HostTensor::f32(tensor.desc.clone(), vec![0.0; LEN]),
            };
            set.insert(&tensor.name, zero);
        }
        let captured = captured(device.clone(), vec![prepared], &set, &["held"]);
        let (state, executor) = captured.expect("a capture");
        Self { device, executor, state, steps: 0 }
    }

    /// Writes the inputs of the next step.
    fn write(&mut self) -> &mut DeviceExecutor {
        let values = |seed| pattern(seed, LEN, 17);
        let step = self.steps;
        self.steps += 1;
        self.executor.write_input(0, "a", &halves(&values(step))).expect("an input");
        self.executor.write_input(0, "b", &halves(&values(step + 7))).expect("an input");
        let gradient: Vec<u8> = values(step + 3).iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.executor.write_input(0, "gradient", &gradient).expect("an input");
        &mut self.executor
    }

    fn kept(&self) -> Vec<HostTensor> {
        self.executor.until_done(self.steps).expect("no fault");
        let names = ["x", "beside0", "beside3"];
        names.map(|name| self.executor.read(0, name).expect("kept")).to_vec()
    }

    fn totals(&self) -> Vec<(String, HostTensor)> {
        let mut set = StateSet::new();
        self.state.download(&mut set).expect("no fault");
        set.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect()
    }
}

#[test]
fn timed_and_observed_steps_match_normal_steps() {
    for seed in 1..4 {
        let mut plain = Run::on(test_gpu::open("A100"), false);
        let mut measured = Run::on(test_gpu::open(&format!("A100 SEED={seed}")), false);
        let mut watch = Stopwatch::new(measured.device.clone(), 20).expect("memory");
        let one = measured.executor.capture_on_one_stream(0).expect("a capture");
        let stamped = measured.executor.capture_with_stamps(0).expect("a capture");
        let kernels = measured.executor.graphs()[0].kernels;
        assert_eq!(kernels, 13, "10 nodes, one of them of two kernels, and both ends");
        for way in 0..7 {
            plain.write().submit(0).expect("a launch");
            let executor = measured.write();
            match way {
                0 | 5 => {
                    let given = executor.submit_launches(0, &mut watch).expect("launches");
                    assert_eq!((given.step, given.launches), (way + 1, kernels));
                }
                1 => drop(executor.submit_timed(0, &mut watch).expect("a launch")),
                2 => drop(executor.submit_on_one_stream(&one, &mut watch).expect("a launch")),
                3 => drop(executor.submit_with_stamps(&stamped, &mut watch).expect("a launch")),
                4 => {
                    let mut check = NodeCheck::new(Precision::Fp16, u64::MAX, |_| ());
                    executor.submit_watched(0, &mut check).expect("launches");
                    assert!(check.checked().len() < 10 && check.worst() < 1.0);
                }
                _ => drop(executor.submit(0).expect("a launch")),
            }
            if [0, 1, 2, 3, 5].contains(&way) {
                let us = watch.read_us().expect("no fault");
                let pieces = if way % 5 == 0 { kernels } else { 1 };
                assert_eq!(us.len(), pieces, "way {way}");
                assert!(us.iter().all(|us| *us >= 0.0) && us.iter().sum::<f64>() > 0.0, "{us:?}");
                assert!(watch.host_ms() > 0.0 && watch.lead_ms().expect("no fault") > 0.0);
            }
            assert_eq!(measured.kept(), plain.kept(), "way {way}");
            assert_eq!(measured.totals(), plain.totals(), "way {way}");
        }
        assert_eq!(measured.totals()[0].1.as_i32(), [7]);
        assert_eq!((measured.executor.done(), measured.executor.submitted()), (7, 7));
    }
}

#[test]
fn measured_spans_respect_streams_and_waits() {
    for seed in 1..4 {
        let mut run = Run::on(test_gpu::open(&format!("A100 SEED={seed}")), false);
        let stamped = run.executor.capture_with_stamps(0).expect("a capture");
        let mut watch = Stopwatch::new(run.device.clone(), 1).expect("memory");
        run.write().submit_with_stamps(&stamped, &mut watch).expect("a launch");
        let spans = stamped.spans().expect("no fault");
        let works = run.executor.launch_lists()[0].works();
        assert_eq!(spans.len(), works.len());
        assert!(works.iter().any(|work| work.stream == 1 && !work.waits.is_empty()));
        assert_eq!(spans.iter().map(|span| span.start_ns).min(), Some(0));
        for (i, (span, work)) in spans.iter().zip(works).enumerate() {
            assert_eq!((span.work, &span.name, span.stream), (i, &work.name, work.stream));
            assert!(span.start_ns < span.end_ns, "{span:?}");
            let before = works[..i].iter().rposition(|other| other.stream == work.stream);
            for earlier in work.waits.iter().copied().chain(before) {
                assert!(span.start_ns >= spans[earlier].end_ns, "{span:?} {:?}", spans[earlier]);
            }
        }
    }
}

/// Only the kernel whose results differ from its reference is reported; the name of each node is
/// reported before it runs.
#[test]
fn kernel_with_wrong_result_is_reported_by_node_name() {
    let mut run = Run::on(test_gpu::open("A100"), true);
    let told = RefCell::new(vec![]);
    let mut check =
        NodeCheck::new(Precision::Fp16, u64::MAX, |name| told.borrow_mut().push(name.to_string()));
    run.write().submit_watched(0, &mut check).expect("launches");
    assert_eq!(told.borrow().len(), 11);
    assert_eq!(told.borrow()[1], "planted.wrong#1");
    let wrong: Vec<_> =
        check.checked().iter().filter(|c| !matches!(c.verdict, Verdict::Agrees(_))).collect();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(wrong[0].node, "planted.wrong#1");
    let Verdict::Differs(reason) = &wrong[0].verdict else { panic!("{wrong:?}") };
    assert!(reason.contains("times what is allowed"), "{reason}");
    // An op that occurs twice with equal shapes is checked once.
    assert_eq!(check.checked().len(), 4);

    let mut bounded = NodeCheck::new(Precision::Fp16, LEN as u64, |_| ());
    run.write().submit_watched(0, &mut bounded).expect("launches");
    let skipped = |c: &&graph::check::Checked| matches!(c.verdict, Verdict::Skipped(_));
    let skipped: Vec<_> = bounded.checked().iter().filter(skipped).collect();
    assert_eq!(skipped.len(), 1, "{:?}", bounded.checked());
    assert_eq!(
        (&skipped[0].node[..], &skipped[0].verdict),
        ("model.sum#0", &Verdict::Skipped(1400))
    );
}

#[test]
fn device_fault_reports_its_node() {
    // The first kernel loads the inputs; the second belongs to the first node.
    let mut run = Run::on(test_gpu::open("A100 PLANT=lost:2"), false);
    let mut check = NodeCheck::new(Precision::Fp16, u64::MAX, |_| ());
    let error = run.write().submit_watched(0, &mut check).expect_err("a fault").to_string();
    assert!(error.starts_with("model.relu_mask#1: waiting for the GPU: "), "{error}");
    assert_eq!(check.checked().len(), 2, "what ran before it was looked at");
}

#[test]
fn measurement_overhead_is_reported() {
    let device: Arc<dyn Device> = Arc::new(test_gpu::open("A100"));
    let free = device.memory().expect("memory").free;
    let cost = Stopwatch::cost(&device).expect("no fault");
    assert!(cost.empty_us >= 0.0 && cost.launch_us > cost.empty_us, "{cost:?}");
    let stamps = StampCost::measure(device.as_ref(), 100).expect("no fault");
    assert_eq!(stamps.stamps, 100);
    assert!(stamps.each_us > 0.0 && stamps.step_ns > 0 && stamps.distinct > 50, "{stamps:?}");
    assert_eq!(device.memory().expect("memory").free, free, "nothing is left behind");
}
