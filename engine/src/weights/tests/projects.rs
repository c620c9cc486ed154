//! Models under the names and in the layouts of Tensorpack and maskrcnn-benchmark.

use std::collections::BTreeMap;

use graph::StateSet;

use super::{agreement, load, model, refusal, saved, write};
use crate::model::BuiltProgram;
use crate::weights::container::torch_bytes;
use crate::weights::{Dialect, Extent, Tolerance, Values, WeightsFile};

/// Tensorpack's name of a parameter of ours, by its converter of detectron2's models
/// (`convert_d2.py`).
fn in_tensorpack(name: &str) -> String {
    let (module, value) = name.rsplit_once('.').unwrap();
    let number = |text: &str| text.trim_start_matches("layer").parse::<usize>().unwrap();
    let words: Vec<&str> = module.split('.').collect();
    let module = match words[..] {
        ["backbone", "body", "conv1"] => "conv0".to_string(),
        ["backbone", "body", "bn1"] => "conv0/bn".to_string(),
        ["backbone", "body", stage, block, ref layer @ ..] => {
            let layer = match layer.join(".").as_str() {
                "downsample.0" => "convshortcut".to_string(),
                "downsample.1" => "convshortcut/bn".to_string(),
                conv if conv.starts_with("conv") => conv.to_string(),
                norm => format!("{}/bn", norm.replace("bn", "conv")),
            };
            format!("group{}/block{block}/{layer}", number(stage) - 1)
        }
        [_, "fpn", "inner_blocks", i, "0"] => format!("fpn/lateral_1x1_c{}", number(i) + 2),
        [_, "fpn", "layer_blocks", i, "0"] => format!("fpn/posthoc_3x3_p{}", number(i) + 2),
        ["rpn", "head", "conv", "0", "0"] => "rpn/conv0".into(),
        ["rpn", "head", "cls_logits"] => "rpn/class".into(),
        ["rpn", "head", "bbox_pred"] => "rpn/box".into(),
        ["roi_heads", "box_head", layer] => format!("fastrcnn/{layer}"),
        [.., "cls_score"] => "fastrcnn/outputs/class".into(),
        [.., "bbox_pred"] => "fastrcnn/outputs/box".into(),
        ["roi_heads", "mask_head", i, "0"] => format!("maskrcnn/fcn{i}"),
        [.., "conv5_mask"] => "maskrcnn/deconv".into(),
        [.., "mask_fcn_logits"] => "maskrcnn/conv".into(),
        _ => panic!("{name}"),
    };
    let value = match (value, module.ends_with("/bn")) {
        ("weight", false) => "W",
        ("bias", false) => "b",
        ("weight", true) => "gamma",
        ("bias", true) => "beta",
        ("running_mean", _) => "mean/EMA",
        ("running_var", _) => "variance/EMA",
        _ => panic!("{name}"),
    };
    format!("{module}/{value}")
}

/// NumPy's `transpose(2, 3, 1, 0)` of a convolution, and `transpose()` of a matrix.
fn in_tensorflows_layout((shape, values): &Values) -> Values {
    let ([o, i, h, w], is_matrix) = match shape[..] {
        [o, i, h, w] => ([o, i, h, w], false),
        [o, i] => ([o, i, 1, 1], true),
        _ => return (shape.clone(), values.clone()),
    };
    let mut turned = Vec::new();
    for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
        for (from, to) in (0..i).flat_map(|from| (0..o).map(move |to| (from, to))) {
            turned.push(values[((to * i + from) * h + y) * w + x]);
        }
    }
    (if is_matrix { vec![i, o] } else { vec![h, w, i, o] }, turned)
}

const TENSORPACKS: [&str; 4] = [
    "model.backbone.stride_in_1x1=false",
    "model.roi.sampling_ratio=2",
    "input.std=[57.375,57.12,58.395]",
    "input.resize_filter=bilinear",
];

/// A model's tensors as Tensorpack stores them.
fn of_tensorpack(from: &(BuiltProgram, StateSet)) -> BTreeMap<String, Values> {
    let translate = |(name, (mut shape, mut values)): (String, Values)| {
        if name.contains("mask_fcn_logits") {
            // Without the background, the first row.
            values.drain(..values.len() / shape[0]);
            shape[0] -= 1;
        }
        (in_tensorpack(&name), in_tensorflows_layout(&(shape, values)))
    };
    saved(from).into_iter().map(translate).collect()
}

