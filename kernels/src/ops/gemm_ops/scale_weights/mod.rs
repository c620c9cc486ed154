//! Multiplies each filter by its frozen scale, for many convolutions at once. The convolutions'
//! gradient ops read the result.
//!
//! Tensors: `w_i [K_i, ..]`, then as many `scale_i [K_i]` -> `scaled_i` (shape and role of `w_i`,
//! overwritten): `w_i` times the scale of its filter. Matches `w * scale.view(-1, 1, 1, 1)`.
//! Memory-bound; multiplied and rounded once.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};

use crate::cpu::CpuArgs;
use crate::many_tensors::{column, first_blocks};
use crate::{Cost, DType, Op, OpError, TensorDesc, check};

pub use cases::cases;

/// `scaled_i[k] = w_i[k] * scale_i[k]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleWeights;

const NAME: &str = "scale_weights";

/// Maximum tensors per launch: their argument struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

impl Op for ScaleWeights {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "updates", updates, 0)?;
        check::arity(NAME, "inputs", inputs, inputs.len().next_multiple_of(2))?;
        let (weights, scales) = inputs.split_at(inputs.len() / 2);
        for (w, scale) in weights.iter().zip(scales) {
            check::dtype(NAME, "w_i", w, DType::F32)?;
            check::dtype(NAME, "scale_i", scale, DType::F32)?;
            if w.shape.is_empty() {
                return Err(check::shape_error(NAME, "w_i", w, "[K, ..]".into()));
            }
            check::shape(NAME, "scale_i", scale, &[w.dim(0)])?;
        }
        Ok(weights.to_vec())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let products: usize = outputs.iter().map(TensorDesc::len).sum();
        Cost::streaming(inputs, outputs, products as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (weights, scales) = args.inputs.split_at(args.outputs.len());
        let mut all = weights.iter().chain(&args.outputs);
        assert!(all.all(|w| w.desc.role.follows_precision()), "weights that no kernel reads");
        let parts = weights.chunks(CAPACITY).zip(scales.chunks(CAPACITY));
        parts.zip(args.outputs.chunks(CAPACITY)).map(|((w, s), out)| launch(w, s, out)).collect()
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (weights, scales) = args.inputs.split_at(args.outputs.len());
        for ((w, scale), scaled) in weights.iter().zip(scales).zip(&mut args.outputs) {
            let filter = w.desc.len() / scale.desc.len().max(1);
            let rows = scaled.f32().chunks_mut(filter.max(1));
            for ((to, from), factor) in rows.zip(w.f32().chunks(filter.max(1))).zip(scale.f32()) {
                to.iter_mut().zip(from).for_each(|(to, w)| *to = w * factor);
            }
        }
    }
}

fn launch(weights: &[Buffer<'_>], scales: &[Buffer<'_>], scaled: &[Buffer<'_>]) -> Launch {
    let (first_block, blocks) =
        first_blocks::<CAPACITY>(weights.iter().map(|w| w.len().div_ceil(BLOCK_ELEMENTS)));
    let tensors = StructArg::new()
        .pointers(weights.iter().map(Buffer::read), CAPACITY)
        .pointers(scales.iter().map(Buffer::read), CAPACITY)
        .pointers(scaled.iter().map(Buffer::write), CAPACITY)
        .ints(column::<_, CAPACITY>(weights.iter().map(Buffer::len)))
        .ints(column::<_, CAPACITY>(weights.iter().map(|w| w.len() / w.dim(0).max(1))))
        .field(first_block)
        .arg();
    Launch::new("scale_weights", [blocks, 1, 1]).arg(tensors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{run, tensor};

    #[test]
    fn scale_weights_applies_one_factor_per_filter() {
        let inputs = [
            tensor(&[2, 1, 1, 2], [1.0, 2.0, 3.0, 4.0]),
            tensor(&[1, 3], [1.0, -1.0, 0.5]),
            tensor(&[2], [10.0, 100.0]),
            tensor(&[1], [2.0]),
        ];
        let scaled = run(&ScaleWeights, &inputs);
        assert_eq!(scaled[0].as_f32(), [10.0, 20.0, 300.0, 400.0]);
        assert_eq!(scaled[1].as_f32(), [2.0, -2.0, 1.0]);
        let odd = inputs[..3].iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
        assert!(ScaleWeights.infer(&odd, &[]).is_err());
    }
}
