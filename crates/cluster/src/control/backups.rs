//! What the cluster knows of its backups. They are made from outside: `quorate backup` tells the cluster what it has saved, so
//! that every node can say how old that is.

use super::map::{ClusterMap, Saved};
use std::collections::BTreeMap;

impl ClusterMap {
    /// Notes what backups hold, by the keyspaces' prefixes; nothing: forgets that there ever were backups. If a
    /// keyspace has several backups, the newest counts, wherever it is stored. A keyspace that has been dropped is ignored.
    pub(super) fn note_backups(&mut self, saved: &BTreeMap<String, Saved>) {
        if saved.is_empty() {
            self.keyspaces.values_mut().for_each(|entry| entry.saved = None);
        }
        for (prefix, saved) in saved {
            if let Some(entry) = self.keyspaces.get_mut(prefix)
                && entry.saved.is_none_or(|before| before.at_ms <= saved.at_ms)
            {
                entry.saved = Some(*saved);
            }
        }
    }
}
