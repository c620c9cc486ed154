//! Merges the values of several files and records which file each came from.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::ConfigError;
use crate::keys::find;
use crate::layer::{NONE, check_layer};
use crate::schema::Schema;
use crate::shape::{Shape, join};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, the preset or `--set`.
    pub file: String,
    /// Index of the layer among the merged layers, from 1; later layers override earlier ones.
    pub layer: usize,
}

/// The source of each dotted key that is set, except for tables.
pub type Origins = BTreeMap<String, Origin>;

impl Schema {
    /// Removes obsolete keys from a layer, and returns them.
    pub(crate) fn take_removed(&self, table: &mut Table) -> Vec<&'static str> {
        let mut take = |key: &str| {
            let (group, name) = key.split_once('.')?;
            table.get_mut(group)?.as_table_mut()?.remove(name)
        };
        let keys = self.facts.removed.iter().map(|(key, _)| *key);
        keys.filter(|key| take(key).is_some()).collect()
    }

    /// A message for each obsolete key that is set.
    pub fn removed(&self, origins: &Origins) -> impl Iterator<Item = String> {
        self.facts.removed.iter().filter_map(move |(key, why)| {
            origins.get(*key).map(|origin| format!("{key} ({}) is ignored: {why}", origin.file))
        })
    }
}

/// The merged tables of several files, and the file of each value.
#[derive(Debug)]
pub struct Layers {
    /// The merged table.
    pub table: Table,
    /// The source of each value.
    pub origins: Origins,
    /// Name of the first file, for messages.
    label: String,
    /// The files of the layers so far; all overrides form one layer.
    files: Vec<String>,
}

impl Layers {
    /// An empty stack of layers for a config called `label` in messages.
    pub(crate) fn of(label: String) -> Self {
        Self { table: Table::new(), origins: Origins::new(), label, files: vec![] }
    }

    /// Deserializes the merged table into a config.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`] if a field rejects its value.
    pub fn read<C: DeserializeOwned>(&self) -> Result<C, ConfigError> {
        C::deserialize(Value::Table(self.table.clone())).map_err(|error| ConfigError::Syntax {
            file: self.label.clone(),
            line: 1,
            message: error.message().into(),
        })
    }

    /// The error for an invalid value, with the file that sets it.
    pub fn invalid(&self, (key, problem): (String, String)) -> ConfigError {
        let file = self.origin(&key).unwrap_or(&self.label).to_string();
        ConfigError::Invalid { file, key, problem }
    }

    /// Checks and applies a layer: tables are merged, other values are replaced, and `"none"`
    /// unsets an optional value. For obsolete keys only the origin is recorded.
    pub(crate) fn push(
        &mut self,
        file: &str,
        mut table: Table,
        schema: &Schema,
    ) -> Result<(), ConfigError> {
        let removed = schema.take_removed(&mut table);
        check_layer(file, &table, schema)?;
        let Self { table: base, origins, files, .. } = self;
        if files.last().is_none_or(|last| last != file) {
            files.push(file.to_string());
        }
        let layer = files.len();
        let origin = Origin { file: file.to_string(), layer };
        merge("", base, table.clone(), &schema.shape, &mut |key| {
            origins.insert(key, origin.clone());
        });
        let is_of_layer = |key: &str| origins.get(key).is_some_and(|known| known.layer == layer);
        let replaced = unset_replaced(base, &table, schema, is_of_layer);
        for key in replaced.into_iter().chain(removed) {
            origins.insert(key.to_string(), origin.clone());
        }
        Ok(())
    }

    /// The file that sets a key; for a table, the file that sets any value in it; for a key inside
    /// a list of tables, the file that sets the list.
    fn origin(&self, key: &str) -> Option<&str> {
        let inside = format!("{key}.");
        let within = || self.origins.iter().find(|(k, _)| k.starts_with(&inside)).map(|(_, o)| o);
        let found = self.origins.get(key).or_else(within).map(|origin| origin.file.as_str());
        found.or_else(|| self.origin(key.rsplit_once('.')?.0))
    }
}

/// For each key that the just merged layer `top` sets, unsets the alternative key
/// ([`crate::Facts::forms`]), and returns the unset keys. If one layer sets both keys, as a run's
/// config does, both are kept; `is_of_layer` is true for keys that the layer sets.
fn unset_replaced(
    base: &mut Table,
    top: &Table,
    schema: &Schema,
    is_of_layer: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let mut unset = Vec::new();
    for &[one, another] in schema.facts.forms {
        for (set, other) in [(one, another), (another, one)] {
            let is_set = find(top, set).is_some_and(|value| value.as_str().is_none());
            if !is_set || is_of_layer(other) {
                continue;
            }
            let Some((table, name)) = other.split_once('.') else { continue };
            let Some(Value::Table(table)) = base.get_mut(table) else { continue };
            match schema.shape.at(other) {
                Some(Shape::Optional(_)) => table.remove(name),
                Some(Shape::List { .. }) => table.insert(name.into(), Value::Array(vec![])),
                _ => table.insert(name.into(), Value::Integer(0)),
            };
            unset.push(other);
        }
    }
    unset
}

fn merge(
    prefix: &str,
    base: &mut Table,
    top: Table,
    shape: &Shape,
    note_origin: &mut impl FnMut(String),
) {
    for (name, value) in top {
        let key = join(prefix, &name);
        let mut fields = shape.fields().unwrap_or_default().iter();
        let shape = match shape {
            Shape::Map(item) => Some(&**item),
            _ => fields.find(|(known, _)| *known == name).map(|(_, shape)| shape),
        };
        let Some(shape) = shape else { continue };
        match value {
            Value::String(word) if word == NONE && matches!(shape, Shape::Optional(_)) => {
                base.remove(&name);
                note_origin(key);
            }
            Value::Table(top) => {
                let below = base.entry(name).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(below) = below {
                    merge(&key, below, top, shape, note_origin);
                }
            }
            Value::Array(items) if let Shape::List { item, .. } = shape => {
                let items = items.into_iter().map(|value| present(value, item)).collect();
                base.insert(name, Value::Array(items));
                note_origin(key);
            }
            value => {
                base.insert(name, value);
                note_origin(key);
            }
        }
    }
}

/// An item of a list; if it is a table, values set to `"none"` are removed.
fn present(item: Value, shape: &Shape) -> Value {
    let Value::Table(given) = item else { return item };
    let mut table = Table::new();
    merge("", &mut table, given, shape, &mut |_| ());
    Value::Table(table)
}
