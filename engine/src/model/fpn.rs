//! Feature pyramid (Lin et al. 2017): 1x1 lateral convolutions, top-down sums, 3x3 output
//! convolutions; no ReLU.

use configs::table;
use graph::{GraphError, TensorId};
use kernels::ops::max_pool::MaxPool;
use kernels::ops::upsample_add::UpsampleAdd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backbones::NormKind;
use super::net::{ConvShape, Net};
use super::norms::After;
use super::params::Init;

table! {
    /// `[model.fpn]`: the feature pyramid.
    pub struct Fpn {
        /// Channels of every level. Default 256.
        #[key(range = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: usize = 256,
        /// Additional level for the RPN: `"max_pool"` (default), with twice the coarsest stride, or
        /// `"none"`.
        #[key(resume = Step, mlperf = Model)]
        pub extra_level: ExtraLevel = ExtraLevel::MaxPool,
        /// Norm after each convolution, instead of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, with `norm_eps` and `norm_groups` of
        /// `[model.backbone]`. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
    }
}

/// The level after the backbone's coarsest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExtraLevel {
    /// Max pooling of the coarsest output with kernel 1 and stride 2 (P6 of a ResNet).
    MaxPool,
    /// No extra level.
    None,
}

/// Adds the pyramid. Returns its output maps, finest first (P2..P6 of a ResNet), all with the same
/// number of channels.
pub(super) fn fpn(net: &mut Net<'_>, maps: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
    let config = &net.spec.config.model.fpn;
    let channels = config.channels;
    net.part("fpn.inner");
    let mut inner: Vec<TensorId> = Vec::new();
    for (i, map) in maps.iter().enumerate().rev() {
        let name = format!("backbone.fpn.inner_blocks.{i}");
        let init = Init::kaiming_uniform_a1(net.channels(*map));
        let layer = (ConvShape::new(channels, 1, 1), init);
        let lateral = net.conv_block(*map, &name, layer, config.norm, After::NOTHING)?;
        let merged = match inner.last() {
            Some(top) => net.program.apply1(UpsampleAdd, [lateral, *top])?,
            None => lateral,
        };
        inner.push(merged);
    }
    inner.reverse();
    net.part("fpn.output");
    let mut outputs = Vec::new();
    for (i, map) in inner.iter().enumerate() {
        let name = format!("backbone.fpn.layer_blocks.{i}");
        let layer = (ConvShape::new(channels, 3, 1), Init::kaiming_uniform_a1(channels * 9));
        outputs.push(net.conv_block(*map, &name, layer, config.norm, After::NOTHING)?);
    }
    if let (ExtraLevel::MaxPool, Some(top)) = (config.extra_level, outputs.last()) {
        let pool = MaxPool { kernel: 1, stride: 2, pad: 0, argmax: true };
        let [extra, _positions] = net.program.apply(pool, [*top])?;
        outputs.push(extra);
    }
    for (i, map) in outputs.iter().enumerate() {
        net.observe(&format!("P{}", i + 2), *map);
    }
    Ok(outputs)
}
