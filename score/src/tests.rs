//! Tests of scoring: mistakes are reported, and metrics match hand-computed values.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

const GT: &str = r#"{"images": [{"id": 5, "height": 20, "width": 30},
  {"id": 9.0, "height": 20, "width": 30}],
 "annotations": [
  {"id": 1, "image_id": 5, "category_id": 3, "bbox": [2, 2, 10, 10], "area": 100, "iscrowd": 0,
   "segmentation": [[2, 2, 12, 2, 12, 12, 2, 12]]},
  {"id": 2, "image_id": 9, "category_id": 3, "bbox": [0, 0, 4, 4], "iscrowd": false,
   "segmentation": {"size": [20, 30], "counts": [0, 4, 16, 4, 16, 4, 16, 4, 536]}},
  {"id": 3, "image_id": 9, "category_id": 8, "bbox": [10, 10, 8, 8], "area": 64, "iscrowd": 1,
   "segmentation": {"size": [20, 30], "counts": [600]}}],
 "categories": [{"id": 3, "name": "cat"}, {"id": 8, "name": "dog"}]}"#;

const PERFECT: &str = r#"[
 {"image_id": 5, "category_id": 3, "bbox": [2, 2, 10, 10], "score": 0.9},
 {"image_id": 9, "category_id": 3, "bbox": [0, 0, 4, 4], "score": 0.8}]"#;

pub(super) struct Folder(pub(super) tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("a file in the temporary folder");
        path
    }

    /// The error of scoring files with these contents, without the folder's name.
    pub(super) fn error(&self, gt: &str, detections: &str) -> String {
        let (gt, dt) = (self.file("gt.json", gt), self.file("dt.json", detections));
        let error = evaluate_files(&gt, &dt, None).expect_err("a mistake").to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn detection(image_id: u64, bbox_xywh: [f64; 4], score: f64) -> Detection {
    samples::detection(image_id, 3, bbox_xywh, score)
}

fn ground_truth() -> GroundTruth {
    let folder = Folder::new();
    GroundTruth::from_file(&folder.file("gt.json", GT)).expect("sound annotations")
}

#[test]
fn perfect_boxes_score_one_and_empty_size_ranges_are_reported() {
    let folder = Folder::new();
    let (gt, dt) = (folder.file("gt.json", GT), folder.file("dt.json", PERFECT));
    let summary = evaluate_files(&gt, &dt, None).expect("sound files");
    assert_eq!(summary.iou_type, IouType::Bbox);
    assert_eq!(summary.stats, [1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0]);
    assert_eq!(summary.named()[8], ("AR100", 1.0));
    assert_eq!(summary.per_category, [("cat".to_owned(), 1.0), ("dog".to_owned(), -1.0)]);
    let printed = summary.to_string();
    let (name, lines) = printed.split_once('\n').expect("lines");
    assert_eq!(name, "bbox");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines[..2],
        [
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 1.000",
            " Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 1.000",
        ]
    );
    assert_eq!(
        lines[4..7],
        [
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = -1.000",
            " Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -1.000",
            " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 1.000",
        ]
    );
    assert_eq!(
        lines[12..],
        [
            " APm, ARm undefined (-1): no annotated object is medium (32 x 32 to 96 x 96 pixels).",
            " APl, ARl undefined (-1): no annotated object is large (96 x 96 pixels or more).",
        ]
    );
}

#[test]
fn byte_order_mark_is_accepted() {
    let folder = Folder::new();
    let marked = |text: &str| format!("\u{feff}{text}");
    let (gt, dt) = (folder.file("gt.json", &marked(GT)), folder.file("dt.json", &marked(PERFECT)));
    assert_eq!(evaluate_files(&gt, &dt, None).expect("sound files").ap(), 1.0);
    let broken = folder.error(GT, "\u{feff}[{\n1}]");
    assert!(broken.contains("line 2 column 1"), "{broken}");
}

