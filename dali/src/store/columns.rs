//! Columns: numbers of each object that a model needs, in addition to its box, mask and keypoints.

use serde::{Deserialize, Serialize};

/// A column of a store: numbers that annotations have as a list under a key of this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its key in an annotation.
    pub name: String,
    /// Numbers per object.
    pub width: usize,
}

/// Numbers per object in all of these columns.
pub(crate) fn width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width).sum()
}

/// The numbers of one column in an object's row of all; none if the store has no such column. NaNs
/// for an object whose annotation lacks them.
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
