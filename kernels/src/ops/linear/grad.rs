//! Gradients of the fully connected layer.
//!
//! `linear_grad_input`: `g [M,K]`, `w [K, ..]`, `[count [1] i32]`, `other` and `mask` of a
//! [`Finish`] -> `dx [M, row_shape..]` = g * w, finished; rows from `count` on get 0.
//! `linear_grad_weight`: `x [M, ..]`, `g [M,K]`, `[count]` -> `dw [K, row_shape..]` = g^T * x, with
//! `bias_grad` also `db [K]`, the sum of `g`; rows from `count` on do not contribute. Outputs are
//! overwritten; both are bound by compute and deterministic.

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::CpuArgs;
use crate::matmul::{
    ConvShape, Epilogue, conv_grad_input, conv_grad_weight, gather_workspace_len,
    reduce_workspace_len,
};
use crate::ops::bias_grad;
use crate::{Cost, Finish, Fusion, Op, OpError, OpRef, Role, TensorDesc, Traits};

use super::{check_rows, cuda, row_len};

/// `dx = g * w`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearGradInput {
    /// Shape of a row of x, which is as long as a row of w.
    pub row_shape: Vec<usize>,
    /// The last input of its own is `count [1] i32`.
    pub counted: bool,
    /// What becomes of the products' sums.
    pub finish: Finish,
}

/// `dw = g^T * x`.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearGradWeight {
    /// Shape of a row of w, which is as long as a row of x.
    pub row_shape: Vec<usize>,
    /// The last input is `count [1] i32`.
    pub counted: bool,
    /// The second output is the gradient of the layer's bias.
    pub bias_grad: bool,
}

const INPUT: &str = "linear_grad_input";
const WEIGHT: &str = "linear_grad_weight";

/// The row shape has to hold as many elements as a row of the tensor.
fn check_row_shape(
    op: &'static str,
    row_shape: &[usize],
    desc: &TensorDesc,
) -> Result<(), OpError> {
    let (got, expected) = (row_shape.iter().product::<usize>(), row_len(desc));
    let what = format!("a shape of {expected} elements");
    check::parameter(op, "row_shape", got == expected, &what, format!("{row_shape:?}"))
}

fn with_rows(rows: usize, row_shape: &[usize]) -> Vec<usize> {
    [&[rows], row_shape].concat()
}

impl Op for LinearGradInput {
    fn name(&self) -> &'static str {
        INPUT
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let len = 2 + usize::from(self.counted);
        check::arity(INPUT, "inputs", inputs, len + self.finish.inputs())?;
        check::arity(INPUT, "updates", updates, 0)?;
        let (inputs, finish) = self.finish.split(inputs);
        let (g, w) = (&inputs[0], &inputs[1]);
        check_rows(INPUT, "g", g)?;
        check_rows(INPUT, "w", w)?;
        check::shape(INPUT, "g", g, &[g.dim(0), w.dim(0)])?;
        check_row_shape(INPUT, &self.row_shape, w)?;
        if self.counted {
            check::count(INPUT, &inputs[2])?;
        }
        let dx = TensorDesc::new(Role::Gradient, &with_rows(g.dim(0), &self.row_shape));
        finish.check(INPUT, &dx)?;
        Ok(vec![dx])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let shape = ConvShape::matrix(inputs[0].dim(0), row_len(&inputs[1]), inputs[1].dim(0));
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        let count_input = self.counted.then_some(2);
        let finish = Some(self.finish);
        Traits { on_tensor_cores: true, count_input, finish, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let Fusion::Finish(finish) = fusion else { return None };
        Some(Arc::new(Self { finish, ..self.clone() }))
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let (g, w) = (&inputs[0], &inputs[1]);
        gather_workspace_len(&ConvShape::matrix(g.dim(0), row_len(w), w.dim(0)))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::grad_input_workspace_bytes(gpu, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_input(self.counted, self.finish, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (own, finish) = self.finish.split(&args.inputs);
        let (g, w) = (&own[0], &own[1]);
        let count = if self.counted { own.last() } else { None };
        let rows = filled(count, g.desc.dim(0));
        let shape = ConvShape::matrix(rows, row_len(w.desc), w.desc.dim(0));
        let (dx, rest) = args.outputs[0].f32().split_at_mut(rows * shape.channels);
        let none = Epilogue::default();
        conv_grad_input(&shape, g.f32(), w.f32(), None, none, dx, args.workspace);
        finish.run_cpu(dx);
        clear(rest);
    }
}

impl Op for LinearGradWeight {
    fn name(&self) -> &'static str {
        WEIGHT
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(WEIGHT, "inputs", inputs, 2 + usize::from(self.counted))?;
        check::arity(WEIGHT, "updates", updates, 0)?;
        let (x, g) = (&inputs[0], &inputs[1]);
        check_rows(WEIGHT, "x", x)?;
        check_rows(WEIGHT, "g", g)?;
        check::rank(WEIGHT, "g", g, "[M, K]")?;
        check::shape(WEIGHT, "g", g, &[x.dim(0), g.dim(1)])?;
        check_row_shape(WEIGHT, &self.row_shape, x)?;
        if self.counted {
            check::count(WEIGHT, &inputs[2])?;
        }
        let dw = with_rows(g.dim(1), &self.row_shape);
        let mut outputs = vec![TensorDesc::new(Role::WeightGradient, &dw)];
        if self.bias_grad {
            outputs.push(TensorDesc::new(Role::WeightGradient, &[g.dim(1)]));
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let (x, g) = (&inputs[0], &inputs[1]);
        let shape = ConvShape::matrix(x.dim(0), row_len(x), g.dim(1));
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        let count_input = self.counted.then_some(2);
        Traits { on_tensor_cores: true, count_input, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::BiasGrad && !self.bias_grad;
        can.then(|| Arc::new(Self { bias_grad: true, ..self.clone() }) as OpRef)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let (x, g) = (&inputs[0], &inputs[1]);
        let product = reduce_workspace_len(&ConvShape::matrix(x.dim(0), row_len(x), g.dim(1)));
        match self.bias_grad {
            true => product.max(bias_grad::workspace_len(g.dim(0), g.dim(1))),
            false => product,
        }
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::grad_weight_workspace_bytes(gpu, inputs, self.bias_grad)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_weight(self.counted, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (x, g) = (&args.inputs[0], &args.inputs[1]);
        let count = if self.counted { args.inputs.last() } else { None };
        let rows = filled(count, x.desc.dim(0));
        let shape = ConvShape::matrix(rows, row_len(x.desc), g.desc.dim(1));
        let dw = args.outputs[0].f32();
        conv_grad_weight(&shape, x.f32(), g.f32(), None, dw, args.workspace);
        if self.bias_grad {
            let g = &g.f32()[..rows * shape.filters];
            bias_grad::sum_rows(g, args.outputs[1].f32(), args.workspace);
        }
    }
}
