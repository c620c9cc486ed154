//! Splits an evaluation across ranks: each rank runs detection on a share of the batches, and rank
//! 0 computes the scores.

use super::{Evaluator, ImageDetections, Positioned, in_order};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::ModelState;
use crate::team::{Team, decode, encode};

/// The gathered detections of all ranks, on rank 0; empty on the other ranks. Messages are decoded
/// by [`Self::images`], possibly on a different thread.
#[derive(Debug)]
pub enum Gathered {
    /// A single process ran all batches.
    Here(Vec<ImageDetections>),
    /// The encoded messages of all ranks (empty except on rank 0), and the number of images.
    Messages(Vec<Vec<u8>>, usize),
}

impl Gathered {
    /// The detections by image, in the order of the images.
    ///
    /// # Errors
    /// [`EngineError::RankLost`] for a message that cannot be decoded.
    pub fn images(self) -> Result<Vec<ImageDetections>, EngineError> {
        let (messages, count) = match self {
            Self::Here(images) => return Ok(images),
            Self::Messages(messages, count) => (messages, count),
        };
        let mut all = Vec::new();
        for message in &messages {
            all.extend(decode::<Option<Positioned>>(message)?.into_iter().flatten());
        }
        Ok(in_order(count, all))
    }
}

impl Evaluator {
    /// Detects objects in all images, sharing the batches with the other ranks.
    ///
    /// Batches and detections do not depend on the number of ranks.
    ///
    /// # Errors
    /// As for [`Evaluator::run`]; [`EngineError::Interrupted`] if any rank was interrupted;
    /// [`EngineError::RankLost`].
    pub fn detect_in_ranks(
        &mut self,
        state: &mut ModelState,
        team: &Team,
        progress: &Progress,
    ) -> Result<Gathered, EngineError> {
        let images = self.set().images().to_vec();
        if team.is_alone() {
            return Ok(Gathered::Here(self.detect(state, &images, progress)?));
        }
        let ranks = team.ranks();
        let batches = self.batches(&images).into_iter().skip(ranks.rank).step_by(ranks.count);
        let batches = batches.collect();
        let mine: Option<Positioned> =
            match self
                .detect_batches(state, &images, batches, progress, &mut || team.record_progress())
            {
                Ok(found) => Some(found),
                Err(EngineError::Interrupted) => None,
                Err(fault) => return Err(fault),
            };
        let messages = team.gather("the detections of all ranks", &encode(&mine)?)?;
        // The first byte of a message is 1 if it contains detections, 0 if the rank was
        // interrupted.
        if mine.is_none() || messages.iter().any(|message| message.first() != Some(&1)) {
            return Err(EngineError::Interrupted);
        }
        Ok(Gathered::Messages(messages, images.len()))
    }
}
