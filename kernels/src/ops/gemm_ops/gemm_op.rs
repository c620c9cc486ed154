//! The nine GEMM ops: convolution, linear layer and transposed convolution, with the gradients of
//! their input and weights.
//!
//! A [`Layer`] maps `x`, `w` and `y` to a convolution. An op computes one of these three tensors,
//! or its gradient, from the two others (`Form`); sizes, scratch memory, launches and CPU reference
//! are implemented here, once for all nine ops. Sums are in f32, in blocks of up to 256 terms; the
//! blocks depend only on the shapes, so results are deterministic. Compute-bound.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use super::bias_grad::BiasGrad;
use super::layer::Layer;
use super::relu_mask::ReluMask;
use super::upsample_add::{UpsampleGrad, enlarge};
use crate::counted::used_rows;
use crate::cpu::{CpuArgs, TensorRef};
use crate::depthwise;
use crate::grad_epilogue::GradEpilogueInputs;
use crate::matmul::launch::{self, Extras};
use crate::matmul::{
    ConvShape, Epilogue, conv_forward, conv_grad_input, conv_grad_weight, gather_workspace_len,
    reduce_workspace_len,
};
use crate::{
    BackwardRule, Cost, DType, Fusion, GradEpilogue, Op, OpError, OpRef, Role, Sink, Source,
};
use crate::{TensorDesc, Traits, check, signs};

/// The tensor of a layer that an op computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// `y` from `x` and `w`.
    Output,
    /// dX from dY and `w`.
    GradInput,
    /// dW from `x` and dY.
    GradWeight,
}

/// The description of a GEMM op: layer, output tensor, optional inputs and epilogue. The inputs are
/// two operands, then the optional tensors whose flags are set, in the order of these fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Form {
    pub(crate) layer: Layer,
    pub(crate) makes: Pass,
    /// Scale per channel of `y`.
    pub(crate) scale: bool,
    /// Bias per channel of `y`.
    pub(crate) bias: bool,
    /// Residual added to `y`.
    pub(crate) residual: bool,
    /// There is a count: the number of images, or rows, that hold data.
    pub(crate) counted: bool,
    pub(crate) epilogue: GradEpilogue,
    /// The residual is read at the nearest position.
    pub(crate) nearest: bool,
    pub(crate) relu: bool,
    /// The ReLU mask is already applied to the gradient of `y`.
    pub(crate) masked: bool,
    /// The second output holds the signs of `y`.
    pub(crate) signs: bool,
}

/// The inputs of a [`Form`].
struct Inputs<'a, T> {
    operands: [&'a T; 2],
    scale: Option<&'a T>,
    bias: Option<&'a T>,
    residual: Option<&'a T>,
    count: Option<&'a T>,
    epilogue: GradEpilogueInputs<'a, T>,
}

/// An op that runs as a GEMM.
pub(crate) trait GemmOp: Any + Clone + Debug + Send + Sync {
    /// The op's output tensor, inputs and epilogue.
    fn form(&self) -> Form;

    /// The convolution for these operands, and the shape of the first output.
    fn sizes(
        &self,
        op: &'static str,
        operands: [&TensorDesc; 2],
    ) -> Result<(ConvShape, Vec<usize>), OpError> {
        self.form().layer.sizes(op, operands)
    }

    /// The op with `fusion` added. `None` if the op does not support the fusion or already has it.
    fn with(&self, fusion: Fusion) -> Option<Self> {
        let _ = fusion;
        None
    }
}

/// The gradient of a layer's input: `dx [x..]` (overwritten) from `g [y..]` and `w`, and from those
/// of `scale [K]`, `count [1] i32`, and `other` and `mask` of the [`GradEpilogue`] whose flags are
/// set.
///
/// Matches the gradient of the layer with weights `w * scale`, then the epilogue. With `counted`,
/// images past the count are not written. For a strided convolution, positions with different
/// residues modulo the stride are computed separately, which avoids multiplications by zero.
#[derive(Debug, Clone, PartialEq)]
pub struct GradInput {
    /// The layer.
    pub layer: Layer,
    /// Shape of the layer's input.
    pub x: Vec<usize>,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// The last input before those of the epilogue is `count [1] i32`.
    pub counted: bool,
    /// The epilogue.
    pub epilogue: GradEpilogue,
}

