//! Commands on a key that holds a set.

use super::List;
use super::declaration::{Needs, Part, family};
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

impl SetOperation {
    /// The name of a command that combines in this way, of those for an intersection, a union and a difference.
    pub(super) fn name(self, [intersection, union, difference]: [&'static str; 3]) -> &'static str {
        match self {
            SetOperation::Intersection => intersection,
            SetOperation::Union => union,
            SetOperation::Difference => difference,
        }
    }
}

family! {
    /// A command on sets. A key that does not exist is an empty set, and an empty set does not exist.
    SetCommand needs(Needs::Set) {
        // Reads.
        /// The number of members (`SCARD`).
        Length = 1 "SCARD" Reads { key: &'a [u8] };
        /// Whether something is a member: 1 or 0 (`SISMEMBER`).
        Contains = 2 "SISMEMBER" Reads { key: &'a [u8], member: &'a [u8] } first(member);
        /// The same for several, as an array (`SMISMEMBER`).
        ContainsEach = 3 "SMISMEMBER" Reads { key: &'a [u8], members: List<'a> };
        /// All members (`SMEMBERS`).
        All = 4 "SMEMBERS" Reads { key: &'a [u8] } walks(true) lists(true);
        /// A member drawn at random, or null. With `count`: an array of that many distinct members, or, if negative, of
        /// that many draws (`SRANDMEMBER`).
        Random = 5 "SRANDMEMBER" Reads { key: &'a [u8], count: Option<i64> } walks(count.is_some());
        /// Some members from a cursor on, and the next cursor (`SSCAN`).
        Scan = 6 "SSCAN" Reads { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]> }
            walks(true) lists(true);
        /// The combined members of several sets (`SINTER`, `SUNION`, `SDIFF`).
        Combine = 7 (operation.name(["SINTER", "SUNION", "SDIFF"])) Reads {
            operation: SetOperation, keys: List<'a>,
        } keys(keys) walks(true) lists(true);
        /// The number of members in all sets, counted up to `limit` unless that is 0 (`SINTERCARD`).
        CountCommon = 8 "SINTERCARD" Reads { keys: List<'a>, limit: u64 } walks(true) lists(true);

        // Writes.
        /// Adds members; returns how many are new (`SADD`).
        Add = 64 "SADD" Grows { key: &'a [u8], members: List<'a> } first(members.first()) event("sadd");
        /// Removes members; returns how many existed (`SREM`).
        Remove = 65 "SREM" Frees { key: &'a [u8], members: List<'a> } first(members.first()) event("srem");
        /// Moves a member from one set to another; returns 1 or 0 (`SMOVE`).
        Move = 66 "SMOVE" Changes { from: &'a [u8], to: &'a [u8], member: &'a [u8] }
            keys(from, to) event("srem");
        /// Removes a member drawn at random and returns it; with `count`, that many as a set (`SPOP`).
        Pop = 67 "SPOP" Frees { key: &'a [u8], count: Option<u64> } walks(count.is_some()) event("spop");
        /// Stores the combined members of several sets, and returns their number (`SINTERSTORE` etc.).
        Store = 68 (operation.name(["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"])) Grows {
            operation: SetOperation, to: &'a [u8], keys: List<'a>,
        }
            keys(to, keys) walks(true) adds(Unforeseen)
            event(operation.name(["sinterstore", "sunionstore", "sdiffstore"]));
    }
}

impl<'a> SetCommand<'a> {
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
