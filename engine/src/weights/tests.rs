//! Loading of weights files: loaded and missing tensors, and rejected files.

mod heads;
mod projects;

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::Config;
use graph::StateSet;

use super::container::safetensors_bytes;
use super::names::part;
use super::{
    Extent, LoadReport, Tolerance, Values, WeightsFile, initial_state, map_classes, save_weights,
    weights_from_tensors,
};
use crate::classes::NO_CATEGORY;
use crate::evaluate::TrainedModel;
use crate::model::{BuiltProgram, ModelSpec, depends_on_classes, detection_program};
use crate::progress::Progress;
use crate::runtime::Backend;

/// Overrides for a very narrow ResNet.
const NARROW: [&str; 6] = [
    "model.backbone.stem_channels=2",
    "model.backbone.width=2",
    "model.fpn.channels=4",
    "model.box_head.hidden=[4,4]",
    "model.mask_head.channels=[4,4,4,4]",
    "model.mask_head.deconv_channels=4",
];

/// The parameters and initial state of a model.
fn model(preset: &str, set: &[&str], classes: usize, seed: u64) -> (BuiltProgram, StateSet) {
    let set: Vec<String> = NARROW.iter().chain(set).map(|s| s.to_string()).collect();
    let config = Config::load(preset, &set).unwrap();
    let spec = ModelSpec::smallest(&config, classes, device::Target::Cpu);
    let built = detection_program(&spec).unwrap();
    let state = initial_state(&built.program, &built.params, seed, 1e-5);
    (built, state)
}

/// The tensors that are written when a model is saved.
fn saved((built, state): &(BuiltProgram, StateSet)) -> BTreeMap<String, Values> {
    let bytes = save_weights(&built.params, state, (&[], &[]), false).unwrap();
    opened("model.safetensors", &bytes).tensors(1e-5)
}

/// Writes and opens a file with these bytes.
fn opened(name: &str, bytes: &[u8]) -> WeightsFile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    WeightsFile::open(&path).unwrap()
}

/// Writes and opens a file with these tensors.
fn written(tensors: impl IntoIterator<Item = (String, Values)>) -> WeightsFile {
    opened("w.safetensors", &safetensors_bytes(&Vec::from_iter(tensors), None).unwrap())
}

fn load(
    tensors: &BTreeMap<String, Values>,
    extent: Extent,
    (built, state): &mut (BuiltProgram, StateSet),
) -> LoadReport {
    weights_from_tensors(tensors, extent, &built.params, state)
}

fn refusal(report: &LoadReport, tolerance: Tolerance) -> String {
    let checked = report.check(Path::new("w.safetensors"), tolerance, "mend it");
    checked.map_or_else(|e| e.to_string(), |()| "accepted".into())
}

/// A class without a category is distinguished from a category that is named `N/A`, torchvision's
/// name for such classes. If several classes of a file are named `N/A`, none is a category.
#[test]
fn weights_file_distinguishes_category_named_na_from_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let class = |name: &str, id: u64| (name.to_string(), id);
    let (built, state) = model("torchvision_r50", &[], 3, 1);
    let points = ["tip".to_string(), "base".into()];
    let read = |names: [&str; 3]| -> Vec<String> {
        let classes: Vec<_> = names.into_iter().zip(1..).map(|(n, id)| class(n, id)).collect();
        let bytes = save_weights(&built.params, &state, (&classes, &points), false).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let file = WeightsFile::open(&path).unwrap();
        assert_eq!(file.keypoints(), points);
        file.categories().unwrap().iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(read(["cat", NO_CATEGORY, "N/A"]), ["cat", NO_CATEGORY, "N/A"]);
    assert_eq!(read(["N/A", "cat", "N/A"]), [NO_CATEGORY, "cat", NO_CATEGORY]);
    // The keypoint names are ignored for a model without keypoints.
    let (preset, set) = (Some("torchvision_r50".as_ref()), NARROW.map(String::from));
    let model = TrainedModel::from_weights(&path, preset, &set, &Backend::Cpu, &Progress::quiet());
    assert!(model.unwrap().keypoints.is_empty());
}

