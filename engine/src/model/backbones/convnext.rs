//! ConvNeXt (Liu et al. 2022): stages of blocks with 7x7 depthwise convolutions.

use graph::{GraphError, TensorId};
use kernels::ops::conv2d::Conv2dInputs;
use kernels::ops::gelu::Gelu;
use kernels::ops::layer_norm::{LayerNorm, LayerNormInputs};
use kernels::ops::scaled_residual::{Drop, ScaledResidual, ScaledResidualInputs};

use configs::Check;

use super::{BODY, Backbone, BodyEntry, Stage, doubled};
use crate::model::net::{ConvShape, Net, plain};
use crate::model::params::{Init, Layout, ParamKind};

/// Initial weights of convolutions and linear layers.
const INIT: Init = Init::Normal { std: 0.02 };
/// Initial layer scale of a branch.
const SCALE: Init = Init::Constant(1e-6);
/// Factor by which the first linear layer of a block widens its channels.
const EXPANSION: usize = 4;

pub(super) const ENTRY: BodyEntry = BodyEntry {
    stages,
    wrong_length,
    check,
    own: |_| Some("a ConvNeXt (model.backbone.kind)"),
    build,
};

fn stages(of: &Backbone) -> Vec<Stage> {
    let key = "model.backbone.stage_channels";
    let stage = |(i, &channels): (usize, &usize)| {
        let stride = 4 * doubled(i);
        Stage { key, channels, divisor: channels, stride }
    };
    let channels = &of.stage_channels;
    let stem = channels.iter().enumerate().take(1).map(stage);
    stem.chain(channels.iter().enumerate().map(stage)).collect()
}

fn wrong_length(of: &Backbone) -> Option<(&'static str, String)> {
    let lists = [
        ("model.backbone.blocks", of.blocks.len()),
        ("model.backbone.stage_channels", of.stage_channels.len()),
    ];
    let (key, entries) = lists.into_iter().find(|(_, entries)| *entries != 4)?;
    Some((key, format!("has {entries} entries; a ConvNeXt has 4 stages (C2 to C5)")))
}

fn check(of: &Backbone, check: &mut Check) {
    check.counts("model.backbone.blocks", &of.blocks);
}

fn build(net: &mut Net<'_>, x: TensorId) -> Result<Vec<TensorId>, GraphError> {
    let config = &net.spec.config.model.backbone;
    net.set_frozen(config.frozen_stages >= 1);
    net.part("backbone.stem");
    let stem = format!("{BODY}.features.0");
    let mut x = patches(net, x, &format!("{stem}.0"), (config.stage_channels[0], 4))?;
    x = norm(net, x, &format!("{stem}.1"))?;
    let (mut maps, mut number) = (Vec::new(), 0);
    for (stage, &channels) in config.stage_channels.iter().enumerate() {
        net.set_frozen(config.frozen_stages >= stage + 2);
        if stage > 0 {
            net.part(&format!("backbone.features.{}", 2 * stage));
            let halved = format!("{BODY}.features.{}", 2 * stage);
            x = norm(net, x, &format!("{halved}.0"))?;
            x = patches(net, x, &format!("{halved}.1"), (channels, 2))?;
        }
        for block in 0..config.blocks[stage] {
            let name = format!("features.{}.{block}", 2 * stage + 1);
            net.part(&format!("backbone.{name}"));
            x = self::block(net, x, &format!("{BODY}.{name}"), number)?;
            number += 1;
        }
        maps.push(x);
    }
    Ok(maps)
}

/// A convolution whose kernel size equals its stride: non-overlapping patches.
fn patches(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    (channels, side): (usize, usize),
) -> Result<TensorId, GraphError> {
    net.conv_bias(x, name, ConvShape::new(channels, side, side), INIT, false, None)
}

fn norm(net: &mut Net<'_>, x: TensorId, name: &str) -> Result<TensorId, GraphError> {
    let (c, eps) = (net.channels(x), net.spec.config.model.backbone.norm_eps as f32);
    let [gamma, beta] = [("weight", 1.0), ("bias", 0.0)].map(|(what, value)| {
        let name = format!("{name}.{what}");
        net.param(name, &[c], Layout::Same, ParamKind::Norm, Init::Constant(value))
    });
    let [y, _stats] = net.program.apply(LayerNorm { eps }, LayerNormInputs { x, gamma, beta })?;
    Ok(y)
}

/// A linear layer applied at each position: a 1x1 convolution.
fn linear(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    channels: usize,
) -> Result<TensorId, GraphError> {
    let dims = [channels, 1, 1, net.channels(x)];
    let kind = ParamKind::Weight;
    let w = net.param(format!("{name}.weight"), &dims, Layout::Pointwise, kind, INIT);
    let bias = Some(net.bias(name, channels, Init::Constant(0.0)));
    net.conv(Conv2dInputs { bias, ..plain(x, w) }, ConvShape::new(channels, 1, 1), false)
}

/// A residual block: the branch is a depthwise convolution, a norm and two linear layers. `number`
/// counts the backbone's blocks from 0.
fn block(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    number: usize,
) -> Result<TensorId, GraphError> {
    let c = net.channels(x);
    let layer = |i: usize| format!("{name}.block.{i}");
    let own = ConvShape { groups: c, ..ConvShape::new(c, 7, 1) };
    let mut y = net.conv_bias(x, &layer(0), own, INIT, false, None)?;
    y = norm(net, y, &layer(2))?;
    y = linear(net, y, &layer(3), EXPANSION * c)?;
    y = net.program.apply1(Gelu, [y])?;
    let branch = linear(net, y, &layer(5), c)?;
    let (name, kind) = (format!("{name}.layer_scale"), ParamKind::Norm);
    let scale = net.param(name, &[c], Layout::Channels, kind, SCALE);
    let (image_keys, drop) = net.drawn_by().zip(drop(net, number)).unzip();
    let inputs = ScaledResidualInputs { x, branch, scale, image_keys };
    net.program.apply1(ScaledResidual { drop }, inputs)
}

/// Stochastic depth, which skips the branch of a block for random images in training; `None` in a
/// frozen stage.
fn drop(net: &Net<'_>, number: usize) -> Option<Drop> {
    let config = &net.spec.config;
    let backbone = &config.model.backbone;
    let last = backbone.blocks.iter().sum::<usize>().saturating_sub(1).max(1);
    let rate = (backbone.drop_path * number as f64 / last as f64) as f32;
    let drop = Drop { rate, seed: config.train.seed, block: number as u32 };
    (rate > 0.0 && !net.is_frozen()).then_some(drop)
}
