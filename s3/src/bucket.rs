//! A bucket: lists objects, reads ranges of their bytes, and removes them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientConfigKey, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt,
    RetryConfig,
};
use tokio::runtime::Runtime;

use crate::address::{Address, AddressFault};
use crate::error::S3Error;

/// Maximum number of attempts to read a range if responses are interrupted. `object_store` retries
/// failed requests separately.
const TRIES: u32 = 6;
/// Number of concurrent requests for ETags.
const WIDE: usize = 24;
/// Maximum number of retries of a request that fails or gets a 5xx response.
const RETRIES: usize = 6;
/// Time limit for all retries of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Default time limit for one request, which the environment may override.
const REQUEST: &str = "60 seconds";

/// A connection to a bucket.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(crate) store: Arc<AmazonS3>,
    pub(crate) runtime: Arc<Runtime>,
    name: String,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its URI.
    pub at: Address,
    /// Size in bytes.
    pub size: u64,
    /// ETag of the object's version, which is a checksum for most objects.
    pub etag: String,
}

impl Bucket {
    /// Prepares requests to a bucket, without sending any.
    ///
    /// # Errors
    /// [`S3Error::Address`] for an invalid name, or invalid settings in the environment.
    pub fn open(name: &str) -> Result<Self, S3Error> {
        Self::with(
            name,
            std::env::vars_os().filter_map(|(key, value)| {
                Some((key.into_string().ok()?, value.into_string().ok()?))
            }),
        )
    }

