//! The crate's error type; each message is one line with the file, the error and the fix.

use std::io;
use std::path::{Path, PathBuf};

use crate::decode::DecodeFault;
use crate::owner::Owner;

/// An error in the user's data, in a store, on the disk, or in a slot (the memory of one batch).
#[derive(Debug, thiserror::Error)]
pub enum DaliError {
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The action as a verb, such as "read" or "create".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A folder or file of annotations that is invalid, has an unknown format, or contains nothing
    /// to store.
    #[error("{path}: {fault}")]
    Annotations {
        /// The folder or file.
        path: PathBuf,
        /// The position in the file, the error and the fix.
        fault: String,
    },
    /// An image file that cannot be read or decoded, or whose size differs from the annotations.
    #[error("{image}: {fault}, or leave such images out with `onegraph prep --skip-bad-images`")]
    Image {
        /// The image's COCO id (`image 42`), and its file if `fault` does not include it.
        image: String,
        /// The error, and how to fix it.
        fault: String,
    },
    /// Pixels in a store that fail to decode.
    #[error(
        "store {path}: pixels of image {image_id} ({file_name}): {fault}; run `onegraph prep` \
        again, or, if `onegraph train` made this folder, remove it: the next run recreates it"
    )]
    StorePixels {
        /// The store.
        path: PathBuf,
        /// COCO image id.
        image_id: u64,
        /// File name, as in the annotation file.
        file_name: String,
        /// The decoder's error.
        fault: DecodeFault,
    },
    /// The file at a lock's path was not written by onegraph.
    #[error("{path} is not a lock that onegraph wrote: move it away")]
    NotALock {
        /// The file.
        path: PathBuf,
    },
    /// An image file that has changed since it was stored.
    #[error(
        "store {path}: the image file {file} {fault}; run `onegraph prep --overwrite`, or \
        restore the file"
    )]
    Source {
        /// The store.
        path: PathBuf,
        /// The image file.
        file: PathBuf,
        /// The difference.
        fault: String,
    },
    /// A store that is damaged or has an unsupported version.
    #[error("store {path}: {file}: {fault}; run `onegraph prep` again")]
    Store {
        /// The store.
        path: PathBuf,
        /// The file in the store.
        file: &'static str,
        /// The error in the file.
        fault: String,
    },
    /// A file of an open store that was truncated.
    #[error("{path}: truncated from {had} to {has} bytes while in use; run `onegraph prep` again")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length in bytes when the store was opened.
        had: usize,
        /// Current length in bytes.
        has: u64,
    },
    /// The output path already exists.
    #[error("{path} exists already; choose a different --out or pass --overwrite")]
    Exists {
        /// The path that exists.
        path: PathBuf,
    },
    /// A different process is writing the folder and holds its lock.
    #[error("{path} is held by {owner}; wait until it has ended, or end it{}", owner.if_gone(path))]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// The process that holds the lock.
        owner: Owner,
    },
    /// The requested data already exist; a process that this one waited for may have created them.
    #[error("{path} exists already, made from the same sources: nothing is left to do")]
    AlreadyMade {
        /// The path that exists.
        path: PathBuf,
    },
    /// The path to overwrite has contents that onegraph did not write, so it is left unchanged.
    #[error(
        "{path} has contents that onegraph did not write ({stranger}), so it is not overwritten; \
        move it away, or choose a different folder"
    )]
    NotOurs {
        /// The path to overwrite.
        path: PathBuf,
        /// The first entry that onegraph did not write.
        stranger: String,
    },
    /// An option with an invalid value.
    #[error("{option} = {got}: {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// The value given.
        got: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// A [`Slot`](crate::loader::Slot) that is too small for the images of a batch.
    #[error(
        "slot: {what}: {need} needed, room for {have}; the store's header \
        has capacities that are sufficient for all of its images"
    )]
    Slot {
        /// The array or capacity that is too small, and the image.
        what: String,
        /// The required size.
        need: usize,
        /// The available size.
        have: usize,
    },
    /// A slot layout that is invalid, or lacks a required array.
    #[error("slot layout: {0}")]
    Layout(String),
    /// The loader cannot continue.
    #[error("loader: {0}")]
    Loader(String),
}

impl DaliError {
    /// An error in annotations.
    pub(crate) fn annotations(path: &Path, fault: impl Into<String>) -> DaliError {
        DaliError::Annotations { path: path.to_path_buf(), fault: fault.into() }
    }

    /// A closure for `map_err` that adds the action and the path to an I/O error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DaliError {
        let path = path.to_path_buf();
        move |source| DaliError::Io { action, path, source }
    }
}
