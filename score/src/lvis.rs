//! LVIS scores, equal to lvis-api's. In LVIS, not every category was checked in every image.
//!
//! A detection counts only if its category is annotated in the image or known to be absent. An
//! unmatched detection is ignored if its category is not annotated exhaustively in the image. AP is
//! also reported by category frequency.

use std::fmt;

use hotcoco::COCOeval;

use super::IouType;
use super::detections::Results;
use super::error::ScoreError;
use super::evaluate::{Curves, matched, run};
use super::ground_truth::GroundTruth;
use super::summary::line;

/// LVIS's names of the thirteen metrics, in the order of [`LvisSummary::stats`].
pub const LVIS_STAT_NAMES: [&str; 13] =
    ["AP", "AP50", "AP75", "APs", "APm", "APl", "APr", "APc", "APf", "AR", "ARs", "ARm", "ARl"];

/// The result of an LVIS evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct LvisSummary {
    /// The compared shapes: boxes or masks.
    pub iou_type: IouType,
    /// Maximum number of detections per image, over all categories.
    pub max_dets: usize,
    /// The metrics, 0 to 1, in the order of [`LVIS_STAT_NAMES`]; -1 for a metric if no object has
    /// its size or category frequency.
    pub stats: [f64; 13],
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Scores checked results against LVIS annotations, and also returns the curves, `[T, R, K, A, 1]`.
/// `results` must have been checked against this `gt`.
///
/// # Errors
/// [`ScoreError::GroundTruth`] if the annotations lack the boxes or masks to compare.
pub fn evaluate_lvis(
    gt: &GroundTruth,
    results: Results,
) -> Result<(LvisSummary, Curves), ScoreError> {
    let (iou_type, max_dets) = (results.iou_type, results.max_dets);
    let (eval, notes) = matched(gt, results, |gt, found, kind, max_dets| {
        COCOeval::new_lvis(gt, found.cap_detections_per_image(Some(max_dets)), kind)
    })?;
    let run = run(gt, iou_type, eval)?;
    let stats = std::array::from_fn(|i| run.stats[i]);
    Ok((LvisSummary { iou_type, max_dets, stats, notes }, run.curves()))
}

impl fmt::Display for LvisSummary {
    /// `bbox` or `segm`; the thirteen lines, as lvis-api prints them; the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by LVIS's rules", self.iou_type)?;
        for (name, value) in LVIS_STAT_NAMES.into_iter().zip(self.stats) {
            let frequency = match &name[2..] {
                frequency @ ("r" | "c" | "f") => frequency,
                _ => "all",
            };
            write!(f, "\n{}", line(name, self.max_dets, Some(frequency), value))?;
        }
        let undefined = LVIS_STAT_NAMES.iter().zip(self.stats).filter(|(_, value)| *value < 0.0);
        let undefined: Vec<&str> = undefined.map(|(name, _)| *name).collect();
        if !undefined.is_empty() {
            let names = undefined.join(", ");
            write!(f, "\n {names} undefined (-1): the annotations have no such object.")?;
        }
        for note in &self.notes {
            write!(f, "\n Note: {note}.")?;
        }
        Ok(())
    }
}
