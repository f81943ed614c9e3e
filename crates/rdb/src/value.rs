//! Values, part by part, in every form in which they are written.

use crate::packed::{self, Format, Items, Packed, Wrong};
use crate::source::{Damaged, Fault, Source};
use std::io::Read;

/// Versions of the format from this one on are Valkey's own, with types of their own.
const VALKEY_VERSION: u32 = 80;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    /// A value of a module, which is not read.
    Module,
}

impl Kind {
    /// Its name, as `TYPE` returns it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
            Kind::Module => "module",
        }
    }
}

/// The form in which a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form(pub(crate) Shape);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    String,
    List,
    ListOfZiplist,
    ListOfZiplists,
    ListOfListpacks,
    Set,
    SetOfIntegers,
    SetOfListpack,
    SortedOfTexts,
    SortedOfNumbers,
    SortedOf(Format),
    Hash,
    HashOfZipmap,
    HashOf(Format),
    /// Fields with deadlines, which are relative to the earliest one if that is written first.
    HashWithDeadlines {
        has_least: bool,
    },
    HashOfTriples {
        has_least: bool,
    },
    HashOfValkey,
    /// The version of the form.
    Stream(u8),
    Module,
}

impl Form {
    /// The form with this type number in a version of the format, if it is known.
    pub fn of(tag: u8, version: u32) -> Option<Form> {
        use Shape::*;
        Some(Form(match tag {
            0 => String,
            1 => List,
            2 => Set,
            3 => SortedOfTexts,
            4 => Hash,
            5 => SortedOfNumbers,
            7 => Module,
            9 => HashOfZipmap,
            10 => ListOfZiplist,
            11 => SetOfIntegers,
            12 => SortedOf(Format::Ziplist),
            13 => HashOf(Format::Ziplist),
            14 => ListOfZiplists,
            15 => Stream(1),
            16 => HashOf(Format::Listpack),
            17 => SortedOf(Format::Listpack),
            18 => ListOfListpacks,
            19 => Stream(2),
            20 => SetOfListpack,
            21 => Stream(3),
            22 if version >= VALKEY_VERSION => HashOfValkey,
            _ if version >= VALKEY_VERSION => return None,
            22 => HashWithDeadlines { has_least: false },
            23 => HashOfTriples { has_least: false },
            24 => HashWithDeadlines { has_least: true },
            25 => HashOfTriples { has_least: true },
            _ => return None,
        }))
    }

    /// The type of the value.
    pub fn kind(self) -> Kind {
        use Shape::*;
        match self.0 {
            String => Kind::String,
            List | ListOfZiplist | ListOfZiplists | ListOfListpacks => Kind::List,
            Set | SetOfIntegers | SetOfListpack => Kind::Set,
            SortedOfTexts | SortedOfNumbers | SortedOf(_) => Kind::SortedSet,
            Hash | HashOfZipmap | HashOf(_) | HashWithDeadlines { .. } | HashOfTriples { .. } => Kind::Hash,
            HashOfValkey => Kind::Hash,
            Stream(_) => Kind::Stream,
            Module => Kind::Module,
        }
    }
}

/// The id of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The time, in milliseconds since the Unix epoch.
    pub ms: u64,
    /// The number among the ids of the same time.
    pub seq: u64,
}

/// Names and values of an entry of a stream, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    /// Removes all words.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a word.
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The words in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }
}

/// A part of a value. Names may occur twice, and scores are never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The whole of a string.
    Text(&'a [u8]),
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set, with its score.
    Scored(&'a [u8], f64),
    /// A field of a hash.
    Field {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, in milliseconds since the Unix epoch.
        deadline_ms: Option<u64>,
    },
    /// The next entry of a stream, names and values in turn. Ids may be out of order.
    Entry(Id, &'a Words),
    /// The data of a stream besides its entries. Follows the entries.
    Stream {
        /// The last id that an entry had.
        last: Id,
        /// The number of entries ever added.
        added: u64,
        /// The greatest id of an entry that was removed.
        removed: Id,
        /// Whether the numbers of entries that groups have read are written: not before Redis 7, which counts them
        /// when it reads an older file.
        has_counts: bool,
    },
    /// A group of consumers. Follows the stream.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The last id that it has read.
        last: Id,
        /// The number of entries that it has read, if known.
        read: Option<u64>,
    },
    /// A pending entry of the group before. Its consumer follows later.
    Pending {
        /// Its id.
        id: Id,
        /// When it was delivered, in milliseconds since the Unix epoch.
        delivered_ms: u64,
        /// How often it was delivered.
        deliveries: u64,
    },
    /// A consumer of the group before it.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it was last seen, in milliseconds since the Unix epoch.
        seen_ms: u64,
    },
    /// A pending entry of the consumer before it.
    Owned(Id),
}