#[test]
fn finding_one_of_two_objects_scores_half() {
    // Recall stops at 0.5: 51 of the 101 recall points have precision 1.
    let summary =
        evaluate(&ground_truth(), &[detection(5, [2.0, 2.0, 10.0, 10.0], 0.5)], IouType::Bbox);
    let summary = summary.expect("sound");
    assert!((summary.ap() - 51.0 / 101.0).abs() < 1e-12);
    assert_eq!(summary.stats[8], 0.5);
}

#[test]
fn no_detections_score_zero_and_only_crowds_have_no_score() {
    let none = evaluate(&ground_truth(), &[], IouType::Bbox).expect("an honest result");
    assert_eq!((none.ap(), none.stats[8], none.stats[5]), (0.0, 0.0, -1.0));
    let crowd = |iscrowd| {
        let object = samples::object(1, 5, 3, [0.0, 0.0, 4.0, 4.0]);
        GtAnnotation { iscrowd, ..object }
    };
    let gt = |annotations| samples::ground_truth(20, [5], annotations, &[(3, "cat")]);
    let only_crowds = gt(vec![crowd(true)]).expect("sound");
    let summary = evaluate(&only_crowds, &[], IouType::Bbox).expect("sound");
    assert_eq!(summary.stats, [-1.0; 12]);
    assert_eq!(summary.undefined.len(), 12);
    assert!(summary.to_string().ends_with("the annotations have no objects except crowds."));
    // Without a mask, the area is the box's.
    let found = gt(vec![crowd(false)]).expect("sound");
    let summary = evaluate(&found, &[detection(5, [0.0, 0.0, 4.0, 4.0], 1.0)], IouType::Bbox);
    // The score is not exactly 1: like pycocotools, the scorer adds the machine epsilon to every
    // denominator.
    assert!((summary.expect("sound").stats[3] - 1.0).abs() < 1e-12);
    let masks = evaluate(&found, &[], IouType::Segm).expect_err("no masks").to_string();
    assert_eq!(masks, "annotations in memory: annotation id 1 has no segmentation");
    let twice = gt(vec![crowd(true), crowd(false)]).expect_err("one id").to_string();
    assert_eq!(twice, "annotations in memory: two annotations have the id 1");
}

#[test]
fn ground_truth_in_memory_scores_like_file() {
    let square = Rle { height: 20, width: 30, counts: vec![0, 4, 16, 4, 16, 4, 16, 4, 536] };
    let annotation = |id, image_id, bbox_xywh, mask| GtAnnotation {
        mask: Some(mask),
        ..samples::object(id, image_id, 3, bbox_xywh)
    };
    let polygon = vec![vec![2.0, 2.0, 12.0, 2.0, 12.0, 12.0, 2.0, 12.0]];
    let parts = GroundTruth::from_parts(
        [5, 9].map(|id| GtImage { id, height: 20, width: 30 }).to_vec(),
        vec![
            annotation(1, 5, [2.0, 2.0, 10.0, 10.0], GtMask::Polygons(polygon.clone())),
            annotation(2, 9, [0.0, 0.0, 4.0, 4.0], GtMask::Rle(square.clone())),
        ],
        [(3, "cat"), (8, "dog")].map(|(id, name)| GtCategory { id, name: name.into() }).to_vec(),
    )
    .expect("sound parts");
    let mut detections =
        vec![detection(5, [0.0; 4], 0.6), detection(9, [0.0; 4], 0.7), detection(9, [0.0; 4], 0.9)];
    detections[0].segmentation = Rle::from_polygons(20, 30, &polygon).ok();
    detections[1].segmentation = Some(square);
    detections[2].segmentation = Some(encode_mask(20, 30, &[1; 600]));
    let from_parts = evaluate(&parts, &detections, IouType::Segm).expect("sound");
    assert_eq!(from_parts, evaluate(&ground_truth(), &detections, IouType::Segm).expect("sound"));
    // The first detection is a false positive, so precision is 1/2, then 2/3 at full recall.
    assert!((from_parts.ap() - 2.0 / 3.0).abs() < 1e-12, "{}", from_parts.ap());
}

