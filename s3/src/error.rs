//! Faults of transfers, a sentence each.

use std::path::{Path, PathBuf};

use crate::address::{Address, AddressFault};

/// An error of S3 or of a file that is copied from or to it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum S3Error {
    /// Text that is no address.
    #[error(transparent)]
    Address(#[from] AddressFault),
    /// Nothing there.
    #[error("{0}: there is no such bucket, object or folder")]
    Missing(Address),
    /// A request that the server refuses.
    #[error(
        "{at}: the server refuses the request ({fault}); see that AWS_ACCESS_KEY_ID, \
         AWS_SECRET_ACCESS_KEY and AWS_REGION, or the role of this machine, give access to it"
    )]
    Refused {
        /// The object.
        at: Address,
        /// The server's words.
        fault: String,
    },
    /// An object that was replaced while it was read.
    #[error("{0} was replaced while it was read; start again when it is no longer written")]
    Changed(Address),
    /// Bytes that never were those of the object.
    #[error("{at}: {tries} transfers did not match its checksum, {checksum}")]
    Altered {
        /// The object.
        at: Address,
        /// Transfers that were made.
        tries: usize,
        /// The checksum.
        checksum: String,
    },
    /// A transfer that failed each time.
    #[error("{at}: {fault}")]
    Transfer {
        /// The object.
        at: Address,
        /// The last fault.
        fault: String,
    },
    /// A folder that somebody else writes by now.
    #[error("{at}: {owner} writes there now, so this process does not any more")]
    TakenOver {
        /// The folder.
        at: Address,
        /// Its name.
        owner: String,
    },
    /// A file on this machine.
    #[error("{}: {fault}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        fault: String,
    },
}

impl S3Error {
    /// Names the object in a fault of `object_store`.
    pub(crate) fn of(at: &Address, fault: &object_store::Error) -> Self {
        use object_store::Error;
        let (at, text) = (at.clone(), innermost(fault));
        // A listing that fails is of no kind.
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

    /// True if the same request could succeed at another time.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Transfer { .. })
    }
}

/// Names the file in an I/O error.
pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> S3Error {
    let path = path.to_path_buf();
    move |fault| S3Error::File { path, fault: fault.to_string() }
}

/// The first cause of a fault, on one line.
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

/// The code and message of an answer that has them, else the text.
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

/// Longest text of a server that is repeated, in characters.
const LONGEST: usize = 300;
