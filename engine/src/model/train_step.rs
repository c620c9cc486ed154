//! The training step: preprocess, forward, losses, backward, optimizer, as one Program.

use crate::config::Config;
use device::Target;
use graph::autodiff::differentiate_seeded;
use graph::prune::prune;
use graph::{GraphError, TensorId};
use kernels::ops::fill::Fill;
use kernels::ops::scalar_product::ScalarProduct;
use kernels::{Role, TensorDesc};

use super::backbones::backbone;
use super::detectors::{Losses, detector};
use super::fusion;
use super::inputs::{ColourInputs, ImageInputs, ObjectInputs, PassInputs};
use super::logged;
use super::net::{Loss, Net};
use super::optimizer::{self, Trained};
use super::patterns;
use super::preprocess::{preprocess, truth};
use super::ring::{Published, publish};
use super::schema::Array;
use super::sums;
use super::{BuiltProgram, ModelSpec};
use crate::error::EngineError;

/// Name of the output with a pass's counts for the accuracies, in the order of
/// [`kernels::ops::accuracies::Count`].
pub(crate) const ACCURACIES: &str = "accuracies";

/// Builds the training step. Output tensors: the unweighted losses, named by
/// [`BuiltProgram::losses`]; `control` (a [`kernels::ops::control_step::Control`]); `grad_norms`
/// (one per trained parameter, then the total; multiplied by the loss scale); `parameter_stats` if
/// `train.log_parameters` is set (see [`kernels::ops::parameter_update`]); `accuracies` if
/// `train.accuracies` is set (see [`kernels::ops::accuracies`]).
///
/// # Errors
/// A config that an op rejects (names the part of the model); name patterns that match no
/// parameter, or leave no parameter to train.
pub fn training_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, EngineError> {
    weighted_training_program(spec, &[])
}

/// [`training_program`] with a weight for each class, background first; empty for equal weights.
///
/// # Errors
/// As for [`training_program`].
pub fn weighted_training_program(
    spec: &ModelSpec<'_>,
    class_weights: &[f32],
) -> Result<BuiltProgram, EngineError> {
    let mut net = Net::new(spec);
    net.class_weights = class_weights.into();
    let (Losses { losses, counts }, pass) = forward(&mut net)?;
    counts.iter().for_each(|counts| net.program.keep(ACCURACIES, *counts));

    let loss_scale = net.program.state("loss_scale", TensorDesc::new(Role::Scalar, &[1]));
    let trained = optimizer::trained(&net);
    patterns::check(&net)?;
    let seed = match pass {
        None => loss_scale,
        Some(pass) => net.program.apply1(ScalarProduct, [loss_scale, pass.micro_weight])?,
    };
    let grads = backward(&mut net, &losses, seed, &trained)?;
    let sums = sums::of_step(&mut net, &trained, grads, &losses, pass)?;
    let of_step = sums.grads.clone();
    let results = match sums.grads {
        Some(grads) => optimizer::update(&mut net, &trained, grads, loss_scale)?,
        None => vec![],
    };
    let ring = match spec.target {
        Target::Cpu => None,
        Target::Gpu(_) => {
            let published = Published { summed: sums.losses, counts, results: &results };
            Some(publish(&mut net, &losses, published, trained.len())?)
        }
    };
    prune(&mut net.program);
    fusion::apply(&mut net.program, spec);
    logged::keep(&mut net, &trained, of_step.as_deref())?;
    let (losses, loss_weights) = losses.iter().map(|loss| (loss.name, loss.weight)).unzip();
    Ok(BuiltProgram { losses, loss_weights, ring, ..net.finish() })
}

/// A training step without backward pass and update. Output tensors: the unweighted losses, named
/// by [`BuiltProgram::losses`].
///
/// # Errors
/// As for [`training_program`].
pub fn loss_program(
    spec: &ModelSpec<'_>,
    class_weights: &[f32],
) -> Result<BuiltProgram, EngineError> {
    let mut net = Net::new(spec);
    net.class_weights = class_weights.into();
    let (Losses { losses, .. }, _) = forward(&mut net)?;
    prune(&mut net.program);
    fusion::apply(&mut net.program, spec);
    let (losses, loss_weights) = losses.iter().map(|loss| (loss.name, loss.weight)).unzip();
    Ok(BuiltProgram { losses, loss_weights, ..net.finish() })
}

/// Adds the forward part of a training step, with the losses as outputs. Also returns the
/// additional inputs of a pass that is only a part of the step.
fn forward(net: &mut Net<'_>) -> Result<(Losses, Option<PassInputs>), EngineError> {
    let spec = net.spec;
    let images = ImageInputs::declare(&mut net.program, spec);
    let objects = ObjectInputs::declare(&mut net.program, spec);
    let colours = ColourInputs::declare_any(&mut net.program, spec);
    let detector = detector(&spec.config.model);
    detector.arrays().iter().for_each(|array| _ = array.declare(&mut net.program, spec));
    let is_weighted = spec.part.division.is_weighted();
    let pass = is_weighted.then(|| PassInputs::declare(&mut net.program, spec));
    net.part("preprocess");
    let x = preprocess(net, images, colours)?;
    let truth = truth(net, images, objects)?;

    net.draw_by(truth.objects.image_keys);
    let maps = backbone(net, x)?;
    let found = detector.losses(net, &maps, &truth)?;
    found.losses.iter().for_each(|loss| net.program.keep(loss.name, loss.value));
    Ok((found, pass))
}

/// The additional arrays of a step's slot for a config: colour transformations, and arrays of
/// heads.
pub fn further_arrays(config: &Config) -> Vec<Array> {
    [ColourInputs::arrays(config), &detector(&config.model).arrays()].concat()
}

/// The gradient of the weighted sum of `losses`, multiplied by `seed`, for each trained parameter.
fn backward(
    net: &mut Net<'_>,
    losses: &[Loss],
    seed: TensorId,
    trained: &[Trained],
) -> Result<Vec<TensorId>, GraphError> {
    let weights: Vec<_> = trained.iter().map(|t| t.weight).collect();
    net.part("loss weights");
    let mut seeded = Vec::new();
    for loss in losses {
        // A weight of 1 needs no node.
        let seed = if loss.weight == 1.0 {
            seed
        } else {
            let desc = TensorDesc::new(Role::Scalar, &[1]);
            let [weight] = net.program.apply(Fill { desc, value: loss.weight }, [])?;
            net.program.apply1(ScalarProduct, [seed, weight])?
        };
        seeded.push((loss.value, seed));
    }
    let grads = differentiate_seeded(&mut net.program, &seeded, &weights)?;
    for (grad, t) in grads.iter().zip(trained) {
        if net.spec.observe {
            net.program.keep(&format!("grad/{}", t.name), *grad);
        }
    }
    Ok(grads)
}

#[cfg(test)]
mod tests;
