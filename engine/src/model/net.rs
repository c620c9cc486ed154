//! Adds layers to a Program: each layer declares its parameters and adds its op.

use std::collections::BTreeMap;
use std::sync::Arc;

use graph::{GraphError, Program, TensorId};
use kernels::ops::class_masks::{ClassMasks, ClassMasksInputs};
use kernels::ops::conv_transpose::{ConvTranspose, ConvTransposeInputs};
use kernels::ops::conv2d::{Conv2d, Conv2dInputs};
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::{Role, TensorDesc};

use super::inputs::{ImageInputs, ObjectInputs};
use super::params::{Init, Layout, Param, ParamKind};
use super::{BuiltProgram, ModelSpec};
use crate::names::matches;

/// A loss of a training step.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    /// Name in logs, metrics and reports: `loss_` plus one or more words.
    pub name: &'static str,
    /// The loss, `[1]`.
    pub value: TensorId,
    /// Its weight in the sum that training minimizes.
    pub weight: f32,
}

/// The ground truth of a training step.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    /// The images of the batch.
    pub images: ImageInputs,
    /// Their objects.
    pub objects: ObjectInputs,
    /// Boxes `[N, G, 4]` in network pixels; the boxes in `objects` are in source pixels.
    pub gt_boxes: TensorId,
}

/// A program under construction.
#[derive(Debug)]
pub struct Net<'a> {
    /// The specification of the program.
    pub spec: &'a ModelSpec<'a>,
    /// The program so far; [`Program::apply1`] adds any op.
    pub program: Program,
    params: Vec<Param>,
    frozen: bool,
    drawn_by: Option<TensorId>,
    /// Weight of each class in the classifier's loss, background first; empty if all are equal.
    pub(super) class_weights: Arc<[f32]>,
    /// Tensors passed between parts of the model, by name.
    noted: BTreeMap<&'static str, Vec<TensorId>>,
    /// Tensors that `[[train.log]]` may read, by name.
    pub(super) observed: Vec<(String, TensorId)>,
}

/// A convolution's geometry.
#[derive(Debug, Clone, Copy)]
pub struct ConvShape {
    /// Channels of the output.
    pub channels: usize,
    /// Side of the kernel.
    pub kernel: usize,
    /// Stride in pixels.
    pub stride: usize,
    /// Dilation.
    pub dilation: usize,
    /// Number of groups; each has an equal share of the channels, and its own filters.
    pub groups: usize,
}

impl ConvShape {
    /// An odd kernel is padded by half its size, so that a stride of 1 preserves the map's size; an
    /// even kernel is not padded.
    pub fn new(channels: usize, kernel: usize, stride: usize) -> Self {
        Self { channels, kernel, stride, dilation: 1, groups: 1 }
    }

    fn pad(self) -> usize {
        if self.kernel.is_multiple_of(2) { 0 } else { self.dilation * (self.kernel / 2) }
    }

    pub(super) fn fan_out(self) -> usize {
        self.channels * self.kernel * self.kernel
    }
}

impl<'a> Net<'a> {
    /// An empty program.
    pub fn new(spec: &'a ModelSpec<'a>) -> Self {
        let (class_weights, noted) = (Arc::default(), BTreeMap::new());
        let (program, params, frozen) = (Program::new(), Vec::new(), false);
        let (observed, drawn_by) = (Vec::new(), None);
        Self { spec, program, params, frozen, drawn_by, class_weights, noted, observed }
    }

    /// The program with its parameters, without losses and ring.
    pub fn finish(self) -> BuiltProgram {
        BuiltProgram {
            program: self.program,
            params: self.params,
            losses: vec![],
            loss_weights: vec![],
            ring: None,
        }
    }

    /// The parameters declared so far, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Sets whether parameters declared from now on are frozen.
    pub(super) fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// True if parameters declared now are frozen.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Sets the image keys that seed random ops; without them, layers are deterministic.
    pub(super) fn draw_by(&mut self, image_keys: TensorId) {
        self.drawn_by = Some(image_keys);
    }

    /// The image keys, in a training step.
    pub(super) fn drawn_by(&self) -> Option<TensorId> {
        self.drawn_by
    }

    /// Assigns ops added from now on to the part of the model with this dotted name.
    pub fn part(&mut self, part: &str) {
        self.program.set_part(part);
    }

    /// Stores tensors under a name, for another part of the model to read with [`Self::noted`].
    pub(super) fn note(&mut self, name: &'static str, tensors: &[TensorId]) {
        self.noted.insert(name, tensors.to_vec());
    }

    /// The tensors that another part of the model stored under this name.
    pub(super) fn noted<const N: usize>(&self, name: &str) -> Option<[TensorId; N]> {
        self.noted.get(name)?.as_slice().try_into().ok()
    }

    /// Names a tensor that `[[train.log]]` may read; makes it an output if [`ModelSpec::observe`]
    /// is set.
    pub fn observe(&mut self, name: &str, tensor: TensorId) {
        self.observed.push((name.to_string(), tensor));
        if self.spec.observe {
            self.program.keep(name, tensor);
        }
    }

    /// The last extent of a tensor.
    pub fn channels(&self, x: TensorId) -> usize {
        self.program.desc(x).dim(-1)
    }

    /// Declares a parameter, or returns it if already declared (shared weights).
    pub(super) fn param(
        &mut self,
        name: String,
        shape: &[usize],
        layout: Layout,
        kind: ParamKind,
        init: Init,
    ) -> TensorId {
        let role = if kind == ParamKind::Weight { Role::Weight } else { Role::Master };
        let known = self.program.find(&name).is_some();
        let tensor = self.program.state(&name, TensorDesc::new(role, shape));
        if !known {
            let freeze = &self.spec.config.model.freeze;
            let is_frozen = self.frozen || freeze.iter().any(|pattern| matches(pattern, &name));
            let trained = (!is_frozen && kind != ParamKind::Frozen).then_some(tensor);
            self.params.push(Param { name, shape: shape.to_vec(), layout, kind, init, trained });
        }
        tensor
    }

