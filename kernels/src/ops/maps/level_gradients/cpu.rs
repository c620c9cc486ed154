//! CPU reference of `level_gradients`: the gradients apart, and their sum.

use super::LevelGradients;
use crate::cpu::{CpuArgs, TensorMut};

pub(super) fn run(op: &LevelGradients, args: &mut CpuArgs<'_>) {
    for output in &mut args.outputs {
        output.f32().fill(0.0);
    }
    for (part, inputs) in op.parts(&args.inputs) {
        let descs: Vec<_> = inputs.iter().map(|input| input.desc.clone()).collect();
        let Ok(own) = part.infer(&descs, &[]) else { unreachable!("its shapes were inferred") };
        let mut rest = &mut *args.workspace;
        let mut outputs = vec![];
        for desc in &own {
            let (map, tail) = rest.split_at_mut(desc.len());
            rest = tail;
            outputs.push(TensorMut::new(desc, bytemuck::cast_slice_mut(map)));
        }
        let (inputs, updates) = (inputs.to_vec(), vec![]);
        let mut of_part = CpuArgs { inputs, outputs, updates, workspace: rest };
        part.run_cpu(&mut of_part);
        for (sum, map) in args.outputs.iter_mut().zip(&mut of_part.outputs) {
            sum.f32().iter_mut().zip(map.f32()).for_each(|(sum, v)| *sum += *v);
        }
    }
}
