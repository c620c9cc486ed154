//! Uploads files to objects.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, WriteMultipart};

use crate::address::Address;
use crate::bucket::{Bucket, Object};
use crate::checksum::{Match, compare};
use crate::error::{S3Error, file};
use crate::fetch::pieces;

/// Files up to this length are sent in one request.
const ONE_PIECE: u64 = 64 << 20;
/// Minimum bytes per part of a longer file; S3 accepts at most 10,000 parts.
const PART: u64 = 16 << 20;
const MAX_PARTS: u64 = 10_000;
/// Number of parts that are uploaded concurrently.
const WIDE: usize = 8;
/// Maximum number of uploads of a file if the object does not match it.
const TRIES: usize = 4;

impl Bucket {
    /// Uploads a file to an object atomically, and verifies the object. If the file grows during
    /// the upload, only its initial length is uploaded.
    ///
    /// # Errors
    /// [`S3Error::Altered`] if the object does not match, or any other error of the file or a
    /// request.
    pub fn put(&self, path: &Path, key: &str) -> Result<(), S3Error> {
        let opened = File::open(path).map_err(file(path))?;
        let size = opened.metadata().map_err(file(path))?.len();
        if size <= ONE_PIECE {
            let mut bytes = Vec::with_capacity(size as usize);
            opened.take(size).read_to_end(&mut bytes).map_err(file(path))?;
            return self.write(bytes.into(), key);
        }
        let (at, key) = self.at(key)?;
        let send = || self.send_parts(path, size, &at, &key);
        self.deliver(&at, size, send, path, || File::open(path))
    }

    /// Writes bytes to an object, and verifies them.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn write(&self, bytes: Bytes, key: &str) -> Result<(), S3Error> {
        let (at, path) = self.at(key)?;
        let send = || {
            let sent = self.runtime.block_on(self.store.put(&path, bytes.clone().into()));
            Ok(sent.map_err(|e| S3Error::of(&at, &e))?.e_tag.unwrap_or_default())
        };
        let open = || Ok(Cursor::new(&bytes));
        self.deliver(&at, bytes.len() as u64, send, Path::new("memory"), open)
    }

    /// Sends bytes, again if the object does not match them. `send` sends them and returns the
    /// object's ETag, `open` returns a reader of the bytes, and `path` is the name in errors.
    fn deliver<B: Read + Seek>(
        &self,
        at: &Address,
        size: u64,
        send: impl Fn() -> Result<String, S3Error>,
        path: &Path,
        open: impl Fn() -> io::Result<B>,
    ) -> Result<(), S3Error> {
        let mut object = Object { at: at.clone(), size, etag: String::new() };
        for _ in 0..TRIES {
            object.etag = send()?;
            let mut bytes = open().map_err(file(path))?;
            if compare(&mut bytes, size, &object.etag).map_err(file(path))? == Match::Same {
                return Ok(());
            }
            // Either the ETag is not a checksum, or the bytes differ: the object is read and
            // compared.
            bytes.rewind().map_err(file(path))?;
            if self.holds(&object, &mut bytes, path)? {
                return Ok(());
            }
        }
        Err(S3Error::Altered { at: object.at, tries: TRIES, checksum: object.etag })
    }

    /// Writes bytes to a new object. Returns false if the object already exists.
    ///
    /// # Errors
    /// Any error of the request.
    pub fn create(&self, bytes: Bytes, key: &str) -> Result<bool, S3Error> {
        let (at, path) = self.at(key)?;
        let options = PutOptions::from(PutMode::Create);
        match self.runtime.block_on(self.store.put_opts(&path, bytes.into(), options)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(fault) => Err(S3Error::of(&at, &fault)),
        }
    }

    /// Sends a file in parts, and returns the object's ETag.
    fn send_parts(
        &self,
        path: &Path,
        size: u64,
        at: &Address,
        key: &Key,
    ) -> Result<String, S3Error> {
        let part = PART.max(size.div_ceil(MAX_PARTS));
        let mut opened = File::open(path).map_err(file(path))?;
        let of = |e: object_store::Error| S3Error::of(at, &e);
        self.runtime.block_on(async {
            let upload = self.store.put_multipart(key).await.map_err(of)?;
            let mut parts = WriteMultipart::new_with_chunk_size(upload, part as usize);
            let mut left = size;
            while left > 0 {
                parts.wait_for_capacity(WIDE).await.map_err(of)?;
                let mut bytes = vec![0; part.min(left) as usize];
                opened.read_exact(&mut bytes).map_err(file(path))?;
                left -= bytes.len() as u64;
                parts.put(bytes.into());
            }
            let sent = parts.finish().await.map_err(of)?;
            Ok(sent.e_tag.unwrap_or_default())
        })
    }

    /// Reads an object, and returns true if it has the given bytes.
    fn holds(&self, object: &Object, bytes: &mut impl Read, path: &Path) -> Result<bool, S3Error> {
        for piece in pieces(object.size) {
            let mut own = vec![0; (piece.end - piece.start) as usize];
            bytes.read_exact(&mut own).map_err(file(path))?;
            match self.runtime.block_on(self.range(object, piece)) {
                Ok(theirs) if theirs == own => {}
                Ok(_) | Err(S3Error::Changed(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
        }
        Ok(true)
    }
}