/// A model: preset, overrides, and number of classes.
type Made = (&'static str, &'static [&'static str], usize);

const R50: Made = ("torchvision_r50", &[], 3);
const R101: Made = ("torchvision_r101", &[], 3);
const SHARED: &str = "model.box_head.class_agnostic=true";
const THREE_HEADS: Made = (
    "detectron2_r50_3x",
    &[SHARED, "model.cascade.fg_iou=[0.6,0.7]", "model.cascade.box_weight_factors=[2,3]"],
    3,
);
const TWO_HEADS: Made = (
    "detectron2_r50_3x",
    &[SHARED, "model.cascade.fg_iou=[0.6]", "model.cascade.box_weight_factors=[2]"],
    3,
);
const ONE_HEAD: Made = ("detectron2_r50_3x", &[SHARED], 3);

/// Missing, mismatched and unexpected tensors are errors; with different classes, only predictors
/// may differ.
#[test]
fn file_of_another_model_is_rejected_by_name_and_shape() {
    use Extent::{AllButClasses, Backbone, Model};
    use Tolerance::{Classes, Nothing};
    const SHALLOW: &str = "parameters of the model are not in it: `backbone.body.layer3.6.";
    const DEEP: &str = "the model: 255 of its tensors do not exist in the model";
    const WIDE: Made = ("torchvision_r50", &["model.fpn.channels=8"], 3);
    const MORE: Made = ("torchvision_r50", &[], 5);
    let wide = "`backbone.fpn.inner_blocks.3.0.weight` ([4, 64, 1, 1] in the file, [8, 64, 1, 1] \
                in the model)";
    for (file, model_, extent, tolerance, told) in [
        (R50, R101, Model, Nothing, SHALLOW),
        (R50, R101, Model, Classes, SHALLOW),
        (R50, R101, Backbone, Nothing, SHALLOW),
        (R101, R50, Model, Nothing, DEEP),
        (R101, R50, Model, Classes, DEEP),
        (R101, R50, Backbone, Nothing, DEEP),
        (R50, WIDE, Model, Classes, wide),
        (R50, MORE, Model, Nothing, "box_predictor"),
        (R50, MORE, Model, Classes, "accepted"),
        (R50, R50, AllButClasses, Classes, "accepted"),
        (THREE_HEADS, TWO_HEADS, Model, Classes, "`roi_heads.box_head_stage"),
        (THREE_HEADS, TWO_HEADS, AllButClasses, Classes, "`roi_heads.box_head_stage"),
        (THREE_HEADS, ONE_HEAD, Model, Classes, "`roi_heads.box_head_stage"),
        (THREE_HEADS, ONE_HEAD, AllButClasses, Classes, "`roi_heads.box_head_stage"),
        (THREE_HEADS, THREE_HEADS, Model, Nothing, "accepted"),
    ] {
        let made = |(preset, set, classes): Made, seed| model(preset, set, classes, seed);
        let report = load(&saved(&made(file, 1)), extent, &mut made(model_, 2));
        let text = refusal(&report, tolerance);
        assert!(text.contains(told), "{told}: {text}");
        assert!(text == "accepted" || text.ends_with("; mend it"), "{text}");
    }
    let alien = saved(&model("torchvision_r50", &[], 3, 1));
    let alien = alien.into_iter().map(|(name, values)| (format!("alien.{name}"), values));
    let none = load(&alien.collect(), Model, &mut model("torchvision_r50", &[], 3, 2));
    for fault in [none.check_some(Path::new("w")), none.check(Path::new("w"), Classes, "")] {
        let fault = fault.unwrap_err().to_string();
        assert!(fault.contains("`alien.backbone.body.bn1.bias`"), "{fault}");
    }
}

/// Fine-tuning: only parameters that depend on the number of classes are reinitialised.
#[test]
fn loading_other_classes_reinitialises_only_predictors() {
    let from = model("torchvision_r50", &[], 3, 1);
    let file = saved(&from);
    let mut to = model("torchvision_r50", &[], 5, 2);
    let report = load(&file, Extent::Model, &mut to);
    let initial: Vec<&str> = report.initial().map(|(name, _)| name).collect();
    assert_eq!(initial.len(), 6, "weights and biases of logits, boxes and masks: {initial:?}");
    // The table counts tensors by part of the model.
    let text = report.describe();
    assert!(text.contains(" 6 mismatched") && text.contains("\n  mismatched: `"), "{text}");
    let row = |part: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(part));
        let words = line.unwrap_or_else(|| panic!("{part}: {text}")).split_whitespace();
        words.skip(1).map(str::to_string).collect()
    };
    assert_eq!(row("backbone.body"), ["265", "0", "0", "0"]);
    assert_eq!(row("roi_heads.box_predictor"), ["0", "4", "0", "0"]);
    assert_eq!(row("roi_heads.mask_predictor"), ["2", "2", "0", "0"]);
    // The same number of classes, but different classes.
    let mut to = model("torchvision_r50", &[], 3, 2);
    let fresh = to.1.clone();
    let report = load(&file, Extent::AllButClasses, &mut to);
    assert_eq!((report.left.len(), report.unexpected.len()), (6, 0));
    let bias = "roi_heads.box_predictor.cls_score.weight";
    assert_eq!(to.1.get(bias), fresh.get(bias));
    assert_ne!(to.1.get(bias), from.1.get(bias));
}

#[test]
fn backbone_load_from_any_file_changes_only_backbone() {
    let whole = saved(&model("torchvision_r50", &[], 3, 1));
    let body = |name: &str| name.strip_prefix("backbone.body.").map(str::to_string);
    let short = whole.iter().filter_map(|(name, v)| Some((body(name)?, v.clone())));
    let mut classifier: BTreeMap<String, Values> = short.collect();
    classifier.insert("fc.weight".into(), (vec![1], vec![0.5]));
    for file in [&whole, &classifier] {
        let mut to = model("torchvision_r50", &[], 3, 2);
        let before = to.1.clone();
        let report = load(file, Extent::Backbone, &mut to);
        assert_eq!(refusal(&report, Tolerance::Nothing), "accepted");
        assert!(report.loaded.iter().all(|name| name.starts_with("backbone.body.")));
        for param in &to.0.params {
            let (now, name) = (to.1.get(&param.name), &param.name);
            let same = now == before.get(name);
            assert!(same || name.starts_with("backbone.body."), "{name} changed");
        }
        let (conv, norm) = ("backbone.body.conv1.weight", "backbone.body.layer4.2.conv3.weight");
        assert!(to.1.get(conv) != before.get(conv) && to.1.get(norm) != before.get(norm));
    }
}

