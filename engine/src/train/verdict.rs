//! The evaluation that overlaps with training: its state, and its effect on the run.

use std::sync::Arc;
use std::time::Instant;

use crate::config::Train;
use graph::StateSet;
use serde::{Deserialize, Serialize};

use super::background::Background;
use super::best::Best;
use super::options::Outcome;
use super::scores::{Scores, targets_reached};
use crate::error::EngineError;
use crate::evaluate::Evaluation;

/// The state of the evaluation that overlaps with training.
#[derive(Debug)]
pub(super) enum Phase {
    /// No evaluation is pending.
    Idle,
    /// Rank 0 scores the evaluation of this step.
    Elsewhere { step: u64 },
    /// A background thread of this rank scores it.
    Scoring(Scoring),
    /// Rank 0 has recorded it, but the other ranks do not have its result yet.
    Verdict(EvaluationOutcome),
}

/// An evaluation that is being scored.
#[derive(Debug)]
pub(super) struct Scoring {
    pub(super) step: u64,
    /// The state after the evaluated step, if the run continues.
    pub(super) state: Option<Arc<StateSet>>,
    pub(super) started: Instant,
    /// Seconds that training waited for the detections.
    pub(super) waited_seconds: f64,
    pub(super) scores: Background<Result<Scores, EngineError>>,
}

/// An evaluation and its result.
#[derive(Debug)]
pub(super) struct EvaluationOutcome {
    pub(super) step: u64,
    /// On rank 0: the state after the evaluated step, if the run continues.
    pub(super) state: Option<Arc<StateSet>>,
    /// On rank 0.
    pub(super) evaluation: Box<Evaluation>,
    pub(super) verdict: Verdict,
}

impl Phase {
    /// True if scores are ready, but not recorded yet.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Phase::Scoring(scoring) if scoring.scores.is_ready())
    }

    /// True if a result that ends the run is known.
    pub(super) fn ends_run(&self) -> bool {
        matches!(self, Phase::Verdict(judgement) if judgement.verdict.outcome().is_some())
    }

    /// True if a checkpoint of a later step may be written.
    pub(super) fn lets_save(&self) -> bool {
        match self {
            Phase::Idle => true,
            Phase::Elsewhere { .. } | Phase::Scoring(_) => false,
            Phase::Verdict(_) => !self.ends_run(),
        }
    }

    /// Takes the evaluation that this rank is scoring, if any.
    pub(super) fn take_scoring(&mut self) -> Option<Scoring> {
        match std::mem::replace(self, Phase::Idle) {
            Phase::Scoring(scoring) => Some(scoring),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// The effect of an evaluation on the run, known to all ranks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) is_target_reached: bool,
    /// True if `train.patience` is exhausted.
    is_exhausted: bool,
}

impl Verdict {
    /// The verdict on an evaluation that `best` has already recorded.
    pub(super) fn new(train: &Train, evaluation: &Evaluation, best: &Best) -> Self {
        let is_target_reached = targets_reached(train, evaluation);
        Self { is_target_reached, is_exhausted: best.is_exhausted() }
    }

    /// The outcome of the run, if the verdict ends it.
    pub(super) fn outcome(self) -> Option<Outcome> {
        match self {
            Self { is_target_reached: true, .. } => Some(Outcome::TargetReached),
            Self { is_exhausted: true, .. } => Some(Outcome::NoImprovement),
            _ => None,
        }
    }
}
