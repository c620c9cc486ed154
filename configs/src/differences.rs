//! The keys in which two configs differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A key whose values differ between two configs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The dotted key, such as `solver.learning_rate`.
    pub key: String,
    /// The value in the first config as TOML; `none` if the key is not set.
    pub from: String,
    /// The value in the second config.
    pub to: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.from, self.to)
    }
}

/// The keys whose values differ in two configs, sorted.
pub fn differences(from: &Table, to: &Table) -> Vec<Difference> {
    let (ours, theirs) = (values(from), values(to));
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let none = "none".to_string();
    let difference = |key: &String| {
        let value = |of: &BTreeMap<String, String>| of.get(key).unwrap_or(&none).clone();
        Difference { key: key.clone(), from: value(&ours), to: value(&theirs) }
    };
    keys.into_iter().map(difference).filter(|d| d.from != d.to).collect()
}

/// Each key of a config with its value as TOML.
pub fn values(config: &Table) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    config.iter().for_each(|(name, value)| flatten(name, value, &mut found));
    found
}

fn flatten(key: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    let Value::Table(table) = value else {
        values.insert(key.to_string(), value.to_string());
        return;
    };
    for (name, value) in table {
        flatten(&format!("{key}.{name}"), value, values);
    }
}
