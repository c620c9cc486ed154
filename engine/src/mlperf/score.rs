//! The score of several timed runs: the mean time without the fastest and the slowest run, and a
//! check that they did not converge faster than the reference.

use std::fmt;

use crate::mlperf::{Convergence, Verdict};

use super::format::UNVERIFIED;
use super::log::{RunLog, Status};
use crate::error::EngineError;

/// Number of runs of a submission.
const RUNS: usize = 5;

/// Several runs on one system with one global batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// The runs, in the order given.
    pub runs: Vec<RunLog>,
    /// Their result.
    pub scored: Scored,
}

/// The result of several runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Scored {
    /// Too many runs missed the targets.
    NotConverged,
    /// Mean minutes and mean epochs, each without the smallest and the largest value.
    Olympic {
        /// Mean minutes.
        minutes: f64,
        /// Mean epochs.
        epochs: f64,
        /// The reference's convergence and the result of the comparison, or the reason why there is
        /// no reference.
        verdict: Result<(Convergence, Verdict), String>,
    },
}

impl Score {
    /// Scores runs: three or more; a submission has five.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for fewer than three runs, for different global batches or systems,
    /// or for a repeated log or seed.
    pub fn new(runs: Vec<RunLog>) -> Result<Self, EngineError> {
        if runs.len() < 3 {
            return Err(EngineError::Usage(format!(
                "{} given, but a score needs at least 3 runs: the mean leaves out the fastest and \
                 the slowest (a submission has {RUNS})",
                runs.len()
            )));
        }
        let first = &runs[0];
        if let Some(other) = runs.iter().find(|run| run.global_batch != first.global_batch) {
            return Err(EngineError::Usage(format!(
                "{} has global batch {}, but {} has {}: give runs with the same one",
                first.path.display(),
                first.global_batch,
                other.path.display(),
                other.global_batch
            )));
        }
        if let Some(other) = runs.iter().find(|run| run.platform != first.platform) {
            let name = |run: &RunLog| run.platform.clone().unwrap_or("no name".into());
            return Err(EngineError::Usage(format!(
                "{} has system {}, but {} has {}: give runs of the same one",
                first.path.display(),
                name(first),
                other.path.display(),
                name(other)
            )));
        }
        for (i, run) in runs.iter().enumerate() {
            let path = run.path.display();
            let earlier = &runs[..i];
            if let Some(same) = earlier.iter().find(|other| other.digest == run.digest) {
                let what = match same.path == run.path {
                    true => format!("{path} is given twice"),
                    false => format!("{path} is a copy of {}", same.path.display()),
                };
                return Err(EngineError::Usage(format!("{what}: give each run once")));
            }
            let is_same = |other: &&RunLog| run.seed.is_some() && other.seed == run.seed;
            if let Some(same) = earlier.iter().find(is_same) {
                return Err(EngineError::Usage(format!(
                    "{path} and {} have the same seed {}: give runs with different seeds",
                    same.path.display(),
                    run.seed.unwrap_or_default()
                )));
            }
        }
        let scored = scored(&runs);
        Ok(Self { runs, scored })
    }
}

impl Score {
    /// The reason why these runs have no score; `None` if they have one.
    pub fn why_none(&self) -> Option<String> {
        if let Some(run) = self.runs.iter().find(|run| run.status == Status::Unfinished) {
            return Some(format!("{} is unfinished", run.path.display()));
        }
        match &self.scored {
            Scored::NotConverged => Some("more than one run missed the targets".into()),
            Scored::Olympic { verdict: Ok((_, Verdict::TooFast)), .. } => {
                Some("the runs converge faster than the reference".into())
            }
            Scored::Olympic { .. } => None,
        }
    }
}

