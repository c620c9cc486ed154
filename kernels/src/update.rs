//! What the optimizers share: parameters of a launch, and statistics of what they update.
//!
//! Statistics are a tensor `stats [n, 3]` (Role::Scalar, overwritten): of each parameter the mean
//! and the L2 norm of the weight after the update, of its master if it has one, and the mean of its
//! gradient as given, so still times the loss scale. They cost no pass over memory on a device:
//! the update sums what it holds in registers. Sums are in f64, in an order that depends on shapes
//! alone; a parameter without elements has zeros; a skipped step has them too.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::cpu::CpuArgs;
use crate::{DType, Role, TensorDesc};

/// Numbers of a parameter.
pub const STATS: usize = 3;

/// Sums of a block on CUDA.
const SUMS: usize = STATS;

/// Parameters of a launch: their struct must stay under 4 KiB.
pub(crate) const CAPACITY: usize = 64;

/// Elements a block updates.
pub(crate) const BLOCK_ELEMENTS: usize = 4096;

/// Threads of the block that makes statistics of sums.
const STATS_THREADS: u32 = 1024;

/// Elements that one task sums on the CPU. Fixed, so that no sum depends on the threads.
const CHUNK: usize = 1 << 14;

/// The statistics of `n` parameters.
pub(crate) fn stats_desc(n: usize) -> TensorDesc {
    TensorDesc::new(Role::Scalar, &[n, STATS])
}

/// Writes the statistics of `n` parameters after their update on the CPU; `masters` are those whose
/// master follows weights and momenta among the updates, in order.
pub(crate) fn write_stats(args: &mut CpuArgs<'_>, n: usize, masters: impl Iterator<Item = usize>) {
    let mut place: Vec<usize> = (0..n).collect();
    masters.enumerate().for_each(|(k, i)| place[i] = 2 * n + k);
    let (updates, inputs) = (&mut args.updates, &args.inputs);
    let rows = args.outputs[0].f32().chunks_mut(STATS);
    for ((row, at), grad) in rows.zip(place).zip(inputs) {
        row.copy_from_slice(&statistics(updates[at].f32(), grad.f32()));
    }
}

fn statistics(weights: &[f32], grads: &[f32]) -> [f32; STATS] {
    let of = |(weights, grads): (&[f32], &[f32])| {
        let mut sums = [0.0f64; STATS];
        for (&w, &g) in weights.iter().zip(grads) {
            let (w, g) = (f64::from(w), f64::from(g));
            sums = [sums[0] + w, sums[1] + w * w, sums[2] + g];
        }
        sums
    };
    let chunks = weights.par_chunks(CHUNK).zip(grads.par_chunks(CHUNK));
    let sums: Vec<[f64; STATS]> = chunks.map(of).collect();
    let total = |k: usize| sums.iter().map(|sum| sum[k]).sum::<f64>();
    let len = weights.len().max(1) as f64;
    [(total(0) / len) as f32, total(1).sqrt() as f32, (total(2) / len) as f32]
}

/// One parameter's tensors.
pub(crate) struct Parameter<'a> {
    pub(crate) grad: Buffer<'a>,
    pub(crate) w: Buffer<'a>,
    pub(crate) m: Buffer<'a>,
    pub(crate) p: Option<Buffer<'a>>,
}

impl Parameter<'_> {
    pub(crate) fn is_half(&self) -> bool {
        self.w.dtype() == DType::F16
    }
}

/// The parameters of one launch.
pub(crate) struct Chunk<'a> {
    /// Index of the first among all.
    pub(crate) first: usize,
    pub(crate) parameters: Vec<Parameter<'a>>,
    pub(crate) blocks: usize,
    /// Of each parameter; past the last, the blocks of the launch.
    pub(crate) first_block: [i32; CAPACITY],
    /// Where its blocks write sums, and its statistics.
    stats: Option<[Arg; 3]>,
}

/// Bytes of scratch for the sums of statistics: launches follow one another, and share them.
pub(crate) fn sums_bytes(grads: &[TensorDesc]) -> usize {
    let blocks = |grads: &[TensorDesc]| grads.iter().map(|g| blocks(g.len())).sum::<usize>();
    grads.chunks(CAPACITY).map(blocks).max().unwrap_or(0) * SUMS * size_of::<f64>()
}

/// Blocks of a parameter of `len` elements.
pub(crate) fn blocks(len: usize) -> usize {
    len.div_ceil(BLOCK_ELEMENTS)
}

