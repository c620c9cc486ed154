//! The official metrics of COCO's example results (cocoapi's `val2014_fake_eval_res.txt`).

#[path = "../golden/support.rs"]
mod support;

use std::path::PathBuf;

use score::{IouType, evaluate_files};

fn annotations() -> Option<PathBuf> {
    support::need(support::data_dir().join("coco-eval/annotations/instances_val2014_100.json"))
}

fn results(name: &str) -> Option<PathBuf> {
    support::need(support::data_dir().join("coco-eval/results").join(name))
}

fn detections_of(iou_type: IouType) -> Option<PathBuf> {
    results(&format!("instances_val2014_fake{iou_type}100_results.json"))
}

/// The lines of the official file below `type=...`, as (IoU, area, maxDets, value).
fn official_lines(text: &str, iou_type: IouType) -> Vec<(String, String)> {
    let section = text.split("type=").find(|s| s.starts_with(iou_type.name()));
    section.expect("the file has a section of this type").lines().filter_map(slice).collect()
}

/// `[ IoU=... ]` and the value of a printed line. Titles are omitted, because the file predates the
/// second space that pycocotools now prints in them.
fn slice(line: &str) -> Option<(String, String)> {
    let (title, rest) = line.split_once("@[")?;
    let (slice, value) = rest.split_once("] =")?;
    let kind = if title.contains("(AP)") { "AP" } else { "AR" };
    Some((format!("{kind} {slice}"), value.trim().to_owned()))
}

fn official(iou_type: IouType, ap: f64, ap50: f64) {
    let (Some(gt), Some(dt)) = (annotations(), detections_of(iou_type)) else { return };
    let Some(text) = results("val2014_fake_eval_res.txt") else { return };
    let text = std::fs::read_to_string(text).expect("the official numbers are text");
    let summary = evaluate_files(&gt, &dt, None).expect("official files score");
    assert_eq!(summary.iou_type, iou_type);
    let want = official_lines(&text, iou_type);
    assert_eq!(want.len(), 12);
    let got: Vec<_> = summary.to_string().lines().filter_map(slice).collect();
    assert_eq!(got, want);
    assert!((summary.ap() - ap).abs() < 5e-7, "AP {}", summary.ap());
    assert!((summary.stats[1] - ap50).abs() < 5e-7, "AP50 {}", summary.stats[1]);
    assert!(summary.undefined.is_empty() && summary.notes.is_empty());
    assert_eq!(summary.per_category.len(), 80);
    println!("coco-eval {iou_type}: 12 official numbers, AP {ap}, AP50 {ap50}");
}

#[test]
fn segm_eval_matches_pycocotools() {
    official(IouType::Segm, 0.319545, 0.562288);
}

#[test]
fn bbox_eval_matches_pycocotools() {
    official(IouType::Bbox, 0.504581, 0.696973);
}
