//! The contract of an op: shapes, cost, backward rule as data, and the CPU reference.

use std::any::Any;
use std::fmt::Debug;
use std::ops::{Add, AddAssign};
use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs, Target, Task};

use crate::compiled::in_precision;
use crate::cpu::CpuArgs;
use crate::{GradEpilogue, OpError, TensorDesc};

/// A shared op; programs and backward rules hold ops through it.
pub type OpRef = Arc<dyn Op>;

/// One operator with its parameters. Tensors are passed by position, as each op documents. Code
/// that depends on a specific op downcasts to it through [`Any`].
pub trait Op: Any + Debug + Send + Sync {
    /// Name in snake case, as in error messages, dumps and reports.
    fn name(&self) -> &'static str;

    /// Checks `inputs` and the state tensors `updates` against the contract and describes the
    /// outputs.
    ///
    /// # Errors
    /// [`OpError`] names the op, what it expected and what it got.
    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError>;

    /// FLOPs and memory traffic of one run at these shapes, if all row counts are at capacity.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 0)
    }

    /// Properties of an op, independent of its shapes, for the passes over a program.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// The backward rule, as ops to run. Empty for an op without gradients.
    fn backward(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> BackwardRule {
        let _ = (inputs, outputs);
        BackwardRule::default()
    }

    /// Scratch memory of the CPU reference, in f32 elements.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
        let _ = (inputs, outputs);
        0
    }

    /// Scratch memory of the launches on a GPU, in bytes.
    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
    ) -> usize {
        let _ = (gpu, inputs, outputs);
        0
    }

    /// The op with `fusion` applied. `None` if the op does not support the fusion, or already has
    /// it.
    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let _ = fusion;
        None
    }

    /// The launches of the op's CUDA kernels, in order; they name the fp16 kernels. Every element
    /// of every output is overwritten, except for rows past the count ([`Traits::count_input`]).
    /// Grids depend on shapes only, never on values. An op without launches runs only on the CPU.
    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let _ = args;
        vec![]
    }

    /// The tasks of a node of this op on a GPU: its launches, with kernels for the GPU's precision,
    /// unless the op is a different kind of task.
    fn tasks(&self, args: &LaunchArgs<'_>) -> Vec<Task> {
        let launches = self.launches(args).into_iter();
        launches.map(|launch| Task::Launch(in_precision(args.gpu.precision, launch))).collect()
    }

    /// Runs the CPU reference. Overwrites the same elements of the outputs.
    fn run_cpu(&self, args: &mut CpuArgs<'_>);
}

/// Properties of an op, independent of its shapes, for the passes over a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    /// The first output is computed by a GEMM on tensor cores.
    pub on_tensor_cores: bool,
    /// The op is an all-reduce, or copies gradients into or out of an all-reduce's bucket. On a GPU
    /// such ops have a separate stream, concurrent with the rest of the step.
    pub communicates: bool,
    /// Position of the input with the number of rows, or images, in use. Past it, the op neither
    /// reads rows of its inputs nor writes rows of its first output or their signs.
    pub count_input: Option<usize>,
    /// The last output holds the [`signs`](crate::signs) of output 0.
    pub signs: bool,
    /// The epilogue of an op that computes a gradient; `None` for any other op.
    pub epilogue: Option<GradEpilogue>,
}

/// A fusion: a pass moves the work of an adjacent node into an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// Adds this epilogue to the gradient; its tensors follow the op's own inputs.
    GradEpilogue(GradEpilogue),
    /// Adds the bias gradient as the last output, in place of a
    /// [`BiasGrad`](crate::ops::bias_grad::BiasGrad) of output 0 with the same count: the sum of
    /// output 0 over all but its last dimension.
    BiasGrad,
    /// Adds the [`signs`](crate::signs) of output 0, as the last output.
    Signs,
    /// Adds a map of a different size, the last input, in place of an
    /// [`UpsampleAdd`](crate::ops::upsample_add::UpsampleAdd).
    UpsampleAdd,
    /// Uses weights (input 1) that are already multiplied by the scale; the scale (input 2) is
    /// dropped.
    ScaledWeights,
    /// Drops the last output, which nothing reads.
    DropLast,
}

/// Bytes of scratch memory that an op needs on a target.
pub fn workspace_bytes(
    target: &Target,
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
) -> usize {
    match target {
        Target::Cpu => size_of::<f32>() * op.cpu_workspace_len(inputs, outputs),
        Target::Gpu(gpu) => op.cuda_workspace_bytes(gpu, inputs, outputs),
    }
}

/// Floating-point operations and memory traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts two.
    pub flops: u64,
    /// Bytes that must be read and written once, in the CPU's element types.
    pub bytes: u64,
}

impl Cost {
    /// `flops`, with each input read and each output written once.
    pub fn streaming(inputs: &[TensorDesc], outputs: &[TensorDesc], flops: u64) -> Self {
        let bytes = inputs.iter().chain(outputs).map(|t| t.cpu_bytes() as u64).sum();
        Self { flops, bytes }
    }

    /// This cost with the op's `tensors` in different element types: `bytes` returns the size of a
    /// tensor.
    pub fn in_types<'a>(
        self,
        tensors: impl Iterator<Item = &'a TensorDesc> + Clone,
        bytes: impl Fn(&TensorDesc) -> usize,
    ) -> Self {
        let on_cpu: usize = tensors.clone().map(TensorDesc::cpu_bytes).sum();
        let here: usize = tensors.map(bytes).sum();
        let bytes = self.bytes as f64 * here as f64 / on_cpu.max(1) as f64;
        Self { bytes: bytes as u64, ..self }
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

/// A tensor that a backward step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Input of the forward op.
    Input(usize),
    /// Output of the forward op.
    Output(usize),
    /// Gradient of an output of the forward op.
    GradOutput(usize),
    /// Result of an earlier step of the same rule.
    Temp(usize),
}

/// A tensor that a backward step writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// Gradient of an input of the forward op.
    GradInput(usize),
    /// Intermediate result for later steps of the same rule.
    Temp(usize),
}

/// One op of a backward rule.
#[derive(Debug, Clone)]
pub struct BackwardStep {
    /// The op to run.
    pub op: OpRef,
    /// The tensors that it reads, in the order of its inputs.
    pub inputs: Vec<Source>,
    /// The tensors that it writes, in the order of its outputs.
    pub outputs: Vec<Sink>,
}

/// The gradients of an op's inputs, computed from the gradients of its outputs.
///
/// The autodiff pass keeps only the steps whose results are needed.
#[derive(Debug, Clone, Default)]
pub struct BackwardRule {
    /// Ops in an order in which they can run.
    pub steps: Vec<BackwardStep>,
    /// Gradients of inputs that equal another tensor: `(source, input)`, without a copy.
    pub aliases: Vec<(Source, usize)>,
}

impl BackwardRule {
    /// Adds a step.
    pub fn step(mut self, op: impl Op + 'static, inputs: &[Source], outputs: &[Sink]) -> Self {
        self.steps.push(BackwardStep {
            op: Arc::new(op),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        });
        self
    }

    /// States that the gradient of input `input` is `source` itself.
    pub fn alias(mut self, source: Source, input: usize) -> Self {
        self.aliases.push((source, input));
        self
    }
}
