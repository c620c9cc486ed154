//! CUDA launches of `group_norm` and its gradients.

use device::{Access, Arg, Launch, LaunchArgs, StructArg};

use super::GroupNorm;
use crate::TensorDesc;

/// Vectors of channels that a block has side by side; as in `vector.cuh`.
const TILE: usize = 32;
/// Fewest positions of a chunk: below, the partial sums cost as much as the map.
const MIN_CHUNK: usize = 64;
/// Most chunks of an image: with a few images they fill the largest device.
const MAX_CHUNKS: usize = 256;

/// How the passes cut a map.
struct Map {
    images: usize,
    positions: usize,
    channels: usize,
    groups: usize,
    chunk: usize,
}

impl Map {
    fn new(x: &TensorDesc, groups: usize) -> Self {
        let positions = x.dim(1) * x.dim(2);
        let chunk = positions.div_ceil(MAX_CHUNKS).max(MIN_CHUNK);
        Self { images: x.dim(0), positions, channels: x.dim(3), groups, chunk }
    }

    fn chunks(&self) -> usize {
        self.positions.div_ceil(self.chunk)
    }

    /// The kernel's `Map`.
    fn arg(&self) -> Arg {
        let fields = [self.positions, self.channels, self.groups, self.chunk, self.chunks()];
        StructArg::new().ints(fields).arg()
    }

    /// A pass over the map: the kernel for vectors of 8 channels if they fit.
    fn pass(&self, [wide, narrow]: [&'static str; 2]) -> Launch {
        let fits = self.channels.is_multiple_of(8);
        let (kernel, vector) = if fits { (wide, 8) } else { (narrow, 1) };
        let tiles = (self.channels / vector).div_ceil(TILE);
        Launch::new(kernel, [self.images * self.chunks(), tiles, 1])
    }

    /// Bytes of two sums for each channel of each chunk.
    fn partial_bytes(&self) -> usize {
        self.images * self.chunks() * 2 * self.channels * size_of::<f32>()
    }
}

pub(super) fn partial_bytes(x: &TensorDesc, groups: usize) -> usize {
    Map::new(x, groups).partial_bytes()
}

/// Bytes of slope and offset for each group of each image.
pub(super) fn corrections_bytes(x: &TensorDesc, groups: usize) -> usize {
    x.dim(0) * groups * 2 * size_of::<f32>()
}

pub(super) fn forward(op: &GroupNorm, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [x, gamma, beta] = [0, 1, 2].map(|i| args.inputs[i]);
    let (y, stats) = (args.outputs[0], args.outputs[1]);
    let residual = args.inputs.get(3).map_or(Arg::Null, |r| r.read());
    let map = Map::new(x.desc, op.groups);
    let partial = |access| args.workspace.piece(0, map.partial_bytes(), access);
    let moments = map.pass(["group_norm_moments_f16x8", "group_norm_moments_f16"]);
    let normalise = map.pass(["group_norm_normalise_f16x8", "group_norm_normalise_f16"]);
    vec![
        moments.arg(x.read()).arg(partial(Access::Write)).arg(map.arg()),
        Launch::new("group_norm_stats", [map.images * map.groups, 1, 1])
            .arg(x.read())
            .arg(partial(Access::Read))
            .arg(stats.write())
            .arg(map.arg())
            .arg(op.eps),
        normalise
            .arg(x.read())
            .arg(gamma.read())
            .arg(beta.read())
            .arg(residual)
            .arg(stats.read())
            .arg(y.write())
            .arg(map.arg())
            .arg(op.relu),
    ]
}

pub(super) fn grad_sums(groups: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, x, stats] = [0, 1, 2].map(|i| args.inputs[i]);
    let map = Map::new(x.desc, groups);
    let partial = |access| args.workspace.piece(0, map.partial_bytes(), access);
    vec![
        map.pass(["group_norm_grad_partial_f16x8", "group_norm_grad_partial_f16"])
            .arg(g.read())
            .arg(x.read())
            .arg(stats.read())
            .arg(partial(Access::Write))
            .arg(map.arg()),
        Launch::new("group_norm_grad_sums", [(2 * map.channels).div_ceil(32), map.images, 1])
            .arg(partial(Access::Read))
            .arg(args.outputs[0].write())
            .arg(map.arg()),
    ]
}

pub(super) fn grad_input(groups: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, x, gamma, stats, sums] = [0, 1, 2, 3, 4].map(|i| args.inputs[i]);
    let map = Map::new(x.desc, groups);
    let count = map.images * groups;
    let bytes = corrections_bytes(x.desc, groups);
    let corrections = |access| args.workspace.piece(0, bytes, access);
    vec![
        Launch::over("group_norm_corrections", 32 * count)
            .arg(gamma.read())
            .arg(stats.read())
            .arg(sums.read())
            .arg(corrections(Access::Write))
            .arg(map.arg())
            .int(count),
        map.pass(["group_norm_grad_input_f16x8", "group_norm_grad_input_f16"])
            .arg(g.read())
            .arg(x.read())
            .arg(gamma.read())
            .arg(stats.read())
            .arg(corrections(Access::Read))
            .arg(args.outputs[0].write())
            .arg(map.arg()),
    ]
}

pub(super) fn grad_params(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let sums = args.inputs[0];
    vec![
        Launch::over("group_norm_grad_params", sums.dim(2))
            .tensors(args)
            .int(sums.dim(0))
            .int(sums.dim(2)),
    ]
}
