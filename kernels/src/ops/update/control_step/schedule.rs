//! Learning-rate schedules: warm-up, then steps or a cosine.

/// Learning rate as a function of the number of earlier steps.
///
/// Both schedules warm up linearly over `warmup_steps`: `base * (f + (1 - f) * step /
/// warmup_steps)` with `f = warmup_factor`.
#[derive(Debug, Clone, PartialEq)]
pub enum LrSchedule {
    /// `base`, multiplied by `gamma` at each milestone and by the warm-up fraction.
    Multistep {
        /// Learning rate after the warm-up.
        base: f64,
        /// Steps of the warm-up.
        warmup_steps: u64,
        /// Start of the warm-up, as a fraction of `base`.
        warmup_factor: f64,
        /// Steps at which the rate is multiplied by `gamma`.
        milestones: Vec<u64>,
        /// Factor of the rate at each milestone.
        gamma: f64,
    },
    /// After the warm-up, half a cosine from `base` at `warmup_steps` to `min` at `total_steps`,
    /// and `min` after that.
    Cosine {
        /// Learning rate after the warm-up.
        base: f64,
        /// Steps of the warm-up.
        warmup_steps: u64,
        /// Start of the warm-up, as a fraction of `base`.
        warmup_factor: f64,
        /// Steps of the entire schedule, including warm-up.
        total_steps: u64,
        /// Learning rate at the end.
        min: f64,
    },
}

impl LrSchedule {
    /// The amount that the warm-up subtracts from the full rate at step `step`.
    pub(super) fn warmup_cut(&self, step: u64) -> f64 {
        let (Self::Multistep { base, warmup_steps, .. } | Self::Cosine { base, warmup_steps, .. }) =
            self;
        let decay = if step < *warmup_steps { self.decay(step) } else { return 0.0 };
        base * decay - self.at(step)
    }

    /// `gamma` to the power of the number of milestones reached.
    fn decay(&self, step: u64) -> f64 {
        match self {
            Self::Multistep { milestones, gamma, .. } => {
                let reached = milestones.iter().filter(|&&m| m <= step).count();
                // The multiplication order of powi is unspecified; this order matches the CUDA
                // kernel.
                (0..reached).fold(1.0, |decay, _| decay * gamma)
            }
            Self::Cosine { .. } => 1.0,
        }
    }

    /// The learning rate of step `step` (0 is the first).
    pub fn at(&self, step: u64) -> f64 {
        match self {
            Self::Multistep { base, warmup_steps, warmup_factor, .. } => {
                base * warmup(step, *warmup_steps, *warmup_factor) * self.decay(step)
            }
            Self::Cosine { base, warmup_steps, warmup_factor, total_steps, min } => {
                if step < *warmup_steps {
                    return base * warmup(step, *warmup_steps, *warmup_factor);
                }
                if step >= *total_steps {
                    return *min;
                }
                let part = (step - warmup_steps) as f64 / (total_steps - warmup_steps) as f64;
                min + (base - min) * (1.0 + (std::f64::consts::PI * part).cos()) / 2.0
            }
        }
    }
}

/// Fraction of the base rate during the warm-up, 1 after it.
fn warmup(step: u64, steps: u64, factor: f64) -> f64 {
    if step < steps { factor + (1.0 - factor) * step as f64 / steps as f64 } else { 1.0 }
}
