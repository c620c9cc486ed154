//! Files of other projects, and the configs that compute the same as their models.

use std::collections::BTreeMap;

use graph::StateSet;

use super::{NARROW, load, model, opened, refusal, saved, written};
use crate::config::Config;
use crate::model::BuiltProgram;
use crate::weights::container::{safetensors_bytes, torch_bytes};
use crate::weights::conventions::contradictions;
use crate::weights::{
    Dialect, ExportForm, Extent, Tolerance, Values, WeightsFile, check_agreement, export_weights,
    fold, load_weights,
};

/// Like NumPy's `transpose(2, 3, 1, 0)` for a convolution, and `transpose()` for a matrix.
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

/// Tensorpack's name for a tensor. In `name`, the module is already Tensorpack's, and the last part
/// is ours.
fn in_tensorpack(name: &str) -> String {
    const ENDS: [(&str, &str); 6] = [
        ("/bn.weight", "/bn/gamma"),
        ("/bn.bias", "/bn/beta"),
        (".running_mean", "/mean/EMA"),
        (".running_var", "/variance/EMA"),
        (".weight", "/W"),
        (".bias", "/b"),
    ];
    let ends = ENDS.iter().find_map(|(ours, theirs)| Some((name.strip_suffix(ours)?, theirs)));
    ends.map(|(module, end)| format!("{module}{end}")).unwrap()
}

/// A model's tensors with a project's names and layouts.
fn of_project(from: &(BuiltProgram, StateSet), project: Dialect) -> Vec<(String, Values)> {
    let tensors = project.export(saved(from).into_iter().collect());
    let anchors = ("rpn.anchor_generator.cell_anchors.0".into(), (vec![1, 4], vec![0.0; 4]));
    match project {
        Dialect::Benchmark => tensors.into_iter().chain([anchors]).collect(),
        Dialect::Tensorpack => {
            let tensors = tensors.into_iter();
            let own = |(name, values): (String, Values)| {
                (in_tensorpack(&name), in_tensorflows_layout(&values))
            };
            tensors.map(own).collect()
        }
        _ => tensors,
    }
}

const TENSORPACKS: [&str; 4] = [
    "model.backbone.stride_in_1x1=false",
    "model.roi.sampling_ratio=2",
    "input.std=[57.375,57.12,58.395]",
    "input.resize_filter=bilinear",
];
const BOXES: &str = "box_predictor.bbox_pred";
const MASKS: &str = "mask_fcn_logits";

/// Tensors must be equal, except background rows that a project lacks, which are 0. Exported files
/// must be equal byte for byte.
#[test]
fn model_round_trips_bit_exactly_through_every_project() {
    use Dialect::{Benchmark, Detectron2, Tensorpack, Torchvision};
    let lsj = ["model.box_head.channels=[4,4]", "model.box_head.hidden=[4]"];
    let keypoint = ["model.keypoint_head.channels=[4]"];
    let convnext = ["model.backbone.stage_channels=[4,4,4,4]"];
    for (preset, set, project, name, lacking) in [
        ("torchvision_r50", &[][..], Torchvision, "a.pth", &[][..]),
        ("torchvision_r50", &[], Torchvision, "a.safetensors", &[]),
        ("convnext_tiny", &convnext, Torchvision, "convnext.pth", &[]),
        ("torchvision_r50", &[], Detectron2, "b.pth", &[BOXES, MASKS]),
        ("torchvision_r50", &[], Detectron2, "b.safetensors", &[BOXES, MASKS]),
        ("detectron2_r50_c4_3x", &[], Detectron2, "c4.pth", &[BOXES, MASKS]),
        ("detectron2_r50_dc5_3x", &[], Detectron2, "dc5.pth", &[BOXES, MASKS]),
        ("detectron2_r50_lsj", &lsj, Detectron2, "lsj.pth", &[BOXES, MASKS]),
        ("detectron2_cascade_r50_3x", &[], Detectron2, "cascade.pth", &[MASKS]),
        ("detectron2_keypoint_r50_3x", &keypoint, Detectron2, "keypoint.pth", &[BOXES]),
        ("mlperf_r50", &[], Benchmark, "c.pth", &[]),
        ("detectron2_r50_3x", &TENSORPACKS, Tensorpack, "d.safetensors", &[MASKS]),
    ] {
        let from = model(preset, set, 3, 1);
        let bytes = |(built, state): &(BuiltProgram, StateSet)| match project {
            Torchvision | Detectron2 => {
                let form = ExportForm::of(name.as_ref()).unwrap();
                export_weights(&built.params, state, None, form, project).unwrap()
            }
            _ if name.ends_with(".pth") => torch_bytes(&of_project(&from, project), None).unwrap(),
            _ => safetensors_bytes(&of_project(&from, project), None).unwrap(),
        };
        let written = bytes(&from);
        let file = opened(name, &written);
        assert_eq!((file.dialect(), file.num_classes()), (project, Some(3)), "{preset}: {name}");
        assert!(!file.is_backbone());
        let mut to = model(preset, set, 3, 2);
        let report = load(&file.tensors(1e-5), Extent::Model, &mut to);
        assert_eq!(refusal(&report, Tolerance::Nothing), "accepted", "{name}");
        assert_eq!((report.initial().count(), report.unexpected.len()), (0, 0), "{name}");
        for param in &from.0.params {
            let [ours, theirs] = [&from.1, &to.1].map(|s| s.get(&param.name).unwrap().as_f32());
            // The background is the first class.
            let lacks = lacking.iter().any(|predictor| param.name.contains(predictor));
            let dead = if lacks { ours.len() / 4 } else { 0 };
            assert!(ours[dead..] == theirs[dead..], "{name}: {}", param.name);
            assert!(theirs[..dead].iter().all(|value| *value == 0.0), "{name}: {}", param.name);
        }
        assert!(written == bytes(&to), "{name}");
    }
    let body = of_project(&model("detectron2_r50_3x", &TENSORPACKS, 3, 1), Tensorpack);
    let is_body = |name: &str| name.starts_with("conv0/") || name.starts_with("group");
    assert!(written(body.into_iter().filter(|(name, _)| is_body(name))).is_backbone());
}

