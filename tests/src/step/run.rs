//! Training of `micro` on synthetic images, step by step.

use std::path::{Path, PathBuf};

use engine::checkpoint::{self, Keep, Snapshot};
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::metrics::StepRecord;
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::train::Trainer;
use graph::StateSet;
use tempfile::TempDir;

use super::folder;
use super::program::micro;

/// A config and its synthetic images, in a temporary folder.
#[derive(Debug)]
pub struct Run {
    /// `micro` with changes.
    pub config: Config,
    /// The training images.
    pub data: DataSet,
    folder: TempDir,
}

impl Run {
    /// A run of `micro` with these config overrides. Panics if the config is invalid or the disk
    /// fails.
    pub fn new(set: &[&str]) -> Self {
        let folder = folder();
        let dir = format!("data.synthetic.dir={}", folder.path().join("drawn").display());
        let config = micro(&[set, &[&dir]].concat());
        let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
        Self { config, data, folder }
    }

    /// A trainer on a device or the CPU. Panics with the reason if it cannot be created.
    pub fn trainer(&self, backend: &Backend) -> Trainer {
        Trainer::new(&self.config, &self.data, backend).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Saves a checkpoint, and returns its folder.
    pub fn save(&self, trainer: &mut Trainer) -> PathBuf {
        let (params, steps_done) = (trainer.params().to_vec(), trainer.steps_done());
        let keep = Keep { newest: 0, steps: &[] };
        let snapshot = Snapshot {
            state: trainer.state().fetch().expect("the state"),
            params: &params,
            averages: false,
            steps_done,
            categories: &self.data.categories(),
            keypoints: &[],
            config: &self.config.to_toml().expect("a config"),
            data: "",
            exif: None,
            overrides: &[],
        };
        let run = self.folder.path().join("run");
        std::fs::create_dir_all(&run).expect("room");
        checkpoint::save(&run, &snapshot, keep).expect("a checkpoint").path
    }
}

/// Runs `count` steps, in order. Panics with the error of a step.
pub fn steps(trainer: &mut Trainer, count: u64) -> Vec<StepRecord> {
    let until = trainer.steps_done() + count;
    (0..count).map(|_| trainer.step(until).unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// Restores a checkpoint of `steps_done` steps. Panics if it does not match.
pub fn resume(trainer: &mut Trainer, saved: &Path, steps_done: u64) {
    let restore = |state: &mut StateSet| checkpoint::restore(saved, state);
    trainer.state().change(restore).unwrap_or_else(|e| panic!("{e}"));
    trainer.resume_at(steps_done);
}
