//! State that moves between the CPU and a device: nothing of it depends on where it was.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use configs::Config;
use device::{Access, Arg, Device, Launch, Touch};
use emulated::{EmulatedDevice, Order};
use engine::checkpoint::{self, Keep, Snapshot};
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::model::is_transient;
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::StateSet;

use common::Place;

struct Run {
    place: Place,
    config: Config,
    data: DataSet,
}

impl Run {
    fn new(set: &[&str]) -> Self {
        let place = Place::new();
        let dir = format!("data.synthetic.dir={}", place.join("drawn").display());
        let all: Vec<String> = set.iter().map(|s| s.to_string()).chain([dir]).collect();
        let config = Config::load("micro", &all).expect("the preset loads");
        let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
        Self { place, config, data }
    }

    fn trainer(&self, backend: &Backend) -> Trainer {
        Trainer::new(&self.config, &self.data, backend).unwrap_or_else(|e| panic!("{e}"))
    }

    fn save(&self, trainer: &mut Trainer) -> PathBuf {
        let (params, steps_done) = (trainer.params().to_vec(), trainer.steps_done());
        let keep = Keep { newest: 0, steps: &[] };
        let snapshot = Snapshot {
            state: trainer.state().fetch().expect("the state"),
            params: &params,
            steps_done,
            categories: &self.data.categories(),
            config: &self.config.to_toml().expect("a config"),
            data: "",
            overrides: &[],
        };
        checkpoint::save(&self.place.join("run"), &snapshot, keep).expect("a checkpoint")
    }
}

fn on_device() -> Backend {
    Backend::Device(Arc::new(EmulatedDevice::new(Order::Random(2))))
}

