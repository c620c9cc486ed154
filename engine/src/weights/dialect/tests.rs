//! Names of other projects, as their files have them, and the order of class rows.

use std::collections::BTreeMap;

use kernels::frozen_bn::fold_frozen_bn;

use super::{
    Dialect, Values, benchmark, detectron, detectron2, detectron2_from_ours, tensorpack, translate,
};

fn named(names: &[&str]) -> BTreeMap<String, Values> {
    names.iter().zip(0u8..).map(|(n, i)| (n.to_string(), (vec![1], vec![f32::from(i)]))).collect()
}

/// The name under which the value of `name` comes out.
fn ours(name: &str, beside: &str) -> String {
    let translated = translate(named(&[beside, name])).unwrap();
    let found = translated.tensors.iter().find(|(_, (_, values))| values == &[1.0]);
    found.map(|(name, _)| name.clone()).unwrap_or_default()
}

/// As detectron2's model zoo names them (`model_final_f10217.pkl`).
#[test]
fn detectron2s_names_are_ours_and_back() {
    let is_c4 = |name: &str| {
        ["backbone.stem", "backbone.res", "roi_heads.res5"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    for (theirs, own) in [
        ("backbone.bottom_up.stem.conv1.weight", "backbone.body.conv1.weight"),
        ("backbone.bottom_up.stem.conv1.norm.running_var", "backbone.body.bn1.running_var"),
        ("backbone.bottom_up.res2.0.shortcut.weight", "backbone.body.layer1.0.downsample.0.weight"),
        (
            "backbone.bottom_up.res2.0.shortcut.norm.bias",
            "backbone.body.layer1.0.downsample.1.bias",
        ),
        ("backbone.bottom_up.res4.22.conv3.weight", "backbone.body.layer3.22.conv3.weight"),
        ("backbone.bottom_up.res5.2.conv2.norm.weight", "backbone.body.layer4.2.bn2.weight"),
        ("backbone.fpn_lateral2.weight", "backbone.fpn.inner_blocks.0.0.weight"),
        ("backbone.fpn_output5.bias", "backbone.fpn.layer_blocks.3.0.bias"),
        ("proposal_generator.rpn_head.conv.weight", "rpn.head.conv.0.0.weight"),
        ("proposal_generator.rpn_head.objectness_logits.bias", "rpn.head.cls_logits.bias"),
        ("proposal_generator.rpn_head.anchor_deltas.weight", "rpn.head.bbox_pred.weight"),
        ("roi_heads.box_head.fc1.weight", "roi_heads.box_head.fc6.weight"),
        ("roi_heads.box_head.fc2.bias", "roi_heads.box_head.fc7.bias"),
        ("roi_heads.mask_head.mask_fcn4.weight", "roi_heads.mask_head.3.0.weight"),
        ("roi_heads.mask_head.deconv.bias", "roi_heads.mask_predictor.conv5_mask.bias"),
        ("roi_heads.mask_head.predictor.bias", "roi_heads.mask_predictor.mask_fcn_logits.bias"),
        ("roi_heads.box_predictor.cls_score.weight", "roi_heads.box_predictor.cls_score.weight"),
        ("roi_heads.box_predictor.bbox_pred.bias", "roi_heads.box_predictor.bbox_pred.bias"),
        // As `model_final_4ce675.pkl`: without a pyramid, and with the last stage on RoIs.
        ("backbone.stem.conv1.norm.bias", "backbone.body.bn1.bias"),
        ("backbone.res4.5.conv3.weight", "backbone.body.layer3.5.conv3.weight"),
        ("roi_heads.res5.0.shortcut.weight", "backbone.body.layer4.0.downsample.0.weight"),
        ("roi_heads.res5.2.conv2.norm.weight", "backbone.body.layer4.2.bn2.weight"),
    ] {
        assert_eq!(ours(theirs, "proposal_generator.x"), own);
        let values = (vec![4], vec![0.0; 4]);
        let mut model = vec![(own.into(), values.clone())];
        if !is_c4(theirs) {
            model.push(("backbone.fpn.x".into(), values));
        }
        assert_eq!(detectron2_from_ours(model)[0].0, theirs);
    }
    // Only a backbone, as torchvision's weights are converted for detectron2.
    assert_eq!(ours("res3.1.conv2.norm.weight", "stem.conv1.weight"), "layer2.1.bn2.weight");
    assert_eq!(ours("stem.conv1.norm.bias", "stem.conv1.weight"), "bn1.bias");
    assert_eq!(ours("stem.fc.bias", "stem.conv1.weight"), "fc.bias");
    let mut file = named(&["backbone.bottom_up.x"]);
    file.insert("pixel_mean".into(), (vec![3, 1, 1], vec![103.53, 116.28, 123.675]));
    assert_eq!(translate(file.clone()).unwrap().pixels, None, "half of them");
    file.insert("pixel_std".into(), (vec![3, 1, 1], vec![1.0; 3]));
    let pixels = translate(file).unwrap().pixels;
    assert_eq!(pixels, Some([[103.53, 116.28, 123.675], [1.0; 3]]));
    for constant in ["pixel_mean", "proposal_generator.anchor_generator.cell_anchors.0"] {
        assert_eq!(ours(constant, "backbone.bottom_up.x"), "", "{constant} is no weight");
    }
}

/// As `model_final_14d201.pkl` names them: the number of a layer depends on those before it.
#[test]
fn names_behind_convolutions_are_ours_and_back() {
    let pairs = [
        ("backbone.fpn_lateral3.weight", "backbone.fpn.inner_blocks.1.0.weight"),
        ("backbone.fpn_lateral3.norm.running_mean", "backbone.fpn.inner_blocks.1.1.running_mean"),
        ("backbone.fpn_output2.norm.weight", "backbone.fpn.layer_blocks.0.1.weight"),
        ("proposal_generator.rpn_head.conv.conv0.weight", "rpn.head.conv.0.0.weight"),
        ("proposal_generator.rpn_head.conv.conv1.bias", "rpn.head.conv.1.0.bias"),
        ("roi_heads.box_head.conv1.weight", "roi_heads.box_head.0.0.weight"),
        ("roi_heads.box_head.conv2.weight", "roi_heads.box_head.1.0.weight"),
        ("roi_heads.box_head.conv2.norm.bias", "roi_heads.box_head.1.1.bias"),
        ("roi_heads.box_head.fc1.weight", "roi_heads.box_head.3.weight"),
        ("roi_heads.box_head.fc2.bias", "roi_heads.box_head.5.bias"),
        ("roi_heads.mask_head.mask_fcn4.norm.running_var", "roi_heads.mask_head.3.1.running_var"),
    ];
    let theirs = named(&pairs.map(|(theirs, _)| theirs));
    let own = named(&pairs.map(|(_, own)| own));
    assert_eq!(translate(theirs.clone()).unwrap().tensors, own);
    let back = detectron2_from_ours(own.into_iter().collect());
    assert_eq!(back.into_iter().collect::<BTreeMap<_, _>>(), theirs);
}

/// Three classes, whose rows are told apart by their values.
#[test]
fn the_background_moves_from_the_last_row_to_the_first() {
    let values = |rows: usize, row: usize| -> Values {
        (vec![rows, row], (0..rows * row).map(|i| i as f32 + 1.0).collect())
    };
    let bias = |rows: usize| (vec![rows], (0..rows).map(|i| i as f32 + 1.0).collect::<Vec<f32>>());
    let file: BTreeMap<String, Values> = [
        ("proposal_generator.rpn_head.conv.bias", bias(2)),
        ("roi_heads.box_predictor.cls_score.weight", values(4, 2)),
        ("roi_heads.box_predictor.cls_score.bias", bias(4)),
        ("roi_heads.box_predictor.bbox_pred.weight", values(12, 2)),
        ("roi_heads.box_predictor.bbox_pred.bias", bias(12)),
        ("roi_heads.mask_head.predictor.bias", bias(3)),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    let translated = translate(file.clone()).unwrap();
    assert_eq!(translated.dialect, Dialect::Detectron2);
    assert!(translated.notes[0].contains("and they are 0"), "{:?}", translated.notes);
    let get = |name: &str| translated.tensors[name].clone();
    let (shape, weight) = get("roi_heads.box_predictor.cls_score.weight");
    assert_eq!((shape, weight), (vec![4, 2], vec![7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let (shape, deltas) = get("roi_heads.box_predictor.bbox_pred.bias");
    assert_eq!((shape, &deltas[..5]), (vec![16], [0.0, 0.0, 0.0, 0.0, 1.0].as_slice()));
    let masks = get("roi_heads.mask_predictor.mask_fcn_logits.bias");
    assert_eq!(masks, (vec![4], vec![0.0, 1.0, 2.0, 3.0]));
    let back = detectron2_from_ours(translated.tensors.into_iter().collect());
    assert_eq!(back.into_iter().collect::<BTreeMap<_, _>>(), file, "and back, bitwise");

    let mut wrong = file.clone();
    wrong.insert("roi_heads.mask_head.predictor.bias".into(), bias(1));
    let refusal = translate(wrong).unwrap_err();
    assert!(refusal.contains("`roi_heads.mask_head.predictor.bias` has 1 rows"), "{refusal}");
    assert!(refusal.contains("share"), "{refusal}");

    // Deltas of all classes stay as they are.
    let mut shared = file;
    for (name, rows) in [("weight", values(4, 2)), ("bias", bias(4))] {
        shared.insert(format!("roi_heads.box_predictor.bbox_pred.{name}"), rows);
    }
    let translated = translate(shared.clone()).unwrap();
    let (_, deltas) = &translated.tensors["roi_heads.box_predictor.bbox_pred.bias"];
    assert_eq!(deltas, &[1.0, 2.0, 3.0, 4.0]);
    let back = detectron2_from_ours(translated.tensors.into_iter().collect());
    assert_eq!(back.into_iter().collect::<BTreeMap<_, _>>(), shared, "and back, bitwise");
}

/// A cascade's modules have a stage there, in each of them, and here behind the first; with
/// convolutions in its heads too.
#[test]
fn stages_of_a_cascade_have_their_numbers() {
    for (theirs, ours) in [
        ("roi_heads.box_head.0.fc1.weight", "roi_heads.box_head.fc6.weight"),
        ("roi_heads.box_head.2.fc2.bias", "roi_heads.box_head_stage2.fc7.bias"),
        ("roi_heads.box_predictor.0.cls_score.bias", "roi_heads.box_predictor.cls_score.bias"),
        (
            "roi_heads.box_predictor.1.bbox_pred.bias",
            "roi_heads.box_predictor_stage1.bbox_pred.bias",
        ),
        ("roi_heads.mask_head.mask_fcn1.bias", "roi_heads.mask_head.0.0.bias"),
    ] {
        let bias = (vec![4], vec![1.0, 2.0, 3.0, 4.0]);
        let marks = ["proposal_generator.x", "roi_heads.box_head.1.fc1.bias", theirs];
        let file = marks.map(|name| (name.to_string(), bias.clone())).into();
        let translated = translate(file).unwrap();
        assert!(translated.tensors.contains_key(ours), "{theirs}: {:?}", translated.tensors);
        let back = detectron2_from_ours(translated.tensors.into_iter().collect());
        assert!(back.iter().any(|(name, _)| name == theirs), "{ours}: {back:?}");
    }
}

/// The names of ResNets in Detectron's and detectron2's model zoos; those of `R-50.pkl` are in the
/// test of its file.
#[test]
fn caffe2s_further_names() {
    for (theirs, own) in [
        ("res4_22_branch2b_bn_rm", "layer3.22.bn2.running_mean"),
        ("res4_22_branch2b_bn_riv", "layer3.22.bn2.running_var"),
        ("fc1000_w", "fc1000_w"),
        ("res2_0_branch2d_w", "res2_0_branch2d_w"),
        ("res1_0_branch1_w", "res1_0_branch1_w"),
    ] {
        assert_eq!(ours(theirs, "res2_0_branch2b_w"), own);
    }
    let cut = translate(named(&["conv1_w", "res_conv1_bn_gamma"])).unwrap_err();
    assert!(cut.contains("`_bn_gamma` and no `_bn_running_var`"), "{cut}");
    let both = ["res_conv1_bn_gamma", "res_conv1_bn_s", "res_conv1_bn_riv", "conv1_w"];
    assert!(translate(named(&both)).unwrap_err().contains("`bn1.weight` twice"));
    // Biases of convolutions are left out by name.
    let translated = translate(named(&["conv1_w", "conv1_b", "res2_0_branch2a_b", "pred_b"]));
    let translated = translated.unwrap();
    assert_eq!(translated.dialect, Dialect::Detectron);
    let kept: Vec<&String> = translated.tensors.keys().collect();
    assert_eq!(kept, ["conv1.weight", "pred_b"]);
    assert!(translated.notes[1].ends_with("`conv1_b`, `res2_0_branch2a_b`"));
}

/// Detectron's norms are a scale and a shift: their fold must be both, to the bit.
#[test]
fn norms_without_statistics_keep_their_scale_bitwise() {
    let mut bits = 0x9e37_79b9_u32;
    let mut scales: Vec<f32> = vec![0.0, -0.0, 1.0, f32::MIN_POSITIVE, 1e-42, f32::MAX, -1.9999999];
    while scales.len() < 100_000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        scales.push(Some(f32::from_bits(bits)).filter(|v| v.is_finite()).unwrap_or(1.5));
    }
    // All the mantissas between 1 and 2 that lie nearest to the next ones.
    scales.extend((0..4096).map(|i| f32::from_bits(0x3fff_f000 + i)));
    let shifts: Vec<f32> = scales.iter().rev().copied().collect();
    let shape = vec![scales.len()];
    for eps in [0.0, 1e-8, 1e-5, 1e-3, 0.1, 0.5, 0.7, 1.0] {
        let mut tensors: BTreeMap<String, Values> = BTreeMap::from([
            ("bn1.weight".to_string(), (shape.clone(), scales.clone())),
            ("bn1.bias".to_string(), (shape.clone(), shifts.clone())),
            ("conv1.weight".to_string(), (vec![1], vec![1.0])),
        ]);
        detectron::fill_statistics(&mut tensors, eps);
        assert_eq!(tensors.len(), 5, "a norm has statistics, and a convolution none");
        let get = |what: &str| tensors[&format!("bn1.{what}")].1.as_slice();
        let (mean, var) = (get("running_mean"), get("running_var"));
        let (scale, shift) = fold_frozen_bn(get("weight"), get("bias"), mean, var, eps);
        let differ = |a: &[f32], b: &[f32]| a.iter().zip(b).position(|(a, b)| a != b);
        assert_eq!(differ(&scale, &scales), None, "eps {eps}");
        assert_eq!(differ(&shift, &shifts), None, "eps {eps}");
        let sign = |v: &[f32]| v.iter().position(|v| v.to_bits() == 0x8000_0000);
        assert_eq!(sign(&scale), sign(&scales), "-0 stays");
    }
}

#[test]
fn one_parameter_under_two_names_is_refused() {
    let both = ["rpn.head.conv.weight", "rpn.head.conv.0.0.weight"];
    assert!(translate(named(&both)).unwrap_err().contains("`rpn.head.conv.0.0.weight` twice"));
    let both = ["proposal_generator.rpn_head.conv.bias", "rpn.head.conv.0.0.bias"];
    assert!(translate(named(&both)).unwrap_err().contains("`rpn.head.conv.0.0.bias` twice"));
    assert!(detectron2::is_name("res2.0.conv1.weight") && !detectron2::is_name("layer1.0.conv1"));
}

/// The names of a whole model are in the test of its file.
#[test]
fn maskrcnn_benchmarks_further_names() {
    for (theirs, own) in [
        // A part that no model has stays in that of its kind, which a load misses by name.
        ("roi_heads.box.feature_extractor.xconvs.0.weight", "roi_heads.box_head.xconvs.0.weight"),
        ("rpn.anchor_generator.cell_anchors.0", ""),
    ] {
        assert_eq!(ours(theirs, "backbone.body.stem.conv1.weight"), own);
    }
    assert!(!benchmark::is_name("backbone.body.conv1.weight"), "it is torchvision's");
}

/// Names and layouts that the file of a whole model lacks; two classes and the background.
#[test]
fn tensorpacks_names_and_layouts_are_ours() {
    let count = |shape: &[usize]| -> Values {
        (shape.to_vec(), (0..shape.iter().product::<usize>()).map(|i| i as f32).collect())
    };
    let file: BTreeMap<String, Values> = [
        ("conv0/W:0", count(&[1, 1, 1, 2])),
        ("conv0/bn/variance/EMA", count(&[2])),
        ("group3/block2/convshortcut/gn/gamma", count(&[1])),
        ("fastrcnn/conv1/W", count(&[1, 1, 1, 1])),
        ("fastrcnn/fc/W", count(&[2, 3])),
        ("fastrcnn/fc/W/Momentum", count(&[2, 3])),
        ("fastrcnn/outputs/class/b", count(&[3])),
        ("maskrcnn/conv/b", count(&[2])),
        ("learning_rate", count(&[])),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    let translated = translate(file.clone()).unwrap();
    assert_eq!(translated.dialect, Dialect::Tensorpack);
    let expected: BTreeMap<String, Values> = [
        ("backbone.body.conv1.weight", count(&[2, 1, 1, 1])),
        ("backbone.body.bn1.running_var", count(&[2])),
        ("backbone.body.layer4.2.downsample.1.weight", count(&[1])),
        ("roi_heads.box_head.1.0.weight", count(&[1, 1, 1, 1])),
        ("roi_heads.box_head.2.weight", (vec![3, 2], vec![0., 3., 1., 4., 2., 5.])),
        ("roi_heads.box_predictor.cls_score.bias", count(&[3])),
        ("roi_heads.mask_predictor.mask_fcn_logits.bias", (vec![3], vec![0., 0., 1.])),
        ("learning_rate", count(&[])),
    ]
    .map(|(name, values)| (name.to_string(), values))
    .into();
    assert_eq!(translated.tensors, expected);
    let refused = |name: &str, values: Values| {
        let mut file = file.clone();
        file.insert(name.to_string(), values);
        translate(file).unwrap_err()
    };
    for name in ["fpn/gn_c2/gamma", "cascade_rcnn_stage1/head/fc6/W", "maskrcnn/gn0/beta"] {
        let told = refused(name, count(&[1]));
        assert!(told.starts_with(&format!("`{name}` has no place")), "{told}");
    }
    let told = refused("maskrcnn/conv/b", count(&[3]));
    assert!(told.contains("has 3 rows") && told.contains("classifier 3 outputs"), "{told}");
    let told = refused("conv0/W", count(&[1, 1, 1, 1]));
    assert!(told.contains("`conv0/W` twice"), "{told}");
    let empty = BTreeMap::from([("conv0/W".into(), (vec![0, 1 << 40, 1 << 40], vec![]))]);
    let shape = &translate(empty).unwrap().tensors["backbone.body.conv1.weight"].0;
    assert_eq!(shape, &[1 << 40, 1 << 40, 0]);
    assert!(tensorpack::is_name("group0/block0/conv1/W") && !tensorpack::is_name("conv1_w"));
}
