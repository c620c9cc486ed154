//! Test and benchmark cases of `parameter_update`.

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

/// A parameter: its shape, the role of the weight, and whether it has an fp32 master weight.
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
    /// Number of earlier updates.
    steps: i32,
}

/// All optimizers, and both forms of NovoGrad; first and later updates; sizes 0, 1, prime numbers
/// and near the block size for each kind of parameter; a skipped step; more parameters than a
/// launch supports; a bottleneck of res4.
pub fn cases() -> Vec<OpCase> {
    let sizes: [&[usize]; 8] = [&[0], &[1], &[5, 7, 11], &[13], &[4095], &[4096], &[4097], &[9001]];
    let each = |(role, master)| sizes.map(|shape| (shape, role, master)).to_vec();
    let kinds: Vec<Parameter> = KINDS.into_iter().flat_map(each).collect();
    let few: Vec<Parameter> = kinds.iter().copied().step_by(5).collect();
    let many: Vec<Parameter> = kinds.iter().cycle().take(131).copied().collect();
    // On a device only f32 values can be averaged: a master weight, or a weight that is not fp16.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_cpu::run_updating;

    const GROUP: Group =
        Group { weight_decay: 0.5, lr_factor: 2.0, master: false, is_weight: true };

    const LARS: Lars = Lars { trust_coefficient: 0.1, adapts_vectors: false };

    fn tensor(role: Role, values: &[f32]) -> HostTensor {
        HostTensor::f32(TensorDesc::new(role, &[values.len()]), values.to_vec())
    }

    fn inputs(grad: &[f32], grad_factor: f32, applied: f32) -> Vec<HostTensor> {
        let norm = grad.iter().map(|g| g * g).sum::<f32>().sqrt();
        let control = control(0.25, grad_factor, applied);
        vec![tensor(Role::WeightGradient, grad), tensor(Role::Scalar, &[norm, norm]), control]
    }

    fn op(rule: impl Rule + 'static, group: Group) -> ParameterUpdate {
        let momentum = Momentum { factor: 0.5, nesterov: false };
        let groups = vec![group];
        ParameterUpdate { rule: Arc::new(rule), momentum, groups, stats: false, average: None }
    }

    fn f32s(values: &[f32]) -> HostTensor {
        tensor(Role::Master, values)
    }

    fn control(lr: f32, grad_factor: f32, applied: f32) -> HostTensor {
        let (loss_scale, warmup_cut) = (1.0, 0.0);
        let control = Control { lr, grad_factor, applied, loss_scale, warmup_cut };
        HostTensor::f32(Control::desc(), control.values().to_vec())
    }

    /// SGD of parameters with these weight decays and learning rates.
    fn sgd(nesterov: bool, groups: &[(f32, f32)]) -> ParameterUpdate {
        let group =
            |&(weight_decay, lr_factor): &(f32, f32)| Group { weight_decay, lr_factor, ..GROUP };
        let momentum = Momentum { factor: 0.5, nesterov };
        ParameterUpdate { momentum, groups: groups.iter().map(group).collect(), ..op(Sgd, GROUP) }
    }

    /// First g = m = 2 * 3 + 0.5 * 4 = 8, so w = 4 - 0.25 * 8 = 2; then g = 7, m = 11, w = -0.75.
    #[test]
    fn two_sgd_steps_match_hand_computed_values() {
        let op = sgd(false, &[(0.5, 0.25), (0.0, 1.0)]);
        let mut state = [f32s(&[4.0]), f32s(&[1.0]), f32s(&[0.0]), f32s(&[0.0])];
        let inputs = [f32s(&[3.0]), f32s(&[0.0]), control(1.0, 2.0, 1.0)];
        run_updating(&op, &inputs, &mut state).expect("fits");
        assert_eq!((state[0].as_f32()[0], state[2].as_f32()[0]), (2.0, 8.0));
        run_updating(&op, &inputs, &mut state).expect("fits");
        assert_eq!((state[0].as_f32()[0], state[2].as_f32()[0]), (-0.75, 11.0));
        assert_eq!((state[1].as_f32()[0], state[3].as_f32()[0]), (1.0, 0.0));
    }

    /// The update starts from the master weight, regardless of the old fp16 weight, and the fp16
    /// weight becomes its copy.
    #[test]
    fn fp16_weight_copies_master_weight() {
        let mut op = sgd(false, &[(0.0, 1.0), (0.5, 0.25)]);
        op.groups[1].master = true;
        let mut state = [f32s(&[1.0]), f32s(&[9.0]), f32s(&[0.0]), f32s(&[0.0]), f32s(&[4.0])];
        let inputs = [f32s(&[1.0]), f32s(&[3.0]), control(1.0, 2.0, 1.0)];
        run_updating(&op, &inputs, &mut state).expect("fits");
        let values: Vec<f32> = state.iter().map(|t| t.as_f32()[0]).collect();
        assert_eq!(values, [-1.0, 2.0, 2.0, 8.0, 2.0]);
        state[4].desc.role = Role::Weight;
        assert!(run_updating(&op, &inputs, &mut state).is_err(), "an fp16 master is accepted");
        assert!(run_updating(&op, &inputs, &mut state[..4]).is_err(), "the master is missing");
    }

    fn paper() -> Novograd {
        let form = NovogradForm::Paper;
        Novograd { beta1: 0.5, beta2: 0.75, eps: 0.0, form, ..Novograd::default() }
    }

    fn novograd_state(w: &[f32]) -> Vec<HostTensor> {
        let steps = HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![0]);
        let zeros = vec![0.0; w.len()];
        vec![
            tensor(Role::Master, w),
            tensor(Role::Master, &zeros),
            tensor(Role::Scalar, &[7.0]),
            steps,
        ]
    }

    /// Neither a first gradient of zeros, without eps, nor a zero weight causes a division by 0.
    #[test]
    fn zero_gradient_or_weight_gives_finite_update() {
        let mut state = novograd_state(&[2.0, 4.0]);
        run_updating(&op(paper(), GROUP), &inputs(&[0.0, 0.0], 1.0, 1.0), &mut state)
            .expect("fits");
        assert_eq!(state[1].as_f32(), [1.0, 2.0]);
        assert_eq!(state[0].as_f32(), [1.5, 3.0]);
        let mut state = [tensor(Role::Master, &[0.0]), tensor(Role::Master, &[0.0])];
        run_updating(&op(LARS, GROUP), &inputs(&[3.0], 1.0, 1.0), &mut state).expect("fits");
        assert_eq!(state[0].as_f32(), [-1.5], "a bias of 0 takes the plain rate of 0.5");
    }

    /// |w| = 5, |g| = 10: local = 0.1 * 5 / (10 + 0.5 * 5) = 0.04, and the rate is 0.5; the
    /// momentum includes the rate.
    #[test]
    fn lars_step_matches_hand_computed_values() {
        let start = || vec![tensor(Role::Master, &[3.0, 4.0]), tensor(Role::Master, &[1.0, 0.0])];
        let mut state = start();
        run_updating(&op(LARS, GROUP), &inputs(&[6.0, 8.0], 1.0, 1.0), &mut state).expect("fits");
        let near = |got: &[f32], want: [f32; 2]| {
            let close = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(close, "{got:?} {want:?}");
        };
        near(state[1].as_f32(), [0.5 + 0.02 * 7.5, 0.02 * 10.0]);
        near(state[0].as_f32(), [3.0 - 0.65, 4.0 - 0.2]);
        let mut state = start();
        let plain = Group { is_weight: false, ..GROUP };
        run_updating(&op(LARS, plain), &inputs(&[6.0, 8.0], 1.0, 1.0), &mut state).expect("fits");
        near(state[1].as_f32(), [0.5 + 0.5 * 7.5, 0.5 * 10.0]);
    }

    /// Non-finite gradients do not change the state when the step is skipped, but appear in the
    /// statistics.
    #[test]
    fn skipped_step_changes_nothing() {
        let mut state = [f32s(&[4.0, -0.0]), f32s(&[1.0, -0.0])];
        let before = state.clone();
        let mut skipped = inputs(&[f32::NAN, f32::INFINITY], f32::NAN, 0.0);
        skipped.remove(1);
        run_updating(&sgd(false, &[(0.1, 1.0)]), &skipped, &mut state).expect("fits");
        assert!(state.iter().zip(&before).all(|(a, b)| a.bytes() == b.bytes()));
        let mut state = novograd_state(&[3.0, -4.0]);
        let before = state.clone();
        let op = ParameterUpdate { stats: true, ..op(paper(), GROUP) };
        let inputs = inputs(&[f32::NAN, 1.0], f32::NAN, 0.0);
        let stats = run_updating(&op, &inputs, &mut state).expect("fits");
        for (a, b) in state.iter().zip(&before) {
            assert_eq!(a.bytes(), b.bytes());
        }
        assert_eq!(stats[0].as_f32()[..2], [-0.5, 5.0]);
        assert!(stats[0].as_f32()[2].is_nan());
    }

    /// NovoGrad without its state, and an fp16 master weight, are rejected.
    #[test]
    fn missing_optimizer_state_is_rejected() {
        let mut state = novograd_state(&[3.0]);
        let inputs = inputs(&[1.0], 1.0, 1.0);
        assert!(run_updating(&op(paper(), GROUP), &inputs, &mut state[..2]).is_err());
        let with_master = Group { master: true, ..GROUP };
        state.insert(2, tensor(Role::Weight, &[3.0]));
        assert!(run_updating(&op(paper(), with_master), &inputs, &mut state).is_err());
    }
}
