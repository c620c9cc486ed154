//! Dense head of a region proposal network: on each level of a pyramid a 3x3 convolution, ReLU, and
//! two 1x1 convolutions of the result.
//!
//! Equals `conv2d` with `relu`, then `conv2d` twice, for each level; the hidden map is not stored.
//! Tensors: `w [K,3,3,C]`, `b [K]`, `w_logits [A,1,1,K]`, `b_logits [A]`, `w_deltas [4A,1,1,K]`,
//! `b_deltas [4A]`, then `map_l [N,h_l,w_l,C]` of each level (all in) -> `logits_l [N,h_l,w_l,A]`
//! of each level, then `deltas_l [N,h_l,w_l,4A]`; overwritten. Sizes: see [`RpnHead::fits`].
//! No backward rule: proposals carry no gradient. Bound by compute; deterministic.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};

use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, launch};
use crate::{Cost, Op, OpError, Role, TensorDesc, Traits, check};

pub use cases::cases;

/// The head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RpnHead;

/// The inputs of [`RpnHead`].
#[derive(Debug, Clone)]
pub struct RpnHeadInputs<T> {
    /// `[K, 3, 3, C]` and `[K]`.
    pub conv: [T; 2],
    /// `[A, 1, 1, K]` and `[A]`.
    pub logits: [T; 2],
    /// `[4A, 1, 1, K]` and `[4A]`.
    pub deltas: [T; 2],
    /// A level each, `[N, h_l, w_l, C]`.
    pub maps: Vec<T>,
}

impl<T> From<RpnHeadInputs<T>> for Vec<T> {
    fn from(inputs: RpnHeadInputs<T>) -> Self {
        let RpnHeadInputs { conv, logits, deltas, maps } = inputs;
        [conv, logits, deltas].into_iter().flatten().chain(maps).collect()
    }
}

impl<'a, T> RpnHeadInputs<&'a T> {
    /// Names the tensors of a list. Panics if it is too short: the contract counts it first.
    fn of(list: &'a [T]) -> Self {
        let [w, b, w_logits, b_logits, w_deltas, b_deltas, maps @ ..] = list else {
            panic!("{} tensors are too few for {NAME}", list.len())
        };
        Self {
            conv: [w, b],
            logits: [w_logits, b_logits],
            deltas: [w_deltas, b_deltas],
            maps: maps.iter().collect(),
        }
    }
}

const NAME: &str = "rpn_head";
/// Inputs before the maps.
pub const FIRST_MAP: usize = 6;
/// The error that a hidden map in fp16 adds to an output, in units of its root mean square: 2^-11
/// of each of its values, which shows where their products cancel.
pub(super) const HIDDEN_ROUNDING: f64 = 1e-3;
/// Levels, anchors of a cell, and what channels are a multiple of; as in `rpn_head.cu`.
const MAX_LEVELS: usize = 8;
const MAX_ANCHORS: usize = 3;
const CHANNEL_MULTIPLE: usize = 8;

impl RpnHead {
    /// True if the op takes so many levels, anchors of a cell, channels of a map and filters.
    pub fn fits(levels: usize, anchors: usize, channels: [usize; 2]) -> bool {
        let whole = channels.iter().all(|c| *c > 0 && c.is_multiple_of(CHANNEL_MULTIPLE));
        (1..=MAX_LEVELS).contains(&levels) && (1..=MAX_ANCHORS).contains(&anchors) && whole
    }
}

/// The 3x3 convolution of a map.
fn conv_shape(map: &TensorDesc, filters: usize) -> ConvShape {
    let [images, height, width, channels] = [0, 1, 2, 3].map(|i| map.dim(i));
    ConvShape {
        images,
        height,
        width,
        channels,
        filters,
        kernel_h: 3,
        kernel_w: 3,
        stride: 1,
        pad: 1,
        dilation: 1,
        groups: 1,
        out_height: height,
        out_width: width,
    }
}

/// The 1x1 convolution of the hidden map `s` makes.
fn predictor_shape(s: &ConvShape, filters: usize) -> ConvShape {
    ConvShape::matrix(s.out_positions(), s.filters, filters)
}

