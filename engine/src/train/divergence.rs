//! Detects non-finite losses, and a run that cannot recover.

use crate::config::Config;

use crate::metrics::StepRecord;

/// Consecutive bad steps before a run that skips them is ended.
const MAX_BAD_STEPS: u64 = 10;

/// Monitors the losses. A step with a non-finite gradient is skipped, and the loss scale is halved;
/// if the following steps are no better, the run would skip forever.
#[derive(Debug)]
pub(super) struct Divergence {
    dynamic_loss_scale: bool,
    /// The first of the consecutive bad steps up to the last one.
    first: Option<StepRecord>,
    bad_steps: u64,
    /// True if one of these steps was applied, so that the weights differ from those before the
    /// first.
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
        // While the scale can still decrease, this may fix finite losses with overflowing
        // gradients.
        let is_stuck = !record.applied && (record.loss_scale <= 1.0 || !self.dynamic_loss_scale);
        if self.is_sound && !is_stuck {
            (self.first, self.bad_steps, self.has_moved) = (None, 0, false);
            return;
        }
        self.bad_steps += 1;
        self.has_moved |= record.applied;
        self.first.get_or_insert_with(|| record.clone());
    }

    /// True if the last losses were finite: only such a state is saved.
    pub(super) fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// True if the run cannot recover.
    pub(super) fn is_lost(&self) -> bool {
        let skips = self.dynamic_loss_scale || self.is_sound;
        self.bad_steps >= if skips { MAX_BAD_STEPS } else { 1 }
    }

    /// True if the weights changed since the first bad step: gradients can be finite where a loss
    /// is not.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// The first of the current consecutive bad steps.
    pub(super) fn first(&self) -> Option<&StepRecord> {
        self.first.as_ref()
    }
}

/// The loss of a step to report: the first non-finite one, else the gradient norm.
pub(super) fn bad_value(record: &StepRecord) -> (&'static str, f32) {
    let loss = record.losses.iter().copied().find(|(_, value)| !value.is_finite());
    loss.unwrap_or(("the norm of the gradients", record.grad_norm))
}

/// The remedy to try against the divergence of a run with this config.
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
    fn only_consecutive_skips_count() {
        let (good, bad) = ((1.0, true, 8.0), (f32::NAN, false, 8.0));
        let found = watch(&[bad, good, bad, bad]);
        assert_eq!(found.first().expect("a bad step").step, 3);
        assert!(!found.is_sound() && !found.is_lost());
        assert!(watch(&[bad; 10]).is_lost());
        assert!(!found.has_moved() && watch(&[bad, (f32::NAN, true, 8.0)]).has_moved());
    }
}
