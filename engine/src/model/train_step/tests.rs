//! Loss weights, frozen parameters and groups: a program only has the nodes that it needs.

use crate::config::Config;
use device::{Gpu, Target};

use super::*;
use crate::model::{ImageSize, ParamKind, SlotShape, group_of};

/// The training step of the preset `micro`.
fn built(set: &[&str], target: Target) -> Result<BuiltProgram, EngineError> {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let config = Config::load("micro", &set).expect("the preset loads");
    let spec = ModelSpec {
        images: 2,
        padded: ImageSize { height: 64, width: 64 },
        slot: SlotShape { pixels: 3 * 64 * 64, objects: 9, parts: 9, coords: 200, runs: 50 },
        ..ModelSpec::smallest(&config, 4, target)
    };
    training_program(&spec)
}

/// The op names of the training step's nodes.
fn nodes(set: &[&str], target: Target) -> Vec<&'static str> {
    let built = built(set, target).expect("micro is sound");
    built.program.nodes().iter().map(|node| node.op.name()).collect()
}

#[test]
fn loss_weight_of_one_adds_no_node() {
    for target in [Target::Cpu, Target::Gpu(Gpu::a100())] {
        let count = |set: &[&str], op: &str| {
            nodes(set, target.clone()).into_iter().filter(|name| *name == op).count()
        };
        let plain = nodes(&[], target.clone());
        assert_eq!(nodes(&["loss_weights.mask=1"], target.clone()), plain);
        assert_eq!(count(&[], "scalar_product"), 0);
        let two = ["loss_weights.mask=2", "loss_weights.box_reg=0.5"];
        assert_eq!(count(&two, "scalar_product"), 2);
        assert_eq!(nodes(&two, target.clone()).len(), plain.len() + 4, "a weight and a product");
    }
}

/// The classifier's loss is unweighted unless label smoothing is set.
#[test]
fn label_smoothing_uses_weighted_cross_entropy() {
    let is_weighted = |set: &[&str]| nodes(set, Target::Cpu).contains(&"weighted_cross_entropy");
    assert!(!is_weighted(&[]));
    assert!(is_weighted(&["model.box_head.label_smoothing=0.1"]));
    assert!(
        !nodes(&["model.box_head.label_smoothing=0.1"], Target::Cpu)
            .contains(&"softmax_cross_entropy")
    );
}

/// Each part of the model, and each kind of parameter in it, can be frozen separately.
#[test]
fn frozen_parameter_has_no_gradient_or_momentum() {
    for target in [Target::Cpu, Target::Gpu(Gpu::a100())] {
        let step = |set: &[&str]| built(set, target.clone()).expect("micro is sound");
        let whole = step(&[]);
        let mut parts: Vec<&str> = whole.params.iter().map(|p| p.name.as_str()).collect();
        parts.extend(["backbone.*", "backbone.fpn.*", "rpn.head.*", "roi_heads.*", "*.weight"]);
        for pattern in parts {
            let part = step(&[&format!("model.freeze=['{pattern}']")]);
            let [some, all] = [&part, &whole].map(|built| built.program.nodes().len());
            // Freezing one parameter does not always remove a node, as a node may compute the
            // gradients of two parameters.
            assert!(some <= all, "{pattern}: {some} nodes of {all}");
            assert!(some < all || !pattern.contains('*'), "{pattern}: {some} nodes of {all}");
            for param in &part.params {
                let is_frozen = crate::names::matches(pattern, &param.name);
                assert_eq!(param.trained.is_none(), is_frozen, "{pattern}: {}", param.name);
                let momentum = part.program.find(&format!("momentum/{}", param.name));
                assert_eq!(momentum.is_none(), is_frozen, "{pattern}: {}", param.name);
            }
        }
    }
}

#[test]
fn last_matching_parameter_group_that_sets_a_value_wins() {
    let set = [
        "solver.weight_decay=0.5".to_string(),
        "solver.bias_lr_factor=2".into(),
        "solver.groups=[{match='backbone.*', lr_factor=0.25}, {match='*.bias', weight_decay=0}, \
         {match='*.body.*', weight_decay=0.125}]"
            .into(),
    ];
    let solver = Config::load("micro", &set).expect("a config").solver;
    for (name, kind, factor, decay) in [
        ("rpn.head.conv.0.0.weight", ParamKind::Weight, 1.0, 0.5),
        ("rpn.head.conv.0.0.bias", ParamKind::Bias, 2.0, 0.0),
        ("backbone.fpn.layer_blocks.0.0.bias", ParamKind::Bias, 0.25, 0.0),
        ("backbone.body.layer1.0.bn1.bias", ParamKind::Norm, 0.25, 0.125),
    ] {
        let group = group_of(&solver, name, kind);
        assert_eq!((group.lr_factor, group.weight_decay), (factor, decay), "{name}");
    }
}

#[test]
fn parameter_group_without_effect_is_reported() {
    for (groups, idle) in [
        ("{match='rpn.*', lr_factor=2}, {match='*.bias', lr_factor=3}", ""),
        ("{match='rpn.*', lr_factor=2, weight_decay=0}, {match='*', lr_factor=3}", ""),
        ("{match='rpn.*', lr_factor=2}, {match='*', lr_factor=3}", "(\"rpn.*\") has no effect"),
        ("{match='*.box_head.*', lr_factor=2}", "(\"*.box_head.*\") has no effect"),
    ] {
        let set = ["model.freeze=['roi_heads.box_head.*']", &format!("solver.groups=[{groups}]")];
        let params = built(&set, Target::Cpu).expect("a model").params;
        let solver = Config::load("micro", &set.map(String::from)).expect("a config").solver;
        let found = crate::model::idle_groups(&solver, &params).join("; ");
        assert!(found.is_empty() == idle.is_empty() && found.contains(idle), "{found}");
    }
}

#[test]
fn parameter_pattern_that_matches_none_or_all_is_rejected() {
    for (pattern, words) in [
        ("backbone.bdy.*", "`model.freeze[0]` is \"backbone.bdy.*\", which matches no parameter"),
        ("backbone.bdy.*", "did you mean backbone.body.*, "),
        ("rpn.head.conv.wieght", "rpn.head.conv.0.0.weight"),
        ("", "`model.freeze[0]` is \"\""),
        ("*", "`model.freeze` is [\"*\"], which leaves nothing to train; remove"),
    ] {
        let set = format!("model.freeze=['{pattern}']");
        let error = built(&[&set], Target::Cpu).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let none = "solver.groups=[{match='*', lr_factor=3}, {match='*', lr_factor=0}]";
    let error = built(&[none], Target::Cpu).expect_err("no rate").to_string();
    assert!(error.contains("`solver.groups` trains nothing"), "{error}");
    let group = "solver.groups=[{match='*', lr_factor=2}, {match='rpn', lr_factor=2}]";
    let error = built(&[group], Target::Cpu).expect_err("no name").to_string();
    assert!(error.contains("`solver.groups[1].match` is \"rpn\", which matches no"), "{error}");
}
