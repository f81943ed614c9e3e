//! Commands on a key that holds a list.

use super::List;
use super::declaration::{Needs, family};

/// The event of a list that gets an element.
pub(crate) fn pushed(at_front: bool) -> &'static str {
    if at_front { "lpush" } else { "rpush" }
}

/// The event of a list that loses an element.
pub(crate) fn popped(at_front: bool) -> &'static str {
    if at_front { "lpop" } else { "rpop" }
}

family! {
    /// A command on lists. A key that does not exist is an empty list, and an empty list does not exist. Ranks count from
    /// 0, negative ones from the end: -1 is the last element.
    ListCommand needs(Needs::List) {
        // Reads.
        /// The number of elements (`LLEN`).
        Length = 1 "LLEN" Reads { key: &'a [u8] };
        /// The element of a rank, or null (`LINDEX`).
        Index = 2 "LINDEX" Reads { key: &'a [u8], rank: i64 };
        /// The elements from one rank to another (`LRANGE`).
        Range = 3 "LRANGE" Reads { key: &'a [u8], start: i64, end: i64 } walks(true) lists(true);
        /// Ranks of elements equal to one: see the options of `LPOS`. `skip` is the number of the first match that counts,
        /// from 1; if negative, matches are counted from the end. Without `count` the reply is one rank, or null.
        Position = 4 "LPOS" Reads {
            key: &'a [u8], element: &'a [u8], skip: i64, count: Option<u64>, compared_max: u64,
        } walks(true);

        // Writes.
        /// Adds elements one by one at the front or the end, and returns the length (`LPUSH`, `RPUSH`; with `if_present`
        /// `LPUSHX`, `RPUSHX`).
        Push = 64 (match (at_front, if_present) {
            (true, false) => "LPUSH",
            (true, true) => "LPUSHX",
            (false, false) => "RPUSH",
            (false, true) => "RPUSHX",
        }) Grows { key: &'a [u8], elements: List<'a>, at_front: bool, if_present: bool }
            event(pushed(at_front));
        /// Removes the first or last element and returns it; with `count`, that many as an array (`LPOP`, `RPOP`).
        Pop = 65 (if at_front { "LPOP" } else { "RPOP" }) Frees {
            key: &'a [u8], at_front: bool, count: Option<u64>,
        } walks(count.is_some()) event(popped(at_front));
        /// Replaces an element (`LSET`).
        Set = 66 "LSET" Grows { key: &'a [u8], rank: i64, element: &'a [u8] } event("lset");
        /// Adds an element before or behind the first that is equal to a pivot; returns the length, 0 without the key,
        /// -1 without the pivot (`LINSERT`).
        Insert = 67 "LINSERT" Grows { key: &'a [u8], is_before: bool, pivot: &'a [u8], element: &'a [u8] }
            walks(true) event("linsert");
        /// Removes elements that are equal to one: the first `count`, the last `-count`, or all for 0; returns how many
        /// (`LREM`).
        Remove = 68 "LREM" Frees { key: &'a [u8], count: i64, element: &'a [u8] } walks(true) event("lrem");
        /// Removes all elements but those from one rank to another (`LTRIM`).
        Trim = 69 "LTRIM" Frees { key: &'a [u8], start: i64, end: i64 } event("ltrim");
        /// Moves an element from an end of one list to an end of another, and returns it (`LMOVE`, `RPOPLPUSH`).
        Move = 70 "LMOVE" Grows { from: &'a [u8], to: &'a [u8], from_front: bool, to_front: bool }
            keys(from, to);
        /// Removes elements of the first list that has any, and returns its key and the elements (`LMPOP`).
        MultiPop = 71 "LMPOP" Frees { keys: List<'a>, at_front: bool, count: u64 }
            walks(true) event(popped(at_front));
        /// Removes an element of the first list that has any, and returns its key and the element (`BLPOP`, `BRPOP`).
        PopAny = 72 (if at_front { "BLPOP" } else { "BRPOP" }) Frees { keys: List<'a>, at_front: bool }
            event(popped(at_front));
    }
}

impl<'a> ListCommand<'a> {
    /// The most bytes of its lists that it reads or returns. `bytes_of` returns the size of a key.
    pub(super) fn walked_bytes(&self, bytes_of: impl Fn(&[u8]) -> u64) -> u64 {
        use ListCommand::*;
        /// A guess: the usual size of an element.
        const ELEMENT_BYTES: u64 = 64;
        let part = |bytes: u64, elements: u64| bytes.min(elements.saturating_mul(ELEMENT_BYTES));
        match *self {
            Range { key, start, end } if (start < 0) == (end < 0) => {
                part(bytes_of(key), end.saturating_sub(start).saturating_add(1).max(0) as u64)
            }
            Range { key, .. } | Insert { key, .. } | Remove { key, .. } => bytes_of(key),
            Position { key, compared_max: 0, .. } => bytes_of(key),
            Position { key, compared_max, .. } => part(bytes_of(key), compared_max),
            Pop { key, count: Some(count), .. } => part(bytes_of(key), count),
            MultiPop { keys, count, .. } => {
                keys.iter().map(|key| part(bytes_of(key), count)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}
