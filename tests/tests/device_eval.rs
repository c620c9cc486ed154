//! Evaluation on the emulated driver compared with f32 on the CPU, and entire training sessions on
//! both.

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use dali::order::PaddedShape;
use device::Device;
use device::cuda::CudaDevice;
use engine::EngineError;
use engine::config::{Config, Precision};
use engine::dataset::{DataSet, Split};
use engine::evaluate::{
    DetectionModel, Detector, EvaluationSet, Evaluator, Found, Image, ImageDetections,
};
use engine::model::classes_of;
use engine::progress::Progress;
use engine::run_dir::RunDir;
use engine::runtime::{Backend, ModelState};
use engine::team::Team;
use engine::train::{Event, Observer, Outcome, Session, SessionOptions, Trainer};
use graph::StateSet;
use kernels::boxes::iou;
use kernels::isa::GemmSettings;
use score::{Rle, mask_iou};
use test_gpu::{Alive, TestGpu};

use common::Place;

/// Minimum score of compared detections; less confident ones may cross a threshold due to rounding.
const SURE: f32 = 0.3;
/// Maximum difference between a detection's scores in fp16 and in f32.
const SCORE_BOUND: f32 = 0.02;
const MIN_IOU: f32 = 0.9;

fn on_driver(seed: u64) -> (Arc<CudaDevice>, Backend) {
    let device = Arc::new(test_gpu::open(&format!("A100 SEED={seed}")));
    (device.clone(), Backend::Device(device))
}

fn mask_of(found: &Found) -> &[Rle] {
    std::slice::from_ref(found.mask.as_ref().expect("a Mask R-CNN"))
}

/// Checks that each confident detection of `wanted` has a separate match in `got`; returns the
/// number of matches, the largest score difference, and the mean IoU of the masks.
fn matched(wanted: &[ImageDetections], got: &[ImageDetections]) -> (usize, f32, f32) {
    assert_eq!(wanted.len(), got.len());
    let (mut count, mut worst, mut masks) = (0, 0.0f32, 0.0);
    for (wanted, got) in wanted.iter().zip(got) {
        assert_eq!(wanted.image_id, got.image_id);
        let mut free: Vec<&Found> = got.objects.iter().collect();
        for object in wanted.objects.iter().filter(|o| o.score > SURE) {
            let fits =
                |f: &&Found| f.label == object.label && iou(&f.bbox, &object.bbox, false) > MIN_IOU;
            let Some(at) = free.iter().position(fits) else {
                panic!("image {}: nothing like {object:?} in {free:?}", wanted.image_id)
            };
            let found = free.swap_remove(at);
            worst = worst.max((found.score - object.score).abs());
            // Empty masks have no overlap.
            masks += match found.mask == object.mask {
                true => 1.0,
                false => mask_iou(mask_of(found), mask_of(object), &[false])[0][0] as f32,
            };
            count += 1;
        }
        let sure = |f: &&Found| f.score > SURE + SCORE_BOUND;
        assert!(!free.iter().any(sure), "image {}: too many: {free:?}", wanted.image_id);
    }
    (count, worst, masks / count.max(1) as f32)
}

/// A model trained for some steps on the CPU.
struct Trained {
    config: Config,
    state: StateSet,
    classes: usize,
    _place: Place,
}

impl Trained {
    fn new(set: &[&str]) -> Self {
        let place = Place::new();
        let config = place.config(set);
        let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("images");
        let mut trainer = Trainer::new(&config, &data, &Backend::Cpu).expect("micro is sound");
        for _ in 0..config.train.steps {
            trainer.step(config.train.steps).expect("a step");
        }
        let classes = classes_of(trainer.params());
        let state = trainer.state().fetch().expect("on the host").clone();
        Self { config, state, classes, _place: place }
    }

    /// The training images, the only ones on which the small model detects objects.
    fn data(&self) -> DataSet {
        DataSet::open(&self.config, Split::Train, &Progress::quiet()).expect("images")
    }

    fn evaluator(&self, backend: &Backend, state: &mut ModelState) -> Evaluator {
        let made = Evaluator::new(&self.config, self.data(), self.classes, backend, state);
        made.unwrap_or_else(|e| panic!("{e}"))
    }

