//! Translation of other projects' names, and of their order of class rows.

use std::collections::BTreeMap;

use kernels::frozen_bn::fold_frozen_bn;

use super::{Dialect, Values, detectron, translate};

fn named(names: &[&str]) -> BTreeMap<String, Values> {
    names.iter().zip(0u8..).map(|(n, i)| (n.to_string(), (vec![1], vec![f32::from(i)]))).collect()
}

fn file<const N: usize>(tensors: [(&str, Values); N]) -> BTreeMap<String, Values> {
    tensors.map(|(name, values)| (name.to_string(), values)).into()
}

/// Pairs of another project's name and ours; ours is empty for a skipped tensor.
type Pairs = &'static [(&'static str, &'static str)];

/// Names by project, covering every kind of module. Each name is tested in a file that also
/// contains a tensor named by the tuple's second element. Complements the models of
/// `weight_names_match_golden` with names from model zoos.
const NAMES: [(Dialect, &str, Pairs); 7] = [
    // The same pairs as in torchvision's own remapping of old names.
    (
        Dialect::Torchvision,
        "backbone.body.conv1.weight",
        &[
            ("backbone.fpn.inner_blocks.0.weight", "backbone.fpn.inner_blocks.0.0.weight"),
            ("backbone.fpn.layer_blocks.3.bias", "backbone.fpn.layer_blocks.3.0.bias"),
            ("rpn.head.conv.weight", "rpn.head.conv.0.0.weight"),
            ("roi_heads.mask_head.mask_fcn4.bias", "roi_heads.mask_head.3.0.bias"),
            ("backbone.fpn.inner_blocks.0.0.weight", "backbone.fpn.inner_blocks.0.0.weight"),
            ("rpn.head.conv.0.0.weight", "rpn.head.conv.0.0.weight"),
            ("roi_heads.mask_head.3.0.bias", "roi_heads.mask_head.3.0.bias"),
            ("roi_heads.mask_head.mask_fcn0.weight", "roi_heads.mask_head.mask_fcn0.weight"),
            ("weight", "weight"),
        ],
    ),
    // From `model_final_f10217.pkl` and, without a pyramid, `model_final_4ce675.pkl`.
    (
        Dialect::Detectron2,
        "proposal_generator.x",
        &[
            ("backbone.bottom_up.stem.conv1.norm.running_var", "backbone.body.bn1.running_var"),
            (
                "backbone.bottom_up.res2.0.shortcut.weight",
                "backbone.body.layer1.0.downsample.0.weight",
            ),
            ("backbone.bottom_up.res4.22.conv3.norm.bias", "backbone.body.layer3.22.bn3.bias"),
            ("backbone.fpn_output5.bias", "backbone.fpn.layer_blocks.3.0.bias"),
            ("proposal_generator.rpn_head.conv.weight", "rpn.head.conv.0.0.weight"),
            ("proposal_generator.rpn_head.anchor_deltas.weight", "rpn.head.bbox_pred.weight"),
            ("roi_heads.box_head.fc2.bias", "roi_heads.box_head.fc7.bias"),
            ("roi_heads.box_head.2.fc2.bias", "roi_heads.box_head_stage2.fc7.bias"),
            ("roi_heads.box_predictor.0.cls_score.bias", "roi_heads.box_predictor.cls_score.bias"),
            ("roi_heads.mask_head.mask_fcn4.weight", "roi_heads.mask_head.3.0.weight"),
            ("roi_heads.mask_head.predictor.bias", "roi_heads.mask_predictor.mask_fcn_logits.bias"),
            ("backbone.res4.5.conv3.weight", "backbone.body.layer3.5.conv3.weight"),
            ("roi_heads.res5.0.shortcut.weight", "backbone.body.layer4.0.downsample.0.weight"),
            ("pixel_mean", ""),
            ("proposal_generator.anchor_generator.cell_anchors.0", ""),
        ],
    ),
    // From `model_final_14d201.pkl`: the number of a fully connected layer depends on the
    // convolutions before it.
    (
        Dialect::Detectron2,
        "roi_heads.box_head.conv1.weight",
        &[
            ("proposal_generator.rpn_head.conv.conv1.bias", "rpn.head.conv.1.0.bias"),
            ("proposal_generator.rpn_head.conv.conv0.bias", "rpn.head.conv.0.0.bias"),
        ],
    ),
    // A backbone-only file, converted from torchvision weights for detectron2.
    (
        Dialect::Detectron2,
        "stem.conv1.weight",
        &[
            ("res3.1.conv2.norm.weight", "layer2.1.bn2.weight"),
            ("stem.conv1.norm.bias", "bn1.bias"),
            ("stem.fc.bias", "fc.bias"),
        ],
    ),
    // ResNets in Detectron's and detectron2's model zoos.
    (
        Dialect::Detectron,
        "res2_0_branch2b_w",
        &[
            ("conv1_w", "conv1.weight"),
            ("res_conv1_bn_s", "bn1.weight"),
            ("res2_0_branch1_bn_beta", "layer1.0.downsample.1.bias"),
            ("res4_22_branch2b_bn_rm", "layer3.22.bn2.running_mean"),
            ("res4_22_branch2b_bn_riv", "layer3.22.bn2.running_var"),
            ("fc1000_w", "fc1000_w"),
            ("res2_0_branch2d_w", "res2_0_branch2d_w"),
            ("res1_0_branch1_w", "res1_0_branch1_w"),
        ],
    ),
    (
        Dialect::Benchmark,
        "backbone.body.stem.conv1.weight",
        &[
            // A tensor that no model has keeps its prefix, and is reported as unexpected by name.
            (
                "roi_heads.box.feature_extractor.xconvs.0.weight",
                "roi_heads.box_head.xconvs.0.weight",
            ),
            ("rpn.anchor_generator.cell_anchors.0", ""),
        ],
    ),
    // From the converter of detectron2's models, `convert_d2.py`.
    (
        Dialect::Tensorpack,
        "conv0/W",
        &[
            ("conv0/bn/variance/EMA", "backbone.body.bn1.running_var"),
            ("group1/block3/conv2/bn/mean/EMA", "backbone.body.layer2.3.bn2.running_mean"),
            ("group3/block2/convshortcut/gn/gamma", "backbone.body.layer4.2.downsample.1.weight"),
            ("fpn/lateral_1x1_c2/W", "backbone.fpn.inner_blocks.0.0.weight"),
            ("fpn/posthoc_3x3_p5/b", "backbone.fpn.layer_blocks.3.0.bias"),
            ("rpn/conv0/b", "rpn.head.conv.0.0.bias"),
            ("rpn/class/b", "rpn.head.cls_logits.bias"),
            ("rpn/box/b", "rpn.head.bbox_pred.bias"),
            ("fastrcnn/fc7/b", "roi_heads.box_head.fc7.bias"),
            ("fastrcnn/outputs/box/b", "roi_heads.box_predictor.bbox_pred.bias"),
            ("fastrcnn/class/b", "roi_heads.box_predictor.cls_score.bias"),
            ("maskrcnn/fcn3/b", "roi_heads.mask_head.3.0.bias"),
            ("maskrcnn/deconv/b", "roi_heads.mask_predictor.conv5_mask.bias"),
            ("linear/b:0", "fc.bias"),
            ("learning_rate", "learning_rate"),
        ],
    ),
];

