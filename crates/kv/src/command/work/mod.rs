//! How long commands take.
//!
//! A node admits commands, shares a turn among its clients and charges scripts by these estimates. They are counts, not
//! measurements: what a script costs must be the same on every replica. So once a release has shipped, a change of any of
//! these figures is a change of what the records of scripts do, and needs a level (`docs/design/releases.md`).
//! `tests/times` compares them with the time that commands do take.

mod families;
mod walked;

use super::{By, Command, List, Script};
use crate::ValueId;
use crate::codec::Reader;

/// Approximate time to visit or to drop one key of a table.
const KEY_NS: u64 = 100;

/// Approximate time to copy, to lock, and to unlock one key.
const LOCK_NS: u64 = 1500;

/// A pattern is matched in steps of this many of its bytes.
const PATTERN_STEP_BYTES: usize = 64;

/// The most that a command does beside what [`Command::walk_ns`] counts: finding its key, and a short reply.
pub const COMMAND_NS: u64 = 300;

/// To copy so many bytes. More than caches hold takes longer.
fn copied(bytes: u64) -> u64 {
    const CACHED_BYTES: u64 = 4 << 20;
    if bytes > CACHED_BYTES { bytes / 10 } else { bytes / 32 }
}

/// To make a string of so many bytes. A long one has memory of its own, which the allocator takes and returns each time: that took
/// 1 to 15 us, depending on the system.
fn made(bytes: u64) -> u64 {
    const OWN_NS: u64 = 10_000;
    copied(bytes) + if bytes < FEW_BYTES as u64 { 0 } else { OWN_NS }
}

/// With fewer items in a list of arguments, a command is not worth an estimate.
pub(super) const FEW: usize = 64;

/// With fewer bytes, neither.
pub(super) const FEW_BYTES: usize = 64 << 10;

/// How much a command looks at, or makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Elements, members, fields or entries.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// From so many items on, most of them are in no cache.
const MANY: u64 = 30_000;

impl Size {
    /// At most this many of the items, with their share of the bytes.
    fn first(self, items: u64) -> Size {
        match items < self.items {
            true => Size {
                items,
                bytes: (u128::from(self.bytes) * u128::from(items) / u128::from(self.items)) as u64,
            },
            false => self,
        }
    }

    /// Exactly this many items like these.
    fn drawn(self, items: u64) -> Size {
        let bytes = self.bytes.checked_div(self.items).unwrap_or(0).saturating_mul(items);
        if self.items == 0 { Size::default() } else { Size { items, bytes } }
    }

    fn and(self, other: Size) -> Size {
        Size { items: self.items.saturating_add(other.items), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// Nanoseconds, with so many for each item, and so many thousandths of one for each byte.
    fn ns(self, item_ns: u64, byte_ps: u64) -> u64 {
        self.items.saturating_mul(item_ns).saturating_add(self.bytes.saturating_mul(byte_ps) / 1000)
    }

    /// Nanoseconds for items that are found one by one.
    fn strewn(self, item_ns: u64) -> u64 {
        self.ns(if self.items < MANY { item_ns } else { 3 * item_ns }, 300)
    }
}

impl List<'_> {
    fn size(&self) -> Size {
        Size { items: self.len() as u64, bytes: self.bytes() as u64 }
    }

    /// The size of a list of pairs.
    fn pairs_size(&self) -> Size {
        Size { items: self.len() as u64 / 2, bytes: self.bytes() as u64 }
    }
}

/// The quantities that determine how long a command takes.
pub trait Known {
    /// The number of keys.
    fn keys(&self) -> u64;

    /// The size of a value: items and bytes. For a string, no items.
    fn size(&self, key: &[u8]) -> Size;

    /// Whether the value is a stream.
    fn is_stream(&self, key: &[u8]) -> bool;

