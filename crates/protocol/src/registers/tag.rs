//! Tags: what orders the writes of one key.
//!
//! A tag is (counter, incarnation, member) in one number, compared in that order. The counter makes a write newer than
//! everything that its writer saw. Member and incarnation make the tag unique to its writer: two members never share one,
//! nor do two incarnations of a member; and within one incarnation a member stores each of its writes before it chooses
//! the next tag of the key. Several published versions omit the writer from the tag. Then two values can get one tag, and
//! replicas keep different values forever.

use super::members::MEMBERS_MAX;
use kv::Version;
use kv::codec::{Malformed, Reader};

/// The number of a member's incarnation: it grows with every start.
pub type Incarnation = u16;

const MEMBER_BITS: u32 = 4;
const INCARNATION_BITS: u32 = 16;
const WRITER_BITS: u32 = MEMBER_BITS + INCARNATION_BITS;

/// The greatest counter. A tag stays below 2^63, because clients get versions as signed integers.
pub const COUNTER_MAX: u64 = (1 << (63 - WRITER_BITS)) - 1;

const _: () = assert!(MEMBERS_MAX < 1 << MEMBER_BITS && Incarnation::BITS == INCARNATION_BITS);

/// The tag of a write: the version under which the table holds what it wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(u64);

impl Tag {
    /// The tag of a key that was never written: less than any other.
    pub const NONE: Tag = Tag(0);

    /// Returns a tag of the member with this index. `None` when the counters have run out: a tag is never used
    /// twice.
    pub fn new(counter: u64, incarnation: Incarnation, member: usize) -> Option<Tag> {
        assert!(member < MEMBERS_MAX, "a tag has no room for member {member}");
        let writer = u64::from(incarnation) << MEMBER_BITS | member as u64;
        (counter <= COUNTER_MAX).then_some(Tag(counter << WRITER_BITS | writer))
    }

    /// Returns the tag of a version that a table holds.
    pub fn of_version(version: Version) -> Tag {
        Tag(version)
    }

    /// Returns the version under which a table holds the write.
    pub fn version(self) -> Version {
        self.0
    }

    /// At least this many writes of the key came before it.
    pub fn counter(self) -> u64 {
        self.0 >> WRITER_BITS
    }

    /// The writer's incarnation.
    pub fn incarnation(self) -> Incarnation {
        (self.0 >> MEMBER_BITS) as Incarnation
    }

    /// The writer's index among the members.
    pub fn member(self) -> usize {
        (self.0 & ((1 << MEMBER_BITS) - 1)) as usize
    }

    /// Decodes a tag from a message.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or no writer can have made the tag.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Tag, Malformed> {
        let tag = Tag(reader.u64()?);
        if tag.is_possible() { Ok(tag) } else { Err(Malformed("a tag that no writer makes")) }
    }

    /// False when no writer can have made the tag.
    #[inline]
    pub fn is_possible(self) -> bool {
        self.counter() <= COUNTER_MAX
    }
}

impl std::fmt::Display for Tag {
    /// Counter, member from 1, incarnation: `7.2.1`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Tag::NONE => write!(formatter, "none"),
            tag => write!(formatter, "{}.{}.{}", tag.counter(), tag.member() + 1, tag.incarnation()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_ordered_by_counter_then_by_writer() {
        let tag = |counter, incarnation, member| Tag::new(counter, incarnation, member).unwrap();
        let ascending =
            [tag(1, 1, 0), tag(1, 1, 1), tag(1, 2, 0), tag(2, 1, 0), tag(COUNTER_MAX, u16::MAX, 14)];
        assert!(ascending.is_sorted());
        assert!(Tag::NONE < ascending[0]);
        let last = ascending[4];
        assert_eq!((last.counter(), last.incarnation(), last.member()), (COUNTER_MAX, u16::MAX, 14));
        assert!(i64::try_from(last.version()).is_ok());
    }

    #[test]
    fn counters_that_have_run_out_are_refused_and_never_wrap() {
        assert_eq!(Tag::new(COUNTER_MAX + 1, 1, 0), None);
        let bytes = u64::MAX.to_le_bytes();
        assert!(Tag::decode(&mut Reader::new(&bytes)).is_err());
    }
}
