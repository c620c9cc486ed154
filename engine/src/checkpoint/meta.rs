//! A checkpoint's metadata: its contents, the checksums of its files, and its own checksum (the
//! seal).

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::Difference;
use dali::decode::Exif;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Version of the metadata format that this program writes.
pub(super) const FORMAT: u32 = 3;
/// The first version, which had no seal.
const UNSEALED_FORMAT: u32 = 1;

/// A checkpoint's metadata.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Version of the metadata format.
    pub format: u32,
    /// Version of onegraph that wrote the checkpoint; none before format 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of steps done; resuming continues with the next batch.
    #[serde(rename = "batches")]
    pub steps_done: u64,
    /// Class names with their COCO ids, from class 1, as returned by
    /// [`crate::classes::stored_classes`].
    pub categories: Vec<(String, u64)>,
    /// Identity of the training data; none in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Treatment of the training images' EXIF rotation; none if no image had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exif: Option<Exif>,
    /// Changes to the config that the user accepted when resuming, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
    /// SHA-256 of each of the checkpoint's other files, by name.
    pub sha256: BTreeMap<String, String>,
    /// SHA-256 of this metadata with the seal left out; none in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// A change to the config or data that the user accepted with `--override`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Number of steps done before the change.
    pub after_step: u64,
    /// The changed key (or the training data), with the old and new value.
    pub change: Difference,
}

impl Meta {
    /// The metadata as JSON text, with the seal.
    pub(super) fn sealed(mut self) -> Result<Vec<u8>, serde_json::Error> {
        self.seal = Some(self.digest()?);
        serde_json::to_vec_pretty(&self)
    }

    fn digest(&self) -> Result<String, serde_json::Error> {
        let unsealed = Self { seal: None, ..self.clone() };
        Ok(hex_digest(&serde_json::to_vec_pretty(&unsealed)?))
    }

    /// Reads metadata from `json`, and checks that it belongs to the checkpoint directory `path`
    /// and lists exactly `files`.
    pub(super) fn read(json: &[u8], path: &Path, files: &[&str]) -> Result<Self, String> {
        let version: Version = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if !(UNSEALED_FORMAT..=FORMAT).contains(&version.format) {
            let theirs = version.format;
            return Err(format!(
                "it has format {theirs}, but this program reads formats up to {FORMAT}: use a \
                 newer onegraph"
            ));
        }
        let meta: Self = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let seal = meta.digest().map_err(|e| e.to_string())?;
        let needs_seal =
            meta.format > UNSEALED_FORMAT || meta.seal.is_some() || meta.data.is_some();
        if needs_seal && meta.seal.as_deref() != Some(&seal) {
            return Err("it was changed after it was written: its checksum (seal) is wrong".into());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let named = name.strip_prefix("step_").and_then(|digits| digits.parse::<u64>().ok());
        if named.is_some_and(|step| step != meta.steps_done) {
            return Err(format!(
                "it belongs to step {}, but its folder is named {name}",
                meta.steps_done
            ));
        }
        if let Some(missing) = files.iter().find(|file| !meta.sha256.contains_key(**file)) {
            return Err(format!("it has no checksum for {missing}"));
        }
        if let Some(other) = meta.sha256.keys().find(|file| !files.contains(&file.as_str())) {
            return Err(format!("it lists a file `{other}`, which is not part of a checkpoint"));
        }
        Ok(meta)
    }
}

/// The field that every version of the metadata has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// SHA-256 in hexadecimal.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        let sha256 = ["a", "b"].map(|file| (file.to_string(), "00".to_string()));
        Meta {
            format: FORMAT,
            version: Some("0.3.0".into()),
            steps_done: 7,
            categories: vec![("cat".into(), 17)],
            data: Some("d".into()),
            exif: None,
            overrides: vec![],
            sha256: sha256.into(),
            seal: None,
        }
    }

    #[test]
    fn checkpoint_metadata_round_trips() {
        let json = meta().sealed().expect("JSON");
        let read = Meta::read(&json, Path::new("run/step_00000007"), &["a", "b"]).expect("sound");
        assert_eq!(Meta { seal: None, ..read }, meta());
        let before = Meta { format: 2, version: None, ..meta() };
        let json = before.clone().sealed().expect("JSON");
        assert!(!String::from_utf8_lossy(&json).contains("version"));
        let read = Meta::read(&json, Path::new("run/step_00000007"), &["a", "b"]).expect("sound");
        assert_eq!(Meta { seal: None, ..read }, before);
    }

    #[test]
    fn changed_checkpoint_metadata_is_rejected() {
        let text = String::from_utf8(meta().sealed().expect("JSON")).expect("text");
        let seal = &text[text.find(",\n  \"seal\"").expect("it")..];
        for (from, to, files, told) in [
            ("\"cat\"", "\"dog\"", &["a", "b"][..], "seal"),
            (seal, "\n}", &["a", "b"], "seal"),
            ("\"format\": 3", "\"format\": 1", &["a", "b"], "seal"),
            ("", "", &["a", "b", "c"], "no checksum for c"),
            ("", "", &["a"], "`b`"),
            (&text, "{\"format\": 9}", &[], "it has format 9"),
        ] {
            let changed = if from.is_empty() { text.clone() } else { text.replace(from, to) };
            let read = Meta::read(changed.as_bytes(), Path::new("run/step_00000007"), files);
            assert!(read.expect_err("refused").contains(told), "{told}");
        }
    }
}