fn scored(runs: &[RunLog]) -> Scored {
    let converged: Vec<&RunLog> = runs.iter().filter(|r| r.status == Status::Success).collect();
    // A run that missed the targets counts as infinitely slow, so one such run can be dropped as
    // the slowest.
    if converged.len() + 1 < runs.len() {
        return Scored::NotConverged;
    }
    let olympic = |of: fn(&RunLog) -> f64| {
        let mut values: Vec<f64> = converged.iter().map(|run| of(run)).collect();
        values.sort_by(f64::total_cmp);
        let kept = &values[1..runs.len() - 1];
        kept.iter().sum::<f64>() / kept.len() as f64
    };
    let (minutes, epochs) = (olympic(|run| run.minutes), olympic(|run| run.epochs));
    let reference = Convergence::of(runs[0].global_batch);
    let verdict = reference.map(|reference| (reference, reference.compare(epochs)));
    Scored::Olympic { minutes, epochs, verdict }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let global_batch = self.runs[0].global_batch;
        for run in &self.runs {
            writeln!(f, "{run}")?;
        }
        writeln!(f, "{UNVERIFIED}")?;
        let count = self.runs.len();
        let tell = |f: &mut fmt::Formatter<'_>, lacking: usize, what: &str| match lacking {
            0 => Ok(()),
            _ => writeln!(f, "warning: {lacking} of {count} logs {what}"),
        };
        let of = |lacks: fn(&RunLog) -> bool| self.runs.iter().filter(|run| lacks(run)).count();
        tell(f, of(|run| run.seed.is_none()), "state no seed")?;
        tell(f, of(|run| !run.clears_caches), "do not state that caches were cleared")?;
        let Scored::Olympic { minutes, epochs, verdict } = &self.scored else {
            return writeln!(f, "no score: more than one of {count} runs missed the targets");
        };
        let scored = count - 2;
        writeln!(
            f,
            "olympic mean of {scored} of {count} runs: {minutes:.3} minutes, {epochs:.3} \
                     epochs"
        )?;
        if count != RUNS {
            writeln!(f, "a submission has {RUNS} runs; these are {count}")?;
        }
        let (reference, verdict) = match verdict {
            Ok(known) => known,
            Err(why) => return writeln!(f, "convergence not checked: {why}"),
        };
        let Convergence { mean, least, is_interpolated } = reference;
        let how = if *is_interpolated { ", interpolated" } else { "" };
        write!(
            f,
            "the reference needs {mean:.2} epochs at global batch {global_batch}{how}; the minimum \
             is {least:.2}: "
        )?;
        match verdict {
            Verdict::Accepted => writeln!(f, "accepted, score {minutes:.3}"),
            Verdict::Scaled(by) => {
                writeln!(f, "accepted, scaled by {by:.4}: score {:.3}", minutes * by)
            }
            Verdict::TooFast => writeln!(f, "rejected, as these runs converge faster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::log::{RunLog, Status};
    use super::{Score, Scored};

    /// A log like those of submissions, mixed with unrelated output.
    fn log(folder: &Path, name: &str, minutes: f64, epochs: u32, status: &str) -> RunLog {
        let event = |ms: f64, key: &str, value: &str, metadata: &str| {
            format!(
                ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {ms}, \"event_type\": \"POINT\", \
                 \"key\": \"{key}\", \"value\": {value}, \"metadata\": {metadata}}}\n"
            )
        };
        let metadata = format!("{{\"status\": \"{status}\"}}");
        let text = [
            event(500.0, "submission_benchmark", "\"maskrcnn\"", "{}"),
            event(600.0, "global_batch_size", "96", "{}"),
            event(700.0, "seed", &name.replace(|c: char| !c.is_ascii_digit(), ""), "{}"),
            event(700.0, "cache_clear", "true", "{}"),
            "Loading and preparing results...\n".into(),
            event(1000.0, "run_start", "null", "{}"),
            (1..=epochs)
                .map(|epoch| {
                    let value = format!("{{\"BBOX\": 0.{}, \"SEGM\": 0.34}}", 365 + epoch);
                    format!(
                        "0: {}",
                        event(
                            2000.0,
                            "eval_accuracy",
                            &value,
                            &format!("{{\"epoch_num\": {epoch}}}")
                        )
                    )
                })
                .collect(),
            event(1000.0 + 60_000.0 * minutes, "run_stop", "null", &metadata),
        ]
        .concat();
        let path = folder.join(name);
        std::fs::write(&path, text).expect("room");
        RunLog::read(&path).expect("a log")
    }

    #[test]
    fn score_of_five_runs_drops_fastest_and_slowest() {
        let place = tempfile::tempdir().expect("a folder");
        let run = |i: usize, minutes, epochs, status| {
            log(place.path(), &format!("result_{i}.txt"), minutes, epochs, status)
        };
        let mut runs: Vec<RunLog> = [19.0, 19.2, 18.9, 20.0]
            .into_iter()
            .zip(0..)
            .map(|(m, i)| run(i, m, 14, "success"))
            .collect();
        runs.push(run(4, 7.0, 9, "aborted"));
        assert_eq!((runs[0].epochs, runs[0].ap), (14.0, [0.379, 0.34]));
        let score = Score::new(runs.clone()).expect("a score");
        let Scored::Olympic { minutes, epochs, .. } = &score.scored else { panic!("{score:?}") };
        assert!((minutes - (19.0 + 19.2 + 20.0) / 3.0).abs() < 1e-9, "{minutes}");
        assert_eq!(*epochs, 14.0);
        let text = score.to_string();
        assert!(text.contains("result_4.txt  aborted  7.000 minutes  9 epochs"), "{text}");
        assert!(
            text.contains("1642368 images") && text.contains("accepted, score 19.400"),
            "{text}"
        );

        assert!(text.contains("\nunverified: these results are not verified by MLCommons\n"));
        assert!(!text.contains("MLPerf's targets") && !text.contains("warning"), "{text}");
        assert_eq!(score.why_none(), None);
        let bare = RunLog { seed: None, clears_caches: false, ..runs[0].clone() };
        let text = Score::new(vec![bare, runs[1].clone(), runs[2].clone()]).expect("a score");
        let text = text.to_string();
        for part in ["warning: 1 of 3 logs state no seed", "1 of 3 logs do not state that caches"] {
            assert!(text.contains(part), "{text}");
        }
        let copy = RunLog { path: "copy".into(), ..runs[0].clone() };
        let of_one_seed = RunLog { digest: "other".into(), ..copy.clone() };
        for (other, words) in [(copy, "copy is a copy of"), (of_one_seed, "the same seed 0")] {
            let fault = Score::new(vec![runs[0].clone(), runs[1].clone(), other]).unwrap_err();
            assert!(fault.to_string().contains(words), "{fault}");
        }

        runs[3].status = Status::Unfinished;
        let score = Score::new(runs.clone()).expect("a score");
        assert_eq!(score.scored, Scored::NotConverged);
        assert!(score.why_none().expect("a reason").ends_with("result_3.txt is unfinished"));
        runs[4].global_batch = 48;
        assert!(Score::new(runs.clone()).unwrap_err().to_string().contains("has 48"));
        runs[4] = RunLog { platform: Some("other".into()), ..runs[0].clone() };
        assert!(Score::new(runs.clone()).unwrap_err().to_string().contains("system no name"));
        runs[4] = runs[0].clone();
        assert!(Score::new(runs.clone()).unwrap_err().to_string().contains("given twice"));
        assert!(Score::new(runs[..2].to_vec()).unwrap_err().to_string().contains("at least 3"));
    }

    #[test]
    fn convergence_faster_than_reference_is_rejected() {
        let place = tempfile::tempdir().expect("a folder");
        let of = |epochs: [u32; 5]| {
            let runs = epochs.iter().enumerate().map(|(i, epochs)| {
                log(place.path(), &format!("{i}"), f64::from(*epochs), *epochs, "success")
            });
            let score = Score::new(runs.collect()).expect("a score");
            let is_rejected = score.why_none().is_some();
            assert_eq!(is_rejected, score.to_string().contains("rejected"));
            score.to_string()
        };
        let text = of([14, 14, 14, 13, 13]);
        assert!(text.contains("13.667 epochs") && text.contains("accepted"), "{text}");
        assert!(of([13, 13, 13, 14, 14]).contains("rejected"));
    }

    #[test]
    fn invalid_mlperf_log_is_reported_with_line() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("result_0.txt");
        for (text, words) in [
            ("nothing\n", "has no run_start"),
            ("ok\n:::MLLOG {\"key\": 3}\n", "line 2: is not an event"),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"submission_benchmark\", \"value\": \"ssd\"}\n",
                "not of maskrcnn",
            ),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"run_start\"}\n\
                 :::MLLOG {\"time_ms\": 1, \"key\": \"run_stop\", \"metadata\": {}}\n",
                "line 2: run_stop without a status",
            ),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"run_stop\", \"metadata\": {}}\n",
                "run_stop comes before run_start",
            ),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"run_start\"}\n\
                 :::MLLOG {\"time_ms\": 2, \"key\": \"run_start\"}\n",
                "line 2: is a second run_start",
            ),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"eval_accuracy\", \"metadata\": \
                 {\"epoch_num\": 1}, \"value\": {\"BBOX\": 37.7, \"SEGM\": 33.9}}\n",
                "eval_accuracy without a BBOX of at most 1",
            ),
            (
                ":::MLLOG {\"time_ms\": 1, \"key\": \"init_start\"}\n:::MLLOG {\"time_",
                "its clock has not started",
            ),
        ] {
            std::fs::write(&path, text).expect("room");
            let fault = RunLog::read(&path).unwrap_err().to_string();
            assert!(fault.contains("result_0.txt") && fault.contains(words), "{fault}");
        }
    }
}
