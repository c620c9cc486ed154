//! Reference convergence points (RCP): the number of epochs that the reference implementation needs
//! to reach the targets. A submission must not take fewer, so that it cannot gain time by
//! converging faster than the reference.
//!
//! The points come from MLPerf Training v3.1; the check equals `mlperf_logging.rcp_checker`: a
//! one-sided two-sample t-test with equal variances at 5 %, on the olympic mean of five runs.

/// Number of runs of a submission.
const RUNS: usize = 5;
/// Number of runs in a submission's olympic mean, which omits the fastest and the slowest.
const SCORED: f64 = (RUNS - 2) as f64;

/// Global batch, and epochs of ten runs of the reference. These three of the seven published points
/// form the lower convex hull; the checker drops the others.
const POINTS: [(usize, [u32; 10]); 3] = [
    (8, [13, 13, 12, 13, 13, 13, 13, 12, 13, 12]),
    (128, [14, 14, 14, 14, 14, 14, 14, 14, 14, 14]),
    (272, [18, 17, 17, 18, 17, 17, 17, 17, 17, 16]),
];

/// Number of samples n, and the 95 % quantile of Student's t with n + 3 - 2 degrees of freedom, 3
/// being the scored runs. A published point has n = 8; an interpolated point (`BETWEEN`) counts as
/// twice the runs of a submission, n = 10.
const OF_POINT: (f64, f64) = (8.0, 1.833_113);
const BETWEEN: (f64, f64) = (10.0, 1.795_885);

/// Convergence of the reference at a global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convergence {
    /// Mean number of epochs until the targets are reached.
    pub mean: f64,
    /// The smallest mean that a submission may have.
    pub least: f64,
    /// True if the batch is between two points.
    pub is_interpolated: bool,
}

/// The result of comparing a submission's convergence with the reference's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// At least as many epochs as the reference.
    Accepted,
    /// Fewer epochs, but not significantly: the score is multiplied by this factor.
    Scaled(f64),
    /// Significantly fewer epochs than the reference: the submission is rejected.
    TooFast,
}

impl Convergence {
    /// The reference's convergence at a global batch; for a batch smaller than every point, that of
    /// the smallest point.
    ///
    /// # Errors
    /// A message for batches above 272, the largest point.
    pub fn of(global_batch: usize) -> Result<Self, String> {
        let above = POINTS.iter().position(|(batch, _)| *batch >= global_batch);
        let Some(above) = above else {
            let largest = POINTS[POINTS.len() - 1].0;
            return Err(format!(
                "no reference convergence is published for a global batch of {global_batch}, only \
                 up to {largest}: a submission must provide its own"
            ));
        };
        let (batch, epochs) = POINTS[above];
        let (high, high_spread) = (olympic(&epochs), spread(&epochs));
        if batch == global_batch || above == 0 {
            return Ok(Self::new(high, high_spread, OF_POINT, false));
        }
        let (low_batch, low_epochs) = POINTS[above - 1];
        let part = (global_batch - low_batch) as f64 / (batch - low_batch) as f64;
        let between = |low: f64, high: f64| low + part * (high - low);
        let mean = between(olympic(&low_epochs), high);
        Ok(Self::new(mean, between(spread(&low_epochs), high_spread), BETWEEN, true))
    }

    fn new(mean: f64, spread: f64, (samples, t): (f64, f64), is_interpolated: bool) -> Self {
        let least = mean - t * spread * (1.0 / samples + 1.0 / SCORED).sqrt();
        Self { mean, least, is_interpolated }
    }

    /// Compares the olympic mean of a submission's epochs with the reference.
    pub fn compare(&self, epochs: f64) -> Verdict {
        if epochs >= self.mean {
            Verdict::Accepted
        } else if epochs >= self.least {
            Verdict::Scaled(self.mean / epochs)
        } else {
            Verdict::TooFast
        }
    }
}

/// Mean without the smallest and the largest value.
fn olympic(epochs: &[u32]) -> f64 {
    let sum: u32 = epochs.iter().sum();
    let ends = epochs.iter().min().zip(epochs.iter().max()).map_or(0, |(a, b)| a + b);
    f64::from(sum - ends) / (epochs.len() - 2) as f64
}

/// Standard deviation of all values, not only of those in the olympic mean.
fn spread(epochs: &[u32]) -> f64 {
    let n = epochs.len() as f64;
    let mean = epochs.iter().map(|e| f64::from(*e)).sum::<f64>() / n;
    (epochs.iter().map(|e| (f64::from(*e) - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{Convergence, Verdict};

    /// Means and minimum means as the official checker computes them.
    #[test]
    fn convergence_points_match_official_checker() {
        for (batch, mean, least) in [
            (8, 12.75, 12.18),
            (16, 12.83, 12.33),
            (32, 13.0, 12.57),
            (48, 13.17, 12.81),
            (64, 13.33, 13.04),
            (96, 13.67, 13.52),
            (128, 14.0, 14.0),
            (192, 15.39, 15.11),
            (256, 16.78, 16.21),
            (272, 17.125, 16.46),
        ] {
            let of = Convergence::of(batch).expect("a point");
            let near = |a: f64, b: f64| (a - b).abs() < 0.006;
            assert!(near(of.mean, mean) && near(of.least, least), "{batch}: {of:?}");
            assert_eq!(of.is_interpolated, ![8, 128, 272].contains(&batch));
        }
        assert_eq!(Convergence::of(4), Convergence::of(8));
        assert!(Convergence::of(512).expect_err("no point").contains("up to 272"));
    }

    #[test]
    fn too_few_epochs_scale_the_score() {
        let of = Convergence::of(96).expect("a point");
        assert_eq!(of.compare(14.0), Verdict::Accepted);
        assert!(
            matches!(of.compare(13.6), Verdict::Scaled(by) if (by - of.mean / 13.6).abs() < 1e-9)
        );
        assert_eq!(of.compare(13.0), Verdict::TooFast);
    }
}
