//! Selects the split of a folder to read.

use std::path::Path;

use super::fault;
use crate::error::DaliError;

/// Value of `--split` that selects all splits.
pub(super) const ALL: &str = "all";

/// `train`, `val` or `test` if a name contains the word, as in `instances_train2017` or `valid`.
pub(super) fn of_name(name: &str) -> Option<&'static str> {
    let words = name.split(|c: char| !c.is_ascii_alphabetic());
    words.map(str::to_ascii_lowercase).find_map(|word| match word.as_str() {
        "train" | "training" => Some("train"),
        "val" | "valid" | "validation" => Some("val"),
        "test" | "testing" => Some("test"),
        _ => None,
    })
}

/// The names of the splits to read, from the available names.
///
/// # Errors
/// A message if several splits are available and none is selected, or if the selected split is not
/// available.
pub(super) fn chosen<'a>(
    path: &Path,
    there: &[&'a str],
    wanted: Option<&str>,
) -> Result<Vec<&'a str>, DaliError> {
    let names = there.join(", ");
    match (wanted, there) {
        (Some(ALL), _) | (None, [] | [_]) => Ok(there.to_vec()),
        (Some(wanted), _) => match there.iter().find(|name| **name == wanted) {
            Some(name) => Ok(vec![*name]),
            None if there.is_empty() => {
                Err(fault(path, format!("has no splits; leave --split {wanted} out")))
            }
            None => Err(fault(path, format!("has no split {wanted}; --split takes {names}"))),
        },
        (None, _) => Err(fault(
            path,
            format!("has the splits {names}; choose one with --split, or take --split {ALL}"),
        )),
    }
}
