//! Snapshots that are received, or replayed.

use super::position::Moment;
use kv::Table;

/// A table beside the one in use, which it will replace.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) moment: Moment,
    pub(super) table: Table,
}
