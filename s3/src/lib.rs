//! Files and folders in S3, or in a server with its interface.
//!
//! Credentials, region and endpoint come from the environment, by the names that AWS's own tools
//! use (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`), or from the role of a container or
//! machine. Every request is tried several times; every object is read as one version of it, and
//! compared with its checksum where it has one.

// In a test a panic is the report; elsewhere errors are values.
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

// Its feature gives connections TLS.
use reqwest as _;
