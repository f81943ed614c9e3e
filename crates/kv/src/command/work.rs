//! Commands that take longer than their size suggests.

use super::{By, Command, List, Script};

/// Approximate time to visit or to drop one key of a table.
const KEY_NS: u64 = 50;

/// A pattern is matched in steps of this many of its bytes.
const PATTERN_STEP_BYTES: usize = 64;

impl Command<'_> {
    /// Whether the command may walk through a table or a large value, or run a script: [`Command::walk_ns`] estimates
    /// the time.
    #[inline]
    pub fn may_walk(&self) -> bool {
        !matches!(self, Command::Get { .. } | Command::Set { .. }) && self.may_any_walk()
    }

    fn may_any_walk(&self) -> bool {
        use Command::*;
        match self {
            Hash(command) => return command.may_walk(),
            OnList(command) => return command.may_walk(),
            OnSet(command) => return command.may_walk(),
            OnSorted(command) => return command.may_walk(),
            OnStream(command) => return command.may_walk(),
            OnBytes(command) => return command.may_walk(),
            Sort(_) => return true,
            Routed(routed) => return routed.command().may_walk(),
            Bounded(bounded) => return bounded.command().may_walk(),
            _ => {}
        }
        matches!(
            self,
            Keys { .. }
                | Scan { .. }
                | RandomKey { .. }
                | Clear
                | Digest { .. }
                | Dump { .. }
                | Transaction(_)
                | Script(_)
        )
    }

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

    /// The command's name, if it is one that [`Command::walked_bytes`] measures.
    pub(crate) fn walking_name(&self) -> &'static str {
        match self {
            Command::Hash(command) => command.name(),
            Command::OnList(command) => command.name(),
            Command::OnSet(command) => command.name(),
            Command::OnSorted(command) => command.name(),
            Command::OnStream(command) => command.name(),
            Command::OnBytes(command) => command.name(),
            Command::Sort(_) => "SORT",
            Command::Dump { .. } => "DUMP",
            _ => "the command",
        }
    }

    /// The approximate time in nanoseconds that the command takes beyond the cost of its own bytes.
    pub fn walk_ns(&self, known: &impl Known) -> u64 {
        use Command::*;
        const RANDOM_LOOKS: u64 = 4096;
        let keys = known.keys() as u64;
        match self {
            Keys { pattern } => keys * KEY_NS * steps(Some(pattern)),
            Scan { count, pattern, .. } => keys.min(*count) * KEY_NS * steps(*pattern),
            RandomKey { .. } => keys.min(RANDOM_LOOKS) * KEY_NS,
            Clear => keys * KEY_NS,
            Digest { key } => known.bytes_of(key) as u64 / 8,
            Dump { key } => known.bytes_of(key) as u64 / 2,
            Hash(_) | OnList(_) | OnSet(_) | OnSorted(_) | OnStream(_) | OnBytes(_) | Sort(_) => {
                let bytes_of = |key: &[u8]| known.bytes_of(key) as u64;
                let in_range = |key: &[u8], by, ends: List<'_>| known.bytes_in_range(key, by, ends);
                let between = |key: &[u8], start: &[u8], end: &[u8]| known.bytes_between(key, start, end);
                let pending =
                    |key: &[u8], group: &[u8], consumer: &[u8]| known.pending_of(key, group, consumer);
                self.walked_bytes(bytes_of, in_range, between, pending) / 2
            }
            Script(script) => known.script_ns(script),
            Transaction(transaction) => {
                let (mut walks_ns, mut scripts_ns) = (0_u64, 0_u64);
                for command in transaction.commands() {
                    match command {
                        // The scripts of a transaction share one script's limit.
                        Script(script) => {
                            let more_ns = scripts_ns.saturating_add(known.script_ns(&script));
                            scripts_ns = more_ns.min(script.most_ns());
                        }
                        _ => walks_ns = walks_ns.saturating_add(command.walk_ns(known)),
                    }
                }
                walks_ns.saturating_add(scripts_ns)
            }
            Routed(routed) => routed.command().walk_ns(known),
            Bounded(bounded) => bounded.command().walk_ns(known),
            _ => 0,
        }
    }
}

/// The quantities that determine how long a command takes.
pub trait Known {
    /// The number of keys.
    fn keys(&self) -> usize;

    /// Bytes that a key and its value occupy.
    fn bytes_of(&self, key: &[u8]) -> usize;

    /// Bytes that a range of the members of a sorted set occupies.
    fn bytes_in_range(&self, key: &[u8], by: By, ends: List<'_>) -> u64;

    /// Bytes that the entries of a stream between two ids occupy.
    fn bytes_between(&self, key: &[u8], start: &[u8], end: &[u8]) -> u64;

    /// Pending entries of a consumer of a stream.
    fn pending_of(&self, key: &[u8], group: &[u8], consumer: &[u8]) -> u64;

    /// The expected time of a script, in nanoseconds, as far as it is known in advance.
    fn script_ns(&self, script: &Script<'_>) -> u64;
}

/// The factor by which a pattern lengthens the visit of a key or field.
fn steps(pattern: Option<&[u8]>) -> u64 {
    1 + pattern.map_or(0, |pattern| pattern.len() / PATTERN_STEP_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, HashCommand, HashPart, ScriptLimits};

    /// A million keys of one mebibyte each, and scripts that take a second.
    struct Large;

    impl Known for Large {
        fn keys(&self) -> usize {
            1_000_000
        }

        fn bytes_of(&self, _: &[u8]) -> usize {
            1 << 20
        }

        fn bytes_in_range(&self, _: &[u8], _: By, _: List<'_>) -> u64 {
            1 << 16
        }

        fn bytes_between(&self, _: &[u8], _: &[u8], _: &[u8]) -> u64 {
            1 << 16
        }

        fn pending_of(&self, _: &[u8], _: &[u8], _: &[u8]) -> u64 {
            1000
        }

        fn script_ns(&self, _: &Script<'_>) -> u64 {
            1_000_000_000
        }
    }

    #[test]
    fn the_time_of_walking_commands_follows_the_amount_of_data() {
        let ns = |command: &Command<'_>| command.walk_ns(&Large);
        let keys = Command::Keys { pattern: b"*" };
        assert_eq!(ns(&keys), 50_000_000);
        assert_eq!(ns(&Command::Keys { pattern: &[b'*'; 640] }), 550_000_000);
        let scan = |count| Command::Scan { position: 0, count, pattern: None, kind: None, group: 1, next: 0 };
        assert_eq!([ns(&scan(10)), ns(&scan(u64::MAX))], [500, 50_000_000]);
        let hash = Command::Hash(HashCommand::All { key: b"h", part: HashPart::Both });
        assert_eq!(ns(&hash), 1 << 19);
        let mut draft = Draft::default();
        (0..3).for_each(|_| assert!(draft.push(&keys)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(ns(&transaction), 150_000_000);
        let mut scratch = Vec::new();
        let limits = ScriptLimits { value_bytes_max: 1, cost_max: 2_000_000 };
        let script = Command::Script(Script::build(&mut scratch, b"return 1", [], 0, limits, true).unwrap());
        assert_eq!(ns(&script), 1_000_000_000);
        (0..3).for_each(|_| assert!(draft.push(&script)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(ns(&transaction), 150_000_000 + 20_000_000, "its scripts share what one may cost");
        assert!(transaction.may_walk() && keys.may_walk() && !Command::Get { key: b"k" }.may_walk());
    }
}
