//! AP by epoch of published timed runs, to judge a run while it trains.

/// A published run: box and mask AP after each epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    /// Images per step.
    pub global_batch: usize,
    /// Submitter, round, GPUs and run number.
    pub source: &'static str,
    /// Epoch of the first learning rate decay; later scores are higher and vary less.
    pub decay_epoch: usize,
    /// Box AP after epochs 1, 2 ..
    pub bbox: &'static [f64],
    /// Mask AP after epochs 1, 2 ..; empty if not available.
    pub segm: &'static [f64],
}

/// Runs of MLPerf v3.0, from their logs.
const CURVES: [Curve; 2] = [
    Curve {
        global_batch: 96,
        source: "NVIDIA v3.0, 8 H100, run 0",
        decay_epoch: 9,
        bbox: &[
            0.1725, 0.2293, 0.2506, 0.2771, 0.2812, 0.2915, 0.2907, 0.2950, 0.2983, 0.3532, 0.3673,
            0.3722, 0.3741, 0.3779,
        ],
        segm: &[
            0.1765, 0.2222, 0.2450, 0.2642, 0.2662, 0.2757, 0.2748, 0.2751, 0.2816, 0.3234, 0.3341,
            0.3364, 0.3395, 0.3412,
        ],
    },
    Curve {
        global_batch: 256,
        source: "NVIDIA v3.0, 384 H100, run 0",
        decay_epoch: 12,
        bbox: &[
            0.1087, 0.1836, 0.2176, 0.2288, 0.2633, 0.2720, 0.2862, 0.2907, 0.3000, 0.3063, 0.3143,
            0.3100, 0.3695, 0.3713, 0.3746, 0.3755, 0.3790,
        ],
        segm: &[],
    },
];

/// Assumed spread of AP between runs of one recipe, before and after the first decay of the
/// learning rate. For comparison: the final scores of three published runs at batch 96 differ by
/// 0.0022 (box) and 0.0035 (mask), and before the first decay AP falls by up to 0.004 from one
/// epoch to the next.
const BEFORE_DECAY: f64 = 0.02;
const AFTER_DECAY: f64 = 0.006;

impl Curve {
    /// The curve for a global batch, if one is published.
    pub fn of(global_batch: usize) -> Option<&'static Self> {
        CURVES.iter().find(|curve| curve.global_batch == global_batch)
    }

    /// Box and mask AP expected after `epoch`, counted from 1; after the last published epoch, the
    /// final scores.
    pub fn expected(&self, epoch: usize) -> [Option<f64>; 2] {
        let at = |curve: &[f64]| curve.get(epoch.checked_sub(1)?).or(curve.last()).copied();
        [at(self.bbox), at(self.segm)]
    }

    /// Allowed deviation of a run from the curve after `epoch`.
    pub fn spread(&self, epoch: usize) -> f64 {
        if epoch <= self.decay_epoch { BEFORE_DECAY } else { AFTER_DECAY }
    }

    /// True if scores after `epoch` are below the curve by more than its spread; higher ones are
    /// allowed.
    pub fn is_below(&self, epoch: usize, ap: [f64; 2]) -> bool {
        let least = |expected: f64| expected - self.spread(epoch);
        let expected = self.expected(epoch);
        expected.iter().zip(ap).any(|(expected, ap)| expected.is_some_and(|e| ap < least(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::{CURVES, Curve};
    use crate::mlperf::Recipe;

    #[test]
    fn published_curves_reach_target_at_last_epoch() {
        for curve in CURVES {
            assert!(curve.bbox.iter().rev().skip(1).all(|ap| *ap < 0.377) || curve.segm.is_empty());
            assert!(*curve.bbox.last().expect("epochs") >= 0.377);
            assert!(curve.segm.last().is_none_or(|ap| *ap >= 0.339));
            let recipe = Recipe::new(curve.global_batch, None).expect("a recipe");
            let decays = recipe.decay_steps[0] / recipe.steps_per_epoch();
            assert_eq!(decays as usize, curve.decay_epoch);
        }
    }

    #[test]
    fn run_is_below_reference_only_beyond_spread() {
        let curve = Curve::of(96).expect("a curve");
        assert_eq!(curve.expected(14), [Some(0.3779), Some(0.3412)]);
        assert_eq!((curve.expected(0), curve.expected(15)), ([None; 2], curve.expected(14)));
        assert!(!curve.is_below(5, [0.265, 0.25]) && curve.is_below(5, [0.26, 0.26]));
        assert!(curve.is_below(12, [0.372, 0.32]), "the mask AP");
        assert!(!curve.is_below(12, [0.40, 0.36]) && curve.is_below(20, [0.0, 0.0]));
        let large = Curve::of(256).expect("a curve");
        assert!(!large.is_below(3, [0.2, 0.0]), "no mask AP is published");
        assert_eq!(Curve::of(128), None);
    }
}
