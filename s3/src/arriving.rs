//! Downloads a file that can be read while it is being downloaded.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::task::JoinHandle;

use crate::bucket::{Bucket, Object};
use crate::error::{S3Error, file};
use crate::fetch::{PIECE, pieces};

/// Concurrent requests.
const WIDE: usize = 16;

/// An object that is being downloaded into a file, which has its full length from the start. Pieces
/// for which a reader waits are downloaded first. The download is not verified: readers must check
/// the bytes.
pub struct Arriving {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    bucket: Bucket,
}

struct Shared {
    object: Object,
    path: PathBuf,
    file: File,
    state: Mutex<State>,
    changed: Condvar,
    whole: Box<dyn Fn() + Send + Sync>,
}

struct State {
    /// For each piece, true if it has arrived.
    here: Vec<bool>,
    /// Pieces to request, in this order; pieces that were requested already are skipped.
    wanted: VecDeque<usize>,
    asked: Vec<bool>,
    /// Number of pieces that have not arrived.
    left: usize,
    fault: Option<S3Error>,
}

impl Arriving {
    /// Begins the download; calls `whole` once the file is complete and flushed to disk.
    ///
    /// # Errors
    /// [`S3Error::File`] if the file cannot be created.
    pub fn begin(
        bucket: &Bucket,
        object: &Object,
        path: &Path,
        whole: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, S3Error> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(file(parent))?;
        }
        let made = File::create(path).map_err(file(path))?;
        made.set_len(object.size).map_err(file(path))?;
        let count = pieces(object.size).count();
        let state = State {
            here: vec![false; count],
            wanted: (0..count).collect(),
            asked: vec![false; count],
            left: count,
            fault: None,
        };
        let shared = Arc::new(Shared {
            object: object.clone(),
            path: path.to_path_buf(),
            file: made,
            state: Mutex::new(state),
            changed: Condvar::new(),
            whole,
        });
        let tasks = (0..WIDE.min(count)).map(|_| {
            let (bucket, shared) = (bucket.clone(), shared.clone());
            bucket.clone().runtime.spawn(async move { shared.ask(&bucket).await })
        });
        let tasks = tasks.collect();
        Ok(Self { shared, tasks, bucket: bucket.clone() })
    }

    /// Waits until these bytes have arrived.
    ///
    /// # Errors
    /// The error that ended the download.
    pub fn wait(&self, bytes: Range<u64>) -> Result<(), S3Error> {
        let pieces = (bytes.start / PIECE) as usize..bytes.end.div_ceil(PIECE) as usize;
        let mut state = self.shared.lock();
        for piece in pieces.clone().rev() {
            if !state.asked[piece] {
                state.wanted.push_front(piece);
            }
        }
        loop {
            if pieces.clone().all(|piece| state.here[piece]) {
                return Ok(());
            }
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        for task in self.tasks.drain(..) {
            // The result is ignored: the task was either aborted or is complete.
            let _ = self.bucket.runtime.block_on(task);
        }
    }
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arriving({})", self.shared.object.at)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece to request; `None` if all were requested, or after an error.
    fn next(&self) -> Option<usize> {
        let mut state = self.lock();
        if state.fault.is_some() {
            return None;
        }
        while let Some(piece) = state.wanted.pop_front() {
            if !std::mem::replace(&mut state.asked[piece], true) {
                return Some(piece);
            }
        }
        None
    }

    async fn ask(&self, bucket: &Bucket) {
        while let Some(piece) = self.next() {
            let range = piece as u64 * PIECE..((piece as u64 + 1) * PIECE).min(self.object.size);
            let result = bucket.range(&self.object, range.clone()).await.and_then(|bytes| {
                self.file.write_all_at(&bytes, range.start).map_err(file(&self.path))
            });
            let is_last = {
                let mut state = self.lock();
                match result {
                    Ok(()) => {
                        state.here[piece] = true;
                        state.left -= 1;
                    }
                    Err(fault) => state.fault = Some(fault),
                }
                state.left == 0
            };
            self.changed.notify_all();
            if is_last {
                // Readers already have all bytes; after an error, the file is only unavailable for
                // later use.
                match self.file.sync_all() {
                    Ok(()) => (self.whole)(),
                    Err(fault) => self.lock().fault = Some(file(&self.path)(fault)),
                }
            }
        }
    }
}
