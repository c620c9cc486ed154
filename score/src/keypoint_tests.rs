//! Tests of keypoint scores: hand-computed values, files, and messages about mistakes.

use super::tests::Folder;
use super::*;

/// Two people of 40 x 40 pixels with three keypoints, a crowd, and a person without keypoints.
const GT: &str = r#"{"images": [{"id": 5, "height": 90, "width": 90}],
 "annotations": [
  {"id": 1, "image_id": 5, "category_id": 1, "bbox": [10, 10, 40, 40], "area": 1600, "iscrowd": 0,
   "num_keypoints": 2, "keypoints": [20, 20, 2, 40, 20, 1, 0, 0, 0]},
  {"id": 2, "image_id": 5, "category_id": 1, "bbox": [50, 50, 40, 40], "area": 1600, "iscrowd": 0,
   "keypoints": [60, 60, 2, 80, 60, 2, 70, 80, 2]},
  {"id": 3, "image_id": 5, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81, "iscrowd": 1,
   "num_keypoints": 1, "keypoints": [1, 1, 1, 0, 0, 0, 0, 0, 0]},
  {"id": 4, "image_id": 5, "category_id": 1, "bbox": [50, 5, 8, 8], "area": 64, "iscrowd": 0,
   "num_keypoints": 0, "keypoints": []}],
 "categories": [{"id": 1, "name": "person"}]}"#;

const FIRST: [[f64; 3]; 3] = [[20.0, 20.0, 1.0], [40.0, 20.0, 1.0], [30.0, 48.0, 0.5]];
const SECOND: [[f64; 3]; 3] = [[60.0, 60.0, 1.0], [80.0, 60.0, 1.0], [70.0, 80.0, 1.0]];

fn ground_truth() -> GroundTruth {
    let folder = Folder::new();
    GroundTruth::from_file(&folder.file("gt.json", GT)).expect("sound annotations")
}

fn detection(keypoints: [[f64; 3]; 3], score: f64) -> Detection {
    let boxed = samples::detection(5, 1, [1.0, 2.0, 3.0, 4.0], score);
    Detection { keypoints: Some(keypoints.into()), ..boxed }
}

#[test]
fn perfect_keypoints_score_one_and_unlabelled_people_are_ignored() {
    // The sigmas are so small that no person matches a different person.
    let gt = ground_truth().with_sigmas(Some(vec![0.05; 3]));
    // A detection on the person without keypoints is ignored.
    let ignored = [[52.0, 6.0, 1.0], [53.0, 7.0, 1.0], [54.0, 8.0, 1.0]];
    let found = [detection(ignored, 0.95), detection(FIRST, 0.9), detection(SECOND, 0.8)];
    let (summary, analysis) = analyze(&gt, &found, IouType::Keypoints).expect("sound");
    for (name, value) in summary.named() {
        let want = if name.ends_with('l') { -1.0 } else { 1.0 };
        assert!((value - want).abs() < 1e-9, "{name} {value}");
    }
    assert_eq!(summary.named().len(), 10);
    assert_eq!(summary, evaluate(&gt, &found, IouType::Keypoints).expect("sound"));
    assert_eq!((analysis.classes[0].objects, analysis.classes[0].name.as_str()), (2, "person"));
    assert!(analysis.confusion.is_empty() && analysis.images.is_empty());
    let printed = summary.to_string();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 12, "{printed}");
    assert_eq!(
        [lines[0], lines[1], lines[4], lines[5], lines[6], lines[7], lines[11]],
        [
            "keypoints",
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets= 20 ] = 1.000",
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets= 20 ] = 1.000",
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets= 20 ] = -1.000",
            " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 20 ] = 1.000",
            " Average Recall     (AR) @[ IoU=0.50      | area=   all | maxDets= 20 ] = 1.000",
            " APl, ARl undefined (-1): no annotated object is large (96 x 96 pixels or more).",
        ]
    );
    let (_, curves) = Results::from_detections(&found, &gt, IouType::Keypoints)
        .and_then(|results| evaluate_results(&gt, results))
        .expect("sound");
    assert_eq!(curves.shape, [10, 101, 1, 3, 1]);
    // With only the image's best two detections, one of two people is found.
    let best = Results::from_detections(&found, &gt, IouType::Keypoints).expect("sound");
    let (best, _) = evaluate_results(&gt, best.limited_to(2)).expect("sound");
    assert_eq!((best.max_dets, best.stats[5]), (2, 0.5));
    assert!(best.to_string().contains("| maxDets=  2 ] = 0.500"), "{best}");
    // One of two people is only found by the last of more than 20 detections.
    let mut found = vec![detection([[99.0, 99.0, 1.0]; 3], 0.9); 24];
    found.push(detection(FIRST, 0.1));
    let last = Results::from_detections(&found, &gt, IouType::Keypoints).expect("sound");
    let (last, _) = evaluate_results(&gt, last.limited_to(25)).expect("sound");
    assert_eq!(last.stats[5], 0.5, "{last}");
}

