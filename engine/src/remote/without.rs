//! A build without S3 support.

use std::path::{Path, PathBuf};

use dali::{DaliError, Store};

use crate::error::EngineError;
use crate::progress::Progress;
use crate::run_dir::{Choice, RunDir};

fn none<T>(path: &Path) -> Result<T, EngineError> {
    let path = path.display().to_string();
    let fault = match path.starts_with("s3://") {
        true => {
            "this onegraph is built without S3; build it with \
                 `cargo build --release --features s3`"
        }
        false => "only addresses s3://BUCKET/KEY are known, and paths",
    };
    Err(EngineError::Usage(format!("{path}: {fault}")))
}

pub(super) fn whole(path: &Path) -> Result<PathBuf, EngineError> {
    none(path)
}

pub(super) fn trained(run: &Path, _: Choice) -> Result<PathBuf, EngineError> {
    none(run)
}

pub(super) fn resumed(run: &Path) -> Result<PathBuf, EngineError> {
    none(run)
}

#[allow(clippy::unnecessary_wraps)] // as with S3
pub(super) fn resumed_by_another(_: &Path) -> Result<(), EngineError> {
    Ok(())
}

pub(super) fn open(
    dir: &Path,
    _: fn(&Path) -> Result<Store, DaliError>,
) -> Result<Store, EngineError> {
    none(dir)
}

pub(super) fn make<T>(
    out: &Path,
    _: bool,
    _: impl FnOnce(&Path, bool) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    none(out)
}

pub(super) fn create(parent: &Path, _: &str) -> Result<RunDir, EngineError> {
    none(parent)
}

pub(super) fn last_of_name(parent: &Path, _: &str) -> Result<Option<PathBuf>, EngineError> {
    none(parent)
}

pub(super) fn name_of(run: &Path) -> String {
    run.display().to_string()
}

/// A run that is kept in S3: never constructed.
#[derive(Debug)]
pub(crate) enum Kept {}

impl Kept {
    pub(crate) fn end(self) -> Result<(), EngineError> {
        match self {}
    }

    pub(crate) fn discard(self) {
        match self {}
    }
}

#[allow(clippy::unnecessary_wraps)] // as with S3
pub(super) fn keep(_: &Path, _: Progress) -> Result<Option<Kept>, EngineError> {
    Ok(None)
}
