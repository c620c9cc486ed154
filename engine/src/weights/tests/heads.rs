//! Files with heads that the model lacks.

use std::path::Path;

use configs::Config;

use super::{load, model, refusal, saved};
use crate::weights::fits::{fitting, presets};
use crate::weights::{Extent, Tolerance, torchvision_shape};

#[test]
fn misfit_names_the_presets_that_the_file_fits() {
    let presets = presets(80);
    for (name, given, extent) in [
        ("torchvision_r18", "torchvision_r50", Extent::Backbone),
        ("torchvision_resnext101", "torchvision_r18", Extent::Backbone),
        ("torchvision_r34", "torchvision_r50", Extent::Model),
        ("torchvision_r50_v2", "torchvision_r50", Extent::Model),
        ("torchvision_keypoint_r50", "torchvision_r50", Extent::Model),
        ("faster_r50", "torchvision_r50_v2", Extent::Model),
        ("detectron2_r101_c4_3x", "detectron2_r50_3x", Extent::Model),
        ("detectron2_cascade_r50_3x", "detectron2_r50_3x", Extent::Model),
    ] {
        let params = &presets.iter().find(|preset| preset.name == name).unwrap().params;
        let params = params.iter().filter(|param| extent.holds(param));
        // Without values: only names and shapes count.
        let tensors = params.map(|param| (param.name.clone(), (torchvision_shape(param), vec![])));
        let config = Config::load(given, &[]).unwrap();
        let found = fitting(&presets, &tensors.collect(), extent, &config);
        assert_eq!(found.first().map(String::as_str), Some(name), "{found:?}");
    }
}

/// The further heads of a cascade have no place in a plain model, nor in a shorter cascade, whether
/// the classes are the same or not; a file of the same heads loads.
#[test]
fn a_cascade_is_not_cut_without_a_word() {
    let cascade = |further: &[&str], seed| {
        let shared = "model.box_head.class_agnostic=true";
        model("detectron2_r50_3x", &[&[shared], further].concat(), 3, seed)
    };
    let three = ["model.cascade.fg_iou=[0.6,0.7]", "model.cascade.box_weight_factors=[2,3]"];
    let two = ["model.cascade.fg_iou=[0.6]", "model.cascade.box_weight_factors=[2]"];
    let file = saved(&cascade(&three, 1));
    for extent in [Extent::Model, Extent::AllButClasses] {
        for fewer in [&two[..], &[]] {
            let report = load(&file, extent, &mut cascade(fewer, 2));
            let text = refusal(&report, Tolerance::Classes);
            assert!(text.contains("`roi_heads.box_head_stage"), "{text}");
            assert!(text.contains("the file is of a cascade"), "{text}");
        }
    }
    let mut same = cascade(&three, 2);
    let report = load(&file, Extent::Model, &mut same);
    assert!(report.check(Path::new("f"), Tolerance::Nothing, "").is_ok());
    assert_eq!(saved(&same), file);
}
