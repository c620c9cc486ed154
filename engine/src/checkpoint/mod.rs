//! Checkpoints: a directory with weights, optimizer state, config and checksums. It is written
//! under a temporary name, synced and renamed, so an interrupted write leaves the last good one in
//! place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use graph::StateSet;
use kernels::DType;
use kernels::cpu::{HostData, HostTensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::model::Param;
use crate::run_dir::{io, write_whole};
use crate::weights::save_weights;

const FORMAT: u32 = 1;
const META: &str = "checkpoint.json";
const MODEL: &str = "model.safetensors";
const STATE: &str = "state.safetensors";
const CONFIG: &str = "config.toml";
/// Advice for a checkpoint that cannot be read.
const MEND: &str = "; to take an earlier one, write its name into last_checkpoint";

/// A checkpoint's metadata.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Meta {
    /// Version of the layout.
    pub format: u32,
    /// Steps done, one batch each: resuming continues with the next one.
    #[serde(rename = "batches")]
    pub steps_done: u64,
    /// Class names with their COCO ids, in the order of labels from 1.
    pub categories: Vec<(String, u64)>,
    /// SHA-256 of the other files, by name.
    pub sha256: BTreeMap<String, String>,
}

/// The contents of a checkpoint.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Everything that training updates.
    pub state: &'a StateSet,
    /// Parameters, for the weights under torchvision's names.
    pub params: &'a [Param],
    /// Steps done.
    pub steps_done: u64,
    /// Class names and COCO ids.
    pub categories: &'a [(String, u64)],
    /// The resolved config, as TOML.
    pub config: &'a str,
}

/// Writes `run/checkpoints/step_XXXXXXXX` and records it in `run/last_checkpoint`; then removes the
/// oldest beyond `keep` (0 keeps all).
///
/// # Errors
/// [`EngineError::Io`] names the file; earlier checkpoints are untouched.
pub fn save(run: &Path, snapshot: &Snapshot<'_>, keep: usize) -> Result<PathBuf, EngineError> {
    let parent = run.join("checkpoints");
    let name = format!("step_{:08}", snapshot.steps_done);
    let (done, beside) = (parent.join(&name), parent.join(format!(".{name}.tmp")));
    remove_unfinished(&parent)?;
    fs::create_dir_all(&beside).map_err(io(&beside))?;
    let files = [
        (MODEL, save_weights(snapshot.params, snapshot.state, snapshot.categories)?),
        (STATE, serialize_state(snapshot.state, &done)?),
        (CONFIG, snapshot.config.as_bytes().to_vec()),
    ];
    let mut sha256 = BTreeMap::new();
    for (file, bytes) in &files {
        sha256.insert(file.to_string(), hex_digest(bytes));
        write_whole(&beside.join(file), bytes)?;
    }
    let meta = Meta {
        format: FORMAT,
        steps_done: snapshot.steps_done,
        categories: snapshot.categories.to_vec(),
        sha256,
    };
    let json = serde_json::to_vec_pretty(&meta)
        .map_err(|e| EngineError::Checkpoint { path: done.clone(), reason: e.to_string() })?;
    write_whole(&beside.join(META), &json)?;
    // The same step may have been saved before, and last_checkpoint may name it: move it aside and
    // remove it last, so that except between two renames one of the two always exists.
    let retired = parent.join(format!(".{name}.old"));
    if done.exists() {
        fs::rename(&done, &retired).map_err(io(&done))?;
    }
    fs::rename(&beside, &done).map_err(io(&done))?;
    File::open(&parent).and_then(|dir| dir.sync_all()).map_err(io(&parent))?;
    write_whole(&run.join("last_checkpoint"), format!("checkpoints/{name}\n").as_bytes())?;
    remove_unfinished(&parent)?;
    remove_old(&parent, keep, &name)?;
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    tracing::info!(step = snapshot.steps_done, bytes, path = %done.display(), "wrote a checkpoint");
    Ok(done)
}

/// The checkpoint that `run/last_checkpoint` names.
///
/// # Errors
/// [`EngineError::Checkpoint`] if the run has none.
pub fn last(run: &Path) -> Result<PathBuf, EngineError> {
    let pointer = run.join("last_checkpoint");
    let name = fs::read_to_string(&pointer).map_err(|_| EngineError::Checkpoint {
        path: run.to_path_buf(),
        reason: "there is no last_checkpoint in it: it is not a run directory, or the run never \
                 saved anything"
            .to_string(),
    })?;
    Ok(run.join(name.trim()))
}