/// The gradient of a layer's weights: `dw [w..]` (overwritten) from `x` and `g [y..]`, and from
/// those of `scale [K]` and `count [1] i32` whose flags are set.
///
/// Matches the weight gradient of the layer times the scale. With `counted`, images past the count
/// do not contribute. Positions are summed in order, in blocks of 256.
#[derive(Debug, Clone, PartialEq)]
pub struct GradWeight {
    /// The layer.
    pub layer: Layer,
    /// Shape of the layer's weights.
    pub w: Vec<usize>,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// The last input is `count [1] i32`.
    pub counted: bool,
}

impl Form {
    /// A GEMM op with only its two operands.
    pub(crate) fn new(layer: Layer, makes: Pass) -> Self {
        Self {
            layer,
            makes,
            scale: false,
            bias: false,
            residual: false,
            counted: false,
            epilogue: GradEpilogue::default(),
            nearest: false,
            relu: false,
            masked: false,
            signs: false,
        }
    }

    fn name(&self) -> &'static str {
        self.layer.names()[self.makes as usize]
    }

    /// The computed tensor in terms of the underlying convolution; for a transposed convolution,
    /// input and output are swapped.
    fn pass(&self) -> Pass {
        match (self.makes, self.layer) {
            (Pass::Output, Layer::ConvTranspose { .. }) => Pass::GradInput,
            (Pass::GradInput, Layer::ConvTranspose { .. }) => Pass::Output,
            (makes, _) => makes,
        }
    }

    /// The operands in the order of the underlying convolution: input before output.
    fn in_order<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        let swaps = self.makes == Pass::GradWeight && self.layer.is_transposed();
        if swaps { [b, a] } else { [a, b] }
    }

    fn operand_names(&self) -> [&'static str; 2] {
        match self.makes {
            Pass::Output => ["x", "w"],
            Pass::GradInput => ["g", "w"],
            Pass::GradWeight => ["x", "g"],
        }
    }

    /// Number of inputs before those of the epilogue.
    fn own_inputs(&self) -> usize {
        let flags = [self.scale, self.bias, self.residual, self.counted];
        2 + flags.into_iter().filter(|has| *has).count()
    }

    /// Assigns the tensors of a list to names; `infer` has checked their number.
    fn name_inputs<'a, T>(&self, list: &'a [T]) -> Inputs<'a, T> {
        let (own, epilogue) = self.epilogue.split(list);
        let [a, b, rest @ ..] = own else { panic!("{} has two operands", self.name()) };
        let mut rest = rest.iter();
        let mut next = |has: bool| if has { rest.next() } else { None };
        let [scale, bias] = [next(self.scale), next(self.bias)];
        let [residual, count] = [next(self.residual), next(self.counted)];
        Inputs { operands: [a, b], scale, bias, residual, count, epilogue }
    }

    /// Checks the inputs other than the operands against the shape of the output.
    fn check(&self, inputs: Inputs<'_, TensorDesc>, out: &TensorDesc) -> Result<(), OpError> {
        let (name, [a, b]) = (self.name(), inputs.operands);
        for (operand, desc) in self.operand_names().into_iter().zip([a, b]) {
            check::dtype(name, operand, desc, DType::F32)?;
        }
        // Channels of y, and of its gradient g.
        let filters = match self.makes {
            Pass::Output => out.dim(-1),
            Pass::GradInput => a.dim(-1),
            Pass::GradWeight => b.dim(-1),
        };
        for (vector, desc) in [("scale", inputs.scale), ("bias", inputs.bias)] {
            if let Some(desc) = desc {
                check::floats(name, vector, desc, &[filters])?;
            }
        }
        let plain = !self.nearest || self.layer.is_plain();
        check::parameter(name, "nearest", plain, "false with groups or a dilation", self.nearest)?;
        if let Some(residual) = inputs.residual {
            let shape =
                if self.nearest { nearest(name, residual, out)? } else { out.shape.clone() };
            check::floats(name, "residual", residual, &shape)?;
        }
        if let Some(count) = inputs.count {
            check::integers(name, "count", count, &[1])?;
        }
        inputs.epilogue.check(name, out)
    }

    /// The backward rule: the gradient ops of the layer.
    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let Self { layer, scale, counted, .. } = *self;
        let positions: Vec<usize> = (0..inputs.len()).collect();
        let at = self.name_inputs(&positions);
        let epilogue = GradEpilogue::default();
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu && !self.masked {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let and = |operands: &[Source], rest: &[Option<&usize>]| -> Vec<Source> {
            let rest = rest.iter().flatten().map(|position| Source::Input(**position));
            operands.iter().copied().chain(rest).collect()
        };
        let rest = [at.scale, at.count];
        let x = inputs[0].shape.clone();
        let grad_input = GradInput { layer, x, scale, counted, epilogue };
        let from = and(&[g, Source::Input(1)], &rest);
        rule = rule.step(grad_input, &from, &[Sink::GradInput(0)]);
        let w = inputs[1].shape.clone();
        let grad_weight = GradWeight { layer, w, scale, counted };
        let from = and(&[Source::Input(0), g], &rest);
        rule = rule.step(grad_weight, &from, &[Sink::GradInput(1)]);
        if let Some(bias) = at.bias {
            let from = and(&[g], &[at.count]);
            rule = rule.step(BiasGrad { counted }, &from, &[Sink::GradInput(*bias)]);
        }
        match at.residual {
            Some(&residual) if self.nearest => {
                let [height, width] = [1, 2].map(|axis| inputs[residual].dim(axis));
                let enlarged = UpsampleGrad { height, width, epilogue };
                rule.step(enlarged, &[g], &[Sink::GradInput(residual)])
            }
            Some(&residual) => rule.alias(g, residual),
            None => rule,
        }
    }

    /// True for a depthwise convolution whose only optional input is a bias; it does not run as a
    /// GEMM.
    fn is_depthwise(&self, s: &ConvShape) -> bool {
        let plain = Self { bias: self.bias, ..Self::new(self.layer, self.makes) };
        *self == plain && depthwise::is_depthwise(s)
    }

    /// Runs the CPU reference of a depthwise convolution.
    fn run_depthwise(&self, s: &ConvShape, args: &mut CpuArgs<'_>) {
        let Inputs { operands: [a, b], bias, .. } = self.name_inputs(&args.inputs);
        let (a, b, bias) = (a.f32(), b.f32(), bias.map(TensorRef::f32));
        let out = args.outputs[0].f32();
        match self.makes {
            Pass::Output => depthwise::convolve_on_cpu(s, a, b, (bias, false), out),
            Pass::GradInput => depthwise::convolve_on_cpu(s, a, b, (None, true), out),
            Pass::GradWeight => depthwise::grad_weight_on_cpu(s, a, b, out),
        }
    }

    /// Runs the CPU reference of a GEMM op of these sizes.
    fn run_cpu(&self, s: &ConvShape, args: &mut CpuArgs<'_>) {
        if self.is_depthwise(s) {
            return self.run_depthwise(s, args);
        }
        let inputs = self.name_inputs(&args.inputs);
        let s = &s.with_images(used_rows(inputs.count, s.images));
        let [a, b] = self.in_order(inputs.operands.map(TensorRef::f32));
        let [scale, bias] = [inputs.scale, inputs.bias].map(|vector| vector.map(TensorRef::f32));
        let (first, second) = args.outputs.split_at_mut(1);
        let (out, workspace) = (first[0].f32(), &mut *args.workspace);
        if self.makes == Pass::GradWeight {
            return conv_grad_weight(s, a, b, scale, out, workspace);
        }
        let enlarged = inputs.residual.filter(|_| self.nearest);
        let enlarged = enlarged.map(|residual| enlarge(residual, [s.out_height, s.out_width]));
        let residual = enlarged.as_deref().or(inputs.residual.map(TensorRef::f32));
        let epilogue = Epilogue { scale: None, bias, residual, relu: self.relu };
        let out = if self.pass() == Pass::Output {
            let out = &mut out[..s.out_positions() * s.filters];
            conv_forward(s, a, b, Epilogue { scale, ..epilogue }, out, workspace);
            out
        } else {
            let out = &mut out[..s.images * s.height * s.width * s.channels];
            conv_grad_input(s, a, b, scale, epilogue, out, workspace);
            out
        };
        inputs.epilogue.run_cpu(out);
        if let [signs] = second {
            signs::write(signs.i32(), out, s.filters);
        }
    }

    /// The launches of a GEMM op of these sizes.
    fn launches(&self, s: &ConvShape, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = self.name_inputs(&args.inputs);
        let extras = Extras {
            scale: inputs.scale.copied(),
            bias: inputs.bias.copied(),
            residual: inputs.residual.or(inputs.epilogue.other).copied(),
            nearest: inputs.residual.filter(|_| self.nearest).map(|r| [r.dim(1), r.dim(2)]),
            mask: inputs.epilogue.mask.copied(),
            relu: self.relu,
            signs: args.outputs.get(1).copied(),
            count: inputs.count.copied(),
        };
        let [a, b] = self.in_order(inputs.operands.map(|operand| *operand));
        if self.is_depthwise(s) && depthwise::runs(s) {
            let tensors = [a, b, args.outputs[0]];
            return match self.makes {
                Pass::Output => depthwise::convolve(s, tensors, extras.bias, false),
                Pass::GradInput => depthwise::convolve(s, tensors, None, true),
                Pass::GradWeight => depthwise::grad_weight(args, s, tensors),
            };
        }
        let launches = match self.pass() {
            Pass::Output => launch::forward,
            Pass::GradInput => launch::grad_input,
            Pass::GradWeight => launch::grad_weight,
        };
        launches(args, s, [a, b, args.outputs[0]], extras)
    }
}

