//! The replay file: a safetensors file; values that are not tensors are JSON in its header.

use std::collections::HashMap;
use std::path::Path;

use crate::config::Config;
use graph::StateSet;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Replay;
use crate::checkpoint::{state_views, tensor_of};
use crate::error::EngineError;
use crate::model::{ImageSize, SlotShape};
use crate::run_dir::write_whole;

/// Header key of the description.
const KEY: &str = "onegraph_replay";
/// Header key of the checksum over the description and all tensors.
const SEAL: &str = "onegraph_replay_sha256";
const VERSION: u32 = 2;

/// The values of a replay that are not tensors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u32,
    step: u64,
    image_ids: Vec<u64>,
    /// Losses by name; values are text, as JSON has no NaN.
    losses: Vec<(String, String)>,
    config: String,
    num_classes: usize,
    /// Class weights, background first; empty if all are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    class_weights: Vec<f32>,
    /// Height and width.
    padded: [usize; 2],
    /// Pixels, objects, parts, coords, runs.
    slot: [usize; 5],
    micro_steps: usize,
}

impl Replay {
    /// Writes the replay to `path`.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub fn save(&self, path: &Path) -> Result<(), EngineError> {
        let fault = |reason: String| EngineError::Replay { path: path.to_path_buf(), reason };
        let SlotShape { pixels, objects, parts, coords, runs } = self.slot;
        let description = Description {
            version: VERSION,
            step: self.step,
            image_ids: self.image_ids.clone(),
            losses: self.losses.iter().map(|(n, v)| (n.clone(), v.to_string())).collect(),
            config: self.config.to_toml()?,
            num_classes: self.num_classes,
            class_weights: self.class_weights.clone(),
            padded: [self.padded.height, self.padded.width],
            slot: [pixels, objects, parts, coords, runs],
            micro_steps: self.batches.len(),
        };
        let json = serde_json::to_string(&description).map_err(|e| fault(e.to_string()))?;
        let state = state_views(&self.state).map_err(|e| fault(e.to_string()))?;
        let mut views: Vec<(String, TensorView<'_>)> =
            state.into_iter().map(|(name, view)| (format!("state/{name}"), view)).collect();
        for (micro, arrays) in self.batches.iter().enumerate() {
            for (name, bytes) in arrays {
                let view = TensorView::new(Dtype::U8, vec![bytes.len()], bytes);
                let view = view.map_err(|e| fault(e.to_string()))?;
                views.push((format!("batch/{micro}/{name}"), view));
            }
        }
        let seal = seal(&json, views.iter().map(|(name, view)| (name.as_str(), view.data())));
        let header = HashMap::from([(KEY.to_string(), json), (SEAL.to_string(), seal)]);
        let bytes =
            safetensors::serialize(views, Some(header)).map_err(|e| fault(e.to_string()))?;
        write_whole(path, &bytes)
    }

    /// Reads a replay from `path`.
    ///
    /// # Errors
    /// [`EngineError::Replay`] if the file is not a valid replay.
    pub fn load(path: &Path) -> Result<Self, EngineError> {
        let fault = |reason: String| EngineError::Replay { path: path.to_path_buf(), reason };
        let bytes = dali::file::read(path).map_err(|e| fault(e.to_string()))?;
        let not_ours = |e: &dyn std::fmt::Display| {
            fault(format!("it is not a replay file that a training run wrote ({e})"))
        };
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| not_ours(&e))?;
        let json = header.metadata().as_ref().and_then(|map| map.get(KEY));
        let json = json.ok_or_else(|| not_ours(&"its header has no replay entry"))?;
        let of: Description = serde_json::from_str(json).map_err(|e| not_ours(&e))?;
        if of.version != VERSION {
            let theirs = of.version;
            return Err(fault(format!("its version is {theirs}, this program reads {VERSION}")));
        }
        let file = SafeTensors::deserialize(&bytes).map_err(|e| not_ours(&e))?;
        let tensors = file.tensors();
        let found = seal(json, tensors.iter().map(|(name, view)| (name.as_str(), view.data())));
        if header.metadata().as_ref().and_then(|map| map.get(SEAL)) != Some(&found) {
            return Err(fault("it was changed after it was written: its checksum is wrong".into()));
        }
        let mut state = StateSet::new();
        let mut batches = vec![Vec::new(); of.micro_steps.min(file.len())];
        for (name, view) in tensors {
            if let Some(name) = name.strip_prefix("state/") {
                let tensor = tensor_of(&view).map_err(|e| fault(format!("`{name}`: {e}")))?;
                state.insert(name, tensor);
                continue;
            }
            let place = name.strip_prefix("batch/").and_then(|rest| rest.split_once('/'));
            let place = place.and_then(|(micro, name)| Some((micro.parse::<usize>().ok()?, name)));
            let known = place.and_then(|(micro, name)| Some((batches.get_mut(micro)?, name)));
            let (batch, name) = known.ok_or_else(|| fault(format!("`{name}` is unknown")))?;
            batch.push((name.to_string(), view.data().to_vec()));
        }
        let [pixels, objects, parts, coords, runs] = of.slot;
        let [height, width] = of.padded;
        let value = |text: &str| text.parse().unwrap_or(f32::NAN);
        Ok(Self {
            step: of.step,
            image_ids: of.image_ids,
            losses: of.losses.iter().map(|(name, v)| (name.clone(), value(v))).collect(),
            config: Config::from_toml(&path.display().to_string(), &of.config)?,
            num_classes: of.num_classes,
            class_weights: of.class_weights,
            padded: ImageSize { height, width },
            slot: SlotShape { pixels, objects, parts, coords, runs },
            batches,
            state,
        })
    }
}

/// SHA-256, in hexadecimal, over the description and all tensors.
fn seal<'a>(json: &str, tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_unstable();
    let mut hash = Sha256::new();
    for bytes in std::iter::once(json.as_bytes())
        .chain(tensors.into_iter().flat_map(|(name, data)| [name.as_bytes(), data]))
    {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hex::encode(hash.finalize())
}