    /// A trainer on `backend` that has restored the state, as during training.
    fn trainer(&self, backend: &Backend) -> Trainer {
        let data = DataSet::open(&self.config, Split::Train, &Progress::quiet()).expect("images");
        let mut trainer = Trainer::new(&self.config, &data, backend).expect("micro is sound");
        let take = |state: &mut StateSet| {
            self.state.iter().for_each(|(name, tensor)| state.insert(name, tensor.clone()));
            Ok(())
        };
        trainer.state().change(take).expect("the same names");
        trainer
    }
}

/// Config that trains long enough to memorize seven images.
const LONG: [&str; 6] = [
    "train.steps=1200",
    "data.synthetic.train_images=7",
    "model.roi.canonical_size=20",
    "model.box_head.hidden=[64,64]",
    "input.flip_probability=0",
    "input.max_size=96",
];

/// Seven images in batches of two, with the last batch half empty: one launch per batch, and the
/// same detections as in f32.
#[test]
fn fp16_detections_match_f32() {
    let trained = Trained::new(&LONG);
    let images: Vec<usize> = (0..7).collect();
    let quiet = Progress::quiet();
    let mut host = ModelState::host(trained.state.clone(), GemmSettings::PLAIN);
    let mut cpu = trained.evaluator(&Backend::Cpu, &mut host);
    let wanted = cpu.detect(&mut host, &images, &quiet).expect("detections");
    let (device, backend) = on_driver(4);
    let mut trainer = trained.trainer(&backend);
    let mut evaluator = trained.evaluator(&backend, trainer.state());
    let before = device.counts();
    let got = evaluator.detect(trainer.state(), &images, &quiet).expect("detections");
    let after = device.counts();
    assert_eq!(after.graph_launches - before.graph_launches, 4, "one a batch");
    assert_eq!(after.kernel_launches, before.kernel_launches);
    assert_eq!(after.uploads - before.uploads, 4);
    let (count, worst, masks) = matched(&wanted, &got);
    println!("{count} detections, scores at most {worst:.4} apart, masks' mean IoU {masks:.4}");
    assert!(count >= 7, "only {count} detections: nothing was compared");
    assert!(worst < SCORE_BOUND && masks > 0.95, "{worst} {masks}");
    drop(evaluator);
    let before = device.counts().allocations;
    let mut evaluator = trained.evaluator(&backend, trainer.state());
    evaluator.keep_images(&backend);
    let places = 4 * trained.data().shapes.len() as u64;
    let made = device.counts().allocations - before;
    assert_eq!(made, places, "per shape two input buffers, inputs and index, but no arena");
    // The result for an image does not depend on whether the batch contains a second image.
    let alone = evaluator.detect(trainer.state(), &[3], &quiet).expect("detections");
    assert_eq!(alone[0], got[3]);
    let again = evaluator.detect(trainer.state(), &images, &quiet).expect("detections");
    assert_eq!(again, got, "repeated: bit-identical");
    // The images are now cached on the device.
    assert!(evaluator.kept_bytes() > 0);
    let before = device.counts();
    let kept = evaluator.detect(trainer.state(), &images, &quiet).expect("detections");
    assert_eq!(device.counts().uploads, before.uploads, "nothing is copied to the device");
    assert_eq!(kept, got, "cached on the device: bit-identical");
    drop(evaluator);
    detections_in_floats(trained, &images, &wanted);
}

/// In fp32 detections equal the CPU's up to summation order, in tf32 approximately.
fn detections_in_floats(mut trained: Trained, images: &[usize], wanted: &[ImageDetections]) {
    for (precision, bound) in [(Precision::Fp32, 1e-5), (Precision::Tf32, SCORE_BOUND)] {
        trained.config.train.precision = precision;
        let (_, backend) = on_driver(4);
        let mut trainer = trained.trainer(&backend);
        let mut evaluator = trained.evaluator(&backend, trainer.state());
        let got = evaluator.detect(trainer.state(), images, &Progress::quiet());
        let (count, worst, masks) = matched(wanted, &got.expect("detections"));
        println!("{precision:?}: {count} detections, scores at most {worst:.2e} apart, {masks:.4}");
        assert!(count >= 7 && worst < bound && masks > 0.95, "{precision:?}: {worst} {masks}");
    }
}

/// An image repeated `times` times in horizontal direction.
fn repeated(image: &Image, times: usize) -> Image {
    let rows = image.rgb.chunks_exact(3 * image.width);
    let rgb = rows.flat_map(|row| row.repeat(times)).collect();
    Image { width: times * image.width, rgb, ..image.clone() }
}

