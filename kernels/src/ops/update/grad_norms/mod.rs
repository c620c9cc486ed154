//! Norms of gradients, and whether all are finite, for clipping and the loss scale.
//!
//! Tensors: `grad_i` (f32, any shape, n >= 1 of them, in) -> `norms [n+1]` (Role::Scalar,
//! overwritten: the L2 norm of each, then of all), `finite [1]` i32 (1 if no element is infinite or
//! NaN, else 0). Norms are computed before unscaling: the gradients are still multiplied by the
//! loss scale. Numerics: squares summed in f64 in chunks of a fixed size, in order; a norm beyond
//! f32 becomes `f32::MAX`, and the norm of a tensor with non-finite elements is infinite or NaN.
//! Memory-bound.

mod cases;

use device::{Access, Arg, Buffer, Gpu, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::many_tensors::{column, first_blocks};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc, check};

pub use cases::cases;

/// Computes the L2 norms of gradients, and checks that all elements are finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradNorms {}

const NAME: &str = "grad_norms";

impl Op for GradNorms {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::at_least(NAME, "inputs", inputs, 1, "at least 1")?;
        check::arity(NAME, "updates", updates, 0)?;
        for grad in inputs {
            check::dtype(NAME, "grad_i", grad, DType::F32)?;
        }
        let norms = TensorDesc::new(Role::Scalar, &[inputs.len() + 1]);
        Ok(vec![norms, TensorDesc::new(Role::Index, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = 2 * inputs.iter().map(|g| g.len() as u64).sum::<u64>();
        Cost::streaming(inputs, outputs, flops)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        let grads = inputs;
        let scratch = Scratch::of(grads.iter());
        scratch.first_offset() + scratch.first_bytes()
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let scratch = Scratch::of(args.inputs.iter().map(|grad| grad.desc));
        let partials = |access| args.workspace.piece(0, scratch.partial_bytes(), access);
        let firsts =
            |access| args.workspace.piece(scratch.first_offset(), scratch.first_bytes(), access);
        let mut launches = vec![];
        let mut blocks_before = 0;
        for (i, grads) in args.inputs.chunks(CAPACITY).enumerate() {
            let (structure, blocks) = gradients(grads, i * CAPACITY, blocks_before);
            let launch = Launch::new("grad_norms_squares", [blocks, 1, 1])
                .arg(structure)
                .arg(partials(Access::Write))
                .arg(firsts(Access::Write));
            launches.push(launch);
            blocks_before += blocks;
        }
        let roots = Launch::new("grad_norms_roots", [1, 1, 1])
            .block(ROOT_THREADS)
            .arg(partials(Access::Read))
            .arg(firsts(Access::Read))
            .int(scratch.partials)
            .int(scratch.tensors)
            .arg(args.outputs[0].write())
            .arg(args.outputs[1].write());
        launches.push(roots);
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let grads: Vec<&[f32]> = args.inputs.iter().map(|g| g.f32()).collect();
        let finite = norms(&grads, args.outputs[0].f32());
        args.outputs[1].i32()[0] = i32::from(finite);
    }
}

/// Maximum tensors per launch: their argument struct must stay under 4 KiB.
const CAPACITY: usize = 128;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 8192;

/// Threads of the block that computes norms from the sums.
const ROOT_THREADS: u32 = 1024;

/// Blocks of a tensor; at least one, even without elements, so that the tensor's sum is written.
fn blocks(grad: &TensorDesc) -> usize {
    grad.len().div_ceil(BLOCK_ELEMENTS).max(1)
}

/// The scratch memory: an f64 per block, then the index of each tensor's first block.
struct Scratch {
    partials: usize,
    tensors: usize,
}

impl Scratch {
    fn of<'a>(grads: impl Iterator<Item = &'a TensorDesc> + Clone) -> Self {
        Self { tensors: grads.clone().count(), partials: grads.map(blocks).sum() }
    }

    fn partial_bytes(&self) -> usize {
        self.partials * size_of::<f64>()
    }

    fn first_offset(&self) -> usize {
        self.partial_bytes().next_multiple_of(256)
    }

    fn first_bytes(&self) -> usize {
        self.tensors * size_of::<i32>()
    }
}

/// The argument struct of a launch, and the launch's number of blocks.
fn gradients(grads: &[Buffer<'_>], first_tensor: usize, blocks_before: usize) -> (Arg, usize) {
    for grad in grads {
        assert_eq!(grad.dtype(), DType::F32, "{:?}", grad.desc);
    }
    let (first_block, total) = first_blocks::<CAPACITY>(grads.iter().map(|grad| blocks(grad.desc)));
    let structure = StructArg::new()
        .pointers(grads.iter().map(Buffer::read), CAPACITY)
        .field(column::<_, CAPACITY>(grads.iter().map(|grad| grad.len() as u64)))
        .field(first_block)
        .field(first_tensor as i32)
        .field(blocks_before as i32);
    (structure.arg(), total)
}

/// Elements per sum. It is fixed, so that the order of a sum never depends on the number of
/// threads.
const CHUNK: usize = 1 << 14;

/// Chunks that a task sums in an interleaved loop: a single sum would wait for each addition.
const INTERLEAVED: usize = 4;

/// Lanes of a chunk's sum: independent additions, which the compiler can vectorise.
const LANES: usize = 8;

/// Writes the norms; returns true if every element is finite.
fn norms(grads: &[&[f32]], norms: &mut [f32]) -> bool {
    let (mut total, isa) = (0.0f64, Isa::get());
    for (grad, norm) in grads.iter().zip(norms.iter_mut()) {
        let tasks = grad.par_chunks(INTERLEAVED * CHUNK);
        let sums: Vec<[f64; INTERLEAVED]> = tasks.map(|v| sums_of_squares(isa, v)).collect();
        let sum = sums.as_flattened().iter().sum::<f64>();
        *norm = root(sum);
        total += sum;
    }
    norms[grads.len()] = root(total);
    // The sum of squares of finite f32 values cannot overflow f64.
    total.is_finite()
}

/// The sums of squares of up to [`INTERLEAVED`] chunks.
fn sums_of_squares(isa: Isa, values: &[f32]) -> [f64; INTERLEAVED] {
    let mut lanes = [[0.0f64; LANES]; INTERLEAVED];
    if values.len() == INTERLEAVED * CHUNK {
        add_squares_interleaved(isa, &mut lanes, values);
    } else {
        for (lanes, chunk) in lanes.iter_mut().zip(values.chunks(CHUNK)) {
            add_squares(isa, lanes, chunk);
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

wide! {
    /// [`add_squares`] for several complete chunks, interleaved.
    fn add_squares_interleaved(lanes: &mut [[f64; LANES]; INTERLEAVED], values: &[f32]) {
        let mut sums = *lanes;
        let (blocks, _) = values.as_chunks::<LANES>();
        let (a, rest) = blocks.split_at(CHUNK / LANES);
        let (b, rest) = rest.split_at(CHUNK / LANES);
        let (c, d) = rest.split_at(CHUNK / LANES);
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for (sums, block) in sums.iter_mut().zip([a, b, c, d]) {
                for (sum, &v) in sums.iter_mut().zip(block) {
                    *sum += f64::from(v) * f64::from(v);
                }
            }
        }
        *lanes = sums;
    }
}

wide! {
    /// Adds the square of value `i` to lane `i % LANES`.
    fn add_squares(lanes: &mut [f64; LANES], values: &[f32]) {
        let mut sums = *lanes;
        let (blocks, rest) = values.as_chunks::<LANES>();
        for block in blocks {
            for (sum, &v) in sums.iter_mut().zip(block) {
                *sum += f64::from(v) * f64::from(v);
            }
        }
        for (sum, &v) in sums.iter_mut().zip(rest) {
            *sum += f64::from(v) * f64::from(v);
        }
        *lanes = sums;
    }
}

/// Square root, clamped to the range of f32 if the sum is finite.
fn root(sum: f64) -> f32 {
    if sum.is_finite() { sum.sqrt().min(f64::from(f32::MAX)) as f32 } else { sum as f32 }
}
