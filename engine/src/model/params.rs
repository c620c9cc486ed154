//! Parameters of the model: their torchvision names, shapes, layouts and initial values.

use graph::TensorId;

/// The kind of a parameter, which determines its weight decay and learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// Weights of a convolution or linear layer.
    Weight,
    /// Bias.
    Bias,
    /// Scale or shift of a trained normalization.
    Norm,
    /// Statistics, scale and shift of a frozen batch norm: never trained.
    Frozen,
}

/// The relation of our layout of a parameter to torchvision's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Identical in both.
    Same,
    /// Ours [K, R, S, C], theirs [K, C, R, S].
    Conv,
    /// Ours [C, R, S, K], theirs [C, K, R, S].
    ConvTranspose,
    /// A linear layer applied at each position: ours [K, 1, 1, C], theirs [K, C].
    Pointwise,
    /// A scale per channel: ours `[C]`, theirs `[C, 1, 1]`.
    Channels,
    /// A linear layer after flattening [C, side, side] (theirs) or [side, side, C] (ours).
    Flattened {
        /// Channels.
        channels: usize,
        /// Height and width of the map.
        side: usize,
    },
}

/// Initial values, as in torchvision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Constant.
    Constant(f32),
    /// Uniform in +-bound.
    Uniform {
        /// Half the width of the range.
        bound: f32,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f32,
    },
}

impl Init {
    /// torch's default for convolutions and linear layers (Kaiming uniform, a = sqrt 5); biases
    /// have the same range.
    pub fn torch_default(fan_in: usize) -> Self {
        Init::Uniform { bound: 1.0 / (fan_in as f32).sqrt() }
    }

    /// Kaiming uniform with a = 1, used in the FPN.
    pub fn kaiming_uniform_a1(fan_in: usize) -> Self {
        Init::Uniform { bound: (3.0 / fan_in as f32).sqrt() }
    }

    /// Kaiming normal for ReLU in fan-out mode, used in ResNet and the mask head.
    pub fn kaiming_normal_fan_out(fan_out: usize) -> Self {
        Init::Normal { std: (2.0 / fan_out as f32).sqrt() }
    }
}

/// A parameter or frozen statistic, held as state under its torchvision name.
#[derive(Debug, Clone)]
pub struct Param {
    /// torchvision's name, which is also the name of the state tensor.
    pub name: String,
    /// Our shape.
    pub shape: Vec<usize>,
    /// Relation to torchvision's layout.
    pub layout: Layout,
    /// Its kind.
    pub kind: ParamKind,
    /// Initial values.
    pub init: Init,
    /// The tensor, if it is trained; `None` if it is frozen.
    pub trained: Option<TensorId>,
}
