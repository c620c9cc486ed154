//! CUDA launch of `control_step`.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use super::{ControlStep, LrSchedule, MAX_MILESTONES};

pub(super) fn launches(op: &ControlStep, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [step, scale, growth, skipped] = args.updates[..] else {
        panic!("control_step: four state tensors")
    };
    let rules = StructArg::new()
        .field(op.clip_norm)
        .field(op.growth_interval)
        .field(i32::from(op.dynamic))
        .field(op.micro_steps as f32)
        .field(op.first_step)
        .field(i32::from(op.shared_warmup))
        .field(i32::from(op.count_skipped))
        .arg();
    vec![
        Launch::new("control_step", [1, 1, 1])
            .block(32)
            .arg(last(args.inputs[0]))
            .arg(args.inputs[1].read())
            .arg(schedule(&op.schedule))
            .arg(rules)
            .arg(args.outputs[0].write())
            .arg(step.update())
            .arg(scale.update())
            .arg(growth.update())
            .arg(skipped.update()),
    ]
}

/// The last element: the norm of all gradients.
fn last(norms: Buffer<'_>) -> Arg {
    let bytes = size_of::<f32>();
    let ptr = norms.ptr + (norms.bytes() - bytes) as u64;
    Arg::Buffer(Touch { ptr, bytes, access: Access::Read })
}

/// The struct of a schedule.
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