/// Expected shape of a residual whose height and width may differ from `y`; it must have a position
/// unless `y` is empty.
fn nearest(op: &'static str, residual: &TensorDesc, y: &TensorDesc) -> Result<Vec<usize>, OpError> {
    check::rank(op, "residual", residual, "[N, h, w, K]")?;
    if residual.is_empty() && !y.is_empty() {
        let expected = "[N, h, w, K] with at least one position".into();
        return Err(check::shape_error(op, "residual", residual, expected));
    }
    Ok(vec![y.dim(0), residual.dim(1), residual.dim(2), y.dim(3)])
}

/// The sizes of a GEMM op whose operands passed `infer`.
fn inferred<'a>(
    product: &impl GemmOp,
    operands: impl IntoIterator<Item = &'a TensorDesc>,
) -> ConvShape {
    let (name, mut operands) = (product.form().name(), operands.into_iter());
    let (Some(a), Some(b)) = (operands.next(), operands.next()) else {
        panic!("{name} runs only with its operands")
    };
    match product.sizes(name, [a, b]) {
        Ok((shape, _)) => shape,
        Err(error) => panic!("{name} runs only after its shapes were inferred: {error}"),
    }
}

impl<P: GemmOp> Op for P {
    fn name(&self) -> &'static str {
        self.form().name()
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let (form, name) = (self.form(), self.name());
        check::arity(name, "inputs", inputs, form.own_inputs() + form.epilogue.inputs())?;
        check::arity(name, "updates", updates, 0)?;
        let inputs = form.name_inputs(inputs);
        let (_, out) = self.sizes(name, inputs.operands)?;
        let role = match form.makes {
            Pass::Output => Role::Activation,
            Pass::GradInput => Role::Gradient,
            Pass::GradWeight => Role::WeightGradient,
        };
        let out = TensorDesc::new(role, &out);
        form.check(inputs, &out)?;
        let signs = form.signs.then(|| signs::infer(name, "y", &out)).transpose()?;
        Ok([out].into_iter().chain(signs).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inferred(self, inputs).flops())
    }

    fn traits(&self) -> Traits {
        let form = self.form();
        let has_rows = form.makes != Pass::GradWeight;
        Traits {
            on_tensor_cores: true,
            communicates: false,
            count_input: (has_rows && form.counted).then(|| form.own_inputs() - 1),
            signs: form.signs,
            epilogue: (form.makes == Pass::GradInput).then_some(form.epilogue),
        }
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        match self.form() {
            form @ Form { makes: Pass::Output, .. } => form.backward(inputs),
            _ => BackwardRule::default(),
        }
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let (form, s) = (self.form(), inferred(self, inputs));
        match form.makes {
            Pass::GradWeight => reduce_workspace_len(&s),
            _ => gather_workspace_len(&s),
        }
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        let (form, s) = (self.form(), &inferred(self, inputs));
        if form.is_depthwise(s) && depthwise::runs(s) {
            let sums = form.makes == Pass::GradWeight;
            return if sums { depthwise::grad_weight_workspace_bytes(s) } else { 0 };
        }
        match form.pass() {
            Pass::Output => {
                launch::forward_workspace_bytes(gpu, s, [form.epilogue.mask, form.nearest])
            }
            Pass::GradInput => launch::grad_input_workspace_bytes(gpu, s, form.scale),
            Pass::GradWeight => launch::grad_weight_workspace_bytes(gpu, s),
        }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        self.with(fusion).map(|product| Arc::new(product) as OpRef)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let s = inferred(self, args.inputs.iter().map(|input| input.desc));
        self.form().launches(&s, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let s = inferred(self, args.inputs.iter().map(|input| input.desc));
        self.form().run_cpu(&s, args);
    }
}

