//! Checkpoints: directories with weights, optimizer state, config and checksums. A checkpoint is
//! written under a temporary name, synced and renamed, so an interrupted write leaves the previous
//! checkpoint intact.

mod meta;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dali::decode::Exif;
use dali::unfinished::Unfinished;
use graph::StateSet;
use kernels::cpu::{HostData, HostTensor};
use kernels::{DType, Role, TensorDesc};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::classes::stored_classes;
use crate::error::EngineError;
use crate::model::{AVERAGE, Param, is_transient};
use crate::remote;
use crate::run_dir::{Choice, best_of, io, make_one, replace};
use crate::weights::save_weights;

pub(crate) use meta::hex_digest;
pub use meta::{Meta, Override};

const META: &str = "checkpoint.json";
const MODEL: &str = "model.safetensors";
const STATE: &str = "state.safetensors";
const CONFIG: &str = "config.toml";
/// Suffixes of directories that are being written, replaced or removed.
const ENDS: [&str; 4] = ["tmp", "old", "removed", "tmp.removed"];
/// Advice appended to the message about a checkpoint that cannot be read.
const MEND: &str = "; to use an earlier checkpoint, write checkpoints/NAME into last_checkpoint";

/// The contents of a checkpoint.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Everything that training updates.
    pub state: &'a StateSet,
    /// The model's parameters, whose names are torchvision's.
    pub params: &'a [Param],
    /// True if `model.safetensors` contains the moving averages in place of the parameters that
    /// have one.
    pub averages: bool,
    /// Steps done.
    pub steps_done: u64,
    /// Class names and COCO ids.
    pub categories: &'a [(String, u64)],
    /// Names of the model's keypoints; empty if it has none.
    pub keypoints: &'a [String],
    /// Identity of the training data.
    pub data: &'a str,
    /// Treatment of the training images' EXIF rotation; none if no image has one.
    pub exif: Option<Exif>,
    /// Changes to the config that the user accepted when resuming.
    pub overrides: &'a [Override],
    /// The resolved config, as TOML.
    pub config: &'a str,
}

/// The checkpoints to keep when a new one is saved.
#[derive(Debug, Clone, Copy)]
pub struct Keep<'a> {
    /// Number of newest checkpoints to keep, including the one just written; 0 keeps all.
    pub newest: usize,
    /// Steps of additional checkpoints to keep.
    pub steps: &'a [u64],
}

/// A checkpoint that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its directory.
    pub path: PathBuf,
    /// SHA-256 of its weights, `model.safetensors`, in hex.
    pub weights_sha256: String,
}

/// A checkpoint's folder inside the run directory.
pub fn folder(steps_done: u64) -> String {
    format!("checkpoints/step_{steps_done:08}")
}

/// Writes `run/checkpoints/step_XXXXXXXX` and records it in `run/last_checkpoint`; then removes the
/// checkpoints that `keep` does not retain, oldest first.
///
/// # Errors
/// [`EngineError::Io`] names the file; earlier checkpoints are unchanged.
pub fn save(run: &Path, snapshot: &Snapshot<'_>, keep: Keep<'_>) -> Result<Saved, EngineError> {
    let parent = run.join("checkpoints");
    let name = format!("step_{:08}", snapshot.steps_done);
    let (done, beside) = (parent.join(&name), parent.join(format!(".{name}.tmp")));
    remove_unfinished(&parent);
    let mark = Unfinished::mark(&beside);
    // Does not create the run directory if it was removed or moved away.
    [&parent, &beside].into_iter().try_for_each(|folder| make_one(folder))?;
    let (bytes, weights_sha256) = write_files(&beside, &done, snapshot).inspect_err(|_| {
        // A second error is ignored: the caller gets the one that stopped the write.
        let _ = fs::remove_dir_all(&beside);
    })?;
    drop(mark);
    // This step may have been saved before, and last_checkpoint may name that checkpoint. It is
    // renamed first and removed last, so that a complete checkpoint always exists, except between
    // the two renames.
    let retired = parent.join(format!(".{name}.old"));
    if done.exists() {
        fs::rename(&done, &retired).map_err(io(&done))?;
    }
    fs::rename(&beside, &done).map_err(io(&done))?;
    File::open(&parent).and_then(|dir| dir.sync_all()).map_err(io(&parent))?;
    replace(&run.join("last_checkpoint"), format!("checkpoints/{name}\n").as_bytes())?;
    remove_unfinished(&parent);
    remove_old(&parent, keep, &name);
    tracing::info!(step = snapshot.steps_done, bytes, path = %done.display(), "wrote a checkpoint");
    Ok(Saved { path: done, weights_sha256 })
}

