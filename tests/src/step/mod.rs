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

pub use counted::{CountedNode, counted_gemms};
pub use first::fp16_step_matches_f32;
pub use run::{Run, resume, steps};

/// Opens the device. A seed selects a random execution order, if the device supports this.
pub type Open<'a> = dyn Fn(Option<u64>) -> Arc<dyn Device> + 'a;

/// The name of a check of the whole step, and the check, which panics if it finds an error.
pub type Check = (&'static str, fn(&Open<'_>));

/// All checks.
pub const CHECKS: [Check; 22] = [
    ("first step against f32", fp16_step_matches_f32),
    ("first step in fp32", first::fp32_step_matches_cpu),
    ("first step of a ResNet in fp32", first::fp32_resnet_step_matches_cpu),
    ("first step in tf32", first::tf32_step_matches_cpu),
    ("three steps in fp32 and tf32", first::three_fp32_and_tf32_steps_match_cpu),
    ("MLPerf's rules against f32", first::mlperf_step_matches_f32),
    ("values past the counts", first::values_past_counts_do_not_change_step),
    ("two alternating shapes", first::two_shapes_can_alternate),
    ("one launch, no host synchronization", training::step_is_one_launch_without_host_sync),
    ("loss scale and overflow", training::loss_scale_grows_and_overflow_is_skipped),
    ("resume", training::resume_is_bit_identical),
    ("micro-steps", training::two_micro_steps_of_two_equal_one_step_of_four),
    ("micro-steps of a partial batch", training::partial_batch_is_weighted_as_without_micro_steps),
    ("fusions", fusion::fusions_change_only_rounding),
    ("sign bits", fusion::sign_fusion_is_bit_exact),
    ("twenty steps", training::twenty_steps_learn_as_on_cpu),
    ("heads with norms", training::normed_heads_train_as_on_cpu),
    ("cascade", training::cascade_trains_as_on_cpu),
    ("keypoints", training::keypoints_train_as_on_cpu),
    ("C4", training::c4_model_trains_as_on_cpu),
    ("DC5 with grouped convolutions", training::dc5_resnext_trains_as_on_cpu),
    ("ConvNeXt", training::convnext_trains_as_on_cpu),
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