impl GemmOp for GradInput {
    fn form(&self) -> Form {
        let Self { layer, scale, counted, epilogue, .. } = *self;
        Form { scale, counted, epilogue, ..Form::new(layer, Pass::GradInput) }
    }

    fn sizes(
        &self,
        op: &'static str,
        [g, w]: [&TensorDesc; 2],
    ) -> Result<(ConvShape, Vec<usize>), OpError> {
        let x = TensorDesc::new(Role::Activation, &self.x);
        let (s, y) = self.layer.sizes(op, [&x, w])?;
        check::shape(op, "g", g, &y)?;
        Ok((s, self.x.clone()))
    }

    fn with(&self, fusion: Fusion) -> Option<Self> {
        match fusion {
            Fusion::GradEpilogue(_) if self.layer.is_grouped_by_channel(*self.x.last()?) => None,
            Fusion::GradEpilogue(epilogue) => Some(Self { epilogue, ..self.clone() }),
            Fusion::ScaledWeights if self.scale => Some(Self { scale: false, ..self.clone() }),
            _ => None,
        }
    }
}

impl GemmOp for GradWeight {
    fn form(&self) -> Form {
        let Self { layer, scale, counted, .. } = *self;
        Form { scale, counted, ..Form::new(layer, Pass::GradWeight) }
    }

    fn sizes(
        &self,
        op: &'static str,
        [x, g]: [&TensorDesc; 2],
    ) -> Result<(ConvShape, Vec<usize>), OpError> {
        let w = TensorDesc::new(Role::Weight, &self.w);
        let (s, y) = self.layer.sizes(op, [x, &w])?;
        check::shape(op, "g", g, &y)?;
        Ok((s, self.w.clone()))
    }
}
