//! What can be wrong with the audit log.

use std::path::PathBuf;

use crate::disk::Fault;

/// Why the audit log could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or its directory cannot be used.
    #[error("the audit log cannot be used: {0}")]
    Disk(#[from] Fault),
    /// An earlier line did not reach the disk.
    #[error("the audit log {} did not reach the disk: {reason}", .file.display())]
    NotDurable {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        reason: String,
    },
    /// An entry could not be written as JSON.
    #[error("the audit entry cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
}