/// Reads and verifies a checkpoint's metadata and files; also returns the config that it was
/// trained with.
///
/// # Errors
/// [`EngineError::Checkpoint`] names the missing or damaged file.
pub fn open(path: &Path) -> Result<(Meta, String), EngineError> {
    let fault = |reason: String| EngineError::Checkpoint { path: path.to_path_buf(), reason };
    let json = fs::read(path.join(META)).map_err(|e| fault(format!("{META}: {e}{MEND}")))?;
    let meta: Meta =
        serde_json::from_slice(&json).map_err(|e| fault(format!("{META}: {e}{MEND}")))?;
    if meta.format != FORMAT {
        return Err(fault(format!(
            "its format is {}, this program reads {FORMAT}: use the version that wrote it",
            meta.format
        )));
    }
    for (file, expected) in &meta.sha256 {
        let bytes = fs::read(path.join(file)).map_err(|e| fault(format!("{file}: {e}{MEND}")))?;
        if hex_digest(&bytes) != *expected {
            return Err(fault(format!("{file} is damaged: its checksum is wrong{MEND}")));
        }
    }
    let config = fs::read_to_string(path.join(CONFIG));
    Ok((meta, config.map_err(|e| fault(format!("{CONFIG}: {e}")))?))
}

/// Copies the saved state into `state`; every tensor of `state` must be in the checkpoint, with its
/// shape.
///
/// # Errors
/// [`EngineError::Checkpoint`] names the tensor that is missing or different.
pub fn restore(path: &Path, state: &mut StateSet) -> Result<(), EngineError> {
    let fault = |reason: String| EngineError::Checkpoint { path: path.to_path_buf(), reason };
    let bytes = fs::read(path.join(STATE)).map_err(|e| fault(format!("{STATE}: {e}")))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fault(format!("{STATE}: {e}")))?;
    let names: Vec<String> = state.iter().map(|(name, _)| name.to_string()).collect();
    for name in names {
        let saved = file.tensor(&name).map_err(|_| fault(format!("it lacks `{name}`")))?;
        let Some(tensor) = state.get_mut(&name) else { continue };
        if saved.shape() != tensor.desc.shape || saved.data().len() != tensor.bytes().len() {
            let (ours, theirs) = (&tensor.desc.shape, saved.shape());
            return Err(fault(format!("`{name}` is {theirs:?} in it and {ours:?} in the config")));
        }
        tensor.bytes_mut().copy_from_slice(saved.data());
    }
    Ok(())
}

/// Path of the weights inside a checkpoint.
pub fn weights_path(checkpoint: &Path) -> PathBuf {
    checkpoint.join(MODEL)
}

fn serialize_state(state: &StateSet, path: &Path) -> Result<Vec<u8>, EngineError> {
    let fault = |e: safetensors::SafeTensorError| EngineError::Checkpoint {
        path: path.to_path_buf(),
        reason: e.to_string(),
    };
    let view = |t: &HostTensor| {
        let dtype = match t.data {
            HostData::F32(_) => Dtype::F32,
            HostData::I32(_) => Dtype::I32,
            HostData::U8(_) => Dtype::U8,
        };
        debug_assert_ne!(t.desc.role.cpu_dtype(), DType::F16);
        (dtype, t.desc.shape.clone())
    };
    let views = state
        .iter()
        .map(|(name, t)| {
            let (dtype, shape) = view(t);
            Ok((name, TensorView::new(dtype, shape, t.bytes())?))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    safetensors::serialize(views, None).map_err(fault)
}

fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Removes the leftovers of an interrupted write: directories that were never renamed, and replaced
/// ones.
fn remove_unfinished(parent: &Path) -> Result<(), EngineError> {
    let Ok(entries) = fs::read_dir(parent) else { return Ok(()) };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = name.ends_with(".tmp") || name.ends_with(".old");
        if name.starts_with(".step_") && ours {
            fs::remove_dir_all(&path).map_err(io(&path))?;
        }
    }
    Ok(())
}

/// Removes the lowest steps beyond `keep`, but never `newest`: a run that was resumed from an
/// earlier step writes lower numbers than before.
fn remove_old(parent: &Path, keep: usize, newest: &str) -> Result<(), EngineError> {
    if keep == 0 {
        return Ok(());
    }
    let mut found: Vec<PathBuf> = fs::read_dir(parent)
        .map_err(io(parent))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("step_") && name != newest
        })
        .collect();
    found.sort();
    let old = (found.len() + 1).saturating_sub(keep);
    for path in &found[..old] {
        fs::remove_dir_all(path).map_err(io(path))?;
    }
    Ok(())
}