/// An image with every pixel repeated four times.
fn magnified(image: &Image) -> Image {
    let row = |row: &[u8]| row.chunks_exact(3).flat_map(|p| p.repeat(2)).collect::<Vec<u8>>();
    let rows = image.rgb.chunks_exact(3 * image.width);
    let rgb = rows.flat_map(|r| row(r).repeat(2)).collect();
    Image { height: 2 * image.height, width: 2 * image.width, rgb, ..image.clone() }
}

/// Detection with two alternating padded shapes, source images larger than planned, and weights
/// that are updated in place between calls.
#[test]
fn detection_accepts_new_shapes_sizes_and_weights() {
    let mut trained = Trained::new(&LONG);
    let (_, backend) = on_driver(6);
    let mut trainer = trained.trainer(&backend);
    let square = PaddedShape { height: 64, width: 64 };
    let shapes = [square, PaddedShape { height: 64, width: 96 }];
    let image = {
        let mut host = ModelState::host(trained.state.clone(), GemmSettings::PLAIN);
        trained.evaluator(&Backend::Cpu, &mut host).set().load(0).expect("an image")
    };
    let narrow = {
        let mut crop = image.clone();
        let rows = image.rgb.chunks_exact(3 * image.width);
        crop.rgb = rows.flat_map(|r| r[..3 * image.width / 4 * 3].to_vec()).collect();
        crop.width = image.width / 4 * 3;
        repeated(&crop, 2)
    };
    let runs = [(0, image.clone()), (1, narrow), (0, magnified(&image)), (0, image)];
    let mut earlier: Option<Vec<ImageDetections>> = None;
    for round in 0..2 {
        trained.state = trainer.state().fetch().expect("the state").clone();
        let mut host = ModelState::host(trained.state.clone(), GemmSettings::PLAIN);
        let mut both =
            [(&Backend::Cpu, &mut host), (&backend, trainer.state())].map(|(b, state)| {
                let made =
                    Detector::new(&trained.config, &shapes, trained.classes, (1, 0), b, state);
                let mut detector = made.unwrap_or_else(|e| panic!("{e}"));
                let runs = runs.iter().map(|(shape, image)| {
                    let found = detector.run(*shape, std::slice::from_ref(image), state);
                    found.unwrap_or_else(|e| panic!("{e}")).remove(0)
                });
                runs.collect::<Vec<_>>()
            });
        let (count, worst, masks) = matched(&both[0], &both[1]);
        println!("round {round}: {count}, {worst:.4} apart, masks {masks:.4}");
        assert!(count >= 4 && worst < SCORE_BOUND && masks > 0.95, "{count} {worst} {masks}");
        assert_eq!(both[1][0], both[1][3], "the runs in between have no effect");
        assert!(earlier.take().is_none_or(|e| e != both[1]), "the new weights are used");
        earlier = Some(std::mem::take(&mut both[1]));
        let until = trainer.steps_done() + 5;
        (0..5).for_each(|_| drop(trainer.step(until).expect("a step")));
    }
}

/// When a detector plans again for larger images, it releases the old graphs, streams and events.
#[test]
fn replanning_leaks_no_graphs_streams_or_events() {
    let place = Place::new();
    let config = place.config(&[]);
    let data = DataSet::open(&config, Split::Val, &Progress::quiet()).expect("images");
    let gpu = TestGpu::new("A100");
    let backend = Backend::Device(Arc::new(gpu.open()));
    let classes = data.num_classes();
    let mut model = DetectionModel::new(&config, classes, None, &backend).expect("a model");
    let before = gpu.alive();
    let shapes = [PaddedShape { height: 64, width: 64 }];
    let made = Detector::new(&config, &shapes, classes, (1, 0), &backend, &mut model.state);
    let mut detector = made.expect("micro is sound");
    let once = gpu.alive();
    assert_eq!(once.graphs, before.graphs + 1);
    let mut image = EvaluationSet::new(&config, data).load(0).expect("an image");
    for _ in 0..3 {
        let bytes = detector.input_bytes(0);
        image = magnified(&image);
        let ran = detector.run(0, std::slice::from_ref(&image), &mut model.state);
        ran.unwrap_or_else(|e| panic!("{e}"));
        assert!(detector.input_bytes(0) > bytes, "it was planned again");
        assert_eq!(gpu.alive(), once);
    }
    drop(detector);
    // The device keeps the stream that it uses to query errors.
    assert_eq!(gpu.alive(), Alive { streams: before.streams + 1, ..before });
}

