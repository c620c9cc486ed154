//! CUDA launches of `parameter_update`. For each chunk of up to 64 parameters: the norms of weights
//! and the factors, if the optimizer needs them, then the update, then statistics. Last, the
//! averages of all chunks, if enabled.
//!
//! All kernels take one struct of parameters as an argument: the struct is under 4 KiB, and the
//! driver copies it into a captured graph. A table in device memory would have to be uploaded after
//! the memory plan has placed the tensors, and the pointers in the table would not be part of a
//! launch's declared accesses.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use super::{Average, Group, ParameterUpdate, STATS};
use crate::many_tensors::{column, first_blocks};
use crate::{DType, TensorDesc};

/// Maximum parameters per launch: their argument struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

/// Flags of a parameter: the weight is fp16 (else f32); the learning rate depends on norms.
const IS_HALF: i32 = 1;
const ADAPTS: i32 = 2;

/// Sums per block for statistics.
const SUMS: usize = 3;

/// Threads of a block that computes statistics or factors from sums, with one warp per parameter.
const ROOT_THREADS: u32 = 1024;

/// Factors per parameter.
const FACTORS: usize = 5;

/// Bytes of the factors per launch.
const FACTOR_BYTES: usize = CAPACITY * FACTORS * size_of::<f32>();

/// Bytes of scratch memory. The partial sums for the statistics and for the weight norms have the
/// same offset, as they are never needed at the same time; the factors follow. All chunks use the
/// same scratch memory.
pub(super) fn workspace_bytes(op: &ParameterUpdate, grads: &[TensorDesc]) -> usize {
    match (op.rule.entry().factors.is_some(), op.stats) {
        (false, false) => 0,
        (false, true) => sums_bytes(grads.iter()),
        (true, _) => factors_offset(grads.iter()) + FACTOR_BYTES,
    }
}

fn sums_bytes<'a>(grads: impl Iterator<Item = &'a TensorDesc>) -> usize {
    let blocks: Vec<usize> = grads.map(|grad| grad.len().div_ceil(BLOCK_ELEMENTS)).collect();
    let most = blocks.chunks(CAPACITY).map(|blocks| blocks.iter().sum()).max().unwrap_or(0);
    most * SUMS * size_of::<f64>()
}

fn factors_offset<'a>(grads: impl Iterator<Item = &'a TensorDesc>) -> usize {
    sums_bytes(grads).next_multiple_of(256)
}

/// One parameter's tensors.
struct Parameter<'a> {
    group: Group,
    grad: Buffer<'a>,
    w: Buffer<'a>,
    m: Buffer<'a>,
    p: Option<Buffer<'a>>,
    /// The second moment.
    v: Option<Buffer<'a>>,
    /// The average.
    e: Option<Buffer<'a>>,
}

/// The parameters of one launch.
struct Chunk<'a, 'b> {
    op: &'a ParameterUpdate,
    args: &'a LaunchArgs<'b>,
    /// State of the rule: a scalar per parameter of the op, and the update count.
    number: Option<Buffer<'b>>,
    steps: Option<Buffer<'b>>,
    parameters: Vec<Parameter<'b>>,
    /// Index of the first parameter among all parameters of the op.
    first: usize,
    is_last: bool,
    blocks: usize,
}

pub(super) fn launches(op: &ParameterUpdate, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let n = op.groups.len();
    let (updates, averages) = args.updates.split_at(args.updates.len() - op.average_states());
    let (masters, own) = updates[2 * n..].split_at(op.masters().count());
    let mut masters = masters.iter().copied();
    let [numbers, seconds, steps] = op.own(own);
    let (number, steps) = (numbers.first().copied(), steps.first().copied());
    let parameters = op.groups.iter().enumerate().map(|(i, group)| Parameter {
        group: *group,
        grad: args.inputs[i],
        w: args.updates[i],
        m: args.updates[n + i],
        p: if group.master { masters.next() } else { None },
        v: seconds.get(i).copied(),
        e: averages.get(i).copied(),
    });
    let mut rest = parameters.peekable();
    let (mut launches, mut chunks) = (vec![], vec![]);
    for first in (0..n).step_by(CAPACITY) {
        let parameters: Vec<Parameter<'_>> = rest.by_ref().take(CAPACITY).collect();
        let wide = parameters.iter().flat_map(|p| [Some(p.grad), Some(p.m), p.e, p.averaged()]);
        for wide in wide.flatten() {
            assert_eq!(wide.dtype(), DType::F32, "{:?}", wide.desc);
        }
        let is_last = rest.peek().is_none();
        let blocks = parameters.iter().map(Parameter::blocks).sum();
        let chunk = Chunk { op, args, number, steps, parameters, first, is_last, blocks };
        launches.extend(chunk.launches());
        chunks.push(chunk);
    }
    if let (Some(average), Some((averaged, _))) = (op.average, averages.split_last()) {
        let control = args.inputs[args.inputs.len() - 1];
        let count = Launch::new("count_average", [1, 1, 1]).block(32);
        launches.push(count.arg(control.read()).arg(averaged.update()));
        launches.extend(chunks.iter().map(|chunk| chunk.average(average, *averaged)));
    }
    launches
}

