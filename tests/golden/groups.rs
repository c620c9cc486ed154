//! Layer-wise learning rates of `tv_optim`, expressed as parameter groups in a config.

use engine::config::Config;
use engine::model::{group_of, training_program};

use crate::models::spec;
use crate::support::{Case, Report, cases_of};

/// Rounding error: the config stores learning rate factors and weight decays in f32.
const TOLERANCE: f64 = 1e-7;

/// With learning rates that decrease from the heads to the stem, and no weight decay of biases, the
/// config's groups give each trained parameter the same values as torch's parameter groups.
#[test]
fn torchvision_layerwise_lr_matches_golden() {
    cases_of("tv_optim", "layerwise_lr_", TOLERANCE, |report, case| {
        layers(report, case);
    });
}

fn layers(report: &mut Report, case: Case<'_>) {
    let (decay, layers) = (case.float("decay"), case.usize("num_layers"));
    let group = |pattern: &str, id: usize| {
        let factor = decay.powi((layers + 1 - id) as i32);
        format!("{{match = 'backbone.body.{pattern}.*', lr_factor = {factor}}}")
    };
    let stages = (1..=layers).map(|id| group(&format!("layer{id}"), id));
    let groups: Vec<_> = [group("conv1", 0)].into_iter().chain(stages).collect();
    let no_decay = "{match = '*.bias', weight_decay = 0}";
    let config = Config::load(
        "torchvision_r50",
        &[
            format!("solver.groups=[{}, {no_decay}]", groups.join(", ")),
            format!("solver.learning_rate={}", case.float("base_lr")),
            format!("solver.weight_decay={}", case.float("weight_decay")),
            "model.backbone.frozen_stages=0".into(),
        ],
    );
    let config = config.expect("a config");
    let params =
        training_program(&spec(&config, 90, 1, [64; 2])).expect("torchvision_r50 is sound").params;
    let names = case.attributes()["names"].as_array().expect("a list");
    let [rates, decays] = ["lr_f64", "weight_decay_f64"].map(|name| case.f64(name).data);
    let mut compared = 0;
    for ((name, rate), decay) in names.iter().zip(rates).zip(decays) {
        let name = name.as_str().expect("a name");
        let param = params.iter().find(|param| param.name == name).expect(name);
        if param.trained.is_some() {
            let group = group_of(&config.solver, name, param.kind);
            let got = config.solver.learning_rate * f64::from(group.lr_factor);
            report.close(case.name(), name, &[got], &[rate]);
            report.close(case.name(), name, &[f64::from(group.weight_decay)], &[decay]);
            compared += 1;
        }
    }
    // 53 convolutions of the backbone, and everything in FPN, RPN and heads.
    assert_eq!(compared, 53 + 42, "{}", case.name());
}
