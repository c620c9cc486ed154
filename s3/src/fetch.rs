//! Downloads objects to files: many concurrently, and large objects in pieces.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt, stream};

use crate::bucket::{Bucket, Object};
use crate::checksum::{Match, compare, md5};
use crate::error::{S3Error, file};

/// Bytes per request.
pub(crate) const PIECE: u64 = 8 << 20;
/// Concurrent requests.
const WIDE: usize = 24;
/// Maximum number of transfers of an object if the bytes do not match its checksum.
const TRIES: usize = 4;

/// Progress of a transfer.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Length of the piece that was written, in bytes.
    pub bytes: u64,
    /// The object, its file and the result of the check, if the file is now complete.
    pub whole: Option<(&'a Object, &'a Path, Checked)>,
}

/// Result of comparing a complete file with its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The file matches the object's checksum.
    Same,
    /// The object has no checksum that can be compared.
    NoChecksum,
}

/// A file being downloaded.
struct Filling {
    object: Object,
    path: PathBuf,
    /// Opened by the first piece, closed by the last.
    file: Mutex<Option<Arc<File>>>,
    pieces_left: AtomicUsize,
}

/// The pieces of an object, at most [`PIECE`] bytes each; an empty object has one empty piece.
pub(crate) fn pieces(size: u64) -> impl Iterator<Item = Range<u64>> {
    let count = size.div_ceil(PIECE).max(1);
    (0..count).map(move |i| i * PIECE..((i + 1) * PIECE).min(size))
}

impl Bucket {
    /// Copies objects to files, and creates their folders. Each file is written under a temporary
    /// name and compared with its object's checksum, if there is one, before it is renamed.
    /// `arrived` is called for each piece.
    ///
    /// # Errors
    /// The first error of a transfer or a file; files that are already complete are kept.
    pub fn fetch(
        &self,
        objects: &[(Object, PathBuf)],
        arrived: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), S3Error> {
        let parents: HashSet<&Path> = objects.iter().filter_map(|(_, p)| p.parent()).collect();
        parents
            .into_iter()
            .try_for_each(|parent| fs::create_dir_all(parent).map_err(file(parent)))?;
        let files: Vec<Arc<Filling>> = objects.iter().map(Filling::of).collect();
        // Set when an ETag that looks like a checksum proves not to be one, as for encrypted
        // objects.
        let is_encrypted = Arc::new(AtomicBool::new(false));
        let pieces = files
            .iter()
            .flat_map(|filling| pieces(filling.object.size).map(|piece| (filling.clone(), piece)));
        let tasks = pieces.map(|(filling, piece)| {
            let (bucket, is_encrypted) = (self.clone(), is_encrypted.clone());
            async move { bucket.fill(filling, piece, &is_encrypted).await }
        });
        self.runtime.block_on(async {
            let mut running = stream::iter(tasks).buffer_unordered(WIDE);
            while let Some(result) = running.next().await {
                let (filling, bytes, end) = result?;
                let whole = end.map(|end| (&filling.object, filling.path.as_path(), end));
                arrived(Arrived { bytes, whole });
            }
            Ok(())
        })
    }

    /// Downloads one piece; the last one completes the file. Returns the piece's length in bytes,
    /// and the result of the check if the file is complete.
    async fn fill(
        &self,
        filling: Arc<Filling>,
        piece: Range<u64>,
        is_encrypted: &AtomicBool,
    ) -> Result<(Arc<Filling>, u64, Option<Checked>), S3Error> {
        let length = piece.end - piece.start;
        let part = filling.part();
        let opened = filling.open()?;
        let bytes = self.range(&filling.object, piece.clone()).await?;
        opened.write_all_at(&bytes, piece.start).map_err(file(&part))?;
        drop((bytes, opened));
        if filling.pieces_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok((filling, length, None));
        }
        let checked = self.check(&filling, is_encrypted).await?;
        *filling.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        fs::rename(&part, &filling.path).map_err(file(&filling.path))?;
        Ok((filling, length, Some(checked)))
    }

    /// Compares a complete file with its object's checksum; downloads the object again if they
    /// differ. If two transfers gave equal bytes, the ETag is assumed not to be a checksum.
    async fn check(
        &self,
        filling: &Filling,
        is_encrypted: &AtomicBool,
    ) -> Result<Checked, S3Error> {
        let Filling { object, .. } = filling;
        let part = filling.part();
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            let (path, etag, size) = (part.clone(), object.etag.clone(), object.size);
            let compared = tokio::task::spawn_blocking(move || {
                let mut bytes = File::open(&path)?;
                match compare(&mut bytes, size, &etag)? {
                    Match::Other => md5(&mut File::open(&path)?).map(|sum| (Match::Other, sum)),
                    other => Ok((other, [0; 16])),
                }
            });
            let fault = |e: tokio::task::JoinError| S3Error::File {
                path: part.clone(),
                fault: e.to_string(),
            };
            match compared.await.map_err(fault)?.map_err(file(&part))? {
                (Match::Same, _) => return Ok(Checked::Same),
                (Match::Unknown, _) => return Ok(Checked::NoChecksum),
                (Match::Other, sum) => {
                    if is_encrypted.load(Ordering::Relaxed) || seen.contains(&sum) {
                        is_encrypted.store(true, Ordering::Relaxed);
                        return Ok(Checked::NoChecksum);
                    }
                    seen.push(sum);
                }
            }
            let opened = filling.open()?;
            for piece in pieces(object.size) {
                let bytes = self.range(object, piece.clone()).await?;
                opened.write_all_at(&bytes, piece.start).map_err(file(&part))?;
            }
        }
        let checksum = object.etag.trim_matches('"').to_string();
        Err(S3Error::Altered { at: object.at.clone(), tries: TRIES, checksum })
    }
}

impl Filling {
    fn of((object, path): &(Object, PathBuf)) -> Arc<Self> {
        let pieces_left = AtomicUsize::new(pieces(object.size).count());
        let (object, path) = (object.clone(), path.clone());
        Arc::new(Self { object, path, file: Mutex::new(None), pieces_left })
    }

    /// Path of the file until it is complete.
    fn part(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        name.into()
    }

    fn open(&self) -> Result<Arc<File>, S3Error> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*held {
            return Ok(opened.clone());
        }
        let part = self.part();
        let opened = Arc::new(File::create(&part).map_err(file(&part))?);
        *held = Some(opened.clone());
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::{PIECE, pieces};

    #[test]
    fn fetch_ranges_cover_object_once() {
        let ends = |size| pieces(size).map(|p| (p.start, p.end)).collect::<Vec<_>>();
        assert_eq!(ends(0), [(0, 0)]);
        assert_eq!(ends(5), [(0, 5)]);
        let last = 2 * PIECE;
        assert_eq!(ends(last + 1), [(0, PIECE), (PIECE, last), (last, last + 1)]);
    }
}