/// Layouts [K, R, S, C] (ours) and [K, C, R, S] (torchvision's), with 49 positions.
#[test]
fn conv_weights_are_transposed_to_channels_first() {
    let (name, from) = ("backbone.body.conv1.weight", model("torchvision_r50", &[], 3, 1));
    let (shape, theirs) = &saved(&from)[name];
    let ours = from.1.get(name).unwrap().as_f32();
    assert_eq!(shape, &[2, 3, 7, 7]);
    assert_eq!([theirs[5], theirs[49 + 5]], [ours[3 * 5], ours[3 * 5 + 1]]);
    assert_eq!(theirs[147 + 98 + 48], ours[147 + 3 * 48 + 2]);
}

#[test]
fn only_predictors_depend_on_class_count() {
    for (name, rows, depends, of) in [
        ("roi_heads.box_predictor.bbox_pred.bias", 8, true, "roi_heads.box_predictor"),
        ("roi_heads.box_predictor.bbox_pred.weight", 4, false, "roi_heads.box_predictor"),
        ("roi_heads.box_predictor_stage1.cls_score.bias", 4, true, "roi_heads.box_predictor"),
        ("roi_heads.mask_predictor.mask_fcn_logits.bias", 8, true, "roi_heads.mask_predictor"),
        ("roi_heads.mask_predictor.conv5_mask.bias", 8, false, "roi_heads.mask_predictor"),
        ("backbone.fpn.inner_blocks.0.0.weight", 8, false, "backbone.fpn"),
        ("fc.weight", 8, false, "fc.weight"),
    ] {
        assert_eq!((depends_on_classes(name, &[rows]), part(name)), (depends, of), "{name}");
    }
}

/// The container tests cover malformed files.
#[test]
fn invalid_weights_file_is_rejected_with_one_line_error() {
    let folder = tempfile::tempdir().unwrap();
    let checked = |name: &str, tensor: &str, values: [f32; 2]| {
        let path = folder.path().join(name);
        let tensors = [(tensor.to_string(), (vec![2], values.to_vec()))];
        std::fs::write(&path, safetensors_bytes(&tensors, None).unwrap()).unwrap();
        WeightsFile::open(&path).map_or_else(|e| e.to_string(), |_| "taken".into())
    };
    for (name, tensor, values, told) in [
        ("a.safetensors", "a", [1.0, f32::NAN], "element 1 of tensor `a` is NaN"),
        ("a.safetensors", "v.running_var", [1.0, -0.5], "1 of tensor `v.running_var` is -0.5, but"),
        ("r50-0676ba61.pth", "a", [0.0; 2], "according to its name with 0676ba61: download"),
        ("a.safetensors", "v.running_mean", [1.0, -0.5], "taken"),
    ] {
        let said = checked(name, tensor, values);
        assert!(said.contains(told) && (told == "taken" || said.contains(name)), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
    let error = WeightsFile::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn class_rows_are_copied_by_name_and_others_kept() {
    let classes = |names: &[&str]| -> Vec<(String, u64)> {
        names.iter().zip(1..).map(|(name, id)| (name.to_string(), id)).collect()
    };
    let from = model("torchvision_r50", &[], 3, 1);
    let file = written(saved(&from));
    let (built, mut state) = model("torchvision_r50", &[], 4, 2);
    let fresh = state.clone();
    let (theirs, ours) =
        (classes(&["cat", NO_CATEGORY, "dog"]), classes(&["bird", "Dog", NO_CATEGORY, "cat"]));
    let mapped = map_classes(&file, &theirs, &ours, &built.params, &mut state);
    assert_eq!(mapped.taken, [("Dog".to_string(), 3), ("cat".to_string(), 1)]);
    assert_eq!((mapped.anew, mapped.params.len()), (vec!["bird".to_string()], 6));
    // For the background and each of our classes, the index in the file.
    let sources = [Some(0), None, Some(3), None, Some(1)];
    for name in &mapped.params {
        let param = built.params.iter().find(|p| p.name == *name).unwrap();
        let rows = param.shape[0] / 5;
        let len = param.shape.iter().product::<usize>() / 5;
        let get = |state: &StateSet| state.get(name).unwrap().as_f32().to_vec();
        let (now, before, theirs) = (get(&state), get(&fresh), get(&from.1));
        assert!([1, 4].contains(&rows));
        for (class, source) in sources.iter().enumerate() {
            let expected = match source {
                Some(source) => &theirs[source * len..][..len],
                None => &before[class * len..][..len],
            };
            assert_eq!(&now[class * len..][..len], expected, "{name}, class {class}");
        }
    }
}
