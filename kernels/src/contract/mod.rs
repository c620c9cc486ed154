//! The contract of an op as data, and the [`Op`](crate::Op) derived from it.
//!
//! [`op!`](crate::op!) declares an op's parameters and tensors once: their names, element types and
//! shapes. It generates the struct, its named inputs, a [`Contract`] and the [`Op`](crate::Op);
//! [`Kernel`] is implemented by hand.

mod declare;
mod dims;

use std::any::Any;
use std::fmt::Debug;

use device::{Launch, LaunchArgs, Precision};

pub use dims::Dims;

use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, DType, Fusion, OpError, OpRef, Role, TensorDesc, Traits, check};

/// Names, element types and shapes of an op's tensors.
///
/// In a shape such as `[N, h, 4A]` a number is a fixed extent. A capitalized name is bound by the
/// first tensor that has it, and is valid for all tensors; a lower-case name is valid within one
/// tensor, or for the tensors at one position of the lists. Sums and multiples (`P+G`, `N*B`, `4A`)
/// are computed from their parts if tensors bind these parts, and are names otherwise. `..` matches
/// any extents (`[..]`, `[M, .., K]`); tensors that are declared with the same shape must have
/// equal extents.
#[derive(Debug, Clone, Copy)]
pub struct Contract {
    /// Name of the op in snake case.
    pub op: &'static str,
    /// Required inputs.
    pub inputs: &'static [Tensor],
    /// Inputs that may be absent, after the required inputs.
    pub optional: &'static [Tensor],
    /// Lists of equal length, after all other inputs: all tensors of the first list, then all of
    /// the second.
    pub each: &'static [Tensor],
    /// True if the lists come before all other inputs.
    pub lists_first: bool,
    /// Outputs.
    pub outputs: &'static [Output],
}

/// An input.
#[derive(Debug)]
pub struct Tensor {
    /// Its name.
    pub name: &'static str,
    /// Its elements.
    pub kind: Kind,
    /// Its shape.
    pub shape: &'static str,
}

/// An output.
#[derive(Debug)]
pub struct Output {
    /// Its purpose.
    pub role: Role,
    /// Its shape. Names are bound by inputs, [`Kernel::sizes`] or [`Kernel::check`].
    pub shape: &'static str,
}

/// Elements of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Kind {
    /// f32 on the CPU; on a GPU the element type of the precision.
    real,
    /// f32.
    f32,
    /// f32 on the CPU; on a GPU the element type of its role.
    float,
    /// i32.
    i32,
    /// Bytes.
    u8,
}

impl Kind {
    /// Element type on the CPU.
    fn on_cpu(self) -> DType {
        match self {
            Kind::i32 => DType::I32,
            Kind::u8 => DType::U8,
            Kind::real | Kind::f32 | Kind::float => DType::F32,
        }
    }

    /// Element type on a GPU; `None` if kernels take more than one.
    fn on_gpu(self, precision: Precision) -> Option<DType> {
        match self {
            Kind::real => Some(Role::Activation.gpu_dtype(precision)),
            Kind::float => None,
            other => Some(other.on_cpu()),
        }
    }
}

/// An input, after its declaration and a flag: true if lower-case names are forgotten before it.
type Named<'a, T> = (&'static Tensor, bool, &'a T);

impl Contract {
    /// Number of inputs outside of lists.
    fn fixed(&self, optional: &[bool]) -> usize {
        self.inputs.len() + optional.iter().filter(|present| **present).count()
    }

    /// The inputs with their declarations, list tensors grouped by position; `None` if the number
    /// of inputs is wrong.
    fn named<'a, T>(&self, inputs: &'a [T], optional: &[bool]) -> Option<Vec<Named<'a, T>>> {
        let fixed = self.fixed(optional);
        let (fixed, listed) = if self.lists_first {
            let (listed, fixed) = inputs.split_at_checked(inputs.len().checked_sub(fixed)?)?;
            (fixed, listed)
        } else {
            inputs.split_at_checked(fixed)?
        };
        let lists = self.each.len();
        let fits = if lists == 0 { listed.is_empty() } else { listed.len() % lists == 0 };
        if !fits || (lists > 0 && listed.is_empty()) {
            return None;
        }
        let present = self.optional.iter().zip(optional).filter(|(_, present)| **present);
        let single = self.inputs.iter().chain(present.map(|(tensor, _)| tensor)).zip(fixed);
        let len = listed.len() / lists.max(1);
        let position = |i: usize| {
            let each = self.each.iter().enumerate();
            each.map(move |(list, tensor)| (tensor, list == 0, &listed[list * len + i]))
        };
        let single = single.map(|(tensor, input)| (tensor, true, input));
        Some(single.chain((0..len).flat_map(position)).collect())
    }

    /// Panics if the kernels do not support the element type of an input on the GPU.
    fn assert_element_types(&self, optional: &[bool], args: &LaunchArgs<'_>) {
        for (tensor, _, input) in self.named(&args.inputs, optional).unwrap_or_default() {
            let fits = tensor.kind.on_gpu(args.gpu.precision).is_none_or(|is| is == input.dtype());
            assert!(fits, "{}: {} is {:?}: {:?}", self.op, tensor.name, tensor.kind, input.desc);
        }
    }

    /// The expected number of inputs, in words.
    fn counts(&self, optional: &[bool]) -> String {
        match (self.fixed(optional), self.each.len()) {
            (fixed, 0) => fixed.to_string(),
            (fixed, 1) => format!("at least {}", fixed + 1),
            (fixed, lists) => format!("{fixed} plus a positive multiple of {lists}"),
        }
    }
}

