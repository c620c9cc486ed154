//! The whole training step in fp16 on the emulated device, against f32 on the CPU: values, order,
//! loss scale, resume, and what a step asks of the host.

mod common;

use std::sync::Arc;

use configs::Config;
use dali::loader::{self, OwnedSlot, fill_slot};
use dali::store::Store;
use emulated::{EmulatedDevice, Order};
use engine::checkpoint::{self, Snapshot};
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::model::{
    BuiltProgram, ImageSize, Inject, LOSS_NAMES, MicroStep, ModelSpec, SlotShape, training_program,
};
use engine::progress::Progress;
use engine::runtime::{Backend, ModelState};
use engine::train::Trainer;
use engine::weights::initial_state;
use graph::exec::device::{Prepared, SharedArena};
use graph::{CpuExecutor, DeviceExecutor, StateSet};
use kernels::cpu::HostTensor;
use kernels::device::{Device, DeviceKind};

use common::Place;

/// What the tests multiply the gradients with: fp16 then holds small ones.
const LOSS_SCALE: f32 = 1024.0;
const PROPOSALS: [&str; 3] = ["proposals", "proposal_anchor_idx", "proposal_counts"];

fn images(place: &Place) -> Store {
    place.good("prep --synthetic shapes --count 8 --size 64 --seed 5 --out set");
    Store::open(&place.join("set/store")).expect("a store just written")
}

fn slot_shape(store: &Store, images: usize) -> loader::SlotShape {
    let mut shape = loader::SlotShape::for_store(store.header(), images);
    // Room behind the largest image, as there is behind all others.
    shape.pixels += 96;
    shape.coords += 6;
    shape.runs += 3;
    shape
}

fn micro(set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    Config::load("micro", &set).expect("the preset loads")
}

/// A program of `micro` with the state that it starts from.
fn build(
    store: &Store,
    config: &Config,
    padded: ImageSize,
    device: DeviceKind,
    inject: Inject,
) -> (BuiltProgram, StateSet) {
    let shape = slot_shape(store, config.train.batch_size);
    let spec = ModelSpec {
        config,
        num_classes: store.header().categories.len(),
        images: config.train.batch_size,
        padded,
        slot: SlotShape {
            pixels: shape.pixels,
            objects: shape.objects,
            parts: shape.parts,
            coords: shape.coords,
            runs: shape.runs,
        },
        device,
        micro: MicroStep::Whole,
        inject,
    };
    let built = training_program(&spec).expect("micro is sound");
    let eps = config.model.backbone.norm_eps;
    let mut state = initial_state(&built.program, &built.params, 0, eps);
    state.get_mut("loss_scale").expect("a state").as_f32_mut()[0] = LOSS_SCALE;
    (built, state)
}

/// The inputs of a batch, by name.
fn inputs(store: &Store, batch: &[usize]) -> Vec<(&'static str, Vec<u8>)> {
    inputs_from(store, batch, OwnedSlot::new(slot_shape(store, batch.len())))
}

/// The inputs of a batch, by name, in a slot that may hold bytes of an earlier one.
fn inputs_from(
    store: &Store,
    batch: &[usize],
    mut slot: OwnedSlot,
) -> Vec<(&'static str, Vec<u8>)> {
    fill_slot(store, batch, 0, slot.as_slot()).expect("room for every image");
    let network = vec![64i32; 2 * batch.len()];
    let bytes = |values: &[i32]| bytemuck::cast_slice(values).to_vec();
    vec![
        ("pixels", slot.pixels.clone()),
        ("gt_boxes", bytemuck::cast_slice(&slot.gt_boxes).to_vec()),
        ("coords", bytemuck::cast_slice(&slot.coords).to_vec()),
        ("image_sizes", bytes(&slot.image_sizes)),
        ("network_sizes", bytes(&network)),
        ("image_keys", bytes(&slot.image_keys)),
        ("num_images", bytes(&slot.num_images)),
        ("gt_classes", bytes(&slot.gt_classes)),
        ("gt_counts", bytes(&slot.gt_counts)),
        ("segm_index", bytes(&slot.segm_index)),
        ("segm_parts", bytes(&slot.segm_parts)),
        ("runs", bytes(&slot.runs)),
    ]
}

