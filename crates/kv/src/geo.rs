//! Places on the Earth as scores of sorted sets, so that near ones mostly have near scores; and searches among them.
//!
//! A score holds 52 bits, of longitude and latitude alternately: each bit halves the range that is left and says in which
//! half the place is (a geohash). So all places in a **cell**, an area whose places begin with the same bits, have scores
//! in one range. A search visits the cell of its centre and the cells around it, in Redis's order, which clients see.
//!
//! Sines and similar functions come from `libm` and not from the machine's library: replicas must agree to the last bit.

use crate::codec::{Malformed, Reader, Writer};

const BITS: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
/// The highest latitude of a place, as on a square map.
const LATITUDE_MAX: f64 = 85.051_128_78;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half of the equator on such a map, in metres.
const MAP_HALF_M: f64 = 20_037_726.37;

const LONGITUDES: (f64, f64) = (-LONGITUDE_MAX, LONGITUDE_MAX);
const LATITUDES: (f64, f64) = (-LATITUDE_MAX, LATITUDE_MAX);
/// The range of latitudes of geohashes as other systems write them.
const ALL_LATITUDES: (f64, f64) = (-90.0, 90.0);

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// A longitude and a latitude, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Degrees to the east.
    pub longitude: f64,
    /// Degrees to the north.
    pub latitude: f64,
}

/// Spreads the bits of a number over every second place of the result.
fn spread(number: u32) -> u64 {
    (0..32).fold(0, |bits, at| bits | u64::from(number >> at & 1) << (2 * at))
}

fn gather(bits: u64) -> u32 {
    (0..32).fold(0, |number, at| number | ((bits >> (2 * at) & 1) as u32) << at)
}

/// The bits of a score. For a score that is no place's, they are the bits that Redis gets on common processors: those of a
/// negative number as an integer, and 0 for a number that is too large.
fn bits_of(score: f64) -> u64 {
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    match score {
        ..0.0 => score as i64 as u64,
        TOO_LARGE.. => 0,
        score => score as u64,
    }
}

impl Place {
    /// Whether a member can have this place.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    fn bits(self, latitudes: (f64, f64), steps: u32) -> u64 {
        let part = |value: f64, (least, most): (f64, f64)| {
            ((value - least) / (most - least) * f64::from(1_u32 << steps)) as u32
        };
        spread(part(self.latitude, latitudes)) | spread(part(self.longitude, LONGITUDES)) << 1
    }

    /// The score of a member at this place.
    pub fn score(self) -> f64 {
        self.bits(LATITUDES, BITS) as f64
    }

    /// The place of a member, by its score. It differs a little from the place that the member was given.
    pub fn of_score(score: f64) -> Place {
        let area = Cell { bits: bits_of(score), steps: BITS }.area();
        Place {
            longitude: ((area.west + area.east) / 2.0).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
            latitude: ((area.south + area.north) / 2.0).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// The geohash as eleven letters.
    pub fn letters(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = self.bits(ALL_LATITUDES, BITS);
        std::array::from_fn(|at| {
            // 52 bits are enough for ten letters; the eleventh is always `0`.
            let index = if at == 10 { 0 } else { bits >> (47 - 5 * at) & 0x1f };
            ALPHABET[index as usize]
        })
    }

    /// The distance to another place along the surface, in metres.
    pub fn distance_m(self, other: Place) -> f64 {
        let v = libm::sin((radians(other.longitude) - radians(self.longitude)) / 2.0);
        if v == 0.0 {
            return self.latitude_distance_m(other);
        }
        let (latitude, other_latitude) = (radians(self.latitude), radians(other.latitude));
        let u = libm::sin((other_latitude - latitude) / 2.0);
        let a = u * u + libm::cos(latitude) * libm::cos(other_latitude) * v * v;
        2.0 * EARTH_RADIUS_M * libm::asin(a.sqrt())
    }

    fn latitude_distance_m(self, other: Place) -> f64 {
        EARTH_RADIUS_M * (radians(other.latitude) - radians(self.latitude)).abs()
    }
}

/// The edges of an area, in degrees.
#[derive(Clone, Copy, Debug)]
struct Area {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
}

impl Area {
    fn corners(&self) -> [Place; 4] {
        let corner = |longitude, latitude| Place { longitude, latitude };
        let Area { west, south, east, north } = *self;
        [corner(west, north), corner(east, north), corner(west, south), corner(east, south)]
    }
}

/// A cell: the places whose bits begin with these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    /// How many times each range is halved.
    steps: u32,
}

