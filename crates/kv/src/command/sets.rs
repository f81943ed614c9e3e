//! Commands on a key that holds a set.

use super::List;
use super::family::{Part, family};
use crate::codec::{Malformed, Reader, Writer};

/// How several sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// The members that are in all sets (`SINTER`).
    Intersection,
    /// The members that are in any set (`SUNION`).
    Union,
    /// The members that are in the first set and in no other (`SDIFF`).
    Difference,
}

impl<'a> Part<'a> for SetOperation {
    fn put(self, out: &mut Vec<u8>) {
        out.put_u8(self as u8);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        use SetOperation::*;
        let tag = reader.u8()? as usize;
        [Intersection, Union, Difference].get(tag).copied().ok_or(Malformed("unknown operation on sets"))
    }
}

family! {
    /// A command on sets. A key that does not exist is an empty set, and an empty set does not exist.
    SetCommand {
        // Reads.
        /// The number of members (`SCARD`).
        Length = 1 { key: &'a [u8] }
        /// Whether something is a member: 1 or 0 (`SISMEMBER`).
        Contains = 2 { key: &'a [u8], member: &'a [u8] }
        /// The same for several, as an array (`SMISMEMBER`).
        ContainsEach = 3 { key: &'a [u8], members: List<'a> }
        /// All members (`SMEMBERS`).
        All = 4 { key: &'a [u8] }
        /// A member drawn at random, or null. With `count`: an array of that many distinct members, or, if negative, of
        /// that many draws (`SRANDMEMBER`).
        Random = 5 { key: &'a [u8], count: Option<i64> }
        /// Some members from a cursor on, and the next cursor (`SSCAN`).
        Scan = 6 { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]> }
        /// The combined members of several sets (`SINTER`, `SUNION`, `SDIFF`).
        Combine = 7 { operation: SetOperation, keys: List<'a> }
        /// The number of members in all sets, counted up to `limit` unless that is 0 (`SINTERCARD`).
        CountCommon = 8 { keys: List<'a>, limit: u64 }

        // Writes.
        /// Adds members; returns how many are new (`SADD`).
        Add = 64 { key: &'a [u8], members: List<'a> }
        /// Removes members; returns how many existed (`SREM`).
        Remove = 65 { key: &'a [u8], members: List<'a> }
        /// Moves a member from one set to another; returns 1 or 0 (`SMOVE`).
        Move = 66 { from: &'a [u8], to: &'a [u8], member: &'a [u8] }
        /// Removes a member drawn at random and returns it; with `count`, that many as a set (`SPOP`).
        Pop = 67 { key: &'a [u8], count: Option<u64> }
        /// Stores the combined members of several sets, and returns their number (`SINTERSTORE` etc.).
        Store = 68 { operation: SetOperation, to: &'a [u8], keys: List<'a> }
    }
}

impl<'a> SetCommand<'a> {
    /// Calls `visit` with each key, in order.
    pub fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        use SetCommand::*;
        match *self {
            Length { key } | Contains { key, .. } | ContainsEach { key, .. } | All { key } => visit(key),
            Random { key, .. } | Scan { key, .. } => visit(key),
            Add { key, .. } | Remove { key, .. } | Pop { key, .. } => visit(key),
            Combine { keys, .. } | CountCommon { keys, .. } => keys.iter().for_each(visit),
            Move { from, to, .. } => {
                visit(from);
                visit(to);
            }
            Store { to, keys, .. } => {
                visit(to);
                keys.iter().for_each(visit);
            }
        }
    }

    /// Its name as clients know it.
    pub fn name(&self) -> &'static str {
        use SetCommand::*;
        use SetOperation::*;
        match self {
            Length { .. } => "SCARD",
            Contains { .. } => "SISMEMBER",
            ContainsEach { .. } => "SMISMEMBER",
            All { .. } => "SMEMBERS",
            Random { .. } => "SRANDMEMBER",
            Scan { .. } => "SSCAN",
            Combine { operation: Intersection, .. } => "SINTER",
            Combine { operation: Union, .. } => "SUNION",
            Combine { operation: Difference, .. } => "SDIFF",
            CountCommon { .. } => "SINTERCARD",
            Add { .. } => "SADD",
            Remove { .. } => "SREM",
            Move { .. } => "SMOVE",
            Pop { .. } => "SPOP",
            Store { operation: Intersection, .. } => "SINTERSTORE",
            Store { operation: Union, .. } => "SUNIONSTORE",
            Store { operation: Difference, .. } => "SDIFFSTORE",
        }
    }

    /// Whether it may enlarge the data.
    pub(super) fn may_grow(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Store { .. })
    }

    /// Whether it only removes members.
    pub(super) fn only_deletes(&self) -> bool {
        matches!(self, Self::Remove { .. } | Self::Pop { .. })
    }

    /// Whether it may read or return many members.
    pub(super) fn may_walk(&self) -> bool {
        use SetCommand::*;
        matches!(
            self,
            All { .. }
                | Random { count: Some(_), .. }
                | Scan { .. }
                | Combine { .. }
                | CountCommon { .. }
                | Pop { count: Some(_), .. }
                | Store { .. }
        )
    }

    /// The most bytes of its sets that it reads or returns. `bytes_of` returns the size of a key.
    pub(super) fn walked_bytes(&self, bytes_of: impl Fn(&[u8]) -> u64) -> u64 {
        use SetCommand::*;
        /// The cost of finding one member.
        const MEMBER_BYTES: u64 = 512;
        /// How many times each byte counts that is compared with other sets. Members are short.
        const MADE_ONE: u64 = 24;
        let part =
            |bytes: u64, members: u64| bytes.saturating_mul(4).min(members.saturating_mul(MEMBER_BYTES));
        match *self {
            All { key } => bytes_of(key),
            Random { key, count: Some(count) } if count >= 0 => part(bytes_of(key), count.unsigned_abs()),
            Random { count: Some(count), .. } => count.unsigned_abs().saturating_mul(MEMBER_BYTES),
            Scan { key, count, pattern, .. } => {
                part(bytes_of(key), count).saturating_mul(1 + pattern.map_or(0, <[u8]>::len) as u64 / 8)
            }
            Pop { key, count: Some(count) } => part(bytes_of(key), count),
            Combine { operation, keys } | Store { operation, keys, .. } => match operation {
                SetOperation::Union => {
                    keys.iter().map(&bytes_of).fold(0, u64::saturating_add).saturating_mul(MADE_ONE)
                }
                // Each member of one set is looked up in all others.
                SetOperation::Intersection => {
                    keys.iter().map(&bytes_of).min().unwrap_or(0).saturating_mul(MADE_ONE * keys.len() as u64)
                }
                SetOperation::Difference => keys
                    .iter()
                    .map(&bytes_of)
                    .next()
                    .unwrap_or(0)
                    .saturating_mul(MADE_ONE * keys.len() as u64),
            },
            CountCommon { keys, .. } => {
                keys.iter().map(&bytes_of).min().unwrap_or(0).saturating_mul(MADE_ONE * keys.len() as u64)
            }
            _ => 0,
        }
    }
}
