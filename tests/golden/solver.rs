//! Golden families `optim`, `tv_optim` (AdamW, averages) and `lr_schedules`.

use std::sync::Arc;

use kernels::Role;
use kernels::cpu::HostTensor;
use kernels::on_cpu::{run, run_updating};
use kernels::ops::control_step::{Control, LrSchedule};
use kernels::ops::grad_norms::GradNorms;
use kernels::ops::parameter_update::{Average, ParameterUpdate};
use kernels::ops::rules::adamw::Adamw;
use kernels::ops::rules::lars::Lars;
use kernels::ops::rules::novograd::{Novograd, NovogradForm};
use kernels::ops::rules::sgd::Sgd;
use kernels::ops::rules::{Group, Momentum, Rule};

use crate::convert::{f32s, flag, floats, host, index, numbered, numbers};
use crate::formulas::{control_step, controls};
use crate::model_configs::{number, usizes};
use crate::support::{Case, Report, cases_of, each_case};

/// Difference between f32 and f64 after five steps: 1.6e-7 measured, with margin for different
/// rates and decays.
const SGD_TOLERANCE: f64 = 1e-6;
/// From the README of the golden data.
const LR_TOLERANCE: f64 = 1e-12;

/// A parameter group of weights, without weight decay.
const GROUP: Group = Group { weight_decay: 0.0, lr_factor: 1.0, master: false, is_weight: true };

#[test]
fn optimizer_matches_golden() {
    each_case("optim", SGD_TOLERANCE, |report, case| {
        let op = match case.name().split('_').next() {
            Some("sgd") => op(Sgd, momentum(case, flag(case, "nesterov"))),
            Some("novograd") => op(novograd_rule(case), NO_MOMENTUM),
            Some("lars") => {
                let rule = Lars { trust_coefficient: case.float("trust"), ..Lars::default() };
                op(rule, momentum(case, false))
            }
            _ => panic!("{}: an optimizer that we do not have", case.name()),
        };
        let tensors: Vec<usize> = (0..numbered(case, "w0_").len()).collect();
        let rates: Vec<[f32; 2]> = f32s(case, "lrs").into_iter().map(|rate| [rate, 1.0]).collect();
        let decay = case.float("weight_decay") as f32;
        let state = updates(report, case, op, (&tensors, decay), &rates);
        if case.name().starts_with("sgd") {
            let name = format!("buf{}", rates.len());
            compare(report, case, &name, &tensors, &state[tensors.len()..]);
        }
    });
}

const NO_MOMENTUM: Momentum = Momentum { factor: 0.0, nesterov: false };

fn momentum(case: Case<'_>, nesterov: bool) -> Momentum {
    Momentum { factor: case.float("momentum") as f32, nesterov }
}

/// An update op without parameter groups, which [`updates`] adds.
fn op(rule: impl Rule + 'static, momentum: Momentum) -> ParameterUpdate {
    let rule = Arc::new(rule);
    ParameterUpdate { rule, momentum, groups: vec![], stats: false, average: None }
}

fn novograd_rule(case: Case<'_>) -> Novograd {
    let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|name| case.float(name));
    let rule = Novograd { beta1, beta2, eps, ..Novograd::default() };
    match case.name() {
        "novograd_paper" => Novograd { form: NovogradForm::Paper, ..rule },
        _ => Novograd {
            bias_correction: flag(case, "bias_correction"),
            reg_inside: flag(case, "reg_inside"),
            averaging: flag(case, "averaging"),
            init_zero: flag(case, "init_zero"),
            ..rule
        },
    }
}