    /// Like [`Self::open`], with `variables` instead of the environment.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn with(
        name: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, S3Error> {
        let fault = |fault: String| AddressFault { text: format!("s3://{name}"), fault };
        // An error is ignored: a crypto provider may have been installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = variables.into_iter().filter(|(key, _)| key.starts_with("AWS_"));
        let settings = settings.filter_map(|(key, value)| {
            Some((key.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().ok()?, value))
        });
        let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let defaults = AmazonS3Builder::new().with_config(timeout, REQUEST);
        let mut builder = settings
            .fold(defaults, |builder, (key, value)| builder.with_config(key, value))
            .with_bucket_name(name);
        let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
        let is_plain = |key| builder.get_config_value(&key).is_some_and(|e| e.starts_with("http:"));
        if endpoints.into_iter().any(is_plain) {
            builder = builder.with_allow_http(true);
        }
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        };
        let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: PATIENCE };
        let store = builder.with_retry(retry).build().map_err(|e| fault(e.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3")
            .enable_all()
            .build()
            .map_err(|e| fault(format!("cannot start threads: {e}")))?;
        Ok(Self { store: Arc::new(store), runtime: Arc::new(runtime), name: name.to_string() })
    }

    /// The object with this key, or all objects in the folder of this name, sorted by key. Empty
    /// objects that mark folders are omitted.
    ///
    /// # Errors
    /// [`S3Error::Missing`] if there is no such object or folder, or any error of a request.
    pub fn list(&self, key: &str) -> Result<Vec<Object>, S3Error> {
        let (at, path) = self.at(key)?;
        let found: Vec<ObjectMeta> = self.runtime.block_on(async {
            let inside = self.store.list((!key.is_empty()).then_some(&path));
            // Some servers do not include ETags in listings.
            let known = inside.map_ok(|meta| async move {
                match meta.e_tag {
                    Some(_) => Ok(meta),
                    None => self.store.head(&meta.location).await,
                }
            });
            known.try_buffer_unordered(WIDE).try_collect().await.map_err(|e| S3Error::of(&at, &e))
        })?;
        let mut objects: Vec<Object> = found.into_iter().map(|meta| self.object(meta)).collect();
        if objects.is_empty() && !key.is_empty() {
            let meta = self.runtime.block_on(self.store.head(&path));
            objects.push(self.object(meta.map_err(|e| S3Error::of(&at, &e))?));
        }
        let folders: HashSet<String> =
            objects.iter().flat_map(|object| folders(&object.at.key)).collect();
        objects.retain(|object| object.size > 0 || !folders.contains(&object.at.key));
        objects.sort_by(|a, b| a.at.key.cmp(&b.at.key));
        Ok(objects)
    }

    /// True if there is an object in the folder of this name.
    ///
    /// # Errors
    /// Any error of the request.
    pub fn has_inside(&self, key: &str) -> Result<bool, S3Error> {
        let (at, path) = self.at(key)?;
        let first = async { self.store.list(Some(&path)).try_next().await };
        Ok(self.runtime.block_on(first).map_err(|e| S3Error::of(&at, &e))?.is_some())
    }

    /// True if there is an object with this key.
    ///
    /// # Errors
    /// Any error of the request.
    pub fn has(&self, key: &str) -> Result<bool, S3Error> {
        let (at, path) = self.at(key)?;
        match self.runtime.block_on(self.store.head(&path)) {
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            found => found.map(|_| true).map_err(|e| S3Error::of(&at, &e)),
        }
    }

    /// Removes objects; a missing object is not an error.
    ///
    /// # Errors
    /// The first error of a request.
    pub fn remove(&self, keys: &[String]) -> Result<(), S3Error> {
        keys.iter().try_for_each(|key| {
            let (at, path) = self.at(key)?;
            match self.runtime.block_on(self.store.delete(&path)) {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(fault) => Err(S3Error::of(&at, &fault)),
            }
        })
    }

    /// All bytes of a small object.
    ///
    /// # Errors
    /// [`S3Error::Missing`], or any error of the request.
    pub fn read(&self, key: &str) -> Result<Bytes, S3Error> {
        let (at, path) = self.at(key)?;
        let read = async { self.store.get(&path).await?.bytes().await };
        self.runtime.block_on(read).map_err(|e| S3Error::of(&at, &e))
    }

    /// Reads a range of bytes from the listed version of an object.
    pub(crate) async fn range(
        &self,
        object: &Object,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, S3Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let mut tried = 0;
        loop {
            tried += 1;
            match self.range_once(object, range.clone()).await {
                Err(fault) if fault.is_passing() && tried < TRIES => {
                    tokio::time::sleep(Duration::from_millis(100 << tried)).await;
                }
                result => return result,
            }
        }
    }

    async fn range_once(
        &self,
        object: &Object,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, S3Error> {
        let at = &object.at;
        let options = GetOptions::new()
            .with_range(Some(range.clone()))
            .with_if_match((!object.etag.is_empty()).then_some(&object.etag));
        let path = path(at)?;
        let got = self.store.get_opts(&path, options).await.map_err(|e| S3Error::of(at, &e))?;
        // The ETag is compared too, as some servers do not support conditional requests.
        let etag = got.meta.e_tag.as_deref().unwrap_or_default();
        let is_other = got.meta.size != object.size
            || (!object.etag.is_empty() && !etag.is_empty() && etag != object.etag);
        if is_other {
            return Err(S3Error::Changed(at.clone()));
        }
        let bytes = got.bytes().await.map_err(|e| S3Error::of(at, &e))?;
        if bytes.len() as u64 != range.end - range.start {
            let fault = format!("received {} bytes of the range {range:?}", bytes.len());
            return Err(S3Error::Transfer { at: at.clone(), fault });
        }
        Ok(bytes)
    }

    /// The URI of a key, and the key in `object_store`'s form.
    pub(crate) fn at(&self, key: &str) -> Result<(Address, Key), S3Error> {
        let at = Address { bucket: self.name.clone(), key: key.to_string() };
        let path = path(&at)?;
        Ok((at, path))
    }

    fn object(&self, meta: ObjectMeta) -> Object {
        let at = Address { bucket: self.name.clone(), key: meta.location.to_string() };
        Object { at, size: meta.size, etag: meta.e_tag.unwrap_or_default() }
    }
}

/// The key of a URI in `object_store`'s form.
fn path(at: &Address) -> Result<Key, S3Error> {
    let fault =
        |e: object_store::path::Error| AddressFault { text: at.to_string(), fault: e.to_string() };
    Ok(Key::parse(&at.key).map_err(fault)?)
}

/// The names of all parent folders of an object.
fn folders(key: &str) -> impl Iterator<Item = String> + '_ {
    key.match_indices('/').map(|(end, _)| key[..end].to_string())
}
