//! An evaluation that several ranks share: each detects on some batches, the first one scores.

use super::{Evaluator, ImageDetections, in_order};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::ModelState;
use crate::team::Team;

/// What a rank found: its images by position in the evaluation; `None` if it was interrupted.
type Found = Option<Vec<(usize, ImageDetections)>>;

impl Evaluator {
    /// Detects on every image, with the other ranks. Returns all detections on the first rank, and
    /// none on the others.
    ///
    /// The batches are those of one process, so the detections are, too.
    ///
    /// # Errors
    /// As for [`Evaluator::run`]; [`EngineError::Interrupted`] if any rank was interrupted;
    /// [`EngineError::RankLost`].
    pub fn detect_in_ranks(
        &mut self,
        state: &mut ModelState,
        team: &Team,
        progress: &Progress,
    ) -> Result<Vec<ImageDetections>, EngineError> {
        let images = self.images().to_vec();
        if team.is_alone() {
            return self.detect(state, &images, progress);
        }
        let ranks = team.ranks();
        let batches = self.batches(&images).into_iter().skip(ranks.rank).step_by(ranks.count);
        let batches = batches.collect();
        let mine: Found =
            match self.detect_batches(state, &images, batches, progress, &mut || team.go_on()) {
                Ok(found) => Some(found),
                Err(EngineError::Interrupted) => None,
                Err(fault) => return Err(fault),
            };
        let was_interrupted = mine.is_none();
        let all = team.collect("the detections of all ranks", &mine)?;
        if was_interrupted || all.iter().any(Option::is_none) {
            return Err(EngineError::Interrupted);
        }
        Ok(in_order(images.len(), all.into_iter().flatten().flatten()))
    }
}
