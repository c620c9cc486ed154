//! The config infrastructure: tables of keys in Rust, their files, overrides and documentation.
//!
//! A run is described by one TOML file. Every key has a default, so a file contains only what it
//! changes; `extends = "other.toml"` applies another file's values first. The presets
//! (`configs/*.toml`) are compiled into the binary, so `quickstart` works from any directory. A
//! table is a struct that `table!` defines in the crate that uses it; `engine::config` combines the
//! tables.
//!
//! An invalid config is reported in a one-line message with the file, the key and the fix:
//! `my.toml: unknown key `solver.larning_rate`; did you mean `solver.learning_rate`?`

mod check;
mod differences;
mod document;
mod error;
mod keys;
mod layer;
mod load;
mod merge;
mod presets;
mod schema;
mod shape;
mod table;

pub use check::Check;
pub use differences::{Difference, differences, values};
pub use document::{to_table, to_toml, value};
pub use error::ConfigError;
pub use keys::{Key, table_of};
pub use load::Source;
pub use merge::{Layers, Origin, Origins};
pub use presets::{preset, preset_names};
pub use schema::{Facts, Schema, Synonym};
pub use table::{MlperfRule, ResumeRule, Table};
