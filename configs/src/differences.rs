//! The keys in which two configs differ.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::Value;

use crate::{Config, ConfigError};

/// A key that has another value in another config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key with its tables, such as `solver.learning_rate`.
    pub key: String,
    /// The first config's value as TOML; `none` if it has none.
    pub from: String,
    /// The second config's value.
    pub to: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.from, self.to)
    }
}

impl Config {
    /// The keys whose values differ in `other`, sorted.
    ///
    /// # Errors
    /// [`ConfigError::Write`] if a config cannot be written as TOML. A valid config always can.
    pub fn differences(&self, other: &Config) -> Result<Vec<Difference>, ConfigError> {
        let (ours, theirs) = (self.values()?, other.values()?);
        let keys: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let none = "none".to_string();
        let difference = |key: &String| {
            let value = |of: &BTreeMap<String, String>| of.get(key).unwrap_or(&none).clone();
            Difference { key: key.clone(), from: value(&ours), to: value(&theirs) }
        };
        Ok(keys.into_iter().map(difference).filter(|d| d.from != d.to).collect())
    }

    /// Each key with its value as TOML.
    ///
    /// # Errors
    /// As for [`Self::differences`].
    pub fn values(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let mut values = BTreeMap::new();
        flatten("", &Value::Table(self.table()?), &mut values);
        Ok(values)
    }
}

fn flatten(key: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    let Value::Table(table) = value else {
        values.insert(key.to_string(), value.to_string());
        return;
    };
    for (name, value) in table {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        flatten(&key, value, values);
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn differences_name_key_and_both_values() {
        let load = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            Config::load("quickstart", &overrides).expect("a preset")
        };
        let ours = load(&[]);
        assert!(ours.differences(&ours).expect("written").is_empty());
        let theirs = load(&[
            "train.seed=3",
            "data.synthetic=none",
            "train.name=second",
            "input.flip_probability=0.2",
        ]);
        let found = ours.differences(&theirs).expect("written");
        let of = |key: &str| found.iter().find(|d| d.key == key).map(ToString::to_string);
        assert_eq!(of("train.seed").as_deref(), Some("train.seed: 0 -> 3"));
        assert_eq!(of("train.name").as_deref(), Some("train.name: none -> \"second\""));
        let flips = "input.flip_probability: 0.5 -> 0.2";
        assert_eq!(of("input.flip_probability").as_deref(), Some(flips));
        let kind = "data.synthetic.kind: \"shapes\" -> none";
        assert_eq!(of("data.synthetic.kind").as_deref(), Some(kind));
        assert!(of("solver.learning_rate").is_none());
    }
}
