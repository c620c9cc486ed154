//! Transfer errors, with one-line messages.

use std::path::{Path, PathBuf};

use crate::address::{Address, AddressFault};

/// An error of S3, or of a local file in a transfer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum S3Error {
    /// An invalid S3 URI.
    #[error(transparent)]
    Address(#[from] AddressFault),
    /// No such object.
    #[error("{0}: there is no such bucket, object or folder")]
    Missing(Address),
    /// A request rejected by the server.
    #[error(
        "{at}: the server rejected the request ({fault}); check that AWS_ACCESS_KEY_ID, \
         AWS_SECRET_ACCESS_KEY and AWS_REGION, or the role of this machine, give access to it"
    )]
    Refused {
        /// The object.
        at: Address,
        /// The server's message.
        fault: String,
    },
    /// An object was replaced while it was read.
    #[error("{0} was replaced while it was read; try again when no process writes to it")]
    Changed(Address),
    /// The transferred bytes never matched the object's checksum.
    #[error("{at}: none of {tries} transfers matched its checksum {checksum}")]
    Altered {
        /// The object.
        at: Address,
        /// Number of transfers.
        tries: usize,
        /// The checksum.
        checksum: String,
    },
    /// A request that failed in all attempts.
    #[error("{at}: {fault}")]
    Transfer {
        /// The object.
        at: Address,
        /// The last error.
        fault: String,
    },
    /// A folder to which a different process now writes.
    #[error("{at}: {owner} now writes there, so this process has stopped writing there")]
    TakenOver {
        /// The folder.
        at: Address,
        /// The name of that process.
        owner: String,
    },
    /// A local file.
    #[error("{}: {fault}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        fault: String,
    },
}

impl S3Error {
    /// Converts an `object_store` error, and adds the object.
    pub(crate) fn of(at: &Address, fault: &object_store::Error) -> Self {
        use object_store::Error;
        let (at, text) = (at.clone(), innermost(fault));
        // `object_store` does not distinguish the status codes of failed listings.
        let is_listing = |status: &str| text.contains(&format!("status code: {status} "));
        let words = words_of_server(&text);
        match fault {
            Error::NotFound { .. } => Self::Missing(at),
            _ if is_listing("404") => Self::Missing(at),
            Error::Precondition { .. } => Self::Changed(at),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                Self::Refused { at, fault: words }
            }
            _ if is_listing("401") || is_listing("403") => Self::Refused { at, fault: words },
            _ => Self::Transfer { at, fault: words },
        }
    }

    /// True if a repeated request may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Transfer { .. })
    }
}

/// Adds the file to an I/O error.
pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> S3Error {
    let path = path.to_path_buf();
    move |fault| S3Error::File { path, fault: fault.to_string() }
}

/// The root cause of an error, on one line.
fn innermost(fault: &dyn std::error::Error) -> String {
    let mut cause = fault;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let words: Vec<String> = cause.to_string().split_whitespace().map(str::to_string).collect();
    let mut text = words.join(" ");
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain("..".chars()).collect();
    }
    text
}

/// The code and message in a server's response; if there are none, the whole text.
fn words_of_server(text: &str) -> String {
    let part = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0)
    };
    match (part("Code"), part("Message")) {
        (Some(code), Some(message)) => format!("{code}: {}", message.trim_end_matches('.')),
        (Some(code), None) => code.to_string(),
        _ => text.to_string(),
    }
}

/// Maximum length of a server's text in a message, in characters.
const LONGEST: usize = 300;
