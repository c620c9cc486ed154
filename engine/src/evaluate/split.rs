//! An evaluation that several ranks share: each detects on some batches, the first one scores.

use super::{Evaluator, ImageDetections};
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
        let mine: Found = match self.detect_share(state, &images, team, progress) {
            Ok(found) => Some(found),
            Err(EngineError::Interrupted) => None,
            Err(fault) => return Err(fault),
        };
        let was_interrupted = mine.is_none();
        let all = team.collect("the detections of all ranks", &mine)?;
        if was_interrupted || all.iter().any(Option::is_none) {
            return Err(EngineError::Interrupted);
        }
        let mut results: Vec<Option<ImageDetections>> = vec![None; images.len()];
        for (position, found) in all.into_iter().flatten().flatten() {
            if let Some(place) = results.get_mut(position) {
                *place = Some(found);
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn detect_share(
        &mut self,
        state: &mut ModelState,
        images: &[usize],
        team: &Team,
        progress: &Progress,
    ) -> Result<Vec<(usize, ImageDetections)>, EngineError> {
        let ranks = team.ranks();
        let batches = self.batches(images);
        let mine: Vec<_> = batches.into_iter().skip(ranks.rank).step_by(ranks.count).collect();
        let count: usize = mine.iter().map(|(_, positions)| positions.len()).sum();
        let bar = progress.bar("evaluating", count as u64);
        let mut found = Vec::with_capacity(count);
        for (shape, positions) in mine {
            let of_batch = self.detect_batch(state, images, shape, &positions)?;
            bar.inc(positions.len() as u64);
            found.extend(positions.into_iter().zip(of_batch));
        }
        bar.finish_and_clear();
        Ok(found)
    }
}
