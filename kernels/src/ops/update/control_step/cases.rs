//! Cases of `control_step` for the table of ops.

use super::{ControlStep, LrSchedule};
use crate::Role;
use crate::case::{OpCase, constant, floats};

/// Each schedule in its parts, and each way of a loss scale.
pub fn cases() -> Vec<OpCase> {
    let (multistep, cosine) = (multistep(), cosine());
    let at = |label: &str, schedule: &LrSchedule, step| Step {
        label: format!("{label}, step {step}"),
        schedule: schedule.clone(),
        step,
        ..Step::default()
    };
    let multisteps =
        [0, 1, 499, 500, 999, 1000, 2000, 90_000].map(|s| at("multistep", &multistep, s));
    let cosines = [0, 7, 500, 12_345, 29_999, 30_000, 40_000].map(|s| at("cosine", &cosine, s));
    let named = |label: &str| Step { label: label.into(), ..Step::default() };
    let shared = [0, 1, 499, 500, 1000]
        .map(|step| Step { shared_warmup: true, ..at("shared warm-up", &multistep, step) });
    let shared_cosine =
        [3, 700].map(|s| Step { shared_warmup: true, ..at("shared warm-up, cosine", &cosine, s) });
    let scales = [
        Step { norm: f32::INFINITY, finite: 0, ..named("overflow") },
        Step { norm: f32::INFINITY, finite: 0, scale: 1.5, ..named("overflow near 1") },
        Step { norm: f32::INFINITY, finite: 0, dynamic: false, ..named("overflow, fixed scale") },
        Step { growth: 1999, ..named("growth") },
        Step { growth: 1999, scale: f32::MAX, ..named("no room to grow") },
        Step { growth: 1999, dynamic: false, ..named("a fixed scale") },
        Step { growth_interval: 0, ..named("no growth") },
        Step { clip_norm: 10.0, norm: 1e8, ..named("clipped") },
        Step { clip_norm: 10.0, ..named("not clipped") },
        Step { step: -3, ..named("a step below zero") },
        Step { first_step: 490, shared_warmup: true, ..named("a schedule ahead") },
        Step { norm: f32::NAN, finite: 0, count_skipped: true, ..named("a skipped step counts") },
    ];
    let schedules = multisteps.into_iter().chain(cosines).chain(shared).chain(shared_cosine);
    schedules.chain(scales).map(Step::case).collect()
}

fn multistep() -> LrSchedule {
    let milestones = vec![1000, 1500, 2000, 3000, 4000, 5000, 60_000];
    LrSchedule::Multistep {
        base: 0.02,
        warmup_steps: 500,
        warmup_factor: 0.001,
        milestones,
        gamma: 0.1,
    }
}

fn cosine() -> LrSchedule {
    LrSchedule::Cosine {
        base: 0.06,
        warmup_steps: 500,
        warmup_factor: 0.1,
        total_steps: 30_000,
        min: 1e-4,
    }
}

struct Step {
    label: String,
    schedule: LrSchedule,
    clip_norm: f32,
    growth_interval: u32,
    dynamic: bool,
    shared_warmup: bool,
    first_step: u64,
    count_skipped: bool,
    norm: f32,
    finite: i32,
    step: i32,
    scale: f32,
    growth: i32,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            label: String::new(),
            schedule: multistep(),
            clip_norm: 0.0,
            growth_interval: 2000,
            dynamic: true,
            shared_warmup: false,
            first_step: 0,
            count_skipped: false,
            norm: 1234.5,
            finite: 1,
            step: 17,
            scale: 1024.0,
            growth: 5,
        }
    }
}

impl Step {
    fn case(self) -> OpCase {
        let op = ControlStep {
            schedule: self.schedule,
            clip_norm: self.clip_norm,
            growth_interval: self.growth_interval,
            dynamic: self.dynamic,
            shared_warmup: self.shared_warmup,
            first_step: self.first_step,
            count_skipped: self.count_skipped,
            micro_steps: 1 + self.step.unsigned_abs() % 3,
        };
        let int = |v| constant(&[1], v);
        let scalars = |v: Vec<f32>| floats(Role::Scalar, &[v.len()], v);
        let inputs = vec![scalars(vec![3.0, 4.0, self.norm]), int(self.finite)];
        let updates = vec![int(self.step), scalars(vec![self.scale]), int(self.growth), int(7)];
        OpCase::new(self.label, op, inputs).updating(updates)
    }
}
