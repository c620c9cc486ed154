//! The state dict inside a pickle, possibly nested in other dicts.

use std::collections::BTreeMap;

use super::array::{Array, Budget};
use super::{HOLDERS, Values, is_counter};
use crate::weights::pickle::{Id, Pickle};

/// Tensors by name. `array` converts a value of the pickle to a tensor, and returns `None` for
/// values of other types.
///
/// # Errors
/// A message: no dict, invalid or duplicate names, or the error of `array`.
pub(super) fn tensors<'a>(
    pickle: &Pickle<'_>,
    file_bytes: usize,
    array: impl Fn(Id) -> Result<Option<Array<'a>>, String>,
) -> Result<BTreeMap<String, Values>, String> {
    let entries = state_dict(pickle)?;
    let mut budget = Budget::of(file_bytes);
    let mut tensors = BTreeMap::new();
    for (name, value) in entries {
        let name = name.as_str();
        // Skips step counters, and the momenta that Caffe2's solver saved.
        if is_counter(name) || name.ends_with("_momentum") {
            continue;
        }
        let found = array(value).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        let Some(found) = found else {
            let kind = pickle.kind(value);
            return Err(format!("`{name}` is {kind}, not a tensor: save only the state dict"));
        };
        let values = found.values(name, &mut budget)?;
        if tensors.insert(name.to_string(), (found.shape, values)).is_some() {
            return Err(format!("it holds `{name}` twice"));
        }
    }
    Ok(tensors)
}

/// Names and values of the state dict.
fn state_dict(pickle: &Pickle<'_>) -> Result<Vec<(String, Id)>, String> {
    let mut dict = pickle.root();
    let named = |dict: Id| -> Result<Vec<(String, Id)>, String> {
        let entries = pickle.entries(dict).ok_or_else(|| {
            format!("it contains {}, not a dict of tensors: save the state dict", pickle.kind(dict))
        })?;
        let name = |key: Id| {
            let name = pickle.text(key);
            name.ok_or_else(|| format!("its dict has {} as a key", pickle.kind(key)))
        };
        entries.into_iter().map(|(key, value)| Ok((name(key)?, value))).collect()
    };
    // Limits the nesting, since a dict may contain itself.
    for _ in HOLDERS {
        let entries = named(dict)?;
        let inner = HOLDERS.iter().find_map(|holder| {
            let (_, value) = entries.iter().find(|(name, _)| name == holder)?;
            pickle.entries(*value).map(|_| *value)
        });
        match inner {
            Some(inner) => dict = inner,
            None => return Ok(entries),
        }
    }
    Err("its state dict is nested too deeply: save only the state dict".into())
}
