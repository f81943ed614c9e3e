//! Which commands take longer than their bytes tell.

use super::{Command, HashCommand};

/// How long it takes to look at one key of a table, or to forget it, about.
const KEY_NS: u64 = 50;

/// What is looked at of a hash for each field that `HSCAN` is to visit, in bytes.
const SCANNED_FIELD_BYTES: u64 = 256;

/// A pattern is matched in steps of so many of its bytes.
const PATTERN_STEP_BYTES: usize = 64;

impl Command<'_> {
    /// True for those that may walk through a table or a large value: [`Command::walk_ns`] tells how long that takes.
    #[inline]
    pub fn may_walk(&self) -> bool {
        use Command::*;
        matches!(
            self,
            Keys { .. }
                | Scan { .. }
                | RandomKey { .. }
                | Clear
                | Digest { .. }
                | Transaction(_)
                | Hash(HashCommand::All { .. } | HashCommand::Scan { .. })
        )
    }

    /// About how many nanoseconds the command takes beside what its own bytes cost. There are so many `keys`, and `bytes_of`
    /// says how many bytes one of them takes.
    pub fn walk_ns(&self, keys: usize, bytes_of: &dyn Fn(&[u8]) -> usize) -> u64 {
        use Command::*;
        const RANDOM_LOOKS: u64 = 4096;
        let keys = keys as u64;
        match self {
            Keys { pattern } => keys * KEY_NS * steps(Some(pattern)),
            Scan { count, pattern, .. } => keys.min(*count) * KEY_NS * steps(*pattern),
            RandomKey { .. } => keys.min(RANDOM_LOOKS) * KEY_NS,
            Clear => keys * KEY_NS,
            Digest { key } => bytes_of(key) as u64 / 8,
            Hash(HashCommand::All { key, .. }) => bytes_of(key) as u64 / 2,
            Hash(HashCommand::Scan { key, count, pattern, .. }) => {
                let scanned = count.saturating_mul(SCANNED_FIELD_BYTES).min(bytes_of(key) as u64);
                scanned / 2 * steps(*pattern)
            }
            Transaction(transaction) => {
                let walks = transaction.commands().filter(|command| command.may_walk());
                walks.map(|command| command.walk_ns(keys as usize, bytes_of)).fold(0, u64::saturating_add)
            }
            _ => 0,
        }
    }
}

/// How many times as long as a look alone it takes to match each key or field with a pattern.
fn steps(pattern: Option<&[u8]>) -> u64 {
    1 + pattern.map_or(0, |pattern| pattern.len() / PATTERN_STEP_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draft;

    #[test]
    fn commands_that_walk_take_as_long_as_there_is_to_look_at() {
        let bytes_of = |_: &[u8]| 1 << 20;
        let ns = |command: &Command<'_>| command.walk_ns(1_000_000, &bytes_of);
        let keys = Command::Keys { pattern: b"*" };
        assert_eq!(ns(&keys), 50_000_000);
        assert_eq!(ns(&Command::Keys { pattern: &[b'*'; 640] }), 550_000_000);
        let scan = |count| Command::Scan { position: 0, count, pattern: None, kind: None, group: 1, next: 0 };
        assert_eq!([ns(&scan(10)), ns(&scan(u64::MAX))], [500, 50_000_000]);
        let hash =
            Command::Hash(HashCommand::Scan { key: b"h", position: 0, count: u64::MAX, pattern: None });
        assert_eq!(ns(&hash), 1 << 19);
        let mut draft = Draft::default();
        (0..3).for_each(|_| assert!(draft.push(&keys)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(ns(&transaction), 150_000_000);
        assert!(transaction.may_walk() && keys.may_walk() && !Command::Get { key: b"k" }.may_walk());
    }
}
