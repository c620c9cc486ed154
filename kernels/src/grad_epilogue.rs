//! The epilogue of a GEMM that computes a gradient: before the store it adds another gradient, and
//! masks the sum by the sign of an activation.

use crate::cpu::TensorRef;
use crate::{DType, OpError, TensorDesc, check, signs};

/// `dx = (acc + other) where mask > 0, else 0`; one flag enables the sum, one the mask. Rows past a
/// count are 0. The tensors `other` and `mask` follow the op's own inputs, in this order. They have
/// the shape of `dx`; in place of an activation, the mask may be its [`signs`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GradEpilogue {
    /// True if there is an input `other`: an additional gradient of the same tensor.
    pub other: bool,
    /// True if there is an input `mask`: an activation, or its signs. `dx` is 0 where the
    /// activation is not positive.
    pub mask: bool,
}

/// The tensors of a [`GradEpilogue`], present if its flags are set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GradEpilogueInputs<'a, T> {
    pub other: Option<&'a T>,
    pub mask: Option<&'a T>,
}

impl GradEpilogue {
    /// Number of its inputs.
    pub fn inputs(self) -> usize {
        usize::from(self.other) + usize::from(self.mask)
    }

    /// The op's own inputs, and the epilogue's. Panics if there are too few.
    pub(crate) fn split<T>(self, inputs: &[T]) -> (&[T], GradEpilogueInputs<'_, T>) {
        let (own, rest) = inputs.split_at(inputs.len() - self.inputs());
        let mut rest = rest.iter();
        let other = if self.other { rest.next() } else { None };
        (own, GradEpilogueInputs { other, mask: rest.next() })
    }
}

impl GradEpilogueInputs<'_, TensorDesc> {
    /// Checks the tensors against the output's shape.
    pub(crate) fn check(self, op: &'static str, dx: &TensorDesc) -> Result<(), OpError> {
        for (name, desc) in [("other", self.other), ("mask", self.mask)] {
            if let Some(desc) = desc.filter(|desc| is_signs(desc)) {
                check::shape(op, name, desc, &signs::infer(op, "dx", dx)?.shape)?;
            } else if let Some(desc) = desc {
                check::shape(op, name, desc, &dx.shape)?;
                check::dtype(op, name, desc, DType::F32)?;
            }
        }
        Ok(())
    }
}

impl GradEpilogueInputs<'_, TensorRef<'_>> {
    /// Applies the epilogue to `dx`, which contains only the rows that hold data.
    pub(crate) fn run_cpu(self, dx: &mut [f32]) {
        let signs = self.mask.filter(|mask| is_signs(mask.desc));
        if let Some(other) = self.other {
            dx.iter_mut().zip(other.f32()).for_each(|(dx, other)| *dx += other);
        }
        if let Some(signs) = signs {
            signs::mask(dx, signs);
        } else if let Some(mask) = self.mask {
            let pairs = dx.iter_mut().zip(mask.f32());
            pairs.filter(|(_, mask)| mask.is_nan() || **mask <= 0.0).for_each(|(dx, _)| *dx = 0.0);
        }
    }
}

/// True for the sign bits of an activation, false for an activation.
fn is_signs(mask: &TensorDesc) -> bool {
    mask.role.cpu_dtype() == DType::I32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::case::{constant, normal};
    use crate::cpu::HostTensor;
    use crate::on_cpu::run;
    use crate::ops::gemm_op::GradInput;
    use crate::ops::layer::Layer;
    use crate::ops::relu_mask::ReluMask;
    use crate::ops::sum::Sum;
    use crate::{Fusion, OpRef, Role};

    fn only(op: &OpRef, inputs: &[HostTensor]) -> HostTensor {
        run(op.as_ref(), inputs).unwrap().remove(0)
    }

    /// Bit-identical to the op without the epilogue, then the sum, then the mask. And the epilogue
    /// is linear in the gradients: doubling them doubles the result.
    #[test]
    fn grad_epilogue_adds_then_masks() {
        let gradient = |shape: &[usize], seed| normal(Role::Gradient, shape, seed, 1.0);
        let weight = |shape: &[usize]| normal(Role::Weight, shape, 2, 0.3);
        let count = constant(&[1], 2);
        let epilogue = GradEpilogue::default();
        let (counted, scale) = (true, false);
        let of = |layer, x: &[usize]| GradInput { layer, x: x.to_vec(), scale, counted, epilogue };
        let conv = of(Layer::conv2d(2, 1), &[3, 5, 4, 4]);
        let linear = of(Layer::Linear, &[3, 2, 7]);
        let cases: [(OpRef, HostTensor, HostTensor); 2] = [
            (Arc::new(conv), gradient(&[3, 3, 2, 6], 1), weight(&[6, 3, 3, 4])),
            (Arc::new(linear), gradient(&[3, 5], 1), weight(&[5, 14])),
        ];
        for (op, g, w) in cases {
            let dx = only(&op, &[g.clone(), w.clone(), count.clone()]);
            let used = dx.desc.len() / 3 * 2;
            let other = normal(dx.desc.role, &dx.desc.shape, 4, 1.0);
            let mask = normal(dx.desc.role, &dx.desc.shape, 5, 1.0);
            let sum: OpRef = Arc::new(Sum);
            let relu: OpRef = Arc::new(ReluMask);
            let masked = only(&relu, &[only(&sum, &[dx, other.clone()]), mask.clone()]);
            let with_epilogue =
                op.fused(Fusion::GradEpilogue(GradEpilogue { other: true, mask: true })).unwrap();
            let run = |g, other| {
                only(&with_epilogue, &[g, w.clone(), count.clone(), other, mask.clone()])
            };
            let got = run(g.clone(), other.clone());
            let got = &got.as_f32()[..used];
            assert_eq!(got, &masked.as_f32()[..used], "{}", op.name());
            let [g, other] = [g, other].map(|mut tensor| {
                tensor.as_f32_mut().iter_mut().for_each(|v| *v *= 2.0);
                tensor
            });
            let twice: Vec<f32> = got.iter().map(|v| 2.0 * v).collect();
            assert_eq!(run(g, other).as_f32()[..used], twice);
        }
    }
}
