//! Commands on a key that holds a sorted set: members, each with a score.

use super::bytes::tagged;
use super::declaration::{Every, Needs, Part, family};
use super::{List, SetOperation};
use crate::codec::{Malformed, Reader, Writer};
use crate::number::parse_float;

/// What the ends of a range of members refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Ranks; negative ones count from the end.
    Rank,
    /// Scores; an end with `(` in front is excluded.
    Score,
    /// Members, with `[` in front, or `(` if the end is excluded; `-` and `+` are before and behind all members.
    Member,
}

impl By {
    /// The name of a command on such a range, of those for ranks, scores and members.
    fn name(self, [rank, score, member]: [&'static str; 3]) -> &'static str {
        match self {
            By::Rank => rank,
            By::Score => score,
            By::Member => member,
        }
    }
}

/// The event of a sorted set that loses a member.
pub(crate) fn popped(is_highest: bool) -> &'static str {
    if is_highest { "zpopmax" } else { "zpopmin" }
}

/// How a member's scores in several sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Aggregate {
    Sum,
    Least,
    Greatest,
}

/// Which scores `ZADD` may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Only those of new members (`NX`).
    pub only_new: bool,
    /// Only those of existing members (`XX`).
    pub only_old: bool,
    /// Those of existing members only to greater ones (`GT`).
    pub only_greater: bool,
    /// Those of existing members only to smaller ones (`LT`).
    pub only_less: bool,
}

tagged!(By, Rank, Score, Member);
tagged!(Aggregate, Sum, Least, Greatest);

impl<'a> Part<'a> for AddOptions {
    fn put(self, out: &mut Vec<u8>) {
        let AddOptions { only_new, only_old, only_greater, only_less } = self;
        [only_new, only_old, only_greater, only_less].into_iter().for_each(|flag| out.put_bool(flag));
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (only_new, only_old) = (reader.bool()?, reader.bool()?);
        Ok(AddOptions { only_new, only_old, only_greater: reader.bool()?, only_less: reader.bool()? })
    }
}

/// Parses a score; `None` if the text is no number.
pub fn parse_score(text: &[u8]) -> Option<f64> {
    // Turns negative zero into zero.
    parse_float(text).map(|score| score + 0.0)
}

/// An end of a range of scores: the score, and whether it is excluded.
pub fn parse_score_bound(text: &[u8]) -> Option<(f64, bool)> {
    let (text, is_open) = text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
    // As in Redis, empty text is zero here.
    if text.is_empty() { Some((0.0, is_open)) } else { Some((parse_score(text)?, is_open)) }
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberBound<'a> {
    /// Before all members.
    Lowest,
    /// Behind all members.
    Highest,
    /// A member, and whether it is excluded.
    At(&'a [u8], bool),
}

/// Parses an end of a range of members.
pub fn parse_member_bound(text: &[u8]) -> Option<MemberBound<'_>> {
    match text {
        b"-" => Some(MemberBound::Lowest),
        b"+" => Some(MemberBound::Highest),
        [b'[', member @ ..] => Some(MemberBound::At(member, false)),
        [b'(', member @ ..] => Some(MemberBound::At(member, true)),
        _ => None,
    }
}

