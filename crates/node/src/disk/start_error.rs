//! Why a node cannot start.

use storage::StorageError;

/// Why a node cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A setting is refused, with the reason.
    #[error("{0}")]
    Configuration(String),
    /// Its log cannot be read.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// The values that it keeps outside its log cannot be read, or some are missing.
    #[error("{0}")]
    Values(String),
    /// A record that the node must execute has crashed it before.
    #[error("{0}")]
    Quarantine(String),
    /// The cluster is at a level that this program does not know.
    #[error("{0}")]
    Level(String),
    /// The log holds a record that the node does not understand.
    #[error("the log holds a record of group {group} that cannot be taken: {why}")]
    Record {
        /// The group of the record.
        group: u16,
        /// What is wrong with it.
        why: String,
    },
}
