//! Golden family `tv_lvis_eval`: the thirteen numbers of LVIS and the curves behind them.

use score::{GroundTruth, IouType, Results, evaluate_lvis};

use crate::support::{Case, Family, Report, golden_dir};

/// On the thirteen numbers.
const TOLERANCE: f64 = 1e-12;
/// The curves are stored as f32: half a unit of its last place.
const CURVE_TOLERANCE: f64 = 6e-8;

pub(crate) fn run() {
    let Some(family) = Family::open("tv_lvis_eval") else { return };
    let mut report = Report::new("tv_lvis_eval", TOLERANCE);
    let mut curves = Report::new("tv_lvis_eval (curves)", CURVE_TOLERANCE);
    for case in family.cases() {
        compare(&mut report, &mut curves, case);
    }
    report.finish();
    curves.finish();
}

fn compare(report: &mut Report, curves_report: &mut Report, case: Case<'_>) {
    let name = case.name();
    let files = case.attribute("files");
    let file = |i: usize| golden_dir().join(files[i].as_str().expect("files are two names"));
    let iou_type = match case.attribute("iou_type").as_str() {
        Some("bbox") => IouType::Bbox,
        _ => IouType::Segm,
    };
    let gt = GroundTruth::from_file(&file(0)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(gt.is_lvis(), "{name}");
    let results = Results::from_file(&file(1), &gt, Some(iou_type));
    let results = results.unwrap_or_else(|e| panic!("{name}: {e}"));
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
