//! The schema as text: the reference of all keys, and a resolved config with comments.

use std::fmt::Write;

use serde::Serialize;
use toml::{Table, Value};

use crate::ConfigError;
use crate::keys::{Key, find};
use crate::schema::Schema;

/// Line width of a comment in a config.
const COMMENT_COLUMNS: usize = 98;

/// A config as TOML. Optional values that are not set are omitted.
///
/// # Errors
/// [`ConfigError::Write`] if serialization fails. A valid config always serializes.
pub fn to_toml(config: &impl Serialize) -> Result<String, ConfigError> {
    toml::to_string(config).map_err(|error| ConfigError::Write { message: error.to_string() })
}

/// A config as a table, converted through text so that an f32 becomes the decimal number that a
/// user would write.
///
/// # Errors
/// As for [`to_toml`].
pub fn to_table(config: &impl Serialize) -> Result<Table, ConfigError> {
    let parsed = to_toml(config)?.parse();
    parsed.map_err(|error: toml::de::Error| ConfigError::Write { message: error.to_string() })
}

/// The value of a dotted key as TOML; `"none"` if it is not set.
pub fn value(config: &Table, key: &str) -> String {
    find(config, key).map_or("\"none\"".into(), Value::to_string)
}

impl Schema {
    /// The reference of all keys in Markdown, with one section per table of the config.
    pub fn reference(&self) -> String {
        let mut text = String::new();
        let mut table = "";
        for key in self.keys() {
            let (of, name) = key.name.rsplit_once('.').unwrap_or(("", &key.name));
            if of != table {
                table = of;
                let heading =
                    if key.in_list { format!("[[{table}]]") } else { format!("[{table}]") };
                let _ = write!(
                    text,
                    "\n## `{heading}`\n\n| key | values | unit | default | meaning |\n\
                     |---|---|---|---|---|\n"
                );
            }
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{name}` | {} | {} | `{}` | {} |",
                cell(&key.values()),
                key.unit.as_deref().unwrap_or(""),
                key.default,
                cell(&key.meaning),
            );
        }
        text
    }

    /// A whole config as TOML, each key under a comment with its meaning, values and unit. Optional
    /// values that are not set are `"none"`.
    pub fn commented(&self, values: &Table) -> String {
        let mut text = String::new();
        let mut table = "";
        for key in self.keys() {
            let (of, name) = key.name.rsplit_once('.').unwrap_or(("", &key.name));
            let value = find(values, &key.name);
            let is_switch = value.is_some_and(Value::is_table) && key.default == "\"none\"";
            let is_absent = !of.is_empty() && !find(values, of).is_some_and(Value::is_table);
            if is_switch || is_absent {
                continue;
            }
            if of != table {
                table = of;
                let _ = write!(text, "\n[{table}]\n");
            }
            comment(&mut text, key);
            let _ = writeln!(text, "{name} = {}", self::value(values, &key.name));
        }
        text.trim_start().to_string()
    }
}

/// Writes the key's meaning, wrapped, and a line with its allowed values.
fn comment(text: &mut String, key: &Key) {
    let unit = key.unit.as_ref().map(|unit| format!(" ({unit})")).unwrap_or_default();
    for paragraph in [key.meaning.clone(), format!("Values: {}{unit}.", key.values())] {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > COMMENT_COLUMNS {
                let _ = writeln!(text, "{line}");
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        let _ = writeln!(text, "{line}");
    }
}
