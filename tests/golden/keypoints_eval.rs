//! Golden families `tv_coco_keypoints_eval` and, from `d2_kpops`, `oks_*`: the ten keypoint metrics
//! and the underlying curves, computed from COCO files.

use score::{IouType, Results, evaluate_results};

use crate::coco_eval::{compare_curves, family_of, files, read};
use crate::support::{Case, Report};

#[test]
fn torchvision_keypoint_eval_matches_golden() {
    family_of("tv_coco_keypoints_eval", "tv_coco_keypoints_eval (curves)", "", compare);
}

#[test]
fn detectron2_oks_matches_golden() {
    family_of("d2_kpops", "d2_kpops (curves)", "oks_", compare);
}

fn compare(report: &mut Report, curves_report: &mut Report, case: Case<'_>) {
    let name = case.name();
    let sigmas = case.attribute("sigmas").as_array().expect("sigmas are a list");
    let sigmas: Vec<f64> = sigmas.iter().map(|s| s.as_f64().expect("a number")).collect();
    let (gt, results) = read(case, IouType::Keypoints);
    let gt = gt.with_sigmas(Some(sigmas));
    let score = |results: Results| {
        let results = results.limited_to(case.usize("max_dets"));
        evaluate_results(&gt, results).expect("golden files are sound")
    };
    let (summary, curves) = score(results);
    report.close(name, "stats_f64", &summary.stats, &case.f64("stats_f64").data);
    // The IoU type is inferred from the fields in the file.
    let [_, dt_file] = files(case);
    let told = Results::from_file(&dt_file, &gt, None).expect("golden files are sound");
    assert_eq!(score(told).0, summary, "{name}: type inferred from the file");
    report.done_case();

    if case.has("precision_f64") {
        let precision = case.f64("precision_f64");
        assert_eq!(curves.shape.to_vec(), precision.shape, "{name}: shape of the curves");
        curves_report.close(name, "precision", &curves.precision, &precision.data);
        curves_report.close(name, "recall", &curves.recall, &case.f64("recall_f64").data);
    } else {
        compare_curves(curves_report, case, &curves);
    }
    curves_report.done_case();
}
