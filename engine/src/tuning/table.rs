//! The file of `onegraph tune`: for each product of a config's programs the kernel and the splits
//! that took the least time, on one GPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use device::Choice;
use serde::{Deserialize, Serialize};

use crate::checkpoint::hex_digest;
use crate::error::EngineError;

/// Version of the layout.
const FORMAT: u32 = 1;

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Version of the layout.
    pub(crate) format: u32,
    /// Name of the GPU.
    pub(crate) gpu: String,
    /// GPU and driver, in words.
    pub(crate) device: String,
    /// Commit of the program.
    pub(crate) commit: String,
    /// SHA-256 of the kernels' PTX.
    pub kernels_sha256: String,
    /// Time of writing.
    pub(crate) written: String,
    /// The command.
    pub(crate) command: String,
    /// Runs of each choice.
    pub(crate) repeats: usize,
    /// The products by name.
    pub(crate) products: BTreeMap<String, Row>,
}

/// The measurements of one product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Launches in the programs that were measured, each once.
    pub(crate) launches: usize,
    /// The fastest choice, which plans take.
    pub(crate) best: Choice,
    /// Its median, in milliseconds, with the sum of its splits.
    pub(crate) best_ms: f64,
    /// The choice of the model of time.
    pub(crate) model: Choice,
    /// Its median; none if it was refused.
    pub(crate) model_ms: Option<f64>,
    /// Choices that were measured.
    pub(crate) measured: usize,
    /// Choices that computed something else, or ended their process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<Refused>,
}

/// A choice that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    /// The choice.
    pub(crate) choice: Choice,
    /// Why.
    pub(crate) reason: String,
}

impl Table {
    /// A table without products, of this GPU and the kernels of this program.
    pub(super) fn new(gpu: String, device: String, repeats: usize) -> Self {
        Self {
            format: FORMAT,
            gpu,
            device,
            commit: crate::provenance::commit().unwrap_or("unknown").into(),
            kernels_sha256: super::kernels_sha256(),
            written: crate::provenance::now(),
            command: crate::provenance::command(),
            repeats,
            products: BTreeMap::new(),
        }
    }

    /// Reads the table of a GPU of this name, and its SHA-256.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for a file that is no table, or one of another GPU or other kernels.
    pub(crate) fn read(path: &Path, gpu: &str) -> Result<(Self, String), EngineError> {
        let refused = |why: String| {
            EngineError::Usage(format!(
                "train.tuning: {} {why}; make one by `onegraph tune CONFIG --out FILE`, or leave \
                 train.tuning out",
                path.display()
            ))
        };
        let bytes = fs::read(path).map_err(|e| refused(format!("cannot be read: {e}")))?;
        let table: Self = serde_json::from_slice(&bytes)
            .map_err(|e| refused(format!("is no table of tuning: {e}")))?;
        if table.format != FORMAT {
            return Err(refused(format!("has format {}, not {FORMAT}", table.format)));
        }
        if table.gpu != gpu {
            return Err(refused(format!("is of another GPU: {}, and this is {gpu}", table.gpu)));
        }
        if table.kernels_sha256 != super::kernels_sha256() {
            return Err(refused(format!(
                "is of the kernels of commit {}, not these",
                table.commit
            )));
        }
        let mut choices = table.products.iter().map(|(name, row)| (name, &row.best));
        let unknown = choices
            .find(|(_, best)| best.splits == 0 || !kernels::choices::is_kernel(&best.kernel));
        if let Some((name, best)) = unknown {
            let Choice { kernel, splits } = best;
            return Err(refused(format!("states no kernel for `{name}`: {kernel} x {splits}")));
        }
        Ok((table, hex_digest(&bytes)))
    }

    /// The choices that plans take.
    pub(crate) fn choices(&self) -> BTreeMap<String, Choice> {
        self.products.iter().map(|(name, row)| (name.clone(), row.best.clone())).collect()
    }

    /// The file's text.
    pub(crate) fn to_json(&self) -> String {
        // Numbers and text: nothing that JSON does not have.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
