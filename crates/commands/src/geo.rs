//! Parsing of the commands on places, which are scores of sorted sets.

use kv::geo::{Centre, Order, Place, Polygon, Query, Shape, Shown};
use kv::number::parse_float;
use kv::{AddOptions, Command, Kinds, List, SortedCommand};
use wire::resp::Arguments;

use super::arguments::{Parsed, at, integer, is, key, parsers, value};
use super::error::printable;
use super::later::Looks;
use super::{CommandError, Context};

fn sorted(command: SortedCommand<'_>) -> Parsed<'_> {
    Ok(Command::OnSorted(command))
}

fn number(arguments: Arguments<'_>, index: usize) -> Result<f64, CommandError> {
    parse_float(at(arguments, index)).ok_or(CommandError::NotAFloat)
}

/// The place whose longitude is at `index` and whose latitude follows it.
fn place(arguments: Arguments<'_>, index: usize) -> Result<Place, CommandError> {
    let place = Place { longitude: number(arguments, index)?, latitude: number(arguments, index + 1)? };
    match place.is_valid() {
        true => Ok(place),
        false => Err(CommandError::NotAPlace(format!("{:.6},{:.6}", place.longitude, place.latitude))),
    }
}

/// The corners of a polygon, whose number is at `index`.
fn polygon(arguments: Arguments<'_>, index: usize) -> Result<Vec<Place>, CommandError> {
    let count = integer(arguments, index).map_err(|_| CommandError::InvalidCornerCount)?;
    let most = (arguments.len() - index - 1) / 2;
    let count = usize::try_from(count).ok().filter(|count| (3..=most).contains(count));
    let count = count.ok_or(CommandError::TooFewCorners)?;
    (0..count).map(|corner| place(arguments, index + 1 + 2 * corner)).collect()
}

/// Metres in the unit at `index`.
fn unit(arguments: Arguments<'_>, index: usize) -> Result<f64, CommandError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let named = units.into_iter().find(|(name, _)| is(at(arguments, index), name));
    named.map(|(_, metres)| metres).ok_or(CommandError::NotALengthUnit)
}

pub(super) fn geoadd<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let (mut options, mut counts_changes, mut next) = (AddOptions::default(), false, 2);
    while let Some(option) = arguments.get(next) {
        match option {
            nx if is(nx, "NX") => options.only_new = true,
            xx if is(xx, "XX") => options.only_old = true,
            ch if is(ch, "CH") => counts_changes = true,
            _ => break,
        }
        next += 1;
    }
    let count = arguments.len() - next;
    if !count.is_multiple_of(3) || count == 0 || options.only_new && options.only_old {
        return Err(CommandError::Syntax);
    }
    let key = key(arguments, 1)?;
    let mut scores = Vec::with_capacity(count / 3);
    for index in (next..arguments.len()).step_by(3) {
        scores.push(place(arguments, index)?.score().to_string());
        value(arguments, index + 2, context)?;
    }
    let members = (next + 2..arguments.len()).step_by(3).map(|index| at(arguments, index));
    let pairs = scores.iter().zip(members).flat_map(|(score, member)| [score.as_bytes(), member]);
    let pairs = List::build(scratch, pairs);
    sorted(SortedCommand::Add { key, pairs, options, counts_changes })
}

pub(super) fn geodist<'a>(arguments: Arguments<'a>, _: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let unit_m = match arguments.len() {
        4 => 1.0,
        5 => unit(arguments, 4)?,
        _ => return Err(CommandError::Syntax),
    };
    let (from, to) = (at(arguments, 2), at(arguments, 3));
    sorted(SortedCommand::Distance { key: key(arguments, 1)?, from, to, unit_m })
}

pub(super) fn geohash<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    sorted(SortedCommand::Hashes { key, members: List::build(scratch, arguments.iter().skip(2)) })
}

pub(super) fn geopos<'a>(arguments: Arguments<'a>, scratch: &'a mut Vec<u8>, _: &Context) -> Parsed<'a> {
    let key = key(arguments, 1)?;
    sorted(SortedCommand::Places { key, members: List::build(scratch, arguments.iter().skip(2)) })
}

/// A command that searches for places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `GEOSEARCH`.
    Search,
    /// `GEOSEARCHSTORE`.
    Store,
    /// `GEORADIUS` and `GEORADIUSBYMEMBER`, which may store their result, or their `_RO` forms, which may not.
    Radius { may_store: bool },
}

