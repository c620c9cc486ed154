//! A convolution layer of a head.

use crate::config::NormKind;
use graph::{GraphError, TensorId};

use crate::model::net::{ConvShape, Net};
use crate::model::norms::After;
use crate::model::params::Init;

/// A 3x3 convolution of RoI features `[M, P, P, C]` with norm or bias, and ReLU; the first `count`
/// of the M rows are valid.
pub(super) fn conv(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    channels: usize,
    norm: Option<NormKind>,
    count: TensorId,
) -> Result<TensorId, GraphError> {
    let init = Init::kaiming_normal_fan_out(channels * 9);
    let after = After { count: Some(count), ..After::RELU };
    net.conv_block(x, name, (ConvShape::new(channels, 3, 1), init), norm, after)
}