/// An error of a visitor, or in the piece that it visits.
enum Either<E> {
    Wrong(Wrong),
    Other(E),
}

impl<E> From<Wrong> for Either<E> {
    fn from(wrong: Wrong) -> Either<E> {
        Either::Wrong(wrong)
    }
}

/// The place of a piece's bytes. Bytes within compressed pieces have no place.
#[derive(Clone, Copy)]
struct Base {
    begin: Option<u64>,
    end: u64,
}

impl Base {
    fn damaged(self, (offset, why): Wrong) -> Damaged {
        let at = self.begin.map_or(self.end, |begin| begin + offset as u64);
        Damaged { at, why }
    }
}

/// Reads a piece.
fn piece<R: Read>(source: &mut Source<R>, out: &mut Vec<u8>) -> Result<Base, Fault> {
    let start = source.at();
    source.text(out)?;
    let end = source.at();
    let begin = (end - start > out.len() as u64).then(|| end - out.len() as u64);
    Ok(Base { begin, end })
}

/// Reads a piece into `bytes`, and has `take` read what is in it. Damage there does not concern what follows the piece.
fn in_piece<R: Read, E: From<Fault>>(
    source: &mut Source<R>,
    bytes: &mut Vec<u8>,
    take: impl FnOnce(&[u8]) -> Result<(), Either<E>>,
) -> Result<Base, E> {
    let base = piece(source, bytes)?;
    if source.is_sound() {
        match take(bytes) {
            Ok(()) => {}
            Err(Either::Wrong(wrong)) => source.note(base.damaged(wrong))?,
            Err(Either::Other(error)) => return Err(error),
        }
    }
    Ok(base)
}

/// Passes a part on, unless something before it was damaged.
fn pass<R: Read, E>(
    source: &Source<R>,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
    part: Part<'_>,
) -> Result<(), E> {
    if source.is_sound() { visit(part) } else { Ok(()) }
}

/// What is wrong with a value whose end was found nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A stream has another number of entries than it says, or a greater id than its last one. All of it was passed on, with
    /// what it has.
    Miscounted(Damaged),
    /// Something within is damaged. Parts behind that were not passed on.
    Damaged(Damaged),
}