/// The options of a search.
struct Options<'a> {
    centre: Option<Centre<'a>>,
    shape: Option<(Shape<'static>, f64)>,
    /// The corners of a polygon, which is both a centre and a shape.
    corners: Vec<Place>,
    order: Option<Order>,
    count: u64,
    takes_any: bool,
    shown: Shown,
    stores_distance: bool,
    to: Option<&'a [u8]>,
}

/// The number at `index`, which must not be negative. `name` and `negative` are its names in the errors for what is not a
/// number, and for negative numbers.
fn length(
    arguments: Arguments<'_>,
    index: usize,
    name: &'static str,
    negative: &'static str,
) -> Result<f64, CommandError> {
    let length = parse_float(at(arguments, index)).ok_or(CommandError::NeedsNumeric(name))?;
    if length < 0.0 { Err(CommandError::NegativeLength(negative)) } else { Ok(length) }
}

fn circle(arguments: Arguments<'_>, index: usize) -> Result<(Shape<'static>, f64), CommandError> {
    let radius = length(arguments, index, "radius", "radius")?;
    Ok((Shape::Circle(radius), unit(arguments, index + 1)?))
}

impl<'a> Options<'a> {
    /// Reads the options from the argument at `index` on. A centre and a shape may be given again if they are of the same kind,
    /// and the last one counts; nodes of release 1 refuse that, in scripts too.
    fn read(
        mut self,
        kind: Kind,
        arguments: Arguments<'a>,
        mut index: usize,
        context: &Context,
    ) -> Result<Options<'a>, CommandError> {
        let may_repeat = context.level >= 2;
        let is_again_place = |centre: &Centre<'_>| may_repeat && matches!(centre, Centre::Place(_));
        let is_again_member = |centre: &Centre<'_>| may_repeat && matches!(centre, Centre::Member(_));
        let is_again_circle = |shape: &(Shape<'_>, f64)| may_repeat && matches!(shape.0, Shape::Circle(_));
        let is_again_box = |shape: &(Shape<'_>, f64)| may_repeat && matches!(shape.0, Shape::Box(..));
        // The command's name as the client wrote it, as in Redis.
        let name = || printable(at(arguments, 0));
        let searches = matches!(kind, Kind::Search | Kind::Store);
        while let Some(option) = arguments.get(index) {
            let left = arguments.len() - index - 1;
            let takes_area = searches && self.corners.is_empty();
            if is(option, "WITHDIST") {
                self.shown.distance = true;
            } else if is(option, "WITHHASH") {
                self.shown.hash = true;
            } else if is(option, "WITHCOORD") {
                self.shown.place = true;
            } else if is(option, "ANY") {
                self.takes_any = true;
            } else if is(option, "ASC") {
                self.order = Some(Order::Ascending);
            } else if is(option, "DESC") {
                self.order = Some(Order::Descending);
            } else if is(option, "COUNT") && left >= 1 {
                index += 1;
                self.count = u64::try_from(integer(arguments, index)?).unwrap_or(0);
                if self.count == 0 {
                    return Err(CommandError::CountNotPositive);
                }
            } else if kind == (Kind::Radius { may_store: true })
                && (is(option, "STORE") || is(option, "STOREDIST"))
                && left >= 1
            {
                self.stores_distance = is(option, "STOREDIST");
                index += 1;
                self.to = Some(key(arguments, index)?);
            } else if takes_area
                && is(option, "FROMMEMBER")
                && left >= 1
                && self.centre.as_ref().is_none_or(is_again_member)
            {
                index += 1;
                self.centre = Some(Centre::Member(at(arguments, index)));
            } else if takes_area
                && is(option, "FROMLONLAT")
                && left >= 2
                && self.centre.as_ref().is_none_or(is_again_place)
            {
                self.centre = Some(Centre::Place(place(arguments, index + 1)?));
                index += 2;
            } else if takes_area
                && is(option, "BYRADIUS")
                && left >= 2
                && self.shape.as_ref().is_none_or(is_again_circle)
            {
                self.shape = Some(circle(arguments, index + 1)?);
                index += 2;
            } else if takes_area
                && is(option, "BYBOX")
                && left >= 3
                && self.shape.as_ref().is_none_or(is_again_box)
            {
                let width =
                    parse_float(at(arguments, index + 1)).ok_or(CommandError::NeedsNumeric("width"))?;
                let height =
                    parse_float(at(arguments, index + 2)).ok_or(CommandError::NeedsNumeric("height"))?;
                if width < 0.0 || height < 0.0 {
                    return Err(CommandError::NegativeLength("height or width"));
                }
                self.shape = Some((Shape::Box(width, height), unit(arguments, index + 3)?));
                index += 3;
            } else if searches
                && is(option, "BYPOLYGON")
                && left >= 2
                && self.centre.is_none()
                && self.shape.is_none()
            {
                if context.level < 2 {
                    return Err(CommandError::NeedsLevel(2));
                }
                self.corners = polygon(arguments, index + 1)?;
                index += 1 + 2 * self.corners.len();
            } else if kind == Kind::Store && is(option, "STOREDIST") {
                self.stores_distance = true;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        let stores = self.to.is_some();
        if stores && self.shown != Shown::default() {
            return Err(CommandError::StoreWithOptions(match kind {
                Kind::Store => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            }));
        }
        if searches && self.centre.is_none() && self.corners.is_empty() {
            return Err(CommandError::NoCentre(name()));
        }
        if searches && self.shape.is_none() && self.corners.is_empty() {
            return Err(CommandError::NoShape(name()));
        }
        if self.takes_any && self.count == 0 {
            return Err(CommandError::AnyWithoutCount);
        }
        Ok(self)
    }

    fn command(self, from: &'a [u8], scratch: &'a mut Vec<u8>) -> Parsed<'a> {
        let Options { centre, shape, corners, order, count, takes_any, shown, stores_distance, to } = self;
        let mut bytes = Vec::new();
        let (centre, (shape, unit_m)) = if corners.is_empty() {
            centre.zip(shape).ok_or(CommandError::Syntax)?
        } else {
            let polygon = Polygon::build(&mut bytes, &corners);
            (Centre::Place(polygon.centre()), (Shape::Polygon(polygon), 1.0))
        };
        // With a count the nearest places are returned, in order of distance.
        let order = order.unwrap_or(if count > 0 && !takes_any { Order::Ascending } else { Order::Any });
        scratch.clear();
        Query { centre, shape, unit_m, order, count, takes_any, shown, stores_distance }.encode(scratch);
        let query = &scratch[..];
        sorted(match to {
            Some(to) => SortedCommand::StoreFound { to, from, query },
            None => SortedCommand::Find { key: from, query },
        })
    }
}

const NO_OPTIONS: Options<'static> = Options {
    centre: None,
    shape: None,
    corners: Vec::new(),
    order: None,
    count: 0,
    takes_any: false,
    shown: Shown { distance: false, hash: false, place: false },
    stores_distance: false,
    to: None,
};

/// A search looks at its sorted set, the key at `index`, before it reads its arguments.
fn looks(index: usize) -> Looks {
    Looks::at(index, Kinds::SORTED)
}

pub(super) fn geosearch<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let options = looks(1).then(NO_OPTIONS.read(Kind::Search, arguments, 2, context))?;
    options.command(key(arguments, 1)?, scratch)
}

