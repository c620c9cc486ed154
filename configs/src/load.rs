//! Loads a config from a path and overrides, and merges their tables.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::ConfigError;
use crate::layer::EXTENDS;
use crate::merge::Layers;
use crate::presets::{advice, preset_of_path};
use crate::schema::Schema;

/// Shown instead of a file name in messages about overrides.
const SET: &str = "--set";

/// A config's text and its origin.
#[derive(Debug)]
pub struct Source {
    /// Its name in messages.
    label: String,
    /// The file; `None` for a preset.
    path: Option<PathBuf>,
    text: String,
}

impl Source {
    /// The text of a file, or of the preset named by the last component of the path.
    ///
    /// # Errors
    /// [`ConfigError::NotFound`] or [`ConfigError::Read`].
    pub fn find(path: &Path) -> Result<Self, ConfigError> {
        Self::read(path)?.or_else(|| Self::of_preset(path)).ok_or_else(|| ConfigError::NotFound {
            file: path.display().to_string(),
            presets: advice(path),
        })
    }

    /// A config given as text, called `name` in messages; it can only extend presets.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self { label: name.into(), path: None, text: text.into() }
    }

    /// Reads a file; `None` if it does not exist.
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

    /// Resolves `extends = parent` in this source: a file in the same directory, else a preset.
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

    /// True if both are the same file or preset, even if the paths are written differently.
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

impl Source {
    /// Merges this file or preset, everything it extends, and `key=value` overrides.
    ///
    /// # Errors
    /// Any [`ConfigError`] but [`ConfigError::Invalid`].
    pub fn layers(self, overrides: &[String], schema: &Schema) -> Result<Layers, ConfigError> {
        let mut layers = Layers::of(self.label.clone());
        for (file, table) in chain(self)?.into_iter().rev() {
            layers.push(&file, table, schema)?;
        }
        for text in overrides {
            layers.push(SET, parse_override(text)?, schema)?;
        }
        Ok(layers)
    }
}

/// The parsed tables of the source and of everything it extends, the source first.
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

/// Parses `a.b=value` into nested tables.
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

/// Parses a TOML value; text that is not TOML becomes a string, so that no quotes are needed inside
/// shell arguments.
fn parse_value(text: &str) -> Value {
    let string = || Value::String(text.to_string());
    let Ok(mut table) = format!("value = {text}").parse::<Table>() else { return string() };
    // A text with a line break could contain a second key.
    if table.len() == 1 { table.remove("value").unwrap_or_else(string) } else { string() }
}
