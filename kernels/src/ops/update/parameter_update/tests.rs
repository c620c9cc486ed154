//! SGD by hand and against f64, NovoGrad and LARS by hand, zeros, masters, and skipped steps.

use std::sync::Arc;

use super::ParameterUpdate;
use crate::case::normal;
use crate::cpu::HostTensor;
use crate::on_cpu::run_updating;
use crate::ops::control_step::Control;
use crate::ops::rules::lars::Lars;
use crate::ops::rules::novograd::{Novograd, NovogradForm};
use crate::ops::rules::sgd::Sgd;
use crate::ops::rules::{Group, Momentum, Rule};
use crate::{Role, TensorDesc};

const GROUP: Group = Group { weight_decay: 0.5, lr_factor: 2.0, master: false, is_weight: true };

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

/// SGD of parameters with these weight decays and rates.
fn sgd(nesterov: bool, groups: &[(f32, f32)]) -> ParameterUpdate {
    let group =
        |&(weight_decay, lr_factor): &(f32, f32)| Group { weight_decay, lr_factor, ..GROUP };
    let momentum = Momentum { factor: 0.5, nesterov };
    ParameterUpdate { momentum, groups: groups.iter().map(group).collect(), ..op(Sgd, GROUP) }
}

/// First g = m = 2 * 3 + 0.5 * 4 = 8, so w = 4 - 0.25 * 8 = 2; then g = 7, m = 11, w = -0.75.
#[test]
fn two_steps_by_hand() {
    let op = sgd(false, &[(0.5, 0.25), (0.0, 1.0)]);
    let mut state = [f32s(&[4.0]), f32s(&[1.0]), f32s(&[0.0]), f32s(&[0.0])];
    let inputs = [f32s(&[3.0]), f32s(&[0.0]), control(1.0, 2.0, 1.0)];
    run_updating(&op, &inputs, &mut state).expect("fits");
    assert_eq!((state[0].as_f32()[0], state[2].as_f32()[0]), (2.0, 8.0));
    run_updating(&op, &inputs, &mut state).expect("fits");
    assert_eq!((state[0].as_f32()[0], state[2].as_f32()[0]), (-0.75, 11.0));
    assert_eq!((state[1].as_f32()[0], state[3].as_f32()[0]), (1.0, 0.0));
}

/// m = g = 8; the update looks ahead: 8 + 0.5 * 8 = 12.
#[test]
fn nesterov_by_hand() {
    let op = sgd(true, &[(0.5, 0.25)]);
    let mut state = [f32s(&[4.0]), f32s(&[0.0])];
    run_updating(&op, &[f32s(&[3.0]), control(1.0, 2.0, 1.0)], &mut state).expect("fits");
    assert_eq!((state[0].as_f32()[0], state[1].as_f32()[0]), (1.0, 8.0));
}

/// A chunk and its neighbours, five steps, against the same formula in f64.
#[test]
fn stays_near_f64_over_steps() {
    for len in [1, 16_383, 16_384, 16_385] {
        let mut state = [normal(Role::Master, &[len], 1, 1.0), f32s(&vec![0.0; len])];
        let mut w: Vec<f64> = state[0].as_f32().iter().map(|&v| f64::from(v)).collect();
        let mut m = vec![0.0f64; len];
        let op = sgd(true, &[(0.1, 2.0)]);
        for step in 0..5 {
            let grad = normal(Role::Master, &[len], 10 + step, 1.0);
            for ((w, m), &g) in w.iter_mut().zip(&mut m).zip(grad.as_f32()) {
                let g = f64::from(g) + f64::from(0.1f32) * *w;
                *m = 0.5 * *m + g;
                *w -= f64::from(0.01f32) * 2.0 * (g + 0.5 * *m);
            }
            run_updating(&op, &[grad, control(0.01, 1.0, 1.0)], &mut state).expect("fits");
        }
        for (a, b) in state[0].as_f32().iter().zip(&w) {
            assert!((f64::from(*a) - b).abs() < 1e-6, "{a} {b}");
        }
    }
}

