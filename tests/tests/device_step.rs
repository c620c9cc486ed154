//! The whole training step on the driver for tests, against f32 on the CPU: the checks of
//! `tests/src/step`, which `tools/gpu.sh` runs on CUDA.

use std::panic::catch_unwind;
use std::sync::Arc;

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

/// The first step: the same anchors are sampled, the same RoIs from the same proposals, and losses
/// and gradients are those of f32 within what fp16 costs.
#[test]
fn a_step_in_fp16_is_that_of_f32() {
    step::a_step_in_fp16_is_that_of_f32(&on_driver);
}

/// The same with the products of Hopper.
#[test]
fn a_step_on_hopper_is_that_of_f32() {
    step::a_step_in_fp16_is_that_of_f32(&|seed| {
        Arc::new(test_gpu::open(&format!("H100 SEED={}", seed.unwrap_or(0))))
    });
}

#[test]
fn a_step_in_fp32_is_that_of_the_cpu() {
    step::a_step_in_fp32_is_that_of_the_cpu(&on_driver);
}

#[test]
fn a_step_of_a_resnet_in_fp32_is_that_of_the_cpu() {
    step::a_step_of_a_resnet_in_fp32_is_that_of_the_cpu(&on_driver);
}

#[test]
fn a_step_in_tf32_is_that_of_the_cpu() {
    step::a_step_in_tf32_is_that_of_the_cpu(&on_driver);
}

#[test]
fn three_steps_in_floats_are_those_of_the_cpu() {
    step::three_steps_in_floats_are_those_of_the_cpu(&on_driver);
}

#[test]
fn a_step_by_mlperfs_rules_is_that_of_f32() {
    step::a_step_by_mlperfs_rules_is_that_of_f32(&on_driver);
}

/// Values behind the used part of an input, left by an earlier step, change no bit of a result.
#[test]
fn what_lies_behind_the_counts_changes_nothing() {
    step::what_lies_behind_the_counts_changes_nothing(&on_driver);
}

/// Two padded shapes alternate and share state and arena: each step matches the CPU.
#[test]
fn two_shapes_alternate() {
    step::two_shapes_alternate(&on_driver);
}

/// Twenty steps lose as much as on the CPU, and the same device makes the same bits again.
#[test]
fn twenty_steps_learn_as_on_the_cpu() {
    step::twenty_steps_learn_as_on_the_cpu(&on_driver);
}

/// With norms in pyramid and heads, convolutions in the box head and two in the RPN: the same.
#[test]
fn new_heads_train_as_on_the_cpu() {
    step::new_heads_train_as_on_the_cpu(&on_driver);
}

/// With the three box heads of a cascade: the same.
#[test]
fn a_cascade_trains_as_on_the_cpu() {
    step::a_cascade_trains_as_on_the_cpu(&on_driver);
}

/// With keypoints in place of masks: the same.
#[test]
fn keypoints_train_as_on_the_cpu() {
    step::keypoints_train_as_on_the_cpu(&on_driver);
}

/// Without a pyramid, and with the body's last stage on RoIs: the same.
#[test]
fn a_c4_model_trains_as_on_the_cpu() {
    step::a_c4_model_trains_as_on_the_cpu(&on_driver);
}

/// A ResNeXt without a pyramid, with dilation: the same.
#[test]
fn a_dc5_resnext_trains_as_on_the_cpu() {
    step::a_dc5_resnext_trains_as_on_the_cpu(&on_driver);
}

/// A filter for each channel, and branches that images leave out: the same.
#[test]
fn a_convnext_trains_as_on_the_cpu() {
    step::a_convnext_trains_as_on_the_cpu(&on_driver);
}

/// A head that gets no gradient, or twice its own, fails the check of new heads.
#[test]
fn a_head_with_another_gradient_is_noticed() {
    for loss in ["objectness", "rpn_box_reg", "classifier", "box_reg", "mask"] {
        for weight in [0, 2] {
            let planted = format!("loss_weights.{loss}={weight}");
            let check = || {
                step::a_step_of_new_heads_is_that_of_f32(&on_driver, "group_norm", &[&planted]);
            };
            let found = catch_unwind(check).expect_err(&planted);
            let found = found.downcast_ref::<String>().expect("a message");
            println!("{planted}: {found}");
            assert!(found.contains("norm"), "{planted}: {found}");
        }
    }
}

/// Over 50 steps: one graph launch and one copy each, and the host never waits for the device.
#[test]
fn a_step_is_one_launch_and_no_wait() {
    step::a_step_is_one_launch_and_no_wait(&on_driver);
}

/// The loss scale doubles after clean steps; a step whose gradients overflow leaves every bit of
/// the weights and their momentum as it was, and halves the scale.
#[test]
fn the_loss_scale_grows_and_an_overflow_is_skipped() {
    step::the_loss_scale_grows_and_an_overflow_is_skipped(&on_driver);
}

/// A run that was saved and taken up again makes the bits of one that went on.
#[test]
fn resuming_is_exact() {
    step::resuming_is_exact(&on_driver);
}

/// Four images in two micro-steps of two make the update of four at once.
#[test]
fn two_micro_steps_of_two_are_one_step_of_four() {
    step::two_micro_steps_of_two_are_one_step_of_four(&on_driver);
}

#[test]
fn a_partial_batch_weighs_as_without_micro_steps() {
    step::a_partial_batch_weighs_as_without_micro_steps(&on_driver);
}

/// Each fusion alone, and all together, give the losses and gradients of the plain form but for
/// rounding, and the same bits in two orders of work.
#[test]
fn fusions_change_rounding_alone() {
    step::fusions_change_rounding_alone(&on_driver);
}

/// Masks of signs give every bit that masks of activations give.
#[test]
fn signs_change_no_bit() {
    step::signs_change_no_bit(&on_driver);
}

/// A batch that does not fit is refused with one that would.
#[test]
fn too_large_a_batch_is_refused_with_one_that_fits() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let set = [
        "train.batch_size=160",
        "train.images_per_group=1",
        "input.min_size=1600",
        "input.max_size=1600",
    ];
    let dir = format!("data.synthetic.dir={}", place.path().join("drawn").display());
    let set: Vec<String> = set.into_iter().map(str::to_string).chain([dir]).collect();
    let config = Config::load("micro", &set).expect("the preset loads");
    let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
    let device = Arc::new(test_gpu::open("A100 MEMORY=6442450944"));
    let refused = Trainer::new(&config, &data, &Backend::Device(device));
    let error = refused.map(|_| "it fits").expect_err("more than the device has").to_string();
    assert!(error.contains("a batch of 160 images needs"), "{error}");
    assert!(error.contains("train.batch_size="), "{error}");
}

/// The batch that is advised fits beside evaluations that take more than steps, and leaves what
/// code and graphs take.
#[test]
fn the_batch_that_is_advised_fits_with_its_evaluations() {
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
        let division = Division::alone(&config.train, &backend.target(config));
        let sets = (&data, Some(&val));
        Trainer::with_evaluations(config, sets, backend, division, Arc::default())
    };
    let device = |bytes| Arc::new(test_gpu::open(&format!("A100 MEMORY={bytes}")));
    let whole = trainer(&large, &Backend::Device(device(2 * KEPT))).expect("it fits").memory();
    let device = device(KEPT + whole.bytes() - 1);
    let backend = Backend::Device(device.clone());
    let refused = trainer(&large, &backend).map(|_| "it fits").expect_err("a byte is missing");
    let refused = refused.to_string();
    assert!(refused.contains("keeps 1.00 GiB of it"), "{refused}");
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
