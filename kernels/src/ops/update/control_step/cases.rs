//! Test and benchmark cases of `control_step`.

use super::{ControlStep, LrSchedule};
use crate::Role;
use crate::case::{OpCase, constant, floats};

/// Each phase of each schedule, and each transition of the loss scale.
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

#[cfg(test)]
mod tests {
    use super::super::Control;
    use super::*;
    use crate::case::hand::update;
    use crate::cpu::HostTensor;
    use crate::on_cpu::run_updating;

    fn op(clip_norm: f32, dynamic: bool) -> ControlStep {
        let schedule = LrSchedule::Multistep {
            base: 1.0,
            warmup_steps: 2,
            warmup_factor: 0.5,
            milestones: vec![3],
            gamma: 0.25,
        };
        ControlStep {
            schedule,
            clip_norm,
            growth_interval: 2,
            dynamic,
            shared_warmup: false,
            first_step: 0,
            count_skipped: false,
            micro_steps: 1,
        }
    }

    fn int(value: i32) -> HostTensor {
        constant(&[1], value)
    }

    fn state(scale: f32) -> Vec<HostTensor> {
        let scale = floats(Role::Scalar, &[1], [scale]);
        vec![int(0), scale, int(0), int(0)]
    }

    fn step(op: &ControlStep, norm: f32, finite: i32, state: &mut [HostTensor]) -> Control {
        let norms = floats(Role::Scalar, &[2], [norm, norm]);
        Control::read(update(op, &[norms, int(finite)], state)[0].as_f32())
    }

    /// A control with its fields in memory order.
    fn control([lr, grad_factor, applied, loss_scale]: [f32; 4]) -> Control {
        Control { lr, grad_factor, applied, loss_scale, warmup_cut: 0.0 }
    }

    fn read(state: &[HostTensor]) -> (i32, f32, i32, i32) {
        let int = |i: usize| state[i].as_i32()[0];
        (int(0), state[1].as_f32()[0], int(2), int(3))
    }

    /// An overflow halves the loss scale and skips the step, two clean steps double the scale, and
    /// the learning rate does not advance at a skipped step.
    #[test]
    fn loss_scale_grows_and_backs_off() {
        let (op, mut state) = (op(0.0, true), state(8.0));
        assert_eq!(step(&op, f32::NAN, 0, &mut state), control([0.5, 0.125, 0.0, 8.0]));
        assert_eq!(read(&state), (0, 4.0, 0, 1));
        assert_eq!(step(&op, 1.0, 1, &mut state), control([0.5, 0.25, 1.0, 4.0]));
        assert_eq!(read(&state), (1, 4.0, 1, 1));
        assert_eq!(step(&op, 1.0, 1, &mut state), control([0.75, 0.25, 1.0, 4.0]));
        assert_eq!(read(&state), (2, 8.0, 0, 1));
        assert_eq!(step(&op, 1.0, 1, &mut state).lr, 1.0);
        assert_eq!(step(&op, 1.0, 1, &mut state).lr, 0.25);
        assert_eq!(read(&state), (4, 16.0, 0, 1));
    }

    #[test]
    fn loss_scale_stays_between_one_and_f32_max() {
        let mut low = state(1.5);
        step(&op(0.0, true), f32::INFINITY, 0, &mut low);
        assert_eq!(read(&low).1, 1.0);
        let mut high = state(f32::MAX);
        step(&op(0.0, true), 1.0, 1, &mut high);
        step(&op(0.0, true), 1.0, 1, &mut high);
        assert_eq!(read(&high).1, f32::MAX);
    }

    /// A fixed scale does not change, but non-finite gradients are still not applied.
    #[test]
    fn fixed_loss_scale_is_constant() {
        let (op, mut state) = (op(0.0, false), state(1.0));
        assert_eq!(step(&op, f32::NAN, 0, &mut state).applied, 0.0);
        for _ in 0..5 {
            step(&op, 1.0, 1, &mut state);
        }
        assert_eq!(read(&state), (5, 1.0, 5, 1));
    }

    /// With a limit of 2, an unscaled norm of 4 halves the gradients, and a norm of 1 leaves them
    /// unchanged.
    #[test]
    fn gradient_clipping_matches_hand_computed_values() {
        let (op, mut state) = (op(2.0, false), state(4.0));
        assert!((step(&op, 16.0, 1, &mut state).grad_factor - 0.125).abs() < 1e-6);
        assert_eq!(step(&op, 4.0, 1, &mut state).grad_factor, 0.25);
    }

    /// The full rates 1 and 3 both start lower by 0.5, and decay also reduces the subtracted
    /// amount.
    #[test]
    fn shared_warmup_subtracts_equally_from_every_rate() {
        let mut op = op(0.0, true);
        op.shared_warmup = true;
        let LrSchedule::Multistep { milestones, .. } = &mut op.schedule else { unreachable!() };
        *milestones = vec![1];
        let mut state = state(1.0);
        let rates: Vec<[f32; 3]> = (0..3)
            .map(|_| step(&op, 1.0, 1, &mut state))
            .map(|control| [1.0, 3.0, 0.0].map(|factor| control.rate(factor)))
            .collect();
        assert_eq!(rates, [[0.5, 2.5, -0.5], [0.1875, 0.6875, -0.0625], [0.25, 0.75, 0.0]]);
    }

    /// A schedule that starts at 2 and counts skipped steps.
    #[test]
    fn schedule_offset_and_skipped_steps_are_counted() {
        let (mut op, mut state) = (op(0.0, true), state(8.0));
        (op.first_step, op.count_skipped) = (2, true);
        assert_eq!(step(&op, f32::NAN, 0, &mut state).lr, 1.0);
        assert_eq!(step(&op, 1.0, 1, &mut state).lr, 0.25);
        assert_eq!(read(&state), (2, 4.0, 1, 1));
    }

    #[test]
    fn too_many_milestones_are_rejected() {
        let mut op = op(0.0, false);
        let LrSchedule::Multistep { milestones, .. } = &mut op.schedule else { unreachable!() };
        *milestones = (0..17).collect();
        let norms = floats(Role::Scalar, &[1], [1.0]);
        let refused = run_updating(&op, &[norms, int(1)], &mut state(1.0)).expect_err("too many");
        assert!(refused.to_string().contains("at most 16 milestones"), "{refused}");
    }
}
