//! The sums of a step over its passes and ranks: gradients, losses, and the requests to stop.

use std::sync::Arc;

use graph::program::Pass;
use graph::{GraphError, TensorId};
use kernels::ops::accumulate::{Accumulate, AddAccumulated};
use kernels::ops::scalar_product::ScalarProduct;
use kernels::{OpRef, Role, TensorDesc};

use super::MicroStep;
use super::group_sum::{AddGroup, SumGroups, stack_shape};
use super::inputs::PassInputs;
use super::net::{Loss, Net};
use super::optimizer::Trained;
use super::state_names::{ACCUMULATED, PASSES_HELD};

/// Prefix of the kept sum of a loss, times [`super::Division::parts`].
pub(crate) const STEP_LOSS: &str = "step/";
/// The kept number of requests to stop.
pub(crate) const STOP_REQUESTS: &str = "step/stop";

/// Adds the gradients of this pass to those of earlier ones, and of other ranks if it is the last.
/// Returns the gradients of the step; `None` if later passes follow.
pub(super) fn of_step(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    losses: &[Loss],
    pass: Option<PassInputs>,
) -> Result<Option<Vec<TensorId>>, GraphError> {
    net.program.set_pass(Pass::Update);
    net.part("sums");
    match (pass, net.spec.target.is_cpu()) {
        (None, _) => Ok(Some(grads)),
        (Some(pass), true) => over_groups(net, trained, grads, losses, pass),
        (Some(_), false) => over_micro_steps(net, trained, grads),
    }
}

/// On the CPU: in the tree over all groups.
fn over_groups(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    losses: &[Loss],
    pass: PassInputs,
) -> Result<Option<Vec<TensorId>>, GraphError> {
    let mut values = grads;
    let mut names: Vec<String> = trained.iter().map(|t| t.name.clone()).collect();
    for (name, loss) in losses {
        values.push(net.program.apply1(ScalarProduct, [*loss, pass.micro_weight])?);
        names.push(format!("{STEP_LOSS}{name}"));
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

/// On a device: in the order of the micro-steps.
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

/// State: the passes that the sums hold.
fn held(net: &mut Net<'_>) -> TensorId {
    net.program.state(PASSES_HELD, TensorDesc::new(Role::Index, &[1]))
}
