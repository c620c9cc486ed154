//! Detects non-finite losses, and runs that cannot recover.

use crate::config::Config;

use crate::metrics::StepRecord;

/// Number of consecutive bad steps after which a run that skips such steps is ended.
const MAX_BAD_STEPS: u64 = 10;

/// Monitors losses and skipped steps. A step with a non-finite gradient is skipped, and the loss
/// scale halved; if this does not help, the run would skip steps forever.
#[derive(Debug)]
pub(super) struct Divergence {
    dynamic_loss_scale: bool,
    /// The first of the current consecutive bad steps.
    first: Option<StepRecord>,
    bad_steps: u64,
    /// True if one of the bad steps was applied, so that the weights have changed since the first.
    has_moved: bool,
    /// True if the last losses were finite.
    is_sound: bool,
}

impl Divergence {
    pub(super) fn new(config: &Config) -> Self {
        let dynamic_loss_scale = config.solver.dynamic_loss_scale;
        Self { dynamic_loss_scale, first: None, bad_steps: 0, has_moved: false, is_sound: true }
    }

    /// Records a step.
    pub(super) fn record(&mut self, record: &StepRecord) {
        self.is_sound = record.losses.iter().all(|(_, value)| value.is_finite());
        // A skipped step with finite losses is only bad if the loss scale cannot decrease any more,
        // as a lower scale might fix the overflow.
        let is_stuck = !record.applied && (record.loss_scale <= 1.0 || !self.dynamic_loss_scale);
        if self.is_sound && !is_stuck {
            (self.first, self.bad_steps, self.has_moved) = (None, 0, false);
            return;
        }
        self.bad_steps += 1;
        self.has_moved |= record.applied;
        self.first.get_or_insert_with(|| record.clone());
    }

    /// True if the last losses were finite; only such states are saved.
    pub(super) fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// True if the run cannot recover.
    pub(super) fn is_lost(&self) -> bool {
        let skips = self.dynamic_loss_scale || self.is_sound;
        self.bad_steps >= if skips { MAX_BAD_STEPS } else { 1 }
    }

    /// True if the weights changed since the first bad step, which happens if a loss is non-finite,
    /// but its gradients are finite.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// The first of the current consecutive bad steps.
    pub(super) fn first(&self) -> Option<&StepRecord> {
        self.first.as_ref()
    }
}

/// Name and value to report for a bad step: the first non-finite loss, else the gradient norm.
pub(super) fn bad_value(record: &StepRecord) -> (&'static str, f32) {
    let loss = record.losses.iter().copied().find(|(_, value)| !value.is_finite());
    loss.unwrap_or(("the norm of the gradients", record.grad_norm))
}

/// Advice against divergence for this config.
pub(super) fn advice(config: &Config) -> &'static str {
    let (model, backbone) = (&config.model, &config.model.backbone);
    let is_random = model.weights.is_none() && backbone.weights.is_none();
    if is_random && backbone.frozen_stages > 0 {
        "set model.backbone.weights: the backbone's norms are frozen at random weights, and its \
         activations overflow"
    } else {
        "lower solver.learning_rate, lengthen solver.warmup_steps, or set solver.clip_norm"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::record;

    fn watch(steps: &[(f32, bool, f32)]) -> Divergence {
        let config = Config::default();
        let mut divergence = Divergence::new(&config);
        for (step, &(loss, applied, loss_scale)) in (1..).zip(steps) {
            let of_step = StepRecord { applied, loss_scale, ..record(step, loss) };
            divergence.record(&of_step);
        }
        divergence
    }

    #[test]
    fn recoverable_overflow_is_not_divergence() {
        let overflow = (1.0, false, 65536.0);
        let found = watch(&[overflow; 30]);
        assert!(found.is_sound() && !found.is_lost() && found.first().is_none());
    }

    #[test]
    fn ten_skips_at_lowest_loss_scale_are_divergence() {
        let stuck = (1.0, false, 1.0);
        assert!(!watch(&[stuck; 9]).is_lost());
        let found = watch(&[stuck; 10]);
        assert!(found.is_lost() && found.is_sound());
    }

    #[test]
    fn only_consecutive_bad_steps_are_divergence() {
        let (good, bad) = ((1.0, true, 8.0), (f32::NAN, false, 8.0));
        let found = watch(&[bad, good, bad, bad]);
        assert_eq!(found.first().expect("a bad step").step, 3);
        assert!(!found.is_sound() && !found.is_lost());
        assert!(watch(&[bad; 10]).is_lost());
        assert!(!found.has_moved() && watch(&[bad, (f32::NAN, true, 8.0)]).has_moved());
    }
}
