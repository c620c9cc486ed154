//! The training step: preprocess, forward, losses, backward, optimizer, as one Program.

use device::Target;
use graph::autodiff::differentiate;
use graph::prune::prune;
use graph::{GraphError, TensorId};
use kernels::ops::scalar_product::ScalarProduct;
use kernels::{Role, TensorDesc};

use super::backbone::backbone;
use super::fpn::fpn;
use super::inputs::{ImageInputs, ObjectInputs, PassInputs};
use super::level_gradients::join_level_gradients;
use super::net::Net;
use super::optimizer::{self, Trained};
use super::preprocess::{decide_flips, preprocess, truth};
use super::ring::publish;
use super::roi_heads::RoiHeads;
use super::rois::sample_rois;
use super::rpn::Rpn;
use super::sums;
use super::{BuiltProgram, ModelSpec};

/// Builds the training step. Kept tensors: the losses under [`BuiltProgram::losses`], `control` (a
/// [`kernels::ops::control_step::Control`]) and `grad_norms` (one per trained parameter, then the
/// total; multiplied by the loss scale).
///
/// # Errors
/// A config that an op rejects, with the part of the model.
pub fn training_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, GraphError> {
    let mut net = Net::new(spec);
    let images = ImageInputs::declare(&mut net.program, spec);
    let objects = ObjectInputs::declare(&mut net.program, spec);
    let is_weighted = spec.part.division.is_weighted();
    let pass = is_weighted.then(|| PassInputs::declare(&mut net.program, spec));
    net.part("preprocess");
    let flips = decide_flips(&mut net, objects)?;
    let x = preprocess(&mut net, images, flips)?;
    let truth = truth(&mut net, images, objects, flips)?;

    let maps = backbone(&mut net, x)?;
    let maps = fpn(&mut net, &maps)?;
    let rpn = Rpn::new(&mut net, maps.clone())?;
    let proposals = rpn.proposals(&mut net, images, true)?;
    let rpn_losses = rpn.losses(&mut net, &truth)?;
    let sampled = sample_rois(&mut net, proposals, &truth)?;
    let mut losses = RoiHeads::of(&spec.config.model).losses(&mut net, &maps, &sampled, &truth)?;
    losses.extend(rpn_losses);
    for (name, loss) in &losses {
        net.program.keep(name, *loss);
    }

    let loss_scale = net.program.state("loss_scale", TensorDesc::new(Role::Scalar, &[1]));
    let trained = optimizer::trained(&net);
    let values: Vec<_> = losses.iter().map(|(_, loss)| *loss).collect();
    let seed = match pass {
        None => loss_scale,
        Some(pass) => net.program.apply1(ScalarProduct, [loss_scale, pass.micro_weight])?,
    };
    let grads = backward(&mut net, &values, seed, &trained)?;
    let sums = sums::of_step(&mut net, &trained, grads, &losses, pass)?;
    let results = match sums.grads {
        Some(grads) => optimizer::update(&mut net, &trained, grads, loss_scale)?,
        None => vec![],
    };
    let ring = match spec.target {
        Target::Cpu => None,
        Target::Gpu(_) => {
            Some(publish(&mut net, &losses, sums.losses, &results, trained.len() + 1)?)
        }
    };
    prune(&mut net.program);
    join_level_gradients(&mut net.program, &spec.target);
    let losses = losses.into_iter().map(|(name, _)| name).collect();
    Ok(BuiltProgram { losses, ring, ..net.finish() })
}

/// Gradients of the sum of `losses`, times `seed`, one per trained parameter.
fn backward(
    net: &mut Net<'_>,
    losses: &[TensorId],
    seed: TensorId,
    trained: &[Trained],
) -> Result<Vec<TensorId>, GraphError> {
    let weights: Vec<_> = trained.iter().map(|t| t.weight).collect();
    let grads = differentiate(&mut net.program, losses, seed, &weights)?;
    for (grad, t) in grads.iter().zip(trained) {
        net.observe(&format!("grad/{}", t.name), *grad);
    }
    Ok(grads)
}