/// Names of the norms of a model that has norms only in its backbone.
fn norms(built: &BuiltProgram) -> impl Iterator<Item = &str> {
    built.params.iter().filter_map(|param| param.name.strip_suffix(".running_var"))
}

/// The backbone of a model whose norms add 1e-5 to the variance, in the form of Detectron's or
/// detectron2's `R-50.pkl` (detectron2's issue 1688 lists the keys). Detectron's converter
/// (`tools/pickle_caffe_blobs.py`) folds the norms, and adds a bias to every convolution.
fn r50(from: &(BuiltProgram, StateSet), is_detectrons: bool) -> BTreeMap<String, Values> {
    let mut file: BTreeMap<String, Values> = BTreeMap::new();
    for (name, values) in saved(from) {
        let Some((module, what)) = name.rsplit_once('.') else { continue };
        let Some(layer) = name.strip_prefix("backbone.body.") else { continue };
        let named = Dialect::Detectron.export(vec![(layer.into(), (vec![], vec![]))]);
        let theirs = named[0].0.trim_end_matches(what).trim_end_matches('.');
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
                file.insert(format!("{theirs}_{what}"), values);
            }
            (true, true, _) => {}
            (true, false, _) => {
                let what = what.replace("weight", "gamma").replace("bias", "beta");
                file.insert(format!("{theirs}_{what}"), values);
            }
        }
    }
    file.insert("fc1000_w".into(), (vec![10, 64], vec![0.5; 640]));
    file.insert("fc1000_b".into(), (vec![10], vec![0.5; 10]));
    file
}

