//! The rows of the commands on places, which are scores of sorted sets.

use super::row::{READ, READS, REPLACES, STORE, UPDATES, after, data, key, range, two_keys};
use crate::geo;
use crate::spec::Category::Geo;
use crate::spec::{Begin, CommandSpec, Group, KeySpecs, ParseFn};

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[Geo])
}

const fn stores(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(STORE).keys(key(UPDATES)).in_categories(&[Geo])
}

/// A key, and those behind the options that store what was found. These are searched for from a position on.
const fn reads_or_stores(options: u8) -> KeySpecs {
    KeySpecs::of(&[
        range(1, 0, READS),
        after(Begin::After("STORE", options), REPLACES),
        after(Begin::After("STOREDIST", options), REPLACES),
    ])
}

const SEARCH: &str = "O(N + log M) for N members in the cells around the centre, and a sorted set of M";

/// The rows, in the order of the listing.
pub(super) const GEO: [CommandSpec; 10] = [
    stores("geoadd", -5, geo::geoadd)
        .docs(Group::Geo, "3.2.0", "O(N log S) for N members and a sorted set of S")
        .help(
            "key [NX|XX] [CH] longitude latitude member [longitude latitude member ...]",
            "Sets the places of members of a sorted set and returns how many are new",
        ),
    reads("geodist", -4, geo::geodist)
        .docs(Group::Geo, "3.2.0", "O(log S) for a sorted set of S members")
        .help("key member1 member2 [M|KM|FT|MI]", "Returns how far two members are from each other"),
    reads("geohash", -2, geo::geohash)
        .docs(Group::Geo, "3.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key [member [member ...]]", "Returns the geohashes of members"),
    reads("geopos", -2, geo::geopos)
        .docs(Group::Geo, "3.2.0", "O(N log S) for N members and a sorted set of S")
        .help("key [member [member ...]]", "Returns the longitudes and latitudes of members"),
    reads("geosearch", -7, geo::geosearch).docs(Group::Geo, "6.2.0", SEARCH).help(
        "key FROMMEMBER member|FROMLONLAT longitude latitude BYRADIUS radius M|KM|FT|MI|BYBOX width height M|KM|FT|MI|\
         BYPOLYGON corners longitude latitude [longitude latitude ...] [ASC|DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        "Returns the members in a circle, a box or a polygon",
    ),
    stores("geosearchstore", -8, geo::geosearchstore)
        .keys(two_keys(REPLACES, READS))
        .docs(Group::Geo, "6.2.0", SEARCH)
        .help(
            "destination source FROMMEMBER member|FROMLONLAT longitude latitude BYRADIUS radius M|KM|FT|MI|BYBOX width \
             height M|KM|FT|MI|BYPOLYGON corners longitude latitude [longitude latitude ...] [ASC|DESC] [COUNT count [ANY]] [STOREDIST]",
            "Stores the members in a circle, a box or a polygon",
        ),
    stores("georadius", -6, geo::georadius)
        .keys(reads_or_stores(6))
        .docs(Group::Geo, "3.2.0", SEARCH)
        .help(
            "key longitude latitude radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC] [STORE \
             key|STOREDIST key]",
            "Returns the members in a circle, or stores them; the old form of GEOSEARCH",
        ),
    stores("georadiusbymember", -5, geo::georadiusbymember)
        .keys(reads_or_stores(5))
        .docs(Group::Geo, "3.2.0", SEARCH)
        .help(
            "key member radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC] [STORE \
             key|STOREDIST key]",
            "Returns the members in a circle around one, or stores them; the old form of GEOSEARCH",
        ),
    reads("georadius_ro", -6, geo::georadius_ro).docs(Group::Geo, "3.2.10", SEARCH).help(
        "key longitude latitude radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]",
        "Returns the members in a circle",
    ),
    reads("georadiusbymember_ro", -5, geo::georadiusbymember_ro).docs(Group::Geo, "3.2.10", SEARCH).help(
        "key member radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]",
        "Returns the members in a circle around one",
    ),
];
