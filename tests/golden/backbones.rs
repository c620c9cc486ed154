//! Families tv_resnet18, tv_resnet34, tv_resnet152, tv_resnext50, tv_resnext_g32 and tv_convnext:
//! torchvision backbones with narrow stages: feature maps computed from images, and parameter
//! gradients computed from given map gradients.

use std::collections::BTreeMap;

use engine::config::Config;
use engine::model::roi_heads::Net;
use engine::model::{BuiltProgram, backbone};
use engine::weights::to_torchvision;
use graph::autodiff::differentiate_seeded;
use kernels::{Role, TensorDesc};

use crate::model_train::recorded_gradient;
use crate::models::{ready, spec};
use crate::support::{Case, Report, each_case};

/// Three times the largest error of PyTorch's own f32 implementation.
const FEATURE_TOLERANCE: f64 = 2.3e-6;
const GRADIENT_TOLERANCE: f64 = 1.2e-5;
const BODIES: [&str; 6] =
    ["tv_resnet18", "tv_resnet34", "tv_resnet152", "tv_resnext50", "tv_resnext_g32", "tv_convnext"];
const MAPS: [&str; 4] = ["C2", "C3", "C4", "C5"];

#[test]
fn torchvision_backbones_match_golden() {
    for name in BODIES {
        each_case(name, FEATURE_TOLERANCE, body);
    }
}

fn config(case: Case<'_>) -> Config {
    if case.attribute("architecture") == "convnext_tiny" {
        let set = [
            format!("model.backbone.blocks={}", case.attribute("layers")),
            format!("model.backbone.stage_channels={}", case.attribute("dims")),
            format!("model.backbone.norm_eps={}", case.float("eps")),
        ];
        return Config::load("convnext_tiny", &set).expect("a config");
    }
    let (block, width) = (case.attribute("block"), case.usize("width"));
    let mut set = vec![
        format!("model.backbone.block={block}"),
        format!("model.backbone.blocks={}", case.attribute("layers")),
        format!("model.backbone.width={width}"),
        format!("model.backbone.stem_channels={width}"),
        format!("model.backbone.norm_eps={}", case.float("eps_frozen_bn")),
        "model.backbone.frozen_stages=0".into(),
    ];
    if let Some(groups) = case.attribute("groups").as_u64().filter(|groups| *groups > 1) {
        // torchvision's `base_width` is the group width at a backbone width of 64.
        let of_group = width * case.usize("base_width") / 64;
        set.push(format!("model.backbone.groups={groups}"));
        set.push(format!("model.backbone.width_per_group={of_group}"));
    }
    Config::load("torchvision_r50", &set).expect("a config")
}

fn body(report: &mut Report, case: Case<'_>) {
    let (config, x) = (config(case), case.f32("x"));
    let spec = spec(&config, 1, x.shape[0], [x.shape[1], x.shape[2]]);
    let mut net = Net::new(&spec);
    let images = net.program.input("x", TensorDesc::new(Role::Activation, &x.shape));
    let maps = backbone(&mut net, images).expect("it builds");
    let seeded: Vec<_> = maps
        .iter()
        .zip(MAPS)
        .map(|(map, name)| {
            let desc = TensorDesc::new(Role::Gradient, &net.program.desc(*map).shape);
            (*map, net.program.input(&format!("d{name}"), desc))
        })
        .collect();
    let trained = net.params().iter().filter_map(|param| Some((param.trained?, &param.name)));
    let (mut wanted, mut names): (Vec<_>, Vec<_>) =
        trained.map(|(tensor, name)| (tensor, format!("grad/{name}"))).unzip();
    wanted.push(images);
    names.push("dx".into());
    let grads = differentiate_seeded(&mut net.program, &seeded, &wanted).expect("gradients");
    names.iter().zip(&grads).for_each(|(name, grad)| net.program.keep(name, *grad));
    let BuiltProgram { program, params, .. } = net.finish();

    let tensors = case.tensors().filter_map(|key| {
        let (name, tensor) = (key.strip_prefix("weights/")?, case.f32(&key));
        Some((format!("backbone.body.{name}"), (tensor.shape, tensor.data)))
    });
    let tensors: BTreeMap<_, _> = tensors.collect();
    let (mut executor, mut state) = ready(&config, program, &params, &tensors);
    for param in &params {
        let ours = state.get(&param.name).expect("a parameter").as_f32();
        let (shape, back) = to_torchvision(param, ours);
        let (theirs, values) = &tensors[&param.name];
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!((&shape, bits(&back)), (theirs, bits(values)), "{} round trip", param.name);
    }
    for name in ["x", "dC2", "dC3", "dC4", "dC5"] {
        let input = executor.input_mut(name).expect("an input");
        input.as_f32_mut().copy_from_slice(&case.f32(name).data);
    }
    executor.run(&mut state);

    for name in MAPS {
        let got = executor.f32(name).expect("an observed tensor");
        report.compare(case, name, got);
    }
    let dx = executor.f32("dx").expect("kept");
    report.compare_within(case, "dx", dx, GRADIENT_TOLERANCE);
    for param in params.iter().filter(|param| param.trained.is_some()) {
        let theirs = param.name.strip_prefix("backbone.body.").expect("a body's");
        let got = executor.f32(&format!("grad/{}", param.name)).expect("kept");
        let tolerances = [GRADIENT_TOLERANCE; 2];
        let (_, got) = to_torchvision(param, got);
        recorded_gradient(report, case, theirs, &got, tolerances);
    }
}
