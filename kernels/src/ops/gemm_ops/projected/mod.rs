//! Bottleneck output with projection shortcut: `y = relu(conv(x, w) * scale + bias + conv(from,
//! w_from) * scale_from + bias_from)`, both convolutions 1x1.
//!
//! Equals two `conv2d` ops, where the output of the first (the projection) is the residual of the
//! second, except that this output is not rounded. No backward rule: the op is created by fusing
//! nodes that already have gradients. A GPU supports it only in fp16.

mod cases;

use device::{Access, Arg, Launch, LaunchArgs};

use super::conv2d::Conv2d;
use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, launch};
use crate::ops::layer::Layer;
use crate::{Cost, OpError, TensorDesc, Traits, check, op, signs};

pub use cases::cases;

op! {
    /// The last convolution of a bottleneck, fused with the projection shortcut that is added to
    /// its output. Memory-bound; deterministic.
    #[derive(Copy, Eq)]
    pub struct Projected = "projected" {
        /// Stride of the projection, both axes.
        pub stride: usize,
        /// Applies ReLU.
        pub relu: bool,
        /// There is a second output, the [`signs`](crate::signs) of y.
        pub signs: bool,
    }
    in ProjectedInputs {
        /// Input of the convolution; C is a multiple of 8.
        x: real "[N, P, Q, C]",
        /// Filters of the convolution.
        w: real "[K, 1, 1, C]",
        /// Scale per filter.
        scale: f32 "[K]",
        /// Bias per filter.
        bias: f32 "[K]",
        /// Input of the projection, with `P = (H - 1) / stride + 1`; E is a multiple of 8.
        from: real "[N, H, W, E]",
        /// Filters of the projection.
        w_from: real "[K, 1, 1, E]",
        /// Scale per filter.
        scale_from: f32 "[K]",
        /// Bias per filter.
        bias_from: f32 "[K]",
    }
    out {
        /// The sum.
        y: Activation "[N, P, Q, K]",
    }
}

const NAME: &str = "projected";
/// Channels must be a multiple of this; as in `projected.cu`.
const CHANNEL_MULTIPLE: usize = 8;

impl Projected {
    /// Fuses `conv` with the projection that computes its residual, for inputs with these channels.
    /// `None` if the op does not support them.
    pub fn of(conv: &Conv2d, projection: &Conv2d, channels: [usize; 2]) -> Option<Self> {
        let scaled = Conv2d { scale: true, bias: true, ..Conv2d::new(1, 0) };
        let Conv2d { relu, signs, .. } = *conv;
        let fits = *conv == Conv2d { residual: true, relu, signs, ..scaled.clone() }
            && *projection == Conv2d { stride: projection.stride, ..scaled }
            && channels.into_iter().all(|c| c.is_multiple_of(CHANNEL_MULTIPLE));
        fits.then_some(Self { stride: projection.stride, relu, signs })
    }

    /// The convolution, the projection, and the shape of `y`.
    fn sizes(
        &self,
        [x, w, from, w_from]: [&TensorDesc; 4],
    ) -> Result<([ConvShape; 2], Vec<usize>), OpError> {
        let (own, y) = Layer::conv2d(1, 0).sizes(NAME, [x, w])?;
        let projection = Layer::conv2d(self.stride, 0);
        let (other, projected) = projection.sizes(NAME, [from, w_from])?;
        if projected != y {
            let expected = format!("a map whose projection is {y:?}, not {projected:?}");
            return Err(check::shape_error(NAME, "from", from, expected));
        }
        Ok(([own, other], y))
    }

    /// The convolution and the projection of tensors that `check` has accepted.
    fn shapes<'a, T>(&self, list: &'a [T], desc: fn(&'a T) -> &'a TensorDesc) -> [ConvShape; 2] {
        let ProjectedInputs { x, w, from, w_from, .. } = ProjectedInputs::of(list);
        match self.sizes([x, w, from, w_from].map(desc)) {
            Ok((shapes, _)) => shapes,
            Err(error) => panic!("{NAME} runs only after its shapes were inferred: {error}"),
        }
    }
}

