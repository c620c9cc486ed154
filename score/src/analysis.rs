//! Explains scores: scores by class, precision-recall curves, confused classes, error types by
//! cost, suspicious labels, and images with the worst detections.

use std::collections::HashMap;

use hotcoco::{COCO, COCOeval, ImageDiagnostics};
use serde::{Deserialize, Serialize};

use super::detections::{Detection, Results};
use super::error::ScoreError;
use super::evaluate::{Run, matched, new_scorer, scored};
use super::ground_truth::GroundTruth;
use super::{ClassScores, IouType, Summary};

/// Minimum IoU at which a detection matches an object, in the confusion matrix, error types and
/// images' errors.
const FOUND_IOU: f64 = 0.5;
/// Detections with a lower IoU with every object are background detections.
const BACKGROUND_IOU: f64 = 0.1;
/// Minimum score of the detections in the confusion matrix and in images' errors.
const MIN_SCORE: f64 = 0.5;
/// Minimum score of a detection that, without a matching annotation, indicates a suspicious label.
const DOUBTING_SCORE: f64 = 0.8;
/// Maximum number of classes in the confusion matrix.
const MAX_CONFUSED: usize = 4096;
/// Maximum number of detection-object pairs per image when error types are computed, which takes 8
/// bytes per pair.
const MAX_PAIRS: usize = 1 << 26;
/// Maximum number of suspicious labels.
const MAX_DOUBTS: usize = 100;
/// TIDE's short names of the error types, and their descriptions.
const ERROR_KINDS: [(&str, &str); 6] = [
    ("Cls", "right place, wrong class"),
    ("Loc", "right class, poorly placed"),
    ("Both", "wrong class, poorly placed"),
    ("Dupe", "detected twice"),
    ("Bkg", "nothing there"),
    ("Miss", "not detected"),
];

/// An error type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorKind {
    /// TIDE's short name: `Cls`, `Loc`, `Both`, `Dupe`, `Bkg`, `Miss`.
    pub kind: String,
    /// Description of the error type.
    pub meaning: String,
    /// Number of errors of this type.
    pub count: u64,
    /// The increase of AP at IoU 0.50, averaged over classes, if these errors were fixed. Fixing a
    /// missed object means not counting it, so a class whose objects are all missed gains nothing.
    pub ap_lost: f64,
}

/// Comparison of an image's detections that have a score of at least 0.5 with its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageScores {
    /// The image's id.
    pub image_id: u64,
    /// Objects found.
    pub found: usize,
    /// Detections that match no object.
    pub spurious: usize,
    /// Objects missed.
    pub missed: usize,
}

/// A label that may be wrong or missing, because a confident detection contradicts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabelDoubt {
    /// The image's id.
    pub image_id: u64,
    /// The class of the annotation whose box has an IoU of at least 0.5 with the detection; `None`
    /// if no annotated box has an IoU of at least 0.1.
    pub annotated_class: Option<String>,
    /// The class of the detection.
    pub detected_class: String,
    /// The detection's score.
    pub score: f64,
}

/// An analysis of detections. For keypoints it contains only `classes` and `precision`, with OKS
/// instead of IoU. The other fields compare objects of different classes, whose keypoints may have
/// different meanings; analyze the boxes to get them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Scores by class, in the order of class ids.
    pub classes: Vec<ClassScores>,
    /// Mean precision over the classes at recalls 0, 0.01 .. 1, for each of ten IoU thresholds,
    /// 0.50 to 0.95; empty if no class has objects.
    pub precision: Vec<Vec<f64>>,
    /// Objects of class `row` detected as class `column`; the last row counts detections on
    /// background, the last column missed objects. Only detections with a score of at least 0.5
    /// count, and a match needs an IoU of at least 0.5.
    pub confusion: Vec<Vec<u64>>,
    /// Error types, the most costly first.
    pub errors: Vec<ErrorKind>,
    /// Errors by image, the worst first.
    pub images: Vec<ImageScores>,
    /// Suspicious labels, from detections with a score of at least 0.8, the most confident first.
    #[serde(default)]
    pub label_doubts: Vec<LabelDoubt>,
}

