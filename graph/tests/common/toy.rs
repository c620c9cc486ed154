//! Small differentiable ops that use every feature of a backward rule: aliases, temps, several
//! outputs, gradients of outputs that no node reads.

use kernels::check;
use kernels::cpu::{CpuArgs, TensorRef};
use kernels::{BackwardRule, Cost, DType, Op, OpError, Role, Sink, Source, TensorDesc};

use Sink::GradInput;
use Source::{GradOutput, Input, Temp};

/// The toy ops; all except `Total` and `Spread` are elementwise over inputs of equal shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Toy {
    /// `y = a + b`. Both gradients are aliases of the output's gradient.
    Add,
    /// `y = a * b`.
    Mul,
    /// `y = c * x`.
    Scale(f32),
    /// `y = x^2`; the backward rule uses a temp.
    Square,
    /// `y0 = a + b, y1 = a * b`; both steps of the backward rule read the gradients of both
    /// outputs.
    Cross,
    /// `y = a + b * c`, without a rule.
    MulAdd,
    /// `y = x`, without a backward rule, which stops gradients.
    Stop,
    /// `y = sum(x)`, `[1]`.
    Total,
    /// `y = x[0]` everywhere.
    Spread(TensorDesc),
    /// `s -= 0.5 x`: updates state, no outputs.
    Descend,
}

impl Toy {
    fn arity(&self) -> usize {
        match self {
            Toy::MulAdd => 3,
            Toy::Add | Toy::Mul | Toy::Cross => 2,
            _ => 1,
        }
    }
}

impl Op for Toy {
    fn name(&self) -> &'static str {
        match self {
            Toy::Add => "add",
            Toy::Mul => "mul",
            Toy::Scale(_) => "scale",
            Toy::Square => "square",
            Toy::Cross => "cross",
            Toy::MulAdd => "mul_add",
            Toy::Stop => "stop",
            Toy::Total => "total",
            Toy::Spread(_) => "spread",
            Toy::Descend => "descend",
        }
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(self.name(), "inputs", inputs, self.arity())?;
        check::arity(self.name(), "updates", updates, usize::from(*self == Toy::Descend))?;
        for desc in inputs.iter().chain(updates) {
            check::shape(self.name(), "x", desc, &inputs[0].shape)?;
            check::dtype(self.name(), "x", desc, DType::F32)?;
        }
        let same = TensorDesc::new(Role::Activation, &inputs[0].shape);
        Ok(match self {
            Toy::Total => vec![TensorDesc::new(Role::Loss, &[1])],
            Toy::Spread(desc) => vec![desc.clone()],
            Toy::Cross => vec![same.clone(), same],
            Toy::Descend => vec![],
            _ => vec![same],
        })
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = if *self == Toy::Mul { 1_000_000 } else { 0 };
        Cost::streaming(inputs, outputs, flops)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let rule = BackwardRule::default();
        let g = GradOutput(0);
        match self {
            Toy::Add => rule.alias(g, 0).alias(g, 1),
            Toy::Mul => rule.step(Toy::Mul, &[g, Input(1)], &[GradInput(0)]).step(
                Toy::Mul,
                &[g, Input(0)],
                &[GradInput(1)],
            ),
            Toy::Scale(c) => rule.step(Toy::Scale(*c), &[g], &[GradInput(0)]),
            Toy::Square => rule.step(Toy::Mul, &[g, Input(0)], &[Sink::Temp(0)]).step(
                Toy::Scale(2.0),
                &[Temp(0)],
                &[GradInput(0)],
            ),
            Toy::Cross => rule
                .step(Toy::MulAdd, &[g, GradOutput(1), Input(1)], &[GradInput(0)])
                .step(Toy::MulAdd, &[g, GradOutput(1), Input(0)], &[GradInput(1)]),
            Toy::Total => rule.step(Toy::Spread(inputs[0].clone()), &[g], &[GradInput(0)]),
            Toy::MulAdd | Toy::Stop | Toy::Spread(_) | Toy::Descend => rule,
        }
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let x: Vec<&[f32]> = args.inputs.iter().map(TensorRef::f32).collect();
        if *self == Toy::Descend {
            for (s, x) in args.updates[0].f32().iter_mut().zip(x[0]) {
                *s -= 0.5 * x;
            }
            return;
        }
        for (k, output) in args.outputs.iter_mut().enumerate() {
            for (i, y) in output.f32().iter_mut().enumerate() {
                *y = match self {
                    Toy::Cross if k == 1 => x[0][i] * x[1][i],
                    Toy::Add | Toy::Cross => x[0][i] + x[1][i],
                    Toy::Mul => x[0][i] * x[1][i],
                    Toy::Scale(c) => c * x[0][i],
                    Toy::Square => x[0][i] * x[0][i],
                    Toy::MulAdd => x[0][i] + x[1][i] * x[2][i],
                    Toy::Total => x[0].iter().sum(),
                    Toy::Spread(_) => x[0][0],
                    Toy::Stop | Toy::Descend => x[0][i],
                };
            }
        }
    }
}