/// Updates tensors, all with adaptive rates, by their recorded gradients; each step has a rate and
/// a flag, which is 0 if the step is skipped. Returns the state after the last step.
fn updates(
    report: &mut Report,
    case: Case<'_>,
    op: ParameterUpdate,
    (tensors, weight_decay): (&[usize], f32),
    rates: &[[f32; 2]],
) -> Vec<HostTensor> {
    let n = tensors.len();
    let op = ParameterUpdate { groups: vec![Group { weight_decay, ..GROUP }; n], ..op };
    let entry = op.rule.entry();
    let read = |prefix: &str, role: Role| -> Vec<HostTensor> {
        tensors.iter().map(|i| host(role, &case.f32(&format!("{prefix}_{i}")))).collect()
    };
    let mut state = read("w0", Role::Master);
    let zeros = |w: &HostTensor| HostTensor::f32(w.desc.clone(), vec![0.0; w.desc.len()]);
    let kinds = 1 + usize::from(entry.second.is_some());
    let moments: Vec<_> = (0..kinds).flat_map(|_| state.iter().map(zeros)).collect();
    state.extend(moments);
    if entry.number.is_some() {
        state.push(floats(Role::Scalar, &[n], vec![0.0; n]));
    }
    if entry.steps.is_some() {
        state.push(index(&[1], vec![0]));
    }
    for (step, &[rate, applied]) in (1..).zip(rates) {
        let mut inputs = read(&format!("g{step}"), Role::WeightGradient);
        if entry.needs_norms {
            let norms = run(&GradNorms {}, &inputs);
            inputs.push(norms.unwrap_or_else(|e| panic!("{}: {e}", case.name()))[0].clone());
        }
        // No clipping, loss scale 1.
        let control = vec![rate, 1.0, applied, 1.0, 0.0];
        inputs.push(floats(Role::Scalar, &[Control::LEN], control));
        let ran = run_updating(&op, &inputs, &mut state);
        ran.unwrap_or_else(|e| panic!("{}: {e}", case.name()));
        compare(report, case, &format!("w{step}"), tensors, &state);
    }
    state
}

/// The largest error of torch's own f32 results is 5.2e-7 (tv_README).
const ADAMW_TOLERANCE: f64 = 1e-6;
/// The largest error of torch's own f32 results is 3e-7 (tv_README).
const EMA_TOLERANCE: f64 = 1e-6;

/// torch.optim's AdamW with a rate per group, schedules, and steps that are skipped because of
/// non-finite gradients; skipped steps do not count for bias correction.
#[test]
fn torchvision_adamw_matches_golden() {
    cases_of("tv_optim", "adamw_", ADAMW_TOLERANCE, |report, case| {
        let groups = case.attributes()["groups"].as_array().expect("a list");
        (0..groups.len()).for_each(|group| adamw_group(report, case, group));
    });
}

/// Compares one parameter group with a separate op, since the groups of an op share betas and eps.
fn adamw_group(report: &mut Report, case: Case<'_>, group: usize) {
    let attributes = case.attributes();
    let own = &attributes["groups"][group];
    let tensors = usizes(&own["tensors"]);
    let [beta1, beta2, eps, weight_decay] =
        ["beta1", "beta2", "eps", "weight_decay"].map(|name| number(own, name));
    let rates = attributes["lrs"].as_array().expect("a list").iter().enumerate();
    let rates = rates.map(|(step, rates)| {
        let applied = if attributes["skipped"][step] == 1 { 0.0 } else { 1.0 };
        [rates[group].as_f64().expect("a number") as f32, applied]
    });
    let rates: Vec<_> = rates.collect();
    let op = op(Adamw { beta1, beta2, eps }, NO_MOMENTUM);
    let state = updates(report, case, op, (&tensors, weight_decay as f32), &rates);
    if rates.len() == 10 {
        compare(report, case, "m10", &tensors, &state[tensors.len()..]);
        compare(report, case, "v10", &tensors, &state[2 * tensors.len()..]);
    }
}

