//! Per-step decisions, made on the device: learning rate, clipping, loss scale, and whether the
//! update is applied.
//!
//! Tensors: `norms [n+1]` f32 (last: the norm of all gradients, still times the loss scale),
//! `finite [1]` i32 (in); state, updated: `step [1]` i32, `scale [1]` f32 (loss scale), `growth
//! [1]` i32 (clean steps since the scale changed), `skipped [1]` i32 -> `control [5]`
//! (Role::Scalar, overwritten), a [`Control`].
//!
//! * Gradients that are not all finite are never applied: `applied` is 0, `skipped` is incremented,
//!   `growth` restarts, and with `dynamic` the scale halves, not below 1.
//! * `step` counts only applied steps, so the step after a skipped step has the same learning rate;
//!   with `count_skipped` it also counts skipped steps.
//! * The schedule is evaluated at `step + first_step`.
//! * A shared warm-up lowers every parameter's rate by the same amount, regardless of its full rate
//!   ([`Control::rate`]); a warm-up that is not shared lowers all rates by the same factor.
//! * With `dynamic`, the scale doubles after `growth_interval` clean steps in a row (0: never), as
//!   long as it stays finite.
//! * Learning rates are computed in f64; a schedule has at most [`MAX_MILESTONES`] milestones.
//! * `clip_norm` above 0 clips as `torch.nn.utils.clip_grad_norm_`: gradients are multiplied by
//!   `min(1, clip_norm / (norm + 1e-6))`, where `norm` is unscaled.

mod cases;
mod control;
mod schedule;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use crate::cpu::CpuArgs;
use crate::{Op, OpError, TensorDesc, check};

pub use cases::cases;
pub use control::Control;
pub use schedule::LrSchedule;

/// Decides the learning rate, the scale of the gradients, and whether the update is applied.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlStep {
    /// Learning rate of each step.
    pub schedule: LrSchedule,
    /// Maximum norm of all gradients together; 0 = no clipping.
    pub clip_norm: f32,
    /// Clean steps before the loss scale doubles.
    pub growth_interval: u32,
    /// Dynamic loss scaling.
    pub dynamic: bool,
    /// The warm-up lowers all rates by the same amount.
    pub shared_warmup: bool,
    /// The schedule's step at the first update.
    pub first_step: u64,
    /// The schedule also advances at skipped steps.
    pub count_skipped: bool,
    /// Number of accumulated micro-steps; the update applies the mean of their gradients.
    pub micro_steps: u32,
}

const NAME: &str = "control_step";

/// Maximum number of milestones of a schedule: the capacity of the CUDA kernel's argument.
pub const MAX_MILESTONES: usize = 16;

