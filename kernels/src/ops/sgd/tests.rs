//! SGD by hand, against f64, and skipped steps.

use super::{Sgd, SgdGroup};
use crate::case::normal;
use crate::cpu::HostTensor;
use crate::on_cpu::run_updating;
use crate::ops::control_step::Control;
use crate::{Role, TensorDesc};

fn control(lr: f32, grad_factor: f32, applied: f32) -> HostTensor {
    let control = Control { lr, grad_factor, applied, loss_scale: 1.0, warmup_cut: 0.0 };
    HostTensor::f32(Control::desc(), control.values().to_vec())
}

fn master(values: &[f32]) -> HostTensor {
    HostTensor::f32(TensorDesc::new(Role::Master, &[values.len()]), values.to_vec())
}

fn sgd(nesterov: bool, groups: &[(f32, f32)]) -> Sgd {
    let group = |&(weight_decay, lr_factor): &(f32, f32)| {
        let master = false;
        SgdGroup { weight_decay, lr_factor, master }
    };
    Sgd { momentum: 0.5, nesterov, groups: groups.iter().map(group).collect(), stats: false }
}

/// First g = m = 2 * 3 + 0.5 * 4 = 8, so w = 4 - 0.25 * 8 = 2; then g = 7, m = 11, w = -0.75.
#[test]
fn two_steps_by_hand() {
    let op = sgd(false, &[(0.5, 0.25), (0.0, 1.0)]);
    let mut state = [master(&[4.0]), master(&[1.0]), master(&[0.0]), master(&[0.0])];
    let inputs = [master(&[3.0]), master(&[0.0]), control(1.0, 2.0, 1.0)];
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
    let mut state = [master(&[4.0]), master(&[0.0])];
    run_updating(&op, &[master(&[3.0]), control(1.0, 2.0, 1.0)], &mut state).expect("fits");
    assert_eq!((state[0].as_f32()[0], state[1].as_f32()[0]), (1.0, 8.0));
}

/// A chunk and its neighbours, five steps, against the same formula in f64.
#[test]
fn stays_near_f64_over_steps() {
    for len in [1, 16_383, 16_384, 16_385] {
        let desc = TensorDesc::new(Role::Master, &[len]);
        let mut state = [normal(&desc, 1, 1.0), master(&vec![0.0; len])];
        let mut w: Vec<f64> = state[0].as_f32().iter().map(|&v| f64::from(v)).collect();
        let mut m = vec![0.0f64; len];
        let op = sgd(true, &[(0.1, 2.0)]);
        for step in 0..5 {
            let grad = normal(&desc, 10 + step, 1.0);
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
    let mut state =
        [master(&[1.0]), master(&[9.0]), master(&[0.0]), master(&[0.0]), master(&[4.0])];
    let inputs = [master(&[1.0]), master(&[3.0]), control(1.0, 2.0, 1.0)];
    run_updating(&op, &inputs, &mut state).expect("fits");
    let values: Vec<f32> = state.iter().map(|t| t.as_f32()[0]).collect();
    assert_eq!(values, [-1.0, 2.0, 2.0, 8.0, 2.0]);
    state[4].desc.role = Role::Weight;
    assert!(run_updating(&op, &inputs, &mut state).is_err(), "a master in fp16 is none");
    assert!(run_updating(&op, &inputs, &mut state[..4]).is_err(), "the master is missing");
}

/// Gradients that are not finite touch nothing when the step is skipped.
#[test]
fn a_skipped_step_changes_no_bit() {
    let op = sgd(false, &[(0.1, 1.0)]);
    let mut state = [master(&[4.0, -0.0]), master(&[1.0, -0.0])];
    let before = state.clone();
    let inputs = [master(&[f32::NAN, f32::INFINITY]), control(f32::NAN, f32::NAN, 0.0)];
    run_updating(&op, &inputs, &mut state).expect("fits");
    for (a, b) in state.iter().zip(&before) {
        assert_eq!(a.bytes(), b.bytes());
    }
}