impl Cell {
    fn of(place: Place, steps: u32) -> Cell {
        Cell { bits: place.bits(LATITUDES, steps), steps }
    }

    fn area(self) -> Area {
        let end =
            |at: f64, (least, most): (f64, f64)| least + (at / (1_u64 << self.steps) as f64) * (most - least);
        let (latitude, longitude) = (f64::from(gather(self.bits)), f64::from(gather(self.bits >> 1)));
        Area {
            west: end(longitude, LONGITUDES),
            south: end(latitude, LATITUDES),
            east: end(longitude + 1.0, LONGITUDES),
            north: end(latitude + 1.0, LATITUDES),
        }
    }

    /// The cell this many cells to the east and to the north. At an edge of the map it wraps around to the other one.
    fn beside(self, east: i32, north: i32) -> Cell {
        let mask = u32::MAX >> (32 - self.steps);
        // A place at the eastern or northern edge of the map lies beyond the last cell, in one that has an extra bit.
        let moved = |bits: u64, by: i32| match by {
            0 => spread(gather(bits)),
            by => spread(gather(bits).wrapping_add_signed(by) & mask),
        };
        Cell { bits: moved(self.bits, north) | moved(self.bits >> 1, east) << 1, ..self }
    }

    /// The scores of its places: from the first to before the second.
    fn scores(self) -> (f64, f64) {
        let shift = 2 * (BITS - self.steps);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// The centre of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Centre<'a> {
    /// The place of this member.
    Member(&'a [u8]),
    /// This place.
    Place(Place),
}

/// The area of a search. Lengths are in the search's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape<'a> {
    /// Places at most this far away.
    Circle(f64),
    /// Places in a box of this width and height around the centre.
    Box(f64, f64),
    /// Places in a polygon.
    Polygon(Polygon<'a>),
}

/// A polygon: its corners in order, as they are encoded in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polygon<'a>(&'a [u8]);

impl<'a> Polygon<'a> {
    const CORNER_BYTES: usize = 16;

    /// Encodes the corners in `scratch`.
    pub fn build(scratch: &'a mut Vec<u8>, corners: &[Place]) -> Polygon<'a> {
        scratch.clear();
        for corner in corners {
            scratch.put_f64(corner.longitude);
            scratch.put_f64(corner.latitude);
        }
        Polygon(scratch)
    }

    fn corners(self) -> impl Iterator<Item = Place> + Clone {
        self.0.chunks_exact(Self::CORNER_BYTES).map(|corner| {
            let mut reader = Reader::new(corner);
            let mut number = || reader.f64().unwrap_or_default();
            Place { longitude: number(), latitude: number() }
        })
    }

    /// The number of corners.
    pub fn len(self) -> usize {
        self.0.len() / Self::CORNER_BYTES
    }

    /// Whether it has no corner.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The place from which Valkey measures distances: the direction of the sum of the corners, seen as vectors from the
    /// centre of the Earth.
    pub fn centre(self) -> Place {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for Place { longitude, latitude } in self.corners() {
            let (longitude, latitude) = (radians(longitude), radians(latitude));
            x += libm::cos(latitude) * libm::cos(longitude);
            y += libm::cos(latitude) * libm::sin(longitude);
            z += libm::sin(latitude);
        }
        let latitude = degrees(libm::atan2(z, (x * x + y * y).sqrt()));
        Place { longitude: degrees(libm::atan2(y, x)), latitude: latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX) }
    }

    /// The least box, by degrees, that contains it.
    fn bounds(self) -> Area {
        let none =
            Area { west: LONGITUDE_MAX, south: LATITUDE_MAX, east: -LONGITUDE_MAX, north: -LATITUDE_MAX };
        self.corners().fold(none, |area, Place { longitude, latitude }| Area {
            west: area.west.min(longitude),
            south: area.south.min(latitude),
            east: area.east.max(longitude),
            north: area.north.max(latitude),
        })
    }

    /// Whether a place is inside, on a map of degrees: a ray from it to the east crosses an odd number of edges.
    fn contains(self, place: Place) -> bool {
        let before = self.corners().skip(self.len().saturating_sub(1)).chain(self.corners());
        let crosses = |(from, to): (Place, Place)| {
            (from.latitude > place.latitude) != (to.latitude > place.latitude) && {
                // In this order of operations, so that a place on an edge is on the same side as in Valkey.
                let east = (from.longitude - to.longitude) * (place.latitude - to.latitude);
                place.longitude < east / (from.latitude - to.latitude) + to.longitude
            }
        };
        before.zip(self.corners()).filter(|edge| crosses(*edge)).count() % 2 == 1
    }
}

/// The order in which a search returns places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they are found.
    Any,
    /// The nearest first.
    Ascending,
    /// The farthest first.
    Descending,
}

/// What a search returns of each place, beside its member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The distance from the centre.
    pub distance: bool,
    /// The score.
    pub hash: bool,
    /// Longitude and latitude.
    pub place: bool,
}

