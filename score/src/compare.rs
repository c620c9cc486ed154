//! Compares two sets of detections on the same images: score differences and their confidence
//! intervals.

use hotcoco::metrics::bootstrap::bootstrap_ci;

use super::IouType;
use super::detections::Results;
use super::error::ScoreError;
use super::evaluate::scored;
use super::ground_truth::GroundTruth;
use super::resample::Matches;

/// Confidence level of an interval.
const CONFIDENCE: f64 = 0.95;
/// Half width of a 95 % interval, in standard errors.
const ERRORS_A_SIDE: f64 = 1.96;
/// Seed of the bootstrap samples; it is fixed, so equal detections give equal intervals.
const SEED: u64 = 0;

/// A score of both sets of detections, and the interval of the difference.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreDifference {
    /// Name of the score: one of [`IouType::stat_names`], or a class name for the class's AP.
    pub name: String,
    /// Both scores; `None` if undefined.
    pub scores: [Option<f64>; 2],
    /// The 95 % confidence interval of the difference (second minus first) over image sets of the
    /// same size from the same distribution; `None` if a score is undefined, and for classes.
    pub interval: Option<[f64; 2]>,
}

impl ScoreDifference {
    /// The second score minus the first.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        let [first, second] = self.scores;
        Some(second? - first?)
    }

    /// True if the interval excludes 0.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }
}

/// A comparison of two sets of detections by one IoU type.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The compared shapes.
    pub iou_type: IouType,
    /// The metrics, in the order of [`IouType::stat_names`].
    pub stats: Vec<ScoreDifference>,
    /// AP by class, in the order of class ids.
    pub classes: Vec<ScoreDifference>,
    /// Number of images.
    pub images: usize,
}

/// Compares two sets of detections of the same IoU type, with confidence intervals from `samples`
/// bootstrap samples of the images. Calls `done` after each sample.
///
/// A sample consists of the distinct images in n draws with replacement from the n images. The
/// expected share of the images in a sample is s = 1 - (1 - 1/n)^n. The standard deviation of
/// differences over samples is therefore smaller than over independent sets of n images, by a
/// factor of sqrt((1 - s) / s). The intervals correct for this.
///
/// # Errors
/// [`ScoreError::GroundTruth`] if the annotations lack the boxes, masks or keypoints to compare.
pub fn compare(
    gt: &GroundTruth,
    first: Results,
    second: Results,
    samples: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Comparison, ScoreError> {
    let (iou_type, images) = (first.iou_type, gt.num_images());
    let scored = |results| {
        let (summary, run) = scored(gt, results)?;
        Ok::<_, ScoreError>((summary, Matches::new(&run.eval)))
    };
    let ((first, ours), (second, theirs)) = (scored(first)?, scored(second)?);
    let positions: Vec<usize> = (0..images).collect();
    let errors = bootstrap_ci(&positions, samples, SEED, CONFIDENCE, |sample| {
        let [a, b] = [&ours, &theirs].map(|of| of.stats(sample.iter()));
        done();
        let is_defined = |a: f64, b: f64| a >= 0.0 && b >= 0.0;
        a.into_iter().zip(b).map(|(a, b)| if is_defined(a, b) { b - a } else { 0.0 }).collect()
    });
    let of = |name: &str, scores: [f64; 2], error: Option<f64>| {
        let scores = scores.map(|score| (score >= 0.0).then_some(score));
        let mut all = ScoreDifference { name: name.to_string(), scores, interval: None };
        all.interval = all.difference().zip(error).map(|(difference, error)| {
            let side = ERRORS_A_SIDE * error * correction(images);
            [difference - side, difference + side]
        });
        all
    };
    let stats = iou_type.stat_names().iter().enumerate().map(|(i, name)| {
        let error = errors.get(i).map(|interval| interval.std_err);
        of(name, [first.stats[i], second.stats[i]], error)
    });
    let classes = first.per_category.iter().zip(&second.per_category);
    let classes = classes.map(|((name, first), (_, second))| of(name, [*first, *second], None));
    Ok(Comparison { iou_type, stats: stats.collect(), classes: classes.collect(), images })
}

/// The standard deviation of scores over independent sets of this many images, divided by the
/// standard deviation over the bootstrap samples.
fn correction(images: usize) -> f64 {
    let n = images.max(2) as f64;
    let share = 1.0 - (1.0 - 1.0 / n).powf(n);
    (share / (1.0 - share)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{detection, ground_truth, object};

    /// With one object on each of 400 images, AR is the share of images with a detection; the
    /// standard error of its difference is known.
    #[test]
    fn interval_matches_bootstrap_of_image_mean() {
        let ids = 1..=400_u64;
        let bbox_xywh = [10.0, 10.0, 40.0, 40.0];
        let objects = ids.clone().map(|id| object(id, id, 1 + id % 2, bbox_xywh)).collect();
        let gt = ground_truth(100, ids.clone(), objects, &[(1, "cat"), (2, "dog")]);
        let gt = gt.expect("sound");
        let results = |is_found: &dyn Fn(u64) -> bool| {
            let found = ids.clone().filter(|id| is_found(*id));
            let detection = |id| detection(id, 1 + id % 2, bbox_xywh, (id % 7) as f64 / 7.0);
            let found: Vec<_> = found.map(detection).collect();
            Results::from_detections(&found, &gt, IouType::Bbox).expect("sound")
        };
        // The first set has detections on six of ten images, the second on eight; four images are
        // in both.
        let (first, second) = (|id: u64| id % 10 < 6, |id: u64| !(4..6).contains(&(id % 10)));
        let found =
            compare(&gt, results(&first), results(&second), 2000, &|| ()).expect("comparable");
        assert_eq!((found.images, found.stats.len()), (400, 12));
        let recall = found.stats.iter().find(|stat| stat.name == "AR100").expect("a number");
        assert!((recall.difference().expect("defined") - 0.2).abs() < 1e-9, "{recall:?}");
        // The difference is +1 on four of ten images, -1 on two, else 0: its variance is 0.6 -
        // 0.04.
        let side = 1.96 * (0.56_f64 / 400.0).sqrt();
        let [low, high] = recall.interval.expect("sampled");
        assert!(((high - low) / (2.0 * side) - 1.0).abs() < 0.1, "{low} to {high}, not +-{side}");
        assert!(recall.is_certain());
        let small = found.stats.iter().find(|stat| stat.name == "APs").expect("a number");
        assert_eq!((small.scores, small.interval, small.is_certain()), ([None; 2], None, false));
        assert_eq!((found.classes[0].name.as_str(), found.classes[0].interval), ("cat", None));
        // Compares with the scorer's own implementation, which is slow.
        let eval = |results| scored(&gt, results).expect("sound").1.eval;
        let (n_bootstrap, seed, confidence) = (2000, SEED, CONFIDENCE);
        let options = hotcoco::CompareOpts { n_bootstrap, seed, confidence };
        let slow = hotcoco::compare(&eval(results(&first)), &eval(results(&second)), &options);
        let slow = slow.expect("comparable").ci.expect("sampled");
        for (stat, [low, high]) in found.stats.iter().filter_map(|s| Some((s, s.interval?))) {
            let side = 1.96 * slow[&stat.name].std_err * correction(400);
            assert!((high - low - 2.0 * side).abs() < 1e-12 && side > 0.0, "{stat:?}: {side}");
        }
        let same = compare(&gt, results(&first), results(&first), 50, &|| ()).expect("comparable");
        assert!(same.stats.iter().all(|stat| !stat.is_certain()), "{same:?}");
    }
}
