//! The machinery of configs: tables of keys in Rust, their files, overrides and documentation.
//!
//! A run is described by one TOML file. Every key has a default, so a file names only what it
//! changes; `extends = "other.toml"` takes another file's values first. The presets of this
//! folder (`configs/*.toml`) are compiled into the binary, so `quickstart` works from anywhere.
//! A table is a struct that `table!` defines, where it is used; `engine::config` puts them
//! together.
//!
//! A user's mistake is reported in one sentence that names the file, the key and the fix:
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
