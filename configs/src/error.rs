//! Everything that can be wrong with a config, as one sentence each.

use std::io;

/// A config that cannot be used. The text names the file, the dotted key and the mend.
///
/// Where a key stands in an override, the file is given as `--set`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The path is no file and its name is no preset's.
    #[error("{file}: no such file, and no preset of that name; the presets are {presets}")]
    NotFound {
        /// The path asked for.
        file: String,
        /// Names of the presets, comma separated.
        presets: String,
    },
    /// The file is there but cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The path.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The text is not TOML.
    #[error("{file}:{line}: not valid TOML: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// Line of the fault, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// An override that is not `key=value`.
    #[error("--set {text}: must be KEY=VALUE, such as train.steps=100")]
    Override {
        /// The override as given.
        text: String,
    },
    /// Files that extend each other in a circle.
    #[error("{file}: `extends = \"{parent}\"` leads back to a file that extends this one; drop it")]
    ExtendsCircle {
        /// The file whose `extends` closes the circle.
        file: String,
        /// What it extends.
        parent: String,
    },
    /// `extends` names nothing that is there.
    #[error(
        "{file}: `extends = \"{parent}\"`: no such file beside it, and no preset of that name; \
         the presets are {presets}"
    )]
    ExtendsMissing {
        /// The file with the `extends`.
        file: String,
        /// What it extends.
        parent: String,
        /// Names of the presets, comma separated.
        presets: String,
    },
    /// A key that no table has.
    #[error("{file}: unknown key `{key}`; {hint}")]
    UnknownKey {
        /// Where it stands.
        file: String,
        /// The dotted key.
        key: String,
        /// ``did you mean `a.b`?``, or the table's keys.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("{file}: `{key}` must be {expected}, got {got}")]
    Type {
        /// Where it stands.
        file: String,
        /// The dotted key.
        key: String,
        /// What the key takes.
        expected: String,
        /// What stands there.
        got: String,
    },
    /// A value of the right type that makes no sense, alone or beside another.
    #[error("{file}: `{key}` {problem}")]
    Invalid {
        /// Where the value comes from.
        file: String,
        /// The dotted key.
        key: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// The config cannot be written as TOML.
    #[error("the config cannot be written as TOML: {message}")]
    Write {
        /// What the writer says.
        message: String,
    },
}