/// Writes the files of the checkpoint `done` into the temporary directory `dir`. Returns their
/// total length in bytes, and the SHA-256 of the weights.
fn write_files(
    dir: &Path,
    done: &Path,
    snapshot: &Snapshot<'_>,
) -> Result<(usize, String), EngineError> {
    let (mut sha256, mut written) = (BTreeMap::new(), 0);
    // The files are serialized one after another: each needs at least as much memory as the
    // weights.
    let mut write = |file: &str, bytes: &[u8]| {
        sha256.insert(file.to_string(), hex_digest(bytes));
        written += bytes.len();
        replace(&dir.join(file), bytes)
    };
    let Snapshot { params, state, categories, keypoints, averages, .. } = *snapshot;
    write(MODEL, &save_weights(params, state, (categories, keypoints), averages)?)?;
    write(STATE, &serialize_state(snapshot.state, done)?)?;
    write(CONFIG, snapshot.config.as_bytes())?;
    let weights = sha256[MODEL].clone();
    let meta = Meta {
        format: meta::FORMAT,
        version: Some(env!("CARGO_PKG_VERSION").to_string()),
        steps_done: snapshot.steps_done,
        categories: stored_classes(snapshot.categories),
        data: Some(snapshot.data.to_string()),
        exif: snapshot.exif,
        overrides: snapshot.overrides.to_vec(),
        sha256,
        seal: None,
    };
    let json = meta
        .sealed()
        .map_err(|e| EngineError::Checkpoint { path: done.to_path_buf(), reason: e.to_string() })?;
    replace(&dir.join(META), &json)?;
    Ok((written, weights))
}

/// The checkpoint that `choice` selects in `run`, or `run` itself if it is a checkpoint; and a
/// message that names the checkpoint and the reason.
///
/// # Errors
/// As for [`last`], and errors of staging a run in S3.
pub fn choose(run: &Path, choice: Choice) -> Result<(PathBuf, String), EngineError> {
    let run = &remote::trained(run, choice)?;
    let is_one = |path: &Path| path.join(META).is_file();
    if is_one(run) {
        return Ok((run.clone(), format!("weights: {}", run.display())));
    }
    let last = last(run)?;
    let (path, why) = match best_of(run).filter(|_| choice == Choice::Best) {
        Some((best, _)) if is_one(&run.join(&best)) => {
            let best = run.join(best);
            let name = last.file_name().unwrap_or_default().to_string_lossy();
            let why = match best == last {
                true => "best and last".into(),
                false => format!("best; the last is {name}: --checkpoint last"),
            };
            (best, why)
        }
        Some((best, _)) => {
            (last, format!("last; warning: best.json names {best}, which does not exist"))
        }
        None => (last, "last".into()),
    };
    let line = format!("weights: {} ({why})", path.display());
    Ok((path, line))
}

/// The checkpoint that `run/last_checkpoint` names.
///
/// # Errors
/// [`EngineError::Checkpoint`] if the run has no `last_checkpoint`.
pub fn last(run: &Path) -> Result<PathBuf, EngineError> {
    let pointer = run.join("last_checkpoint");
    let name = fs::read_to_string(&pointer).map_err(|fault| match fault.kind() {
        ErrorKind::NotFound => EngineError::Checkpoint {
            path: run.to_path_buf(),
            reason: "there is no last_checkpoint in it: it is not a run directory, or the run \
                     never saved anything"
                .to_string(),
        },
        _ => io(&pointer)(fault),
    })?;
    match name.trim() {
        "" => {
            let reason = format!("it is empty{MEND}");
            Err(EngineError::Checkpoint { path: pointer, reason })
        }
        name => Ok(run.join(name)),
    }
}

/// Reads a checkpoint's metadata and verifies its files. Also returns the config that it was
/// trained with, as TOML.
///
/// # Errors
/// [`EngineError::Checkpoint`] names the missing or damaged file.
pub fn open(path: &Path) -> Result<(Meta, String), EngineError> {
    let fault = |reason: String| EngineError::Checkpoint { path: path.to_path_buf(), reason };
    let json = fs::read(path.join(META)).map_err(|e| fault(format!("{META}: {e}{MEND}")))?;
    let meta = Meta::read(&json, path, &[MODEL, STATE, CONFIG])
        .map_err(|reason| fault(format!("{META}: {reason}{MEND}")))?;
    for (file, expected) in &meta.sha256 {
        let bytes = fs::read(path.join(file)).map_err(|e| fault(format!("{file}: {e}{MEND}")))?;
        if hex_digest(&bytes) != *expected {
            return Err(fault(format!("{file} is damaged: its checksum is wrong{MEND}")));
        }
    }
    let config = fs::read_to_string(path.join(CONFIG));
    Ok((meta, config.map_err(|e| fault(format!("{CONFIG}: {e}")))?))
}