family! {
    /// A command on sorted sets. A key that does not exist is an empty sorted set, and an empty one does not exist. Members
    /// are in the order of their scores; members with equal scores in the order of their bytes. `ends` are the two ends of
    /// a range as texts, the lower one first; scores and weights are validated texts, too.
    SortedCommand needs(Needs::SortedSet) {
        // Reads.
        /// The number of members (`ZCARD`).
        Length = 1 "ZCARD" Reads { key: &'a [u8] };
        /// The score of a member, or null (`ZSCORE`).
        Score = 2 "ZSCORE" Reads { key: &'a [u8], member: &'a [u8] } first(member);
        /// The scores of several members, as an array (`ZMSCORE`).
        Scores = 3 "ZMSCORE" Reads { key: &'a [u8], members: List<'a> } first(members.first());
        /// The rank of a member, from 0, or null (`ZRANK`, `ZREVRANK`).
        Rank = 4 "ZRANK" Reads { key: &'a [u8], member: &'a [u8], is_reverse: bool } first(member);
        /// The number of members in a range (`ZCOUNT`, `ZLEXCOUNT`).
        Count = 5 (if by == By::Member { "ZLEXCOUNT" } else { "ZCOUNT" }) Reads {
            key: &'a [u8], by: By, ends: List<'a>,
        };
        /// The members of a range, without the first `skip` and at most `count` (`ZRANGE` etc.).
        Range = 6 "ZRANGE" Reads {
            key: &'a [u8], by: By, ends: List<'a>, is_reverse: bool, skip: u32, count: u32, with_scores: bool,
        } walks(true) lists(true);
        /// A member drawn at random, or null. With `count`: an array of that many distinct members, or, if negative, of
        /// that many draws (`ZRANDMEMBER`).
        Random = 7 "ZRANDMEMBER" Reads { key: &'a [u8], count: Option<i64>, with_scores: bool }
            walks(count.is_some());
        /// Some members with their scores from a cursor on, and the next cursor (`ZSCAN`).
        Scan = 8 "ZSCAN" Reads { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]> }
            walks(true) lists(true);
        /// Some members from a cursor on, and the next cursor (`ZSCAN … NOSCORES`). From level 2 on.
        ScanMembers = 16 "ZSCAN" Reads { key: &'a [u8], position: u64, count: u64, pattern: Option<&'a [u8]> }
            walks(true) lists(true);
        /// The combined members of several sets (`ZINTER`, `ZUNION`, `ZDIFF`). `inputs` are keys, each followed by its
        /// weight if `is_weighted`.
        Combine = 9 (operation.name(["ZINTER", "ZUNION", "ZDIFF"])) Reads {
            operation: SetOperation, inputs: List<'a>, is_weighted: bool, aggregate: Aggregate,
            with_scores: bool,
        } keys(Every(inputs, 1 + usize::from(is_weighted))) walks(true) lists(true);
        /// The number of members in all sets, counted up to `limit` unless that is 0 (`ZINTERCARD`).
        CountCommon = 10 "ZINTERCARD" Reads { keys: List<'a>, limit: u64 } walks(true) lists(true);

        /// The distance of two members, if scores are places ([`crate::geo`]), in a unit of `unit_m` metres (`GEODIST`).
        Distance = 11 "GEODIST" Reads { key: &'a [u8], from: &'a [u8], to: &'a [u8], unit_m: f64 };
        /// The geohashes of members (`GEOHASH`).
        Hashes = 12 "GEOHASH" Reads { key: &'a [u8], members: List<'a> };
        /// The longitudes and latitudes of members (`GEOPOS`).
        Places = 13 "GEOPOS" Reads { key: &'a [u8], members: List<'a> };
        /// The rank and the score of a member as an array, or a null array (`ZRANK … WITHSCORE`). From level 2 on.
        RankWithScore = 15 "ZRANK" Reads { key: &'a [u8], member: &'a [u8], is_reverse: bool } first(member);
        /// The members whose places a search finds ([`crate::geo::Query`]) (`GEOSEARCH`).
        Find = 14 "GEOSEARCH" Reads { key: &'a [u8], query: &'a [u8] } walks(true) lists(true);

        // Writes.
        /// Sets the scores of members; `pairs` has each score followed by its member. Returns how many members are new, or,
        /// if `counts_changes`, how many are new or have a new score (`ZADD`).
        Add = 64 "ZADD" Grows { key: &'a [u8], pairs: List<'a>, options: AddOptions, counts_changes: bool }
            first(pairs.pairs().next().map_or(&[], |(_, member)| member)) event("zadd");
        /// Adds to a score and returns the sum, or null if the options forbid it (`ZINCRBY`, `ZADD … INCR`).
        Increment = 65 "ZINCRBY" Grows {
            key: &'a [u8], delta: &'a [u8], member: &'a [u8], options: AddOptions,
        } first(member) event("zincr");
        /// Removes members; returns how many existed (`ZREM`).
        Remove = 66 "ZREM" Frees { key: &'a [u8], members: List<'a> } first(members.first()) event("zrem");
        /// Removes the members of a range; returns their number (`ZREMRANGEBYRANK` etc.).
        RemoveRange = 67 (by.name(["ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREMRANGEBYLEX"])) Frees {
            key: &'a [u8], by: By, ends: List<'a>,
        }
            walks(true) event(by.name(["zremrangebyrank", "zremrangebyscore", "zremrangebylex"]));
        /// Removes the members with the lowest or highest scores, and returns them with their scores (`ZPOPMIN`,
        /// `ZPOPMAX`).
        Pop = 68 (if is_highest { "ZPOPMAX" } else { "ZPOPMIN" }) Frees {
            key: &'a [u8], is_highest: bool, count: Option<u64>,
        } walks(count.is_some()) event(popped(is_highest));
        /// Like `Pop` for the first sorted set that has members; also returns its key (`ZMPOP`).
        MultiPop = 69 "ZMPOP" Frees { keys: List<'a>, is_highest: bool, count: u64 }
            walks(true) event(popped(is_highest));
        /// Stores the combined members of several sets, and returns their number (`ZUNIONSTORE` etc.).
        Store = 70 (operation.name(["ZINTERSTORE", "ZUNIONSTORE", "ZDIFFSTORE"])) Grows {
            to: &'a [u8], operation: SetOperation, inputs: List<'a>, is_weighted: bool, aggregate: Aggregate,
        }
            keys(to, Every(inputs, 1 + usize::from(is_weighted))) walks(true) adds(Unforeseen)
            event(operation.name(["zinterstore", "zunionstore", "zdiffstore"]));
        /// Stores the members of a range, and returns their number (`ZRANGESTORE`).
        StoreRange = 71 "ZRANGESTORE" Grows {
            to: &'a [u8], from: &'a [u8], by: By, ends: List<'a>, is_reverse: bool, skip: u32, count: u32,
        } keys(to, from) walks(true) adds(Unforeseen) event("zrangestore");
        /// Stores the members that a search finds, and returns their number (`GEOSEARCHSTORE`).
        StoreFound = 72 "GEOSEARCHSTORE" Grows { to: &'a [u8], from: &'a [u8], query: &'a [u8] }
            keys(to, from) walks(true) adds(Unforeseen) event("geosearchstore");
        /// Removes the member with the lowest or highest score of the first sorted set that has members, and returns that
        /// set's key, the member and its score (`BZPOPMIN`, `BZPOPMAX`).
        PopAny = 73 (if is_highest { "BZPOPMAX" } else { "BZPOPMIN" }) Frees {
            keys: List<'a>, is_highest: bool,
        } event(popped(is_highest));
    }
}

/// The keys in a list where weights may follow them.
fn keys_of<'a>(inputs: List<'a>, is_weighted: bool) -> impl Iterator<Item = &'a [u8]> {
    inputs.iter().step_by(if is_weighted { 2 } else { 1 })
}

impl<'a> SortedCommand<'a> {
    /// The most bytes of its sets that it reads or returns. `bytes_of` returns the size of a key, and `bytes_in_range` that
    /// of a range of its members.
    pub(super) fn walked_bytes(
        &self,
        bytes_of: impl Fn(&[u8]) -> u64,
        bytes_in_range: impl Fn(&[u8], By, List<'_>) -> u64,
    ) -> u64 {
        use SortedCommand::*;
        /// The cost of finding one member.
        const MEMBER_BYTES: u64 = 512;
        let part =
            |bytes: u64, members: u64| bytes.saturating_mul(8).min(members.saturating_mul(MEMBER_BYTES));
        let limited =
            |bytes: u64, skip: u32, count: u32| part(bytes, u64::from(skip) + u64::from(count)).min(bytes);
        let combined = |operation: SetOperation, keys: &mut dyn Iterator<Item = &'a [u8]>| {
            let sizes: Vec<u64> = keys.map(&bytes_of).collect();
            let looked_up = match operation {
                SetOperation::Union => sizes.iter().copied().fold(0, u64::saturating_add),
                SetOperation::Intersection => sizes.iter().copied().min().unwrap_or(0),
                SetOperation::Difference => sizes.first().copied().unwrap_or(0),
            };
            // Each member is looked up in all other sets, or sorted.
            let times = if operation == SetOperation::Union { 2 } else { sizes.len() as u64 };
            looked_up.saturating_mul(32 * times)
        };
        match *self {
            Range { key, by, ends, skip, count, .. } => limited(bytes_in_range(key, by, ends), skip, count),
            StoreRange { from, by, ends, skip, count, .. } => {
                limited(bytes_in_range(from, by, ends), skip, count).saturating_mul(64)
            }
            Random { key, count: Some(count), .. } if count >= 0 => part(bytes_of(key), count.unsigned_abs()),
            Random { count: Some(count), .. } => count.unsigned_abs().saturating_mul(MEMBER_BYTES),
            Scan { key, count, pattern, .. } | ScanMembers { key, count, pattern, .. } => {
                part(bytes_of(key), count).saturating_mul(1 + pattern.map_or(0, <[u8]>::len) as u64 / 8)
            }
            RemoveRange { key, by, ends } => bytes_in_range(key, by, ends).saturating_mul(8),
            Pop { key, count: Some(count), .. } => part(bytes_of(key), count),
            MultiPop { keys, count, .. } => {
                keys.iter().map(|key| part(bytes_of(key), count)).max().unwrap_or(0)
            }
            Combine { operation, inputs, is_weighted, .. } => {
                combined(operation, &mut keys_of(inputs, is_weighted))
            }
            // The stored result also gets an index.
            Store { operation, inputs, is_weighted, .. } => {
                combined(operation, &mut keys_of(inputs, is_weighted)).saturating_mul(2)
            }
            // The distances of all members are computed.
            Find { key, .. } => bytes_of(key).saturating_mul(16),
            StoreFound { from, .. } => bytes_of(from).saturating_mul(32),
            CountCommon { keys, .. } => combined(SetOperation::Intersection, &mut keys.iter()),
            _ => 0,
        }
    }
}
