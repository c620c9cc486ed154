//! Golden family `tv_lvis_eval`: LVIS's thirteen metrics and the underlying curves.

use score::{IouType, evaluate_lvis};

use crate::coco_eval::{family, read};
use crate::support::{Case, Report};

#[test]
fn torchvision_lvis_eval_matches_golden() {
    family("tv_lvis_eval", "tv_lvis_eval (curves)", compare);
}

fn compare(report: &mut Report, curves_report: &mut Report, case: Case<'_>) {
    let name = case.name();
    let iou_type = match case.attribute("iou_type").as_str() {
        Some("bbox") => IouType::Bbox,
        _ => IouType::Segm,
    };
    let (gt, results) = read(case, iou_type);
    assert!(gt.is_lvis(), "{name}");
    let results = results.limited_to(case.usize("max_dets"));
    let (summary, curves) = evaluate_lvis(&gt, results).expect("golden files are sound");
    report.close(name, "results_f64", &summary.stats, &case.f64("results_f64").data);
    report.done_case();

    let precision = case.f32("precision");
    assert_eq!(curves.shape[..4], precision.shape, "{name}: shape of the curves");
    curves_report.close(name, "precision", &curves.precision, &precision.data);
    curves_report.close(name, "recall", &curves.recall, &case.f32("recall").data);
    curves_report.done_case();
}
