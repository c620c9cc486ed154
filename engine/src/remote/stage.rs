//! Stages S3 objects as local files, and records their versions.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use dali::Lock;
use ranks::Launch;
use s3::{Address, AddressFault, Bucket, Checked, OWNER, Object, S3Error};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::staged_into;
use crate::error::EngineError;
use crate::progress::{Progress, counted};
use crate::run_dir::{io, make_dir};

/// Directory of the records and locks.
const RECORDS: &str = ".staged";
const MIB: u64 = 1 << 20;

impl From<S3Error> for EngineError {
    fn from(fault: S3Error) -> Self {
        match fault {
            S3Error::Address(_) | S3Error::Missing(_) => Self::Usage(fault.to_string()),
            fault => Self::Remote(fault.to_string()),
        }
    }
}

impl From<AddressFault> for EngineError {
    fn from(fault: AddressFault) -> Self {
        Self::Usage(fault.to_string())
    }
}

/// Terminal output about transfers; only rank 0 prints.
pub(super) fn progress() -> Progress {
    let is_first = Launch::from_env().map_or(true, |launch| launch.rank == 0);
    if is_first { Progress::loud() } else { Progress::quiet() }
}

/// Stages a whole file or folder.
pub(super) fn whole(path: &Path) -> Result<PathBuf, EngineError> {
    let at = Address::parse(path)?;
    let staging = Staging::begin(&at)?;
    let objects = staging.list()?;
    staging.fetch(&objects)?;
    staging.remove_others(&objects)?;
    Ok(staging.place)
}

/// Stages a URI. Only one process on this machine can do so at a time.
pub(super) struct Staging {
    pub(super) at: Address,
    pub(super) bucket: Bucket,
    /// Local path of the URI.
    pub(super) place: PathBuf,
    pub(super) record: Arc<Record>,
}

impl Staging {
    /// Waits until no other process stages this URI.
    pub(super) fn begin(at: &Address) -> Result<Self, EngineError> {
        let folder = staged_into();
        let records = folder.join(RECORDS);
        make_dir(&records)?;
        let name = hex::encode(Sha256::digest(at.to_string()));
        let mut is_told = false;
        let lock = Lock::wait(&records.join(format!("{}.lock", &name[..16])), &mut |owner| {
            if !std::mem::replace(&mut is_told, true) {
                progress().say(&format!("waiting for {owner}, which is staging {at}"));
            }
        })?;
        let bucket = Bucket::open(&at.bucket)?;
        let record = Record::open(&records.join(format!("{}.jsonl", &name[..16])), lock)?;
        let place = at.below(&folder);
        Ok(Self { at: at.clone(), bucket, place, record: Arc::new(record) })
    }

    /// Lists the objects below the URI, each with its local file.
    pub(super) fn list(&self) -> Result<Vec<(Object, PathBuf)>, EngineError> {
        let mut objects = self.bucket.list(&self.at.key)?;
        // The file with the owner in S3 does not apply to the local directory.
        objects.retain(|object| !object.at.key.ends_with(OWNER));
        let folder = staged_into();
        Ok(objects.into_iter().map(|o| (o.clone(), o.at.below(&folder))).collect())
    }

    /// Downloads the objects that are missing locally or have a different version, with a progress
    /// bar.
    pub(super) fn fetch(&self, objects: &[(Object, PathBuf)]) -> Result<(), EngineError> {
        let wanted: Vec<_> = objects.iter().filter(|o| !self.record.is_here(o)).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let total: u64 = wanted.iter().map(|(object, _)| object.size).sum();
        let progress = progress();
        progress.say(&format!(
            "staging {} to {}: {}, {}",
            self.at,
            self.place.display(),
            counted(wanted.len(), "file"),
            mib(total)
        ));
        let bar = progress.bar("MiB", total.div_ceil(MIB));
        let (mut done, mut without, mut written) = (0, 0, Ok(()));
        let result = self.bucket.fetch(&wanted, &mut |news| {
            done += news.bytes;
            bar.set_position(done / MIB);
            if let Some((object, file, checked)) = news.whole {
                without += usize::from(checked == Checked::NoChecksum);
                written =
                    self.record.add(object, file).and(std::mem::replace(&mut written, Ok(())));
            }
        });
        bar.finish_and_clear();
        if without > 0 {
            progress.say(&format!(
                "{}: {} could not be verified, since S3 has no checksum",
                self.at,
                counted(without, "file")
            ));
        }
        result?;
        written
    }

