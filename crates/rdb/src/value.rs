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
    /// A stream has another number of entries than it says. All of it was passed on, with the number that it has.
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
    for _ in 0..source.length()? {
        source.text(&mut bytes)?;
        let first = <[u8; 16]>::try_from(&bytes[..]).map(fixed_id);
        if first.is_err() {
            source.note(Damaged { at: source.at(), why: "a node of a stream without an id" })?;
        }
        let (first, mut counts) = (first.unwrap_or_default(), (0, 0));
        let base = in_piece(source, &mut bytes, |bytes| {
            counts = entries(bytes, first, &mut words, visit)?;
            Ok(())
        })?;
        let (written, there) = counts;
        if written != there {
            let why = "a node of a stream with another number of entries than it says";
            source.note_count(base.damaged((0, why)))?;
        }
        count += there;
    }
    let (length, last) = (source.length()?, id(source)?);
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
/// fields, and the entries. Returns the number of entries that it names, and that of those that are there.
fn entries<E>(
    bytes: &[u8],
    first: Id,
    words: &mut Words,
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
mod tests {
    use super::*;
    use crate::payload;
    use crate::write::{self, StreamHead, put_fixed_id, put_group, put_length, put_node, put_text, tag};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The parts of a payload, as text.
    fn parts(payload: &[u8]) -> Result<Vec<String>, String> {
        let (form, mut source) = payload::open(payload).map_err(|refusal| format!("{refusal:?}"))?;
        source.limit_expansion(1 << 20);
        let mut found = Vec::new();
        let outcome = read(form, &mut source, &mut |part| {
            found.push(match part {
                Part::Entry(id, words) => {
                    let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                    format!("{}-{} {}", id.ms, id.seq, words.join(" "))
                }
                part => format!("{part:?}"),
            });
            Ok::<(), Fault>(())
        });
        let behind = payload.len() as u64 - 10;
        match outcome {
            Ok(()) if source.at() == behind => Ok(found),
            Ok(()) => Err(format!("it ends at {} and not {behind}", source.at())),
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn payload_of(tag: u8, version: u16, value: &[u8]) -> Vec<u8> {
        let mut payload = [&[tag][..], value].concat();
        payload::close(version, 0, &mut payload);
        payload
    }

    fn words(texts: &[&[u8]]) -> Words {
        let mut words = Words::default();
        texts.iter().for_each(|text| words.push(text));
        words
    }

    fn a_stream() -> Vec<u8> {
        let mut value = Vec::new();
        put_length(1, &mut value);
        let id = |ms, seq| Id { ms, seq };
        let long = [b'x'; 5000];
        let entries = [
            (id(5, 9), words(&[b"a", b"-1", b"b", b"4096"])),
            (id(5, 10), words(&[b"a", &long[..100], b"b", &long])),
            (id(7, 0), words(&[b"c", b"-9223372036854775808"])),
        ];
        put_node(&entries, &mut value);
        let head =
            StreamHead { length: 3, last: id(8, 1), first: id(5, 9), removed: id(8, 1), added: 4, groups: 1 };
        head.put(&mut value);
        put_group(b"g", id(5, 10), None, &mut value);
        put_length(1, &mut value);
        put_fixed_id(id(5, 9), &mut value);
        value.extend_from_slice(&77_u64.to_le_bytes());
        put_length(3, &mut value);
        put_length(1, &mut value);
        put_text(b"me", &mut value);
        value.extend_from_slice(&78_u64.to_le_bytes());
        put_length(1, &mut value);
        put_fixed_id(id(5, 9), &mut value);
        payload_of(tag::STREAM, payload::VERSION, &value)
    }

    #[test]
    fn a_stream_is_read_as_it_was_written() {
        let found = parts(&a_stream()).unwrap();
        assert_eq!(found[0], "5-9 a -1 b 4096");
        assert_eq!(found[1], format!("5-10 a {} b {}", "x".repeat(100), "x".repeat(5000)));
        assert_eq!(found[2], "7-0 c -9223372036854775808");
        let rest = found[3..].join("\n");
        let expected =
            "Stream { last: Id { ms: 8, seq: 1 }, added: 4, removed: Id { ms: 8, seq: 1 }, has_counts: true }
Group { name: [103], last: Id { ms: 5, seq: 10 }, read: None }
Pending { id: Id { ms: 5, seq: 9 }, delivered_ms: 77, deliveries: 3 }
Consumer { name: [109, 101], seen_ms: 78 }
Owned(Id { ms: 5, seq: 9 })";
        assert_eq!(rest, expected);
    }

    /// What [`read_on`] returns, the parts that it has passed on, and whether the source is then behind the value.
    fn parts_on(payload: &[u8]) -> Result<(Option<Flaw>, usize, bool), Fault> {
        let (form, mut source) = payload::open(payload).expect("a footer");
        let mut count = 0;
        let flaw = read_on(form, &mut source, &mut |_| {
            count += 1;
            Ok::<(), Fault>(())
        })?;
        Ok((flaw, count, source.at() == payload.len() as u64 - 10))
    }

    /// A stream of one node with these entries, which says that the node, and all of it, has other numbers of them.
    fn miscounted(in_node: u64, in_all: u64) -> Vec<u8> {
        let (mut value, mut node) = (Vec::new(), Vec::new());
        let entry = |ms| (Id { ms, seq: 0 }, words(&[b"a", b"b"]));
        put_node(&[entry(1), entry(2), entry(3)], &mut node);
        // The id and its length, the length of the listpack, its head, and the number of entries.
        let place = 1 + 16 + 1 + 6;
        assert_eq!(node[place], 3);
        node[place] = in_node as u8;
        put_length(1, &mut value);
        value.extend_from_slice(&node);
        let last = Id { ms: 3, seq: 0 };
        StreamHead { length: in_all, last, added: 1, groups: 1, ..StreamHead::default() }.put(&mut value);
        put_group(b"g", last, None, &mut value);
        put_length(0, &mut value);
        put_length(0, &mut value);
        payload_of(tag::STREAM, payload::VERSION, &value)
    }

    #[test]
    fn a_stream_that_counts_wrong_is_refused_or_read_whole() {
        for (in_node, in_all) in [(3, 7), (3, 0), (2, 3), (9, 9)] {
            let payload = miscounted(in_node, in_all);
            assert!(parts(&payload).unwrap_err().contains("another number of entries"), "{in_node} {in_all}");
            let (flaw, count, is_behind) = parts_on(&payload).unwrap();
            assert!(matches!(flaw, Some(Flaw::Miscounted(_))) && is_behind, "{flaw:?}");
            assert_eq!(count, 3 + 2, "entries, the stream, its group");
            let (form, mut source) = payload::open(&payload).unwrap();
            let mut added = 0;
            let take = &mut |part: Part<'_>| {
                if let Part::Stream { added: number, .. } = part {
                    added = number;
                }
                Ok::<(), Fault>(())
            };
            read_on(form, &mut source, take).unwrap();
            assert_eq!(added, if in_all == 3 { 1 } else { 3 }, "no fewer than there are");
        }
        assert_eq!(parts_on(&miscounted(3, 3)).unwrap(), (None, 5, true));
    }

    /// Values whose bytes within pieces are damaged, each with how many parts stand before the damage.
    fn damaged_within() -> Vec<(&'static str, Vec<u8>, usize)> {
        let mut listpack = b"\x14\0\0\0\x06\0\x81f\x02\x81v\x02\x81g\x02\x81w\x02\xff".to_vec();
        listpack[0] = listpack.len() as u8;
        listpack[4] = 4;
        let whole = [&[listpack.len() as u8][..], &listpack].concat();
        // The third item has a form that is none.
        listpack[12] = 0xff;
        let broken = [&[listpack.len() as u8][..], &listpack].concat();
        // A string of 40 bytes of which 5 are there, packed.
        let packed = b"\xc3\x02\x28\x00z";
        let text = |text: &[u8]| [&[text.len() as u8][..], text].concat();
        vec![
            ("a string", payload_of(tag::STRING, 10, packed), 0),
            ("a hash", payload_of(16, 10, &broken), 1),
            (
                "a list of pieces",
                payload_of(
                    18,
                    10,
                    &[b"\x03", &b"\x02"[..], &whole, b"\x02", &broken, b"\x02", &whole].concat(),
                ),
                4 + 2,
            ),
            (
                "a set of strings",
                payload_of(2, 10, &[b"\x03", &text(b"a")[..], packed, &text(b"b")].concat()),
                1,
            ),
            ("a set of integers", payload_of(11, 10, &text(b"\x03\0\0\0\x01\0\0\0zz")), 0),
            (
                "a zset in text",
                payload_of(
                    3,
                    10,
                    &[b"\x02", &text(b"a")[..], &text(b"1x"), &text(b"b"), &text(b"2")].concat(),
                ),
                0,
            ),
            ("a zset", payload_of(17, 10, &whole), 0),
            (
                "a stream",
                payload_of(15, 10, &[b"\x01", &text(b"short")[..], &whole, b"\0\0\0\0"].concat()),
                0,
            ),
        ]
    }

    #[test]
    fn damage_within_a_value_does_not_hide_its_end() {
        for (what, payload, before) in damaged_within() {
            assert!(parts(&payload).is_err(), "{what}");
            let (flaw, count, is_behind) =
                parts_on(&payload).unwrap_or_else(|fault| panic!("{what}: {fault}"));
            assert!(matches!(flaw, Some(Flaw::Damaged(_))), "{what}: {flaw:?}");
            assert!(is_behind, "{what}");
            assert_eq!(count, before, "{what}: nothing behind the damage is passed on");
        }
        // Where the lengths are not sound, the end is not known.
        let cut = payload_of(4, 10, b"\x02\x01a\x01b");
        assert!(matches!(parts_on(&cut), Err(Fault::Damaged(_))));
        assert!(
            parts_on(&payload_of(18, 10, b"\x01\x03\x01a")).is_err(),
            "a form of a node that is not known"
        );
    }

    #[test]
    fn fields_have_deadlines_in_several_forms() {
        let listpack = b"\x14\0\0\0\x06\0\x81f\x02\x81v\x02\x09\x01\x81g\x02\x81w\x02\0\x01\xff";
        let mut listpack = listpack.to_vec();
        listpack[0] = listpack.len() as u8;
        let piece = [&[listpack.len() as u8][..], &listpack].concat();
        let least = 7_u64.to_le_bytes();
        let fields = |first: &[u8]| [&b"\x02"[..], first, b"\x01f\x01v\x00\x01g\x01w"].concat();
        let valkey = [b"\x02\x01f\x01v", &9_u64.to_le_bytes()[..], b"\x01g\x01w", &[0xff; 8]].concat();
        for (tag, version, value) in [
            (22, 12, fields(b"\x09")),
            (23, 12, piece.clone()),
            (24, 12, [&least[..], &fields(b"\x03")].concat()),
            (25, 12, [&least[..], &piece].concat()),
            (22, 80, valkey),
        ] {
            let found = parts(&payload_of(tag, version, &value)).unwrap();
            let field = |name: char, value: char, deadline: &str| {
                let (name, value) = (name as u8, value as u8);
                format!("Field {{ name: [{name}], value: [{value}], deadline_ms: {deadline} }}")
            };
            assert_eq!(found, [field('f', 'v', "Some(9)"), field('g', 'w', "None")], "type {tag}");
        }
        assert!(parts(&payload_of(24, 80, b"\x00")).is_err(), "another format's type");
    }

    #[test]
    fn damaged_bytes_are_refused_with_their_place() {
        let stream = a_stream();
        for end in 1..stream.len() - 10 {
            let cut = payload_of(stream[0], payload::VERSION, &stream[1..end]);
            let error = parts(&cut).expect_err("it lacks its end");
            assert!(error.starts_with("at byte "), "{error}");
        }
        let mut flipped = stream.clone();
        flipped[20] ^= 1;
        assert_eq!(payload::open(&flipped).err(), Some(payload::Refusal::Footer));
    }

    proptest! {
        #[test]
        fn damaged_values_do_no_harm(tag in 0..30_u8, version in prop_oneof![Just(12), Just(80)], value in vec(any::<u8>(), 0..200)) {
            let _ = parts(&payload_of(tag, version, &value));
        }

        #[test]
        fn values_without_damage_have_no_flaw(tag in 0..30_u8, version in prop_oneof![Just(12), Just(80)], value in vec(any::<u8>(), 0..200)) {
            let payload = payload_of(tag, version, &value);
            if let (Ok(found), Ok((form, _))) = (parts(&payload), payload::open(&payload)) {
                let (flaw, count, is_behind) = parts_on(&payload).unwrap();
                prop_assert_eq!((flaw, count, is_behind), (None, found.len(), true), "{:?}", form);
            }
        }

        #[test]
        fn a_damaged_stream_does_no_harm(at in 1..5300_usize, byte in any::<u8>()) {
            let mut stream = a_stream();
            let end = stream.len() - 10;
            stream[at.min(end - 1)] = byte;
            let _ = parts(&payload_of(stream[0], payload::VERSION, &stream[1..end]));
        }

        #[test]
        fn strings_are_read_as_they_were_written(
            text in prop_oneof![vec(any::<u8>(), 0..70), any::<i64>().prop_map(|it| it.to_string().into_bytes()),
                (-70_000..70_000_i32).prop_map(|it| it.to_string().into_bytes())],
        ) {
            let mut value = Vec::new();
            put_text(&text, &mut value);
            let found = parts(&payload_of(tag::STRING, payload::VERSION, &value)).unwrap();
            prop_assert_eq!(found, [format!("Text({text:?})")]);
            let mut node = Vec::new();
            put_length(1, &mut node);
            put_node(&[(Id::default(), words(&[&text, &text]))], &mut node);
            let head = StreamHead { length: 1, ..StreamHead::default() };
            head.put(&mut node);
            let found = parts(&payload_of(tag::STREAM, payload::VERSION, &node)).unwrap();
            let word = text.escape_ascii();
            prop_assert_eq!(&found[0], &format!("0-0 {word} {word}"));
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        use crate::file::{FileReader, Item};
        for with_deadlines in [false, true] {
            let mut writer = write::FileWriter::begin(Vec::new()).unwrap();
            writer.key(b"k", Some(1234), tag::STRING, b"\x01v").unwrap();
            if with_deadlines {
                let value = [&7_u64.to_le_bytes()[..], b"\x01\x01\x01f\x01v"].concat();
                writer.key(b"h", None, tag::HASH_WITH_DEADLINES, &value).unwrap();
            }
            let (mut bytes, head) = writer.end().unwrap();
            assert_eq!(head.is_some(), with_deadlines);
            if let Some(head) = head {
                bytes[..head.len()].copy_from_slice(head);
            }
            let items = |bytes: &[u8]| -> Result<Vec<Vec<u8>>, Fault> {
                let (mut reader, mut keys) = (FileReader::new(bytes)?, Vec::new());
                loop {
                    match reader.item()? {
                        Item::Key { key, form, .. } => {
                            read(form, reader.source(), &mut |_| Ok::<(), Fault>(()))?;
                            keys.push(key);
                        }
                        Item::Database(number) => assert_eq!(number, 0),
                        Item::End => return Ok(keys),
                        item => panic!("{item:?}"),
                    }
                }
            };
            let keys: &[&[u8]] = if with_deadlines { &[b"k", b"h"] } else { &[b"k"] };
            assert_eq!(items(&bytes).unwrap(), keys);
            for end in 0..bytes.len() {
                assert!(items(&bytes[..end]).is_err());
            }
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert!(items(&bytes).is_err());
        }
    }
}