#[test]
fn oks_uses_given_sigmas_or_one_over_keypoint_count() {
    // One keypoint of three is d pixels away: OKS is (2 + exp(-d^2 / (8 sigma^2 area))) / 3.
    let mut moved = SECOND;
    moved[2][1] += 40.0;
    let recall_of = |sigmas: Option<Vec<f64>>| {
        let gt = ground_truth().with_sigmas(sigmas);
        let found = [detection(FIRST, 0.9), detection(moved, 0.8)];
        let summary = evaluate(&gt, &found, IouType::Keypoints).expect("sound");
        summary.named().iter().find(|(name, _)| *name == "AR").expect("a number").1
    };
    // With the default sigma of 1/3, exp(-9 / 8) is 0.325, so OKS is 0.775 and reaches six of ten
    // thresholds.
    assert!((recall_of(None) - 0.8).abs() < 1e-9, "{}", recall_of(None));
    // With a sigma of 0.01 the moved keypoint adds nothing; OKS is 0.667 and reaches four
    // thresholds.
    assert!((recall_of(Some(vec![0.01; 3])) - 0.7).abs() < 1e-9);
    assert!((recall_of(Some(vec![9.0; 3])) - 1.0).abs() < 1e-9);
    let refused = |sigmas: Vec<f64>| {
        let gt = ground_truth().with_sigmas(Some(sigmas));
        evaluate(&gt, &[], IouType::Keypoints).expect_err("refused").to_string()
    };
    assert!(refused(vec![0.1; 2]).contains("objects have 3 keypoints, and 2 sigmas were given"));
    assert!(refused(vec![0.1, 0.0, 0.1]).contains("a keypoint has the sigma 0"));
    let people = keypoints::default_sigmas(17);
    assert!((people[0] - 0.026).abs() < 1e-12 && (people[16] - 0.089).abs() < 1e-12, "{people:?}");
    assert_eq!(keypoints::default_sigmas(5), [0.2; 5]);
}

#[test]
fn keypoint_results_round_trip() {
    let folder = Folder::new();
    let (gt_file, path) = (folder.file("gt.json", GT), folder.0.path().join("out.json"));
    let found = [detection(FIRST, 0.9), detection(SECOND, 0.5)];
    write_results_json_of(&path, &found, IouType::Keypoints).expect("writable");
    let text = std::fs::read_to_string(&path).expect("written");
    let line = "[{\"image_id\":5,\"category_id\":1,\"keypoints\":[20.0,20.0,1.0,40.0,20.0,1.0,30.0,\
                48.0,0.5],\"score\":0.9},\n";
    assert!(text.starts_with(line), "{text}");
    let gt = ground_truth();
    let memory = evaluate(&gt, &found, IouType::Keypoints).expect("sound");
    assert_eq!(evaluate_files(&gt_file, &path, None).expect("sound"), memory);
    let report = report_files(&gt_file, &path).expect("sound");
    assert!(report.contains("keypoints by class\nclass  objects    AP   AP50     AR"), "{report}");
    // If the file also has boxes, they determine the sizes; these boxes are small, and keypoint
    // scores omit small objects.
    write_results_json(&path, &found).expect("writable");
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.contains("\"bbox\":[1.0,2.0,3.0,4.0],\"keypoints\":[20.0,"), "{text}");
    let both = evaluate_files(&gt_file, &path, None).expect("sound");
    assert_eq!((both.iou_type, both.ap()), (IouType::Keypoints, memory.ap()));
    let boxes = evaluate_files(&gt_file, &path, Some(IouType::Bbox)).expect("sound");
    assert_eq!((boxes.iou_type, boxes.stats.len()), (IouType::Bbox, 12));
    let lost = Detection { keypoints: None, ..found[0].clone() };
    let refused = write_results_json_of(&path, &[lost], IouType::Keypoints).expect_err("none");
    assert!(refused.to_string().ends_with("detection 0 has no keypoints"), "{refused}");
    let far = Detection { keypoints: Some(vec![[f64::NAN, 0.0, 0.0]]), ..found[0].clone() };
    let refused = result_json(&far, None).expect_err("NaN");
    assert_eq!(refused, "has NaN in its keypoints");
}

