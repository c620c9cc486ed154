//! The end of a training step: the norms of the gradients, and the update of the parameters.

use std::sync::Arc;

use configs::{Optimizer, WarmupRule};
use graph::program::Pass;
use graph::{GraphError, TensorId};
use kernels::ops::control_step::ControlStep;
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::sgd::{Sgd, SgdGroup};
use kernels::{Role, TensorDesc};

use super::net::Net;
use super::params::ParamKind;
use super::schedule::schedule;
use super::state_names::MASTER;

/// A parameter that the step trains.
#[derive(Debug)]
pub(super) struct Trained {
    pub(super) weight: TensorId,
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    kind: ParamKind,
}

/// The parameters that the step trains, in order of declaration.
pub(super) fn trained(net: &Net<'_>) -> Vec<Trained> {
    let trained = net.params().iter().filter_map(|p| {
        let (name, shape) = (p.name.clone(), p.shape.clone());
        p.trained.map(|weight| Trained { weight, kind: p.kind, name, shape })
    });
    trained.collect()
}

/// Adds norms, step control, and the update of every trained parameter. Returns `control` and
/// `grad_norms`.
pub(super) fn update(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    loss_scale: TensorId,
) -> Result<Vec<TensorId>, GraphError> {
    net.program.set_pass(Pass::Update);
    net.part("optimizer");
    let config = net.spec.config;
    let index =
        |net: &mut Net<'_>, name: &str| net.program.state(name, TensorDesc::new(Role::Index, &[1]));
    let [step, growth, skipped] =
        ["step", "loss_scale_growth", "skipped_steps"].map(|name| index(net, name));
    let [norms, finite] = net.program.apply(GradNorms {}, grads.as_slice())?;
    net.program.keep("grad_norms", norms);
    let control = ControlStep {
        schedule: schedule(config),
        clip_norm: config.solver.clip_norm,
        growth_interval: config.solver.loss_scale_growth_interval as u32,
        dynamic: config.solver.dynamic_loss_scale,
        shared_warmup: config.solver.warmup_rule == WarmupRule::SharedDelta,
        first_step: config.solver.first_schedule_step,
        count_skipped: config.solver.count_skipped_steps,
        micro_steps: net.spec.part.division.divisor() as u32,
    };
    let updates = [step, loss_scale, growth, skipped];
    let control = net.program.add(Arc::new(control), &[norms, finite], &updates)?[0];
    net.program.keep("control", control);
    match config.solver.optimizer {
        Optimizer::Sgd => sgd(net, trained, grads, control)?,
    }
    Ok(vec![control, norms])
}

/// Momentum SGD: one node updates every trained parameter, its momentum, and its master, if any.
fn sgd(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    control: TensorId,
) -> Result<(), GraphError> {
    let on_device = !net.spec.target.is_cpu();
    let has_master =
        |net: &Net<'_>, t: &Trained| on_device && net.program.desc(t.weight).role == Role::Weight;
    let beside = |net: &mut Net<'_>, prefix: &str, t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("{prefix}{}", t.name), desc)
    };
    let momenta: Vec<_> = trained.iter().map(|t| beside(net, "momentum/", t)).collect();
    let mut masters = Vec::new();
    let mut groups = Vec::new();
    for t in trained {
        let master = has_master(net, t);
        if master {
            masters.push(beside(net, MASTER, t));
        }
        groups.push(group(&net.spec.config.solver, t.kind, master));
    }
    let solver = &net.spec.config.solver;
    let op =
        Sgd { momentum: solver.momentum as f32, nesterov: solver.nesterov, groups, stats: false };
    let inputs: Vec<_> = grads.into_iter().chain([control]).collect();
    let updates: Vec<_> = trained.iter().map(|t| t.weight).chain(momenta).chain(masters).collect();
    net.program.add(Arc::new(op), &inputs, &updates)?;
    Ok(())
}

/// The update rule for this kind of parameter.
fn group(solver: &configs::Solver, kind: ParamKind, master: bool) -> SgdGroup {
    let decay = solver.weight_decay as f32;
    let or_decay = |own: Option<f64>| own.map_or(decay, |d| d as f32);
    let (weight_decay, lr_factor) = match kind {
        ParamKind::Bias => (or_decay(solver.bias_weight_decay), solver.bias_lr_factor as f32),
        ParamKind::Norm => (or_decay(solver.norm_weight_decay), 1.0),
        _ => (decay, 1.0),
    };
    SgdGroup { weight_decay, lr_factor, master }
}
