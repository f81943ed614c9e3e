//! Commands on a key that holds a list.

use super::List;
use super::family::family;

family! {
    /// A command on lists. A key that does not exist is an empty list, and an empty list does not exist. Ranks count from
    /// 0, negative ones from the end: -1 is the last element.
    ListCommand {
        // Reads.
        /// The number of elements (`LLEN`).
        Length = 1 { key: &'a [u8] }
        /// The element of a rank, or null (`LINDEX`).
        Index = 2 { key: &'a [u8], rank: i64 }
        /// The elements from one rank to another (`LRANGE`).
        Range = 3 { key: &'a [u8], start: i64, end: i64 }
        /// Ranks of elements equal to one: see the options of `LPOS`. `skip` is the number of the first match that counts,
        /// from 1; if negative, matches are counted from the end. Without `count` the reply is one rank, or null.
        Position = 4 { key: &'a [u8], element: &'a [u8], skip: i64, count: Option<u64>, compared_max: u64 }

        // Writes.
        /// Adds elements one by one at the front or the end, and returns the length (`LPUSH`, `RPUSH`; with `if_present`
        /// `LPUSHX`, `RPUSHX`).
        Push = 64 { key: &'a [u8], elements: List<'a>, at_front: bool, if_present: bool }
        /// Removes the first or last element and returns it; with `count`, that many as an array (`LPOP`, `RPOP`).
        Pop = 65 { key: &'a [u8], at_front: bool, count: Option<u64> }
        /// Replaces an element (`LSET`).
        Set = 66 { key: &'a [u8], rank: i64, element: &'a [u8] }
        /// Adds an element before or behind the first that is equal to a pivot; returns the length, 0 without the key,
        /// -1 without the pivot (`LINSERT`).
        Insert = 67 { key: &'a [u8], is_before: bool, pivot: &'a [u8], element: &'a [u8] }
        /// Removes elements that are equal to one: the first `count`, the last `-count`, or all for 0; returns how many
        /// (`LREM`).
        Remove = 68 { key: &'a [u8], count: i64, element: &'a [u8] }
        /// Removes all elements but those from one rank to another (`LTRIM`).
        Trim = 69 { key: &'a [u8], start: i64, end: i64 }
        /// Moves an element from an end of one list to an end of another, and returns it (`LMOVE`, `RPOPLPUSH`).
        Move = 70 { from: &'a [u8], to: &'a [u8], from_front: bool, to_front: bool }
        /// Removes elements of the first list that has any, and returns its key and the elements (`LMPOP`).
        MultiPop = 71 { keys: List<'a>, at_front: bool, count: u64 }
        /// Removes an element of the first list that has any, and returns its key and the element (`BLPOP`, `BRPOP`).
        PopAny = 72 { keys: List<'a>, at_front: bool }
    }
}

impl<'a> ListCommand<'a> {
    /// Calls `visit` with each key, in order.
    pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        use ListCommand::*;
        match *self {
            Length { key } | Index { key, .. } | Range { key, .. } | Position { key, .. } => visit(key),
            Push { key, .. } | Pop { key, .. } | Set { key, .. } | Insert { key, .. } => visit(key),
            Remove { key, .. } | Trim { key, .. } => visit(key),
            Move { from, to, .. } => {
                visit(from);
                visit(to);
            }
            MultiPop { keys, .. } | PopAny { keys, .. } => keys.iter().for_each(visit),
        }
    }

    /// Its name as clients know it.
    pub fn name(&self) -> &'static str {
        use ListCommand::*;
        match self {
            Length { .. } => "LLEN",
            Index { .. } => "LINDEX",
            Range { .. } => "LRANGE",
            Position { .. } => "LPOS",
            Push { at_front: true, if_present: false, .. } => "LPUSH",
            Push { at_front: true, .. } => "LPUSHX",
            Push { if_present: false, .. } => "RPUSH",
            Push { .. } => "RPUSHX",
            Pop { at_front: true, .. } => "LPOP",
            Pop { .. } => "RPOP",
            Set { .. } => "LSET",
            Insert { .. } => "LINSERT",
            Remove { .. } => "LREM",
            Trim { .. } => "LTRIM",
            Move { .. } => "LMOVE",
            MultiPop { .. } => "LMPOP",
            PopAny { at_front: true, .. } => "BLPOP",
            PopAny { .. } => "BRPOP",
        }
    }

    /// Whether it may enlarge the data.
    pub(super) fn may_grow(&self) -> bool {
        use ListCommand::*;
        matches!(self, Push { .. } | Set { .. } | Insert { .. } | Move { .. })
    }

    /// Whether it only removes elements.
    pub(super) fn only_deletes(&self) -> bool {
        use ListCommand::*;
        matches!(self, Pop { .. } | Remove { .. } | Trim { .. } | MultiPop { .. } | PopAny { .. })
    }

    /// Whether it may read or return many elements.
    pub(super) fn may_walk(&self) -> bool {
        use ListCommand::*;
        matches!(
            self,
            Range { .. }
                | Position { .. }
                | Insert { .. }
                | Remove { .. }
                | Pop { count: Some(_), .. }
                | MultiPop { .. }
        )
    }

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
