//! All errors of a config, each with a one-line message.

use std::io;

/// An invalid config. The message contains the file, the dotted key and the fix.
///
/// For a key from an override, the file is `--set`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The path is neither a file nor the name of a preset.
    #[error("{file}: no such file, and no preset of that name; {presets}")]
    NotFound {
        /// The requested path.
        file: String,
        /// The most similar preset, and the names of all presets.
        presets: String,
    },
    /// The file exists but cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The path.
        file: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The text is not TOML.
    #[error("{file}:{line}: not valid TOML: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// Line of the error, counted from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// An override that does not have the form `key=value`.
    #[error("--set {text}: must be KEY=VALUE, such as train.steps=100")]
    Override {
        /// The override as given.
        text: String,
    },
    /// A cycle of files that extend each other.
    #[error(
        "{file}: `extends = \"{parent}\"` closes a cycle of files that extend one another; remove it"
    )]
    ExtendsCircle {
        /// The file whose `extends` closes the cycle.
        file: String,
        /// The file or preset that it extends.
        parent: String,
    },
    /// The value of `extends` does not exist.
    #[error(
        "{file}: `extends = \"{parent}\"`: not found in that directory, and not a preset; \
         {presets}"
    )]
    ExtendsMissing {
        /// The file with the `extends`.
        file: String,
        /// The file or preset that it extends.
        parent: String,
        /// The most similar preset, and the names of all presets.
        presets: String,
    },
    /// An unknown key.
    #[error("{file}: unknown key `{key}`; {hint}")]
    UnknownKey {
        /// The file.
        file: String,
        /// The dotted key.
        key: String,
        /// ``did you mean `a.b`?``, or the table's keys.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("{file}: `{key}` must be {expected}, got {got}")]
    Type {
        /// The file.
        file: String,
        /// The dotted key.
        key: String,
        /// The expected type.
        expected: String,
        /// The value found.
        got: String,
    },
    /// A value of the right type that is invalid, by itself or in combination with a different key.
    #[error("{file}: `{key}` {problem}")]
    Invalid {
        /// The file that sets the value, or `--set`.
        file: String,
        /// The dotted key.
        key: String,
        /// The problem and how to fix it.
        problem: String,
    },
    /// The config cannot be written as TOML.
    #[error("the config cannot be written as TOML: {message}")]
    Write {
        /// The serializer's message.
        message: String,
    },
}
