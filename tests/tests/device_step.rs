//! The whole training step on the emulated driver, compared with f32 on the CPU: the checks of
//! `tests/src/step`, which `tools/gpu.sh` runs on CUDA.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use device::Device;
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::evaluate::Evaluator;
use engine::model::{Division, classes_of};
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use tests::step;

fn on_driver(seed: Option<u64>) -> Arc<dyn Device> {
    Arc::new(test_gpu::open(&format!("A100 SEED={}", seed.unwrap_or(0))))
}

/// Runs all checks, as many in parallel as there are processors.
#[test]
fn training_step_checks_pass_on_emulator() {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Vec<&str>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        while let Some((name, check)) = step::CHECKS.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("{name}");
            if catch_unwind(|| check(&on_driver)).is_err() {
                failed.lock().expect("no panic").push(name);
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(failed.into_inner().expect("no panic"), [""; 0]);
}

/// The first step with Hopper's GEMMs.
#[test]
fn hopper_step_matches_f32() {
    step::fp16_step_matches_f32(&|seed| {
        Arc::new(test_gpu::open(&format!("H100 SEED={}", seed.unwrap_or(0))))
    });
}

/// A batch that does not fit is rejected, and the message names the largest batch that fits. With
/// this batch, evaluations, which need more memory than steps, fit as well, and memory is left for
/// code and graphs.
#[test]
fn batch_size_suggested_by_error_fits_with_evaluation() {
    const KEPT: usize = 1 << 30;
    let place = tempfile::tempdir().expect("a temporary folder");
    let dir = format!("data.synthetic.dir={}", place.path().join("drawn").display());
    let config = |batch: &str| {
        let set = [batch, "train.images_per_group=1", "eval.batch_size=12", &dir];
        Config::load("micro", &set.map(String::from)).expect("the preset loads")
    };
    let large = config("train.batch_size=16");
    let open = |split| DataSet::open(&large, split, &Progress::quiet()).expect("drawn images");
    let (data, val) = (open(Split::Train), open(Split::Val));
    let trainer = |config: &Config, backend: &Backend| {
        let division = Division::single(&config.train, &backend.target(config));
        let sets = (&data, Some(&val));
        Trainer::with_evaluations(config, sets, backend, division, Arc::default())
    };
    let device = |bytes| Arc::new(test_gpu::open(&format!("A100 MEMORY={bytes}")));
    let whole = trainer(&large, &Backend::Device(device(2 * KEPT))).expect("it fits").memory();
    let device = device(KEPT + whole.bytes() - 1);
    let backend = Backend::Device(device.clone());
    let refused = trainer(&large, &backend).map(|_| "it fits").expect_err("a byte is missing");
    let refused = refused.to_string();
    for words in ["a batch of 16 images needs", "keeps 1.00 GiB of it"] {
        assert!(refused.contains(words), "{refused}");
    }
    let advised = refused.split(' ').find(|word| word.starts_with("train.batch_size="));
    let advised = config(advised.unwrap_or_else(|| panic!("{refused}")));
    assert!(advised.train.batch_size > 8, "{refused}");
    let free = || device.memory().expect("memory").free;
    let mut trainer = trainer(&advised, &backend).unwrap_or_else(|e| panic!("{refused}: {e}"));
    let (classes, before) = (classes_of(trainer.params()), free());
    let planned = Evaluator::memory(&advised, &val, classes, &backend).expect("a plan");
    let evaluator = Evaluator::new(&advised, val.clone(), classes, &backend, trainer.state());
    assert!(evaluator.is_ok());
    let taken = before - free();
    assert!(taken < 2 * planned.input_bytes, "no second arena: {taken}, {planned:?}");
    assert!(free() + planned.input_bytes >= KEPT);
}
