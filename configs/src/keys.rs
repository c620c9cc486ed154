//! Properties of each key: type, unit, limits, default, meaning, and the rules for changing it.
//!
//! All properties are derived from the doc comments and attributes of the tables.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::shape::{Shape, join};
use crate::{MlperfRule, ResumeRule};

/// A key with a value, a key of each table in a list of tables, or the name of an optional table,
/// which is enabled by being present.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Dotted, such as `train.batch_size`.
    pub name: String,
    /// The allowed values, in words.
    pub kind: String,
    /// The key is only used if `kind` in its table has this value; `None` if it is always used.
    pub of: Option<String>,
    /// The unit of a number; `None` for text, words, and numbers without a unit.
    pub unit: Option<String>,
    /// Minimum of a number, or of each number in a list.
    pub min: Option<serde_json::Number>,
    /// Maximum of a number, or of each number in a list.
    pub max: Option<serde_json::Number>,
    /// The default as TOML; `"none"` if it is not set.
    pub default: String,
    /// The meaning of the key.
    pub meaning: String,
    /// The allowed words, each with its meaning; empty if the key does not take words.
    pub words: Vec<(String, String)>,
    /// The rule for changing the value when a run is resumed.
    pub resume: ResumeRule,
    /// The rule of MLPerf's closed division for a value that differs from the reference's.
    pub mlperf: MlperfRule,
    /// True for a key of each table in a list of tables.
    pub in_list: bool,
}

impl Key {
    /// The allowed values, with their limits: `an integer, 1 to 65536`.
    pub fn values(&self) -> String {
        let (Some(min), Some(max)) = (&self.min, &self.max) else { return self.kind.clone() };
        let kind = self.kind.replace(", at least 0", "");
        let limits = format!("{} to {}", number(min), number(max));
        match kind.split_once(", or \"none\"") {
            Some((kind, _)) => format!("{kind}, {limits}, or \"none\""),
            None => format!("{kind}, {limits}"),
        }
    }
}

/// Every key of a schema, in the order of its tables; the keys of a table precede those of its
/// inner tables.
pub(crate) fn keys_of(schema: &Value, shape: &Shape) -> Vec<Key> {
    let mut found = Vec::new();
    collect("", schema, shape, &mut found);
    found
}

/// The table at the start of a dotted name; empty if there is none.
pub fn table_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(table, _)| table)
}

/// True if a name consists of the initials of a key's words, such as `lr` for `learning_rate`.
pub(crate) fn is_short_for(short: &str, key: &str) -> bool {
    key.contains('_') && key.split('_').filter_map(|word| word.chars().next()).eq(short.chars())
}

/// A limit in human-readable form.
pub(crate) fn number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() && value.abs() >= 1e5 => format!("{value:e}"),
        Some(value) if number.is_f64() => format!("{value}"),
        _ => number.to_string(),
    }
}

/// The schema itself, or for an optional value the variant that is not null.
fn present(schema: &Value) -> &Value {
    let variants = schema["anyOf"].as_array().into_iter().flatten();
    variants.into_iter().find(|variant| variant["type"] != "null").unwrap_or(schema)
}

fn collect(prefix: &str, schema: &Value, shape: &Shape, found: &mut Vec<Key>) {
    let none = Map::new();
    let table = present(schema);
    let properties = table["properties"].as_object().unwrap_or(&none);
    let fields = shape.fields().unwrap_or_default();
    for (name, shape) in fields {
        if shape.fields().is_none() || is_optional_table(shape) {
            let default = table["defaults"][*name].as_str().filter(|_| !is_optional_table(shape));
            let default = default.unwrap_or("\"none\"").to_string();
            found.push(describe(join(prefix, name), default, &properties[*name], shape));
        }
    }
    for (name, shape) in fields {
        let (key, schema) = (join(prefix, name), &properties[*name]);
        match shape {
            Shape::List { item, .. } => {
                let first = found.len();
                collect(&key, &schema["items"], item, found);
                found[first..].iter_mut().for_each(|key| key.in_list = true);
            }
            _ => collect(&key, schema, shape, found),
        }
    }
}

fn is_optional_table(shape: &Shape) -> bool {
    matches!(shape, Shape::Optional(_)) && shape.fields().is_some()
}

fn describe(name: String, default: String, schema: &Value, shape: &Shape) -> Key {
    let item = present(schema);
    let inner = ["items", "entries"].map(|of| &item[of]);
    let limits = inner.into_iter().find(|inner| inner.is_object()).unwrap_or(item);
    let limit = |which: &str| match &limits[which] {
        Value::Number(number) => Some(number.clone()),
        _ => None,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
    let words = item["oneOf"].as_array().into_iter().flatten();
    let words = words.map(|word| (text(&word["const"]), text(&word["description"])));
    let unit = schema["unit"].as_str().or(item["unit"].as_str());
    Key {
        kind: shape.to_string(),
        of: schema["of"].as_str().map(str::to_string),
        unit: unit.map(str::to_string),
        min: limit("minimum"),
        max: limit("maximum"),
        default,
        meaning: text(&schema["description"]),
        words: words.collect(),
        resume: fact(schema, "resume"),
        mlperf: fact(schema, "mlperf"),
        in_list: false,
        name,
    }
}

/// A property from the attribute `key` of a key, which always contains it.
fn fact<'a, T: Deserialize<'a>>(schema: &'a Value, name: &str) -> T {
    T::deserialize(&schema[name]).unwrap_or_else(|_| unreachable!("a key without `{name}`"))
}

/// The value of a dotted key.
pub(crate) fn find<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((first, rest)) => find(table.get(first)?.as_table()?, rest),
    }
}