/// Like [`read`], but goes on to the end of a value that is damaged within, as long as its lengths are sound: then the
/// source is behind the value.
///
/// # Errors [`Fault::Damaged`] if the end of the value cannot be found; the error of `visit` if it returns one.
pub fn read_on<R: Read, E: From<Fault>>(
    form: Form,
    source: &mut Source<R>,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<Option<Flaw>, E> {
    source.begin_noting();
    let outcome = read(form, source, visit);
    let (damaged, miscounted) = source.end_noting();
    outcome.map(|()| damaged.map(Flaw::Damaged).or(miscounted.map(Flaw::Miscounted)))
}

/// Reads a value and passes its parts to `visit`, in order.
///
/// # Errors [`Fault::Damaged`] if the bytes are not a value of this form, or are a module's value; the error of
/// `visit` if it returns one.
pub fn read<R: Read, E: From<Fault>>(
    form: Form,
    source: &mut Source<R>,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    use Shape::*;
    let (mut one, mut other) = (Vec::new(), Vec::new());
    match form.0 {
        String => {
            source.text(&mut one)?;
            pass(source, visit, Part::Text(&one))?;
        }
        List | Set => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                let part = if form.0 == List { Part::Element(&one) } else { Part::Member(&one) };
                pass(source, visit, part)?;
            }
        }
        ListOfZiplist => elements(source, Format::Ziplist, visit)?,
        ListOfZiplists => {
            for _ in 0..source.length()? {
                elements(source, Format::Ziplist, visit)?;
            }
        }
        ListOfListpacks => {
            for _ in 0..source.length()? {
                match source.length()? {
                    // An element that is too long for a listpack.
                    1 => {
                        source.text(&mut one)?;
                        pass(source, visit, Part::Element(&one))?;
                    }
                    2 => elements(source, Format::Listpack, visit)?,
                    _ => return Err(source.damaged("a node of a list in an unknown form").into()),
                }
            }
        }
        SetOfIntegers => {
            in_piece(source, &mut one, |bytes| {
                packed::integers(bytes, |member| {
                    visit(Part::Member(packed::decimal(member, &mut [0; 20]))).map_err(Either::Other)
                })
            })?;
        }
        SetOfListpack => {
            in_piece(source, &mut one, |bytes| {
                let mut items = Items::of(bytes, Format::Listpack)?;
                while let Some(member) = items.next()? {
                    visit(Part::Member(member.text(&mut [0; 20]))).map_err(Either::Other)?;
                }
                Ok(())
            })?;
        }
        SortedOfTexts | SortedOfNumbers => sorted(source, form.0 == SortedOfNumbers, visit)?,
        SortedOf(format) => {
            in_piece(source, &mut one, |bytes| scored(bytes, format, visit))?;
        }
        Hash | HashOfValkey => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                source.text(&mut other)?;
                let deadline_ms = match form.0 {
                    HashOfValkey => u64::try_from(i64::from_le_bytes(source.array()?)).ok(),
                    _ => None,
                };
                pass(source, visit, Part::Field { name: &one, value: &other, deadline_ms })?;
            }
        }
        HashOfZipmap => {
            in_piece(source, &mut one, |bytes| {
                packed::zipmap(bytes, |name, value| {
                    visit(Part::Field { name, value, deadline_ms: None }).map_err(Either::Other)
                })
            })?;
        }
        HashOf(format) => {
            in_piece(source, &mut one, |bytes| fields(bytes, format, false, visit))?;
        }
        HashOfTriples { has_least } => {
            if has_least {
                source.array::<8>()?;
            }
            in_piece(source, &mut one, |bytes| fields(bytes, Format::Listpack, true, visit))?;
        }
        HashWithDeadlines { has_least } => {
            let least = if has_least { u64::from_le_bytes(source.array()?) } else { 1 };
            for _ in 0..source.length()? {
                let behind = source.length()?;
                source.text(&mut one)?;
                source.text(&mut other)?;
                // Relative to the earliest deadline, plus one; zero means none.
                let deadline_ms = (behind > 0).then(|| least.saturating_add(behind - 1));
                pass(source, visit, Part::Field { name: &one, value: &other, deadline_ms })?;
            }
        }
        Stream(version) => stream(source, version, visit)?,
        Module => return Err(source.damaged("a value of a module").into()),
    }
    Ok(())
}