#[test]
fn tensor_names_of_other_projects_map_to_ours() {
    for (dialect, first, pairs) in NAMES {
        for (theirs, ours) in pairs {
            let translated = translate(named(&[first, theirs])).unwrap();
            assert_eq!(translated.dialect, dialect, "{theirs}");
            let found = translated.tensors.iter().find(|(_, (_, values))| values == &[1.0]);
            assert_eq!(found.map_or("", |(name, _)| name.as_str()), *ours, "{theirs}");
        }
    }
    let mut file = named(&["backbone.bottom_up.x"]);
    file.insert("pixel_mean".into(), (vec![3, 1, 1], vec![103.53, 116.28, 123.675]));
    assert_eq!(translate(file.clone()).unwrap().pixels, None, "half of them");
    file.insert("pixel_std".into(), (vec![3, 1, 1], vec![1.0; 3]));
    let pixels = translate(file).unwrap().pixels;
    assert_eq!(pixels, Some([[103.53, 116.28, 123.675], [1.0; 3]]));
    // Biases of convolutions are skipped; the note lists them.
    let biases = translate(named(&["conv1_w", "conv1_b", "res2_0_branch2a_b", "pred_b"])).unwrap();
    assert_eq!(Vec::from_iter(biases.tensors.keys()), ["conv1.weight", "pred_b"]);
    assert!(biases.notes[1].ends_with("`conv1_b`, `res2_0_branch2a_b`"));
}

