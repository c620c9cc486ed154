//! Where an evaluation stands that overlaps with training, and what it means for the run.

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

/// Where the evaluation stands that overlaps with training.
#[derive(Debug)]
pub(super) enum Phase {
    /// There is none.
    Idle,
    /// The first rank scores that of this step.
    Elsewhere { step: u64 },
    /// A thread of this rank scores it.
    Scoring(Scoring),
    /// It is recorded, and the other ranks do not know its verdict.
    Verdict(Judgement),
}

/// An evaluation whose scores are being made.
#[derive(Debug)]
pub(super) struct Scoring {
    pub(super) step: u64,
    /// The state after that step, if the run goes on.
    pub(super) state: Option<Arc<StateSet>>,
    pub(super) started: Instant,
    /// Seconds that training has waited for the detections.
    pub(super) waited_seconds: f64,
    pub(super) scores: Background<Result<Scores, EngineError>>,
}

/// An evaluation and its verdict.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) step: u64,
    /// The state after that step, on the first rank, if the run goes on.
    pub(super) state: Option<Arc<StateSet>>,
    /// On the first rank.
    pub(super) evaluation: Box<Evaluation>,
    pub(super) verdict: Verdict,
}

impl Phase {
    /// True if there are scores that nobody has recorded.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Phase::Scoring(scoring) if scoring.scores.is_ready())
    }

    /// True if a verdict is known that ends the run.
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

    /// Takes the evaluation that is scored on this rank, if there is one.
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

/// The meaning of an evaluation for the run, on every rank.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) is_target_reached: bool,
    /// `train.patience` is at its end.
    is_exhausted: bool,
}

impl Verdict {
    /// The verdict on an evaluation that `best` has recorded.
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
