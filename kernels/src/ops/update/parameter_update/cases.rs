//! Cases of `parameter_update` for the table of ops.

use std::sync::Arc;

use super::{Average, ParameterUpdate};
use crate::case::{OpCase, normal, uniform};
use crate::cpu::HostTensor;
use crate::ops::control_step::Control;
use crate::ops::rules::adamw::Adamw;
use crate::ops::rules::lars::Lars;
use crate::ops::rules::novograd::{Novograd, NovogradForm};
use crate::ops::rules::sgd::Sgd;
use crate::ops::rules::{Group, Momentum, Rule};
use crate::{Role, TensorDesc};

/// A parameter: its shape, the role of the weight, and whether it has a master.
type Parameter = (&'static [usize], Role, bool);

const KINDS: [(Role, bool); 4] =
    [(Role::Master, false), (Role::Weight, true), (Role::Weight, false), (Role::Master, true)];

/// Options of a case.
#[derive(Clone, Copy)]
struct Ask {
    apply: bool,
    nesterov: bool,
    stats: bool,
    average: Option<Average>,
    /// Updates applied before.
    steps: i32,
}

/// The rules in all forms, first and later; sizes 0, 1, primes, a block and its neighbours in each
/// kind of parameter; a skipped step; more parameters than a launch takes; a bottleneck of res4.
pub fn cases() -> Vec<OpCase> {
    let sizes: [&[usize]; 8] = [&[0], &[1], &[5, 7, 11], &[13], &[4095], &[4096], &[4097], &[9001]];
    let each = |(role, master)| sizes.map(|shape| (shape, role, master)).to_vec();
    let kinds: Vec<Parameter> = KINDS.into_iter().flat_map(each).collect();
    let few: Vec<Parameter> = kinds.iter().copied().step_by(5).collect();
    let many: Vec<Parameter> = kinds.iter().cycle().take(131).copied().collect();
    // On a device an average is of f32: of a master, or of a weight that is no half.
    let is_wide = |kind: &Parameter| kind.1 == Role::Master || kind.2;
    let wide: Vec<Parameter> = kinds.iter().copied().filter(is_wide).collect();
    let many_wide: Vec<Parameter> = wide.iter().cycle().take(131).copied().collect();
    let weight = |shape: &'static [usize]| (shape, Role::Weight, true);
    let bias = |shape: &'static [usize]| (shape, Role::Master, false);
    let block = [
        weight(&[256, 1, 1, 1024]),
        bias(&[256]),
        weight(&[256, 3, 3, 256]),
        bias(&[256]),
        weight(&[1024, 1, 1, 256]),
        bias(&[1024]),
    ];
    let ask = Ask { apply: true, nesterov: false, stats: false, average: None, steps: 3 };
    let (late, skipped) = (Ask { steps: 100_000, ..ask }, Ask { apply: false, ..ask });
    let with_stats = |ask: Ask| Ask { stats: true, ..ask };
    let sgd: Arc<dyn Rule> = Arc::new(Sgd);
    let lars: Arc<dyn Rule> = Arc::new(Lars { trust_coefficient: 0.02, adapts_vectors: false });
    let adamw: Arc<dyn Rule> = Arc::new(Adamw::default());
    let rules: [(&str, Arc<dyn Rule>); 5] = [
        ("sgd", sgd.clone()),
        ("lars", lars.clone()),
        ("the paper's novograd", novograd(NovogradForm::Paper, 0)),
        ("apex's novograd", novograd(NovogradForm::Apex, 0b0101)),
        ("adamw", adamw.clone()),
    ];
    let updates: [(&str, &[Parameter], Ask); 9] = [
        ("each kind", &kinds, ask),
        ("each kind, first", &kinds, Ask { steps: 0, ..ask }),
        ("each kind, with statistics", &kinds, with_stats(ask)),
        ("skipped", &kinds, skipped),
        ("skipped, with statistics", &kinds, with_stats(skipped)),
        ("131 parameters", &many, late),
        ("131 parameters, with statistics", &many, with_stats(late)),
        ("a bottleneck of res4", &block, ask),
        ("a bottleneck of res4, with statistics", &block, with_stats(ask)),
    ];
    let averaged = Ask { average: Some(Average { decay: 0.999, warmup: 20.0 }), ..ask };
    let mut cases = vec![
        case("sgd, no parameters", &sgd, &[], ask),
        case("lars, no parameters", &lars, &[], ask),
        case("nesterov, each kind", &sgd, &kinds, Ask { nesterov: true, ..ask }),
        case("sgd, each kind, averaged", &sgd, &wide, averaged),
        case("sgd, skipped, not averaged", &sgd, &wide, Ask { apply: false, ..averaged }),
        case("adamw, 131 parameters, averaged", &adamw, &many_wide, with_stats(averaged)),
        case("sgd, a bottleneck of res4, averaged", &sgd, &block, averaged),
    ];
    for (name, rule) in &rules {
        let of = |(what, parameters, ask): &(&str, &[Parameter], Ask)| {
            case(&format!("{name}, {what}"), rule, parameters, *ask)
        };
        cases.extend(updates.iter().map(of));
    }
    for flags in 0..16 {
        let label = |when: &str| format!("apex's novograd, flags {flags:04b}, {when}");
        let rule = &novograd(NovogradForm::Apex, flags);
        cases.push(case(&label("first"), rule, &few, Ask { steps: 0, ..ask }));
        cases.push(case(&label("later"), rule, &few, ask));
    }
    cases
}

/// NovoGrad with the flags of apex's form.
fn novograd(form: NovogradForm, flags: u32) -> Arc<dyn Rule> {
    let flag = |bit: u32| flags >> bit & 1 == 1;
    Arc::new(Novograd {
        form,
        beta2: 0.5,
        bias_correction: flag(0),
        reg_inside: flag(1),
        averaging: flag(2),
        init_zero: flag(3),
        ..Novograd::default()
    })
}

fn case(label: &str, rule: &Arc<dyn Rule>, parameters: &[Parameter], ask: Ask) -> OpCase {
    let tensors = |role: Option<Role>, seed: u32, scale: f32| -> Vec<HostTensor> {
        let tensor =
            |(i, p): (usize, &Parameter)| normal(role.unwrap_or(p.1), p.0, seed + i as u32, scale);
        parameters.iter().enumerate().map(tensor).collect()
    };
    let groups = parameters.iter().enumerate().map(|(i, p)| Group {
        weight_decay: if i % 2 == 0 { 1e-3 } else { 0.0 },
        lr_factor: if i % 3 == 0 { 2.0 } else { 1.0 },
        master: p.2,
        is_weight: i % 4 != 1,
    });
    let op = ParameterUpdate {
        rule: Arc::clone(rule),
        momentum: Momentum { factor: 0.9, nesterov: ask.nesterov },
        groups: groups.collect(),
        stats: ask.stats,
        average: ask.average,
    };
    let entry = rule.entry();
    let applied = if ask.apply { 1.0 } else { 0.0 };
    let control =
        Control { lr: 0.02, grad_factor: 0.5, applied, loss_scale: 2.0, warmup_cut: 0.003 };
    let mut inputs = tensors(Some(Role::WeightGradient), 1, 0.1);
    let square = |v: &f32| f64::from(*v) * f64::from(*v);
    let norm = |t: &HostTensor| t.as_f32().iter().map(square).sum::<f64>().sqrt() as f32;
    let norms: Vec<f32> = inputs.iter().map(norm).chain([1.0]).collect();
    if entry.needs_norms {
        inputs.push(HostTensor::f32(TensorDesc::new(Role::Scalar, &[norms.len()]), norms));
    }
    inputs.push(HostTensor::f32(Control::desc(), control.values().to_vec()));
    let masters = parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| p.2)
        .map(|(i, p)| uniform(Role::Master, p.0, 3000 + i as u32, -1.0, 1.0));
    let mut updates = tensors(None, 1000, 1.0);
    updates.append(&mut tensors(Some(Role::Master), 2000, 0.1));
    updates.extend(masters);
    if entry.number.is_some() {
        updates.push(uniform(Role::Scalar, &[parameters.len()], 4000, 0.1, 2.0));
    }
    if entry.second.is_some() {
        let second =
            |(i, p): (usize, &Parameter)| uniform(Role::Master, p.0, 5000 + i as u32, 0.001, 0.1);
        updates.extend(parameters.iter().enumerate().map(second));
    }
    if entry.steps.is_some() {
        updates.push(HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![ask.steps]));
    }
    if ask.average.is_some() {
        updates.append(&mut tensors(Some(Role::Master), 6000, 1.0));
        updates.push(HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![ask.steps]));
    }
    OpCase::new(label, op, inputs).updating(updates)
}
