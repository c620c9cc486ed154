//! `onegraph config`: what the keys of a config mean, and where their values come from.

use std::fmt::Write;

use clap::Args;
use configs::{Config, Key, key, keys, preset_names, similar_keys};

use crate::EngineError;

/// Columns of a line of the list.
const COLUMNS: usize = 100;

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The key to explain, such as train.batch_size; without one, all keys are listed.
    key: Option<String>,
    /// Show the values of this config file or preset, and which file sets each.
    #[arg(long = "in", value_name = "CONFIG")]
    config: Option<String>,
    /// Override a value of that config.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    set: Vec<String>,
}

/// A config with the origin of each value.
struct Loaded {
    name: String,
    config: Config,
    origins: std::collections::BTreeMap<String, String>,
}

impl Loaded {
    /// The value of a key, and the file that sets it.
    fn value(&self, key: &Key) -> Result<String, EngineError> {
        let value = self.config.value(&key.name)?;
        Ok(match self.origins.get(&key.name) {
            Some(file) => format!("{value}, set in {file}"),
            None => format!("{value}, the default"),
        })
    }
}

pub(super) fn run(args: &ConfigArgs) -> Result<(), EngineError> {
    let loaded = match &args.config {
        None => None,
        Some(name) => {
            let (config, origins) = Config::load_with_origins(name, &args.set)?;
            Some(Loaded { name: name.clone(), config, origins })
        }
    };
    let text = match &args.key {
        None => list(loaded.as_ref())?,
        Some(name) => explain(find(name)?, loaded.as_ref())?,
    };
    super::print(&text)
}

fn find(name: &str) -> Result<&'static Key, EngineError> {
    key(name).ok_or_else(|| {
        let alike = similar_keys(name);
        EngineError::Usage(match alike.is_empty() {
            true => format!("no key is called {name}; `onegraph config` lists them all"),
            false => format!("no key is called {name}; did you mean {}?", alike.join(", ")),
        })
    })
}

/// One line per key: name, value or default, and the beginning of its meaning.
fn list(loaded: Option<&Loaded>) -> Result<String, EngineError> {
    let width = keys().iter().map(|key| key.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for key in keys() {
        let value = match loaded {
            Some(loaded) => loaded.value(key)?,
            None => key.default.clone(),
        };
        let mut line = format!("{:width$}  {value:<20}", key.name);
        if loaded.is_none() {
            line += &format!("  {}", key.meaning);
        }
        if line.chars().count() > COLUMNS {
            line = line.chars().take(COLUMNS - 2).chain("..".chars()).collect();
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}

fn explain(key: &Key, loaded: Option<&Loaded>) -> Result<String, EngineError> {
    let mut text = format!("{}\n\n{}\n\n", key.name, key.meaning);
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:<8} {value}");
    };
    line("values", &key.values());
    for (word, meaning) in &key.words {
        line("", &format!("\"{word}\": {meaning}"));
    }
    if let Some(unit) = &key.unit {
        line("unit", unit);
    }
    line("default", &key.default);
    if let Some(loaded) = loaded {
        line("value", &format!("{} ({})", loaded.value(key)?, loaded.name));
    }
    let presets = preset_names().map(|name| (name, Config::load_with_origins(name, &[])));
    let mut label = "presets";
    for (name, preset) in presets {
        let (config, origins) = preset?;
        if origins.contains_key(&key.name) {
            line(label, &format!("{name}: {}", config.value(&key.name)?));
            label = "";
        }
    }
    Ok(text)
}
