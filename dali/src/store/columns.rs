//! Columns: additional numbers per object that a model needs, besides box, mask and keypoints.

use serde::{Deserialize, Serialize};

/// A column of a store: a list of numbers that annotations contain under the key `name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The key in an annotation.
    pub name: String,
    /// Numbers per object.
    pub width: usize,
}

/// Total numbers per object in several columns.
pub(crate) fn width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width).sum()
}

/// The numbers of one column in `row`, which has an object's numbers of all columns; `None` if the
/// store has no such column. The numbers are NaN if the object's annotation lacks the key.
#[must_use]
pub fn column<'a>(columns: &[Column], name: &str, row: &'a [f32]) -> Option<&'a [f32]> {
    let mut first = 0;
    for column in columns {
        if column.name == name {
            return row.get(first..first + column.width);
        }
        first += column.width;
    }
    None
}