/// Options of a new run in this folder, without interruption and observer.
fn options(place: &Place, name: &str, backend: Backend) -> SessionOptions {
    SessionOptions {
        run: RunDir::create(place.path(), name).expect("a directory"),
        resume: false,
        accept_changes: false,
        interrupted: Arc::new(AtomicBool::new(false)),
        progress: Progress::quiet(),
        backend,
        team: Team::single(),
        observer: None,
    }
}

fn opened(config: Config, options: SessionOptions) -> Session {
    Session::new(config, options).unwrap_or_else(|e| panic!("{e}"))
}

/// A late evaluation result discards the steps after the evaluated one, on a device as well:
/// checkpoints, records, reports and final state equal those of a run that waits for its scores.
#[test]
fn run_with_overlapped_evaluation_equals_blocking_run() {
    let set = ["train.steps=12", "train.eval_every_steps=4", "train.target_box=0"];
    let end = |overlap: bool| {
        let place = Place::new();
        let config = place.config(&[&set[..], &[&format!("eval.overlap={overlap}")]].concat());
        let mut session = opened(config, options(&place, "run", on_driver(5).1));
        let (outcome, evaluation) = session.run().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(outcome, Outcome::TargetReached);
        let state = session.state();
        let state = state.fetch().expect("the state").clone();
        session.finish().expect("all is written");
        let log = place.text("run/log.txt");
        assert_eq!(log.contains("during scoring are discarded"), overlap, "{log}");
        let report = place.json("run/report.json");
        let told = ["steps", "evaluated_step", "state", "bbox", "segm", "best"];
        let told = told.map(|key| report[key].clone());
        let steps = place.steps("run");
        assert_eq!((steps.len(), &told[0]), (4, &4.into()), "{report}");
        let values: Vec<_> =
            state.iter().map(|(n, t)| (n.to_string(), t.bytes().to_vec())).collect();
        (steps, place.names("run/checkpoints"), place.state("run", 4), told, values, evaluation)
    };
    let (late, waiting) = (end(true), end(false));
    assert_eq!(late.0, waiting.0, "the steps of metrics.jsonl");
    assert_eq!((&late.1, &late.3), (&waiting.1, &waiting.3), "checkpoints and report");
    assert!(late.2 == waiting.2 && late.4 == waiting.4, "bit-identical");
    assert_eq!(late.5.detections, waiting.5.detections);
}

/// An observer that only records events; with an observer, the session warms up the device.
#[derive(Debug)]
struct Watcher(Vec<String>);

impl Observer for Watcher {
    fn see(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        let text = format!("{event:?}");
        let name = text.split([' ', '(']).next().unwrap_or_default();
        self.0.push(name.to_string());
        Ok(())
    }
}

/// The warm-up runs every program once, before the data is read, and does not affect the run;
/// events are reported in order.
#[test]
fn warmed_up_session_is_bit_identical() {
    let set = ["train.steps=4", "train.eval_every_epochs=1", "data.synthetic.train_images=4"];
    let end = |observer: Option<Arc<Mutex<dyn Observer>>>| {
        let place = Place::new();
        let plain = options(&place, "run", on_driver(9).1);
        let mut session = opened(place.config(&set), SessionOptions { observer, ..plain });
        session.run().unwrap_or_else(|e| panic!("{e}"));
        (place.metrics("run"), place.state("run", 4))
    };
    let watcher = Arc::new(Mutex::new(Watcher(Vec::new())));
    assert!(end(Some(watcher.clone())) == end(None));
    let seen = watcher.lock().expect("no panic").0.clone();
    let order = ["Prepared", "EpochBegins", "EpochEnds", "DetectionBegins", "DetectionEnds"];
    assert_eq!(seen[..5], order);
    assert_eq!(seen.last().map(String::as_str), Some("Decided"));
    let count = |name: &str| seen.iter().filter(|seen| *seen == name).count();
    assert_eq!((count("EpochBegins"), count("EpochEnds"), count("Scored")), (2, 2, 2), "{seen:?}");
}
