//! The exponential moving average of parameters.

use crate::Cost;
use crate::ops::rules::power;

/// Work of an element.
pub(super) const COST: Cost = Cost { flops: 3, bytes: 12 };

/// An exponential moving average: `e += (1 - d) * (p - e)` after update `t`, the first being 1,
/// with `d = decay * (1 - exp(-t / warmup))`, as ultralytics' `ModelEMA`. Without warm-up
/// `d = decay`, as torch's `get_ema_multi_avg_fn`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// Part of the average that an update keeps, once warm.
    pub decay: f64,
    /// Updates in which the distance of `d` from `decay` falls to 1/e; 0 for none.
    pub warmup: f64,
}

impl Average {
    /// The warm-up of the first update, of which those of later ones are powers: both devices
    /// multiply, and neither has to take the other's `exp`.
    pub(super) fn root(&self) -> f64 {
        (-1.0 / self.warmup).exp()
    }

    /// The part of the parameter that update `t` takes in.
    pub(super) fn take(&self, t: u32) -> f32 {
        (1.0 - self.decay * (1.0 - power(self.root(), t))) as f32
    }
}
