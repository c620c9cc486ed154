//! Mirrors a local folder to S3.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::address::Address;
use crate::bucket::Bucket;
use crate::error::{S3Error, file};

/// Name of the object that contains the name of a location's writer.
pub const OWNER: &str = ".onegraph-owner";
/// Maximum number of passes of an update; a pass is repeated if the folder changed during it.
const PASSES: usize = 5;

/// A local folder and its S3 location, to which one process writes.
#[derive(Debug)]
pub struct Mirror {
    bucket: Bucket,
    at: Address,
    folder: PathBuf,
    /// Names of files that refer to other files, and are therefore uploaded after them.
    pointers: &'static [&'static str],
    own: String,
    /// Length and modification time of each uploaded file.
    known: BTreeMap<String, (u64, Option<SystemTime>)>,
}

impl Mirror {
    /// Claims a free location. False if the location is not empty, or a different process has
    /// claimed it.
    ///
    /// # Errors
    /// Any error of a request.
    pub fn claim(bucket: &Bucket, at: &Address, owner: &str) -> Result<bool, S3Error> {
        if bucket.has_inside(&at.key)? {
            return Ok(false);
        }
        bucket.create(unique(owner)?.into(), &at.join(OWNER).key)
    }

    /// The contents of a location's owner object, if it exists.
    ///
    /// # Errors
    /// Any error of the request.
    pub fn owner(bucket: &Bucket, at: &Address) -> Result<Option<String>, S3Error> {
        match bucket.read(&at.join(OWNER).key) {
            Err(S3Error::Missing(_)) => Ok(None),
            found => Ok(Some(String::from_utf8_lossy(&found?).into_owned())),
        }
    }

    /// Takes over a location, regardless of its previous writer.
    ///
    /// # Errors
    /// Any error of a request.
    pub fn take(
        bucket: &Bucket,
        at: &Address,
        folder: &Path,
        pointers: &'static [&'static str],
        owner: &str,
    ) -> Result<Self, S3Error> {
        let own = unique(owner)?;
        bucket.write(own.clone().into(), &at.join(OWNER).key)?;
        Ok(Self {
            bucket: bucket.clone(),
            at: at.clone(),
            folder: folder.to_path_buf(),
            pointers,
            own,
            known: BTreeMap::new(),
        })
    }

    /// The unique contents of the owner object while this writer owns the location.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Releases a location to which nothing but the claim was written.
    ///
    /// # Errors
    /// Any error of a request.
    pub fn release(self) -> Result<(), S3Error> {
        self.bucket.remove(&[self.at.join(OWNER).key])
    }

    /// Uploads changed files, pointers last, and then removes deleted files, so that all files to
    /// which the uploaded pointers refer are complete at any time.
    ///
    /// # Errors
    /// [`S3Error::TakenOver`] if a different process now writes to the location; any error of a
    /// request.
    pub fn update(&mut self) -> Result<(), S3Error> {
        let found = Self::owner(&self.bucket, &self.at)?;
        if found.as_ref() != Some(&self.own) {
            let found = found.unwrap_or_default();
            let owner = found.lines().next().unwrap_or("nobody").to_string();
            return Err(S3Error::TakenOver { at: self.at.clone(), owner });
        }
        for _ in 0..PASSES {
            if self.pass()? {
                return Ok(());
            }
        }
        let fault = "the folder changes faster than it can be uploaded".to_string();
        Err(S3Error::Transfer { at: self.at.clone(), fault })
    }

    /// One pass; false if the folder changed meanwhile and the pass must be repeated.
    fn pass(&mut self) -> Result<bool, S3Error> {
        let named: Vec<_> = self.pointers.iter().map(|name| self.pointer(name)).collect();
        let mut files = BTreeMap::new();
        walk(&self.folder, &mut |path| {
            if let (Some(name), Ok(seen)) = (name_in(&self.folder, path), seen(path)) {
                files.insert(name, seen);
            }
        })?;
        let is_pointer = |name: &String| self.pointers.contains(&name.as_str());
        let changed: Vec<String> = files
            .iter()
            .filter(|(name, seen)| !is_pointer(name) && self.known.get(*name) != Some(seen))
            .map(|(name, _)| name.clone())
            .collect();
        let mut is_whole = true;
        for name in changed {
            let path = self.folder.join(&name);
            match self.bucket.put(&path, &self.at.join(&name).key) {
                Ok(()) => {
                    self.known.insert(name.clone(), files[&name]);
                }
                Err(_) if !path.exists() => is_whole = false,
                Err(fault) => return Err(fault),
            }
        }
        for (name, earlier) in self.pointers.iter().zip(named) {
            // A pointer is only uploaded if it has not changed since the start of the pass:
            // otherwise it may refer to files that are not uploaded yet.
            let Some(text) = earlier.filter(|text| self.pointer(name).as_ref() == Some(text))
            else {
                is_whole &= self.pointer(name).is_none();
                continue;
            };
            let seen = (text.len() as u64, files.get(*name).and_then(|seen| seen.1));
            if is_whole && self.known.get(*name) != Some(&seen) {
                self.bucket.write(text.into(), &self.at.join(name).key)?;
                self.known.insert((*name).to_string(), seen);
            }
        }
        if is_whole {
            let gone = self.known.keys().filter(|name| !files.contains_key(*name));
            let gone: Vec<String> = gone.cloned().collect();
            let keys: Vec<String> = gone.iter().map(|name| self.at.join(name).key).collect();
            self.bucket.remove(&keys)?;
            self.known.retain(|name, _| !gone.contains(name));
        }
        Ok(is_whole)
    }

    fn pointer(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.folder.join(name)).ok()
    }
}

/// A unique string that contains the owner's name.
fn unique(owner: &str) -> Result<String, S3Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| S3Error::File { path: "random numbers".into(), fault: e.to_string() })?;
    Ok(format!("{owner}\n{}\n", hex::encode(bytes)))
}

/// Length and modification time of a file.
fn seen(path: &Path) -> std::io::Result<(u64, Option<SystemTime>)> {
    let meta = fs::metadata(path)?;
    Ok((meta.len(), meta.modified().ok()))
}

/// A file's name relative to a folder, with slashes.
fn name_in(folder: &Path, path: &Path) -> Option<String> {
    Some(path.strip_prefix(folder).ok()?.to_str()?.to_string())
}

/// Calls `visit` with each file in a folder and its subfolders. Names that begin with a dot are
/// skipped: they are temporary or local only.
fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) -> Result<(), S3Error> {
    let entries = match fs::read_dir(folder) {
        // The folder may have been renamed or removed during the pass.
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(file(folder))?,
    };
    for entry in entries {
        let path = entry.map_err(file(folder))?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            continue;
        }
        if path.is_dir() {
            walk(&path, visit)?;
        } else {
            visit(&path);
        }
    }
    Ok(())
}
