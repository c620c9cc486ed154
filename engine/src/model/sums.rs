//! Sums gradients, losses and stop requests over the passes and ranks of a step.

use std::sync::Arc;

use graph::buckets::all_reduce_buckets;
use graph::program::Pass;
use graph::{GraphError, TensorId};
use kernels::ops::accumulate::{Accumulate, AddAccumulated};
use kernels::ops::all_reduce::AllReduce;
use kernels::ops::scalar_product::ScalarProduct;
use kernels::ops::weighted_losses::WeightedLosses;
use kernels::{OpRef, Role, TensorDesc};

use super::MicroStep;
use super::group_sum::{AddGroup, SumGroups, stack_shape};
use super::inputs::PassInputs;
use super::net::{Loss, Net};
use super::optimizer::Trained;
use super::state_names::{ACCUMULATED, PASSES_HELD};

/// Prefix of the output with a loss summed over all passes: the step's mean times
/// [`super::Division::parts`].
pub(crate) const STEP_LOSS: &str = "step/";
/// Name of the output with the number of stop requests.
pub(crate) const STOP_REQUESTS: &str = "step/stop";

/// The sums at the end of a pass.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// The gradients of the step; `None` if more passes follow.
    pub(super) grads: Option<Vec<TensorId>>,
    /// The pass's weighted losses summed over all ranks, and the number of stop requests; `None` if
    /// the host sums them.
    pub(super) losses: Option<TensorId>,
}

/// Adds the gradients of this pass to those of earlier passes and, in the last pass, to those of
/// the other ranks.
pub(super) fn of_step(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    losses: &[Loss],
    pass: Option<PassInputs>,
) -> Result<Sums, GraphError> {
    net.program.set_pass(Pass::Update);
    net.part("sums");
    let Some(pass) = pass else { return Ok(Sums { grads: Some(grads), losses: None }) };
    if net.spec.target.is_cpu() {
        let grads = over_groups(net, trained, grads, losses, pass)?;
        return Ok(Sums { grads, losses: None });
    }
    let division = &net.spec.part.division;
    let ranks = division.ranks.count;
    if !division.reduces_on_device() {
        let grads = over_micro_steps(net, trained, grads)?;
        return Ok(Sums { grads, losses: None });
    }
    // The losses are ready first, so their all-reduce is the first on the all-reduce stream.
    let losses = losses.iter().map(|loss| loss.value);
    let inputs: Vec<_> = losses.chain([pass.micro_weight, pass.stop]).collect();
    let mine = net.program.apply1(WeightedLosses, inputs)?;
    let losses = Some(net.program.apply1(AllReduce, [mine])?);
    let Some(grads) = over_micro_steps(net, trained, grads)? else {
        return Ok(Sums { grads: None, losses });
    };
    // fp16 values are divided before they are added, so that the sum does not overflow.
    let scale = 1.0 / ranks as f32;
    let bucket_bytes = net.spec.config.ranks.bucket_mib << 20;
    let grads = all_reduce_buckets(&mut net.program, &grads, scale, bucket_bytes)?;
    Ok(Sums { grads: Some(grads), losses })
}

/// Sums on the CPU, in the tree over all groups.
fn over_groups(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    losses: &[Loss],
    pass: PassInputs,
) -> Result<Option<Vec<TensorId>>, GraphError> {
    let mut values = grads;
    let mut names: Vec<String> = trained.iter().map(|t| t.name.clone()).collect();
    for loss in losses {
        values.push(net.program.apply1(ScalarProduct, [loss.value, pass.micro_weight])?);
        names.push(format!("{STEP_LOSS}{}", loss.name));
    }
    values.push(pass.stop);
    names.push(STOP_REQUESTS.to_string());
    let division = net.spec.part.division.clone();
    let stack = |net: &mut Net<'_>, (name, value): (&String, &TensorId)| {
        let shape = stack_shape(&division, &net.program.desc(*value).shape);
        let desc = TensorDesc::new(Role::Master, &shape);
        net.program.state(&format!("{ACCUMULATED}{name}"), desc)
    };
    let mut updates: Vec<_> = names.iter().zip(&values).map(|of| stack(net, of)).collect();
    updates.push(held(net));
    let is_last = net.spec.part.micro == MicroStep::Last;
    let op: OpRef = match is_last {
        true => Arc::new(SumGroups::new(&division)),
        false => Arc::new(AddGroup::new(&division)),
    };
    let mut totals = net.program.add(op, &values, &updates)?;
    if !is_last {
        return Ok(None);
    }
    let scalars = totals.split_off(trained.len());
    for (name, total) in names[trained.len()..].iter().zip(scalars) {
        net.program.keep(name, total);
    }
    Ok(Some(totals))
}

/// Sums on a device, in the order of the micro-steps.
fn over_micro_steps(
    net: &mut Net<'_>,
    trained: &[Trained],
    mut grads: Vec<TensorId>,
) -> Result<Option<Vec<TensorId>>, GraphError> {
    if net.spec.part.micro == MicroStep::Whole {
        return Ok(Some(grads));
    }
    let sum = |net: &mut Net<'_>, t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("{ACCUMULATED}{}", t.name), desc)
    };
    let mut sums: Vec<_> = trained.iter().map(|t| sum(net, t)).collect();
    let held = held(net);
    if net.spec.part.micro == MicroStep::Early {
        sums.push(held);
        net.program.add(Arc::new(Accumulate), &grads, &sums)?;
        return Ok(None);
    }
    grads.extend(sums);
    net.program.add(Arc::new(AddAccumulated), &grads, &[held]).map(Some)
}

/// Declares the state with the number of passes in the sums.
fn held(net: &mut Net<'_>) -> TensorId {
    net.program.state(PASSES_HELD, TensorDesc::new(Role::Index, &[1]))
}
