//! CUDA launches of `layerwise`: of up to 64 parameters the norms of weights, if the rule needs
//! them, then the factors, then the update.

use device::{Access, Arg, Launch, LaunchArgs, StructArg, Touch};

use super::rule::{LayerRule, NovogradForm};
use super::{LayerGroup, Layerwise};
use crate::TensorDesc;
use crate::update::{self, CAPACITY, Chunk, Parameter, chunks, column};

/// Threads of the block that makes factors of norms.
const FACTORS_THREADS: u32 = 1024;

/// Factors of a parameter.
const FACTORS: usize = 5;

/// Bytes of the factors of a launch.
const FACTOR_BYTES: usize = CAPACITY * FACTORS * size_of::<f32>();

/// Sums of weights and of statistics share their place, as nobody needs both at a time; the factors
/// follow.
fn factors_offset(grads: impl Iterator<Item = TensorDesc>) -> usize {
    update::sums_bytes(&grads.collect::<Vec<_>>()).next_multiple_of(256)
}

pub(super) fn workspace_bytes(_op: &Layerwise, grads: &[TensorDesc]) -> usize {
    factors_offset(grads.iter().cloned()) + FACTOR_BYTES
}

/// Where the kernels find what they share.
struct Places<'a, 'b> {
    op: &'a Layerwise,
    args: &'a LaunchArgs<'b>,
    factors_offset: usize,
}

pub(super) fn launches(op: &Layerwise, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let n = op.groups.len();
    let factors_offset = factors_offset(args.inputs[..n].iter().map(|grad| grad.desc.clone()));
    let places = Places { op, args, factors_offset };
    let chunks = chunks(args, op.groups.iter().map(|group| group.master), op.stats);
    let mut launches = vec![];
    for (i, chunk) in chunks.iter().enumerate() {
        if op.rule.needs_weight_norms() {
            launches.push(places.squares(chunk));
        }
        launches.push(places.factors(chunk, i + 1 == chunks.len()));
        launches.extend(places.update(chunk));
    }
    launches
}

impl Places<'_, '_> {
    fn control(&self) -> Arg {
        self.args.inputs[self.op.groups.len() + 1].read()
    }

    fn groups(&self, chunk: &Chunk<'_>) -> &[LayerGroup] {
        &self.op.groups[chunk.first..][..chunk.parameters.len()]
    }

    /// Sums of squares of a block's weights.
    fn sums(&self, chunk: &Chunk<'_>, access: Access) -> Arg {
        self.args.workspace.piece(0, chunk.blocks * size_of::<f64>(), access)
    }

    fn factor_piece(&self, access: Access) -> Arg {
        self.args.workspace.piece(self.factors_offset, FACTOR_BYTES, access)
    }

    fn squares(&self, chunk: &Chunk<'_>) -> Launch {
        let masters = |p: &Parameter<'_>| p.p.map_or(p.w.read(), |p| p.read());
        let pointers: Vec<_> = chunk.parameters.iter().map(masters).collect();
        let weights = StructArg::new()
            .pointers(&pointers, CAPACITY)
            .field(chunk.lens())
            .field(chunk.column(0, |p| i32::from(p.p.is_none() && p.is_half())))
            .field(chunk.first_block);
        Launch::new("layerwise_squares", [chunk.blocks, 1, 1])
            .arg(self.control())
            .arg(weights.arg())
            .arg(self.sums(chunk, Access::Write))
    }

    fn factors(&self, chunk: &Chunk<'_>, is_last: bool) -> Launch {
        let n = self.op.groups.len();
        let groups = self.groups(chunk);
        let count = groups.len();
        let floats =
            |value: fn(&LayerGroup) -> f32| column::<f32, CAPACITY>(groups.iter().map(value), 0.0);
        let adapts = column::<i32, CAPACITY>(groups.iter().map(|g| i32::from(g.adapts)), 0);
        let tensors = StructArg::new()
            .field(floats(|group| group.weight_decay))
            .field(floats(|group| group.lr_factor))
            .field(adapts)
            .field(chunk.first_block)
            .field(chunk.blocks as i32)
            .field(count as i32)
            .field(i32::from(is_last));
        let part = |buffer: device::Buffer<'_>, access| {
            let item = size_of::<f32>();
            let ptr = buffer.ptr + (chunk.first * item) as u64;
            Arg::Buffer(Touch { ptr, bytes: count * item, access })
        };
        let launch = Launch::new("layerwise_factors", [1, 1, 1])
            .block(FACTORS_THREADS)
            .arg(self.control())
            .arg(tensors.arg())
            .arg(rule(&self.op.rule))
            .arg(part(self.args.inputs[n], Access::Read));
        let launch = match self.op.rule {
            LayerRule::Lars(_) => {
                launch.arg(self.sums(chunk, Access::Read)).arg(Arg::Null).arg(Arg::Null)
            }
            LayerRule::Novograd(_) => {
                let own = &self.args.updates[2 * n + self.op.masters().count()..];
                launch.arg(Arg::Null).arg(part(own[0], Access::Update)).arg(own[1].update())
            }
        };
        launch.arg(self.factor_piece(Access::Write))
    }

    fn update(&self, chunk: &Chunk<'_>) -> Vec<Launch> {
        let structure = chunk
            .pointers()
            .field(chunk.lens())
            .field(chunk.column(0, |p| i32::from(p.is_half())))
            .field(chunk.first_block);
        let name = if self.op.stats { "layerwise_sums" } else { "layerwise" };
        let launch = Launch::new(name, [chunk.blocks, 1, 1])
            .arg(self.control())
            .arg(structure.arg())
            .arg(self.factor_piece(Access::Read));
        chunk.with_stats(launch, "layerwise_stats")
    }
}

/// The struct of a rule.
fn rule(rule: &LayerRule) -> Arg {
    let (floats, flags) = match rule {
        LayerRule::Lars(lars) => ([lars.momentum, lars.trust, 0.0], [1, 0, 0, 0, 0, 0]),
        LayerRule::Novograd(novograd) => {
            let floats = [novograd.beta1, novograd.beta2, novograd.eps];
            let flags = match novograd.form {
                NovogradForm::Paper => [0, 0, 0, 0, 0, 0],
                NovogradForm::Apex { bias_correction, reg_inside, averaging, init_zero } => {
                    let flags = [false, true, bias_correction, reg_inside, averaging, init_zero];
                    flags.map(i32::from)
                }
            };
            (floats, flags)
        }
    };
    StructArg::new().field(floats).field(flags).arg()
}