#[test]
fn ambiguous_or_unsupported_tensor_names_are_rejected() {
    let (gamma, tensorpack) = (["conv1_w", "res_conv1_bn_gamma"], "is not supported: Tensor");
    for (names, told) in [
        (&["rpn.head.conv.weight", "rpn.head.conv.0.0.weight"][..], "`rpn.head.conv.0.0.weight` t"),
        (
            &["proposal_generator.rpn_head.conv.bias", "rpn.head.conv.0.0.bias"],
            "`rpn.head.conv.0.0.bias` twice, under different",
        ),
        (&gamma, "`_bn_gamma` but no `_bn_running_var`"),
        (&[gamma[0], gamma[1], "res_conv1_bn_s", "res_conv1_bn_riv"], "`bn1.weight` twice"),
        (&["conv0/W", "conv0/W:0"], "`backbone.body.conv1.weight` twice"),
        (&["conv0/W", "fpn/gn_c2/gamma"], tensorpack),
        (&["conv0/W", "cascade_rcnn_stage1/head/fc6/W"], tensorpack),
        (&["conv0/W", "maskrcnn/gn0/beta"], tensorpack),
    ] {
        let refusal = translate(named(names)).unwrap_err();
        assert!(refusal.contains(told), "{names:?}: {refusal}");
    }
}