    /// Removes local files that were staged earlier and no longer exist in S3.
    pub(super) fn remove_others(&self, objects: &[(Object, PathBuf)]) -> Result<(), EngineError> {
        let folder = staged_into();
        let of = |key: &str| Address { key: key.to_string(), ..self.at.clone() };
        for key in self.record.keep(objects)? {
            // The file may be missing locally too.
            let _ = fs::remove_file(of(&key).below(&folder));
        }
        Ok(())
    }
}

/// Formats a number of bytes in bytes, KiB or MiB.
pub(super) fn mib(bytes: u64) -> String {
    match bytes {
        0..1024 => counted(bytes as usize, "byte"),
        1024..MIB => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / MIB as f64),
    }
}

/// Record of the staged version of each object, in a file with one line per download; the last line
/// of an object applies.
pub(super) struct Record {
    path: PathBuf,
    entries: Mutex<BTreeMap<String, Entry>>,
    /// The lock that this process holds while it stages.
    lock: Mutex<Option<Lock>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    key: String,
    size: u64,
    etag: String,
    /// Modification time of the downloaded file, in nanoseconds.
    modified: u128,
}

impl Record {
    fn open(path: &Path, lock: Lock) -> Result<Self, EngineError> {
        let text = match fs::read_to_string(path) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(io(path))?,
        };
        // Skips an incomplete line of a process that was killed.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let entries = lines.map(|entry| (entry.key.clone(), entry)).collect();
        Ok(Self { path: path.to_path_buf(), entries: Mutex::new(entries), lock: Some(lock).into() })
    }

    /// True if the local file is this version of the object.
    pub(super) fn is_here(&self, (object, file): &(Object, PathBuf)) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get(&object.at.key) else { return false };
        entry.etag == object.etag
            && !entry.etag.is_empty()
            && entry.size == object.size
            && look(file).is_some_and(|(size, time)| (size, time) == (entry.size, entry.modified))
    }

    /// Records a downloaded file.
    pub(super) fn add(&self, object: &Object, file: &Path) -> Result<(), EngineError> {
        let Some((size, modified)) = look(file) else { return Ok(()) };
        let (key, etag) = (object.at.key.clone(), object.etag.clone());
        let entry = Entry { key: key.clone(), size, etag, modified };
        let line = serde_json::to_string(&entry).unwrap_or_default() + "\n";
        let opened = fs::OpenOptions::new().create(true).append(true).open(&self.path);
        opened.and_then(|mut to| to.write_all(line.as_bytes())).map_err(io(&self.path))?;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(key, entry);
        Ok(())
    }

    /// Removes all objects except `objects` from the record, and returns the removed keys.
    fn keep(&self, objects: &[(Object, PathBuf)]) -> Result<Vec<String>, EngineError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let stay: std::collections::HashSet<&str> =
            objects.iter().map(|(object, _)| object.at.key.as_str()).collect();
        let gone: Vec<String> =
            entries.keys().filter(|key| !stay.contains(key.as_str())).cloned().collect();
        gone.iter().for_each(|key| drop(entries.remove(key)));
        let lines = entries.values().map(|e| serde_json::to_string(e).unwrap_or_default() + "\n");
        crate::run_dir::replace(&self.path, lines.collect::<String>().as_bytes())?;
        Ok(gone)
    }

    /// Releases the lock, so that other processes can stage the URI.
    pub(super) fn release(&self) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Length and modification time of a file.
fn look(file: &Path) -> Option<(u64, u128)> {
    let meta = fs::metadata(file).ok()?;
    let time = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((meta.len(), time.as_nanos()))
}
