//! The schema as text: the reference of all keys, and a resolved config with comments.

use std::fmt::Write;

use crate::keys::{Key, find, keys};
use crate::{Config, ConfigError};

/// Columns of a comment in a config.
const COMMENT_COLUMNS: usize = 98;

const REFERENCE_HEAD: &str = "# Config keys

Every key of a config file, with the values it takes, its unit, its default and its meaning.
`extends = \"NAME\"`, above the first table, takes the values of a preset or a file beside this one.
A key may be left out: the default holds.
`--set KEY=VALUE` overrides a file; `\"none\"` unsets what may be unset.
`onegraph config KEY` explains one key.
`onegraph train CONFIG --print-config` shows the values of a config.

This file is generated from the structs in `configs/src/schema`.
After a change there, write it again:

```sh
ONEGRAPH_DOCS=write cargo test --release -p configs --test documents
```
";

/// `docs/config.md`: a table of keys per table of the config.
pub fn reference() -> String {
    let mut text = REFERENCE_HEAD.to_string();
    let mut table = "";
    for key in keys() {
        let (of, name) = key.name.rsplit_once('.').unwrap_or(("", &key.name));
        if of != table {
            table = of;
            let heading = if key.in_list { format!("[[{table}]]") } else { format!("[{table}]") };
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

impl Config {
    /// The whole resolved config as TOML, each key under a comment with its meaning, values and
    /// unit. Optional values that are not set are `"none"`. [`Config::from_toml`] gives the same
    /// config back.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn to_commented_toml(&self) -> Result<String, ConfigError> {
        let values = self.table()?;
        let mut text = String::new();
        let mut table = "";
        for key in keys() {
            let (of, name) = key.name.rsplit_once('.').unwrap_or(("", &key.name));
            let value = find(&values, &key.name);
            let is_switch = value.is_some_and(toml::Value::is_table) && key.default == "\"none\"";
            let is_absent = !of.is_empty() && !find(&values, of).is_some_and(toml::Value::is_table);
            if is_switch || is_absent {
                continue;
            }
            if of != table {
                table = of;
                let _ = write!(text, "\n[{table}]\n");
            }
            comment(&mut text, key);
            let value = value.map_or("\"none\"".into(), toml::Value::to_string);
            let _ = writeln!(text, "{name} = {value}");
        }
        Ok(text.trim_start().to_string())
    }

    /// The value of a dotted key as TOML; `"none"` if it is not set.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn value(&self, key: &str) -> Result<String, ConfigError> {
        let value = find(&self.table()?, key).map(toml::Value::to_string);
        Ok(value.unwrap_or("\"none\"".into()))
    }

    /// The config as a table, by way of text: an f32 is then the number that a user would write.
    pub(crate) fn table(&self) -> Result<toml::Table, ConfigError> {
        let parsed = self.to_toml()?.parse();
        parsed.map_err(|error: toml::de::Error| ConfigError::Write { message: error.to_string() })
    }
}

/// The meaning, wrapped, and a line of the values.
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