const SQUARE: ImageSize = ImageSize { height: 64, width: 64 };

/// `micro` on the CPU.
struct OnCpu {
    executor: CpuExecutor,
    state: StateSet,
    trained: Vec<String>,
}

impl OnCpu {
    fn new(store: &Store, config: &Config, padded: ImageSize, inject: Inject) -> Self {
        let (built, state) = build(store, config, padded, DeviceKind::Cpu, inject);
        let trained = built.params.iter().filter(|p| p.trained.is_some());
        let trained = trained.map(|p| p.name.clone()).collect();
        let executor = CpuExecutor::new(Arc::new(built.program), &state).expect("a plan");
        Self { executor, state, trained }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) {
        let input = self.executor.input_mut(name).expect("an input");
        input.bytes_mut().copy_from_slice(bytes);
    }

    fn run(&mut self) {
        self.executor.run(&mut self.state);
    }

    fn read(&self, name: &str) -> HostTensor {
        self.executor.read(name).expect("a kept tensor")
    }
}

/// `micro` on the emulated device, one program a padded shape.
struct OnDevice {
    executor: DeviceExecutor,
    state: ModelState,
}

impl OnDevice {
    fn new(
        store: &Store,
        config: &Config,
        shapes: &[ImageSize],
        inject: Inject,
        order: Order,
    ) -> Self {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(order));
        let mut first = None;
        let mut prepared = Vec::new();
        for shape in shapes {
            let (built, state) = build(store, config, *shape, DeviceKind::Cuda, inject.clone());
            first.get_or_insert(state);
            prepared.push(Prepared::new(Arc::new(built.program)).expect("a schedule"));
        }
        let programs: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
        let state = first.expect("a shape");
        let state = ModelState::on_device(state, device.clone(), &programs).expect("memory");
        let all: Vec<_> = prepared.iter().collect();
        let arena = Arc::new(SharedArena::new(device.clone(), &all).expect("memory"));
        let memory = state.memory().expect("on the device").clone();
        let executor =
            DeviceExecutor::new(device, prepared, arena, &memory).expect("a captured step");
        Self { executor, state }
    }

    fn write(&mut self, program: usize, name: &str, bytes: &[u8]) {
        self.executor.write_input(program, name, bytes).expect("an input");
    }

    fn run(&mut self, program: usize) {
        let step = self.executor.submit(program).expect("a launch");
        self.executor.until_done(step).unwrap_or_else(|e| panic!("{e}"));
    }

    fn read(&self, program: usize, name: &str) -> HostTensor {
        self.executor.read(program, name).expect("a kept tensor")
    }
}

