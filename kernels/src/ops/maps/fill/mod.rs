//! A tensor filled with one value: the gradient of an unused output, and constants.
//!
//! Tensors: no inputs -> `y` (the shape and role given, f32, overwritten).

use device::{Launch, LaunchArgs};

use crate::case::OpCase;
use crate::cpu::CpuArgs;
use crate::{DType, Op, OpError, Role, TensorDesc, check};

/// `y = value` for all elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    /// Shape and role of the output.
    pub desc: TensorDesc,
    /// The value.
    pub value: f32,
}

const NAME: &str = "fill";

/// Bytes written per thread.
const VECTOR_BYTES: usize = 16;

impl Op for Fill {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 0)?;
        check::arity(NAME, "updates", updates, 0)?;
        check::dtype(NAME, "y", &self.desc, DType::F32)?;
        Ok(vec![self.desc.clone()])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let y = args.outputs[0];
        let kernel = if y.dtype() == DType::F16 { "fill_f16" } else { "fill_f32" };
        let threads = y.len().div_ceil(VECTOR_BYTES / y.dtype().size_bytes());
        vec![Launch::over(kernel, threads).arg(y.write()).arg(self.value).len(y.len())]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        args.outputs[0].f32().fill(self.value);
    }
}

/// Sizes 0, 1, a prime number, and near the block size.
pub fn cases() -> Vec<OpCase> {
    [0, 1, 13, 2048, 2049]
        .iter()
        .flat_map(|&n| [Role::Gradient, Role::Loss].map(|role| (role, n)))
        .map(|(role, n)| {
            let desc = TensorDesc::new(role, &[n]);
            let op = Fill { desc, value: 2.5 };
            OpCase::new(format!("{role:?}[{n}]"), op, vec![])
        })
        .collect()
}