/// The launches' parameters: gradients come first among the inputs; weights, momenta and the
/// masters of those that have one are updated. With `stats` they are the first output, and their
/// sums lie at the start of the scratch memory.
pub(crate) fn chunks<'a>(
    args: &LaunchArgs<'a>,
    masters: impl ExactSizeIterator<Item = bool>,
    stats: bool,
) -> Vec<Chunk<'a>> {
    let n = masters.len();
    let mut buffers = args.updates[2 * n..].iter().copied();
    let of = |(i, has_master): (usize, bool)| Parameter {
        grad: args.inputs[i],
        w: args.updates[i],
        m: args.updates[n + i],
        p: if has_master { buffers.next() } else { None },
    };
    let mut rest: Vec<Parameter<'a>> = masters.enumerate().map(of).collect();
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let after = rest.split_off(rest.len().min(CAPACITY));
        let first = chunks.len() * CAPACITY;
        let mut chunk = Chunk::new(first, std::mem::replace(&mut rest, after));
        if stats {
            chunk.stats = Some(chunk.stats_args(args));
        }
        chunks.push(chunk);
    }
    chunks
}

impl<'a> Chunk<'a> {
    fn new(first: usize, parameters: Vec<Parameter<'a>>) -> Self {
        let mut total = 0;
        let mut first_block = [0i32; CAPACITY];
        for (parameter, first) in parameters.iter().zip(&mut first_block) {
            for wide in [parameter.grad, parameter.m] {
                assert_eq!(wide.dtype(), DType::F32, "{:?}", wide.desc);
            }
            *first = total as i32;
            total += blocks(parameter.grad.len());
        }
        first_block[parameters.len()..].fill(total as i32);
        Self { first, parameters, blocks: total, first_block, stats: None }
    }

    /// Sums to write, sums to read, and statistics.
    fn stats_args(&self, args: &LaunchArgs<'_>) -> [Arg; 3] {
        let sums = self.blocks * SUMS * size_of::<f64>();
        let row = STATS * size_of::<f32>();
        let stats = device::Touch {
            ptr: args.outputs[0].ptr + (self.first * row) as u64,
            bytes: self.parameters.len() * row,
            access: Access::Write,
        };
        let sums = |access| args.workspace.piece(0, sums, access);
        [sums(Access::Write), sums(Access::Read), Arg::Buffer(stats)]
    }

    /// The struct of a launch, as far as its pointers: gradients, weights, momenta, masters.
    pub(crate) fn pointers(&self) -> StructArg {
        let of = |arg: &dyn Fn(&Parameter<'_>) -> Arg| -> Vec<Arg> {
            self.parameters.iter().map(arg).collect()
        };
        StructArg::new()
            .pointers(&of(&|p| p.grad.read()), CAPACITY)
            .pointers(&of(&|p| p.w.update()), CAPACITY)
            .pointers(&of(&|p| p.m.update()), CAPACITY)
            .pointers(&of(&|p| p.p.map_or(Arg::Null, |p| p.update())), CAPACITY)
    }

    /// Elements of each parameter.
    pub(crate) fn lens(&self) -> [u64; CAPACITY] {
        self.column(0, |p| p.grad.len() as u64)
    }

    /// An array of the struct: a value for each parameter, `rest` past the last.
    pub(crate) fn column<T: Copy>(
        &self,
        rest: T,
        of: impl Fn(&Parameter<'_>) -> T,
    ) -> [T; CAPACITY] {
        column(self.parameters.iter().map(of), rest)
    }

    /// The launch that updates; with statistics it writes sums, and `name` follows.
    pub(crate) fn with_stats(&self, launch: Launch, name: &'static str) -> Vec<Launch> {
        let Some([write, read, stats]) = self.stats.clone() else { return vec![launch] };
        let lengths = StructArg::new()
            .field(self.lens())
            .field(self.first_block)
            .field(self.blocks as i32)
            .field(self.parameters.len() as i32);
        let roots = Launch::new(name, [1, 1, 1]).block(STATS_THREADS);
        vec![launch.arg(write), roots.arg(lengths.arg()).arg(read).arg(stats)]
    }
}

/// The values in order, `rest` past the last.
pub(crate) fn column<T: Copy, const N: usize>(
    mut values: impl Iterator<Item = T>,
    rest: T,
) -> [T; N] {
    std::array::from_fn(|_| values.next().unwrap_or(rest))
}
