//! Golden family `coco_eval`: the twelve metrics and the underlying curves, computed from COCO
//! files.

use std::path::PathBuf;

use score::{Curves, GroundTruth, IouType, Results, evaluate_files, evaluate_results};

use crate::support::{Case, Family, Report, golden_dir};

/// Tolerance of the twelve metrics.
const TOLERANCE: f64 = 1e-12;
/// Tolerance of the curves: half a unit in the last place, since they are stored as f32.
const CURVE_TOLERANCE: f64 = 6e-8;

/// Compares all cases of an evaluation family: metrics in the first report, curves in the second.
pub(crate) fn family(
    name: &'static str,
    curves: &'static str,
    compare: fn(&mut Report, &mut Report, Case<'_>),
) {
    family_of(name, curves, "", compare);
}

/// Like [`family`], but only for cases whose names begin with `start`.
pub(crate) fn family_of(
    name: &'static str,
    curves: &'static str,
    start: &str,
    compare: fn(&mut Report, &mut Report, Case<'_>),
) {
    let Some(family) = Family::open(name) else { return };
    let mut reports = [Report::new(name, TOLERANCE), Report::new(curves, CURVE_TOLERANCE)];
    for case in family.cases().filter(|case| case.name().starts_with(start)) {
        let [numbers, curves] = &mut reports;
        compare(numbers, curves, case);
    }
    reports.into_iter().for_each(Report::finish);
}

/// The two files of a case.
pub(crate) fn files(case: Case<'_>) -> [PathBuf; 2] {
    let files = case.attribute("files");
    [0, 1].map(|i| golden_dir().join(files[i].as_str().expect("files are two names")))
}

/// The annotations and the detections of a case.
pub(crate) fn read(case: Case<'_>, iou_type: IouType) -> (GroundTruth, Results) {
    let (name, [gt, dt]) = (case.name(), files(case));
    let gt = GroundTruth::from_file(&gt).unwrap_or_else(|e| panic!("{name}: {e}"));
    let results = Results::from_file(&dt, &gt, Some(iou_type));
    let results = results.unwrap_or_else(|e| panic!("{name}: {e}"));
    (gt, results)
}

#[test]
fn coco_eval_matches_golden() {
    family("coco_eval", "coco_eval (curves)", compare);
}

fn compare(report: &mut Report, curves_report: &mut Report, case: Case<'_>) {
    let name = case.name();
    let iou_type = match name.rsplit('_').next() {
        Some("bbox") => IouType::Bbox,
        Some("segm") => IouType::Segm,
        _ => panic!("golden coco_eval: {name} ends neither in bbox nor in segm"),
    };
    let (gt, results) = read(case, iou_type);
    let (summary, curves) = evaluate_results(&gt, results).expect("golden files are sound");
    report.close(name, "stats_f64", &summary.stats, &case.f64("stats_f64").data);
    // The IoU type is inferred from the fields in the file.
    let [gt_file, dt_file] = files(case);
    let told = evaluate_files(&gt_file, &dt_file, None).expect("golden files are sound");
    assert_eq!(told, summary, "{name}: type inferred from the file");
    report.done_case();

    compare_curves(curves_report, case, &curves);
    curves_report.done_case();
}

/// Compares the curves, which are stored as f32.
pub(crate) fn compare_curves(report: &mut Report, case: Case<'_>, curves: &Curves) {
    let (name, precision) = (case.name(), case.f32("precision"));
    assert_eq!(curves.shape.to_vec(), precision.shape, "{name}: shape of the curves");
    report.close(name, "precision", &curves.precision, &precision.data);
    report.compare(case, "recall", &curves.recall);
    report.compare(case, "scores", &curves.scores);
}
