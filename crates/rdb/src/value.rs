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
pub struct Form(Shape);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
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
    fn wrong<E: From<Fault>>(self, (offset, why): Wrong) -> E {
        let at = self.begin.map_or(self.end, |begin| begin + offset as u64);
        E::from(Fault::Damaged(Damaged { at, why }))
    }

    fn either<E: From<Fault>>(self, error: Either<E>) -> E {
        match error {
            Either::Wrong(wrong) => self.wrong(wrong),
            Either::Other(error) => error,
        }
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
            visit(Part::Text(&one))?;
        }
        List | Set => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                visit(if form.0 == List { Part::Element(&one) } else { Part::Member(&one) })?;
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
                        visit(Part::Element(&one))?;
                    }
                    2 => elements(source, Format::Listpack, visit)?,
                    _ => return Err(source.damaged("a node of a list in an unknown form").into()),
                }
            }
        }
        SetOfIntegers => {
            let base = piece(source, &mut one)?;
            let take =
                |member| visit(Part::Member(packed::decimal(member, &mut [0; 20]))).map_err(Either::Other);
            packed::integers(&one, take).map_err(|error| base.either(error))?;
        }
        SetOfListpack => {
            let base = piece(source, &mut one)?;
            let mut items = Items::of(&one, Format::Listpack).map_err(|wrong| base.wrong::<E>(wrong))?;
            while let Some(member) = items.next().map_err(|wrong| base.wrong::<E>(wrong))? {
                visit(Part::Member(member.text(&mut [0; 20])))?;
            }
        }
        SortedOfTexts | SortedOfNumbers => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                let score = match form.0 {
                    SortedOfNumbers => f64::from_le_bytes(source.array()?),
                    _ => score_in_text(source)?,
                };
                if score.is_nan() {
                    return Err(source.damaged("a score that is not a number").into());
                }
                visit(Part::Scored(&one, score))?;
            }
        }
        SortedOf(format) => {
            let base = piece(source, &mut one)?;
            let mut items = Items::of(&one, format).map_err(|wrong| base.wrong::<E>(wrong))?;
            while let Some(member) = items.next().map_err(|wrong| base.wrong::<E>(wrong))? {
                let score = items.must().map_err(|wrong| base.wrong::<E>(wrong))?;
                let score = match score {
                    Packed::Integer(integer) => Some(integer as f64),
                    Packed::Bytes(text) => score_of(text),
                };
                let score =
                    score.ok_or_else(|| base.wrong::<E>((items.at(), "a score that is not a number")))?;
                visit(Part::Scored(member.text(&mut [0; 20]), score))?;
            }
        }
        Hash => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                source.text(&mut other)?;
                visit(Part::Field { name: &one, value: &other, deadline_ms: None })?;
            }
        }
        HashOfZipmap => {
            let base = piece(source, &mut one)?;
            let take = |name: &[u8], value: &[u8]| {
                visit(Part::Field { name, value, deadline_ms: None }).map_err(Either::Other)
            };
            packed::zipmap(&one, take).map_err(|error| base.either(error))?;
        }
        HashOf(format) => {
            let base = piece(source, &mut one)?;
            fields(&one, format, false, base, visit)?;
        }
        HashOfTriples { has_least } => {
            if has_least {
                source.array::<8>()?;
            }
            let base = piece(source, &mut one)?;
            fields(&one, Format::Listpack, true, base, visit)?;
        }
        HashWithDeadlines { has_least } => {
            let least = if has_least { u64::from_le_bytes(source.array()?) } else { 1 };
            for _ in 0..source.length()? {
                let behind = source.length()?;
                source.text(&mut one)?;
                source.text(&mut other)?;
                // Relative to the earliest deadline, plus one; zero means none.
                let deadline_ms = (behind > 0).then(|| least.saturating_add(behind - 1));
                visit(Part::Field { name: &one, value: &other, deadline_ms })?;
            }
        }
        HashOfValkey => {
            for _ in 0..source.length()? {
                source.text(&mut one)?;
                source.text(&mut other)?;
                let deadline_ms = u64::try_from(i64::from_le_bytes(source.array()?)).ok();
                visit(Part::Field { name: &one, value: &other, deadline_ms })?;
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
    let mut bytes = Vec::new();
    let base = piece(source, &mut bytes)?;
    let mut items = Items::of(&bytes, format).map_err(|wrong| base.wrong::<E>(wrong))?;
    while let Some(element) = items.next().map_err(|wrong| base.wrong::<E>(wrong))? {
        visit(Part::Element(element.text(&mut [0; 20])))?;
    }
    Ok(())
}

fn fields<E: From<Fault>>(
    bytes: &[u8],
    format: Format,
    has_deadlines: bool,
    base: Base,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let wrong = |wrong| base.wrong::<E>(wrong);
    let mut items = Items::of(bytes, format).map_err(wrong)?;
    while let Some(name) = items.next().map_err(wrong)? {
        let value = items.must().map_err(wrong)?;
        let mut deadline_ms = None;
        if has_deadlines {
            let deadline = items.must().map_err(wrong)?.integer();
            let deadline = deadline.and_then(|deadline| u64::try_from(deadline).ok());
            let deadline = deadline.ok_or_else(|| wrong((items.at(), "a deadline that is none")))?;
            deadline_ms = Some(deadline).filter(|deadline| *deadline > 0);
        }
        let (mut name_buffer, mut value_buffer) = ([0; 20], [0; 20]);
        let (name, value) = (name.text(&mut name_buffer), value.text(&mut value_buffer));
        visit(Part::Field { name, value, deadline_ms })?;
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
        let first = first.map_err(|_| source.damaged("a node of a stream without an id"))?;
        let base = piece(source, &mut bytes)?;
        count += entries(&bytes, first, base, &mut words, visit)?;
    }
    let (length, last) = (source.length()?, id(source)?);
    if length != count {
        return Err(source.damaged("a stream with another number of entries than it says").into());
    }
    let (mut removed, mut added) = (Id::default(), length);
    if version >= 2 {
        // The first id is known from the entries.
        id(source)?;
        (removed, added) = (id(source)?, source.length()?);
    }
    visit(Part::Stream { last, added, removed, has_counts: version >= 2 })?;
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
    visit(Part::Group { name, last, read })?;
    for _ in 0..source.length()? {
        let id = fixed_id(source.array()?);
        let (delivered_ms, deliveries) = (u64::from_le_bytes(source.array()?), source.length()?);
        visit(Part::Pending { id, delivered_ms, deliveries })?;
    }
    for _ in 0..source.length()? {
        source.text(name)?;
        let seen_ms = u64::from_le_bytes(source.array()?);
        if version >= 3 {
            // When the consumer was last active.
            source.array::<8>()?;
        }
        visit(Part::Consumer { name, seen_ms })?;
        for _ in 0..source.length()? {
            let id = fixed_id(source.array()?);
            visit(Part::Owned(id))?;
        }
    }
    Ok(())
}

/// Flag of an entry that was removed.
const REMOVED: i64 = 1;
/// Flag of an entry whose fields have the names of the node's first entry.
const SAME_NAMES: i64 = 2;

/// Reads a node of a stream: the number of entries, the number of removed ones, the names of the first entry's
/// fields, and the entries. Returns the number of entries.
fn entries<E: From<Fault>>(
    bytes: &[u8],
    first: Id,
    base: Base,
    words: &mut Words,
    visit: &mut impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let wrong = |wrong| base.wrong::<E>(wrong);
    let mut items = Items::of(bytes, Format::Listpack).map_err(wrong)?;
    let number = |items: &mut Items<'_>| {
        let item = items.must().map_err(wrong)?;
        item.integer().ok_or_else(|| wrong((items.at(), "a number of a stream's node that is none")))
    };
    let (written, _) = (number(&mut items)?, number(&mut items)?);
    let names = number(&mut items)?;
    let names_begin = items.at();
    for _ in 0..names {
        items.must().map_err(wrong)?;
    }
    number(&mut items)?;
    let mut count = 0;
    loop {
        let Some(flags) = items.next().map_err(wrong)? else { break };
        let flags = flags.integer().ok_or_else(|| wrong((items.at(), "an entry that is none")))?;
        let (ms, seq) = (number(&mut items)?, number(&mut items)?);
        // The differences are unsigned.
        let id = Id { ms: first.ms.wrapping_add(ms as u64), seq: first.seq.wrapping_add(seq as u64) };
        words.clear();
        let mut text = [0; 20];
        if flags & SAME_NAMES != 0 {
            let mut named = Items::of(bytes, Format::Listpack).map_err(wrong)?;
            named.skip_to(names_begin);
            for _ in 0..names {
                words.push(named.must().map_err(wrong)?.text(&mut text));
                words.push(items.must().map_err(wrong)?.text(&mut text));
            }
        } else {
            for _ in 0..number(&mut items)? {
                words.push(items.must().map_err(wrong)?.text(&mut text));
                words.push(items.must().map_err(wrong)?.text(&mut text));
            }
        }
        // The number of items of the entry, for reading backwards.
        number(&mut items)?;
        if flags & REMOVED == 0 {
            if words.is_empty() {
                return Err(wrong((items.at(), "an entry without fields")));
            }
            count += 1;
            visit(Part::Entry(id, words))?;
        }
    }
    if written as u64 != count {
        return Err(wrong((0, "a node of a stream with another number of entries than it says")));
    }
    Ok(count)
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