/// Treatment of the training images' EXIF rotation, from the checkpoint metadata next to a weights
/// file; `None` without metadata.
pub(crate) fn exif_of(weights: &Path) -> Option<Exif> {
    let path = remote::sibling(&weights.with_file_name(META)).ok()?;
    let json = dali::file::read(&path).ok()?;
    serde_json::from_slice::<Meta>(&json).ok()?.exif
}

/// Copies the saved state into `state`; every tensor of `state` that persists across steps must be
/// in the checkpoint, with its shape.
///
/// # Errors
/// [`EngineError::Checkpoint`] names the tensor that is missing or has a different shape.
pub fn restore(path: &Path, state: &mut StateSet) -> Result<(), EngineError> {
    let names = state.iter().map(|(name, _)| name).filter(|name| !is_transient(name));
    let names = names.map(str::to_string).collect();
    restore_tensors(path, state, names, false)
}

/// Like [`restore`], but copies only the tensors `names`. With `averages`, the saved moving average
/// is used for each tensor that has one.
///
/// # Errors
/// As for [`restore`].
pub fn restore_tensors(
    path: &Path,
    state: &mut StateSet,
    names: Vec<String>,
    averages: bool,
) -> Result<(), EngineError> {
    let fault = |reason: String| EngineError::Checkpoint { path: path.to_path_buf(), reason };
    let bytes = fs::read(path.join(STATE)).map_err(|e| fault(format!("{STATE}: {e}")))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fault(format!("{STATE}: {e}")))?;
    for name in names {
        let average = file.tensor(&format!("{AVERAGE}{name}")).ok().filter(|_| averages);
        let saved = average.or_else(|| file.tensor(&name).ok());
        let saved = saved.ok_or_else(|| fault(format!("it lacks `{name}`")))?;
        let Some(tensor) = state.get_mut(&name) else { continue };
        if saved.shape() != tensor.desc.shape || saved.data().len() != tensor.bytes().len() {
            let (ours, theirs) = (&tensor.desc.shape, saved.shape());
            return Err(fault(format!(
                "`{name}` has shape {theirs:?} in it, but {ours:?} with this config"
            )));
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
    let serialize = |mut views: Vec<(&str, TensorView<'_>)>| {
        views.retain(|(name, _)| !is_transient(name));
        safetensors::serialize(views, None)
    };
    state_views(state)
        .and_then(serialize)
        .map_err(|e| EngineError::Checkpoint { path: path.to_path_buf(), reason: e.to_string() })
}

/// The tensors of a state set, for a safetensors file.
///
/// # Errors
/// Errors of the safetensors writer; none in practice.
pub(crate) fn state_views(
    state: &StateSet,
) -> Result<Vec<(&str, TensorView<'_>)>, safetensors::SafeTensorError> {
    let view = |(name, t)| {
        let t: &HostTensor = t;
        let dtype = match t.data {
            HostData::F32(_) => Dtype::F32,
            HostData::I32(_) => Dtype::I32,
            HostData::U8(_) => Dtype::U8,
        };
        debug_assert_ne!(t.desc.role.cpu_dtype(), DType::F16);
        Ok((name, TensorView::new(dtype, t.desc.shape.clone(), t.bytes())?))
    };
    state.iter().map(view).collect()
}

/// A state tensor from a safetensors file.
///
/// # Errors
/// An element type that no state tensor has.
pub(crate) fn tensor_of(view: &TensorView<'_>) -> Result<HostTensor, String> {
    let role = match view.dtype() {
        Dtype::F32 => Role::Master,
        Dtype::I32 => Role::Index,
        Dtype::U8 => Role::Pixels,
        other => return Err(format!("it has element type {other:?}, which no state tensor has")),
    };
    let mut tensor = HostTensor::poisoned(TensorDesc::new(role, view.shape()));
    tensor.bytes_mut().copy_from_slice(view.data());
    Ok(tensor)
}

/// Cleans up a run after its process was killed: restores a checkpoint that was renamed but not yet
/// replaced, and removes partly written or partly removed ones. Only for the process that holds the
/// run's lock.
pub fn tidy(run: &Path) {
    let parent = run.join("checkpoints");
    let last = last(run).unwrap_or_default();
    if let Some(name) = last.file_name().filter(|_| !last.exists()) {
        // If the renamed checkpoint does not exist either, resuming reports the missing one.
        let _ = fs::rename(parent.join(format!(".{}.old", name.to_string_lossy())), &last);
    }
    remove_unfinished(&parent);
    let is_ours = |name: &str| [MODEL, STATE, CONFIG].contains(&name);
    for (_, path) in entries(&parent).into_iter().filter(|(name, _)| is_step(name)) {
        if path != last && entries(&path).iter().all(|(name, _)| is_ours(name)) {
            remove_all(&path);
        }
    }
    [run.to_path_buf(), run.join("pictures"), run.join("inference")].iter().for_each(|folder| {
        dali::file::sweep(folder);
    });
}

/// Removes the directories that an interrupted write or removal left: unfinished, replaced or
/// partly removed checkpoints.
fn remove_unfinished(parent: &Path) {
    for (name, path) in entries(parent) {
        let parts = name.strip_prefix('.').and_then(|name| name.split_once('.'));
        let is_ours = |(step, end)| is_step(step) && ENDS.contains(&end);
        if parts.is_some_and(is_ours) {
            remove_all(&path);
        }
    }
}

/// The names and paths of a directory's entries.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = |entry: fs::DirEntry| (entry.file_name().to_string_lossy().into(), entry.path());
    entries.map(named).collect()
}