/// Analyses detections; the summary equals [`super::evaluate`]'s.
///
/// # Errors
/// As for [`super::evaluate`].
pub fn analyze(
    gt: &GroundTruth,
    detections: &[Detection],
    iou_type: IouType,
) -> Result<(Summary, Analysis), ScoreError> {
    let results = Results::from_detections(detections, gt, iou_type)?;
    let (summary, Run { classes, precision, eval, .. }) = scored(gt, results)?;
    let mut analysis = Analysis {
        classes,
        precision,
        confusion: vec![],
        errors: vec![],
        images: vec![],
        label_doubts: vec![],
    };
    if iou_type == IouType::Keypoints {
        return Ok((summary, analysis));
    }
    // Only detections that a user would see; lower scores are noise.
    let shown: Vec<Detection> =
        detections.iter().filter(|d| d.score >= MIN_SCORE).cloned().collect();
    let (seen, _) = matched(gt, Results::from_detections(&shown, gt, iou_type)?, new_scorer)?;
    let diagnostics = seen.image_diagnostics(FOUND_IOU, MIN_SCORE)?;
    if analysis.classes.len() <= MAX_CONFUSED {
        analysis.confusion = confusion(&eval);
    }
    if pairs(gt, eval.coco_dt()) <= MAX_PAIRS {
        analysis.errors = errors(&eval)?;
    }
    analysis.images = images(&diagnostics);
    analysis.label_doubts = label_doubts(gt, &shown, &diagnostics);
    Ok((summary, analysis))
}

/// The number of detection-object pairs in the image that has the most.
fn pairs(gt: &GroundTruth, found: &COCO) -> usize {
    let count = |of: &COCO, image: u64| of.get_ann_ids_for_img(image).len();
    let images = gt.coco().dataset.images.iter().map(|image| image.id);
    images.map(|id| count(gt.coco(), id) * count(found, id)).max().unwrap_or(0)
}

fn confusion(eval: &COCOeval) -> Vec<Vec<u64>> {
    let matrix = eval.confusion_matrix(FOUND_IOU, None, Some(MIN_SCORE));
    matrix.matrix.chunks(matrix.num_cats + 1).map(<[u64]>::to_vec).collect()
}

fn errors(eval: &COCOeval) -> Result<Vec<ErrorKind>, ScoreError> {
    let found = eval.tide_errors(FOUND_IOU, BACKGROUND_IOU)?;
    let error = |(kind, meaning): (&str, &str)| ErrorKind {
        kind: kind.to_string(),
        meaning: meaning.to_string(),
        count: found.counts.get(kind).copied().unwrap_or(0),
        ap_lost: found.delta_ap.get(kind).copied().unwrap_or(0.0),
    };
    let mut kinds: Vec<ErrorKind> = ERROR_KINDS.into_iter().map(error).collect();
    kinds.sort_by(|a, b| b.ap_lost.total_cmp(&a.ap_lost));
    Ok(kinds)
}

/// Sorts images, the worst first: by F1, then by the number of unmatched objects and detections.
fn images(diagnostics: &ImageDiagnostics) -> Vec<ImageScores> {
    let scores = |(&image_id, i): (&u64, &hotcoco::ImageSummary)| {
        let [found, spurious, missed] = [i.tp, i.fp, i.fn_count].map(|n| n as usize);
        (i.f1, ImageScores { image_id, found, spurious, missed })
    };
    let mut images: Vec<_> = diagnostics.images.iter().map(scores).collect();
    images.sort_by(|(f1, a), (other, b)| {
        let faults = |i: &ImageScores| i.spurious + i.missed;
        f1.total_cmp(other).then(faults(b).cmp(&faults(a))).then(a.image_id.cmp(&b.image_id))
    });
    images.into_iter().map(|(_, scores)| scores).collect()
}

fn label_doubts(
    gt: &GroundTruth,
    detections: &[Detection],
    diagnostics: &ImageDiagnostics,
) -> Vec<LabelDoubt> {
    let name = |id| gt.coco().cat_name(id);
    let mut crowds: HashMap<u64, Vec<[f64; 4]>> = HashMap::new();
    for object in gt.coco().dataset.annotations.iter().filter(|object| object.iscrowd) {
        crowds.entry(object.image_id).or_default().extend(object.bbox);
    }
    let is_doubt = |e: &&hotcoco::LabelError| {
        // Ids of detections count from 1.
        let bbox = detections[e.dt_id as usize - 1].bbox_xywh;
        let is_in_crowd = || crowds.get(&e.image_id).is_some_and(|all| is_in_crowd(all, bbox));
        e.dt_score >= DOUBTING_SCORE && (e.gt_id.is_some() || !is_in_crowd())
    };
    let doubts = diagnostics.label_errors.iter().filter(is_doubt);
    let doubt = |e: &hotcoco::LabelError| LabelDoubt {
        image_id: e.image_id,
        annotated_class: e.gt_category_id.map(name),
        detected_class: name(e.dt_category_id),
        score: e.dt_score,
    };
    doubts.take(MAX_DOUBTS).map(doubt).collect()
}

