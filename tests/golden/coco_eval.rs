//! Golden family `coco_eval`: the twelve numbers and the curves behind them, from COCO's files.

use score::{GroundTruth, IouType, Results, evaluate_files, evaluate_results};

use crate::support::{Case, Family, Report, golden_dir};

/// On the twelve numbers.
const TOLERANCE: f64 = 1e-12;
/// The curves are stored as f32: half a unit of its last place.
const CURVE_TOLERANCE: f64 = 6e-8;

pub(crate) fn run() {
    let Some(family) = Family::open("coco_eval") else { return };
    let mut report = Report::new("coco_eval", TOLERANCE);
    let mut curves = Report::new("coco_eval (curves)", CURVE_TOLERANCE);
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
    let iou_type = match name.rsplit('_').next() {
        Some("bbox") => IouType::Bbox,
        Some("segm") => IouType::Segm,
        _ => panic!("golden coco_eval: {name} ends neither in bbox nor in segm"),
    };

    let gt = GroundTruth::from_file(&file(0)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let results = Results::from_file(&file(1), &gt, Some(iou_type));
    let results = results.unwrap_or_else(|e| panic!("{name}: {e}"));
    let (summary, curves) = evaluate_results(&gt, results).expect("golden files are sound");
    report.close(name, "stats_f64", &summary.stats, &case.f64("stats_f64").data);
    // The type is inferred from the file's own fields.
    let told = evaluate_files(&file(0), &file(1), None).expect("golden files are sound");
    assert_eq!(told, summary, "{name}: the type told by the file");
    report.done_case();

    let precision = case.f32("precision");
    assert_eq!(curves.shape.to_vec(), precision.shape, "{name}: shape of the curves");
    curves_report.close(name, "precision", &curves.precision, &precision.data);
    curves_report.close(name, "recall", &curves.recall, &case.f32("recall").data);
    curves_report.close(name, "scores", &curves.scores, &case.f32("scores").data);
    curves_report.done_case();
}
