//! `mlperf_name_map.json`: the torchvision name of each maskrcnn-benchmark tensor.
//! `d2_c2_names.json`: the parameter for each blob of Caffe2's ResNet-50, from detectron2's own
//! converter; `d2_state_dict_names.json` and `tv_state_dicts.json`: the tensors of detectron2's and
//! torchvision's models.

use std::collections::BTreeMap;

use engine::config::Config;
use engine::model::{BuiltProgram, training_program};
use engine::weights::{Dialect, ExportForm, Values, WeightsFile, export_weights, initial_state};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

use crate::model_configs::usizes;
use crate::models::spec;
use crate::support::golden_json;

/// Each blob is loaded under the same name as the parameter to which detectron2's converter maps
/// it.
pub(crate) fn run() {
    let Some(tables) = golden_json("d2_c2_names.json") else { return };
    let unused = tables["imagenet_unused_in_mask_rcnn_R_50_FPN_3x"].as_array().expect("a list");
    for table in ["r50_bn_gamma_beta_running", "r50_bn_s_b_rm_riv", "r50_bn_s_b"] {
        let names = tables[table].as_object().expect("an object").iter();
        let names = names.filter(|(blob, _)| !unused.contains(&Value::from(blob.as_str())));
        let (blobs, theirs): (Vec<&str>, Vec<&str>) =
            names.map(|(blob, name)| (blob.as_str(), name.as_str().expect("a name"))).unzip();
        let (ours, theirs) = (read(&blobs, Dialect::Detectron), read(&theirs, Dialect::Detectron2));
        assert!(!blobs.is_empty() && theirs.len() == blobs.len(), "{table}");
        for (name, value) in &theirs {
            assert_eq!(ours.get(name), Some(value), "{table}: {name}");
        }
    }
}

/// Each tensor name of maskrcnn-benchmark's model is mapped to the correct torchvision name.
pub(crate) fn benchmark() {
    let Some(table) = golden_json("mlperf_name_map.json") else { return };
    let names = table["map"].as_object().expect("an object").iter();
    let (theirs, ours): (Vec<&str>, Vec<&str>) =
        names.map(|(theirs, ours)| (theirs.as_str(), ours.as_str().expect("a name"))).unzip();
    let (theirs, ours) = (read(&theirs, Dialect::Benchmark), read(&ours, Dialect::Torchvision));
    assert!(!theirs.is_empty());
    assert_eq!(theirs, ours);
}

/// Reads a file with tensors of these names; the i-th tensor contains the number i; returns them
/// under onegraph's names.
fn read(names: &[&str], dialect: Dialect) -> BTreeMap<String, Values> {
    let numbers: Vec<[u8; 4]> =
        (1u16..).map(|i| f32::from(i).to_le_bytes()).take(names.len()).collect();
    let view = |number| TensorView::new(Dtype::F32, vec![1], number).expect("four bytes");
    let views = names.iter().zip(&numbers).map(|(name, number)| (*name, view(&number[..])));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), safetensors::serialize(views, None).expect("sound"))
        .expect("a file");
    let read = WeightsFile::open(file.path()).expect("sound");
    assert_eq!(read.dialect(), dialect);
    read.tensors(1e-5)
}

/// A recorded model: its file, its name in the file, the preset, and config overrides.
struct Recorded {
    file: &'static str,
    model: &'static str,
    preset: &'static str,
    set: &'static [&'static str],
}

const RECORDED: [Recorded; 15] = [
    detectron2("mask_rcnn_R_50_FPN_3x", "detectron2_r50_3x", &[]),
    detectron2("faster_rcnn_R_50_FPN_3x", "detectron2_faster_r50_3x", &[]),
    detectron2("mask_rcnn_R_50_C4_3x", "detectron2_r50_c4_3x", &[]),
    detectron2("mask_rcnn_R_50_DC5_3x", "detectron2_r50_dc5_3x", &[]),
    detectron2("cascade_mask_rcnn_R_50_FPN_3x", "detectron2_cascade_r50_3x", &[]),
    detectron2("new_baselines_mask_rcnn_R_50_FPN_100ep_LSJ", "detectron2_r50_lsj", &[]),
    detectron2("scratch_mask_rcnn_R_50_FPN_3x_gn", "detectron2_r50_lsj", &GROUP_NORMS),
    detectron2("keypoint_rcnn_R_50_FPN_3x", "detectron2_keypoint_r50_3x", &[]),
    torchvision("maskrcnn_resnet18_fpn", "torchvision_r18"),
    torchvision("maskrcnn_resnet34_fpn", "torchvision_r34"),
    torchvision("maskrcnn_resnet50_fpn", "torchvision_r50"),
    torchvision("maskrcnn_resnet50_fpn_v2", "torchvision_r50_v2"),
    torchvision("maskrcnn_resnet152_fpn", "torchvision_r152"),
    torchvision("maskrcnn_resnext50_32x4d_fpn", "torchvision_resnext50"),
    torchvision("keypointrcnn_resnet50_fpn", "torchvision_keypoint_r50"),
];
const GROUP_NORMS: [&str; 7] = [
    "model.backbone.norm=group_norm",
    "model.backbone.norm_groups=32",
    "model.backbone.frozen_stages=0",
    "model.fpn.norm=group_norm",
    "model.rpn.convs=1",
    "model.box_head.norm=group_norm",
    "model.mask_head.norm=group_norm",
];

