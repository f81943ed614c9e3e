//! Places in sorted sets: `GEODIST`, `GEOPOS`, `GEOSEARCH` and similar commands. A place is a score: see [`crate::geo`].

use super::collections::Collection;
use super::kind::Kind;
use super::order::scored_parts;
use super::order::{Key, key_of, number_of, short};
use super::refusals::{WRONG_KIND, refuse_large_reply};
use super::sorted_view::Sorted;
use super::{Record, Table};
use crate::UnixMs;
use crate::command::List;
use crate::geo::{Centre, Order, Place, Query, Shown};
use crate::reply::{Reply, ReplyBuffer};
use std::cmp::Ordering;
use std::collections::VecDeque;

/// A place that a search has found.
struct Hit<'a> {
    member: &'a [u8],
    key: Key,
    place: Place,
    distance_m: f64,
}

fn place_of(sorted: Sorted<'_>, member: &[u8]) -> Option<Place> {
    sorted.key(member).map(|key| Place::of_score(number_of(key)))
}

fn write_place(place: Place, out: &mut ReplyBuffer) {
    out.array(2);
    out.push(Reply::Decimal(place.longitude));
    out.push(Reply::Decimal(place.latitude));
}

fn write_distance(distance_m: f64, unit_m: f64, out: &mut ReplyBuffer) {
    out.bulk(format!("{:.4}", distance_m / unit_m).as_bytes());
}

pub(super) fn distance(sorted: Sorted<'_>, (from, to): (&[u8], &[u8]), unit_m: f64, out: &mut ReplyBuffer) {
    match place_of(sorted, from).zip(place_of(sorted, to)) {
        Some((from, to)) => write_distance(from.distance_m(to), unit_m, out),
        None => out.null(),
    }
}

pub(super) fn write_hashes(sorted: Sorted<'_>, members: List<'_>, out: &mut ReplyBuffer) {
    out.array(members.len());
    Collection::touching(sorted.collection, members).for_each(|member| write_hash(sorted, member, out));
}

/// Appends the geohash of a member, or null.
pub(super) fn write_hash(sorted: Sorted<'_>, member: &[u8], out: &mut ReplyBuffer) {
    match place_of(sorted, member) {
        Some(place) => out.bulk(&place.letters()),
        None => out.null(),
    }
}

pub(super) fn write_places(sorted: Sorted<'_>, members: List<'_>, out: &mut ReplyBuffer) {
    out.array(members.len());
    Collection::touching(sorted.collection, members).for_each(|member| write_place_of(sorted, member, out));
}

/// Appends the place of a member, or no array.
pub(super) fn write_place_of(sorted: Sorted<'_>, member: &[u8], out: &mut ReplyBuffer) {
    match place_of(sorted, member) {
        Some(place) => write_place(place, out),
        None => out.push(Reply::NullArray),
    }
}

/// How many members a search looks at.
pub(super) fn looked_at(sorted: Sorted<'_>, query: &[u8]) -> usize {
    let Ok(query) = Query::decode(query) else { return 0 };
    let centre = match query.centre {
        Centre::Place(place) => Some(place),
        Centre::Member(member) => place_of(sorted, member),
    };
    let rank = |score| sorted.items.seek(&short(key_of(score)));
    let ranges = centre.map(|centre| query.ranges(centre)).unwrap_or_default();
    ranges.into_iter().map(|(least, end)| rank(end).saturating_sub(rank(least))).sum()
}

/// The places that a search finds, in its order; or why the search is invalid.
fn search<'a>(sorted: Sorted<'a>, query: &Query<'_>) -> Result<Vec<Hit<'a>>, &'static str> {
    if sorted.len() == 0 {
        return Ok(Vec::new());
    }
    let centre = match query.centre {
        Centre::Place(place) => place,
        Centre::Member(member) => {
            place_of(sorted, member).ok_or("ERR could not decode requested zset member")?
        }
    };
    let most = if query.count == 0 { usize::MAX } else { usize::try_from(query.count).unwrap_or(usize::MAX) };
    let enough = if query.takes_any { most } else { usize::MAX };
    let mut hits = Vec::new();
    for (least, end) in query.ranges(centre) {
        let from = sorted.items.seek(&short(key_of(least)));
        let within =
            sorted.items.iter_from(from).map(scored_parts).take_while(|(key, _)| number_of(*key) < end);
        for (key, member) in within {
            if hits.len() >= enough {
                break;
            }
            let place = Place::of_score(number_of(key));
            if let Some(distance_m) = query.distance_m(centre, place) {
                hits.push(Hit { member, key, place, distance_m });
            }
        }
    }
    let ascending = |one: &Hit<'_>, other: &Hit<'_>| one.distance_m.partial_cmp(&other.distance_m);
    match query.order {
        Order::Any => {}
        Order::Ascending => hits.sort_by(|one, other| ascending(one, other).unwrap_or(Ordering::Equal)),
        Order::Descending => hits.sort_by(|one, other| ascending(other, one).unwrap_or(Ordering::Equal)),
    }
    hits.truncate(most);
    Ok(hits)
}

