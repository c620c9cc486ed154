//! `[[train.log]]`: rules that select statistics of weights, gradients and activations, and the
//! steps after which they are collected.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AfterStep, Run, due, next_multiple};
use crate::config::Config;
use crate::error::EngineError;
use crate::metrics::StepRecord;

table! {
    /// `[[train.log]]`: writes statistics of each tensor and of each part of the model to
    /// `metrics.jsonl` and TensorBoard (`docs/metrics.md`). They do not affect training, but cost a
    /// host sync after each step with statistics.
    pub struct LogRule {
        /// Names of the tensors, where `*` matches any text (`"backbone.*"`). Default `"*"`.
        #[key(resume = Free, mlperf = Free)]
        pub tensors: String = "*".to_string(),
        /// `"weights"` (default; parameters after the step), `"gradients"` (before clipping,
        /// without the loss scale) or `"activations"` (of the last micro-step on rank 0).
        #[key(resume = Free, mlperf = Free)]
        pub of: LogOf = LogOf::Weights,
        /// Statistics to write, any of `"mean"`, `"l2"`, `"min"`, `"max"`, `"std"` and
        /// `"histogram"`. Default mean and l2.
        #[key(resume = Free, mlperf = Free)]
        pub reduce: Vec<Reduce> = vec![Reduce::Mean, Reduce::L2],
        /// Steps between records. Default 100.
        #[key(range = 1..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub every: u64 = 100,
    }
}

/// Kind of tensors that a `[[train.log]]` rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogOf {
    /// Parameters after the step.
    Weights,
    /// Gradients of the step.
    Gradients,
    /// Outputs of parts of the model.
    Activations,
}

impl LogOf {
    /// The name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Gradients => "gradients",
            Self::Activations => "activations",
        }
    }
}

/// A number, or a histogram, of a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// The mean.
    Mean,
    /// The L2 norm.
    L2,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The standard deviation.
    Std,
    /// Number of values in each of 32 bins between the extremes.
    Histogram,
}

impl Reduce {
    /// The name in a config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::L2 => "l2",
            Self::Min => "min",
            Self::Max => "max",
            Self::Std => "std",
            Self::Histogram => "histogram",
        }
    }
}

/// Collects the statistics that the config's rules request.
#[derive(Debug)]
struct Collect {
    rules: Vec<LogRule>,
}

pub(super) fn part(config: &Config) -> Option<Box<dyn AfterStep>> {
    let rules = config.train.log.clone();
    (!rules.is_empty()).then(|| Box::new(Collect { rules }) as Box<dyn AfterStep>)
}

impl AfterStep for Collect {
    fn next(&self, step: u64) -> Option<u64> {
        self.rules.iter().filter_map(|rule| next_multiple(rule.every, step)).min()
    }

    fn after(&mut self, record: &StepRecord, run: &mut Run<'_>) -> Result<(), EngineError> {
        let rules = self.rules.iter().filter(|rule| due(rule.every, record.step));
        // Only rank 0 collects. All ranks drain their steps in flight here, so that they agree on
        // the next action.
        for rule in rules.filter(|_| run.options.team.is_first()) {
            let collected = run.trainer.collect(rule, record.loss_scale)?;
            run.journal.collected(record.step, &collected);
            run.trainer.restart_clock();
        }
        Ok(())
    }
}
