//! Cases of `parameter_update` for the table of ops.

use super::{Adamw, Average, Group, Lars, Novograd, NovogradForm, ParameterUpdate, Rule, Sgd};
use crate::Role;
use crate::case::{OpCase, constant, floats, normal, uniform};
use crate::cpu::HostTensor;
use crate::ops::control_step::Control;

/// A parameter: its shape, the role of the weight, and whether it has a master.
type Parameter = (&'static [usize], Role, bool);

const KINDS: [(Role, bool); 4] =
    [(Role::Master, false), (Role::Weight, true), (Role::Weight, false), (Role::Master, true)];

/// Options of a case.
#[derive(Clone, Copy)]
struct Ask {
    apply: bool,
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
    let ask = Ask { apply: true, stats: false, average: None, steps: 3 };
    let with_stats = Ask { stats: true, ..ask };
    let skipped_with_stats = Ask { apply: false, ..with_stats };
    let (paper, apex) = (novograd(NovogradForm::Paper), novograd(form(0b0101)));
    let averaged = Ask { average: Some(Average { decay: 0.999, warmup: 20.0 }), ..ask };
    let mut cases = vec![
        case("sgd, no parameters", sgd(false), &[], ask),
        case("sgd, each kind", sgd(false), &kinds, ask),
        case("nesterov, each kind", sgd(true), &kinds, ask),
        case("sgd, skipped", sgd(false), &kinds, Ask { apply: false, ..ask }),
        case("sgd, 131 parameters", sgd(false), &many, ask),
        case("sgd, a bottleneck of res4", sgd(false), &block, ask),
        case("sgd, each kind, with statistics", sgd(false), &kinds, with_stats),
        case("sgd, skipped, with statistics", sgd(false), &kinds, skipped_with_stats),
        case("sgd, 131 parameters, with statistics", sgd(false), &many, with_stats),
        case("lars, no parameters", lars(), &[], ask),
        case("lars, each kind", lars(), &kinds, ask),
        case("lars, skipped", lars(), &kinds, Ask { apply: false, ..ask }),
        case("lars, 131 parameters, with statistics", lars(), &many, with_stats),
        case("novograd, each kind", paper, &kinds, ask),
        case("novograd, each kind, first", paper, &kinds, Ask { steps: 0, ..ask }),
        case("novograd, skipped", apex, &kinds, skipped_with_stats),
        case("novograd, 131 parameters", apex, &many, Ask { steps: 100_000, ..ask }),
        case("novograd, a bottleneck of res4", apex, &block, with_stats),
        case("lars, a bottleneck of res4", lars(), &block, ask),
        case("adamw, each kind", adamw(), &kinds, ask),
        case("adamw, each kind, first", adamw(), &kinds, Ask { steps: 0, ..ask }),
        case("adamw, skipped", adamw(), &kinds, Ask { apply: false, ..ask }),
        case("adamw, skipped, with statistics", adamw(), &kinds, skipped_with_stats),
        case("adamw, 131 parameters", adamw(), &many, Ask { steps: 100_000, ..with_stats }),
        case("adamw, a bottleneck of res4", adamw(), &block, ask),
        case("sgd, each kind, averaged", sgd(false), &wide, averaged),
        case("sgd, skipped, not averaged", sgd(false), &wide, Ask { apply: false, ..averaged }),
        case(
            "adamw, 131 parameters, averaged",
            adamw(),
            &many_wide,
            Ask { stats: true, ..averaged },
        ),
        case("sgd, a bottleneck of res4, averaged", sgd(false), &block, averaged),
    ];
    for flags in 0..16 {
        let label = |when: &str| format!("apex's novograd, flags {flags:04b}, {when}");
        let rule = novograd(form(flags));
        cases.push(case(&label("first"), rule, &few, Ask { steps: 0, ..ask }));
        cases.push(case(&label("later"), rule, &few, ask));
    }
    cases
}

fn sgd(nesterov: bool) -> Rule {
    Rule::Sgd(Sgd { momentum: 0.9, nesterov })
}

fn lars() -> Rule {
    Rule::Lars(Lars { momentum: 0.9, trust: 0.02 })
}

fn adamw() -> Rule {
    Rule::Adamw(Adamw { beta1: 0.9, beta2: 0.999, eps: 1e-8 })
}

fn novograd(form: NovogradForm) -> Rule {
    Rule::Novograd(Novograd { beta1: 0.95, beta2: 0.5, eps: 1e-8, form })
}

/// Apex's form with these flags.
fn form(flags: u32) -> NovogradForm {
    let flag = |bit: u32| flags >> bit & 1 == 1;
    NovogradForm::Apex {
        bias_correction: flag(0),
        reg_inside: flag(1),
        averaging: flag(2),
        init_zero: flag(3),
    }
}

fn case(label: &str, rule: Rule, parameters: &[Parameter], ask: Ask) -> OpCase {
    let tensors = |role: Option<Role>, seed: u32, scale: f32| -> Vec<HostTensor> {
        let tensor =
            |(i, p): (usize, &Parameter)| normal(role.unwrap_or(p.1), p.0, seed + i as u32, scale);
        parameters.iter().enumerate().map(tensor).collect()
    };
    let groups = parameters.iter().enumerate().map(|(i, p)| Group {
        weight_decay: if i % 2 == 0 { 1e-3 } else { 0.0 },
        lr_factor: if i % 3 == 0 { 2.0 } else { 1.0 },
        master: p.2,
        adapts: i % 4 != 1,
    });
    let op =
        ParameterUpdate { rule, groups: groups.collect(), stats: ask.stats, average: ask.average };
    let applied = if ask.apply { 1.0 } else { 0.0 };
    let control =
        Control { lr: 0.02, grad_factor: 0.5, applied, loss_scale: 2.0, warmup_cut: 0.003 };
    let mut inputs = tensors(Some(Role::WeightGradient), 1, 0.1);
    let square = |v: &f32| f64::from(*v) * f64::from(*v);
    let norm = |t: &HostTensor| t.as_f32().iter().map(square).sum::<f64>().sqrt() as f32;
    let norms: Vec<f32> = inputs.iter().map(norm).chain([1.0]).collect();
    if rule.needs_norms() {
        inputs.push(floats(Role::Scalar, &[norms.len()], norms));
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
    if rule.has_averages() {
        updates.push(uniform(Role::Scalar, &[parameters.len()], 4000, 0.1, 2.0));
    }
    if rule.has_second_moments() {
        let second =
            |(i, p): (usize, &Parameter)| uniform(Role::Master, p.0, 5000 + i as u32, 0.001, 0.1);
        updates.extend(parameters.iter().enumerate().map(second));
    }
    if rule.counts_updates() {
        updates.push(constant(&[1], ask.steps));
    }
    if ask.average.is_some() {
        updates.append(&mut tensors(Some(Role::Master), 6000, 1.0));
        updates.push(constant(&[1], ask.steps));
    }
    OpCase::new(label, op, inputs).updating(updates)
}
