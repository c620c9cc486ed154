//! Limits of single numbers, as stated at each field of the schema.

use serde_json::{Number, Value};

use super::Check;
use crate::Config;
use crate::keys::{keys, number};

pub(super) fn check(config: &Config, check: &mut Check) {
    let Ok(values) = serde_json::to_value(config) else { return };
    for key in keys() {
        let (Some(min), Some(max)) = (&key.min, &key.max) else { continue };
        let is_optional = key.kind.ends_with("\"none\"");
        let found = values_of(&values, &key.name);
        for value in found.into_iter().filter(|value| !(is_optional && value.is_null())) {
            let inside = value.as_number().is_some_and(|v| lies_between(v, min, max));
            check.require(inside, &key.name, || {
                // JSON has no NaN and no infinity; they are null. An f32 is shown as written.
                let got = match value.as_f64() {
                    Some(v) if value.is_f64() && f64::from(v as f32) == v => (v as f32).to_string(),
                    _ => value.as_number().map_or("not finite".to_string(), number),
                };
                format!("is {got}; it must lie between {} and {}", number(min), number(max))
            });
        }
    }
}

/// The values of a dotted key, also of each item of a list, or of each entry of
/// a table.
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

fn lies_between(value: &Number, min: &Number, max: &Number) -> bool {
    match (value.as_u64(), min.as_u64(), max.as_u64()) {
        (Some(value), Some(min), Some(max)) => (min..=max).contains(&value),
        _ => match (value.as_f64(), min.as_f64(), max.as_f64()) {
            // Most fields are f32, whose nearest value to a limit may lie beyond it.
            (Some(value), Some(min), Some(max)) => {
                (min as f32..=max as f32).contains(&(value as f32))
            }
            _ => false,
        },
    }
}
