//! Places in sorted sets: `GEODIST`, `GEOPOS`, `GEOSEARCH` and similar commands. A place is a score: see [`crate::geo`].

use super::collections::Collection;
use super::order::scored_parts;
use super::order::{Key, key_of, number_of, short};
use super::refusals::{WRONG_KIND, refuse_large_reply};
use super::sorted_view::Sorted;
use super::{Record, Table};
use crate::UnixMs;
use crate::command::List;
use crate::geo::{Centre, Order, Place, Query};
use crate::reply::{Reply, ReplyBuffer};
use std::cmp::Ordering;

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
    let (start, shown) = (out.len(), query.shown);
    let parts = [shown.distance, shown.hash, shown.place].into_iter().filter(|is_shown| *is_shown).count();
    out.array(hits.len());
    for Hit { member, key, place, distance_m } in hits {
        if parts > 0 {
            out.array(1 + parts);
        }
        out.bulk(member);
        if shown.distance {
            write_distance(distance_m, query.unit_m, out);
        }
        if shown.hash {
            out.integer(number_of(key) as i64);
        }
        if shown.place {
            write_place(place, out);
        }
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
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