/// The update starts from the master, whatever the weight held, and the weight becomes its copy.
#[test]
fn a_weight_copies_its_master() {
    let mut op = sgd(false, &[(0.0, 1.0), (0.5, 0.25)]);
    op.groups[1].master = true;
    let mut state = [f32s(&[1.0]), f32s(&[9.0]), f32s(&[0.0]), f32s(&[0.0]), f32s(&[4.0])];
    let inputs = [f32s(&[1.0]), f32s(&[3.0]), control(1.0, 2.0, 1.0)];
    run_updating(&op, &inputs, &mut state).expect("fits");
    let values: Vec<f32> = state.iter().map(|t| t.as_f32()[0]).collect();
    assert_eq!(values, [-1.0, 2.0, 2.0, 8.0, 2.0]);
    state[4].desc.role = Role::Weight;
    assert!(run_updating(&op, &inputs, &mut state).is_err(), "a master in fp16 is none");
    assert!(run_updating(&op, &inputs, &mut state[..4]).is_err(), "the master is missing");
}

fn paper() -> Novograd {
    let form = NovogradForm::Paper;
    Novograd { beta1: 0.5, beta2: 0.75, eps: 0.0, form, ..Novograd::default() }
}

fn novograd_state(w: &[f32]) -> Vec<HostTensor> {
    let steps = HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![0]);
    let zeros = vec![0.0; w.len()];
    vec![tensor(Role::Master, w), tensor(Role::Master, &zeros), tensor(Role::Scalar, &[7.0]), steps]
}

/// Gradients (6, 8), halved, have norm 5: m = (0.6, 0.8) + 0.5 w = (1.6, 2.8) and the rate is 0.5.
/// Then zeros: v = 0.75 * 25, m = 0.5 m + 0.5 w.
#[test]
fn the_papers_novograd_by_hand() {
    let mut state = novograd_state(&[2.0, 4.0]);
    let op = op(paper(), GROUP);
    run_updating(&op, &inputs(&[6.0, 8.0], 0.5, 1.0), &mut state).expect("fits");
    assert_eq!(state[0].as_f32(), [1.2, 2.6]);
    assert_eq!(state[1].as_f32(), [1.6, 2.8]);
    assert_eq!((state[2].as_f32()[0], state[3].as_i32()[0]), (5.0, 1));
    run_updating(&op, &inputs(&[0.0, 0.0], 0.5, 1.0), &mut state).expect("fits");
    for (m, expected) in state[1].as_f32().iter().zip([1.4, 2.7]) {
        assert!((m - expected).abs() < 1e-6, "{m} {expected}");
    }
    assert_eq!(state[2].as_f32()[0], (0.75f32 * 25.0).sqrt());
    assert_eq!(state[3].as_i32()[0], 2);
}

/// A first gradient of zeros, without eps, divides nothing.
#[test]
fn zeros_stay_finite() {
    let mut state = novograd_state(&[2.0, 4.0]);
    run_updating(&op(paper(), GROUP), &inputs(&[0.0, 0.0], 1.0, 1.0), &mut state).expect("fits");
    assert_eq!(state[1].as_f32(), [1.0, 2.0]);
    assert_eq!(state[0].as_f32(), [1.5, 3.0]);
    let mut state = [tensor(Role::Master, &[0.0]), tensor(Role::Master, &[0.0])];
    run_updating(&op(LARS, GROUP), &inputs(&[3.0], 1.0, 1.0), &mut state).expect("fits");
    assert_eq!(state[0].as_f32(), [-1.5], "a bias of 0 takes the plain rate of 0.5");
}

/// |w| = 5, |g| = 10: local = 0.1 * 5 / (10 + 0.5 * 5) = 0.04, and the rate is 0.5; the momentum
/// holds the rate.
#[test]
fn lars_by_hand() {
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

/// Gradients that are not finite touch nothing when the step is skipped; their statistics show.
#[test]
fn a_skipped_step_changes_no_bit() {
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

/// NovoGrad without its state, and a master in fp16, are refused.
#[test]
fn state_that_is_missing_is_refused() {
    let mut state = novograd_state(&[3.0]);
    let inputs = inputs(&[1.0], 1.0, 1.0);
    assert!(run_updating(&op(paper(), GROUP), &inputs, &mut state[..2]).is_err());
    let with_master = Group { master: true, ..GROUP };
    state.insert(2, tensor(Role::Weight, &[3.0]));
    assert!(run_updating(&op(paper(), with_master), &inputs, &mut state).is_err());
}
