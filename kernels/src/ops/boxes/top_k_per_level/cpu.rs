//! CPU reference of `top_k_per_level`: images x levels in parallel.

use rayon::prelude::*;

use super::TopKPerLevel;
use crate::boxes::top_k;
use crate::cpu::CpuArgs;

pub(super) fn top_k_per_level(op: &TopKPerLevel, args: &mut CpuArgs<'_>) {
    let inputs = &args.inputs;
    let mut levels = Vec::new();
    // Each level as (logits, anchors per image, first anchor, anchors kept).
    let mut maps = Vec::new();
    let mut first = 0;
    for (l, logits) in inputs.iter().enumerate() {
        let len: usize = logits.shape()[1..].iter().product();
        let kept = op.level_len(logits.desc);
        levels.extend(std::iter::repeat_n(l as i32, kept));
        maps.push((logits.f32(), len, first, kept));
        first += len;
    }
    args.outputs[1].i32().copy_from_slice(&levels);

    let mut rest = args.outputs[0].i32();
    let mut tasks = Vec::new();
    for n in 0..inputs[0].shape()[0] {
        for &(logits, len, first, kept) in &maps {
            let (own, later) = rest.split_at_mut(kept);
            tasks.push((&logits[n * len..][..len], first, own));
            rest = later;
        }
    }
    tasks.into_par_iter().for_each(|(logits, first, own)| {
        let kept = own.len();
        for (idx, i) in own.iter_mut().zip(top_k(logits, kept)) {
            *idx = (first + i) as i32;
        }
    });
}
