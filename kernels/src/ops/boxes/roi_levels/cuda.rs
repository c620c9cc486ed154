//! CUDA launch of `roi_levels`.

use device::{Launch, LaunchArgs};

use super::RoiLevels;
use crate::boxes::epsilons;

pub(super) fn launches(op: &RoiLevels, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [eps_in_log, eps_after_log] = epsilons(op.rule);
    let levels = args.outputs[0];
    vec![
        Launch::over("roi_levels_f32", levels.len())
            .arg(args.inputs[0].read())
            .arg(args.inputs[1].read())
            .arg(levels.write())
            .len(levels.len())
            .arg(op.min_level)
            .arg(op.max_level)
            .arg(op.canonical_size)
            .arg(op.canonical_level)
            .arg(op.plus_one)
            .arg(eps_in_log)
            .arg(eps_after_log),
    ]
}
