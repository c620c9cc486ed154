//! The end of a training step: gradient norms and parameter update.

use std::sync::Arc;

use crate::config::{Solver, WarmupRule};
use graph::program::Pass;
use graph::{GraphError, TensorId};
use kernels::ops::control_step::ControlStep;
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::parameter_update::{Average, ParameterUpdate};
use kernels::ops::rules::{Group, Momentum};
use kernels::{Role, TensorDesc};

use super::net::Net;
use super::params::ParamKind;
use super::schedule::schedule;
use super::state_names::{AVERAGE, AVERAGED, MASTER};
use crate::names::matches;

/// Name of the output with the statistics of all trained parameters, in order.
pub(crate) const PARAMETER_STATS: &str = "parameter_stats";

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

/// Adds gradient norms, step control, and the update of every trained parameter. Returns `control`,
/// `grad_norms` and, if requested, the statistics of the parameters.
pub(super) fn update(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    loss_scale: TensorId,
) -> Result<Vec<TensorId>, GraphError> {
    net.program.set_pass(Pass::Update);
    net.part("optimizer");
    let config = net.spec.config;
    let [step, growth, skipped] =
        ["step", "loss_scale_growth", "skipped_steps"].map(|name| count(net, name));
    let [norms, finite] = net.program.apply(GradNorms {}, grads.as_slice())?;
    net.program.keep("grad_norms", norms);
    let control = ControlStep {
        schedule: schedule(config),
        clip_norm: config.solver.clip_norm,
        growth_interval: config.solver.loss_scale_growth_interval as u32,
        dynamic: config.solver.dynamic_loss_scale && net.spec.scales_losses(),
        shared_warmup: config.solver.warmup_rule == WarmupRule::SharedDelta,
        first_step: config.solver.first_schedule_step,
        count_skipped: config.solver.count_skipped_steps,
        micro_steps: net.spec.part.division.divisor() as u32,
    };
    let updates = [step, loss_scale, growth, skipped];
    let control = net.program.add(Arc::new(control), &[norms, finite], &updates)?[0];
    net.program.keep("control", control);
    let (op, updates) = parameter_update(net, trained);
    let norms_read = op.rule.entry().needs_norms.then_some(norms);
    let inputs: Vec<_> = grads.into_iter().chain(norms_read).chain([control]).collect();
    let stats = net.program.add(Arc::new(op), &inputs, &updates)?.first().copied();
    stats.iter().for_each(|stats| net.program.keep(PARAMETER_STATS, *stats));
    Ok([control, norms].into_iter().chain(stats).collect())
}

/// Declares a counter as a state tensor.
fn count(net: &mut Net<'_>, name: &str) -> TensorId {
    net.program.state(name, TensorDesc::new(Role::Index, &[1]))
}

/// The op that updates every trained parameter, and its state tensors: weights, momenta, fp32
/// master weights where they exist, other state of the optimizer, averages.
fn parameter_update(net: &mut Net<'_>, trained: &[Trained]) -> (ParameterUpdate, Vec<TensorId>) {
    let (config, on_device) = (net.spec.config, !net.spec.target.is_cpu());
    let (solver, rule) = (&config.solver, config.solver.rule());
    let momentum = Momentum { factor: solver.momentum as f32, nesterov: solver.nesterov };
    let entry = rule.entry();
    let beside = |net: &mut Net<'_>, prefix: &str, t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("{prefix}{}", t.name), desc)
    };
    let momenta: Vec<_> = trained.iter().map(|t| beside(net, "momentum/", t)).collect();
    let of = |t: &Trained| {
        let master = on_device && net.program.desc(t.weight).role == Role::Weight;
        Group { master, ..group_of(solver, &t.name, t.kind) }
    };
    let groups: Vec<Group> = trained.iter().map(of).collect();
    let with_master = trained.iter().zip(&groups).filter(|(_, group)| group.master);
    let masters: Vec<_> = with_master.map(|(t, _)| beside(net, MASTER, t)).collect();
    let weights = trained.iter().map(|t| t.weight);
    let mut updates: Vec<_> = weights.chain(momenta).chain(masters).collect();
    if let Some(name) = entry.number {
        let numbers = TensorDesc::new(Role::Scalar, &[trained.len()]);
        updates.push(net.program.state(name, numbers));
    }
    if let Some(prefix) = entry.second {
        updates.extend(trained.iter().map(|t| beside(net, prefix, t)));
    }
    if let Some(name) = entry.steps {
        updates.push(count(net, name));
    }
    let warmup = config.train.ema_warmup_steps as f64;
    let average = config.train.ema_decay.map(|decay| Average { decay, warmup });
    if average.is_some() {
        updates.extend(trained.iter().map(|t| beside(net, AVERAGE, t)));
        updates.push(count(net, AVERAGED));
    }
    let stats = config.train.log_parameters;
    (ParameterUpdate { rule, momentum, groups, stats, average }, updates)
}

/// The update settings of a parameter with this name and kind, without a master weight.
pub fn group_of(solver: &Solver, name: &str, kind: ParamKind) -> Group {
    let (own_decay, own_factor) = match kind {
        ParamKind::Bias => (solver.bias_weight_decay, solver.bias_lr_factor),
        ParamKind::Norm => (solver.norm_weight_decay, 1.0),
        _ => (None, 1.0),
    };
    let groups = || solver.groups.iter().rev().filter(|group| matches(&group.r#match, name));
    let decay = groups().find_map(|group| group.weight_decay).or(own_decay);
    let factor = groups().find_map(|group| group.lr_factor).unwrap_or(own_factor);
    let (weight_decay, lr_factor) = (decay.unwrap_or(solver.weight_decay) as f32, factor as f32);
    Group { weight_decay, lr_factor, master: false, is_weight: kind == ParamKind::Weight }
}