/// True if more than half of the detection's box is inside a single crowd of any class.
fn is_in_crowd(crowds: &[[f64; 4]], [x, y, width, height]: [f64; 4]) -> bool {
    crowds.iter().any(|[cx, cy, cw, ch]| {
        let across = (x + width).min(cx + cw) - x.max(*cx);
        let down = (y + height).min(cy + ch) - y.max(*cy);
        across.max(0.0) * down.max(0.0) > 0.5 * width * height
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{ground_truth, object};
    use crate::{GtAnnotation, class_table, evaluate, samples};

    /// A square box that is small, medium or large, depending on the id.
    fn square(id: u64) -> [f64; 4] {
        let side = [10.0, 50.0, 120.0][id as usize % 3];
        [0.0, 0.0, side, side]
    }

    /// Two cats and a dog.
    fn pets() -> GroundTruth {
        let object = |id, image_id, category_id, x: f64| {
            object(id, image_id, category_id, [x, 10.0, 20.0, 20.0])
        };
        let objects = vec![object(1, 1, 3, 0.0), object(2, 1, 3, 40.0), object(3, 2, 8, 0.0)];
        let categories = [(3, "cat"), (8, "dog"), (9, "none")];
        ground_truth(100, 1..3, objects, &categories).expect("sound")
    }

    fn detection(image_id: u64, category_id: u64, x: f64, score: f64) -> Detection {
        samples::detection(image_id, category_id, [x, 10.0, 20.0, 20.0], score)
    }

    #[test]
    fn analysis_matches_hand_drawn_example() {
        // One cat is found, one missed; the dog is detected as a cat; a cat is detected on
        // background; one detection has too low a score.
        let detections = [
            detection(1, 3, 0.0, 0.9),
            detection(2, 3, 0.0, 0.8),
            detection(1, 3, 75.0, 0.7),
            detection(2, 8, 60.0, 0.1),
        ];
        let gt = pets();
        let (summary, analysis) = analyze(&gt, &detections, IouType::Bbox).expect("sound");
        assert_eq!(summary, evaluate(&gt, &detections, IouType::Bbox).expect("sound"));
        let [cat, dog, none] = analysis.classes.as_slice() else { panic!("three classes") };
        assert_eq!((cat.name.as_str(), cat.objects, cat.ar), ("cat", 2, Some(0.5)));
        // Precision is 1 up to a recall of 0.5, at 51 of the 101 recalls.
        assert!((cat.ap.expect("defined") - 51.0 / 101.0).abs() < 1e-9);
        assert!(cat.precision[50] > 0.999 && cat.precision[51] == 0.0, "{:?}", cat.precision);
        assert_eq!((dog.ap50, dog.objects, none.ap, none.objects), (Some(0.0), 1, None, 0));
        assert!(none.precision.is_empty());
        let mean = analysis.precision.iter().map(|p| p.iter().sum::<f64>() / 101.0);
        assert!((mean.sum::<f64>() / 10.0 - summary.ap()).abs() < 1e-12);
        assert_eq!(
            analysis.confusion,
            [vec![1, 0, 0, 1], vec![1, 0, 0, 0], vec![0; 4], vec![1, 0, 0, 0]]
        );
        let error = |kind| analysis.errors.iter().find(|e| e.kind == kind).expect("a kind");
        let wrong = error("Cls");
        assert_eq!((wrong.meaning.as_str(), wrong.count), ("right place, wrong class", 1));
        assert_eq!((error("Bkg").count, error("Dupe").count), (2, 0));
        assert!(analysis.errors.windows(2).all(|pair| pair[0].ap_lost >= pair[1].ap_lost));
        let image =
            |image_id, found, spurious, missed| ImageScores { image_id, found, spurious, missed };
        assert_eq!(analysis.images, [image(2, 0, 1, 1), image(1, 1, 1, 1)]);
        // Half of the cats are found above the dog's score. The confident cat at the dog's position
        // makes the dog's label suspicious; the detection on background has too low a score.
        let threshold = cat.best_threshold.expect("one is found");
        assert_eq!((threshold.score, threshold.recall), (0.9, 0.5));
        assert!((threshold.precision - 1.0).abs() < 1e-9, "{threshold:?}");
        assert_eq!((dog.best_threshold, none.best_threshold), (None, None));
        let [doubt] = analysis.label_doubts.as_slice() else { panic!("{analysis:?}") };
        assert_eq!((doubt.image_id, doubt.score, doubt.detected_class.as_str()), (2, 0.8, "cat"));
        assert_eq!(doubt.annotated_class.as_deref(), Some("dog"));
    }

    #[test]
    fn many_categories_are_scored_in_chunks() {
        let truth = |count: u64| {
            let objects = (1..=count).map(|id| object(id, 1, id, square(id))).collect();
            let categories: Vec<_> = (0..=count).map(|id| (id, "c")).collect();
            ground_truth(200, [1], objects, &categories)
        };
        let fault = truth(65_537).expect_err("too many").to_string();
        assert!(fault.contains("65537 categories have objects; at most 65536 can"), "{fault}");
        // One in five small objects is found, two in five medium ones, three in five large ones.
        let is_found = |id: u64| id % 5 <= id % 3;
        let found = (1..=4500).filter(|id| is_found(*id));
        let found: Vec<_> = found.map(|id| samples::detection(1, id, square(id), 0.9)).collect();
        let gt = truth(4500).expect("sound");
        let (summary, analysis) = analyze(&gt, &found, IouType::Bbox).expect("sound");
        let want = [0.4, 0.4, 0.4, 0.2, 0.4, 0.6, 0.4, 0.4, 0.4, 0.2, 0.4, 0.6];
        let is_close = |(a, b): (&f64, f64)| (a - b).abs() < 1e-12;
        assert!(summary.stats.iter().zip(want).all(is_close), "{summary}, not {want:?}");
        assert_eq!((analysis.classes.len(), analysis.precision[9].len()), (4500, 101));
        assert!(analysis.precision.iter().flatten().all(|p| is_close((p, 0.4))));
        let aps = analysis.classes.iter().map(|class| class.ap.expect("defined"));
        assert!(aps.zip(1..).all(|(ap, id)| is_close((&ap, f64::from(u8::from(is_found(id)))))));
    }

    #[test]
    fn detection_in_crowd_does_not_make_labels_suspicious() {
        let doubts = |iscrowd: bool| {
            let object = object(1, 1, 3, [0.0, 0.0, 100.0, 100.0]);
            let object = GtAnnotation { iscrowd, ..object };
            let gt = ground_truth(100, [1], vec![object], &[(3, "cat"), (8, "dog")]);
            let seen = [detection(1, 8, 10.0, 0.9)];
            analyze(&gt.expect("sound"), &seen, IouType::Bbox).expect("sound").1.label_doubts
        };
        assert_eq!((doubts(true).len(), doubts(false).len()), (0, 1));
    }

    #[test]
    fn analysis_accepts_no_detections() {
        let (summary, analysis) = analyze(&pets(), &[], IouType::Bbox).expect("sound");
        assert_eq!((summary.ap(), analysis.images[0].missed), (0.0, 2));
        assert!(analysis.precision.iter().flatten().all(|p| *p == 0.0));
        // All three objects are missed. Fixing this would remove all objects, so no class gains AP.
        let miss = analysis.errors.iter().find(|error| error.kind == "Miss").expect("a kind");
        assert_eq!((miss.count, miss.ap_lost), (3, 0.0));
    }

    #[test]
    fn unannotated_class_has_no_precision() {
        let gt = ground_truth(100, [1], vec![], &[(1, "cat")]).expect("sound");
        let seen = [detection(1, 1, 0.0, 0.9)];
        let (summary, analysis) = analyze(&gt, &seen, IouType::Bbox).expect("sound");
        assert!(summary.ap() < 0.0 && analysis.precision.iter().all(Vec::is_empty));
        assert!(
            class_table(&analysis.classes, IouType::Bbox).ends_with("      0     -      -      -")
        );
    }
}
