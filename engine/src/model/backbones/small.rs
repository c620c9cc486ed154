//! A small backbone that trains from random weights on a CPU.

use graph::{GraphError, TensorId};

use super::{BODY, Backbone, BodyEntry, MAX_LEVELS, Stage, conv_norm, doubled};
use crate::model::net::{ConvShape, Net};
use crate::model::norms::After;

pub(super) const ENTRY: BodyEntry = BodyEntry {
    stages,
    wrong_length,
    check: |_, _| (),
    own: |_| Some("the small backbone (model.backbone.kind)"),
    build,
};

fn stages(of: &Backbone) -> Vec<Stage> {
    let key = "model.backbone.stage_channels";
    let stage = |(i, &channels): (usize, &usize)| {
        let stride = 2 * doubled(i);
        Stage { key, channels, divisor: channels, stride }
    };
    of.stage_channels.iter().enumerate().map(stage).collect()
}

fn wrong_length(of: &Backbone) -> Option<(&'static str, String)> {
    let (entries, most) = (of.stage_channels.len(), MAX_LEVELS - 1);
    let fault = format!("has {entries} entries; give one for the stem and 1 to {most} more");
    let fits = (2..=MAX_LEVELS).contains(&entries);
    (!fits).then_some(("model.backbone.stage_channels", fault))
}

/// A 3x3 stem and one basic block per stage, each with stride 2.
fn build(net: &mut Net<'_>, x: TensorId) -> Result<Vec<TensorId>, GraphError> {
    let config = &net.spec.config.model.backbone;
    let channels = config.stage_channels.clone();
    net.set_frozen(config.frozen_stages >= 1);
    net.part("backbone.stem");
    let stem = ConvShape::new(channels[0], 3, 2);
    let (conv, norm) = (format!("{BODY}.conv1"), format!("{BODY}.bn1"));
    let mut x = conv_norm(net, x, &conv, &norm, stem, After::RELU)?;
    let mut maps = Vec::new();
    for (stage, &width) in channels[1..].iter().enumerate() {
        net.set_frozen(config.frozen_stages >= stage + 2);
        let name = format!("layer{}.0", stage + 1);
        net.part(&format!("backbone.{name}"));
        x = basic_block(net, x, &format!("{BODY}.{name}"), width)?;
        maps.push(x);
    }
    Ok(maps)
}

fn basic_block(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    width: usize,
) -> Result<TensorId, GraphError> {
    let layer = |i: usize| (format!("{name}.conv{i}"), format!("{name}.bn{i}"));
    let ((conv1, bn1), (conv2, bn2)) = (layer(1), layer(2));
    let y = conv_norm(net, x, &conv1, &bn1, ConvShape::new(width, 3, 2), After::RELU)?;
    let projection = ConvShape::new(width, 1, 2);
    let identity = net.conv_plain(x, &format!("{name}.downsample.0"), projection)?;
    let after = After::add_relu(identity);
    conv_norm(net, y, &conv2, &bn2, ConvShape::new(width, 3, 1), after)
}
