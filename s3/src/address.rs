//! S3 URIs, `s3://bucket/key`.

use std::fmt;
use std::path::{Path, PathBuf};

use object_store::path::Path as Key;

const SCHEME: &str = "s3://";

/// An invalid URI, or settings that make requests impossible.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}: {fault}")]
pub struct AddressFault {
    /// The text.
    pub text: String,
    /// The error.
    pub fault: String,
}

/// The URI of an object, or of a folder, which consists of all objects whose keys begin with the
/// folder's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The bucket.
    pub bucket: String,
    /// The key, without leading or trailing slash; empty for the whole bucket.
    pub key: String,
}

impl Address {
    /// Parses a URI.
    ///
    /// # Errors
    /// [`AddressFault`] for a URI without a bucket, or with a key that is not a valid file path.
    pub fn parse(path: &Path) -> Result<Self, AddressFault> {
        let text = path.to_string_lossy();
        let fault = |fault: &str| AddressFault { text: text.to_string(), fault: fault.into() };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| fault("must be a local path or s3://BUCKET/KEY"))?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(fault("it has no bucket; write s3://BUCKET/KEY"));
        }
        let key = key.trim_matches('/');
        Key::parse(key).map_err(|_| fault("its key has an empty part, or `.` or `..`"))?;
        Ok(Self { bucket: bucket.to_string(), key: key.to_string() })
    }

    /// The URI of an entry in this folder.
    pub fn join(&self, name: &str) -> Self {
        let key = match self.key.is_empty() {
            true => name.to_string(),
            false => format!("{}/{name}", self.key),
        };
        Self { bucket: self.bucket.clone(), key }
    }

    /// The local path of this URI, below a folder with one subfolder per bucket.
    pub fn below(&self, folder: &Path) -> PathBuf {
        folder.join(&self.bucket).join(&self.key)
    }

    /// The URI whose local path below `folder` is `path`; inverse of [`Self::below`].
    pub fn of_place(path: &Path, folder: &Path) -> Option<Self> {
        let inside = path.strip_prefix(folder).ok()?.to_str()?;
        Self::parse(Path::new(&format!("{SCHEME}{inside}"))).ok()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Address;

    #[test]
    fn s3_uri_parses_and_prints() {
        let read = |text: &str| Address::parse(Path::new(text));
        for (text, bucket, key) in [
            ("s3://b/coco/train", "b", "coco/train"),
            ("s3://b/coco/train/", "b", "coco/train"),
            ("s3://b", "b", ""),
            ("s3://b/a b#1.jpg", "b", "a b#1.jpg"),
        ] {
            let address = read(text).unwrap();
            assert_eq!((address.bucket.as_str(), address.key.as_str()), (bucket, key));
            let place = address.below(Path::new("/stage"));
            assert_eq!(Address::of_place(&place, Path::new("/stage")), Some(address));
        }
        assert_eq!(read("s3://b").unwrap().join("x").to_string(), "s3://b/x");
        assert_eq!(read("s3://b/a").unwrap().join("x").to_string(), "s3://b/a/x");
        for (text, words) in [
            ("s3://", "has no bucket"),
            ("s3:///key", "has no bucket"),
            ("s3://b/a//c", "an empty part"),
            ("s3://b/../c", "`.` or `..`"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(words) && said.contains(text), "{said}");
        }
    }
}