#[test]
fn results_file_has_exact_text_and_survives_invalid_write() {
    let folder = Folder::new();
    let mut with_mask = detection(5, [1.25, 2.0, 10.0, 1.0 / 3.0], 0.1);
    with_mask.segmentation = Some(encode_mask(20, 30, &[1; 600]));
    let path = folder.0.path().join("out.json");
    write_results_json(&path, &[with_mask.clone(), detection(9, [0.0; 4], 0.5)]).expect("writable");
    let text = std::fs::read_to_string(&path).expect("written");
    assert_eq!(
        text,
        "[{\"image_id\":5,\"category_id\":3,\"bbox\":[1.25,2.0,10.0,0.3333333333333333],\
         \"score\":0.1,\"segmentation\":{\"size\":[20,30],\"counts\":\"0hb0\"}},\n\
         {\"image_id\":9,\"category_id\":3,\"bbox\":[0.0,0.0,0.0,0.0],\"score\":0.5}]\n"
    );
    // No temporary file remains, and an invalid detection leaves the old file unchanged.
    assert_eq!(std::fs::read_dir(folder.0.path()).expect("the folder").count(), 1);
    let nan = write_results_json(&path, &[detection(5, [0.0; 4], f64::NAN)]).expect_err("NaN");
    assert!(nan.to_string().ends_with("out.json: detection 0 has the score NaN"), "{nan}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
    let lost = write_results_json_of(&path, &[detection(5, [0.0; 4], 0.1)], IouType::Segm);
    assert!(lost.expect_err("no mask").to_string().ends_with("detection 0 has no segmentation"));
    write_results_json(&path, &[]).expect("writable");
    assert_eq!(std::fs::read_to_string(&path).expect("written"), "[]\n");
    assert!(write_results_json(&folder.0.path().join("no/such/out.json"), &[]).is_err());
}

/// If the file has boxes and masks, the boxes determine the sizes, as in pycocotools.
#[test]
fn sizes_come_from_boxes_if_results_have_boxes_and_masks() {
    let folder = Folder::new();
    let gt_file = folder.file("gt.json", GT);
    let gt = GroundTruth::from_file(&gt_file).expect("sound");
    // A false positive with a small mask and a medium box, in addition to the two small objects.
    let mut detections = vec![detection(5, [0.0, 0.0, 30.0, 40.0], 0.9)];
    detections.extend([
        detection(5, [2.0, 2.0, 10.0, 10.0], 0.5),
        detection(9, [0.0, 0.0, 4.0, 4.0], 0.4),
    ]);
    detections[0].segmentation = Some(encode_mask(20, 30, &[1; 600]));
    detections[1].segmentation =
        Rle::from_polygons(20, 30, &[vec![2.0, 2.0, 12.0, 2.0, 12.0, 12.0, 2.0, 12.0]]).ok();
    detections[2].segmentation =
        Some(Rle { height: 20, width: 30, counts: vec![0, 4, 16, 4, 16, 4, 16, 4, 536] });
    let memory = evaluate(&gt, &detections, IouType::Segm).expect("sound");
    let path = folder.0.path().join("segm.json");
    write_results_json_of(&path, &detections, IouType::Segm).expect("writable");
    assert_eq!(evaluate_files(&gt_file, &path, None).expect("sound"), memory);
    write_results_json(&path, &detections).expect("writable");
    let both = evaluate_files(&gt_file, &path, None).expect("sound");
    assert_eq!(both.ap(), memory.ap());
    // The score of small objects ignores the unmatched medium box, but counts the small mask as a
    // false positive.
    assert_eq!(both.stats[3], 1.0);
    assert!((memory.stats[3] - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn unknown_category_in_results_is_rejected() {
    let folder = Folder::new();
    let stray = r#", {"image_id": 5, "category_id": 77, "bbox": [0, 0, 1, 1], "score": 1}]"#;
    let dt = folder.file("dt.json", &PERFECT.replacen("0.8}]", &format!("0.8}}{stray}"), 1));
    let fault = evaluate_files(&folder.file("gt.json", GT), &dt, None);
    let fault = fault.expect_err("it is refused").to_string();
    let words = "1 of 3 detections have a category_id that the annotations do not have: 77; give \
                 the annotations' ids (3 to 8), not indices of classes";
    assert!(fault.contains("dt.json") && fault.contains(words), "{fault}");
    // A model with more classes than the data set can be scored.
    let gt = GroundTruth::from_file(&folder.file("gt.json", GT)).expect("sound");
    let mut stray = detection(5, [0.0, 0.0, 1.0, 1.0], 1.0);
    stray.category_id = 77;
    let summary = evaluate(&gt, &[stray], IouType::Bbox).expect("sound");
    assert_eq!(
        summary.notes,
        ["1 detections name category_id 77, which the annotations do not have, and were left out"]
    );
}

#[test]
fn boxes_outside_image_and_duplicates_are_counted() {
    let folder = Folder::new();
    let gt = folder.file("gt.json", GT);
    let notes = |entries: &[&str]| {
        let entry = |text: &&str| {
            format!(r#"{{"image_id": 5, "category_id": 3, "bbox": {text}, "score": 0.5}}"#)
        };
        let entries: Vec<String> = entries.iter().map(entry).collect();
        let file = folder.file("dt.json", &format!("[{}]", entries.join(",")));
        evaluate_files(&gt, &file, Some(IouType::Bbox)).map(|summary| summary.notes)
    };
    // Annotations and detections in an image of 20 x 30 (height x width).
    let none: [&str; 0] = [];
    assert_eq!(notes(&["[0, 0, 30, 20]", "[-1, -1, 32, 22]"]).expect("sound"), none);
    let found = notes(&["[10, 10, 30, 20]", "[2, 2, 4, 4]", "[2, 2, 4, 4]"]).expect("sound");
    assert!(found[0].starts_with("1 of 3 boxes have over a quarter"), "{found:?}");
    assert_eq!(found[1..], ["1 of 3 detections are duplicates"]);
    let fault = notes(&["[9, 9, -4, 4]"]).expect_err("it is refused").to_string();
    assert!(fault.contains("detection 0 has a box of -4 x 4 pixels"), "{fault}");
}

/// Scores lists of images, objects and detections with one class.
fn score_lists(images: &[Value], objects: &[Value], found: &[Value]) -> Result<Summary, String> {
    let folder = Folder::new();
    let categories = [json!({"id": 3, "name": "cat"})];
    let gt = json!({"images": images, "annotations": objects, "categories": categories});
    let files = [("gt.json", gt), ("dt.json", json!(found))];
    let [gt, found] = files.map(|(name, list)| folder.file(name, &list.to_string()));
    evaluate_files(&gt, &found, None).map_err(|fault| fault.to_string())
}

fn square(i: usize) -> Value {
    json!([10 * (i % 20), 10 * (i / 20), 9, 9])
}

#[test]
fn detections_are_matched_to_images_by_file_name() {
    let names = ["a/1.jpg", "b/1.jpg", "sub\\2.jpg", "3.JPG"];
    let of = |i: usize| json!({"id": i, "image_id": i, "category_id": 3, "bbox": square(i)});
    let image = |i: usize| json!({"id": i, "file_name": names[i - 5]});
    let images: Vec<Value> = (5..9).map(image).collect();
    let objects: Vec<Value> = (5..9).map(of).collect();
    let right = ["/photos/a/1.jpg", "./b/1.jpg", "sub/2.jpg", "3.JPG"];
    for (ids, files, want) in [
        ([5, 6, 7, 8], right, Ok(0)),
        ([5, 6, 7, 8], [""; 4], Ok(0)),
        // The image id decides if the file name is in two folders, or has a different extension.
        ([5, 6, 7, 8], ["1.jpg", "", "x/2.jpg", "3.png"], Ok(0)),
        ([8, 7, 6, 5], right, Ok(1)),
        ([0, 1, 2, 3], right, Ok(1)),
        ([8, 7, 6, 5], ["1.jpg", "", "", ""], Err("has the file_name `1.jpg`, which matches")),
        ([5, 6, 7, 8], ["4.jpg", "", "", ""], Err("detection 0 has the file_name `4.jpg`")),
        ([8, 6, 7, 5], ["a/1.jpg", "", "", ""], Err("and detection 1 has no file_name")),
        ([5, 6, 7, 8], ["a/1.jpg", "b/1.jpg", "p/2.jpg", "q/2.jpg"], Err("both match image 7")),
    ] {
        let entry = |i: usize| {
            json!({"image_id": ids[i], "file_name": files[i], "category_id": 3,
                   "bbox": square(i + 5), "score": 0.5})
        };
        let found = score_lists(&images, &objects, &(0..4).map(entry).collect::<Vec<_>>());
        match (found, want) {
            (Ok(found), Ok(notes)) => assert_eq!((found.ap(), found.notes.len()), (1.0, notes)),
            (Err(fault), Err(words)) => assert!(fault.contains(words), "{fault}"),
            (found, want) => panic!("{ids:?} {files:?}: {found:?}, not {want:?}"),
        }
    }
}

#[test]
fn notes_report_too_many_objects_and_annotation_id_0() {
    let image = json!({"id": 5, "height": 200, "width": 200});
    for (first_id, objects, found, recall, note) in [
        (1, 100, 150, 0.5, ""),
        (1, 150, 100, 0.667, ""),
        (1, 150, 150, 0.667, "image 5 has 150 objects, more than 100 of a class"),
        (0, 2, 2, 1.0, "pycocotools treats the annotation with id 0"),
    ] {
        let of = |i: usize| {
            json!({"id": first_id + i, "image_id": 5, "category_id": 3, "bbox": square(i),
                   "score": i as f64 / 1e3}) // the best come last
        };
        let list = |count: usize| (0..count).map(of).collect::<Vec<_>>();
        let scores =
            score_lists(std::slice::from_ref(&image), &list(objects), &list(found)).expect("sound");
        assert!((scores.stats[8] - recall).abs() < 1e-3, "{scores}");
        assert_eq!(scores.notes.is_empty(), note.is_empty(), "{scores}");
        assert!(scores.notes.iter().all(|found| found.starts_with(note)), "{scores}");
    }
}

#[test]
fn invalid_detection_is_reported() {
    let folder = Folder::new();
    let cases = [
        ("[]", "is an empty list, so there is nothing to score"),
        ("{\"annotations\": []}", "is not a list of detections"),
        ("", "is not a list of detections"),
        (
            r#"[{"image_id": 5, "category_id": 3, "bbox": [0,0,1,1], "score": 0.5},
               {"image_id": 6, "category_id": 3, "bbox": [0,0,1,1], "score": 0.5}]"#,
            "detection 1 names image_id 6, which the annotations do not have",
        ),
        (
            r#"[{"image_id": 5, "category_id": 3, "bbox": [0,0,1,1], "score": NaN}]"#,
            "detections[0]: score must be a number, not NaN or Infinity; correct it",
        ),
        (
            r#"[{"image_id": 5, "category_id": 3, "bbox": [0,0,-Infinity,1], "score": 1}]"#,
            "detections[0]: bbox must be a list of numbers, [x, y, width, height], not [0,0,NaN or \
             Infinity,1]; correct it",
        ),
        (
            r#"[{"image_id": 5, "category_id": 3, "bbox": [0,0,1,1]}]"#,
            "detections[0]: score is missing; add it",
        ),
        (
            r#"[{"image_id": -5, "category_id": 3, "bbox": [0,0,1,1], "score": 1}]"#,
            "detections[0]: image_id must be an integer from 0, not -5; correct it",
        ),
        (
            r#"[{"image_id": 5, "category_id": 3, "bbox": [0,0,1], "score": 1}]"#,
            "detection 0 has a bbox of 3 numbers, expected x, y, width, height",
        ),
        (
            r#"[{"image_id": 5, "category_id": 3, "score": 1}]"#,
            "detection 0 has neither bbox nor segmentation",
        ),
        ("[{\"image_id\": 5", "is not JSON: EOF while parsing an object at line 1 column 15"),
    ];
    for (text, want) in cases {
        assert_eq!(folder.error(GT, text), format!("detections dt.json: {want}"));
    }
    let missing = folder.0.path().join("none.json");
    let error = evaluate_files(&missing, &missing, None).expect_err("no file").to_string();
    assert!(error.starts_with("cannot read") && error.contains("none.json"), "{error}");
}

#[test]
fn invalid_detection_mask_is_reported() {
    let folder = Folder::new();
    let entry = |mask: &str| {
        format!(r#"{{"image_id": 5, "category_id": 3, "score": 1, "segmentation": {mask}}}"#)
    };
    let whole = entry(r#"{"size": [20, 30], "counts": [600]}"#);
    let box_alone = r#"{"image_id": 5, "category_id": 3, "score": 1, "bbox": [0, 0, 1, 1]}"#;
    let cases = [
        (
            entry(r#"{"size": [20, 31], "counts": [620]}"#),
            "detection 0 has a mask of 20x31, but image 5 is 20x30 (height x width)",
        ),
        (
            entry(r#"{"size": [20, 30], "counts": [601]}"#),
            "detection 0 has a broken segmentation (invalid RLE: total counts 601 exceed h*w=600)",
        ),
        (format!("{whole}, {box_alone}"), "detection 1 has no segmentation"),
    ];
    for (entries, want) in cases {
        let error = folder.error(GT, &format!("[{entries}]"));
        assert_eq!(error, format!("detections dt.json: {want}"));
    }
}

#[test]
fn invalid_annotation_is_reported() {
    let folder = Folder::new();
    let replaced = |from: &str, to: &str| GT.replacen(from, to, 1);
    let cases = [
        (
            PERFECT.to_owned(),
            "is a list, perhaps of detections; expected an object with `images`, `annotations` \
             and `categories`",
        ),
        ("{\"images\": []}".to_owned(), "has no `annotations`; expected a COCO annotation file"),
        (replaced("\"id\": 9.0", "\"id\": 5"), "two images have the id 5"),
        (replaced("\"id\": 3, \"image", "\"id\": 2, \"image"), "two annotations have the id 2"),
        (replaced("\"id\": 8", "\"id\": 3"), "two categories have the id 3"),
        (
            replaced("12, 2, 12, 12, 2, 12", "12, 2, 12, 12, 2"),
            "annotation 0 (id 1) has a polygon 0 that has 7 coordinates, an odd number",
        ),
        (replaced("\"bbox\": [2, 2, 10, 10],", ""), "annotation id 1 has no bbox"),
        (
            replaced("\"iscrowd\": 0", "\"iscrowd\": 2"),
            "annotations[0] (id 1): iscrowd must be 0 or 1, not 2; correct it",
        ),
        (
            replaced("[600]", "[601]"),
            "annotation 2 (id 3) has a broken segmentation (invalid RLE: total counts 601 exceed \
             h*w=600)",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(folder.error(&text, PERFECT), format!("annotations gt.json: {want}"));
    }
}

/// Replaces one value in a valid file: `prep`'s reader and this crate's reader must accept the same
/// values, and report the same errors for invalid ones.
#[test]
fn score_and_prep_reject_the_same_coco_values() {
    const FILE: &str = r#"{"images": [{"id": 5, "file_name": "a", "height": 20, "width": 30}],
        "categories": [{"id": 3, "name": "cat"}], "annotations": [{
        "id": 1, "image_id": 5, "category_id": 3, "bbox": [2, 2, 9, 9], "area": 100,
        "iscrowd": 0, "segmentation": [[2, 2, 11, 2, 11, 11]]}]}"#;
    let folder = Folder::new();
    for (from, to, want) in [
        ("id\": 1", "id\": 1.0", ""),
        ("[2, 2, 9, 9]", "[-2.5, 2, 1e9, 9]", ""),
        ("\"area\": 100", r#""a": -Infinity, "b": "\"NaN""#, ""),
        ("100", "NaN", "area must be a number, not NaN or Infinity"),
        ("100", "1e400", "area must be a number, not 1e400"),
        ("100", "1, \"area\": 2", "area occurs twice; remove one"),
        ("y_id\": 3", "y_id\": null", "category_id must be an integer from 0, not null"),
        ("30}", "\"30\"}", "width must be an integer (pixels), not \"30\""),
        (
            ", 9, 9]",
            ", \"9\"]",
            "bbox must be a list of numbers, [x, y, width, height], not [2, 2, \"9",
        ),
        ("[[2, 2, 11, 2, 11, 11]]", "[2, 2]", "segmentation must be a list of polygons, [[x, y, "),
        (
            "[[2, 2, 11, 2, 11, 11]]",
            r#"{"size": [1, 1], "size": [2, 3]}"#,
            "segmentation.size occurs twice",
        ),
        (", \"name\": \"cat\"", "", "name is missing; add it"),
    ] {
        let text = FILE.replacen(from, to, 1);
        let file = folder.file("gt.json", &text);
        let theirs = dali::coco::read(&file).err().map_or(String::new(), |e| e.to_string());
        let ours = GroundTruth::from_file(&file).err().map_or(String::new(), |e| e.to_string());
        assert_eq!(ours.trim_start_matches("annotations "), theirs);
        let fault = theirs.split_once("): ").unwrap_or_default().1;
        assert!(fault.starts_with(want) && want.is_empty() == theirs.is_empty(), "{to}: {theirs}");
    }
}

/// The box is rotated as in `prep`: CVAT writes the unrotated box.
#[test]
fn rotated_box_without_outline_becomes_enclosing_box() {
    let folder = Folder::new();
    let of = |attributes: &str, outline: &str| {
        let text = GT.replacen("\"iscrowd\": 0,", attributes, 1);
        let text = text.replacen("[[2, 2, 12, 2, 12, 12, 2, 12]]", outline, 1);
        let gt = GroundTruth::from_file(&folder.file("gt.json", &text)).expect("sound");
        gt.coco().dataset.annotations[0].bbox.expect("a box")
    };
    let half = 50f64.sqrt();
    for (degrees, outline, want) in [
        ("45", "[]", [7.0 - half, 7.0 - half, 2.0 * half, 2.0 * half]),
        ("45", "[[2, 2, 12, 2, 12, 12]]", [2.0, 2.0, 10.0, 10.0]),
        ("360", "[]", [2.0, 2.0, 10.0, 10.0]),
    ] {
        let got = of(&format!(r#""attributes": {{"rotation": {degrees}}},"#), outline);
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-9), "{got:?}");
    }
}

/// Dogs are known to be absent on image 1, and present on image 2, where cats are not annotated
/// exhaustively.
const LVIS: &str = r#"{"images": [
  {"id": 1, "height": 20, "width": 30, "neg_category_ids": [8], "not_exhaustive_category_ids": []},
  {"id": 2, "height": 20, "width": 30, "neg_category_ids": [], "not_exhaustive_category_ids": [3]},
  {"id": 4, "height": 20, "width": 30, "neg_category_ids": [], "not_exhaustive_category_ids": []}],
 "annotations": [
  {"id": 1, "image_id": 1, "category_id": 3, "bbox": [2, 2, 10, 10], "area": 100},
  {"id": 2, "image_id": 2, "category_id": 3, "bbox": [0, 0, 4, 4], "area": 16},
  {"id": 3, "image_id": 2, "category_id": 8, "bbox": [9, 9, 8, 8], "area": 64}],
 "categories": [{"id": 3, "name": "cat", "frequency": "f"},
  {"id": 8, "name": "dog", "frequency": "r"}]}"#;

#[test]
fn lvis_category_counts_only_where_annotated() {
    let folder = Folder::new();
    let gt_file = folder.file("gt.json", LVIS);
    let gt = GroundTruth::from_file(&gt_file).expect("sound annotations");
    assert!(gt.is_lvis() && !ground_truth().is_lvis());
    let detections = [
        samples::detection(1, 3, [2.0, 2.0, 10.0, 10.0], 0.5),
        samples::detection(2, 3, [0.0, 0.0, 4.0, 4.0], 0.4),
        samples::detection(2, 8, [9.0, 9.0, 8.0, 8.0], 0.3),
        // These detections are ignored: a dog in an image that was not checked for dogs, and a cat
        // on image 2.
        samples::detection(4, 8, [1.0, 1.0, 9.0, 9.0], 0.9),
        samples::detection(2, 3, [20.0, 2.0, 9.0, 9.0], 0.9),
        // A dog is detected where dogs are known to be absent.
        samples::detection(1, 8, [1.0, 1.0, 9.0, 9.0], 0.8),
    ];
    let dt_file = folder.0.path().join("dt.json");
    write_results_json_of(&dt_file, &detections, IouType::Bbox).expect("sound detections");
    let results = || Results::from_file(&dt_file, &gt, None).expect("sound detections");
    let (summary, curves) = evaluate_lvis(&gt, results()).expect("sound files");
    assert_eq!(curves.shape, [10, 101, 2, 4, 1]);
    for (i, want) in [(0, 0.75), (6, 0.5), (7, -1.0), (8, 1.0), (9, 1.0), (11, -1.0)] {
        assert!((summary.stats[i] - want).abs() < 1e-9, "{}: {summary}", LVIS_STAT_NAMES[i]);
    }
    let text = report_files(&gt_file, &dt_file).expect("sound files");
    assert_eq!(text, summary.to_string());
    let lines = [
        "bbox by LVIS's rules",
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=300 catIds=  r] = 0.500",
        " APm, APl, APc, ARm, ARl undefined (-1): the annotations have no such object.",
    ];
    assert!(lines.iter().all(|want| text.lines().any(|line| line == *want)), "{text}");
    // With only the best detection of each image, the cats' detections do not count.
    let (best, _) = evaluate_lvis(&gt, results().limited_to(1)).expect("sound files");
    assert_eq!((best.max_dets, best.stats[8], best.stats[9]), (1, 0.0, 0.0));
}

#[test]
fn missing_lvis_field_is_reported() {
    let folder = Folder::new();
    let cases = [
        (
            r#", "not_exhaustive_category_ids": [3]"#,
            "",
            "image id 2 has no not_exhaustive_category_ids, which LVIS requires",
        ),
        (r#", "frequency": "r""#, "", "category id 8 has no frequency of `r`, `c` or `f`"),
        (
            r#""neg_category_ids": [8]"#,
            r#""neg_category_ids": [-8]"#,
            "images[0] (id 1): neg_category_ids must be a list of integers from 0, not [-8]; \
             correct it",
        ),
    ];
    for (from, to, want) in cases {
        let error = folder.error(&LVIS.replacen(from, to, 1), PERFECT);
        assert_eq!(error, format!("annotations gt.json: {want}"));
    }
}
