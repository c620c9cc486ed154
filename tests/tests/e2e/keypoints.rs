//! Keypoints from annotations to results: training, scores, prediction, and rejected inputs.

use crate::common::{BAD_CONFIG, Place, as_list, as_number, micro};

const KEYPOINTS: &str = "--set model.kind=keypoint_rcnn --set model.keypoint_head.keypoints=5 \
                         --set model.keypoint_head.channels=[8] --set model.keypoint_head.pooled=7";
const VAL: &str = "runs/data/micro/val-8x64-seed0";

/// A keypoint model is trained, evaluated with its scores and result files, and predicts.
#[test]
fn keypoints_are_trained_evaluated_and_predicted() {
    let place = Place::new();
    let set = "--set train.steps=40 --set model.detections.score_threshold=0.01";
    place.prints(&micro(&format!("{KEYPOINTS} {set}")), &["keypoints AP"]);
    let report = place.report("micro");
    assert!(report["keypoints"]["AP"].as_f64().is_some_and(|ap| ap >= 0.0), "{report}");
    assert!(report["segm"].is_null() && report["keypoints"]["APs"].is_null(), "{report}");
    assert_eq!(report["best"]["metric"], "keypoints");
    assert!(place.text("runs/micro/report.html").contains("keypoint OKS"));

    let [boxes, points] = ["bbox", "keypoints"].map(|kind| &report[kind]["AP"]);
    let expect = format!("--expect box={boxes},keypoint={points}");
    let said =
        place.shows(&format!("eval --run runs/micro --out scores {expect}"), &["keypoints AP"]);
    let files = format!("eval --gt {VAL}/annotations.json --detections scores/keypoints.json");
    let again = place.good(&files);
    let scores = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("keypoints"));
        lines.skip(1).take(10).map(str::to_string).collect()
    };
    assert_eq!(scores(&again), scores(&said));
    assert_eq!(scores(&again).len(), 10);

    place.good(&format!("predict --run runs/micro --out out --min-score 0 {VAL}/images"));
    let found = place.json("out/predictions.json");
    let found = as_list(&found);
    assert!(!found.is_empty());
    for object in found {
        let points = as_list(&object["keypoints"]);
        let [x, y, width, height] = [0, 1, 2, 3].map(|i| as_number(&object["bbox"][i]));
        for point in points.chunks(3) {
            let [at_x, at_y] = [0, 1].map(|i| as_number(&point[i]));
            assert!((x..=x + width.max(1.0)).contains(&at_x), "{object}");
            assert!((y..=y + height.max(1.0)).contains(&at_y), "{object}");
        }
        assert_eq!(points.len(), 15);
    }
}

#[test]
fn model_with_different_keypoints_is_rejected() {
    let place = Place::new();
    let other = micro("--set model.kind=keypoint_rcnn");
    place.bad(&other, BAD_CONFIG, &["has 5 keypoints per object", "set it to 5"]);
    let masks = micro("--set train.target_keypoint=0.5");
    place.bad(&masks, BAD_CONFIG, &["train.target_keypoint", "mask_rcnn has no keypoints"]);
    place.good(&micro("--set train.steps=1"));
    let expect = "eval --run runs/micro --expect keypoint=0.5";
    place.bad(expect, BAD_CONFIG, &["--expect keypoint=..: the model has no keypoints"]);
}
