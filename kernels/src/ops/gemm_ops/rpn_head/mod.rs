//! Dense head of a region proposal network: on each level of a pyramid a 3x3 convolution, ReLU, and
//! two 1x1 convolutions.
//!
//! Equals `conv2d` with `relu`, then `conv2d` twice, for each level; the hidden map is not stored.
//! No backward rule: proposals carry no gradient.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, launch};
use crate::{Cost, OpError, Role, TensorDesc, Traits, check, op};

pub use cases::cases;

op! {
    /// The head. Outputs: `[N, h, w, A]` logits of each level, then `[N, h, w, 4A]` deltas of each
    /// level. Supported sizes: see [`RpnHead::fits`]. Compute-bound; deterministic.
    #[derive(Copy, Eq)]
    pub struct RpnHead = "rpn_head" {}
    in RpnHeadInputs {
        /// Filters of the 3x3 convolution.
        w: real "[K, 3, 3, C]",
        /// Bias of the 3x3 convolution.
        b: f32 "[K]",
        /// Filters of the logits.
        w_logits: real "[A, 1, 1, K]",
        /// Bias of the logits.
        b_logits: f32 "[A]",
        /// Filters of the deltas.
        w_deltas: real "[4A, 1, 1, K]",
        /// Bias of the deltas.
        b_deltas: f32 "[4A]",
    }
    each {
        /// Map of a level.
        maps: real "[N, h, w, C]",
    }
    out {}
}

/// The error that an fp16 hidden map adds to an output, in units of the output's root mean square:
/// each hidden value is off by up to 2^-11 of itself, which is noticeable where terms cancel.
pub(super) const HIDDEN_ROUNDING: f64 = 1e-3;
/// Maximum levels and anchors per cell, and the channel multiple; as in `rpn_head.cu`.
const MAX_LEVELS: usize = 8;
const MAX_ANCHORS: usize = 3;
const CHANNEL_MULTIPLE: usize = 8;

impl RpnHead {
    /// True if the op supports these numbers of levels, anchors per cell, channels and filters.
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

/// A 1x1 convolution of the hidden map, which is the output of the convolution `s`.
fn predictor_shape(s: &ConvShape, filters: usize) -> ConvShape {
    ConvShape::matrix(s.out_positions(), s.filters, filters)
}

impl Kernel for RpnHead {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let [levels, anchors] = [inputs.len() - RpnHeadInputs::LEN, dims.get("A")];
        let [channels, filters] = ["C", "K"].map(|name| dims.get(name));
        let sizes = format!("{levels} levels, {anchors} anchors, {channels} to {filters}");
        let fits = Self::fits(levels, anchors, [channels, filters]);
        let most = "at most 8 levels, 3 anchors per cell, channels in multiples of 8";
        check::parameter(dims.op(), "sizes", fits, most, sizes)
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let of = RpnHeadInputs::of(inputs);
        for bias in [of.b_logits, of.b_deltas] {
            outputs.extend(of.maps.iter().map(|map| {
                let [images, height, width] = [0, 1, 2].map(|i| map.dim(i));
                TensorDesc::new(Role::Activation, &[images, height, width, bias.len()])
            }));
        }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let RpnHeadInputs { b, b_logits, maps, .. } = RpnHeadInputs::of(inputs);
        let outputs_of_cell = 5 * b_logits.len();
        let flops = maps.iter().map(|map| {
            let shape = conv_shape(map, b.len());
            shape.flops() + predictor_shape(&shape, outputs_of_cell).flops()
        });
        Cost::streaming(inputs, outputs, flops.sum())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// Elements of a hidden map and of the scratch memory of its convolutions.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let RpnHeadInputs { b, b_deltas, maps, .. } = RpnHeadInputs::of(inputs);
        let of_map = |map: &&TensorDesc| {
            let shape = conv_shape(map, b.len());
            let scratch = [shape, predictor_shape(&shape, b_deltas.len())];
            let scratch = scratch.iter().map(gather_workspace_len).max().unwrap_or(0);
            hidden_len(&shape) + scratch
        };
        maps.iter().map(of_map).max().unwrap_or(0)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let RpnHeadInputs { b, b_logits, maps, .. } = RpnHeadInputs::of(&args.inputs);
        let shapes: Vec<ConvShape> =
            maps.iter().map(|map| conv_shape(map.desc, b.desc.len())).collect();
        let (launch, first_tiles) = launch::rpn_head(args.gpu, &shapes);
        let (logits_out, deltas_out) = args.outputs.split_at(maps.len());
        let of_levels = |value: &dyn Fn(usize) -> usize| -> [usize; MAX_LEVELS] {
            std::array::from_fn(|l| if l < shapes.len() { value(l) } else { 0 })
        };
        let ConvShape { images, channels, filters, .. } = shapes[0];
        let levels = StructArg::new()
            .pointers(maps.iter().map(|map| map.read()), MAX_LEVELS)
            .pointers(logits_out.iter().map(Buffer::write), MAX_LEVELS)
            .pointers(deltas_out.iter().map(Buffer::write), MAX_LEVELS)
            .ints(of_levels(&|l| shapes[l].height))
            .ints(of_levels(&|l| shapes[l].width))
            .ints(of_levels(&|l| first_tiles[l]))
            .ints([shapes.len(), images, channels, filters, b_logits.len()]);
        let single = args.inputs[..RpnHeadInputs::LEN].iter().map(Buffer::read);
        vec![launch.arg(levels.arg()).args(single)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RpnHeadInputs { w, b, w_logits, b_logits, w_deltas, b_deltas, maps } =
            RpnHeadInputs::of(&args.inputs);
        let (logits, deltas) = args.outputs.split_at_mut(maps.len());
        for (level, map) in maps.iter().enumerate() {
            let shape = conv_shape(map.desc, b.f32().len());
            let (hidden, workspace) = args.workspace.split_at_mut(hidden_len(&shape));
            let epilogue = Epilogue { bias: Some(b.f32()), relu: true, ..Epilogue::default() };
            conv_forward(&shape, map.f32(), w.f32(), epilogue, hidden, workspace);
            let [logits, deltas] = [&mut logits[level], &mut deltas[level]];
            for (w, b, to) in [(w_logits, b_logits, logits), (w_deltas, b_deltas, deltas)] {
                let shape = predictor_shape(&shape, b.f32().len());
                let epilogue = Epilogue { bias: Some(b.f32()), ..Epilogue::default() };
                conv_forward(&shape, hidden, w.f32(), epilogue, to.f32(), workspace);
            }
        }
    }
}

/// Elements of the hidden map.
fn hidden_len(s: &ConvShape) -> usize {
    s.out_positions() * s.filters
}
