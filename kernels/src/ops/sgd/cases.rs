//! Cases of `sgd` for the table of ops.

use std::sync::Arc;

use super::{Sgd, SgdGroup};
use crate::case::{OpCase, normal, uniform};
use crate::cpu::HostTensor;
use crate::ops::control_step::Control;
use crate::{Role, TensorDesc};

/// A parameter: its shape, the role of the weight, and whether it has a master.
type Parameter = (&'static [usize], Role, bool);

const KINDS: [(Role, bool); 4] =
    [(Role::Master, false), (Role::Weight, true), (Role::Weight, false), (Role::Master, true)];

/// Sizes 0, 1, primes, a block and its neighbours in each kind of parameter; a skipped step; more
/// parameters than a launch takes; and a bottleneck of res4.
pub fn cases() -> Vec<OpCase> {
    let sizes: [&[usize]; 8] = [&[0], &[1], &[5, 7, 11], &[13], &[4095], &[4096], &[4097], &[9001]];
    let each = |(role, master)| sizes.map(|shape| (shape, role, master)).to_vec();
    let of_kinds: Vec<Parameter> = KINDS.into_iter().flat_map(each).collect();
    let weight = |shape: &'static [usize]| (shape, Role::Weight, true);
    let block: [Parameter; 6] = [
        weight(&[256, 1, 1, 1024]),
        (&[256], Role::Master, false),
        weight(&[256, 3, 3, 256]),
        (&[256], Role::Master, false),
        weight(&[1024, 1, 1, 256]),
        (&[1024], Role::Master, false),
    ];
    let many: Vec<Parameter> = of_kinds.iter().cycle().take(131).copied().collect();
    vec![
        case("no parameters", &[], true, false),
        case("each kind", &of_kinds, true, false),
        case("each kind, nesterov", &of_kinds, true, true),
        case("each kind, skipped", &of_kinds, false, false),
        case("131 parameters", &many, true, false),
        case("a bottleneck of res4", &block, true, false),
        of("each kind, with statistics", &of_kinds, true, false, true),
        of("each kind, skipped, with statistics", &of_kinds, false, false, true),
        of("131 parameters, with statistics", &many, true, false, true),
    ]
}

fn case(label: &str, parameters: &[Parameter], apply: bool, nesterov: bool) -> OpCase {
    of(label, parameters, apply, nesterov, false)
}

fn of(label: &str, parameters: &[Parameter], apply: bool, nesterov: bool, stats: bool) -> OpCase {
    let tensors = |role: Option<Role>, seed: u32, scale: f32| -> Vec<HostTensor> {
        let tensor = |(i, p): (usize, &Parameter)| {
            normal(&TensorDesc::new(role.unwrap_or(p.1), p.0), seed + i as u32, scale)
        };
        parameters.iter().enumerate().map(tensor).collect()
    };
    let groups = parameters.iter().enumerate().map(|(i, p)| SgdGroup {
        weight_decay: if i % 2 == 0 { 1e-4 } else { 0.0 },
        lr_factor: if i % 3 == 0 { 2.0 } else { 1.0 },
        master: p.2,
    });
    let op = Sgd { momentum: 0.9, nesterov, groups: groups.collect(), stats };
    let applied = if apply { 1.0 } else { 0.0 };
    let control =
        Control { lr: 0.02, grad_factor: 0.5, applied, loss_scale: 2.0, warmup_cut: 0.007 };
    let mut inputs = tensors(Some(Role::WeightGradient), 1, 0.1);
    inputs.push(HostTensor::f32(Control::desc(), control.values().to_vec()));
    let masters = parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| p.2)
        .map(|(i, p)| uniform(&TensorDesc::new(Role::Master, p.0), 3000 + i as u32, -1.0, 1.0));
    let mut updates = tensors(None, 1000, 1.0);
    updates.append(&mut tensors(Some(Role::Master), 2000, 0.1));
    updates.extend(masters);
    OpCase::new(label, Arc::new(op), inputs).updating(updates)
}
