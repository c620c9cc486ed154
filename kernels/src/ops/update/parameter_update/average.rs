//! The exponential moving average of parameters.

use crate::Cost;
use crate::ops::rules::power;

/// Cost per element.
pub(super) const COST: Cost = Cost { flops: 3, bytes: 12 };

/// An exponential moving average: `e += (1 - d) * (p - e)` after update `t`, the first being 1,
/// with `d = decay * (1 - exp(-t / warmup))`, as in ultralytics' `ModelEMA`. Without warm-up `d =
/// decay`, as in torch's `get_ema_multi_avg_fn`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// Fraction of the average kept by an update, after the warm-up.
    pub decay: f64,
    /// Number of updates in which the distance of `d` from `decay` falls by a factor of e; 0: no
    /// warm-up.
    pub warmup: f64,
}

impl Average {
    /// `exp(-1 / warmup)`. CPU and GPU compute `exp(-t / warmup)` as a power of this value, so the
    /// `exp` functions of both need not agree.
    pub(super) fn root(&self) -> f64 {
        (-1.0 / self.warmup).exp()
    }

    /// Weight of the parameter in update `t`.
    pub(super) fn take(&self, t: u32) -> f32 {
        (1.0 - self.decay * (1.0 - power(self.root(), t))) as f32
    }
}