const fn detectron2(
    model: &'static str,
    preset: &'static str,
    set: &'static [&'static str],
) -> Recorded {
    Recorded { file: "d2_state_dict_names.json", model, preset, set }
}

const fn torchvision(model: &'static str, preset: &'static str) -> Recorded {
    Recorded { file: "tv_state_dicts.json", model, preset, set: &[] }
}

/// `d2_state_dict_names.json` and `tv_state_dicts.json`: every tensor of a model has the same name
/// and shape as in the model exported with the preset, except for the counters of batch norms,
/// which no project needs. The number of trained parameters is also equal, except for scales and
/// shifts of batch norms.
pub(crate) fn state_dicts() {
    for recorded in &RECORDED {
        let Some(tables) = golden_json(recorded.file) else { return };
        let of_detectron2 = recorded.file.starts_with("d2_");
        let table = &tables[recorded.model];
        let theirs = if of_detectron2 { &table["state_dict"] } else { table };
        let theirs: BTreeMap<String, Vec<usize>> = theirs
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(name, _)| !name.ends_with(".num_batches_tracked"))
            .map(|(name, shape)| (name.clone(), usizes(shape)))
            .collect();
        let dialect = if of_detectron2 { Dialect::Detectron2 } else { Dialect::Torchvision };
        let (ours, trained) = shapes(recorded, dialect, &theirs);
        assert_eq!(ours, theirs, "{}", recorded.model);
        let Some(names) = table["trained"].as_array().filter(|_| of_detectron2) else { continue };
        let is_fixed = |name: &&Value| {
            let module = name.as_str().and_then(|name| name.rsplit_once('.')).expect("a name").0;
            theirs.contains_key(&format!("{module}.running_var"))
        };
        let stages = ["backbone.bottom_up.stem.", "backbone.bottom_up.res2."];
        let is_frozen = |name: &&Value| {
            let name = name.as_str().expect("a name");
            recorded.set.is_empty() && stages.iter().any(|stage| name.starts_with(stage))
        };
        let names = names.iter().filter(|name| !is_fixed(name) && !is_frozen(name));
        assert_eq!(trained, names.count(), "{}", recorded.model);
    }
}

/// torchvision's classifiers, and presets that use them as backbones.
const BODIES: [(&str, &str); 6] = [
    ("resnet18", "torchvision_r18"),
    ("resnet34", "torchvision_r34"),
    ("resnet50", "torchvision_r50"),
    ("resnet152", "torchvision_r152"),
    ("resnext50_32x4d", "torchvision_resnext50"),
    ("convnext_tiny", "convnext_tiny"),
];

/// `tv_state_dicts.json`: the backbone of a preset has each tensor of the classifier, except for
/// the classifier's last layers and the counters of batch norms.
#[test]
fn classifier_tensor_names_and_shapes_match_golden() {
    let Some(tables) = golden_json("tv_state_dicts.json") else { return };
    for (model, preset) in BODIES {
        let (all, _) = shapes(&torchvision(model, preset), Dialect::Torchvision, &BTreeMap::new());
        let body = all.iter().filter_map(|(name, shape)| {
            Some((name.strip_prefix("backbone.body.")?.to_string(), shape.clone()))
        });
        let is_last = |name: &str| name.starts_with("fc.") || name.starts_with("classifier.");
        let theirs = tables[model].as_object().expect("an object").iter();
        let theirs = theirs
            .filter(|(name, _)| !is_last(name) && !name.ends_with(".num_batches_tracked"))
            .map(|(name, shape)| (name.clone(), usizes(shape)));
        let (ours, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (body.collect(), theirs.collect());
        assert_eq!(ours, theirs, "{model}");
    }
}

/// Names and shapes of the tensors exported by a model with as many classes and keypoints as the
/// recorded model, and its number of trained parameters.
fn shapes(
    recorded: &Recorded,
    dialect: Dialect,
    theirs: &BTreeMap<String, Vec<usize>>,
) -> (BTreeMap<String, Vec<usize>>, usize) {
    let rows = |bias: &str| {
        let found = theirs.iter().find(|(name, _)| name.ends_with(bias));
        found.map(|(_, shape)| shape[0])
    };
    let mut set: Vec<String> = recorded.set.iter().map(|text| text.to_string()).collect();
    let keypoints = rows("score_lowres.bias");
    set.extend(keypoints.map(|count| format!("model.keypoint_head.keypoints={count}")));
    let config = Config::load(recorded.preset, &set).expect("the preset loads");
    let spec = spec(&config, rows("cls_score.bias").unwrap_or(2) - 1, 1, [64; 2]);
    let BuiltProgram { program, params, .. } = training_program(&spec).expect("it builds");
    let state = initial_state(&program, &params, 0, config.model.backbone.norm_eps);
    let form = ExportForm::Safetensors;
    let bytes = export_weights(&params, &state, None, form, dialect).expect("an export");
    let file = SafeTensors::deserialize(&bytes).expect("sound");
    let shapes = file.iter().map(|(name, view)| (name.into(), view.shape().to_vec())).collect();
    (shapes, params.iter().filter(|param| param.trained.is_some()).count())
}
