//! Typed configuration of onegraph.
//!
//! A run is described by one TOML file. Every key has a default, so a file names only what it
//! changes; `extends = "other.toml"` takes another file's values first. The presets of this
//! folder (`configs/*.toml`) are compiled into the binary, so `quickstart` works from anywhere.
//!
//! ```
//! let config = configs::Config::load("quickstart", &["train.steps=10".to_string()])?;
//! assert_eq!(config.train.steps, 10);
//! assert_eq!(config.level_strides(), [4, 8, 16]);
//! # Ok::<(), configs::ConfigError>(())
//! ```
//!
//! A user's mistake is reported in one sentence that names the file, the key and the fix:
//! `my.toml: unknown key `solver.larning_rate`; did you mean `solver.learning_rate`?`

mod check;
mod differences;
mod document;
mod epochs;
mod error;
mod keys;
mod load;
mod merge;
pub mod mlperf;
mod presets;
mod schema;
mod shape;
mod synonyms;
mod validate;

pub use differences::Difference;
pub use document::reference;
pub use error::ConfigError;
pub use keys::{Key, key, keys, keys_of_table, similar_keys};
pub use load::{HALF_THE_RUN, OF_THE_BATCH};
pub use merge::{Origin, Origins, removed};
pub use presets::{preset, preset_names};
pub use schema::*;
pub use synonyms::{Synonym, synonym};