/// Weight averages like torch's `AveragedModel`, whose first update copies, and ultralytics'
/// `ModelEMA`, which starts with a copy. The weights of each step are given; SGD with a rate of 0
/// does not change them.
#[test]
fn torchvision_ema_matches_golden() {
    cases_of("tv_optim", "ema_", EMA_TOLERANCE, |report, case| {
        let is_torch = case.name().starts_with("ema_torch_");
        let names = case.attributes()["names"].as_array().expect("a list").iter();
        // Without `use_buffers`, torch copies running statistics, since they are not parameters.
        let names = names.map(|name| name.as_str().expect("a name"));
        let names: Vec<&str> = names.filter(|name| !name.contains("running")).collect();
        let read = |what: &str| -> Vec<HostTensor> {
            names
                .iter()
                .map(|name| host(Role::Master, &case.f32(&format!("{what}/{name}"))))
                .collect()
        };
        let warmup = if is_torch { 0.0 } else { case.float("tau") };
        let average = Some(Average { decay: case.float("decay"), warmup });
        let n = names.len();
        let op = ParameterUpdate { groups: vec![GROUP; n], average, ..op(Sgd, NO_MOMENTUM) };
        let first = if is_torch { 1 } else { 0 };
        let mut averages = read(&format!("ema{first}"));
        let done = if is_torch { 1 } else { case.float("first_update") as i32 - 1 };
        let mut averaged = index(&[1], vec![done]);
        for update in first + 1..=case.float("updates") as usize {
            let weights = read(&format!("model{update}"));
            let zeros = |w: &HostTensor| HostTensor::f32(w.desc.clone(), vec![0.0; w.desc.len()]);
            let momenta: Vec<HostTensor> = weights.iter().map(zeros).collect();
            let mut inputs = momenta.clone();
            inputs.push(floats(Role::Scalar, &[Control::LEN], vec![0.0, 1.0, 1.0, 1.0, 0.0]));
            let state = [weights, momenta, averages, vec![averaged]];
            let mut state: Vec<HostTensor> = state.into_iter().flatten().collect();
            let ran = run_updating(&op, &inputs, &mut state);
            ran.unwrap_or_else(|e| panic!("{}: {e}", case.name()));
            averaged = state.pop().expect("the count");
            averages = state.split_off(2 * n);
            for (name, got) in names.iter().zip(&averages) {
                let name = format!("ema{update}/{name}");
                report.compare(case, &name, got.as_f32());
            }
        }
    });
}

fn compare(report: &mut Report, case: Case<'_>, what: &str, tensors: &[usize], got: &[HostTensor]) {
    for (i, got) in tensors.iter().zip(got) {
        let name = format!("{what}_{i}");
        report.compare(case, &name, got.as_f32());
    }
}

#[test]
fn lr_schedules_match_golden() {
    each_case("lr_schedules", LR_TOLERANCE, |report, case| {
        let schedule = schedule(case);
        let want = case.f64("lr_f64").data;
        let got: Vec<f64> = (0..want.len()).map(|step| schedule.at(step as u64)).collect();
        report.close(case.name(), "lr_f64", &got, &want);
        let want: Vec<f32> = want.iter().map(|&lr| lr as f32).collect();
        let op = control_step(&schedule);
        let got: Vec<f32> = controls(&op).map(|control| control.lr).take(want.len()).collect();
        // Allow one unit in the last place, since a difference of 1e-12 may change the rounding to
        // f32.
        for (step, (got, want)) in got.iter().zip(&want).enumerate() {
            let near = (got - want).abs() <= f32::EPSILON * want.abs();
            assert!(near, "golden lr_schedules: {}: step {step}: {got}, not {want}", case.name());
        }
    });
}

fn schedule(case: Case<'_>) -> LrSchedule {
    let (base, warmup_factor) = (case.float("base"), case.float("warmup_factor"));
    let warmup_steps = case.usize("warmup_iters") as u64;
    if case.attributes().get("milestones").is_none() {
        let (total_steps, min) = (case.usize("T") as u64, case.float("min_lr"));
        return LrSchedule::Cosine { base, warmup_steps, warmup_factor, total_steps, min };
    }
    let milestones = numbers(case, "milestones").into_iter().map(|m| m as u64).collect();
    let gamma = case.float("gamma");
    LrSchedule::Multistep { base, warmup_steps, warmup_factor, milestones, gamma }
}