/// Checks the parameters and inputs of an op, and returns the extents. Errors mention `name`: the
/// op's name, or the name of its gradient, whose first inputs are the op's.
pub(crate) fn dims_of<K: Kernel>(
    op: &K,
    name: &'static str,
    inputs: &[TensorDesc],
) -> Result<Dims, OpError> {
    let (contract, optional) = (K::CONTRACT, op.optional());
    op.check_parameters()?;
    let Some(named) = contract.named(inputs, &optional) else {
        let expected = contract.counts(&optional);
        return Err(OpError::Arity { op: name, what: "inputs", expected, got: inputs.len() });
    };
    let mut dims = Dims::of(name);
    op.bind_parameters(&mut dims);
    op.sizes(&mut dims);
    dims.keep_all();
    // Two passes: a term such as `N*B` that precedes its parts is checked in the second pass.
    for (tensor, begins, desc) in named.iter().chain(&named) {
        if *begins {
            dims.forget_small();
        }
        dims.tensor(tensor.name, desc, tensor.shape, tensor.kind.on_cpu())?;
    }
    op.check(inputs, &mut dims)?;
    Ok(dims)
}

/// A declaration, as generated by [`op!`](crate::op!).
pub trait Declared {
    /// Its tensors.
    const CONTRACT: Contract;

    /// True for each optional input that is present.
    fn optional(&self) -> Vec<bool> {
        vec![]
    }

    /// Binds the name of each parameter that is a `usize`.
    fn bind_parameters(&self, dims: &mut Dims);

    /// Checks each parameter by itself.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    fn check_parameters(&self) -> Result<(), OpError>;
}

/// Floating-point operations of one run of an op that reads and writes each tensor once.
#[derive(Debug, Clone, Copy)]
pub enum Flops {
    /// This many per element of the first input.
    Input(u64),
    /// This many per element of the first output.
    Output(u64),
}

/// The hand-written part of a declared op. Methods have the same meaning as the methods of this
/// name in [`Op`](crate::Op).
#[allow(missing_docs)]
pub trait Kernel: Declared + Any + Debug + Send + Sync {
    /// The floating-point operations, for [`Kernel::cost`].
    const FLOPS: Flops = Flops::Output(0);

    /// True if the first output has the role of the first input.
    const KEEPS_ROLE: bool = false;

    /// Binds names in the contract's shapes to values computed from the parameters.
    fn sizes(&self, dims: &mut Dims) {
        let _ = dims;
    }

    /// Checks conditions on shapes and parameters together, and binds names of the outputs' shapes
    /// that are derived from the inputs.
    ///
    /// # Errors
    /// The first invalid input or parameter.
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let _ = (inputs, dims);
        Ok(())
    }

    /// Changes outputs whose role or presence depends on inputs or parameters.
    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let _ = (inputs, outputs);
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let (of_element, tensors) = match Self::FLOPS {
            Flops::Input(of_element) => (of_element, inputs),
            Flops::Output(of_element) => (of_element, outputs),
        };
        let elements = tensors.first().map_or(0, TensorDesc::len);
        Cost::streaming(inputs, outputs, of_element * elements as u64)
    }

    fn traits(&self) -> Traits {
        Traits::default()
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let _ = inputs;
        BackwardRule::default()
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let _ = inputs;
        0
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        let _ = inputs;
        0
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let _ = fusion;
        None
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch>;

    fn run_cpu(&self, args: &mut CpuArgs<'_>);
}

/// The outputs of a declared op.
///
/// # Errors
/// The first invalid parameter or tensor.
pub fn infer<K: Kernel>(
    op: &K,
    inputs: &[TensorDesc],
    updates: &[TensorDesc],
) -> Result<Vec<TensorDesc>, OpError> {
    check::arity(K::CONTRACT.op, "updates", updates, 0)?;
    let dims = dims_of(op, K::CONTRACT.op, inputs)?;
    let output = |output: &Output| TensorDesc::new(output.role, &dims.extents(output.shape));
    let mut outputs: Vec<_> = K::CONTRACT.outputs.iter().map(output).collect();
    if K::KEEPS_ROLE {
        outputs[0].role = inputs[0].role;
    }
    op.adjust(inputs, &mut outputs);
    Ok(outputs)
}

/// The launches of a declared op. Panics if its kernels do not support the type of an input.
pub fn launches<K: Kernel>(op: &K, args: &LaunchArgs<'_>) -> Vec<Launch> {
    K::CONTRACT.assert_element_types(&op.optional(), args);
    op.launches(args)
}