/// A search for places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query<'a> {
    /// The centre.
    pub centre: Centre<'a>,
    /// The area.
    pub shape: Shape<'a>,
    /// The unit of lengths, in metres.
    pub unit_m: f64,
    /// The order.
    pub order: Order,
    /// How many places it returns at most; 0 for all.
    pub count: u64,
    /// Whether it may return any places, and not only the nearest ones.
    pub takes_any: bool,
    /// What it returns of each place.
    pub shown: Shown,
    /// Whether it stores distances as scores.
    pub stores_distance: bool,
}

/// What begins a polygon's encoding. Nodes of release 1 would take it for a box.
const POLYGON: u8 = 2;

impl<'a> Query<'a> {
    /// Appends the query as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Shown { distance, hash, place } = self.shown;
        [self.takes_any, distance, hash, place, self.stores_distance]
            .into_iter()
            .for_each(|it| out.put_bool(it));
        out.put_u8(self.order as u8);
        out.put_u64(self.count);
        out.put_f64(self.unit_m);
        let (kind, width, height) = match self.shape {
            Shape::Circle(radius) => (0, radius, 0.0),
            Shape::Box(width, height) => (1, width, height),
            Shape::Polygon(_) => (POLYGON, 0.0, 0.0),
        };
        out.put_u8(kind);
        out.put_f64(width);
        out.put_f64(height);
        if let Shape::Polygon(Polygon(corners)) = self.shape {
            out.put_bytes(corners);
        }
        match self.centre {
            Centre::Member(member) => {
                out.put_u8(0);
                out.put_bytes(member);
            }
            Centre::Place(Place { longitude, latitude }) => {
                out.put_u8(1);
                out.put_f64(longitude);
                out.put_f64(latitude);
            }
        }
    }

    /// Reads a query.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no query.
    pub fn decode(bytes: &'a [u8]) -> Result<Query<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let takes_any = reader.bool()?;
        let shown = Shown { distance: reader.bool()?, hash: reader.bool()?, place: reader.bool()? };
        let stores_distance = reader.bool()?;
        let orders = [Order::Any, Order::Ascending, Order::Descending];
        let order =
            orders.get(usize::from(reader.u8()?)).copied().ok_or(Malformed("unknown order of places"))?;
        let (count, unit_m) = (reader.u64()?, reader.f64()?);
        let (kind, width, height) = (reader.u8()?, reader.f64()?, reader.f64()?);
        let shape = match kind {
            0 => Shape::Circle(width),
            POLYGON => Shape::Polygon(Polygon(reader.bytes()?)),
            _ => Shape::Box(width, height),
        };
        let centre = match reader.u8()? {
            0 => Centre::Member(reader.bytes()?),
            _ => Centre::Place(Place { longitude: reader.f64()?, latitude: reader.f64()? }),
        };
        if !(unit_m.is_finite() && unit_m > 0.0) {
            return Err(Malformed("a unit of lengths that is none"));
        }
        Ok(Query { centre, shape, unit_m, order, count, takes_any, shown, stores_distance })
    }

    /// The distance of a place from the centre in metres, if the place is in the area.
    pub(crate) fn distance_m(&self, centre: Place, place: Place) -> Option<f64> {
        match self.shape {
            Shape::Circle(radius) => {
                let distance = centre.distance_m(place);
                (distance <= radius * self.unit_m).then_some(distance)
            }
            Shape::Box(width, height) => {
                let level = Place { longitude: centre.longitude, latitude: place.latitude };
                let is_inside = place.latitude_distance_m(centre) <= height * self.unit_m / 2.0
                    && place.distance_m(level) <= width * self.unit_m / 2.0;
                is_inside.then(|| centre.distance_m(place))
            }
            Shape::Polygon(polygon) => polygon.contains(place).then(|| centre.distance_m(place)),
        }
    }

    /// The ranges of scores that contain all places in the area, in the order in which they are visited.
    pub(crate) fn ranges(&self, centre: Place) -> Vec<(f64, f64)> {
        let around = |width: f64, height: f64| bounds(centre, width * self.unit_m, height * self.unit_m);
        let (bounds, radius_m) = match self.shape {
            Shape::Circle(radius) => (around(radius, radius), radius * self.unit_m),
            Shape::Box(width, height) => {
                let (width, height) = (width / 2.0, height / 2.0);
                (around(width, height), (width * width + height * height).sqrt() * self.unit_m)
            }
            Shape::Polygon(polygon) => {
                let bounds = polygon.bounds();
                (
                    bounds,
                    bounds.corners().into_iter().map(|corner| centre.distance_m(corner)).fold(0.0, f64::max),
                )
            }
        };
        let mut steps = steps_for(radius_m, centre.latitude);
        let mut cell = Cell::of(centre, steps);
        // If the centre is near an edge of its cell, the cells beside it may not reach far enough.
        let is_too_small = cell.beside(0, 1).area().north < bounds.north
            || cell.beside(0, -1).area().south > bounds.south
            || cell.beside(1, 0).area().east < bounds.east
            || cell.beside(-1, 0).area().west > bounds.west;
        if is_too_small && steps > 1 {
            steps -= 1;
            cell = Cell::of(centre, steps);
        }
        let area = cell.area();
        // Omit the cells on a side where the area does not reach beyond the centre's cell.
        let is_needed = |east: i32, north: i32| {
            steps < 2
                || !(north < 0 && area.south < bounds.south
                    || north > 0 && area.north > bounds.north
                    || east < 0 && area.west < bounds.west
                    || east > 0 && area.east > bounds.east)
        };
        const AROUND: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let needed = AROUND.into_iter().filter(|(east, north)| is_needed(*east, *north));
        // With few steps, the cells on two sides may be the same cell.
        let mut cells: Vec<Cell> = needed.map(|(east, north)| cell.beside(east, north)).collect();
        cells.dedup();
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// The box around a place that reaches this many metres to each side.
fn bounds(centre: Place, width_m: f64, height_m: f64) -> Area {
    let Place { longitude, latitude } = centre;
    let north = degrees(height_m / EARTH_RADIUS_M);
    // The edge nearer to the pole spans more degrees.
    let farther = if latitude < 0.0 { latitude - north } else { latitude + north };
    let east = degrees(width_m / EARTH_RADIUS_M / libm::cos(radians(farther)));
    Area { west: longitude - east, south: latitude - north, east: longitude + east, north: latitude + north }
}

/// How many times to halve the map so that nine cells cover everything within a radius.
fn steps_for(radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return BITS;
    }
    let (mut reached, mut steps) = (radius_m, 1_i32);
    while reached < MAP_HALF_M {
        (reached, steps) = (reached * 2.0, steps + 1);
    }
    steps -= 2;
    // Towards the poles, cells are narrower.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, BITS as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Place = Place { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Place = Place { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_and_distances_are_those_of_redis() {
        assert_eq!((PALERMO.score(), CATANIA.score()), (3_479_099_956_230_698.0, 3_479_447_370_796_909.0));
        let [palermo, catania] = [PALERMO, CATANIA].map(|place| Place::of_score(place.score()));
        assert_eq!(palermo.longitude, 13.361_389_338_970_184);
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
        assert_eq!(&palermo.letters(), b"sqc8b49rny0");
        assert_eq!(&catania.letters(), b"sqdtr74hyu0");
    }

    #[test]
    fn invalid_scores_have_the_same_bits_as_in_redis() {
        let scores = [-5.0, f64::NEG_INFINITY, 9_223_372_036_854_775_808.0, 1e300, f64::INFINITY];
        assert_eq!(scores.map(bits_of), [5_u64.wrapping_neg(), 1 << 63, 1 << 63, 0, 0]);
        let letters = |score| Place::of_score(score).letters();
        assert_eq!([f64::INFINITY, 1e300].map(letters), [*b"00bh0hbj200"; 2]);
        assert_eq!(&letters(-5.0), b"bp05b5048p0");
    }

    fn around(place: Place, radius_m: f64) -> Query<'static> {
        Query {
            centre: Centre::Place(place),
            shape: Shape::Circle(radius_m),
            unit_m: 1.0,
            order: Order::Any,
            count: 0,
            takes_any: false,
            shown: Shown::default(),
            stores_distance: false,
        }
    }

    #[test]
    fn places_at_the_edges_of_the_map_are_found() {
        for (longitude, latitude) in
            [(180.0, 0.0), (0.0, LATITUDE_MAX), (180.0, -LATITUDE_MAX), (-180.0, 5.0)]
        {
            let place = Place { longitude, latitude };
            let ranges = around(place, 1000.0).ranges(place);
            let score = place.score();
            assert!(
                ranges.iter().any(|(least, end)| (*least..*end).contains(&score)),
                "{place:?}: {ranges:?}"
            );
        }
    }

    fn place() -> impl Strategy<Value = Place> {
        (-180.0..180.0, -85.0..85.0).prop_map(|(longitude, latitude)| Place { longitude, latitude })
    }

    proptest! {
        #[test]
        fn a_place_survives_conversion_to_a_score(place in place()) {
            let again = Place::of_score(place.score());
            prop_assert!(place.distance_m(again) < 1.0, "{place:?} {again:?}");
            prop_assert_eq!(again.score(), place.score());
        }

        /// Within half of the Earth, where neither the edge of the map nor the poles matter.
        #[test]
        fn places_in_the_area_have_scores_in_the_ranges(
            centre in (-90.0..90.0, -60.0..60.0),
            beside in (-1.0..1.0, -1.0..1.0),
            radius_m in 1.0..1_000_000.0,
            is_box: bool,
        ) {
            let centre = Place { longitude: centre.0, latitude: centre.1 };
            let reach = radius_m / 80_000.0;
            let place = Place {
                longitude: centre.longitude + beside.0 * reach,
                latitude: centre.latitude + beside.1 * reach,
            };
            let shape = if is_box { Shape::Box(radius_m * 2.0, radius_m) } else { Shape::Circle(radius_m) };
            let query = Query { shape, ..around(centre, radius_m) };
            prop_assume!(query.distance_m(centre, place).is_some());
            let score = place.score();
            let ranges = query.ranges(centre);
            prop_assert!(ranges.iter().any(|(least, most)| (*least..*most).contains(&score)));
        }

        #[test]
        fn places_in_a_polygon_have_scores_in_the_ranges(
            middle in (-90.0..90.0_f64, -60.0..60.0_f64),
            reach in 0.001..30.0_f64,
            corners in proptest::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 3..9),
            beside in (-1.0..1.0_f64, -1.0..1.0_f64),
        ) {
            let at = |(east, north): (f64, f64)| Place {
                longitude: middle.0 + east * reach,
                latitude: (middle.1 + north * reach).clamp(-85.0, 85.0),
            };
            let corners: Vec<Place> = corners.into_iter().map(at).collect();
            let mut scratch = Vec::new();
            let polygon = Polygon::build(&mut scratch, &corners);
            let (centre, place) = (polygon.centre(), at(beside));
            let query = Query { shape: Shape::Polygon(polygon), ..around(centre, 0.0) };
            let score = place.score();
            let is_in_range = query.ranges(centre).iter().any(|(least, most)| (*least..*most).contains(&score));
            // A third of the places are inside.
            prop_assert!(is_in_range || query.distance_m(centre, place).is_none());
        }

        #[test]
        fn queries_survive_encoding(member: Vec<u8>, place in place(), count: u64, flag: bool) {
            for centre in [Centre::Member(&member), Centre::Place(place)] {
                let mut scratch = Vec::new();
                let polygon = Polygon::build(&mut scratch, &[place, PALERMO, CATANIA]);
                for shape in [Shape::Circle(1.5), Shape::Box(2.5, 3.5), Shape::Polygon(polygon)] {
                    let shown = Shown { distance: flag, hash: !flag, place: true };
                    let (order, takes_any, stores_distance) = (Order::Descending, flag, !flag);
                    let query =
                        Query { centre, shape, unit_m: 0.3048, order, count, takes_any, shown, stores_distance };
                    let mut bytes = Vec::new();
                    query.encode(&mut bytes);
                    prop_assert_eq!(Query::decode(&bytes), Ok(query));
                }
            }
        }
    }
}
