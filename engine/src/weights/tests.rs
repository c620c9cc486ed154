//! Loading: what a file fills, what it may leave, and what is refused.

mod heads;
mod projects;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Config;
use graph::StateSet;
use tempfile::TempDir;

use super::conventions::contradictions;
use super::dialect::detectron2_from_ours;
use super::{
    Dialect, ExportForm, Extent, LoadReport, Tolerance, Values, WeightsFile, check_agreement,
    export_weights, initial_state, load_weights, map_classes, save_weights, weights_from_tensors,
};
use crate::classes::NO_CATEGORY;
use crate::evaluate::TrainedModel;
use crate::model::{BuiltProgram, ModelSpec, detection_program};
use crate::progress::Progress;
use crate::runtime::Backend;

/// A ResNet as narrow as it gets.
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

/// The tensors that saving a model writes.
fn saved((built, state): &(BuiltProgram, StateSet)) -> BTreeMap<String, Values> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let bytes = save_weights(&built.params, state, (&[], &[]), false).unwrap();
    std::fs::write(&path, bytes).unwrap();
    WeightsFile::open(&path).unwrap().tensors(1e-5)
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

/// A class without a category is not one whose category is named as torchvision calls such classes;
/// files that name several so have no category by that name.
#[test]
fn a_category_keeps_its_name_in_a_file() {
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
    // A model without keypoints takes none of their names.
    let (preset, set) = (Some("torchvision_r50".as_ref()), NARROW.map(String::from));
    let model = TrainedModel::from_weights(&path, preset, &set, &Backend::Cpu, &Progress::quiet());
    assert!(model.unwrap().keypoints.is_empty());
}

#[test]
fn weights_of_a_shallower_or_deeper_backbone_are_refused() {
    let r50 = || model("torchvision_r50", &[], 3, 1);
    let r101 = || model("torchvision_r101", &[], 3, 1);
    for (extent, tolerance) in [
        (Extent::Model, Tolerance::Nothing),
        (Extent::Model, Tolerance::Classes),
        (Extent::Backbone, Tolerance::Nothing),
    ] {
        let report = load(&saved(&r50()), extent, &mut r101());
        let text = refusal(&report, tolerance);
        assert!(text.contains("parameters of the model are not in it: `backbone.body.layer3.6."));
        assert!(text.contains(" more; mend it"), "{text}");
        // Every parameter of the R50 is in the R101's file, with its shape.
        let report = load(&saved(&r101()), extent, &mut r50());
        assert!(report.missing.is_empty());
        assert!(refusal(&report, tolerance).contains("of its tensors have no place in the model"));
    }
}

#[test]
fn file_that_fills_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let from = saved(&model("torchvision_r50", &[], 3, 1));
    write(&path, &from.into_iter().map(|(n, v)| (format!("alien.{n}"), v)).collect());
    let (mut to, file) = (model("torchvision_r50", &[], 3, 2), WeightsFile::open(&path).unwrap());
    let none = load(&file.tensors(1e-5), Extent::Model, &mut to);
    for fault in [none.check_some(&path), none.check(&path, Tolerance::Classes, "")] {
        let fault = fault.unwrap_err().to_string();
        assert!(fault.contains("`alien.backbone.body.bn1.bias`"), "{fault}");
    }
}

#[test]
fn another_width_is_refused_by_name_and_shape() {
    let file = saved(&model("torchvision_r50", &[], 3, 1));
    let mut wide = model("torchvision_r50", &["model.fpn.channels=8"], 3, 1);
    let report = load(&file, Extent::Model, &mut wide);
    assert!(!report.mismatched.is_empty());
    let text = refusal(&report, Tolerance::Classes);
    assert!(text.contains("parameters have another shape in it"), "{text}");
    assert!(text.contains("`backbone.fpn.inner_blocks.3.0.weight`"), "{text}");
    assert!(text.contains("([4, 64, 1, 1] in the file, [8, 64, 1, 1] in the model)"), "{text}");
    let described = report.describe();
    assert!(described.contains(&format!("{} mismatched", report.mismatched.len())), "{described}");
    assert!(described.lines().any(|line| line.starts_with("  mismatched: `")), "{described}");
}