pub(super) fn write_found(sorted: Sorted<'_>, query: &[u8], out: &mut ReplyBuffer) {
    let Ok(query) = Query::decode(query) else { return out.error("ERR a search that is none") };
    let hits = match search(sorted, &query) {
        Ok(hits) => hits,
        Err(error) => return out.error(error),
    };
    let start = out.len();
    out.array(hits.len());
    for hit in hits {
        write_hit(&hit, (query.shown, query.unit_m), out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

/// Appends a place that a search has found.
fn write_hit(hit: &Hit<'_>, (shown, unit_m): (Shown, f64), out: &mut ReplyBuffer) {
    let parts = [shown.distance, shown.hash, shown.place].into_iter().filter(|is_shown| *is_shown).count();
    if parts > 0 {
        out.array(1 + parts);
    }
    out.bulk(hit.member);
    if shown.distance {
        write_distance(hit.distance_m, unit_m, out);
    }
    if shown.hash {
        out.integer(number_of(hit.key) as i64);
    }
    if shown.place {
        write_place(hit.place, out);
    }
}

/// A search that goes on little by little. What it finds is gathered in a collection of its own.
///
/// ```text
/// place in the search's order: u64, then the number of hits before it: u64 | distance: u64 | item
/// ```
#[derive(Debug)]
pub(super) struct Searching {
    query: Box<[u8]>,
    centre: Place,
    /// The scores to look at, from this rank on.
    ranges: VecDeque<(f64, f64)>,
    next: Option<usize>,
    pub(super) hits: Collection,
}

impl Searching {
    /// Begins. `None`: there is nothing to be found, or the search is invalid.
    pub(super) fn of(sorted: Sorted<'_>, encoded: &[u8]) -> Option<Searching> {
        let query = Query::decode(encoded).ok().filter(|_| sorted.len() > 0)?;
        let centre = match query.centre {
            Centre::Place(place) => place,
            Centre::Member(member) => place_of(sorted, member)?,
        };
        let (ranges, hits) = (query.ranges(centre).into(), Collection::new(Kind::Set));
        Some(Searching { query: encoded.into(), centre, ranges, next: None, hits })
    }

    fn query(&self) -> Query<'_> {
        let Ok(query) = Query::decode(&self.query) else { unreachable!("it was decoded when it began") };
        query
    }

    /// The most hits that are shown.
    pub(super) fn most(&self) -> usize {
        match self.query().count {
            0 => usize::MAX,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        }
    }

    /// What is shown of each, and the unit of distances in metres.
    pub(super) fn shown(&self) -> (Shown, f64) {
        (self.query().shown, self.query().unit_m)
    }

    /// Goes on for so many members. Returns whether those were the last ones.
    pub(super) fn go_on(&mut self, sorted: Sorted<'_>, members: usize) -> bool {
        let Ok(query) = Query::decode(&self.query) else { unreachable!("it was decoded when it began") };
        let enough = if query.takes_any { self.most() } else { usize::MAX };
        let mut left = members;
        while let Some(&(least, end)) = self.ranges.front() {
            let from = self.next.unwrap_or_else(|| sorted.items.seek(&short(key_of(least))));
            let within =
                sorted.items.iter_from(from).take_while(|item| number_of(scored_parts(item).0) < end);
            for (rank, item) in (from..).zip(within) {
                if self.hits.len() >= enough {
                    return true;
                }
                if left == 0 {
                    self.next = Some(rank);
                    return false;
                }
                left -= 1;
                let place = Place::of_score(number_of(scored_parts(item).0));
                let Some(distance_m) = query.distance_m(self.centre, place) else { continue };
                let far = distance_m.to_bits();
                let order = match query.order {
                    Order::Any => 0,
                    Order::Ascending => far,
                    Order::Descending => !far,
                };
                let number = self.hits.len() as u64;
                let head = [order, number, far].map(u64::to_be_bytes);
                self.hits.insert_in_order(&[head.as_flattened(), item].concat());
            }
            self.ranges.pop_front();
            self.next = None;
        }
        true
    }
}

/// Appends a hit of [`Searching`].
pub(super) fn write_gathered(item: &[u8], shown: (Shown, f64), out: &mut ReplyBuffer) {
    let parts = item.get(16..).and_then(|behind| behind.split_first_chunk());
    let Some((far, item)) = parts else { unreachable!("a hit has a head") };
    let (key, member) = scored_parts(item);
    let (place, distance_m) = (Place::of_score(number_of(key)), f64::from_bits(u64::from_be_bytes(*far)));
    write_hit(&Hit { member, key, place, distance_m }, shown, out);
}

impl Table {
    /// Stores the places that a search finds, and returns their number.
    pub(super) fn store_found(
        &mut self,
        to: &[u8],
        from: &[u8],
        query: &[u8],
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let now: UnixMs = record.time;
        let Ok(query) = Query::decode(query) else { return out.error("ERR a search that is none") };
        let Some(sorted) = self.sorted(from, false, now) else { return out.error(WRONG_KIND) };
        let hits = match search(sorted, &query) {
            Ok(hits) => hits,
            Err(error) => return out.error(error),
        };
        let score = |hit: &Hit<'_>| match query.stores_distance {
            true => key_of(hit.distance_m / query.unit_m),
            false => hit.key,
        };
        let mut members: Vec<(Key, &[u8])> = hits.iter().map(|hit| (score(hit), hit.member)).collect();
        members.sort_unstable();
        let collection = Collection::of_sorted(members.into_iter());
        out.integer(collection.len() as i64);
        self.put_collection(to, collection, record);
    }
}