impl Op for RpnHead {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        if inputs.len() <= FIRST_MAP {
            let expected = "6 + 1 a level (at least 7)".to_string();
            return Err(OpError::Arity { op: NAME, what: "inputs", expected, got: inputs.len() });
        }
        check::arity(NAME, "updates", updates, 0)?;
        let RpnHeadInputs { conv: [w, b], logits, deltas, maps } = RpnHeadInputs::of(inputs);
        check::floats_ranked(NAME, "w", w, "[K, 3, 3, C]")?;
        let (filters, channels, anchors) = (w.dim(0), w.dim(3), logits[1].len());
        let sizes = format!("{} levels, {anchors} anchors, {channels} to {filters}", maps.len());
        let fits = Self::fits(maps.len(), anchors, [channels, filters]);
        let most = "at most 8 levels, 3 anchors of a cell, channels in multiples of 8";
        check::parameter(NAME, "sizes", fits, most, sizes)?;
        check::floats(NAME, "w", w, &[filters, 3, 3, channels])?;
        check::floats(NAME, "b", b, &[filters])?;
        let predictors = [
            (["w_logits", "b_logits"], logits, anchors),
            (["w_deltas", "b_deltas"], deltas, 4 * anchors),
        ];
        for ([w_name, b_name], [w, b], outputs) in predictors {
            check::floats(NAME, w_name, w, &[outputs, 1, 1, filters])?;
            check::floats(NAME, b_name, b, &[outputs])?;
        }
        for map in &maps {
            check::floats_ranked(NAME, "map_l", map, "[N, h_l, w_l, C]")?;
            let [height, width] = [map.dim(1), map.dim(2)];
            check::floats(NAME, "map_l", map, &[maps[0].dim(0), height, width, channels])?;
        }
        let of_width = |width: usize| {
            maps.iter().map(move |map| {
                let shape = [map.dim(0), map.dim(1), map.dim(2), width];
                TensorDesc::new(Role::Activation, &shape)
            })
        };
        Ok(of_width(anchors).chain(of_width(4 * anchors)).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let RpnHeadInputs { conv: [_, b], logits: [_, anchors], maps, .. } =
            RpnHeadInputs::of(inputs);
        let outputs_of_cell = 5 * anchors.len();
        let flops = maps.iter().map(|map| {
            let shape = conv_shape(map, b.len());
            shape.flops() + predictor_shape(&shape, outputs_of_cell).flops()
        });
        Cost::streaming(inputs, outputs, flops.sum())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// A hidden map, and the scratch of its convolutions.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let RpnHeadInputs { conv: [_, b], deltas: [_, deltas], maps, .. } =
            RpnHeadInputs::of(inputs);
        let of_map = |map: &&TensorDesc| {
            let shape = conv_shape(map, b.len());
            let scratch = [shape, predictor_shape(&shape, deltas.len())];
            let scratch = scratch.iter().map(gather_workspace_len).max().unwrap_or(0);
            hidden_len(&shape) + scratch
        };
        maps.iter().map(of_map).max().unwrap_or(0)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let RpnHeadInputs { conv: [w, b], logits, deltas, maps } = RpnHeadInputs::of(&args.inputs);
        let shapes: Vec<ConvShape> =
            maps.iter().map(|map| conv_shape(map.desc, b.desc.len())).collect();
        let (launch, first_tiles) = launch::rpn_head(args.gpu, &shapes);
        let (logits_out, deltas_out) = args.outputs.split_at(maps.len());
        let of_levels = |value: &dyn Fn(usize) -> usize| -> [usize; MAX_LEVELS] {
            std::array::from_fn(|l| if l < shapes.len() { value(l) } else { 0 })
        };
        let ConvShape { images, channels, filters, .. } = shapes[0];
        let anchors = logits[1].desc.len();
        let levels = StructArg::new()
            .pointers(maps.iter().map(|map| map.read()), MAX_LEVELS)
            .pointers(logits_out.iter().map(Buffer::write), MAX_LEVELS)
            .pointers(deltas_out.iter().map(Buffer::write), MAX_LEVELS)
            .ints(of_levels(&|l| shapes[l].height))
            .ints(of_levels(&|l| shapes[l].width))
            .ints(of_levels(&|l| first_tiles[l]))
            .ints([shapes.len(), images, channels, filters, anchors]);
        let launch = launch.arg(levels.arg()).arg(w.read()).arg(b.read());
        vec![launch.args([logits, deltas].iter().flatten().map(|t| t.read()))]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RpnHeadInputs { conv: [w, b], logits, deltas, maps } = RpnHeadInputs::of(&args.inputs);
        let (logits_out, deltas_out) = args.outputs.split_at_mut(maps.len());
        for (level, map) in maps.iter().enumerate() {
            let shape = conv_shape(map.desc, b.f32().len());
            let (hidden, workspace) = args.workspace.split_at_mut(hidden_len(&shape));
            let epilogue = Epilogue { bias: Some(b.f32()), relu: true, ..Epilogue::default() };
            conv_forward(&shape, map.f32(), w.f32(), epilogue, hidden, workspace);
            for ([w, b], outputs) in [(logits, &mut *logits_out), (deltas, &mut *deltas_out)] {
                let shape = predictor_shape(&shape, b.f32().len());
                let epilogue = Epilogue { bias: Some(b.f32()), ..Epilogue::default() };
                let to = outputs[level].f32();
                conv_forward(&shape, hidden, w.f32(), epilogue, to, workspace);
            }
        }
    }
}

/// Elements of the hidden map.
fn hidden_len(s: &ConvShape) -> usize {
    s.out_positions() * s.filters
}
