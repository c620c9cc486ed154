//! From a path and overrides to a checked [`Config`], and back to TOML.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::check::{EXTENDS, check_layer};
use crate::merge::{Layers, Origin, Origins, take_removed};
use crate::presets::{advice, preset_of_path};
use crate::shape::Shape;
use crate::{Config, ConfigError};

/// The file name in messages about overrides.
const SET: &str = "--set";
/// The origin of a warm-up that was cut along with the run.
pub const HALF_THE_RUN: &str = "half of train.steps";
/// The origin of groups that follow the batch.
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

    /// As [`Config::load`], with what sets each dotted key that is set.
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

    /// As [`Config::load_with_origins`], but no warm-up is cut: for a run that has begun, and for
    /// one by a benchmark's rules.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load_as_written(
        path: impl AsRef<Path>,
        overrides: &[String],
    ) -> Result<(Self, Origins), ConfigError> {
        load_layers(Source::find(path.as_ref())?, overrides, Self::clone)
    }

    /// As [`Config::load`], for detection: values that only training reads may be invalid.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load_to_detect(
        path: impl AsRef<Path>,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        Ok(load_layers(Source::find(path.as_ref())?, overrides, Self::to_detect)?.0)
    }

    /// The same from text, such as a checkpoint's saved config; `name` is the file name in
    /// messages. The text can extend presets only.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ConfigError> {
        let source = Source { label: name.into(), path: None, text: text.into() };
        Ok(load_layers(source, &[], Self::clone)?.0)
    }

    /// The whole resolved config as TOML; [`Config::from_toml`] gives the same config back.
    /// Optional values that are not set are omitted.
    ///
    /// # Errors
    /// [`ConfigError::Write`] if serialization fails. A valid config always serializes.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(self).map_err(|error| ConfigError::Write { message: error.to_string() })
    }
}

/// A config's text and its origin.
struct Source {
    /// Its name in messages.
    label: String,
    /// The file; `None` for a preset.
    path: Option<PathBuf>,
    text: String,
}

impl Source {
    fn find(path: &Path) -> Result<Self, ConfigError> {
        Self::read(path)?.or_else(|| Self::of_preset(path)).ok_or_else(|| ConfigError::NotFound {
            file: path.display().to_string(),
            presets: advice(path),
        })
    }

    /// The file's text; `None` if there is no such file.
    fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        if !path.is_file() {
            return Ok(None);
        }
        let label = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(Self { label, path: Some(path.to_path_buf()), text })),
            Err(source) => Err(ConfigError::Read { file: label, source }),
        }
    }

    fn of_preset(path: &Path) -> Option<Self> {
        let (name, text) = preset_of_path(path)?;
        Some(Self { label: format!("preset {name}"), path: None, text: text.into() })
    }

    /// Resolves `extends = parent` in this source: a file next to it, else a preset.
    fn parent(&self, parent: &str) -> Result<Self, ConfigError> {
        if let Some(path) = &self.path {
            let beside = path.parent().unwrap_or(Path::new("")).join(parent);
            if let Some(found) = Self::read(&beside)? {
                return Ok(found);
            }
        }
        Self::of_preset(Path::new(parent)).ok_or_else(|| ConfigError::ExtendsMissing {
            file: self.label.clone(),
            parent: parent.into(),
            presets: advice(Path::new(parent)),
        })
    }

    /// True if both are the same file or preset, however the path is spelled.
    fn is(&self, other: &Self) -> bool {
        match (&self.path, &other.path) {
            (Some(a), Some(b)) => match (a.canonicalize(), b.canonicalize()) {
                (Ok(a), Ok(b)) => a == b,
                _ => a == b,
            },
            (None, None) => self.label == other.label,
            _ => false,
        }
    }
}

/// Merges a source, what it extends and the overrides; checks what `read` leaves of the values.
fn load_layers(
    source: Source,
    overrides: &[String],
    read: fn(&Config) -> Config,
) -> Result<(Config, Origins), ConfigError> {
    let shape = Shape::of_config();
    let label = source.label.clone();
    let mut layers = Layers::default();
    let mut add = |file: &str, mut table: Table| {
        let removed = take_removed(&mut table);
        check_layer(file, &table, &shape)?;
        layers.push(file, table, removed, &shape);
        Ok::<(), ConfigError>(())
    };
    for (file, table) in chain(source)?.into_iter().rev() {
        add(&file, table)?;
    }
    for text in overrides {
        add(SET, parse_override(text)?)?;
    }
    let mut config = Config::deserialize(Value::Table(layers.table.clone())).map_err(|error| {
        ConfigError::Syntax { file: label.clone(), line: 1, message: error.message().into() }
    })?;
    fit_groups(&mut config, &mut layers.origins);
    match read(&config).find_invalid() {
        None => Ok((config, layers.origins)),
        Some((key, problem)) => {
            let file = layers.origin(&key).unwrap_or(&label).to_string();
            Err(ConfigError::Invalid { file, key, problem })
        }
    }
}

/// Takes the largest groups that divide the batch, if none are given, or if the batch was changed
/// after they were set.
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

/// Halves a warm-up that would not end, if the run was cut after it was set; where only the data
/// says if it would, half of the run becomes its limit.
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

/// The source and everything it extends, parsed, the source first.
fn chain(source: Source) -> Result<Vec<(String, Table)>, ConfigError> {
    let mut tables = Vec::new();
    let mut seen = vec![source];
    while let Some(source) = seen.last() {
        let mut table = parse(&source.label, &source.text)?;
        let extends = table.remove(EXTENDS);
        tables.push((source.label.clone(), table));
        let parent = match extends {
            None => break,
            Some(Value::String(parent)) => parent,
            Some(other) => {
                return Err(ConfigError::Type {
                    file: source.label.clone(),
                    key: EXTENDS.into(),
                    expected: "the quoted name of one config file".into(),
                    got: other.to_string(),
                });
            }
        };
        let next = source.parent(&parent)?;
        if seen.iter().any(|earlier| earlier.is(&next)) {
            return Err(ConfigError::ExtendsCircle { file: source.label.clone(), parent });
        }
        seen.push(next);
    }
    Ok(tables)
}

fn parse(file: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
        let message = error.message().replace('\n', "; ");
        ConfigError::Syntax { file: file.into(), line, message }
    })
}

/// `a.b=value` as nested tables.
fn parse_override(text: &str) -> Result<Table, ConfigError> {
    let malformed = || ConfigError::Override { text: text.into() };
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let mut parts: Vec<&str> = key.split('.').map(str::trim).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(malformed());
    }
    let last = parts.pop().ok_or_else(malformed)?;
    let mut table = Table::from_iter([(last.to_string(), parse_value(value.trim()))]);
    for part in parts.into_iter().rev() {
        table = Table::from_iter([(part.to_string(), Value::Table(table))]);
    }
    Ok(table)
}

/// A TOML value; text that is not TOML becomes a string, so a shell needs no inner quotes.
fn parse_value(text: &str) -> Value {
    let string = || Value::String(text.to_string());
    let Ok(mut table) = format!("value = {text}").parse::<Table>() else { return string() };
    // A line break in the text could smuggle in a second key.
    if table.len() == 1 { table.remove("value").unwrap_or_else(string) } else { string() }
}