fn steps(trainer: &mut Trainer, count: u64) -> Vec<StepRecord> {
    let until = trainer.steps_done() + count;
    (0..count).map(|_| trainer.step(until).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn resume(trainer: &mut Trainer, saved: &Path, steps_done: u64) {
    let restore = |state: &mut StateSet| checkpoint::restore(saved, state);
    trainer.state().change(restore).unwrap_or_else(|e| panic!("{e}"));
    trainer.resume_at(steps_done);
}

fn bits(trainer: &mut Trainer) -> Vec<(String, Vec<u8>)> {
    let state = trainer.state().fetch().expect("the state").without(is_transient);
    state.iter().map(|(name, t)| (name.to_string(), t.bytes().to_vec())).collect()
}

/// Saved on the one and taken up on the other, in both directions: every bit arrives, frozen
/// weights, loss scale and counters too, and the steps that follow are those of f32.
#[test]
fn a_checkpoint_goes_from_device_to_device() {
    let set = ["train.batch_size=4", "train.images_per_group=2", "train.micro_steps=2"];
    let scale = ["solver.initial_loss_scale=512", "solver.dynamic_loss_scale=true"];
    let more = ["solver.loss_scale_growth_interval=3", "model.backbone.frozen_stages=2"];
    let run = Run::new(&[&set[..], &scale, &more].concat());
    for (from, to) in [(Backend::Cpu, on_device()), (on_device(), Backend::Cpu)] {
        let mut first = run.trainer(&from);
        steps(&mut first, 4);
        let saved = run.save(&mut first);
        let mut second = run.trainer(&to);
        resume(&mut second, &saved, 4);
        let (was, is) = (bits(&mut first), bits(&mut second));
        assert_eq!(was.len(), is.len());
        for ((name, was), (other, is)) in was.iter().zip(&is) {
            assert!(name == other && was == is, "{name} changed on the way");
        }
        let (on, again) = (steps(&mut first, 3), steps(&mut second, 3));
        for (a, b) in on.iter().zip(&again) {
            assert_eq!((a.step, a.epoch, a.lr, a.images), (b.step, b.epoch, b.lr, b.images));
            assert_eq!((a.loss_scale, a.applied), (b.loss_scale, b.applied));
            assert!((a.loss - b.loss).abs() < 0.02 * a.loss, "{a:?} {b:?}");
        }
        assert_eq!(again[0].step, 5);
        assert_eq!(on[0].loss_scale, 1024.0, "it has grown once");
    }
}

/// Frozen weights are fp16 on the device alone: what comes back is what was given.
#[test]
fn frozen_weights_keep_their_bits_on_the_host() {
    let run = Run::new(&["model.backbone.frozen_stages=2"]);
    let mut cpu = run.trainer(&Backend::Cpu);
    let mut device = run.trainer(&on_device());
    for (want, got) in bits(&mut cpu).iter().zip(&bits(&mut device)) {
        assert!(want == got, "{} became another", want.0);
    }
}

/// State that is changed between steps: the steps after it are still told in order.
#[test]
fn changing_state_between_steps_keeps_the_ring_in_step() {
    let run = Run::new(&[]);
    let (mut touched, mut whole) = (run.trainer(&on_device()), run.trainer(&on_device()));
    let mut records = steps(&mut touched, 3);
    touched.state().change(|_| Ok(())).unwrap_or_else(|e| panic!("{e}"));
    records.extend(steps(&mut touched, 3));
    let losses = |records: &[StepRecord]| records.iter().map(|r| r.loss).collect::<Vec<_>>();
    assert_eq!(losses(&records), losses(&steps(&mut whole, 6)));
}

/// A kernel that fails while steps are in flight: every later step says so, in the same words, and
/// nothing waits or panics.
#[test]
fn a_fault_on_the_device_is_an_error_of_the_next_step() {
    let run = Run::new(&[]);
    let device = Arc::new(EmulatedDevice::new(Order::Random(1)));
    let mut trainer = run.trainer(&Backend::Device(device.clone()));
    trainer.step(10).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(trainer.in_flight(), 1);
    let buffer =
        |access| Arg::Buffer(Touch { ptr: device.alloc(256).expect("memory"), bytes: 256, access });
    let reaches_too_far = Launch::over("relu_mask_f16", 128)
        .arg(buffer(Access::Read))
        .arg(buffer(Access::Read))
        .arg(buffer(Access::Write))
        .len(136);
    let stream = device.stream().expect("a stream");
    device.launch(stream, &reaches_too_far).expect("what it does shows when it runs");
    let told =
        |result: Result<StepRecord, _>| result.map_err(|e: engine::EngineError| e.to_string());
    let failed = (0..20).map(|_| told(trainer.step(100))).find_map(Result::err);
    let failed = failed.expect("the device is broken");
    assert!(failed.contains("relu_mask_f16") && failed.contains("past the end"), "{failed}");
    assert_eq!(told(trainer.step(100)).expect_err("it stays so"), failed);
}

/// What is said to be needed is what is taken, and a step takes nothing more.
#[test]
fn the_memory_that_is_needed_is_the_memory_that_is_taken() {
    for set in [&[][..], &["train.batch_size=4", "train.images_per_group=2", "train.micro_steps=2"]]
    {
        let run = Run::new(set);
        let device = Arc::new(EmulatedDevice::new(Order::Given));
        let free = || device.memory().expect("memory").free;
        let (before, allocations) = (free(), device.counts().allocations);
        let mut trainer = run.trainer(&Backend::Device(device.clone()));
        let need = trainer.memory();
        // The emulated device counts pinned memory too. Beyond it are the count of steps and such.
        let taken = before - free();
        let least = need.bytes() + need.pinned_bytes;
        let most = least + 4096;
        println!("need {need:?}, {taken} taken in {} pieces", device.counts().allocations);
        assert!((least..=most).contains(&taken), "{need:?}, {taken} taken");
        assert!(device.counts().allocations - allocations < 10, "a few large pieces");
        let handles = || (device.stream().expect("one").0, device.event().expect("one").0);
        steps(&mut trainer, 2);
        let (now, (stream, event)) = (free(), handles());
        steps(&mut trainer, 12);
        assert_eq!(free(), now);
        assert_eq!(handles(), (stream + 1, event + 1));
        drop(trainer);
        assert_eq!(free(), before, "all of it comes back");
    }
}