    /// The size of a range of the members of a sorted set.
    fn in_range(&self, key: &[u8], by: By, ends: List<'_>) -> Size;

    /// The size of the part of a sorted set that a search for places looks at.
    fn in_search(&self, key: &[u8], query: &[u8]) -> Size;

    /// The size of the entries of a stream between two ids.
    fn between(&self, key: &[u8], start: &[u8], end: &[u8]) -> Size;

    /// The number of groups of a stream.
    fn groups_of(&self, key: &[u8]) -> u64;

    /// Pending entries of a consumer of a stream.
    fn pending_of(&self, key: &[u8], group: &[u8], consumer: &[u8]) -> u64;

    /// The expected time of a script, in nanoseconds, as far as it is known in advance.
    fn script_ns(&self, script: &Script<'_>) -> u64;

    /// A long command whose parts have all arrived, encoded.
    fn long_command(&self, id: ValueId) -> Option<&[u8]>;

    /// Touches what is known of the first of these keys: see [`Table::warm`](crate::Table::warm). Returns of how many, at least 1.
    fn warm(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> usize;
}

impl Command<'_> {
    /// Whether the command may take much longer than most: [`Command::walk_ns`] estimates how long.
    #[inline]
    pub fn may_walk(&self) -> bool {
        !matches!(self, Command::Get { .. } | Command::Set { .. }) && self.declared_walks()
    }

    /// Whether the command is refused if it would take too long in one step. Those that return what is there, or remove
    /// all of it, are not; and scripts and transactions have limits of their own.
    pub fn may_be_too_long(&self) -> bool {
        !self.declared_lists()
    }

    /// The approximate time in nanoseconds that the command takes beyond [`COMMAND_NS`].
    pub fn walk_ns(&self, known: &impl Known) -> u64 {
        self.ns(known)
    }

    // Dynamic, because transactions have commands, too.
    fn ns(&self, known: &dyn Known) -> u64 {
        use Command::*;
        const RANDOM_LOOKS: u64 = 4096;
        let bytes = |key: &[u8]| known.size(key).bytes;
        match *self {
            Hash(ref command) => command.ns(known),
            OnList(ref command) => command.ns(known),
            OnSet(ref command) => command.ns(known),
            OnSorted(ref command) => command.ns(known),
            OnStream(ref command) => command.ns(known),
            OnBytes(ref command) => command.ns(known),
            Sort(ref command) => command.ns(known),
            Keys { pattern } => known.keys() * KEY_NS * steps(Some(pattern)),
            Scan { count, pattern, .. } => known.keys().min(count) * KEY_NS * steps(pattern),
            RandomKey { .. } => known.keys().min(RANDOM_LOOKS) * KEY_NS,
            Clear {} => known.keys() * KEY_NS,
            Digest { key } => bytes(key) / 11,
            Dump { key } => families::dump_ns(known.size(key), known.is_stream(key)),
            Restore { payload, .. } => families::restore_ns(payload),
            GetRange { key, start, end } => families::substring_ns(bytes(key), start, end),
            Get { key } | Fetch { key } | GetDelete { key } | GetExpire { key, .. } => copied(bytes(key)),
            MultiGet { keys } => {
                let (mut rest, mut left) = (keys.iter(), 0);
                let each = std::iter::from_fn(|| {
                    if left == 0 {
                        left = known.warm(&mut rest.clone());
                    }
                    left -= 1;
                    rest.next().map(|key| copied(bytes(key)))
                });
                keys.size().ns(65, 0) + each.sum::<u64>()
            }
            Exists { keys } | Watch { keys } => keys.size().ns(15, 0),
            Delete { keys } => keys.size().strewn(170),
            MultiSet { pairs, .. } | MultiSetExpire { pairs, .. } => pairs.pairs_size().strewn(120),
            Set { value, .. } | SetIf { value, .. } => made(value.len() as u64),
            Append { key, value, .. } => copied(bytes(key).saturating_add(value.len() as u64)),
            SetRange { key, offset, .. } => made(offset.saturating_sub(bytes(key))),
            IncrementByFloat { key, delta }
            | IncrementWithin { key, step: super::Step::Decimal { by: delta, .. }, .. } => {
                let is_far =
                    |text: &[u8]| text.len() > 20 || text.iter().any(|byte| matches!(byte, b'e' | b'E'));
                // A number with hundreds of digits is written with all of them.
                if is_far(delta) || bytes(key) > 20 { 4700 } else { 700 }
            }
            Copy { from, .. } | Rename { from, .. } => match known.size(from) {
                size if size.items == 0 => copied(size.bytes),
                _ => 0, // The items are shared.
            },
            Script(ref script) => known.script_ns(script),
            Transaction(ref transaction) => {
                let (mut commands_ns, mut scripts_ns) = (0_u64, 0_u64);
                for command in transaction.commands() {
                    match command {
                        // The scripts of a transaction share one script's limit.
                        Script(script) => {
                            let more_ns = scripts_ns.saturating_add(known.script_ns(&script));
                            scripts_ns = more_ns.min(script.most_ns());
                        }
                        _ => commands_ns = commands_ns.saturating_add(command.ns(known)),
                    }
                    commands_ns = commands_ns.saturating_add(COMMAND_NS);
                }
                commands_ns.saturating_add(scripts_ns)
            }
            Bounded(ref bounded) => bounded.command().ns(known),
            // It is carried out twice: on copies when it is prepared, and when it is committed. A lock reads once.
            TwoPhase(command) if let Some(share) = command.share() => {
                let command = share.command();
                let mut keys = 0;
                command.for_each_key(|_| keys += 1);
                command.ns(known).saturating_mul(2).saturating_add(keys * LOCK_NS)
            }
            LongEnd { id, .. } => {
                let command =
                    known.long_command(id).and_then(|it| Command::decode(&mut Reader::new(it)).ok());
                command.map_or(0, |command| command.ns(known))
            }
            _ => 0,
        }
    }
}

/// The factor by which a pattern lengthens the visit of a key or field.
fn steps(pattern: Option<&[u8]>) -> u64 {
    1 + pattern.map_or(0, |pattern| pattern.len() / PATTERN_STEP_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Age, Draft, HashCommand, HashPart, Header, ScriptLimits, Share, TransactionId, TwoPhaseCommand,
    };

    /// A million keys of 10,000 items and a mebibyte each, and scripts that take a second.
    struct Large;

    impl Known for Large {
        fn warm(&self, _: &mut dyn Iterator<Item = &[u8]>) -> usize {
            7
        }

        fn keys(&self) -> u64 {
            1_000_000
        }

        fn size(&self, _: &[u8]) -> Size {
            Size { items: 10_000, bytes: 1 << 20 }
        }

        fn is_stream(&self, _: &[u8]) -> bool {
            false
        }

        fn in_range(&self, _: &[u8], _: By, _: List<'_>) -> Size {
            Size { items: 1000, bytes: 1 << 16 }
        }

        fn in_search(&self, _: &[u8], _: &[u8]) -> Size {
            Size { items: 1000, bytes: 1 << 16 }
        }

        fn between(&self, _: &[u8], _: &[u8], _: &[u8]) -> Size {
            Size { items: 1000, bytes: 1 << 16 }
        }

        fn groups_of(&self, _: &[u8]) -> u64 {
            10
        }

        fn pending_of(&self, _: &[u8], _: &[u8], _: &[u8]) -> u64 {
            1000
        }

        fn script_ns(&self, _: &Script<'_>) -> u64 {
            1_000_000_000
        }

        fn long_command(&self, _: ValueId) -> Option<&[u8]> {
            None
        }
    }

    #[test]
    fn the_time_of_walking_commands_follows_the_amount_of_data() {
        let ns = |command: &Command<'_>| command.walk_ns(&Large);
        let keys = Command::Keys { pattern: b"*" };
        assert_eq!(ns(&keys), 100_000_000);
        assert_eq!(ns(&Command::Keys { pattern: &[b'*'; 640] }), 1_100_000_000);
        let scan = |count| Command::Scan { position: 0, count, pattern: None, kind: None, group: 1, next: 0 };
        assert_eq!([ns(&scan(10)), ns(&scan(u64::MAX))], [1000, 100_000_000]);
        let hash = Command::Hash(HashCommand::All { key: b"h", part: HashPart::Both });
        assert!((100_000..1_000_000).contains(&ns(&hash)));
        let mut draft = Draft::default();
        (0..3).for_each(|_| assert!(draft.push(&keys)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(ns(&transaction), 300_000_000 + 3 * COMMAND_NS);
        let mut scratch = Vec::new();
        let limits = ScriptLimits { value_bytes_max: 1, cost_max: 2_000_000 };
        let script = Command::Script(Script::build(&mut scratch, b"return 1", [], 0, limits, true).unwrap());
        assert_eq!(ns(&script), 1_000_000_000);
        (0..3).for_each(|_| assert!(draft.push(&script)));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(ns(&transaction), 320_000_000 + 6 * COMMAND_NS, "its scripts share what one may cost");
        // A payload that says to have 2^63 members, and has none.
        let payload = &[2, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert!(super::families::restore_ns(payload) < 100_000);
        assert!(transaction.may_walk() && keys.may_walk() && !Command::Get { key: b"k" }.may_walk());
    }

    #[test]
    fn a_share_is_carried_out_twice() {
        let hash = Command::Hash(HashCommand::All { key: b"h", part: HashPart::Both });
        let coordinator = crate::Coordinator { node: 1, life: 1 };
        let id = TransactionId { coordinator, number: 1 };
        let (mut scratch, mut bytes) = (Vec::new(), Vec::new());
        let age = Age { since: 1, first: id };
        let header = Header::build((id, age), (1, []), [(1, true)], &mut scratch).unwrap();
        let share = Share::build(&hash, &mut bytes).unwrap();
        let prepare = TwoPhaseCommand::Prepare { header, is_alone: false, share };
        let prepare = Command::TwoPhase(prepare);
        assert!(prepare.may_walk());
        assert_eq!(prepare.walk_ns(&Large), 2 * hash.walk_ns(&Large) + LOCK_NS);
    }
}
