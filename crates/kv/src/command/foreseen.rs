//! Commands that do nothing, whatever they find: their answer is known before they are carried out, except for what the keys
//! decide.
//!
//! Many commands look at their key before they read all of their arguments, as clients of Redis expect: `LINDEX nosuch x` is
//! answered with null, and `LINDEX string x` with `WRONGTYPE`; only where there is a list, `x` is an error. So a request with
//! such an argument becomes a read, which is answered in the place of the command.

use super::List;
use super::declaration::{Adds, Effect, Inner};
use crate::codec::{Malformed, Reader, Writer};
use crate::number::parse_integer;

/// A set of kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

#[allow(missing_docs)] // Named after the kinds.
impl Kinds {
    pub const NONE: Kinds = Kinds(0);
    pub const STRING: Kinds = Kinds(1);
    pub const LIST: Kinds = Kinds(2);
    pub const SET: Kinds = Kinds(4);
    pub const SORTED: Kinds = Kinds(8);
    pub const HASH: Kinds = Kinds(16);
    pub const STREAM: Kinds = Kinds(32);
    pub const ANY: Kinds = Kinds(63);

    /// The kinds of both sets.
    pub const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// Whether the sets have a kind in common.
    pub const fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a command answers that does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// An error with this text.
    Error(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// Null.
    Null,
    /// The end of a scan without elements.
    EmptyScan,
}

impl<'a> Answer<'a> {
    fn encoded(self) -> Vec<u8> {
        match self {
            Answer::Error(text) => [b"-", text].concat(),
            Answer::Integer(number) => format!(":{number}").into_bytes(),
            Answer::Null => b"_".to_vec(),
            Answer::EmptyScan => b"*".to_vec(),
        }
    }

    fn of(encoded: &'a [u8]) -> Result<Answer<'a>, Malformed> {
        match encoded {
            [b'-', text @ ..] => Some(Answer::Error(text)),
            [b':', number @ ..] => parse_integer(number).map(Answer::Integer),
            b"_" => Some(Answer::Null),
            b"*" => Some(Answer::EmptyScan),
            _ => None,
        }
        .ok_or(Malformed("unknown answer"))
    }
}

/// What decides before the answer is given.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'i> {
    /// The kinds of values that the keys may hold.
    pub kinds: Kinds,
    /// The error if a key holds another one; without it, `WRONGTYPE`.
    pub other: Option<&'i str>,
    /// The answer if a key is missing; without it, a missing key is like an empty one.
    pub missing: Option<Answer<'i>>,
    /// The consumer group that the streams must have.
    pub group: Option<&'i [u8]>,
}

/// A command whose answer is known, unless a key is missing or holds another kind of value. It changes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Foreseen<'a> {
    kinds: Kinds,
    has_group: bool,
    /// The answer, the answer if a key is missing, the error if it holds another kind, the group, and the keys. Empty: none.
    /// Checked: the answers can be read.
    parts: List<'a>,
}

impl std::fmt::Debug for Foreseen<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Foreseen {{ {:?} {:?} }}", self.kinds, self.parts)
    }
}

/// The number of parts before the keys.
const BEFORE_KEYS: usize = 4;

impl<'a> Foreseen<'a> {
    /// Builds the command in `scratch`, which is cleared first. The keys are looked at in their order.
    pub fn build<'i>(
        scratch: &'a mut Vec<u8>,
        answer: Answer<'_>,
        looked: Looked<'_>,
        keys: impl Iterator<Item = &'i [u8]>,
    ) -> Foreseen<'a> {
        let Looked { kinds, other, missing, group } = looked;
        let (answer, missing) = (answer.encoded(), missing.map_or(Vec::new(), Answer::encoded));
        let before: [&[u8]; BEFORE_KEYS] =
            [&answer, &missing, other.unwrap_or_default().as_bytes(), group.unwrap_or_default()];
        let mut parts = Vec::from(before);
        for key in keys {
            parts.push(key);
        }
        let parts = List::build(scratch, parts);
        Foreseen { kinds, has_group: group.is_some(), parts }
    }

    fn part(&self, place: usize) -> &'a [u8] {
        self.parts.iter().nth(place).unwrap_or_default()
    }

    fn answer_at(&self, place: usize) -> Option<Answer<'a>> {
        Answer::of(self.part(place)).ok()
    }

    /// The answer if all keys are as they should be.
    pub fn answer(&self) -> Answer<'a> {
        self.answer_at(0).unwrap_or(Answer::Null)
    }

    /// The answer if a key is missing, if that matters.
    pub(crate) fn if_missing(&self) -> Option<Answer<'a>> {
        self.answer_at(1)
    }

    /// The error if a key holds another kind of value; `None`: `WRONGTYPE`.
    pub(crate) fn if_other(&self) -> Option<&'a [u8]> {
        Some(self.part(2)).filter(|text| !text.is_empty())
    }

    /// The consumer group that the streams must have.
    pub(crate) fn group(&self) -> Option<&'a [u8]> {
        self.has_group.then(|| self.part(3))
    }

    /// The kinds of values that the keys may hold.
    pub(crate) fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().skip(BEFORE_KEYS)
    }
}

impl<'a> Inner<'a> for Foreseen<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kinds.0);
        out.put_bool(self.has_group);
        self.parts.encode(out);
    }

    fn take(_: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (kinds, has_group, parts) = (Kinds(reader.u8()?), reader.bool()?, List::decode(reader)?);
        if parts.len() <= BEFORE_KEYS {
            return Err(Malformed("a foreseen answer needs a key"));
        }
        let foreseen = Foreseen { kinds, has_group, parts };
        Answer::of(foreseen.part(0))?;
        match foreseen.part(1) {
            [] => {}
            missing => drop(Answer::of(missing)?),
        }
        Ok(foreseen)
    }

    fn is_write(&self) -> bool {
        false
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        self.keys().for_each(visit);
    }

    fn bytes(&self) -> usize {
        self.parts.bytes()
    }

    fn name(&self) -> &'static str {
        "this command"
    }

    fn effect(&self) -> Effect {
        Effect::Reads
    }

    fn adds(&self) -> Adds {
        Adds::Little
    }
}
