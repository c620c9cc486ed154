//! Convolutions followed by a norm, in the backbone, the pyramid and the heads.

use crate::config::NormKind;
use graph::{GraphError, TensorId};
use kernels::ops::conv2d::Conv2dInputs;
use kernels::ops::fold_norm::{FoldNorm, FoldNormInputs};
use kernels::ops::group_norm::{GroupNorm, GroupNormInputs};
use kernels::ops::stem::{self, Stem, StemInputs};
use kernels::{Role, TensorDesc};

use super::net::{ConvShape, Net, plain};
use super::params::{Init, Layout, ParamKind};

/// The ops that follow a convolution's norm.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct After {
    pub(super) residual: Option<TensorId>,
    pub(super) relu: bool,
    /// Number of valid images or RoIs.
    pub(super) count: Option<TensorId>,
}

impl After {
    pub(super) const NOTHING: Self = Self { residual: None, relu: false, count: None };
    pub(super) const RELU: Self = Self { residual: None, relu: true, count: None };

    pub(super) fn add_relu(residual: TensorId) -> Self {
        Self { residual: Some(residual), relu: true, count: None }
    }
}

/// A convolution without bias and its norm: the names of both, the shape, and the initial weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct NormedConv<'n> {
    pub(super) conv: &'n str,
    pub(super) norm: &'n str,
    pub(super) shape: ConvShape,
    pub(super) init: Init,
}

impl Net<'_> {
    /// A convolution, its norm, and the ops `after`.
    pub(super) fn normed_conv(
        &mut self,
        x: TensorId,
        layer: NormedConv<'_>,
        norm: NormKind,
        after: After,
    ) -> Result<TensorId, GraphError> {
        let NormedConv { conv, norm: name, shape, init } = layer;
        let w = self.conv_weight(conv, self.channels(x), shape, init);
        match norm {
            NormKind::FrozenStatistics if !self.is_frozen() => {
                let [w, bias] = self.folded_norm(w, name)?;
                let After { residual, relu, count } = after;
                let inputs = Conv2dInputs { bias: Some(bias), residual, count, ..plain(x, w) };
                self.conv(inputs, shape, relu)
            }
            NormKind::FrozenBatchNorm | NormKind::FrozenStatistics => {
                let [scale, shift] = self.frozen_bn(name, shape.channels);
                let After { residual, relu, count } = after;
                let (scale, bias) = (Some(scale), Some(shift));
                let inputs = Conv2dInputs { scale, bias, residual, count, ..plain(x, w) };
                self.conv(inputs, shape, relu)
            }
            NormKind::GroupNorm => {
                let inputs = Conv2dInputs { count: after.count, ..plain(x, w) };
                let y = self.conv(inputs, shape, false)?;
                self.group_norm(y, name, after)
            }
        }
    }

    /// A convolution `NAME.0` of the pyramid or a head, either with a bias or followed by the norm
    /// `NAME.1`.
    pub(super) fn conv_block(
        &mut self,
        x: TensorId,
        name: &str,
        (shape, init): (ConvShape, Init),
        norm: Option<NormKind>,
        after: After,
    ) -> Result<TensorId, GraphError> {
        let (conv, norm_name) = (format!("{name}.0"), format!("{name}.1"));
        match norm {
            None => self.conv_bias(x, &conv, shape, init, after.relu, after.count),
            Some(kind) => {
                let layer = NormedConv { conv: &conv, norm: &norm_name, shape, init };
                self.normed_conv(x, layer, kind, after)
            }
        }
    }

    /// The backbone's stem on images with a padding channel: convolution, frozen batch norm and
    /// ReLU.
    pub(super) fn stem(
        &mut self,
        x: TensorId,
        name: &str,
        bn: &str,
        shape: ConvShape,
    ) -> Result<TensorId, GraphError> {
        let init = Init::kaiming_normal_fan_out(shape.fan_out());
        let w = self.conv_weight(name, stem::CHANNELS, shape, init);
        let [scale, bias] = self.frozen_bn(bn, shape.channels);
        self.program.apply1(Stem, StemInputs { x, w, scale, bias })
    }

    /// Scale and shift [c] of a frozen batch norm; also declares its statistics as parameters.
    fn frozen_bn(&mut self, bn: &str, c: usize) -> [TensorId; 2] {
        let stats = [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)];
        for (stat, value) in stats {
            let name = format!("{bn}.{stat}");
            let kind = ParamKind::Frozen;
            self.param(name, &[c], Layout::Same, kind, Init::Constant(value));
        }
        ["scale", "shift"].map(|what| {
            let desc = TensorDesc::new(Role::Master, &[c]);
            self.program.state(&format!("folded/{bn}.{what}"), desc)
        })
    }

    /// Folds a norm with constant statistics and trained scale and shift into the preceding
    /// convolution. Returns the folded weights and bias.
    fn folded_norm(&mut self, w: TensorId, name: &str) -> Result<[TensorId; 2], GraphError> {
        let c = self.program.desc(w).dim(0);
        let eps = self.spec.config.model.backbone.norm_eps as f32;
        let mut vector = |what: &str, kind, value| {
            let name = format!("{name}.{what}");
            self.param(name, &[c], Layout::Same, kind, Init::Constant(value))
        };
        let gamma = vector("weight", ParamKind::Norm, 1.0);
        let beta = vector("bias", ParamKind::Norm, 0.0);
        let mean = vector("running_mean", ParamKind::Frozen, 0.0);
        let var = vector("running_var", ParamKind::Frozen, 1.0);
        self.program.apply(FoldNorm { eps }, FoldNormInputs { w, gamma, beta, mean, var })
    }

    /// Group norm, addition of the residual, and ReLU. Rows past the count may have any values.
    pub(super) fn group_norm(
        &mut self,
        x: TensorId,
        name: &str,
        after: After,
    ) -> Result<TensorId, GraphError> {
        let c = self.channels(x);
        let backbone = &self.spec.config.model.backbone;
        let (groups, eps) = (backbone.norm_groups, backbone.norm_eps as f32);
        let mut vector = |what: &str, value| {
            let name = format!("{name}.{what}");
            self.param(name, &[c], Layout::Same, ParamKind::Norm, Init::Constant(value))
        };
        let (gamma, beta) = (vector("weight", 1.0), vector("bias", 0.0));
        let After { relu, residual, count } = after;
        let (has_residual, counted) = (residual.is_some(), count.is_some());
        let op = GroupNorm { groups, eps, relu, residual: has_residual, counted };
        let inputs = GroupNormInputs { x, gamma, beta, residual, count };
        let [y, _stats] = self.program.apply(op, inputs)?;
        Ok(y)
    }
}
