//! The bytes that commands look at: the counts by which all replicas refuse commands, and charge scripts whose records do
//! not say otherwise. Nodes of the last release count alike, so they stay as they are.

use super::super::{By, Command, List};

impl Command<'_> {
    /// The most bytes of collections that the command reads or returns. `bytes_of` returns the size of a key,
    /// `bytes_in_range` that of a range of a sorted set, `bytes_between` that of the entries of a stream between two ids,
    /// and `pending_of` the number of a consumer's pending entries.
    pub(crate) fn walked_bytes(
        &self,
        bytes_of: impl Fn(&[u8]) -> u64,
        bytes_in_range: impl Fn(&[u8], By, List<'_>) -> u64,
        bytes_between: impl Fn(&[u8], &[u8], &[u8]) -> u64,
        pending_of: impl Fn(&[u8], &[u8], &[u8]) -> u64,
    ) -> u64 {
        match self {
            Command::Hash(command) => command.walked_bytes(bytes_of),
            Command::OnList(command) => command.walked_bytes(bytes_of),
            Command::OnSet(command) => command.walked_bytes(bytes_of),
            Command::OnSorted(command) => command.walked_bytes(bytes_of, bytes_in_range),
            Command::OnStream(command) => command.walked_bytes(bytes_of, bytes_between, pending_of),
            Command::OnBytes(command) => command.walked_bytes(bytes_of),
            Command::Sort(command) => command.walked_bytes(bytes_of),
            Command::Dump { key } => bytes_of(key),
            _ => 0,
        }
    }
}