pub(super) fn geosearchstore<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let options = Options { to: Some(key(arguments, 1)?), ..NO_OPTIONS };
    looks(2).then(options.read(Kind::Store, arguments, 3, context))?.command(key(arguments, 2)?, scratch)
}

fn radius<'a>(
    may_store: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let read = || {
        let centre = Some(Centre::Place(place(arguments, 2)?));
        let options = Options { centre, shape: Some(circle(arguments, 4)?), ..NO_OPTIONS };
        options.read(Kind::Radius { may_store }, arguments, 6, context)
    };
    let options = looks(1).then(read())?;
    options.command(key(arguments, 1)?, scratch)
}

fn radius_by_member<'a>(
    may_store: bool,
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
    context: &Context,
) -> Parsed<'a> {
    let read = || {
        let centre = Some(Centre::Member(at(arguments, 2)));
        let options = Options { centre, shape: Some(circle(arguments, 3)?), ..NO_OPTIONS };
        options.read(Kind::Radius { may_store }, arguments, 5, context)
    };
    let options = looks(1).then(read())?;
    options.command(key(arguments, 1)?, scratch)
}

parsers! { (arguments, scratch, context)
    georadius => radius(true, arguments, scratch, context);
    georadius_ro => radius(false, arguments, scratch, context);
    georadiusbymember => radius_by_member(true, arguments, scratch, context);
    georadiusbymember_ro => radius_by_member(false, arguments, scratch, context);
}
