//! Stores in S3. They can be read while their pixels are downloaded; new ones are built locally and
//! then uploaded.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dali::store::Arrival;
use dali::{DaliError, Store};
use s3::{Address, Arriving, Object};

use super::stage::{Staging, mib, progress};
use crate::error::EngineError;

/// Header file, without which a directory is not a store. `PIXELS` is by far the largest file.
const HEADER: &str = "header.json";
const PIXELS: &str = "pixels.bin";

/// Stores whose pixels this process is still downloading.
static ARRIVING: Mutex<Option<HashMap<Address, Arc<Pixels>>>> = Mutex::new(None);

/// Pixels being downloaded.
#[derive(Debug)]
struct Pixels(Arriving);

impl Arrival for Pixels {
    fn wait(&self, bytes: Range<u64>) -> Result<(), String> {
        self.0.wait(bytes).map_err(|fault| fault.to_string())
    }
}

/// Opens a store, whose pixels are downloaded in the background while it is read.
pub(super) fn open(
    dir: &Path,
    open: fn(&Path) -> Result<Store, DaliError>,
) -> Result<Store, EngineError> {
    let at = Address::parse(dir)?;
    if let Some(pixels) = with_arriving(|arriving| arriving.get(&at).cloned()) {
        let place = at.below(&super::staged_into());
        return Ok(open(&place)?.arriving(pixels));
    }
    let staging = Staging::begin(&at)?;
    let objects = staging.list()?;
    let is = |object: &Object, name: &str| object.at == at.join(name);
    if !objects.iter().any(|(object, _)| is(object, HEADER)) {
        return Err(EngineError::Usage(format!(
            "there is no store at {at}: it contains no {HEADER}; build one with `onegraph prep \
             --out {at}`"
        )));
    }
    let (large, small): (Vec<_>, Vec<_>) =
        objects.iter().cloned().partition(|(object, _)| is(object, PIXELS) && object.size > 0);
    staging.fetch(&small)?;
    staging.remove_others(&objects)?;
    let Some(pixels) = large.into_iter().find(|pixels| !staging.record.is_here(pixels)) else {
        return Ok(open(&staging.place)?);
    };
    let begun = begin(&staging, &pixels.0, &pixels.1)?;
    // If opening fails, the download ends.
    let store = open(&staging.place)?;
    let key = at.clone();
    with_arriving(|arriving| arriving.insert(key, begun.clone()));
    Ok(store.arriving(begun))
}

fn begin(staging: &Staging, object: &Object, file: &Path) -> Result<Arc<Pixels>, EngineError> {
    let progress = progress();
    progress.say(&format!(
        "{}: images are read while they are downloaded to {} ({})",
        staging.at,
        staging.place.display(),
        mib(object.size)
    ));
    let (record, whole, to) = (staging.record.clone(), object.clone(), file.to_path_buf());
    let at = staging.at.clone();
    let is_whole = move || {
        match record.add(&whole, &to) {
            Ok(()) => progress.say(&format!("{at} was downloaded completely")),
            Err(fault) => progress.say(&format!("warning: {fault}; {at} will be downloaded again")),
        }
        record.release();
    };
    let arriving = Arriving::begin(&staging.bucket, object, file, Box::new(is_whole))?;
    Ok(Arc::new(Pixels(arriving)))
}

fn with_arriving<T>(f: impl FnOnce(&mut HashMap<Address, Arc<Pixels>>) -> T) -> T {
    let mut arriving = ARRIVING.lock().unwrap_or_else(PoisonError::into_inner);
    f(arriving.get_or_insert_default())
}

/// Builds a store locally, and uploads it to S3. The header is uploaded last, so that an incomplete
/// upload is not a valid store.
pub(super) fn make<T>(
    out: &Path,
    overwrite: bool,
    make: impl FnOnce(&Path, bool) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let at = Address::parse(out)?;
    let staging = Staging::begin(&at)?;
    let earlier = match staging.bucket.has_inside(&at.key)? {
        true if !overwrite => {
            let problem = format!("{at} exists; give --overwrite to replace it");
            return Err(EngineError::Usage(problem));
        }
        true => staging.list()?,
        false => Vec::new(),
    };
    let made = make(&staging.place, true)?;
    // The old header is removed first, so that a partly replaced store is not valid.
    let mut keys: Vec<String> = earlier.iter().map(|(object, _)| object.at.key.clone()).collect();
    keys.sort_by_key(|key| *key != at.join(HEADER).key);
    staging.bucket.remove(&keys)?;
    let io = crate::run_dir::io;
    let entries = fs::read_dir(&staging.place).map_err(io(&staging.place))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_by_key(|name| (name == HEADER, name.clone()));
    progress().say(&format!("writing {at}"));
    for name in &names {
        staging.bucket.put(&staging.place.join(name), &at.join(name).key)?;
    }
    for (object, file) in staging.list()? {
        staging.record.add(&object, &file)?;
    }
    Ok(made)
}
