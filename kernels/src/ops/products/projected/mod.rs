//! The end of a bottleneck whose shortcut is a projection: `y = relu(conv(x, w) * scale + bias +
//! conv(from, w_from) * scale_from + bias_from)`, both convolutions 1x1.
//!
//! Equals two of `conv2d`, of which one adds the other, but that the projection is not rounded on
//! its way. Tensors: `x [N,P,Q,C]`, `w [K,1,1,C]`, `scale [K]`, `bias [K]`, `from [N,H,W,E]`,
//! `w_from [K,1,1,E]`, `scale_from [K]`, `bias_from [K]` (all in; C and E, the channels of `from`,
//! multiples of 8) -> `y [N,P,Q,K]`, overwritten, with `P = (H - 1) / stride + 1`, and its
//! [`signs`](crate::signs) if the flag is set. No backward rule: a fusion makes it of nodes whose
//! gradients are there. In fp16 on a GPU alone. Bound by memory; deterministic.

mod cases;
mod cuda;

use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len};
use crate::{Cost, Op, OpError, Role, TensorDesc, Traits, check, signs};
use device::{Gpu, Launch, LaunchArgs};

use super::conv2d::Conv2d;
use crate::ops::layer::Layer;

pub use cases::cases;

/// The last convolution of a bottleneck, with the projection that is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projected {
    /// Step between the positions that the projection reads, both axes.
    pub stride: usize,
    /// Negative results become 0.
    pub relu: bool,
    /// There is an output of y's [`signs`](crate::signs).
    pub signs: bool,
}

op_inputs! {
    /// The inputs of [`Projected`].
    pub struct ProjectedInputs {
        /// `[N, P, Q, C]`.
        x,
        /// `[K, 1, 1, C]`.
        w,
        /// `[K]`.
        scale,
        /// `[K]`.
        bias,
        /// `[N, H, W, E]`.
        from,
        /// `[K, 1, 1, E]`.
        w_from,
        /// `[K]`.
        scale_from,
        /// `[K]`.
        bias_from,
    }
}

const NAME: &str = "projected";
/// Channels are multiples of it; as in `projected.cu`.
const CHANNEL_MULTIPLE: usize = 8;

impl Projected {
    /// The op that makes what `conv` makes of inputs with these channels, whose residual is what
    /// `projection` makes. `None` if it cannot.
    pub fn of(conv: &Conv2d, projection: &Conv2d, channels: [usize; 2]) -> Option<Self> {
        let scaled = Conv2d { scale: true, bias: true, ..Conv2d::new(1, 0) };
        let Conv2d { relu, signs, .. } = *conv;
        let fits = *conv == Conv2d { residual: true, relu, signs, ..scaled.clone() }
            && *projection == Conv2d { stride: projection.stride, ..scaled }
            && channels.into_iter().all(|c| c.is_multiple_of(CHANNEL_MULTIPLE));
        fits.then_some(Self { stride: projection.stride, relu, signs })
    }

    /// The convolution and the projection, and the shape of `y`.
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

    /// The convolutions of tensors that were checked.
    fn shapes<'a, T>(&self, list: &'a [T], desc: fn(&'a T) -> &'a TensorDesc) -> [ConvShape; 2] {
        let ProjectedInputs { x, w, from, w_from, .. } = ProjectedInputs::of(list);
        match self.sizes([x, w, from, w_from].map(desc)) {
            Ok((shapes, _)) => shapes,
            Err(error) => panic!("{NAME} runs only after its shapes were inferred: {error}"),
        }
    }
}

impl Op for Projected {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, ProjectedInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let inputs = ProjectedInputs::of(inputs);
        let ProjectedInputs { x, w, scale, bias, from, w_from, scale_from, bias_from } = inputs;
        let (shapes, y) = self.sizes([x, w, from, w_from])?;
        for (name, filters) in [("w", w), ("w_from", w_from)] {
            let [filters_out, channels] = [0, 3].map(|axis| filters.dim(axis));
            check::floats(NAME, name, filters, &[filters_out, 1, 1, channels])?;
        }
        let vectors = [
            ("scale", scale),
            ("bias", bias),
            ("scale_from", scale_from),
            ("bias_from", bias_from),
        ];
        for (name, vector) in vectors {
            check::floats(NAME, name, vector, &[shapes[0].filters])?;
        }
        for s in shapes {
            let whole = s.channels.is_multiple_of(CHANNEL_MULTIPLE);
            check::parameter(NAME, "channels", whole, "a multiple of 8", s.channels)?;
        }
        let y = TensorDesc::new(Role::Activation, &y);
        let signs = self.signs.then(|| signs::infer(NAME, "y", &y)).transpose()?;
        Ok([y].into_iter().chain(signs).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = self.shapes(inputs, |desc| desc).iter().map(ConvShape::flops).sum();
        Cost::streaming(inputs, outputs, flops)
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// The projection, and the scratch of the convolutions.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
        let shapes = self.shapes(inputs, |desc| desc);
        outputs[0].len() + shapes.iter().map(gather_workspace_len).max().unwrap_or(0)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::Scratch::of(&self.shapes(inputs, |desc| desc)).len()
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shapes = self.shapes(&args.inputs, |input| input.desc);
        cuda::launches(self, &shapes, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shapes = self.shapes(&args.inputs, |input| input.desc);
        forward(self, &shapes, args);
    }
}

fn forward(op: &Projected, [own, from]: &[ConvShape; 2], args: &mut CpuArgs<'_>) {
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
        relu: op.relu,
    };
    conv_forward(own, inputs.x.f32(), inputs.w.f32(), epilogue, y, workspace);
    if let [signs] = second {
        signs::write(signs.i32(), y, own.filters);
    }
}