/// With both published versions of `R-50.pkl`, every MLPerf preset gets the same backbone, whose
/// norms compute the same as in the file.
#[test]
fn both_published_r50_files_load_into_mlperf_models() {
    let mut from = model("torchvision_r50", &[], 3, 1);
    for norm in norms(&from.0) {
        for what in ["weight", "bias", "running_mean", "running_var"] {
            let tensor = from.1.get_mut(&format!("{norm}.{what}")).unwrap();
            let wave = |i: u8| (f32::from(i) * 0.7).sin();
            // A wrong epsilon is visible only with variances near zero.
            let power = if what == "running_var" { 8 } else { 1 };
            let values = tensor.as_f32_mut().iter_mut().zip(1u8..);
            values.for_each(|(v, i)| *v = wave(i).powi(power));
        }
    }
    fold(&mut from.1, &from.0.params, 1e-5);
    for (is_detectrons, count) in [(true, 214), (false, 268)] {
        let tensors = r50(&from, is_detectrons);
        assert_eq!(tensors.len(), count);
        let read = written(tensors);
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
            assert!(notes.contains("skipped, as in Detectron: `conv1_b`"), "{notes}");
            assert_eq!(notes.contains("and 50 more"), is_detectrons, "{notes}");
            let warned = preset == "torchvision_r50";
            assert_eq!(notes.contains("BGR images") && notes.contains("1x1"), warned, "{notes}");
            fold(&mut state, &built.params, eps);
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
    let warned = contradictions(&written(r50(&from, false)), &config).join("; ");
    assert!(warned.contains("set model.backbone.norm_eps=0.00001"), "{warned}");
}

/// The reason why a file is rejected for a config, or "taken" if it is accepted.
fn agreement(file: &WeightsFile, extent: Extent, preset: &str, set: &[&str]) -> String {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    let checked = check_agreement(file, extent, &Config::load(preset, &set).unwrap());
    checked.map_or_else(|e| e.to_string(), |()| "taken".into())
}

/// Keys of the heads in which torchvision_r50 differs from detectron2's conventions.
const OF_HEADS: [&str; 5] = [
    "model.roi.aligned",
    "model.roi.sampling_ratio",
    "input.resize_filter",
    "model.anchors.stride_rule",
    "anchors rounded",
];

/// A file is rejected if the config differs from the project's conventions in a way that is not
/// visible in the tensors.
#[test]
fn model_loads_only_with_config_of_its_project() {
    use Extent::{Backbone, Model};
    let from = |preset, set: &[&str], project| of_project(&model(preset, set, 3, 1), project);
    let mut detectron2 = from("torchvision_r50", &[], Dialect::Detectron2);
    // As in `model_final_f10217.pkl`.
    detectron2.push(("pixel_mean".into(), (vec![3, 1, 1], vec![103.53, 116.28, 123.675])));
    detectron2.push(("pixel_std".into(), (vec![3, 1, 1], vec![1.0; 3])));
    let detectron2 = &written(detectron2);
    let tensorpack = &written(from("detectron2_r50_3x", &TENSORPACKS, Dialect::Tensorpack));
    let benchmark = &written(from("mlperf_r50", &[], Dialect::Benchmark));
    let of_body = [
        "pixels as (RGB - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]",
        "but the file's as (BGR - [103.53, 116.28, 123.675]) / [1.0, 1.0, 1.0]",
        "model.backbone.stride_in_1x1",
        "w.safetensors has detectron2's names",
        "; extend detectron2_r50_3x, or set",
    ];
    let pasted = ["model.detections.paste_rule=integer_box"];
    for (file, extent, preset, set, told) in [
        (detectron2, Model, "torchvision_r50", &[][..], &of_body[..]),
        (detectron2, Model, "torchvision_r50", &[], &OF_HEADS),
        (detectron2, Backbone, "torchvision_r50", &[], &of_body),
        (detectron2, Model, "torchvision_r50", &["model.names_only=true"], &["taken"]),
        (detectron2, Model, "detectron2_r50_1x", &[], &["taken"]),
        (detectron2, Model, "detectron2_r50_3x", &[], &["taken"]),
        (detectron2, Model, "detectron2_r101_3x", &[], &["taken"]),
        (detectron2, Model, "detectron2_r50_3x", &pasted, &["masks pasted into rounded boxes"]),
        (tensorpack, Model, "detectron2_r50_3x", &TENSORPACKS, &["taken"]),
        (
            tensorpack,
            Model,
            "detectron2_r50_3x",
            &[],
            &[
                "has Tensorpack's names",
                "Tensorpack's as (BGR - [103.53, 116.28, 123.675]) / [57.375, 57.12",
                "model.backbone.stride_in_1x1 = true instead of false",
                "model.roi.sampling_ratio = 0 instead of 2",
                "extend detectron2_r50_3x with input.std=[57.375,57.12,58.395] and input.resize",
            ],
        ),
        (benchmark, Model, "mlperf_r50", &[], &["taken"]),
        (
            benchmark,
            Model,
            "torchvision_r50",
            &[],
            &[
                "has maskrcnn-benchmark's names",
                "maskrcnn-benchmark's as (BGR - [102.98, 115.947, 122.772]) / [1.0",
                "model.backbone.norm_eps = 0.00001 instead of 0.0",
                "model.boxes.legacy_plus_one = false instead of true",
                "; extend mlperf_r50, or set",
            ],
        ),
    ] {
        let said = agreement(file, extent, preset, set);
        assert!(told.iter().all(|told| said.contains(told)), "{preset} {set:?}: {said}");
        let is_body = extent == Backbone;
        assert!(!is_body || OF_HEADS.iter().all(|told| !said.contains(told)), "{said}");
    }
    let config = Config::load("torchvision_r50", &[]).unwrap();
    let report = load_weights(detectron2, Backbone, &config, &[], &mut StateSet::new());
    assert!(report.notes.join("; ").contains("tensors were matched only by name"), "{report:?}");
}
