//! State of an evaluation that overlaps with training, and its effect on the run.

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
    /// There is none.
    Idle,
    /// Rank 0 scores the evaluation of this step.
    Elsewhere { step: u64 },
    /// A thread of this rank scores it.
    Scoring(Scoring),
    /// It is recorded, but the other ranks do not have its result yet.
    Verdict(EvaluationOutcome),
}

/// An evaluation that is being scored.
#[derive(Debug)]
pub(super) struct Scoring {
    pub(super) step: u64,
    /// The state after that step, if the run continues.
    pub(super) state: Option<Arc<StateSet>>,
    pub(super) started: Instant,
    /// Seconds that training has waited for the detections.
    pub(super) waited_seconds: f64,
    pub(super) scores: Background<Result<Scores, EngineError>>,
}

/// An evaluation and its result.
#[derive(Debug)]
pub(super) struct EvaluationOutcome {
    pub(super) step: u64,
    /// The state after that step, on rank 0, if the run continues.
    pub(super) state: Option<Arc<StateSet>>,
    /// On rank 0.
    pub(super) evaluation: Box<Evaluation>,
    pub(super) verdict: Verdict,
}

impl Phase {
    /// True if there are scores that are not recorded yet.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Phase::Scoring(scoring) if scoring.scores.is_ready())
    }

    /// True if a result is known that ends the run.
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

    /// Takes the evaluation being scored on this rank, if there is one.
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

/// The effect of an evaluation on the run, on every rank.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) is_target_reached: bool,
    /// `train.patience` is exhausted.
    is_exhausted: bool,
}

impl Verdict {
    /// The result of an evaluation that `best` has recorded.
    pub(super) fn new(train: &Train, evaluation: &Evaluation, best: &Best) -> Self {
        let is_target_reached = targets_reached(train, evaluation);
        Self { is_target_reached, is_exhausted: best.is_exhausted() }
    }

    /// How it ends the run, if it does.
    pub(super) fn outcome(self) -> Option<Outcome> {
        match self {
            Self { is_target_reached: true, .. } => Some(Outcome::TargetReached),
            Self { is_exhausted: true, .. } => Some(Outcome::NoImprovement),
            _ => None,
        }
    }
}