#[test]
fn a_model_comes_from_tensorpacks_file_bitwise_but_for_masks_of_the_background() {
    let preset = "detectron2_r50_3x";
    let from = model(preset, &TENSORPACKS, 3, 1);
    let tensors = of_tensorpack(&from);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("COCO-MaskRCNN-R50FPN2x.safetensors");
    write(&path, &tensors);
    let file = WeightsFile::open(&path).unwrap();
    assert_eq!((file.dialect(), file.num_classes()), (Dialect::Tensorpack, Some(3)));
    let mut to = model(preset, &TENSORPACKS, 3, 2);
    let report = load(&file.tensors(1e-5), Extent::Model, &mut to);
    assert_eq!(refusal(&report, Tolerance::Nothing), "accepted");
    assert_eq!((report.initial().count(), report.unexpected.len()), (0, 0));
    for param in &from.0.params {
        let [ours, theirs] = [&from.1, &to.1].map(|s| s.get(&param.name).unwrap().as_f32());
        let dead = match param.name.contains("mask_fcn_logits") {
            true => ours.len() / 4,
            false => 0,
        };
        assert!(ours[dead..] == theirs[dead..], "{}", param.name);
        assert!(theirs[..dead].iter().all(|value| *value == 0.0), "{}", param.name);
    }
    assert_eq!(agreement(&file, Extent::Model, preset, &TENSORPACKS), "taken");
    let refused = agreement(&file, Extent::Model, preset, &[]);
    for told in [
        "has Tensorpack's names",
        "Tensorpack's are in BGR less [103.53, 116.28, 123.675] over [57.375, 57.12, 58.395]",
        "model.backbone.stride_in_1x1 = true, and not false",
        "model.roi.sampling_ratio = 0, and not 2",
        "extend detectron2_r50_3x with input.std=[57.375,57.12,58.395] and input.resize_filter",
    ] {
        assert!(refused.contains(told), "{told}: {refused}");
    }
    let is_body = |name: &String| name.starts_with("conv0/") || name.starts_with("group");
    let body = tensors.into_iter().filter(|(name, _)| is_body(name)).collect();
    write(&path, &body);
    assert!(WeightsFile::open(&path).unwrap().is_backbone());
}

#[test]
fn a_model_comes_from_maskrcnn_benchmarks_file_bitwise() {
    let from = model("mlperf_r50", &[], 3, 1);
    let theirs = |name: &str| {
        let mut name = format!("module.{name}");
        for (ours, theirs) in [
            ("fpn.inner_blocks.#.0.", "fpn.fpn_inner#."),
            ("fpn.layer_blocks.#.0.", "fpn.fpn_layer#."),
            ("roi_heads.mask_head.#.0.", "roi_heads.mask.feature_extractor.mask_fcn#."),
            ("backbone.body.conv1.", "backbone.body.stem.conv1."),
            ("backbone.body.bn1.", "backbone.body.stem.bn1."),
            ("rpn.head.conv.0.0.", "rpn.head.conv."),
            ("roi_heads.box_head.", "roi_heads.box.feature_extractor."),
            ("roi_heads.box_predictor.", "roi_heads.box.predictor."),
            ("roi_heads.mask_predictor.", "roi_heads.mask.predictor."),
        ] {
            for i in 0..4 {
                let numbered = |text: &str, i: usize| text.replace('#', &i.to_string());
                name = name.replace(&numbered(ours, i), &numbered(theirs, i + 1));
            }
        }
        name
    };
    let anchors = "module.rpn.anchor_generator.cell_anchors.0".to_string();
    let tensors = saved(&from).into_iter().map(|(name, values)| (theirs(&name), values));
    let stored: Vec<_> = tensors.chain([(anchors, (vec![1, 4], vec![0.0; 4]))]).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e2e_mask_rcnn_R_50_FPN_1x.pth");
    std::fs::write(&path, torch_bytes(&stored, None).unwrap()).unwrap();
    let file = WeightsFile::open(&path).unwrap();
    assert_eq!((file.dialect(), file.num_classes()), (Dialect::Benchmark, Some(3)));
    let mut to = model("mlperf_r50", &[], 3, 2);
    let report = load(&file.tensors(0.0), Extent::Model, &mut to);
    assert_eq!(refusal(&report, Tolerance::Nothing), "accepted");
    assert_eq!((report.initial().count(), report.unexpected.len()), (0, 0));
    assert_eq!(saved(&from), saved(&to));
    assert_eq!(agreement(&file, Extent::Model, "mlperf_r50", &[]), "taken");
    let refused = agreement(&file, Extent::Model, "torchvision_r50", &[]);
    for told in [
        "has maskrcnn-benchmark's names",
        "maskrcnn-benchmark's are in BGR less [102.98, 115.947, 122.772] over [1.0",
        "model.backbone.norm_eps = 0.00001, and not 0.0",
        "model.boxes.legacy_plus_one = false, and not true",
        "; extend mlperf_r50, or set",
    ] {
        assert!(refused.contains(told), "{told}: {refused}");
    }
}