/// Fine-tuning: only parameters that depend on the number of classes are reinitialised.
#[test]
fn other_classes_leave_the_predictors_alone() {
    let from = model("torchvision_r50", &[], 3, 1);
    let file = saved(&from);
    let mut to = model("torchvision_r50", &[], 5, 2);
    let report = load(&file, Extent::Model, &mut to);
    assert_eq!(refusal(&report, Tolerance::Classes), "accepted");
    assert!(refusal(&report, Tolerance::Nothing).contains("box_predictor"));
    let initial: Vec<&str> = report.initial().map(|(name, _)| name).collect();
    assert_eq!(initial.len(), 6, "weights and biases of logits, boxes and masks: {initial:?}");
    // The gaps are counted by part of the model.
    let text = report.describe();
    let row = |part: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(part));
        let words = line.unwrap_or_else(|| panic!("{part}: {text}")).split_whitespace();
        words.skip(1).map(str::to_string).collect()
    };
    assert_eq!(row("backbone.body"), ["265", "0", "0", "0"]);
    assert_eq!(row("roi_heads.box_predictor"), ["0", "4", "0", "0"]);
    assert_eq!(row("roi_heads.mask_predictor"), ["2", "2", "0", "0"]);
    // The same number, but others.
    let mut to = model("torchvision_r50", &[], 3, 2);
    let fresh = to.1.clone();
    let report = load(&file, Extent::AllButClasses, &mut to);
    assert_eq!(refusal(&report, Tolerance::Classes), "accepted");
    assert_eq!((report.left.len(), report.unexpected.len()), (6, 0));
    let bias = "roi_heads.box_predictor.cls_score.weight";
    assert_eq!(to.1.get(bias), fresh.get(bias));
    assert_ne!(to.1.get(bias), from.1.get(bias));
}

