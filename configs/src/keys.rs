//! Facts about each key: type, unit, limits, default, meaning, and the rules for a change of it.
//!
//! All of it is derived from the tables in `schema`: their doc comments and their attributes.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::schema::{MlperfRule, ResumeRule};
use crate::shape::{Shape, join};

/// Below this similarity (0 to 1) a key is not suggested.
const MIN_SIMILARITY: f64 = 0.5;
/// A key that is so much less similar than the best one is not suggested with it.
const MAX_DISTANCE: f64 = 0.3;
/// Most keys that [`similar_keys`] suggests.
const MAX_SUGGESTIONS: usize = 5;

/// A key that holds a value (not a table), or the switch of an optional table; or one of each table
/// in a list of tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Dotted, such as `train.batch_size`.
    pub name: String,
    /// The values that it takes, in words.
    pub kind: String,
    /// The word of its table's `kind` that it is read with; `None` if it always is.
    pub of: Option<String>,
    /// The unit of a number; `None` for text, words, and numbers without one.
    pub unit: Option<String>,
    /// Least value of a number, or of each number of a list.
    pub min: Option<serde_json::Number>,
    /// Greatest value of a number, or of each number of a list.
    pub max: Option<serde_json::Number>,
    /// The default as TOML; `"none"` if it is not set.
    pub default: String,
    /// Its meaning, in sentences.
    pub meaning: String,
    /// The words that it takes, each with its meaning; empty unless it takes words.
    pub words: Vec<(String, String)>,
    /// The rule for a change of it when a run resumes.
    pub resume: ResumeRule,
    /// The rule of MLPerf's closed division for another value than the reference's.
    pub mlperf: MlperfRule,
    /// True for a key of each table in a list of tables.
    pub in_list: bool,
}

impl Key {
    /// The values that it takes, with their limits: `a whole number, 1 to 65536`.
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

/// Every key, in the order of the schema; the keys of a table come before its inner tables.
pub fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let settings = schemars::generate::SchemaSettings::draft2020_12();
        let generator = settings.with(|s| s.inline_subschemas = true).into_generator();
        let schema = generator.into_root_schema_for::<crate::Config>();
        let mut found = Vec::new();
        collect("", schema.as_value(), &Shape::of_config(), &mut found);
        found
    });
    &KEYS
}

/// The key of this name.
pub fn key(name: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.name == name)
}

/// Keys that a mistyped, partial or abbreviated name may mean, most likely first.
pub fn similar_keys(name: &str) -> Vec<&'static str> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
    let asked = last(name);
    let alike = |key: &str| {
        let whole = strsim::normalized_damerau_levenshtein(name, key);
        let part = strsim::normalized_damerau_levenshtein(name, &last(key));
        let holds = if asked.len() > 2 && last(key).contains(&asked) { 0.9 } else { 0.0 };
        let is_short = is_short_for(&asked, &last(key)) && key.starts_with(table_of(name));
        whole.max(part).max(holds).max(if is_short { 1.0 } else { 0.0 })
    };
    let scored = keys().iter().map(|key| (alike(&key.name), key.name.as_str()));
    let mut scored: Vec<_> = scored.filter(|(alike, _)| *alike >= MIN_SIMILARITY).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Beside a sure guess the others only distract.
    let best = scored.first().map_or(0.0, |(best, _)| *best);
    scored.retain(|(alike, _)| best - alike <= MAX_DISTANCE);
    scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, key)| key).collect()
}

/// Keys of a table and of its inner tables; empty if there is no table of this name.
pub fn keys_of_table(name: &str) -> impl Iterator<Item = &'static Key> {
    let table = format!("{name}.");
    keys().iter().filter(move |key| key.name.starts_with(&table))
}

/// The table that a dotted name begins with; empty if it has none.
pub(crate) fn table_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(table, _)| table)
}

/// True if a name is made of the first letters of a key's words, as `lr` of `learning_rate`.
pub(crate) fn is_short_for(short: &str, key: &str) -> bool {
    key.contains('_') && key.split('_').filter_map(|word| word.chars().next()).eq(short.chars())
}

/// A limit as a person writes it.
pub(crate) fn number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() && value.abs() >= 1e5 => format!("{value:e}"),
        Some(value) if number.is_f64() => format!("{value}"),
        _ => number.to_string(),
    }
}

/// The schema itself, or the variant of an optional one that is not null.
fn present(schema: &Value) -> &Value {
    let variants = schema["anyOf"].as_array().into_iter().flatten();
    variants.into_iter().find(|variant| variant["type"] != "null").unwrap_or(schema)
}

fn collect(prefix: &str, schema: &Value, shape: &Shape, found: &mut Vec<Key>) {
    let none = Map::new();
    let properties = present(schema)["properties"].as_object().unwrap_or(&none);
    let fields = shape.fields().unwrap_or_default();
    for (name, shape) in fields {
        let is_optional = matches!(shape, Shape::Optional(_));
        if shape.fields().is_none() || is_optional {
            found.push(describe(join(prefix, name), &properties[*name], shape));
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

fn describe(name: String, schema: &Value, shape: &Shape) -> Key {
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
        default: default_of(&name),
        meaning: text(&schema["description"]),
        words: words.collect(),
        resume: fact(schema, "resume"),
        mlperf: fact(schema, "mlperf"),
        in_list: false,
        name,
    }
}

/// A fact that the attribute of every key gives.
fn fact<'a, T: Deserialize<'a>>(schema: &'a Value, name: &str) -> T {
    T::deserialize(&schema[name]).unwrap_or_else(|_| unreachable!("a key without `{name}`"))
}

/// The default of a key as TOML; for a key in `[data.synthetic]`, `[[solver.groups]]` or
/// `[[train.log]]`, that once the table is there.
fn default_of(key: &str) -> String {
    if let Some(key) = key.strip_prefix("train.log.") {
        let rule = toml::Value::try_from(crate::LogRule::default()).ok();
        return rule.and_then(|rule| Some(rule.get(key)?.to_string())).unwrap_or_default();
    }
    static DEFAULTS: LazyLock<toml::Table> = LazyLock::new(|| {
        let mut config = crate::Config::default();
        config.data.synthetic = Some(crate::Synthetic::default());
        // By way of text: an f32 is then the number that a user would write.
        toml::to_string(&config).unwrap_or_default().parse().unwrap_or_default()
    });
    let value = match key {
        "data.synthetic" => None,
        "solver.groups.match" => return "\"\"".into(),
        _ => find(&DEFAULTS, key),
    };
    value.map_or("\"none\"".into(), toml::Value::to_string)
}

/// The value of a dotted key.
pub(crate) fn find<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((first, rest)) => find(table.get(first)?.as_table()?, rest),
    }
}
