//! Checks one file, or the overrides, against the schema: unknown keys and wrong types. Runs on
//! each layer before merging, while the origin of every value is still known.

use toml::{Table, Value};

use crate::ConfigError;
use crate::keys::{Key, is_short_for};
use crate::schema::{Schema, Synonym};
use crate::shape::{Shape, join, names};

/// Minimum similarity (0 to 1) of a suggested key. One wrong letter in three (`rpm` for `rpn`) is
/// still accepted.
const MIN_SIMILARITY: f64 = 0.66;

/// The value that unsets an optional key.
pub(crate) const NONE: &str = "none";

/// The key with the file or preset to inherit from; it is not in the schema.
pub(crate) const EXTENDS: &str = "extends";

/// Checks all keys and types of one layer.
///
/// # Errors
/// [`ConfigError::UnknownKey`] or [`ConfigError::Type`] for the first error.
pub(crate) fn check_layer(file: &str, table: &Table, schema: &Schema) -> Result<(), ConfigError> {
    Layer { file, schema }.table("", table, &schema.shape)
}

struct Layer<'a> {
    file: &'a str,
    schema: &'a Schema,
}

impl Layer<'_> {
    fn table(&self, prefix: &str, table: &Table, shape: &Shape) -> Result<(), ConfigError> {
        let fields = shape.fields().unwrap_or_default();
        for (name, value) in table {
            let key = join(prefix, name);
            match fields.iter().find(|(known, _)| known == name) {
                Some((_, shape)) => self.value(&key, value, shape)?,
                None => {
                    let hint = hint(prefix, name, fields, self.schema);
                    return Err(ConfigError::UnknownKey { file: self.file.into(), key, hint });
                }
            }
        }
        Ok(())
    }

    fn value(&self, key: &str, value: &Value, shape: &Shape) -> Result<(), ConfigError> {
        match (shape, value) {
            (Shape::Optional(_), Value::String(word)) if word == NONE => Ok(()),
            // A mismatch is reported with the optional shape, so that the message also mentions
            // "none".
            (Shape::Optional(inner), Value::Table(table)) if inner.fields().is_some() => {
                self.table(key, table, inner)
            }
            (Shape::Optional(inner), Value::Array(_)) if matches!(**inner, Shape::List { .. }) => {
                self.value(key, value, inner)
            }
            (Shape::Optional(inner), _) if accepts(inner, value) => Ok(()),
            (Shape::Table(_), Value::Table(table)) => self.table(key, table, shape),
            (Shape::Map(item), Value::Table(table)) => {
                let mut values = table.iter();
                values.try_for_each(|(name, value)| self.value(&join(key, name), value, item))
            }
            (Shape::List { item, len }, Value::Array(values)) => {
                if len.is_some_and(|len| len != values.len()) {
                    let got = format!("{} items", values.len());
                    return Err(self.type_error(key, shape, got));
                }
                let mut items = values.iter().enumerate();
                items.try_for_each(|(i, value)| self.value(&format!("{key}[{i}]"), value, item))
            }
            (Shape::List { item, .. }, Value::Table(_)) if item.fields().is_some() => {
                let got = format!("a table; write [{{ .. }}] or [[{key}]]");
                Err(self.type_error(key, shape, got))
            }
            (Shape::Table(fields), _) if key.ends_with(']') => {
                let expected = format!("a table of {}", names(fields));
                let (file, key, got) = (self.file.into(), key.into(), describe(value));
                Err(ConfigError::Type { file, key, expected, got })
            }
            _ if accepts(shape, value) => Ok(()),
            _ => Err(self.type_error(key, shape, describe(value))),
        }
    }

    fn type_error(&self, name: &str, expected: &Shape, got: String) -> ConfigError {
        let expected = self.schema.key(name).map_or_else(|| expected.to_string(), Key::values);
        ConfigError::Type { file: self.file.into(), key: name.into(), expected, got }
    }
}

/// True if a scalar value has the right type.
fn accepts(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Count, Value::Integer(value)) => *value >= 0,
        (Shape::Number { .. }, Value::Integer(_)) => true,
        // NaN is rejected too: the comparison is false.
        (Shape::Number { max }, Value::Float(value)) => value.abs() <= *max,
        (Shape::Bool, Value::Boolean(_)) | (Shape::Text, Value::String(_)) => true,
        (Shape::Word(words), Value::String(word)) => words.contains(&word.as_str()),
        _ => false,
    }
}

fn describe(value: &Value) -> String {
    match value {
        // In an override, a number outside TOML's range is parsed as text.
        Value::String(text) if is_huge(text) => format!("the number {text}, which is too large"),
        Value::String(text) => format!("the string \"{text}\""),
        Value::Float(value) if value.is_finite() && value.abs() > f64::from(f32::MAX) => {
            format!("{value:e}, which is too large")
        }
        Value::Integer(_) | Value::Float(_) => format!("the number {value}"),
        Value::Boolean(value) => format!("{value}"),
        Value::Array(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
        Value::Datetime(value) => format!("the date {value}"),
    }
}

/// True if a text is an integer outside TOML's range.
fn is_huge(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<i64>().is_err()
}

/// A hint with the most likely key: one with similar spelling in the same table, or one with this
/// name in a different table.
fn hint(prefix: &str, name: &str, fields: &[(&'static str, Shape)], schema: &Schema) -> String {
    let (likeness, alike) = fields
        .iter()
        .map(|(known, _)| match is_short_for(name, known) {
            true => (1.0, *known),
            false => (strsim::normalized_damerau_levenshtein(name, known), *known),
        })
        .fold((0.0, ""), |best, next| if next.0 > best.0 { next } else { best });
    // For a table in a list, keys of the config's other tables are not suggested.
    let is_in_list = prefix.ends_with(']');
    let mut elsewhere = Vec::new();
    collect_named("", name, &schema.shape, &mut elsewhere);
    if name == EXTENDS {
        return format!("{EXTENDS} must be at the top of a file, before the first [table]");
    }
    let suggestion = match elsewhere.as_slice() {
        _ if likeness >= MIN_SIMILARITY => join(prefix, alike),
        [only] if !is_in_list => only.clone(),
        _ if !is_in_list && let Some(synonym) = schema.synonym(name) => match synonym {
            Synonym::Key(key) => key.to_string(),
            Synonym::NoKey(why) => return why.to_string(),
        },
        _ => {
            let table = if prefix.is_empty() { "a config".into() } else { format!("[{prefix}]") };
            return format!("the keys of {table} are {}", names(fields));
        }
    };
    format!("did you mean `{suggestion}`?")
}

/// Collects the dotted keys whose last component is `name`, or has the abbreviation `name`.
fn collect_named(prefix: &str, name: &str, shape: &Shape, found: &mut Vec<String>) {
    for (known, inner) in shape.fields().unwrap_or_default() {
        let key = join(prefix, known);
        collect_named(&key, name, inner, found);
        if *known == name || is_short_for(name, known) {
            found.push(key);
        }
    }
}
