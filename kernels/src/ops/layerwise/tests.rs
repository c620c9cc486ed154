//! NovoGrad and LARS by hand, zeros, and skipped steps.

use super::{Lars, LayerGroup, LayerRule, Layerwise, Novograd, NovogradForm};
use crate::cpu::HostTensor;
use crate::on_cpu::run_updating;
use crate::ops::control_step::Control;
use crate::{Role, TensorDesc};

const GROUP: LayerGroup =
    LayerGroup { weight_decay: 0.5, lr_factor: 2.0, master: false, adapts: true };

fn tensor(role: Role, values: &[f32]) -> HostTensor {
    HostTensor::f32(TensorDesc::new(role, &[values.len()]), values.to_vec())
}

fn inputs(grad: &[f32], grad_factor: f32, applied: f32) -> Vec<HostTensor> {
    let norm = grad.iter().map(|g| g * g).sum::<f32>().sqrt();
    let control = Control { lr: 0.25, grad_factor, applied, loss_scale: 1.0, warmup_cut: 0.0 };
    vec![
        tensor(Role::WeightGradient, grad),
        tensor(Role::Scalar, &[norm, norm]),
        HostTensor::f32(Control::desc(), control.values().to_vec()),
    ]
}

fn op(rule: LayerRule, group: LayerGroup) -> Layerwise {
    Layerwise { rule, groups: vec![group], stats: false }
}

fn paper() -> LayerRule {
    let form = NovogradForm::Paper;
    LayerRule::Novograd(Novograd { beta1: 0.5, beta2: 0.75, eps: 0.0, form })
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
    let lars = LayerRule::Lars(Lars { momentum: 0.5, trust: 0.1 });
    let mut state = [tensor(Role::Master, &[0.0]), tensor(Role::Master, &[0.0])];
    run_updating(&op(lars, GROUP), &inputs(&[3.0], 1.0, 1.0), &mut state).expect("fits");
    assert_eq!(state[0].as_f32(), [-1.5], "a bias of 0 takes the plain rate of 0.5");
}

/// |w| = 5, |g| = 10: local = 0.1 * 5 / (10 + 0.5 * 5) = 0.04, and the rate is 0.5; the momentum
/// holds the rate.
#[test]
fn lars_by_hand() {
    let lars = LayerRule::Lars(Lars { momentum: 0.5, trust: 0.1 });
    let start = || vec![tensor(Role::Master, &[3.0, 4.0]), tensor(Role::Master, &[1.0, 0.0])];
    let mut state = start();
    run_updating(&op(lars, GROUP), &inputs(&[6.0, 8.0], 1.0, 1.0), &mut state).expect("fits");
    let near = |got: &[f32], want: [f32; 2]| {
        let close = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close, "{got:?} {want:?}");
    };
    near(state[1].as_f32(), [0.5 + 0.02 * 7.5, 0.02 * 10.0]);
    near(state[0].as_f32(), [3.0 - 0.65, 4.0 - 0.2]);
    let mut state = start();
    let plain = LayerGroup { adapts: false, ..GROUP };
    run_updating(&op(lars, plain), &inputs(&[6.0, 8.0], 1.0, 1.0), &mut state).expect("fits");
    near(state[1].as_f32(), [0.5 + 0.5 * 7.5, 0.5 * 10.0]);
}

/// Gradients that are not finite touch nothing when the step is skipped; their statistics show.
#[test]
fn a_skipped_step_changes_no_bit() {
    let mut state = novograd_state(&[3.0, -4.0]);
    let before = state.clone();
    let op = Layerwise { stats: true, ..op(paper(), GROUP) };
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
    let with_master = LayerGroup { master: true, ..GROUP };
    state.insert(2, tensor(Role::Weight, &[3.0]));
    assert!(run_updating(&op(paper(), with_master), &inputs, &mut state).is_err());
}
