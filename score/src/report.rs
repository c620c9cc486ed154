//! The scores of a results file against an annotation file, as text.

use std::path::Path;

use super::class_table::class_table;
use super::detections::Results;
use super::error::ScoreError;
use super::evaluate::scored;
use super::ground_truth::GroundTruth;
use super::lvis::evaluate_lvis;

/// The scores of a COCO results file as text: COCO metrics in total and by class, or, for LVIS
/// annotations, LVIS metrics.
///
/// # Errors
/// As for [`super::evaluate_files`].
pub fn report_files(gt: &Path, detections: &Path) -> Result<String, ScoreError> {
    let gt = GroundTruth::from_file(gt)?;
    let results = Results::from_file(detections, &gt, None)?;
    if gt.is_lvis() {
        return Ok(evaluate_lvis(&gt, results)?.0.to_string());
    }
    let (summary, run) = scored(&gt, results)?;
    let table = class_table(&run.classes, summary.iou_type);
    Ok(format!("{summary}\n\n{} by class\n{table}", summary.iou_type))
}