fn elements<R: Read, E: From<Fault>>(
    source: &mut Source<R>,
    format: Format,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    in_piece(source, &mut Vec::new(), |bytes| {
        let mut items = Items::of(bytes, format)?;
        while let Some(element) = items.next()? {
            visit(Part::Element(element.text(&mut [0; 20]))).map_err(Either::Other)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn sorted<R: Read, E: From<Fault>>(
    source: &mut Source<R>,
    in_numbers: bool,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut member = Vec::new();
    for _ in 0..source.length()? {
        source.text(&mut member)?;
        let score = match in_numbers {
            true => f64::from_le_bytes(source.array()?),
            false => score_in_text(source)?,
        };
        if score.is_nan() {
            source.note(Damaged { at: source.at(), why: "a score that is not a number" })?;
        }
        pass(source, visit, Part::Scored(&member, score))?;
    }
    Ok(())
}

fn scored<E>(
    bytes: &[u8],
    format: Format,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), Either<E>> {
    let mut items = Items::of(bytes, format)?;
    while let Some(member) = items.next()? {
        let score = match items.must()? {
            Packed::Integer(integer) => Some(integer as f64),
            Packed::Bytes(text) => score_of(text),
        };
        let score = score.ok_or_else(|| (items.at(), "a score that is not a number"))?;
        visit(Part::Scored(member.text(&mut [0; 20]), score)).map_err(Either::Other)?;
    }
    Ok(())
}

fn fields<E>(
    bytes: &[u8],
    format: Format,
    has_deadlines: bool,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), Either<E>> {
    let mut items = Items::of(bytes, format)?;
    while let Some(name) = items.next()? {
        let value = items.must()?;
        let mut deadline_ms = None;
        if has_deadlines {
            let deadline = items.must()?.integer();
            let deadline = deadline.and_then(|deadline| u64::try_from(deadline).ok());
            let deadline = deadline.ok_or_else(|| (items.at(), "a deadline that is none"))?;
            deadline_ms = Some(deadline).filter(|deadline| *deadline > 0);
        }
        let (mut name_buffer, mut value_buffer) = ([0; 20], [0; 20]);
        let (name, value) = (name.text(&mut name_buffer), value.text(&mut value_buffer));
        visit(Part::Field { name, value, deadline_ms }).map_err(Either::Other)?;
    }
    Ok(())
}

/// The score that a text denotes.
fn score_of(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}

/// Reads a score as text, after a byte with its length or a special value.
fn score_in_text<R: Read>(source: &mut Source<R>) -> Result<f64, Fault> {
    let mut text = Vec::new();
    match source.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length => {
            source.bytes(length.into(), &mut text)?;
            Ok(score_of(&text).unwrap_or(f64::NAN))
        }
    }
}

fn fixed_id(bytes: [u8; 16]) -> Id {
    let (ms, seq) = bytes.split_at(8);
    let number = |half: &[u8]| half.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Id { ms: number(ms), seq: number(seq) }
}

fn id<R: Read>(source: &mut Source<R>) -> Result<Id, Fault> {
    Ok(Id { ms: source.length()?, seq: source.length()? })
}

fn stream<R: Read, E: From<Fault>>(
    source: &mut Source<R>,
    version: u8,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut bytes, mut words, mut count) = (Vec::new(), Words::default(), 0_u64);
    let mut greatest = None;
    for _ in 0..source.length()? {
        source.text(&mut bytes)?;
        let first = <[u8; 16]>::try_from(&bytes[..]).map(fixed_id);
        if first.is_err() {
            source.note(Damaged { at: source.at(), why: "a node of a stream without an id" })?;
        }
        let (first, mut counts) = (first.unwrap_or_default(), (0, 0));
        let base = in_piece(source, &mut bytes, |bytes| {
            counts = entries(bytes, first, (&mut greatest, &mut words), visit)?;
            Ok(())
        })?;
        let (written, there) = counts;
        if written != there {
            let why = "a node of a stream with another number of entries than it says";
            source.note_count(base.damaged((0, why)))?;
        }
        count += there;
    }
    let (length, mut last) = (source.length()?, id(source)?);
    if let Some(greatest) = greatest.filter(|it| *it > last && source.is_sound()) {
        let why = "a stream whose last id is smaller than an entry's";
        source.note_count(Damaged { at: source.at(), why })?;
        last = greatest;
    }
    if length != count && source.is_sound() {
        let why = "a stream with another number of entries than it says";
        source.note_count(Damaged { at: source.at(), why })?;
    }
    let (mut removed, mut added) = (Id::default(), count);
    if version >= 2 {
        // The first id is known from the entries.
        id(source)?;
        (removed, added) = (id(source)?, source.length()?);
        if length != count {
            added = added.max(count);
        }
    }
    pass(source, visit, Part::Stream { last, added, removed, has_counts: version >= 2 })?;
    for _ in 0..source.length()? {
        group(source, version, &mut bytes, visit)?;
    }
    Ok(())
}

fn group<R: Read, E: From<Fault>>(
    source: &mut Source<R>,
    version: u8,
    name: &mut Vec<u8>,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    source.text(name)?;
    let last = id(source)?;
    // It is written as a signed number: minus one means unknown.
    let read =
        if version >= 2 { Some(source.length()?).filter(|read| *read <= i64::MAX as u64) } else { None };
    pass(source, visit, Part::Group { name, last, read })?;
    for _ in 0..source.length()? {
        let id = fixed_id(source.array()?);
        let (delivered_ms, deliveries) = (u64::from_le_bytes(source.array()?), source.length()?);
        pass(source, visit, Part::Pending { id, delivered_ms, deliveries })?;
    }
    for _ in 0..source.length()? {
        source.text(name)?;
        let seen_ms = u64::from_le_bytes(source.array()?);
        if version >= 3 {
            // When the consumer was last active.
            source.array::<8>()?;
        }
        pass(source, visit, Part::Consumer { name, seen_ms })?;
        for _ in 0..source.length()? {
            let id = fixed_id(source.array()?);
            pass(source, visit, Part::Owned(id))?;
        }
    }
    Ok(())
}

/// Flag of an entry that was removed.
const REMOVED: i64 = 1;
/// Flag of an entry whose fields have the names of the node's first entry.
const SAME_NAMES: i64 = 2;

/// Reads a node of a stream: the number of entries, the number of removed ones, the names of the first entry's
/// fields, and the entries. Returns the number of entries that it names, and that of those that are there. `greatest` is the
/// id of the last entry of all nodes so far.
fn entries<E>(
    bytes: &[u8],
    first: Id,
    (greatest, words): (&mut Option<Id>, &mut Words),
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(u64, u64), Either<E>> {
    let mut items = Items::of(bytes, Format::Listpack)?;
    let number = |items: &mut Items<'_>| -> Result<i64, Wrong> {
        let item = items.must()?;
        item.integer().ok_or_else(|| (items.at(), "a number of a stream's node that is none"))
    };
    let (written, _) = (number(&mut items)?, number(&mut items)?);
    let names = number(&mut items)?;
    let names_begin = items.at();
    for _ in 0..names {
        items.must()?;
    }
    number(&mut items)?;
    let mut count = 0;
    while let Some(flags) = items.next()? {
        let flags = flags.integer().ok_or_else(|| (items.at(), "an entry that is none"))?;
        let (ms, seq) = (number(&mut items)?, number(&mut items)?);
        // The differences are unsigned.
        let id = Id { ms: first.ms.wrapping_add(ms as u64), seq: first.seq.wrapping_add(seq as u64) };
        words.clear();
        let mut text = [0; 20];
        if flags & SAME_NAMES != 0 {
            let mut named = Items::of(bytes, Format::Listpack)?;
            named.skip_to(names_begin);
            for _ in 0..names {
                words.push(named.must()?.text(&mut text));
                words.push(items.must()?.text(&mut text));
            }
        } else {
            for _ in 0..number(&mut items)? {
                words.push(items.must()?.text(&mut text));
                words.push(items.must()?.text(&mut text));
            }
        }
        // The number of items of the entry, for reading backwards.
        number(&mut items)?;
        if flags & REMOVED == 0 {
            if words.is_empty() {
                return Err((items.at(), "an entry without fields").into());
            }
            if greatest.is_some_and(|greatest| greatest >= id) {
                return Err((items.at(), "an entry whose id is not greater than the one before").into());
            }
            *greatest = Some(id);
            count += 1;
            visit(Part::Entry(id, words)).map_err(Either::Other)?;
        }
    }
    Ok((written as u64, count))
}

/// Skips data that a module wrote.
///
/// # Errors [`Fault::Damaged`] if the data cannot be skipped.
pub fn skip_module<R: Read>(source: &mut Source<R>) -> Result<(), Fault> {
    let mut text = Vec::new();
    loop {
        match source.length()? {
            0 => return Ok(()),
            1 | 2 => drop(source.length()?),
            3 => drop(source.array::<4>()?),
            4 => drop(source.array::<8>()?),
            5 => source.text(&mut text)?,
            _ => return Err(source.damaged("something that a module wrote in an unknown form")),
        }
    }
}

/// The name of a module: nine letters of six bits, before ten bits of its version.
pub fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|at| LETTERS[(id >> (58 - 6 * at) & 0x3f) as usize] as char).collect()
}

#[cfg(test)]
mod tests;
