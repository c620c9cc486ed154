//! The recorded counts: `ptx/sass.json`.

use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::{Measured, Sm};
use crate::Fault;

/// The record of the hot kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Name and version of the assembler.
    pub assembler: String,
    /// Name and version of the disassembler.
    pub disassembler: String,
    /// PTX files with hot kernels, by name.
    pub sources: Vec<RecordedPtx>,
}

/// One PTX file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedPtx {
    /// The file in `ptx/`.
    pub ptx: String,
    /// Hash of the PTX file that was counted.
    pub ptx_sha256: String,
    /// Its hot kernels, once per GPU.
    pub kernels: Vec<RecordedKernel>,
}

/// One kernel on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedKernel {
    /// The `extern "C"` name.
    pub name: String,
    /// The assembler's name of the GPU.
    pub target: String,
    /// The counts.
    pub counts: Counts,
    /// Why these counts may be worse than their predecessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
}

impl Record {
    /// File name in `ptx/`.
    pub const FILE: &str = "sass.json";

    /// Parses a record.
    ///
    /// # Errors
    /// Text that is not a record.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        serde_json::from_str(text).map_err(|e| Fault(format!("{}: {e}", Self::FILE)))
    }

    /// The record as JSON with one line per kernel and GPU: a change of one shows as one.
    ///
    /// # Errors
    /// None for valid counts.
    pub fn text(&self) -> Result<String, Fault> {
        let mut text = format!(
            "{{\n  \"assembler\": {},\n  \"disassembler\": {},\n  \"sources\": [",
            json(&self.assembler)?,
            json(&self.disassembler)?
        );
        for (i, source) in self.sources.iter().enumerate() {
            text.push_str(if i == 0 { "\n    {" } else { ",\n    {" });
            for (name, value) in [("ptx", &source.ptx), ("ptx_sha256", &source.ptx_sha256)] {
                text.push_str(&format!("\n      \"{name}\": {},", json(value)?));
            }
            let kernels = source.kernels.iter().map(|k| Ok(format!("\n        {}", json(k)?)));
            let kernels = kernels.collect::<Result<Vec<_>, Fault>>()?.join(",");
            text.push_str(&format!("\n      \"kernels\": [{kernels}\n      ]\n    }}"));
        }
        text.push_str("\n  ]\n}\n");
        Ok(text)
    }

    /// The record of a kernel on a GPU.
    pub fn kernel(&self, name: &str, target: &str) -> Option<&RecordedKernel> {
        self.kernels().find(|kernel| kernel.name == name && kernel.target == target)
    }

    /// All kernels on all GPUs.
    pub fn kernels(&self) -> impl Iterator<Item = &RecordedKernel> {
        self.sources.iter().flat_map(|source| &source.kernels)
    }

    /// Adds the counts of a PTX file.
    pub(crate) fn add(&mut self, ptx: &str, ptx_sha256: &str, measured: &[Measured]) {
        let kernels = measured.iter().map(|one| RecordedKernel {
            name: one.kernel.clone(),
            target: one.target.name().into(),
            counts: one.counts.clone(),
            accepted: None,
        });
        let mut kernels: Vec<RecordedKernel> = kernels.collect();
        kernels.sort_by(|a, b| (&a.name, &a.target).cmp(&(&b.name, &b.target)));
        let (ptx, ptx_sha256) = (ptx.to_string(), ptx_sha256.to_string());
        self.sources.push(RecordedPtx { ptx, ptx_sha256, kernels });
    }
}

impl RecordedKernel {
    /// The GPU; `None` for one that is no longer targeted.
    pub(crate) fn target(&self) -> Option<Sm> {
        Sm::ALL.into_iter().find(|target| target.name() == self.target)
    }
}

fn json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|e| Fault(format!("{}: {e}", Record::FILE)))
}