/// True if this is the name of a checkpoint folder, not of a folder that a user created.
fn is_step(name: &str) -> bool {
    let step = name.strip_prefix("step_").and_then(|digits| digits.parse::<u64>().ok());
    step.is_some_and(|step| format!("step_{step:08}") == name)
}

/// Removes a checkpoint. It is renamed first, so that a partly removed checkpoint is never used.
fn remove(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.removed"));
    let moved = fs::rename(path, &aside);
    remove_all(if moved.is_ok() { &aside } else { path });
}

/// Removes a folder. A failure is only logged: the checkpoint just written is complete anyway.
fn remove_all(path: &Path) {
    if let Err(fault) = fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), %fault, "cannot remove an old checkpoint");
    }
}

/// Removes the checkpoints with the lowest steps that `keep` does not retain, but never `newest`,
/// whose step may be the lowest if the run was resumed from an earlier checkpoint.
fn remove_old(parent: &Path, keep: Keep<'_>, newest: &str) {
    if keep.newest == 0 {
        return;
    }
    let kept: Vec<String> = keep.steps.iter().map(|step| format!("step_{step:08}")).collect();
    let mut found = entries(parent);
    found.retain(|(name, path)| is_step(name) && name != newest && path.join(META).is_file());
    // Sorted by length first: step names may have eight digits or more.
    found.sort_by_key(|(name, _)| (name.len(), name.clone()));
    let old = (found.len() + 1).saturating_sub(keep.newest);
    for (name, path) in &found[..old] {
        if !kept.contains(name) {
            remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn best_checkpoint_is_chosen_if_present() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        ["step_8", "step_12"].iter().for_each(|step| put(&run.join(step).join(META), "{}"));
        put(&run.join("last_checkpoint"), "step_12");
        let (last, best) = ("step_12 (last)", "step_8 (best; the last is step_12: ");
        for (named, choice, why) in [
            ("null", Choice::Best, last),
            ("\"step_8\"", Choice::Best, best),
            ("\"step_8\"", Choice::Last, last),
            ("\"step_12\"", Choice::Best, "step_12 (best and last)"),
            ("\"step_6\"", Choice::Best, "step_12 (last; warning: best.json names step_6, which"),
        ] {
            let json = format!(r#"{{"metric":"mask","ap":0.5,"step":8,"checkpoint":{named}}}"#);
            put(&run.join("best.json"), &json);
            let (path, line) = choose(run, choice).unwrap();
            assert!(line.contains(why), "{line}");
            assert_eq!(choose(&path, choice).unwrap().0, path, "it is taken as given");
        }
    }

    #[test]
    fn cleanup_removes_only_killed_processes_files() {
        let run = tempfile::tempdir().expect("a folder");
        let parent = run.path().join("checkpoints");
        let left = [".step_00000002.tmp", ".step_00000001.removed", "step_00000003"];
        left.iter().for_each(|folder| put(&parent.join(folder).join(MODEL), "x"));
        let kept = [".step_mine.tmp/x", "step_00000004/x", "step_00000005/checkpoint.json"];
        // The last checkpoint, as left by a process that was killed between the two renames.
        let moved = [".step_00000006.old/checkpoint.json"];
        kept.iter().chain(&moved).for_each(|file| put(&parent.join(file), "x"));
        put(&run.path().join("last_checkpoint"), "checkpoints/step_00000006\n");
        tidy(run.path());
        let there = |name: &&str| parent.join(name).exists();
        assert!(!left.iter().any(there) && kept.iter().all(there), "{:?}", entries(&parent));
        assert!(there(&"step_00000006/checkpoint.json") && !there(&".step_00000006.old"));
    }
}
