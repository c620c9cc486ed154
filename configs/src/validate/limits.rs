//! Limits of single numbers, as stated at each field of the schema.

use serde_json::{Number, Value};

use super::Check;
use crate::Config;
use crate::keys::{keys, number};

pub(super) fn check(config: &Config, check: &mut Check) {
    let Ok(values) = serde_json::to_value(config) else { return };
    for key in keys() {
        let (Some(min), Some(max)) = (&key.min, &key.max) else { continue };
        let mut parts = key.name.split('.');
        let found = parts.try_fold(&values, |value, part| value.get(part));
        let list = match found {
            None => continue,
            Some(Value::Array(list)) => list.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let is_optional = key.kind.ends_with("\"none\"");
        for value in list.iter().filter(|value| !(is_optional && value.is_null())) {
            let inside = value.as_number().is_some_and(|v| lies_between(v, min, max));
            check.require(inside, &key.name, || {
                // JSON has no NaN and no infinity; they are null.
                let got = value.as_number().map_or("not finite".to_string(), number);
                format!("is {got}; it must lie between {} and {}", number(min), number(max))
            });
        }
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