impl Kernel for Projected {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let ProjectedInputs { x, w, from, w_from, .. } = ProjectedInputs::of(inputs);
        let (shapes, y) = self.sizes([x, w, from, w_from])?;
        for s in shapes {
            let whole = s.channels.is_multiple_of(CHANNEL_MULTIPLE);
            check::parameter(dims.op(), "channels", whole, "a multiple of 8", s.channels)?;
        }
        if self.signs {
            signs::infer(dims.op(), "y", &TensorDesc::new(x.role, &y))?;
        }
        Ok(())
    }

    fn adjust(&self, _inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs.extend(signs::signs_of(&outputs[0]).filter(|_| self.signs));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = self.shapes(inputs, |desc| desc).iter().map(ConvShape::flops).sum();
        Cost::streaming(inputs, outputs, flops)
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// Elements of the projection's output and of the scratch memory of the convolutions.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let shapes = self.shapes(inputs, |desc| desc);
        shapes[0].out_positions() * shapes[0].filters
            + shapes.iter().map(gather_workspace_len).max().unwrap_or(0)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        Scratch::of(&self.shapes(inputs, |desc| desc)).len()
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shapes = self.shapes(&args.inputs, |input| input.desc);
        launches(self, &shapes, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [own, from] = &self.shapes(&args.inputs, |input| input.desc);
        let inputs = ProjectedInputs::of(&args.inputs);
        let (first, second) = args.outputs.split_at_mut(1);
        let y = first[0].f32();
        let (projection, workspace) = args.workspace.split_at_mut(y.len());
        let epilogue = Epilogue {
            scale: Some(inputs.scale_from.f32()),
            bias: Some(inputs.bias_from.f32()),
            ..Epilogue::default()
        };
        let (map, filters) = (inputs.from.f32(), inputs.w_from.f32());
        conv_forward(from, map, filters, epilogue, projection, workspace);
        let epilogue = Epilogue {
            scale: Some(inputs.scale.f32()),
            bias: Some(inputs.bias.f32()),
            residual: Some(projection),
            relu: self.relu,
        };
        conv_forward(own, inputs.x.f32(), inputs.w.f32(), epilogue, y, workspace);
        if let [signs] = second {
            signs::write(signs.i32(), y, own.filters);
        }
    }
}

/// Output of the first launch, read by the second: scaled filters in fp16, and sums of biases.
struct Scratch {
    /// Bytes of each part; multiples of 16 for filters.
    parts: [usize; 3],
}

impl Scratch {
    fn of([own, from]: &[ConvShape; 2]) -> Self {
        let filters = |s: &ConvShape| s.filters * s.channels * size_of::<u16>();
        Self { parts: [filters(own), filters(from), own.filters * size_of::<f32>()] }
    }

    /// Bytes of all parts.
    fn len(&self) -> usize {
        self.parts.iter().sum()
    }

    fn part(&self, args: &LaunchArgs<'_>, i: usize, access: Access) -> Arg {
        args.workspace.piece(self.parts[..i].iter().sum(), self.parts[i], access)
    }
}

fn launches(op: &Projected, [own, from]: &[ConvShape; 2], args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = ProjectedInputs::of(&args.inputs);
    let scratch = Scratch::of(&[*own, *from]);
    let chunks = (own.channels + from.channels) / CHANNEL_MULTIPLE;
    let filters = Launch::over("projected_filters_f16", own.filters * (chunks + 1)).reads([
        inputs.w,
        inputs.w_from,
        inputs.scale,
        inputs.scale_from,
        inputs.bias,
        inputs.bias_from,
    ]);
    let filters = (0..3).fold(filters, |l, i| l.arg(scratch.part(args, i, Access::Write)));
    let filters = filters.int(own.filters).int(own.channels).int(from.channels);
    let part = |i| scratch.part(args, i, Access::Read);
    let product = launch::projected(args.gpu, own, from)
        .arg(inputs.x.read())
        .arg(part(0))
        .arg(inputs.from.read())
        .arg(part(1))
        .arg(part(2))
        .arg(args.outputs[0].write())
        .arg(launch::conv_arg(own))
        .arg(launch::conv_arg(from))
        .arg(op.relu)
        .arg(args.outputs.get(1).map_or(Arg::Null, |signs| signs.write()));
    vec![filters, product]
}
