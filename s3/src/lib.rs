//! Files and folders in S3, or on an S3-compatible server.
//!
//! Credentials, region and endpoint come from the environment variables of the AWS tools
//! (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`), or from the role of a container or
//! machine. Every request is retried several times; every object is read as a single version, and
//! compared with its checksum if it has one.

// Only tests may panic; other code returns errors.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod arriving;
mod bucket;
mod checksum;
mod error;
mod fetch;
mod mirror;
mod put;

pub use address::{Address, AddressFault};
pub use arriving::Arriving;
pub use bucket::{Bucket, Object};
pub use error::S3Error;
pub use fetch::{Arrived, Checked};
pub use mirror::{Mirror, OWNER};

// A dependency only for its feature, which enables TLS for connections.
use reqwest as _;