    pub(super) fn conv_weight(
        &mut self,
        name: &str,
        c_in: usize,
        shape: ConvShape,
        init: Init,
    ) -> TensorId {
        let dims = [shape.channels, shape.kernel, shape.kernel, c_in / shape.groups];
        self.param(format!("{name}.weight"), &dims, Layout::Conv, ParamKind::Weight, init)
    }

    pub(super) fn bias(&mut self, name: &str, channels: usize, init: Init) -> TensorId {
        self.param(format!("{name}.bias"), &[channels], Layout::Same, ParamKind::Bias, init)
    }

    /// A convolution with bias, on the first `count` rows if `count` is given. Its parameters are
    /// `NAME.weight` and `NAME.bias`.
    ///
    /// # Errors
    /// A shape that the op rejects.
    pub fn conv_bias(
        &mut self,
        x: TensorId,
        name: &str,
        shape: ConvShape,
        init: Init,
        relu: bool,
        count: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let weight = self.conv_weight(name, self.channels(x), shape, init);
        let bias = self.bias(name, shape.channels, Init::Constant(0.0));
        let inputs = Conv2dInputs { bias: Some(bias), count, ..plain(x, weight) };
        self.conv(inputs, shape, relu)
    }

    /// A 1x1 convolution with bias that, for each of the first `count` rows, only computes the
    /// channel of the row's label. `x` is the output of a ReLU; the op applies the ReLU's mask to
    /// the gradient of `x`.
    pub(super) fn class_masks(
        &mut self,
        x: TensorId,
        name: &str,
        shape: ConvShape,
        init: Init,
        [labels, count]: [TensorId; 2],
    ) -> Result<TensorId, GraphError> {
        let w = self.conv_weight(name, self.channels(x), shape, init);
        let b = self.bias(name, shape.channels, Init::Constant(0.0));
        self.program.apply1(ClassMasks { relu: true }, ClassMasksInputs { x, w, b, labels, count })
    }

    /// A convolution with neither bias nor norm.
    pub(super) fn conv_plain(
        &mut self,
        x: TensorId,
        name: &str,
        shape: ConvShape,
    ) -> Result<TensorId, GraphError> {
        let init = self.default_init(x, shape);
        let weight = self.conv_weight(name, self.channels(x), shape, init);
        self.conv(plain(x, weight), shape, false)
    }

    /// torch's default initialization of a convolution of `x`.
    pub(super) fn default_init(&self, x: TensorId, shape: ConvShape) -> Init {
        Init::torch_default(self.channels(x) / shape.groups * shape.kernel * shape.kernel)
    }

    /// A convolution with these inputs.
    pub(super) fn conv(
        &mut self,
        inputs: Conv2dInputs<TensorId>,
        shape: ConvShape,
        relu: bool,
    ) -> Result<TensorId, GraphError> {
        let ConvShape { stride, dilation, groups, .. } = shape;
        let conv = Conv2d { dilation, groups, relu, ..Conv2d::new(stride, shape.pad()) };
        let op = conv.reading(&inputs);
        self.program.apply1(op, inputs)
    }

    /// A linear layer from `[M, ..]` to `[M, outputs]`, on the first `count` rows. Its parameters
    /// are `NAME.weight` and `NAME.bias`.
    ///
    /// # Errors
    /// A shape that the op rejects.
    pub fn linear(
        &mut self,
        x: TensorId,
        name: &str,
        outputs: usize,
        relu: bool,
        count: TensorId,
    ) -> Result<TensorId, GraphError> {
        let shape = self.program.desc(x).shape.clone();
        let fan_in: usize = shape[1..].iter().product();
        let layout = match shape[1..] {
            [side, _, channels] => Layout::Flattened { channels, side },
            _ => Layout::Same,
        };
        let init = Init::torch_default(fan_in);
        let dims = [outputs, fan_in];
        let w = self.param(format!("{name}.weight"), &dims, layout, ParamKind::Weight, init);
        let b = self.bias(name, outputs, init);
        let inputs = LinearInputs { x, w, b, count: Some(count) };
        self.program.apply1(Linear { relu, counted: true }, inputs)
    }

    /// A transposed convolution with stride 2, which doubles a map's sides, on the first `count`
    /// rows. Its parameters are `NAME.weight` and `NAME.bias`.
    pub(super) fn deconv(
        &mut self,
        x: TensorId,
        name: &str,
        channels: usize,
        op: ConvTranspose,
        count: TensorId,
    ) -> Result<TensorId, GraphError> {
        let (c_in, kernel) = (self.channels(x), 2 + 2 * op.pad);
        // torch computes a transposed convolution's fan-out from its weight [C, K, R, R] as C x R
        // x R.
        let init = Init::kaiming_normal_fan_out(c_in * kernel * kernel);
        let dims = [c_in, kernel, kernel, channels];
        let layout = Layout::ConvTranspose;
        let w = self.param(format!("{name}.weight"), &dims, layout, ParamKind::Weight, init);
        let b = self.bias(name, channels, Init::Constant(0.0));
        let inputs = ConvTransposeInputs { x, w, b, count: Some(count) };
        self.program.apply1(op, inputs)
    }
}

/// Inputs of a convolution without bias, residual or count.
pub(super) fn plain(x: TensorId, w: TensorId) -> Conv2dInputs<TensorId> {
    Conv2dInputs { x, w, scale: None, bias: None, residual: None, count: None }
}
