//! The whole training step in fp16 on a device, compared with f32 on the CPU: values, order, loss
//! scale, resuming, and host activity during a step. Each check panics with the error found.

mod counted;
mod first;
mod fusion;
mod program;
mod run;
mod training;

use std::sync::Arc;

use device::Device;
use tempfile::TempDir;

pub use counted::{CountedNode, counted_products};
pub use first::a_step_in_fp16_is_that_of_f32;
pub use run::{Run, resume, steps};

/// Opens the device. A seed requests an unusual execution order, if the device supports it.
pub type Open<'a> = dyn Fn(Option<u64>) -> Arc<dyn Device> + 'a;

/// A check of the whole step, which panics with the error found, and its name.
pub type Check = (&'static str, fn(&Open<'_>));

/// All checks.
pub const CHECKS: [Check; 22] = [
    ("first step against f32", a_step_in_fp16_is_that_of_f32),
    ("first step in fp32", first::a_step_in_fp32_is_that_of_the_cpu),
    ("first step of a ResNet in fp32", first::a_step_of_a_resnet_in_fp32_is_that_of_the_cpu),
    ("first step in tf32", first::a_step_in_tf32_is_that_of_the_cpu),
    ("three steps in fp32 and tf32", first::three_steps_in_floats_are_those_of_the_cpu),
    ("MLPerf's rules against f32", first::a_step_by_mlperfs_rules_is_that_of_f32),
    ("bytes behind the counts", first::what_lies_behind_the_counts_changes_nothing),
    ("two shapes in turn", first::two_shapes_alternate),
    ("one launch, no wait", training::a_step_is_one_launch_and_no_wait),
    ("loss scale and overflow", training::the_loss_scale_grows_and_an_overflow_is_skipped),
    ("resume", training::resuming_is_exact),
    ("micro-steps", training::two_micro_steps_of_two_are_one_step_of_four),
    ("micro-steps of a partial batch", training::a_partial_batch_weighs_as_without_micro_steps),
    ("fusions", fusion::fusions_change_rounding_alone),
    ("signs", fusion::signs_change_no_bit),
    ("twenty steps", training::twenty_steps_learn_as_on_the_cpu),
    ("new heads", training::new_heads_train_as_on_the_cpu),
    ("cascade", training::a_cascade_trains_as_on_the_cpu),
    ("keypoints", training::keypoints_train_as_on_the_cpu),
    ("C4", training::a_c4_model_trains_as_on_the_cpu),
    ("DC5 and groups", training::a_dc5_resnext_trains_as_on_the_cpu),
    ("ConvNeXt", training::a_convnext_trains_as_on_the_cpu),
];

fn relative(got: f64, want: f64) -> f64 {
    (got - want).abs() / want.abs().max(1e-30)
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}
