//! The end of a training step: the norms of the gradients, and the update of the parameters.

use std::sync::Arc;

use configs::{Optimizer, Solver, WarmupRule};
use graph::program::Pass;
use graph::{GraphError, TensorId};
use kernels::ops::control_step::ControlStep;
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::layerwise::{Lars, LayerGroup, LayerRule, Layerwise, Novograd, NovogradForm};
use kernels::ops::sgd::{Sgd, SgdGroup};
use kernels::{Role, TensorDesc};

use super::net::Net;
use super::params::ParamKind;
use super::schedule::schedule;
use super::state_names::{MASTER, NOVOGRAD_AVERAGES, NOVOGRAD_STEPS};

/// The kept statistics of all trained parameters, in order.
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

/// Adds norms, step control, and the update of every trained parameter. Returns `control`,
/// `grad_norms`, and the statistics of the parameters, if they are asked for.
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
        dynamic: config.solver.dynamic_loss_scale && net.spec.scales_losses(),
        shared_warmup: config.solver.warmup_rule == WarmupRule::SharedDelta,
        first_step: config.solver.first_schedule_step,
        count_skipped: config.solver.count_skipped_steps,
        micro_steps: net.spec.part.division.divisor() as u32,
    };
    let updates = [step, loss_scale, growth, skipped];
    let control = net.program.add(Arc::new(control), &[norms, finite], &updates)?[0];
    net.program.keep("control", control);
    let stats = match config.solver.optimizer {
        Optimizer::Sgd => sgd(net, trained, grads, control)?,
        Optimizer::Novograd | Optimizer::Lars => layerwise(net, trained, grads, norms, control)?,
    };
    stats.iter().for_each(|stats| net.program.keep(PARAMETER_STATS, *stats));
    Ok([control, norms].into_iter().chain(stats).collect())
}

/// Momentum SGD: one node updates every trained parameter, its momentum, and its master, if any.
fn sgd(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    control: TensorId,
) -> Result<Option<TensorId>, GraphError> {
    let (updates, masters) = updated(net, trained);
    let solver = &net.spec.config.solver;
    let groups = trained.iter().zip(masters).map(|(t, master)| group(solver, t.kind, master));
    let op = Sgd {
        momentum: solver.momentum as f32,
        nesterov: solver.nesterov,
        groups: groups.collect(),
        stats: net.spec.config.train.log_parameters,
    };
    let inputs: Vec<_> = grads.into_iter().chain([control]).collect();
    Ok(net.program.add(Arc::new(op), &inputs, &updates)?.first().copied())
}

/// NovoGrad or LARS: one node, as [`sgd`].
fn layerwise(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Vec<TensorId>,
    norms: TensorId,
    control: TensorId,
) -> Result<Option<TensorId>, GraphError> {
    let (mut updates, masters) = updated(net, trained);
    let config = net.spec.config;
    let solver = &config.solver;
    let rule = layer_rule(solver);
    if let LayerRule::Novograd(_) = rule {
        let averages = TensorDesc::new(Role::Scalar, &[trained.len()]);
        updates.push(net.program.state(NOVOGRAD_AVERAGES, averages));
        updates.push(net.program.state(NOVOGRAD_STEPS, TensorDesc::new(Role::Index, &[1])));
    }
    let groups = trained.iter().zip(masters).map(|(t, master)| {
        let SgdGroup { weight_decay, lr_factor, master } = group(solver, t.kind, master);
        let adapts = solver.lars.adapts_vectors || t.kind == ParamKind::Weight;
        LayerGroup { weight_decay, lr_factor, master, adapts }
    });
    let op = Layerwise { rule, groups: groups.collect(), stats: config.train.log_parameters };
    let inputs: Vec<_> = grads.into_iter().chain([norms, control]).collect();
    Ok(net.program.add(Arc::new(op), &inputs, &updates)?.first().copied())
}

/// The state that an optimizer updates: weights, momenta, masters; and who has a master.
fn updated(net: &mut Net<'_>, trained: &[Trained]) -> (Vec<TensorId>, Vec<bool>) {
    let on_device = !net.spec.target.is_cpu();
    let has_master =
        |net: &Net<'_>, t: &Trained| on_device && net.program.desc(t.weight).role == Role::Weight;
    let beside = |net: &mut Net<'_>, prefix: &str, t: &Trained| {
        let desc = TensorDesc::new(Role::Master, &t.shape);
        net.program.state(&format!("{prefix}{}", t.name), desc)
    };
    let momenta: Vec<_> = trained.iter().map(|t| beside(net, "momentum/", t)).collect();
    let has: Vec<bool> = trained.iter().map(|t| has_master(net, t)).collect();
    let with_master = trained.iter().zip(&has).filter(|(_, has)| **has);
    let masters: Vec<_> = with_master.map(|(t, _)| beside(net, MASTER, t)).collect();
    let weights = trained.iter().map(|t| t.weight);
    (weights.chain(momenta).chain(masters).collect(), has)
}

/// The update rule for this kind of parameter.
fn group(solver: &Solver, kind: ParamKind, master: bool) -> SgdGroup {
    let decay = solver.weight_decay as f32;
    let or_decay = |own: Option<f64>| own.map_or(decay, |d| d as f32);
    let (weight_decay, lr_factor) = match kind {
        ParamKind::Bias => (or_decay(solver.bias_weight_decay), solver.bias_lr_factor as f32),
        ParamKind::Norm => (or_decay(solver.norm_weight_decay), 1.0),
        _ => (decay, 1.0),
    };
    SgdGroup { weight_decay, lr_factor, master }
}

/// The rule of an optimizer other than SGD.
fn layer_rule(solver: &Solver) -> LayerRule {
    if solver.optimizer == Optimizer::Lars {
        let trust = solver.lars.trust_coefficient as f32;
        return LayerRule::Lars(Lars { momentum: solver.momentum as f32, trust });
    }
    let novograd = &solver.novograd;
    let form = match novograd.form {
        configs::NovogradForm::Paper => NovogradForm::Paper,
        configs::NovogradForm::Apex => NovogradForm::Apex {
            bias_correction: novograd.bias_correction,
            reg_inside: novograd.reg_inside,
            averaging: novograd.averaging,
            init_zero: novograd.init_zero,
        },
    };
    LayerRule::Novograd(Novograd {
        beta1: novograd.beta1 as f32,
        beta2: novograd.beta2 as f32,
        eps: novograd.eps as f32,
        form,
    })
}