/// A model with three classes, whose rows have different values.
#[test]
fn background_row_moves_from_last_to_first() {
    let values = |rows: usize, row: usize| -> Values {
        (vec![rows, row], (0..rows * row).map(|i| i as f32 + 1.0).collect())
    };
    let bias = |rows: usize| (vec![rows], (0..rows).map(|i| i as f32 + 1.0).collect::<Vec<f32>>());
    let file = file([
        ("proposal_generator.rpn_head.conv.bias", bias(2)),
        ("roi_heads.box_predictor.cls_score.weight", values(4, 2)),
        ("roi_heads.box_predictor.cls_score.bias", bias(4)),
        ("roi_heads.box_predictor.bbox_pred.weight", values(12, 2)),
        ("roi_heads.box_predictor.bbox_pred.bias", bias(12)),
        ("roi_heads.mask_head.predictor.bias", bias(3)),
    ]);
    let translated = translate(file.clone()).unwrap();
    assert!(translated.notes[0].contains("they are 0, and not used"), "{:?}", translated.notes);
    let get = |name: &str| translated.tensors[name].clone();
    let (shape, weight) = get("roi_heads.box_predictor.cls_score.weight");
    assert_eq!((shape, weight), (vec![4, 2], vec![7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let (shape, deltas) = get("roi_heads.box_predictor.bbox_pred.bias");
    assert_eq!((shape, &deltas[..5]), (vec![16], [0.0, 0.0, 0.0, 0.0, 1.0].as_slice()));
    let masks = get("roi_heads.mask_predictor.mask_fcn_logits.bias");
    assert_eq!(masks, (vec![4], vec![0.0, 1.0, 2.0, 3.0]));
    let back = |tensors: BTreeMap<String, Values>| {
        BTreeMap::from_iter(Dialect::Detectron2.export(tensors.into_iter().collect()))
    };
    assert_eq!(back(translated.tensors), file, "and back, bitwise");

    let mut wrong = file.clone();
    wrong.insert("roi_heads.mask_head.predictor.bias".into(), bias(1));
    let refusal = translate(wrong).unwrap_err();
    assert!(refusal.contains("`roi_heads.mask_head.predictor.bias` has 1 rows"), "{refusal}");
    assert!(refusal.contains("class-agnostic masks"), "{refusal}");

    // Class-agnostic deltas do not change.
    let mut shared = file;
    for (name, rows) in [("weight", values(4, 2)), ("bias", bias(4))] {
        shared.insert(format!("roi_heads.box_predictor.bbox_pred.{name}"), rows);
    }
    let translated = translate(shared.clone()).unwrap();
    let (_, deltas) = &translated.tensors["roi_heads.box_predictor.bbox_pred.bias"];
    assert_eq!(deltas, &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(back(translated.tensors), shared, "and back, bitwise");
}

/// Detectron's norms are only a scale and a shift: the folded values must be bit-identical to both.
#[test]
fn norm_without_statistics_keeps_scale_bit_exactly() {
    let mut bits = 0x9e37_79b9_u32;
    let mut scales: Vec<f32> = vec![0.0, -0.0, 1.0, f32::MIN_POSITIVE, 1e-42, f32::MAX, -1.9999999];
    while scales.len() < 100_000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        scales.push(Some(f32::from_bits(bits)).filter(|v| v.is_finite()).unwrap_or(1.5));
    }
    // The largest f32 values below 2, whose relative distance to the next value is smallest.
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

/// Layouts, a fully connected layer after convolutions, and two classes with the background.
#[test]
fn tensorpack_layouts_are_converted() {
    let count = |shape: &[usize]| -> Values {
        (shape.to_vec(), (0..shape.iter().product::<usize>()).map(|i| i as f32).collect())
    };
    let stored = file([
        ("conv0/W:0", count(&[1, 1, 1, 2])),
        ("fastrcnn/conv1/W", count(&[1, 1, 1, 1])),
        ("fastrcnn/fc/W", count(&[2, 3])),
        ("fastrcnn/fc/W/Momentum", count(&[2, 3])),
        ("fastrcnn/outputs/class/b", count(&[3])),
        ("maskrcnn/conv/b", count(&[2])),
        ("learning_rate", count(&[])),
    ]);
    let expected = file([
        ("backbone.body.conv1.weight", count(&[2, 1, 1, 1])),
        ("roi_heads.box_head.1.0.weight", count(&[1, 1, 1, 1])),
        ("roi_heads.box_head.2.weight", (vec![3, 2], vec![0., 3., 1., 4., 2., 5.])),
        ("roi_heads.box_predictor.cls_score.bias", count(&[3])),
        ("roi_heads.mask_predictor.mask_fcn_logits.bias", (vec![3], vec![0., 0., 1.])),
        ("learning_rate", count(&[])),
    ]);
    assert_eq!(translate(stored.clone()).unwrap().tensors, expected);
    let mut wrong = stored;
    wrong.insert("maskrcnn/conv/b".into(), count(&[3]));
    let told = translate(wrong).unwrap_err();
    assert!(told.contains("`maskrcnn/conv/b` has 3 rows instead of 1 for each of 2"), "{told}");
    let empty = BTreeMap::from([("conv0/W".into(), (vec![0, 1 << 40, 1 << 40], vec![]))]);
    let shape = &translate(empty).unwrap().tensors["backbone.body.conv1.weight"].0;
    assert_eq!(shape, &[1 << 40, 1 << 40, 0]);
}
