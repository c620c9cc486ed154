//! Loads a [`Config`] from a file or preset with overrides, and checks it.

use std::path::Path;

use configs::{ConfigError, Origin, Origins, Source};

use super::{Config, schema};

/// Origin of a warm-up that was shortened to fit a shortened run.
pub const HALF_THE_RUN: &str = "half of train.steps";
/// Origin of an `images_per_group` that was derived from the batch size.
pub const OF_THE_BATCH: &str = "a divisor of the batch";

impl Config {
    /// Reads a config file and the files that it extends, then applies `key=value` overrides.
    ///
    /// A path that is not a file but ends in a preset's name (`quickstart`,
    /// `configs/quickstart.toml`) selects the built-in preset. An override's value is read as TOML
    /// (`solver.learning_rate=0.01`, `model.anchors.sizes=[8, 16]`) or, failing that, as a string
    /// (`train.name=first`); `none` unsets an optional value (`data.synthetic=none`).
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load(path: impl AsRef<Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        Ok(Self::load_with_origins(path, overrides)?.0)
    }

    /// Like [`Config::load`], and also returns the origin of each dotted key that is set.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load_with_origins(
        path: impl AsRef<Path>,
        overrides: &[String],
    ) -> Result<(Self, Origins), ConfigError> {
        let (mut config, mut origins) = Self::load_as_written(path, overrides)?;
        fit_warmup(&mut config, &mut origins);
        Ok((config, origins))
    }

    /// Like [`Config::load_with_origins`], but never shortens the warm-up: for resumed runs and for
    /// MLPerf runs.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load_as_written(
        path: impl AsRef<Path>,
        overrides: &[String],
    ) -> Result<(Self, Origins), ConfigError> {
        load(Source::find(path.as_ref())?, overrides, Self::clone)
    }

    /// Like [`Config::load`], for detection: does not reject invalid values of keys that only
    /// training reads.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load_to_detect(
        path: impl AsRef<Path>,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        Ok(load(Source::find(path.as_ref())?, overrides, Self::to_detect)?.0)
    }

    /// Like [`Config::load`], from TOML text such as a checkpoint's saved config. `name` is the
    /// file name in messages. The text can only extend presets, not files.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ConfigError> {
        Ok(load(Source::of_text(name, text), &[], Self::clone)?.0)
    }
}

/// Merges a source, the files that it extends, and the overrides. Checks the copy of the merged
/// config that `read` returns.
fn load(
    source: Source,
    overrides: &[String],
    read: fn(&Config) -> Config,
) -> Result<(Config, Origins), ConfigError> {
    let mut layers = source.layers(overrides, schema())?;
    let mut config: Config = layers.read()?;
    fit_groups(&mut config, &mut layers.origins);
    match read(&config).find_invalid() {
        None => Ok((config, layers.origins)),
        Some(fault) => Err(layers.invalid(fault)),
    }
}

/// Adjusts `train.images_per_group` to the largest valid size if it is 0, or if a later layer
/// changed the batch size.
fn fit_groups(config: &mut Config, origins: &mut Origins) {
    let layer = |key| origins.get(key).map_or(0, |origin: &Origin| origin.layer);
    let batch = layer("train.batch_size").max(layer("train.micro_steps"));
    let train = &mut config.train;
    let group = match train.images_per_group {
        0 => train.largest_group(2),
        most if batch > layer("train.images_per_group") => train.largest_group(most),
        _ => return,
    };
    if train.images_per_group != group {
        train.images_per_group = group;
        let origin = Origin { file: OF_THE_BATCH.into(), layer: batch };
        origins.insert("train.images_per_group".into(), origin);
    }
}

/// If a later layer shortened the run so that the warm-up would not end, sets the warm-up to half
/// of the run. If that depends on the length of an epoch, which only the data determines, half of
/// the run becomes the upper limit.
fn fit_warmup(config: &mut Config, origins: &mut Origins) {
    let layer = |key| origins.get(key).map_or(0, |origin: &Origin| origin.layer);
    let steps = layer("train.steps");
    let solver = &config.solver;
    let has_warmup = solver.warmup_steps > 0 || solver.warmup_epochs.is_some();
    if !has_warmup || layer("solver.warmup_steps").max(layer("solver.warmup_epochs")) >= steps {
        return;
    }
    let half = config.train.steps / 2;
    let key = match (config.train.epochs, solver.warmup_epochs) {
        (None, None) if config.warmup_ends() => return,
        (None, Some(_)) if (1..=half).contains(&solver.warmup_steps) => return,
        (None, warmup) => {
            config.solver.warmup_steps = half;
            config.solver.warmup_epochs = warmup.filter(|_| half > 0);
            "solver.warmup_steps"
        }
        (Some(epochs), warmup) => {
            let half = epochs / 2.0;
            if warmup.is_some_and(|warmup| warmup <= half) {
                return;
            }
            config.solver.warmup_epochs = Some(half);
            "solver.warmup_epochs"
        }
    };
    origins.insert(key.into(), Origin { file: HALF_THE_RUN.into(), layer: steps });
}