fn relative(got: f64, want: f64) -> f64 {
    (got - want).abs() / want.abs().max(1e-30)
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// The first step: the same anchors are sampled, the same RoIs from the same proposals, and losses
/// and gradients are those of f32 within what fp16 costs.
#[test]
fn a_step_in_fp16_is_that_of_f32() {
    let place = Place::new();
    let store = images(&place);
    let config = micro(&["model.roi.canonical_size=20"]);
    let batch = [0, 3];
    let observe = Inject { observe: true, ..Inject::default() };
    let mut free = OnCpu::new(&store, &config, SQUARE, observe.clone());
    inputs(&store, &batch).iter().for_each(|(name, bytes)| free.write(name, bytes));
    free.run();
    let injected = Inject { proposals: true, ..observe };
    let mut cpu = OnCpu::new(&store, &config, SQUARE, injected.clone());
    let mut device = OnDevice::new(&store, &config, &[SQUARE], injected, Order::Random(7));
    let proposals = PROPOSALS.map(|name| (name, free.read(name).bytes().to_vec()));
    for (name, bytes) in inputs(&store, &batch).into_iter().chain(proposals) {
        cpu.write(name, &bytes);
        device.write(0, name, &bytes);
    }
    cpu.run();
    device.run(0);
    for name in ["rpn_labels", "rpn_sample_idx", "rois", "roi_labels", "roi_matched", "num_rois"] {
        assert_eq!(device.read(0, name), cpu.read(name), "{name}");
    }
    for name in LOSS_NAMES {
        let [got, want] = [device.read(0, name), cpu.read(name)].map(|t| f64::from(t.as_f32()[0]));
        println!("{name:<18} f32 {want:.6} fp16 {got:.6} off {:.2e}", relative(got, want));
        assert!(relative(got, want) < 0.01, "{name}: {got}, in f32 {want}");
    }
    let norms = [device.read(0, "grad_norms"), cpu.read("grad_norms")];
    let total = norms.each_ref().map(|n| f64::from(*n.as_f32().last().expect("a total")));
    println!("total norm off {:.2e}", relative(total[0], total[1]));
    assert!(relative(total[0], total[1]) < 0.03, "total norm {total:?}");
    let mut worst = (0.0, "");
    for name in &cpu.trained {
        let name_of = format!("grad/{name}");
        let [got, want] = [device.read(0, &name_of), cpu.read(&name_of)];
        let off = relative(norm(got.as_f32()), norm(want.as_f32()));
        let difference: Vec<f32> =
            got.as_f32().iter().zip(want.as_f32()).map(|(g, w)| g - w).collect();
        let apart = norm(&difference) / norm(want.as_f32());
        assert!(off < 0.10 && apart < 0.25, "{name}: norm off {off:.3}, apart {apart:.3}");
        if apart > worst.0 {
            worst = (apart, name);
        }
    }
    println!("gradients of {} parameters, worst distance {worst:?}", cpu.trained.len());
}

/// What follows the used part of an input is of some earlier step: it changes no bit of a result.
#[test]
fn what_lies_behind_the_counts_changes_nothing() {
    let place = Place::new();
    let store = images(&place);
    let config = micro(&["model.roi.canonical_size=20"]);
    let batch = [1, 4];
    let mut stale = OwnedSlot::new(slot_shape(&store, batch.len()));
    stale.pixels.fill(0x5A);
    stale.gt_boxes.fill(31.5);
    stale.coords.fill(17.25);
    let OwnedSlot { gt_classes, segm_index, segm_parts, runs, .. } = &mut stale;
    for indices in [gt_classes, segm_index, segm_parts, runs] {
        indices.fill(2);
    }
    let clean = inputs(&store, &batch);
    let dirty = inputs_from(&store, &batch, stale);
    assert!(clean != dirty, "no input has room behind it: nothing was tested");
    let [clean, dirty] = [clean, dirty].map(|inputs| {
        let none = Inject::default();
        let mut device = OnDevice::new(&store, &config, &[SQUARE], none.clone(), Order::Given);
        let mut cpu = OnCpu::new(&store, &config, SQUARE, none);
        for (name, bytes) in &inputs {
            device.write(0, name, bytes);
            cpu.write(name, bytes);
        }
        device.run(0);
        cpu.run();
        let kept = ["grad_norms", "control"].into_iter().chain(LOSS_NAMES);
        kept.map(|name| [device.read(0, name), cpu.read(name)]).collect::<Vec<_>>()
    });
    assert_eq!(clean, dirty);
}

/// Two padded shapes in turn share state and arena: each step is what the CPU makes of it.
#[test]
fn two_shapes_alternate() {
    let place = Place::new();
    let store = images(&place);
    let config = micro(&["solver.learning_rate=0.01"]);
    let wide = ImageSize { height: 64, width: 96 };
    let shapes = [SQUARE, wide];
    let none = Inject::default();
    let mut device = OnDevice::new(&store, &config, &shapes, none.clone(), Order::Random(11));
    let mut cpus = shapes.map(|shape| OnCpu::new(&store, &config, shape, none.clone()));
    let mut state = cpus[0].state.clone();
    for step in 0..6 {
        let which = step % 2;
        for (name, bytes) in inputs(&store, &[step, step + 1]) {
            device.write(which, name, &bytes);
            cpus[which].write(name, &bytes);
        }
        device.run(which);
        cpus[which].executor.run(&mut state);
        let total = |read: &dyn Fn(&str) -> HostTensor| -> f64 {
            LOSS_NAMES.iter().map(|name| f64::from(read(name).as_f32()[0])).sum()
        };
        let got = total(&|name| device.read(which, name));
        let want = total(&|name| cpus[which].read(name));
        assert!(relative(got, want) < 0.05, "step {step}: {got}, in f32 {want}");
    }
    let steps = device.state.fetch().expect("the state").get("step").expect("a state").clone();
    assert_eq!(steps.as_i32(), [6]);
}

/// A trainer of `micro` on drawn images.
struct Run {
    config: Config,
    data: DataSet,
}

impl Run {
    fn new(place: &Place, set: &[&str]) -> Self {
        let dir = format!("data.synthetic.dir={}", place.join("drawn").display());
        let all: Vec<&str> = set.iter().copied().chain([dir.as_str()]).collect();
        let config = micro(&all);
        let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
        Self { config, data }
    }

    fn trainer(&self, backend: &Backend) -> Trainer {
        Trainer::new(&self.config, &self.data, backend).unwrap_or_else(|e| panic!("{e}"))
    }

    fn on(&self, order: Order) -> (Arc<EmulatedDevice>, Trainer) {
        let device = Arc::new(EmulatedDevice::new(order));
        let trainer = self.trainer(&Backend::Device(device.clone()));
        (device, trainer)
    }
}

fn steps(trainer: &mut Trainer, count: u64) -> Vec<StepRecord> {
    let until = trainer.batches() + count;
    (0..count).map(|_| trainer.step(until).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn bits(trainer: &mut Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().fetch().expect("the state");
    state.iter().map(|(name, t)| (name.to_string(), t.bytes().to_vec())).collect()
}

/// Twenty steps lose as much as on the CPU, and the same device makes the same bits again.
#[test]
fn twenty_steps_learn_as_on_the_cpu() {
    let place = Place::new();
    let run = Run::new(&place, &["solver.initial_loss_scale=1024"]);
    let cpu = steps(&mut run.trainer(&Backend::Cpu), 20);
    let (_, mut trainer) = run.on(Order::Random(5));
    let device = steps(&mut trainer, 20);
    for window in 0..4 {
        let mean = |records: &[StepRecord]| {
            let part = &records[5 * window..5 * window + 5];
            part.iter().map(|r| f64::from(r.loss)).sum::<f64>() / 5.0
        };
        let (got, want) = (mean(&device), mean(&cpu));
        println!("steps {}..: f32 {want:.4} fp16 {got:.4}", 5 * window);
        assert!(relative(got, want) < 0.05, "window {window}: {got}, in f32 {want}");
    }
    assert!(device[19].loss < 0.85 * device[0].loss, "{} to {}", device[0].loss, device[19].loss);
    let (_, mut again) = run.on(Order::Given);
    let repeated = steps(&mut again, 20);
    let losses = |records: &[StepRecord]| records.iter().map(|r| r.loss).collect::<Vec<_>>();
    assert_eq!(losses(&repeated), losses(&device), "the same bits in another order of work");
    assert_eq!(bits(&mut again), bits(&mut trainer));
}

/// Over 50 steps: one graph launch and one copy each, and the host never waits for the device.
#[test]
fn a_step_is_one_launch_and_no_wait() {
    let place = Place::new();
    let run = Run::new(&place, &[]);
    let (device, mut trainer) = run.on(Order::Random(9));
    let before = device.counts();
    let records = steps(&mut trainer, 50);
    let after = device.counts();
    assert_eq!(records.len(), 50);
    assert_eq!(after.graph_launches - before.graph_launches, 50);
    assert_eq!(after.uploads - before.uploads, 50);
    assert_eq!(after.host_waits - before.host_waits, 0);
    assert_eq!(after.downloads - before.downloads, 0);
    assert_eq!(after.kernel_launches - before.kernel_launches, 0);
    assert_eq!(after.allocations - before.allocations, 0);
}

/// The loss scale doubles after clean steps; a step whose gradients overflow leaves every bit of
/// the weights and their momentum as it was, and halves the scale.
#[test]
fn the_loss_scale_grows_and_an_overflow_is_skipped() {
    let place = Place::new();
    let scaled = |initial: &str| {
        let initial = format!("solver.initial_loss_scale={initial}");
        let interval = "solver.loss_scale_growth_interval=3";
        Run::new(&place, &["solver.dynamic_loss_scale=true", interval, &initial])
    };
    let (_, mut clean) = scaled("256").on(Order::Given);
    let scales: Vec<f32> = steps(&mut clean, 7).iter().map(|r| r.loss_scale).collect();
    assert_eq!(scales, [256.0, 256.0, 256.0, 512.0, 512.0, 512.0, 1024.0]);
    let (_, mut trainer) = scaled("1e12").on(Order::Given);
    let before = bits(&mut trainer);
    let record = steps(&mut trainer, 1).remove(0);
    assert!(!record.applied && record.loss.is_finite(), "{record:?}");
    let after = bits(&mut trainer);
    let changed: Vec<&str> = before
        .iter()
        .zip(&after)
        .filter(|(b, a)| b != a)
        .map(|((name, _), _)| name.as_str())
        .collect();
    assert_eq!(changed, ["loss_scale", "skipped_steps"]);
    assert_eq!(steps(&mut trainer, 1)[0].loss_scale, 0.5e12);
}

/// A run that was saved and taken up again makes the bits of one that went on.
#[test]
fn resuming_is_exact() {
    let place = Place::new();
    let run = Run::new(&place, &["solver.initial_loss_scale=1024"]);
    let (_, mut whole) = run.on(Order::Given);
    steps(&mut whole, 3);
    let config = run.config.to_toml().expect("a config");
    let params = whole.params().to_vec();
    let snapshot = Snapshot {
        state: whole.state().fetch().expect("the state"),
        params: &params,
        batches: 3,
        categories: &run.data.categories(),
        config: &config,
    };
    let saved = checkpoint::save(&place.join("run"), &snapshot, 0).expect("a checkpoint");
    let on = steps(&mut whole, 3);
    let (_, mut resumed) = run.on(Order::Random(3));
    let restore = |state: &mut StateSet| checkpoint::restore(&saved, state);
    resumed.state().change(restore).unwrap_or_else(|e| panic!("{e}"));
    resumed.resume_at(3);
    let again = steps(&mut resumed, 3);
    let losses = |records: &[StepRecord]| records.iter().map(|r| r.loss).collect::<Vec<_>>();
    assert_eq!(losses(&again), losses(&on));
    assert_eq!(bits(&mut resumed), bits(&mut whole));
}

/// A batch that does not fit is refused with one that would.
#[test]
fn too_large_a_batch_is_refused_with_one_that_fits() {
    let place = Place::new();
    let set = ["train.batch_size=80", "train.images_per_group=1", "input.min_size=1600"];
    let run = Run::new(&place, &[&set[..], &["input.max_size=1600"]].concat());
    let device = Arc::new(EmulatedDevice::new(Order::Given));
    let refused = Trainer::new(&run.config, &run.data, &Backend::Device(device));
    let error = refused.map(|_| "it fits").expect_err("more than the device has").to_string();
    assert!(error.contains("a batch of 80 images needs"), "{error}");
    assert!(error.contains("train.batch_size="), "{error}");
}

/// Four images in two micro-steps of two make the update of four at once.
#[test]
fn two_micro_steps_of_two_are_one_step_of_four() {
    let place = Place::new();
    let set = ["train.batch_size=4", "train.images_per_group=2", "solver.initial_loss_scale=1024"];
    let of = |micro: &str| Run::new(&place, &[&set[..], &[micro]].concat());
    let (whole, parts) = (of("train.micro_steps=1"), of("train.micro_steps=2"));
    for order in [None, Some(Order::Random(13))] {
        let [mut one, mut two] = [&whole, &parts].map(|run| match order {
            None => run.trainer(&Backend::Cpu),
            Some(order) => run.on(order).1,
        });
        for (a, b) in steps(&mut one, 3).iter().zip(&steps(&mut two, 3)) {
            assert!(relative(b.loss.into(), a.loss.into()) < 2e-3, "{a:?} {b:?}");
            assert!(relative(b.grad_norm.into(), a.grad_norm.into()) < 1e-2, "{a:?} {b:?}");
        }
        let states = [&mut one, &mut two].map(|t| t.state().fetch().expect("the state").clone());
        for (name, tensor) in states[0].iter().filter(|(name, _)| name.ends_with(".weight")) {
            let got = states[1].get(name).expect("the same model");
            let pairs = tensor.as_f32().iter().zip(got.as_f32());
            let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let largest = tensor.as_f32().iter().fold(0.0f32, |m, v| m.max(v.abs()));
            assert!(apart <= 2e-3 * largest, "{name}: {apart} of {largest}");
        }
    }
}
