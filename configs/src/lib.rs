//! Typed configuration of onegraph.
//!
//! A run is described by one TOML file. Every key has a default, so a file names only what it
//! changes; `extends = "other.toml"` takes another file's values first. The presets of this
//! folder (`configs/*.toml`) are compiled into the binary, so `quickstart` works from anywhere.
//!

mod schema;

pub use schema::*;
