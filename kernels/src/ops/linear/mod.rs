//! Fully connected layer: `y = relu(x * w^T + b)`.
//!
//! Matches `torch.nn.functional.linear` on `x` flattened behind its first dimension. The weights
//! may have a shape of their own as long as a row is as long: RoI features `[M,7,7,C]` take
//! `[K,7,7,C]`.
//!
//! Tensors: `x [M, ..]`, `w [K, ..]`, `b [K]`, with `counted` also `count [1] i32` -> `y [M,K]`,
//! overwritten. With `counted`, rows from `count` on get 0. Bound by compute, or by reading the
//! weights if M is below about 50; deterministic.

mod cases;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len};
use crate::ops::bias_grad::BiasGrad;
use crate::ops::relu_mask::ReluMask;
use crate::{
    BackwardRule, Cost, DType, Finish, Op, OpError, Role, Sink, Source, TensorDesc, Traits,
};

pub use cases::cases;
pub use grad::{LinearGradInput, LinearGradWeight};

/// `y = relu(x * w^T + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Negative results become 0.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of rows that hold data.
    pub counted: bool,
}

op_inputs! {
    /// What [`Linear`] reads.
    pub struct LinearInputs {
        /// `[M, ..]`.
        x,
        /// `[K, ..]`.
        w,
        /// `[K]`.
        b,
    }
    optional {
        /// Rows that hold data, `[1]` i32.
        count,
    }
}

const NAME: &str = "linear";

/// Elements of a row: the product of all dimensions but the first.
fn row_len(desc: &TensorDesc) -> usize {
    desc.shape.iter().skip(1).product()
}

/// Fails for a scalar.
fn check_rows(op: &'static str, name: &'static str, desc: &TensorDesc) -> Result<(), OpError> {
    check::dtype(op, name, desc, DType::F32)?;
    if desc.shape.is_empty() {
        return Err(check::shape_error(op, name, desc, "at least one dimension".into()));
    }
    Ok(())
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, LinearInputs::LEN + usize::from(self.counted))?;
        check::arity(NAME, "updates", updates, 0)?;
        let LinearInputs { x, w, b, count } = LinearInputs::of(inputs, [self.counted]);
        check_rows(NAME, "x", x)?;
        check_rows(NAME, "w", w)?;
        check::dtype(NAME, "b", b, DType::F32)?;
        if row_len(x) != row_len(w) {
            let expected = format!("[K, ..] with {} elements a row", row_len(x));
            return Err(check::shape_error(NAME, "w", w, expected));
        }
        check::shape(NAME, "b", b, &[w.dim(0)])?;
        if let Some(count) = count {
            check::count(NAME, count)?;
        }
        Ok(vec![TensorDesc::new(Role::Activation, &[x.dim(0), w.dim(0)])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let shape = matrix(&inputs[0], &inputs[1]);
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let counted = self.counted;
        let count: &[Source] = if counted { &[Source::Input(3)] } else { &[] };
        let (row_shape, finish) = (inputs[0].shape[1..].to_vec(), Finish::default());
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let with_count = |sources: &[Source]| [sources, count].concat();
        rule.step(
            LinearGradInput { row_shape, counted, finish },
            &with_count(&[g, Source::Input(1)]),
            &[Sink::GradInput(0)],
        )
        .step(
            LinearGradWeight {
                row_shape: inputs[1].shape[1..].to_vec(),
                counted,
                bias_grad: false,
            },
            &with_count(&[Source::Input(0), g]),
            &[Sink::GradInput(1)],
        )
        .step(BiasGrad { counted }, &with_count(&[g]), &[Sink::GradInput(2)])
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        gather_workspace_len(&matrix(&inputs[0], &inputs[1]))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(gpu, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self.relu, self.counted, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LinearInputs { x, w, b, count } = LinearInputs::of(&args.inputs, [self.counted]);
        let rows = filled(count, x.desc.dim(0));
        let (row_len, x, w, b) = (row_len(x.desc), x.f32(), w.f32(), b.f32());
        let shape = ConvShape::matrix(rows, row_len, b.len());
        let (y, rest) = args.outputs[0].f32().split_at_mut(rows * b.len());
        let epilogue = Epilogue { scale: None, bias: Some(b), residual: None, relu: self.relu };
        conv_forward(&shape, x, w, epilogue, y, args.workspace);
        clear(rest);
    }
}

fn matrix(x: &TensorDesc, w: &TensorDesc) -> ConvShape {
    ConvShape::matrix(x.dim(0), row_len(x), w.dim(0))
}
