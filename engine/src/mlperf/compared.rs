//! Compares a timed run with the published run of the same global batch, epoch by epoch.

use std::fmt;

use crate::mlperf::Curve;

use super::log::RunLog;
use crate::error::EngineError;

/// A run, and the published curve for its global batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    run: RunLog,
    curve: Curve,
}

impl Compared {
    /// Compares a run, which may still be in progress, with the published curve for its global
    /// batch.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if no curve is published for that batch size, or nothing has been
    /// evaluated yet.
    pub fn new(run: RunLog) -> Result<Self, EngineError> {
        let (path, batch) = (run.path.display(), run.global_batch);
        let Some(curve) = Curve::of(batch) else {
            return Err(EngineError::Usage(format!(
                "{path} has global batch {batch}, but curves are only published for 96 and 256"
            )));
        };
        if run.evaluations.is_empty() {
            let message = format!("{path} has no eval_accuracy yet: try again after an epoch");
            return Err(EngineError::Usage(message));
        }
        Ok(Self { run, curve: *curve })
    }

    /// The first epoch whose scores are below the curve by more than the allowed spread.
    pub fn first_below(&self) -> Option<f64> {
        let mut evaluations = self.run.evaluations.iter();
        let below = |(epoch, ap): &&(f64, [f64; 2])| self.curve.is_below(*epoch as usize, *ap);
        evaluations.find(below).map(|(epoch, _)| *epoch)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { source, global_batch, .. } = self.curve;
        writeln!(f, "{} and {source}, global batch {global_batch}", self.run.path.display())?;
        writeln!(f, "epoch  box AP  expected  mask AP  expected  spread")?;
        for (epoch, [bbox, segm]) in &self.run.evaluations {
            let number = *epoch as usize;
            let [box_expected, mask_expected] = self.curve.expected(number).map(|expected| {
                expected.map_or("-".to_string(), |expected| format!("{expected:.4}"))
            });
            let spread = self.curve.spread(number);
            let mark = if self.curve.is_below(number, [*bbox, *segm]) { "  below" } else { "" };
            writeln!(
                f,
                "{epoch:>5}  {bbox:.4}  {box_expected:>8}  {segm:>7.4}  {mask_expected:>8}  \
                 {spread:>6.3}{mark}"
            )?;
        }
        match self.first_below() {
            None => writeln!(f, "verdict: on the curve after {} epochs", self.run.epochs),
            Some(epoch) => writeln!(f, "verdict: below the curve from epoch {epoch} on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::log::{RunLog, Status};
    use super::Compared;

    fn run(global_batch: usize, evaluations: &[(f64, [f64; 2])]) -> RunLog {
        RunLog {
            path: PathBuf::from("result_0.txt"),
            global_batch,
            status: Status::Unfinished,
            platform: None,
            seed: None,
            clears_caches: true,
            digest: String::new(),
            minutes: 0.0,
            epochs: evaluations.len() as f64,
            train_samples: 117_266,
            ap: [0.0; 2],
            evaluations: evaluations.to_vec(),
        }
    }

    #[test]
    fn verdict_names_first_epoch_below_reference() {
        let good = [(1.0, [0.17, 0.17]), (2.0, [0.22, 0.215])];
        let text = Compared::new(run(96, &good)).expect("a curve").to_string();
        assert!(text.contains("verdict: on the curve after 2 epochs"), "{text}");
        assert!(text.contains("    2  0.2200    0.2293   0.2150    0.2222   0.020\n"), "{text}");
        let bad = [(1.0, [0.17, 0.17]), (2.0, [0.1, 0.1])];
        let text = Compared::new(run(96, &bad)).expect("a curve").to_string();
        assert!(text.contains("0.020  below") && text.contains("from epoch 2 on"), "{text}");
        // After the last published epoch, the final scores are expected.
        let late = [(14.0, [0.378, 0.341]), (15.0, [0.0, 0.0])];
        let text = Compared::new(run(96, &late)).expect("a curve").to_string();
        assert!(text.contains("from epoch 15 on"), "{text}");
        assert!(Compared::new(run(48, &good)).unwrap_err().to_string().contains("96 and 256"));
        assert!(Compared::new(run(96, &[])).unwrap_err().to_string().contains("no eval_accuracy"));
    }
}
