//! CPU reference of `rpn_head`: its convolutions, level after level.

use super::{RpnHeadInputs, conv_shape, predictor_shape};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward};

/// Elements of the hidden map.
pub(super) fn hidden_len(s: &ConvShape) -> usize {
    s.out_positions() * s.filters
}

pub(super) fn forward(args: &mut CpuArgs<'_>) {
    let RpnHeadInputs { conv: [w, b], logits, deltas, maps } = RpnHeadInputs::of(&args.inputs);
    let (logits_out, deltas_out) = args.outputs.split_at_mut(maps.len());
    for (level, map) in maps.iter().enumerate() {
        let shape = conv_shape(map.desc, b.f32().len());
        let (hidden, workspace) = args.workspace.split_at_mut(hidden_len(&shape));
        let epilogue = Epilogue { bias: Some(b.f32()), relu: true, ..Epilogue::default() };
        conv_forward(&shape, map.f32(), w.f32(), epilogue, hidden, workspace);
        for ([w, b], outputs) in [(logits, &mut *logits_out), (deltas, &mut *deltas_out)] {
            let shape = predictor_shape(&shape, b.f32().len());
            let epilogue = Epilogue { bias: Some(b.f32()), ..Epilogue::default() };
            let to = outputs[level].f32();
            conv_forward(&shape, hidden, w.f32(), epilogue, to, workspace);
        }
    }
}