#[test]
fn keypoints_in_memory_score_like_file() {
    let object = |id, bbox_xywh, iscrowd, keypoints| GtAnnotation {
        iscrowd,
        keypoints,
        ..samples::object(id, 5, 1, bbox_xywh)
    };
    let person = vec![[20.0, 20.0, 2.0], [40.0, 20.0, 1.0], [0.0; 3]];
    let second = SECOND.map(|[x, y, _]| [x, y, 2.0]).to_vec();
    let crowd = vec![[1.0; 3], [0.0; 3], [0.0; 3]];
    let objects = vec![
        object(1, [10.0, 10.0, 40.0, 40.0], false, Some(person)),
        object(2, [50.0, 50.0, 40.0, 40.0], false, Some(second)),
        object(3, [0.0, 0.0, 9.0, 9.0], true, Some(crowd)),
        object(4, [50.0, 5.0, 8.0, 8.0], false, None),
    ];
    let people = |objects| samples::ground_truth(90, [5], objects, &[(1, "person")]);
    let gt = people(objects).expect("sound");
    let found = [detection(SECOND, 0.9), detection(FIRST, 0.4), detection([[2.0; 3]; 3], 0.95)];
    let [first, second] =
        [&gt, &ground_truth()].map(|gt| evaluate(gt, &found, IouType::Keypoints).expect("sound"));
    assert_eq!(first, second);
    let none = people(vec![]).expect("sound");
    let summary = evaluate(&none, &[], IouType::Keypoints).expect("an honest result");
    assert_eq!(summary.stats, [-1.0; 10]);
    let of_crowds = "no object except crowds has a labelled keypoint.";
    assert!(summary.to_string().ends_with(of_crowds), "{summary}");
}

#[test]
fn invalid_keypoints_are_reported() {
    let folder = Folder::new();
    let entry = |list: &str| {
        format!(r#"[{{"image_id": 5, "category_id": 1, "score": 1, "keypoints": {list}}}]"#)
    };
    let sound = entry("[1, 1, 1, 2, 2, 1, 3, 3, 1]");
    let detections = [
        (entry("[1, 1, 1]"), "detection 0 has keypoints of 3 numbers, expected 9: three for each"),
        (entry("[1, 1, 1, 2]"), "detection 0 has keypoints of 4 numbers, expected 9"),
        (entry("[]"), "detection 0 has neither bbox nor segmentation"),
        (
            sound.replacen("}]", r#"}, {"image_id": 5, "category_id": 1, "score": 1}]"#, 1),
            "detection 1 has no keypoints",
        ),
    ];
    for (text, want) in detections {
        let error = folder.error(GT, &text);
        assert!(error.starts_with(&format!("detections dt.json: {want}")), "{error}");
    }
    let replaced = |from: &str, to: &str| GT.replacen(from, to, 1);
    let annotations = [
        (replaced("70, 80, 2]", "70, 80, 2, 1]"), "annotation id 2 has keypoints of 10 numbers"),
        (replaced("[60, 60, 2, ", "["), "annotation id 2 has keypoints of 6 numbers, expected 9"),
        (replaced("\"bbox\": [50, 5, 8, 8],", ""), "annotation id 4 has no bbox"),
        (
            replaced("1, 0, 0, 0]},", "1, 0, 0, \"a\"]},"),
            "annotations[0] (id 1): keypoints must be a list of numbers",
        ),
        (GT.replace("keypoints", "points"), "no annotation has keypoints"),
    ];
    for (text, want) in annotations {
        let error = folder.error(&text, &sound);
        assert!(error.starts_with(&format!("annotations gt.json: {want}")), "{error}");
    }
    // Invalid keypoint lists do not affect box scores.
    let odd = folder.file("odd.json", &replaced("70, 80, 2]", "70, 80, 2, 1]"));
    let boxes = r#"[{"image_id": 5, "category_id": 1, "bbox": [10, 10, 40, 40], "score": 1}]"#;
    let boxes = evaluate_files(&odd, &folder.file("boxes.json", boxes), None).expect("sound");
    assert_eq!(boxes.iou_type, IouType::Bbox);
}

#[test]
fn keypoint_scores_of_two_models_are_compared() {
    let gt = ground_truth();
    let results = |found: &[Detection]| {
        Results::from_detections(found, &gt, IouType::Keypoints).expect("sound")
    };
    let both = [detection(FIRST, 0.9), detection(SECOND, 0.8)];
    let found = compare(&gt, results(&both[..1]), results(&both), 20, &|| ()).expect("comparable");
    let names: Vec<&str> = found.stats.iter().map(|stat| stat.name.as_str()).collect();
    assert_eq!(names, KEYPOINT_STAT_NAMES);
    assert!((found.stats[5].difference().expect("defined") - 0.5).abs() < 1e-9, "{found:?}");
}