#[test]
fn a_backbone_is_filled_from_a_classifier_or_a_detector_and_nothing_else_is() {
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

/// Why weights are not taken for a config, or that they are.
fn agreement(file: &WeightsFile, extent: Extent, preset: &str, set: &[&str]) -> String {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    let checked = check_agreement(file, extent, &Config::load(preset, &set).unwrap());
    checked.map_or_else(|e| e.to_string(), |()| "taken".into())
}

fn write(path: &Path, tensors: &BTreeMap<String, Values>) {
    let views = tensors.iter().map(|(name, (shape, values))| {
        let bytes = bytemuck::cast_slice(values);
        let dtype = safetensors::Dtype::F32;
        (name, safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_file_that_attacks_or_is_of_another_kind_is_one_sentence() {
    const NOT_WHOLE: &str = "no whole safetensors file";
    let folder = tempfile::tempdir().unwrap();
    let opened = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        WeightsFile::open(&path)
    };
    let file = |name: &str, dtype: &str, shape: &str, data: &[u8]| {
        let (start, end) = (r#""data_offsets":[0,"#, data.len());
        let header = format!(r#"{{"{name}":{{"dtype":"{dtype}","shape":{shape},{start}{end}]}}}}"#);
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    };
    let values = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    let (zeros, below) = (values([0.0; 2]), values([1.0, -0.5]));
    let fine = file("a", "F32", "[2]", &zeros);
    let huge = "[4294967296,4294967296,4294967296]";
    for (name, bytes, told) in [
        ("count.safetensors", u64::MAX.to_le_bytes().to_vec(), NOT_WHOLE),
        ("empty.safetensors", vec![], NOT_WHOLE),
        ("cut.safetensors", fine[..fine.len() - 1].to_vec(), NOT_WHOLE),
        ("huge.safetensors", file("a", "F32", huge, &zeros), NOT_WHOLE),
        (
            "nan.safetensors",
            file("a", "F32", "[2]", &values([1.0, f32::NAN])),
            "element 1 of tensor `a` is NaN",
        ),
        (
            "variance.safetensors",
            file("bn1.running_var", "F32", "[2]", &below),
            "element 1 of tensor `bn1.running_var` is -0.5, and no",
        ),
        (
            "whole.safetensors",
            file("a", "I32", "[2]", &zeros),
            "tensor `a` holds I32: save the weights as f32",
        ),
        ("r50-0676ba61.pth", fine.clone(), "by its name with 0676ba61: get it again"),
        ("r50.pth", b"PK\x03\x04rest".to_vec(), "no whole archive of PyTorch"),
    ] {
        let error = opened(name, &bytes).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(told), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let mean = file("bn1.running_mean", "F32", "[2]", &below);
    for bytes in [fine, mean, file("a", "F16", "[2]", &[0; 4])] {
        assert!(opened("sound", &bytes).is_ok());
    }
    let error = WeightsFile::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

/// A file of these tensors, in the form of PyTorch or Python's pickles.
fn exported(model: &(BuiltProgram, StateSet), dialect: Dialect, name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let form = ExportForm::of(&path).unwrap();
    let bytes = export_weights(&model.0.params, &model.1, None, form, dialect).unwrap();
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn a_model_comes_back_from_every_form_bitwise() {
    let from = model("torchvision_r50", &[], 3, 1);
    for (dialect, name) in [
        (Dialect::Torchvision, "a.pth"),
        (Dialect::Torchvision, "a.safetensors"),
        (Dialect::Detectron2, "b.pth"),
        (Dialect::Detectron2, "b.safetensors"),
    ] {
        let (_folder, path) = exported(&from, dialect, name);
        let file = WeightsFile::open(&path).unwrap();
        assert_eq!((file.dialect(), file.num_classes()), (dialect, Some(3)), "{name}");
        assert!(!file.is_backbone());
        let mut to = model("torchvision_r50", &[], 3, 2);
        let report = load(&file.tensors(1e-5), Extent::Model, &mut to);
        assert_eq!(refusal(&report, Tolerance::Nothing), "accepted");
        assert_eq!((report.initial().count(), report.unexpected.len()), (0, 0));
        let is_d2 = dialect == Dialect::Detectron2;
        for param in &from.0.params {
            let [ours, theirs] = [&from.1, &to.1].map(|s| s.get(&param.name).unwrap().as_f32());
            // The rows of the background that detectron2 lacks come first.
            let lacks = param.name.contains("box_predictor.bbox_pred")
                || param.name.contains("mask_fcn_logits");
            let dead = if is_d2 && lacks { ours.len() / 4 } else { 0 };
            assert!(ours[dead..] == theirs[dead..], "{name}: {}", param.name);
        }
        // And theirs again, to the byte.
        let (_folder, again) = exported(&to, dialect, name);
        assert!(std::fs::read(&path).unwrap() == std::fs::read(again).unwrap(), "{name}");
    }
}

/// Caffe2's name of a convolution in the body of an R-50, or of its norm.
fn in_caffe2(layer: &str) -> String {
    let words: Vec<&str> = layer.splitn(3, '.').collect();
    let [stage, block, layer] = words[..] else { return layer.replace("bn1", "res_conv1") };
    let stage = 1 + stage.trim_start_matches("layer").parse::<usize>().unwrap();
    let branch = match layer {
        "conv1" | "bn1" => "2a",
        "conv2" | "bn2" => "2b",
        "conv3" | "bn3" => "2c",
        _ => "1",
    };
    format!("res{stage}_{block}_branch{branch}")
}

/// The norms of a model whose norms are all in its body.
fn norms(built: &BuiltProgram) -> impl Iterator<Item = &str> {
    built.params.iter().filter_map(|param| param.name.strip_suffix(".running_var"))
}

/// The tensors of `R-50.pkl` for the body of a model whose norms add 1e-5 to the variance, as
/// Detectron publishes it, or detectron2 (its issue 1688 lists the keys). Detectron's converter
/// (`tools/pickle_caffe_blobs.py`) fuses the norms, and gives every convolution a bias.
fn r50(from: &(BuiltProgram, StateSet), is_detectrons: bool) -> BTreeMap<String, Values> {
    let mut file: BTreeMap<String, Values> = BTreeMap::new();
    for (name, values) in saved(from) {
        let Some((module, what)) = name.rsplit_once('.') else { continue };
        let Some(layer) = module.strip_prefix("backbone.body.") else { continue };
        let theirs = in_caffe2(layer);
        let folded = |what: &str| from.1.get(&format!("folded/{module}.{what}"));
        match (folded("scale").is_some(), is_detectrons, what) {
            (false, ..) => {
                if is_detectrons || theirs == "conv1" {
                    let channels = values.0[0];
                    file.insert(format!("{theirs}_b"), (vec![channels], vec![0.0; channels]));
                }
                file.insert(format!("{theirs}_w"), values);
            }
            (true, true, "weight" | "bias") => {
                let (what, ours) = if what == "bias" { ("b", "shift") } else { ("s", "scale") };
                let values = (values.0, folded(ours).unwrap().as_f32().to_vec());
                file.insert(format!("{theirs}_bn_{what}"), values);
            }
            (true, true, _) => {}
            (true, false, _) => {
                let what = what.replace("weight", "gamma").replace("bias", "beta");
                file.insert(format!("{theirs}_bn_{what}"), values);
            }
        }
    }
    file.insert("fc1000_w".into(), (vec![10, 64], vec![0.5; 640]));
    file.insert("fc1000_b".into(), (vec![10], vec![0.5; 10]));
    file
}

/// Both published kinds of `R-50.pkl` give every MLPerf preset the same body, whose norms compute
/// what they did.
#[test]
fn both_published_r50s_fill_the_mlperf_presets() {
    let mut from = model("torchvision_r50", &[], 3, 1);
    for norm in norms(&from.0) {
        for what in ["weight", "bias", "running_mean", "running_var"] {
            let tensor = from.1.get_mut(&format!("{norm}.{what}")).unwrap();
            let wave = |i: u8| (f32::from(i) * 0.7).sin();
            // A variance near zero shows the constant that is added to it.
            let power = if what == "running_var" { 8 } else { 1 };
            let values = tensor.as_f32_mut().iter_mut().zip(1u8..);
            values.for_each(|(v, i)| *v = wave(i).powi(power));
        }
    }
    super::fold(&mut from.1, &from.0.params, 1e-5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("R-50.safetensors");
    for (is_detectrons, count) in [(true, 214), (false, 268)] {
        let tensors = r50(&from, is_detectrons);
        assert_eq!(tensors.len(), count);
        write(&path, &tensors);
        let read = WeightsFile::open(&path).unwrap();
        assert!(read.dialect() == Dialect::Detectron && read.is_backbone());
        assert_eq!(read.has_statistics(), !is_detectrons);
        let presets = configs::preset_names();
        let presets: Vec<_> = presets.filter(|name| name.starts_with("mlperf")).collect();
        assert!(presets.len() > 5 && presets.contains(&"mlperf_r50"), "{presets:?}");
        for preset in presets.into_iter().chain(["torchvision_r50"]) {
            let set: Vec<String> = NARROW.iter().map(|s| s.to_string()).collect();
            let config = Config::load(preset, &set).unwrap();
            let eps = config.model.backbone.norm_eps;
            let (built, mut state) = model(preset, &[], 3, 2);
            let report = load_weights(&read, Extent::Backbone, &config, &built.params, &mut state);
            assert_eq!(refusal(&report, Tolerance::Nothing), "accepted");
            assert_eq!(report.loaded.len(), 53 * 5);
            assert_eq!(report.unexpected.len(), 2, "the classifier: {:?}", report.unexpected);
            let notes = report.notes.join("; ");
            assert!(notes.contains("left out, as Detectron does: `conv1_b`"), "{notes}");
            assert_eq!(notes.contains("and 50 more"), is_detectrons, "{notes}");
            let warned = preset == "torchvision_r50";
            assert_eq!(notes.contains("blue first") && notes.contains("1x1"), warned, "{notes}");
            super::fold(&mut state, &built.params, eps);
            for norm in norms(&from.0) {
                for what in ["scale", "shift"] {
                    let name = format!("folded/{norm}.{what}");
                    let [got, want] = [&state, &from.1].map(|s| s.get(&name).unwrap().as_f32());
                    let largest = want.iter().fold(0.0f32, |all, v| all.max(v.abs()));
                    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-7 * largest;
                    let same = got.iter().zip(want).all(near);
                    assert!(same && (eps < 1e-5 || got == want), "{preset}: {name}");
                    assert!(!is_detectrons || what == "shift" || got == want, "{preset}: {name}");
                }
            }
        }
    }
    let mut config = Config::load("mlperf_r50", &[]).unwrap();
    config.model.backbone.norm_eps = 1e-3;
    let warned = contradictions(&WeightsFile::open(&path).unwrap(), &config).join("; ");
    assert!(warned.contains("set model.backbone.norm_eps=0.00001"), "{warned}");
}

/// Settings that no tensor of a detectron2 file shows are refused where the config differs.
#[test]
fn models_of_detectron2_are_taken_by_configs_that_compute_as_it_does() {
    let from = model("torchvision_r50", &[], 3, 1);
    let tensors = detectron2_from_ours(saved(&from).into_iter().collect());
    let mut file: BTreeMap<String, Values> = tensors.into_iter().collect();
    // As `model_final_f10217.pkl` has them.
    file.insert("pixel_mean".into(), (vec![3, 1, 1], vec![103.53, 116.28, 123.675]));
    file.insert("pixel_std".into(), (vec![3, 1, 1], vec![1.0; 3]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model_final.safetensors");
    write(&path, &file);
    let file = WeightsFile::open(&path).unwrap();
    let check = |extent, preset, set: &[&str]| agreement(&file, extent, preset, set);
    let of_body = [
        "pixels in RGB less [123.675, 116.28, 103.53] over [58.395, 57.12, 57.375]",
        "where the file's are in BGR less [103.53, 116.28, 123.675] over [1.0, 1.0, 1.0]",
        "model.backbone.stride_in_1x1",
    ];
    let of_heads = [
        "model.roi.aligned",
        "model.roi.sampling_ratio",
        "input.resize_filter",
        "model.anchors.stride_rule",
        "anchors rounded",
    ];
    let whole = check(Extent::Model, "torchvision_r50", &[]);
    let body = check(Extent::Backbone, "torchvision_r50", &[]);
    assert!(of_body.iter().all(|told| whole.contains(told) && body.contains(told)), "{whole}");
    assert!(of_heads.iter().all(|told| whole.contains(told) && !body.contains(told)), "{whole}");
    assert!(whole.contains("model_final.safetensors has detectron2's names"), "{whole}");
    assert!(whole.contains("; extend detectron2_r50_3x, or set"), "{whole}");
    assert_eq!(check(Extent::Model, "torchvision_r50", &["model.names_only=true"]), "taken");
    for preset in ["detectron2_r50_1x", "detectron2_r50_3x", "detectron2_r101_3x"] {
        assert_eq!(check(Extent::Model, preset, &[]), "taken");
        let pasted = check(Extent::Model, preset, &["model.detections.paste_rule=integer_box"]);
        assert!(pasted.contains("has: masks pasted into whole pixels"), "{pasted}");
    }
    let report = load_weights(
        &file,
        Extent::Backbone,
        &Config::load("torchvision_r50", &[]).unwrap(),
        &[],
        &mut StateSet::new(),
    );
    assert!(report.notes.join("; ").contains("warning: taken by name alone"), "{report:?}");
}

#[test]
fn rows_of_classes_are_taken_by_name_and_the_rest_stays() {
    let classes = |names: &[&str]| -> Vec<(String, u64)> {
        names.iter().zip(1..).map(|(name, id)| (name.to_string(), id)).collect()
    };
    let from = model("torchvision_r50", &[], 3, 1);
    let (_folder, path) = exported(&from, Dialect::Torchvision, "a.pth");
    let file = WeightsFile::open(&path).unwrap();
    let (built, mut state) = model("torchvision_r50", &[], 4, 2);
    let fresh = state.clone();
    let (theirs, ours) =
        (classes(&["cat", NO_CATEGORY, "dog"]), classes(&["bird", "Dog", NO_CATEGORY, "cat"]));
    let mapped = map_classes(&file, &theirs, &ours, &built.params, &mut state);
    assert_eq!(mapped.taken, [("Dog".to_string(), 3), ("cat".to_string(), 1)]);
    assert_eq!((mapped.anew, mapped.params.len()), (vec!["bird".to_string()], 6));
    // The background, then ours; what each is in the file.
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