impl Op for ControlStep {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 2)?;
        check::arity(NAME, "updates", updates, 4)?;
        check::floats_ranked(NAME, "norms", &inputs[0], "[n+1]")?;
        let norms = inputs[0].len();
        check::parameter(NAME, "n+1", norms > 0, "at least 1", norms)?;
        check::integers(NAME, "finite", &inputs[1], &[1])?;
        check::integers(NAME, "step", &updates[0], &[1])?;
        check::floats(NAME, "scale", &updates[1], &[1])?;
        check::integers(NAME, "growth", &updates[2], &[1])?;
        check::integers(NAME, "skipped", &updates[3], &[1])?;
        check::parameter(NAME, "clip_norm", self.clip_norm >= 0.0, "0 or more", self.clip_norm)?;
        if let LrSchedule::Multistep { milestones, .. } = &self.schedule {
            let fits = milestones.len() <= MAX_MILESTONES;
            let expected = format!("at most {MAX_MILESTONES} milestones");
            check::parameter(NAME, "milestones", fits, &expected, milestones.len())?;
        }
        Ok(vec![Control::desc()])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [step, scale, growth, skipped] = args.updates[..] else {
            panic!("control_step: four state tensors")
        };
        let rules = StructArg::new()
            .field(self.clip_norm)
            .field(self.growth_interval)
            .field(i32::from(self.dynamic))
            .field(self.micro_steps as f32)
            .field(self.first_step)
            .field(i32::from(self.shared_warmup))
            .field(i32::from(self.count_skipped))
            .arg();
        vec![
            Launch::new("control_step", [1, 1, 1])
                .block(32)
                .arg(last(args.inputs[0]))
                .arg(args.inputs[1].read())
                .arg(schedule(&self.schedule))
                .arg(rules)
                .arg(args.outputs[0].write())
                .arg(step.update())
                .arg(scale.update())
                .arg(growth.update())
                .arg(skipped.update()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let norm = args.inputs[0].f32().last().copied().unwrap_or(0.0);
        let finite = args.inputs[1].i32()[0] != 0;
        let [step, scale, growth, skipped] = &mut args.updates[..] else {
            panic!("{NAME}: four state tensors")
        };
        let used = scale.f32()[0];
        let control = self.decide(step.i32()[0], norm, finite, used);
        args.outputs[0].f32().copy_from_slice(control.values());
        let growth = &mut growth.i32()[0];
        if finite {
            step.i32()[0] += 1;
            *growth += 1;
            let due = self.growth_interval > 0 && *growth as u32 >= self.growth_interval;
            if self.dynamic && due {
                *growth = 0;
                scale.f32()[0] = if (2.0 * used).is_finite() { 2.0 * used } else { used };
            }
        } else {
            skipped.i32()[0] += 1;
            step.i32()[0] += i32::from(self.count_skipped);
            *growth = 0;
            if self.dynamic {
                scale.f32()[0] = (0.5 * used).max(1.0);
            }
        }
    }
}

impl ControlStep {
    /// The decisions for a step whose gradients have the norm `scaled_norm`, which is still
    /// multiplied by the loss scale.
    fn decide(&self, step: i32, scaled_norm: f32, finite: bool, loss_scale: f32) -> Control {
        let divisor = loss_scale * self.micro_steps as f32;
        let step = self.first_step + u64::try_from(step).unwrap_or(0);
        let cut = if self.shared_warmup { self.schedule.warmup_cut(step) } else { 0.0 };
        Control {
            lr: self.schedule.at(step) as f32,
            grad_factor: self.clip_factor(scaled_norm, divisor) / divisor,
            applied: if finite { 1.0 } else { 0.0 },
            loss_scale,
            warmup_cut: cut as f32,
        }
    }

    /// The clip coefficient for gradients with the norm `scaled_norm / divisor`.
    fn clip_factor(&self, scaled_norm: f32, divisor: f32) -> f32 {
        if self.clip_norm == 0.0 {
            return 1.0;
        }
        (self.clip_norm / (scaled_norm / divisor + 1e-6)).min(1.0)
    }
}

/// The last element: the norm of all gradients.
fn last(norms: Buffer<'_>) -> Arg {
    let bytes = size_of::<f32>();
    let ptr = norms.ptr + (norms.bytes() - bytes) as u64;
    Arg::Buffer(Touch { ptr, bytes, access: Access::Read })
}

/// The kernel argument for the schedule.
fn schedule(schedule: &LrSchedule) -> Arg {
    let mut first_steps = [0u64; MAX_MILESTONES];
    let (doubles, steps, count) = match schedule {
        LrSchedule::Multistep { base, warmup_steps, warmup_factor, milestones, gamma } => {
            first_steps[..milestones.len()].copy_from_slice(milestones);
            ([*base, *warmup_factor, *gamma, 0.0], [*warmup_steps, 0], milestones.len())
        }
        LrSchedule::Cosine { base, warmup_steps, warmup_factor, total_steps, min } => {
            ([*base, *warmup_factor, 1.0, *min], [*warmup_steps, *total_steps], 0)
        }
    };
    let is_cosine = matches!(schedule, LrSchedule::Cosine { .. });
    StructArg::new()
        .field(doubles)
        .field(steps)
        .field(first_steps)
        .field(count as i32)
        .field(i32::from(is_cosine))
        .arg()
}
