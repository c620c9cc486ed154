//! Measurements of a GPU's matrix products: plans follow them before their model of time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kernel of a product, and the splits of its reduction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The kernel's name.
    pub kernel: String,
    /// Splits of the reduction, each summed by blocks of its own.
    pub splits: usize,
}

/// The measurements that plans follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// False if the kernels of warpgroups failed their check on this GPU: plans leave them out.
    pub warpgroups: bool,
    /// The choice for a product, by its name; the model of time decides where there is none.
    pub choices: BTreeMap<String, Choice>,
    /// SHA-256 of the table of the choices, if they are from one.
    pub table: Option<String>,
}

impl Default for Tuning {
    /// Nothing was measured.
    fn default() -> Self {
        Self { warpgroups: true, choices: BTreeMap::new(), table: None }
    }
}
