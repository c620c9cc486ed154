//! Range and consistency checks of values: each error names its key and the fix.

use std::fmt::Display;

use serde::Serialize;
use serde_json::{Number, Value};

use crate::keys::number;
use crate::schema::Schema;

/// Collects the first error.
#[derive(Debug, Default)]
pub struct Check {
    /// The key of the first error, and the text that follows the key in the message.
    pub found: Option<(String, String)>,
}

impl Check {
    /// `problem` completes the message that begins with the key.
    pub fn require(&mut self, holds: bool, key: &str, problem: impl FnOnce() -> String) {
        if !holds && self.found.is_none() {
            self.found = Some((key.to_string(), problem()));
        }
    }

    /// Requires a value of at least 1.
    pub fn at_least_one(&mut self, key: &str, value: usize) {
        self.require(value >= 1, key, || "is 0; it must be at least 1".into());
    }

    /// Requires a non-empty list of numbers that are each at least 1.
    pub fn counts(&mut self, key: &str, values: &[usize]) {
        self.require(!values.is_empty(), key, || "is empty; give at least one number".into());
        self.require(!values.contains(&0), key, || {
            format!("is {values:?}; each number must be at least 1")
        });
    }

    /// Requires a value from 0 to 1, inclusive.
    pub fn fraction(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let inside = (0.0..=1.0).contains(&value.into());
        self.require(inside, key, || format!("is {value}; it must be between 0 and 1"));
    }

    /// Requires a finite value above 0.
    pub fn positive(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let holds = value.into() > 0.0 && value.into().is_finite();
        self.require(holds, key, || format!("is {value}; it must be greater than 0"));
    }

    /// Requires a finite value of at least 0.
    pub fn not_negative(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let holds = value.into() >= 0.0 && value.into().is_finite();
        self.require(holds, key, || format!("is {value}; it must not be negative"));
    }

    /// Requires a non-empty string.
    pub fn text(&mut self, key: &str, value: &str) {
        self.require(!value.trim().is_empty(), key, || "is empty; give a name or remove it".into());
    }

    /// Requires each number to be within the limits of its key.
    pub fn limits(&mut self, config: &impl Serialize, schema: &Schema) {
        let Ok(values) = serde_json::to_value(config) else { return };
        for key in schema.keys() {
            let (Some(min), Some(max)) = (&key.min, &key.max) else { continue };
            let is_optional = key.kind.ends_with("\"none\"");
            let found = values_of(&values, &key.name);
            for value in found.into_iter().filter(|value| !(is_optional && value.is_null())) {
                let inside = value.as_number().is_some_and(|v| is_between(v, min, max));
                self.require(inside, &key.name, || {
                    // JSON has no NaN and no infinity; both become null. An f32 is printed as the
                    // user wrote it.
                    let got = match value.as_f64() {
                        Some(v) if value.is_f64() && f64::from(v as f32) == v => {
                            (v as f32).to_string()
                        }
                        _ => value.as_number().map_or("not finite".to_string(), number),
                    };
                    format!("is {got}; it must be between {} and {}", number(min), number(max))
                });
            }
        }
    }
}

/// The values of a dotted key; for a list or a map, the value of each item or entry.
fn values_of<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    if let Value::Array(items) = value {
        return items.iter().flat_map(|item| values_of(item, key)).collect();
    }
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    match (value, value.get(first)) {
        (Value::Object(values), _) if key.is_empty() => values.values().collect(),
        _ if key.is_empty() => vec![value],
        (_, Some(value)) => values_of(value, rest),
        _ => vec![],
    }
}

fn is_between(value: &Number, min: &Number, max: &Number) -> bool {
    match (value.as_u64(), min.as_u64(), max.as_u64()) {
        (Some(value), Some(min), Some(max)) => (min..=max).contains(&value),
        _ => match (value.as_f64(), min.as_f64(), max.as_f64()) {
            // Compares in f32: most fields are f32, and a value that equals the limit, rounded to
            // f32, may be just outside the f64 limit.
            (Some(value), Some(min), Some(max)) => {
                (min as f32..=max as f32).contains(&(value as f32))
            }
            _ => false,
        },
    }
}
