//! Merges the values of several files and remembers which file each came from.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::check::NONE;
use crate::epochs::unset_replaced;
use crate::shape::{Shape, join};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, the preset or `--set`.
    pub file: String,
    /// Its place among the merged layers, from 1; a later one replaces values.
    pub layer: usize,
}

/// The source of each dotted key that is set and is not a table.
pub type Origins = BTreeMap<String, Origin>;

/// A key of earlier versions: a config keeps its meaning without.
const REMOVED: &str = "train.tuning";

/// Takes [`REMOVED`] out of a layer; the key if it was there.
pub(crate) fn take_removed(table: &mut Table) -> Option<&'static str> {
    let (group, name) = REMOVED.split_once('.')?;
    table.get_mut(group)?.as_table_mut()?.remove(name).map(|_| REMOVED)
}

/// A sentence for a key that is set, and is no more.
pub fn removed(origins: &Origins) -> Option<String> {
    origins.get(REMOVED).map(|origin| {
        format!(
            "{REMOVED} ({}) is not read: there are no tables of measured kernels any more, and \
             plans follow their model of time",
            origin.file
        )
    })
}

/// The merged tables of several files, and the file of each value.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// The merged table.
    pub(crate) table: Table,
    pub(crate) origins: Origins,
    /// The layers so far; all of `--set` are one.
    files: Vec<String>,
}

impl Layers {
    /// Applies a checked layer: tables merge, anything else replaces, `"none"` unsets an optional
    /// value. A key that was `removed` has an origin alone.
    pub(crate) fn push(&mut self, file: &str, table: Table, removed: Option<&str>, shape: &Shape) {
        let Self { table: base, origins, files } = self;
        if files.last().is_none_or(|last| last != file) {
            files.push(file.to_string());
        }
        let layer = files.len();
        let origin = Origin { file: file.to_string(), layer };
        merge("", base, table.clone(), shape, &mut |key| {
            origins.insert(key, origin.clone());
        });
        let is_of_layer = |key: &str| origins.get(key).is_some_and(|known| known.layer == layer);
        for key in unset_replaced(base, &table, is_of_layer).into_iter().chain(removed) {
            origins.insert(key.to_string(), origin.clone());
        }
    }

    /// The file that a key's value comes from; for a table, the origin of any value in it, and for
    /// a key of tables in a list, that of the list.
    pub(crate) fn origin(&self, key: &str) -> Option<&str> {
        let inside = format!("{key}.");
        let within = || self.origins.iter().find(|(k, _)| k.starts_with(&inside)).map(|(_, o)| o);
        let found = self.origins.get(key).or_else(within).map(|origin| origin.file.as_str());
        found.or_else(|| self.origin(key.rsplit_once('.')?.0))
    }
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

/// An item of a list; a table without the values that are unset.
fn present(item: Value, shape: &Shape) -> Value {
    let Value::Table(given) = item else { return item };
    let mut table = Table::new();
    merge("", &mut table, given, shape, &mut |_| ());
    Value::Table(table)
}