impl Parameter<'_> {
    fn blocks(&self) -> usize {
        self.grad.len().div_ceil(BLOCK_ELEMENTS)
    }

    /// The values that are averaged, if any.
    fn averaged(&self) -> Option<Buffer<'_>> {
        self.e.and(self.p.or(Some(self.w)))
    }

    /// The tensors that the update reads and writes.
    fn update(&self) -> [Arg; 4] {
        let master = self.p.map_or(Arg::Null, |p| p.update());
        [self.grad.read(), self.w.update(), self.m.update(), master]
    }

    /// The values that the update changes (master or weight), for reading.
    fn values(&self) -> [Arg; 4] {
        let [w, p] = match self.p {
            Some(p) => [Arg::Null, p.read()],
            None => [self.w.read(), Arg::Null],
        };
        [Arg::Null, w, Arg::Null, p]
    }

    fn flags(&self, adapts: bool) -> i32 {
        let is_half = if self.w.dtype() == DType::F16 { IS_HALF } else { 0 };
        is_half | if adapts { ADAPTS } else { 0 }
    }
}

impl Chunk<'_, '_> {
    fn launches(&self) -> Vec<Launch> {
        let (op, entry) = (self.op, self.op.rule.entry());
        let control = self.args.inputs[self.args.inputs.len() - 1].read();
        let launch = |name, grid: usize, parameters: StructArg| {
            Launch::new(name, [grid, 1, 1]).arg(control.clone()).arg(parameters.arg())
        };
        let lengths = || self.parameters(|_| [const { Arg::Null }; 4]);
        let mut launches = vec![];
        if entry.needs_weight_norms {
            let squares = launch("update_squares", self.blocks, self.parameters(|p| p.values()));
            launches.push(squares.arg(self.sums(1, Access::Write)));
        }
        if let Some(name) = entry.factors {
            let mut fields = op.rule.factor_fields(lengths(), op.momentum);
            if entry.steps.is_some() {
                fields = fields.field(i32::from(self.is_last));
            }
            let norms = || self.part(self.args.inputs[op.groups.len()], 1, Access::Read);
            let args = [
                entry.needs_norms.then(norms),
                entry.needs_weight_norms.then(|| self.sums(1, Access::Read)),
                self.number.map(|number| self.part(number, 1, Access::Update)),
                self.steps.map(|steps| steps.update()),
                Some(self.factors(Access::Write)),
            ];
            let made = launch(name, 1, fields).block(ROOT_THREADS);
            launches.push(args.into_iter().flatten().fold(made, Launch::arg));
        }
        let mut fields = self.parameters(|p| p.update());
        if entry.second.is_some() {
            let seconds = self.parameters.iter().filter_map(|p| Some(p.v?.update()));
            fields = fields.pointers(seconds, CAPACITY);
        }
        let fields = op.rule.fields(fields, op.momentum);
        let mut update = launch(entry.kernels[usize::from(op.stats)], self.blocks, fields);
        if entry.factors.is_some() {
            update = update.arg(self.factors(Access::Read));
        }
        if !op.stats {
            launches.push(update);
            return launches;
        }
        launches.push(update.arg(self.sums(SUMS, Access::Write)));
        let stats = Launch::new("update_stats", [1, 1, 1]).block(ROOT_THREADS);
        let stats = stats.arg(lengths().arg()).arg(self.sums(SUMS, Access::Read));
        launches.push(stats.arg(self.part(self.args.outputs[0], STATS, Access::Write)));
        launches
    }

    /// Updates the averages, which are passed in place of the momenta.
    fn average(&self, average: Average, averaged: Buffer<'_>) -> Launch {
        let control = self.args.inputs[self.args.inputs.len() - 1].read();
        let parameters = self.parameters(|p| {
            let [grad, w, _, master] = p.values();
            [grad, w, p.e.map_or(Arg::Null, |e| e.update()), master]
        });
        let parameters = parameters.field([average.decay, average.root()]);
        let launch = Launch::new("average", [self.blocks, 1, 1]).arg(control);
        launch.arg(parameters.arg()).arg(averaged.read())
    }

    /// The argument struct of the parameters, with these pointers to gradients, weights, momenta
    /// and masters.
    fn parameters(&self, pointers: impl Fn(&Parameter<'_>) -> [Arg; 4]) -> StructArg {
        let rows: Vec<[Arg; 4]> = self.parameters.iter().map(pointers).collect();
        let structure = (0..4).fold(StructArg::new(), |structure, k| {
            structure.pointers(rows.iter().map(|row| row[k].clone()), CAPACITY)
        });
        let (first_block, blocks) =
            first_blocks::<CAPACITY>(self.parameters.iter().map(Parameter::blocks));
        structure
            .field(self.column(|p| p.grad.len() as u32))
            .field(self.column(|p| p.group.weight_decay))
            .field(self.column(|p| p.group.lr_factor))
            .field(self.column(|p| p.flags(self.op.rule.adapts(p.group.is_weight))))
            .field(first_block)
            .field(blocks as i32)
            .field(self.parameters.len() as i32)
    }

    fn column<T: Copy + Default>(&self, of: impl Fn(&Parameter<'_>) -> T) -> [T; CAPACITY] {
        column(self.parameters.iter().map(of))
    }

    /// The chunk's rows of `width` elements in a tensor with a row per parameter.
    fn part(&self, buffer: Buffer<'_>, width: usize, access: Access) -> Arg {
        let row = width * size_of::<f32>();
        let ptr = buffer.ptr + (self.first * row) as u64;
        Arg::Buffer(Touch { ptr, bytes: self.parameters.len() * row, access })
    }

    fn factors(&self, access: Access) -> Arg {
        let grads = self.args.inputs[..self.op.groups.len()].iter().map(|grad| grad.desc);
        self.args.workspace.piece(factors_offset(grads), FACTOR_BYTES, access)
    }

    /// Scratch memory for `of_block` sums per block.
    fn sums(&self, of_block: usize, access: Access) -> Arg {
        self.args.workspace.piece(0, self.blocks * of_block * size_of::<f64>(), access)
    }
}
