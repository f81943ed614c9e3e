//! The messages between replicas of registers other than those of operations: incarnations, refilling, repair and the
//! collection of tombstones.

use super::lives::{Lives, LivesView};
use super::tag::{COUNTER_MAX, Tag};
use kv::codec::{Malformed, Reader, Writer};
use kv::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX_CEILING};
use kv::{Register, UnixMs, Version};

/// Kinds (first bytes) from here on belong to these messages; a protocol's own kinds are below.
pub const FIRST_KIND: u8 = 32;

/// A message, with the incarnations that its sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The incarnations, including the sender's own.
    pub lives: LivesView<'a>,
    /// The content.
    pub body: Body<'a>,
}

/// What a replica without its memory reports of its earlier incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// They may have acknowledged what it has forgotten.
    #[default]
    Forgotten,
    /// There were none, as far as the replica knows; with records: none has ever vouched for anything.
    None,
    /// An operator has given up what they acknowledged: others need not wait for it.
    GivenUp,
}

/// A step of a collection, in order. See [`collection`](super::collection).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Hold these tombstones.
    Hold,
    /// Advance to the next generation, and confirm when you have no operation of an earlier one open.
    Advance,
    /// Refuse values of an earlier generation.
    Refuse,
    /// Forget these tombstones.
    Forget,
}

/// What a replica knows besides its entries, and sends to a newcomer with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The generation of operations that begin now.
    pub generation: u64,
    /// The least generation that is admitted.
    pub minimum: u64,
    /// The greatest counter of tombstones that may have been forgotten.
    pub floor: u64,
    /// The greatest version ever held.
    pub version: Version,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A replica that has started, to all: I begin this incarnation and am without my memory.
    Hello {
        /// Identifies the incarnation: no other one has the same.
        nonce: u64,
        /// The number of the question.
        round: u32,
        /// What was before this incarnation.
        past: Past,
    },
    /// The answer to a hello: this is my state.
    Standing {
        /// The asker's incarnation.
        nonce: u64,
        /// The question that this answers.
        round: u32,
        /// Identifies the answering replica's incarnation.
        own_nonce: u64,
        /// False: the answering replica is refilling itself.
        ready: bool,
        /// What was before its incarnation, if it is refilling itself.
        past: Past,
        /// False: the asker's incarnation number was used before. The newest one is among the incarnations of the
        /// message.
        admitted: bool,
        /// If the group began without anything: the incarnations that were empty at one moment, by their nonces
        /// of eight bytes each.
        anew: &'a [u8],
    },
    /// Newcomer to a source: send me a snapshot of all that you hold, from chunk `next` on. I have all before it.
    Fetch {
        /// The newcomer's incarnation.
        nonce: u64,
        /// Identifies the transfer; a later one has a higher number.
        transfer: u64,
        /// The first chunk that is missing.
        next: u32,
    },
    /// A part of a snapshot.
    SnapshotChunk {
        /// The newcomer's incarnation.
        nonce: u64,
        /// The transfer.
        transfer: u64,
        /// The chunk's number, from 0.
        index: u32,
        /// Whether it is the last chunk.
        last: bool,
        /// The source's bounds at the moment of the snapshot.
        bounds: Bounds,
        /// Entries of the table.
        entries: &'a [u8],
    },
    /// Some of the keys that I hold, with their tags.
    Compare {
        /// Identifies the walk through all keys to which this part belongs. A later one has a higher number.
        walk: u64,
        /// The part's number, from 0.
        part: u32,
        /// This is the last part: the receiver must answer [`Body::Same`] if nothing differed in any part.
        asks: bool,
        /// The keys.
        tags: Tags<'a>,
    },
    /// The answer to a whole walk in which nothing differed.
    Same {
        /// The walk.
        walk: u64,
    },
    /// The answer to a part, if something differs.
    Differ {
        /// The sender's generation.
        generation: u64,
        /// Keys of which the sender holds older values: send me yours.
        wanted: Tags<'a>,
        /// The sender's newer values.
        entries: Entries<'a>,
    },
    /// The values that were wanted.
    Repair {
        /// The sender's generation.
        generation: u64,
        /// The sender's values.
        entries: Entries<'a>,
    },
    /// A step of a collection of tombstones.
    Collect {
        /// The collection.
        round: u64,
        /// The step.
        step: Step,
        /// Hold: the sender's generation. Advance, Refuse: the generation of the step.
        generation: u64,
        /// Hold, Forget: the tombstones.
        tombstones: Tags<'a>,
    },
    /// The step is taken.
    Collected {
        /// The collection.
        round: u64,
        /// The step.
        step: Step,
        /// The sender's generation.
        generation: u64,
        /// Hold: for each tombstone, in order, 1 if it is held now.
        held: &'a [u8],
    },
}

const HELLO: u8 = FIRST_KIND;
const STANDING: u8 = FIRST_KIND + 1;
const FETCH: u8 = FIRST_KIND + 2;
const SNAPSHOT_CHUNK: u8 = FIRST_KIND + 3;
const COMPARE: u8 = FIRST_KIND + 4;
const DIFFER: u8 = FIRST_KIND + 5;
const REPAIR: u8 = FIRST_KIND + 6;
const COLLECT: u8 = FIRST_KIND + 7;
const COLLECTED: u8 = FIRST_KIND + 8;
const SAME: u8 = FIRST_KIND + 9;

/// Generations never come near this number: only collections of tombstones begin new ones, one each.
const GENERATION_MAX: u64 = 1 << 62;

fn take_generation(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let generation = reader.u64()?;
    if generation > GENERATION_MAX {
        Err(Malformed("a generation that is never reached"))
    } else {
        Ok(generation)
    }
}

impl Bounds {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let Bounds { generation, minimum, floor, version } = *self;
        [generation, minimum, floor, version].into_iter().for_each(|bound| out.put_u64(bound));
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Bounds, Malformed> {
        let (generation, minimum) = (take_generation(reader)?, take_generation(reader)?);
        let (floor, version) = (reader.u64()?, Tag::decode(reader)?.version());
        if floor > COUNTER_MAX {
            return Err(Malformed("a floor that no counter reaches"));
        }
        Ok(Bounds { generation, minimum, floor, version })
    }
}

impl<'a> Message<'a> {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not exactly one message.
    pub fn decode(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let lives = LivesView::decode(&mut reader)?;
        let body = Body::take(kind, &mut reader)?;
        if !reader.is_empty() {
            return Err(Malformed("bytes behind a message"));
        }
        Ok(Message { lives, body })
    }
}

impl<'a> Body<'a> {
    /// Appends the message's encoding, with the incarnations that the sender knows.
    pub fn encode(&self, lives: &Lives, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8| {
            out.put_u8(kind);
            lives.encode(out);
        };
        match *self {
            Body::Hello { nonce, round, past } => {
                head(out, HELLO);
                out.put_u64(nonce);
                out.put_u32(round);
                out.put_u8(past as u8);
            }
            Body::Standing { nonce, round, own_nonce, ready, past, admitted, anew } => {
                head(out, STANDING);
                out.put_u64(nonce);
                out.put_u32(round);
                out.put_u64(own_nonce);
                out.put_bool(ready);
                out.put_u8(past as u8);
                out.put_bool(admitted);
                out.put_bytes(anew);
            }
            Body::Fetch { nonce, transfer, next } => {
                head(out, FETCH);
                out.put_u64(nonce);
                out.put_u64(transfer);
                out.put_u32(next);
            }
            Body::SnapshotChunk { nonce, transfer, index, last, bounds, entries } => {
                head(out, SNAPSHOT_CHUNK);
                out.put_u64(nonce);
                out.put_u64(transfer);
                out.put_u32(index);
                out.put_bool(last);
                bounds.encode(out);
                out.put_bytes(entries);
            }
            Body::Compare { walk, part, asks, tags } => {
                head(out, COMPARE);
                out.put_u64(walk);
                out.put_u32(part);
                out.put_bool(asks);
                out.put_bytes(tags.0);
            }
            Body::Same { walk } => {
                head(out, SAME);
                out.put_u64(walk);
            }
            Body::Differ { generation, wanted, entries } => {
                head(out, DIFFER);
                out.put_u64(generation);
                out.put_bytes(wanted.0);
                out.put_bytes(entries.0);
            }
            Body::Repair { generation, entries } => {
                head(out, REPAIR);
                out.put_u64(generation);
                out.put_bytes(entries.0);
            }
            Body::Collect { round, step, generation, tombstones } => {
                head(out, COLLECT);
                out.put_u64(round);
                out.put_u8(step as u8);
                out.put_u64(generation);
                out.put_bytes(tombstones.0);
            }
            Body::Collected { round, step, generation, held } => {
                head(out, COLLECTED);
                out.put_u64(round);
                out.put_u8(step as u8);
                out.put_u64(generation);
                out.put_bytes(held);
            }
        }
    }

    fn take(kind: u8, reader: &mut Reader<'a>) -> Result<Body<'a>, Malformed> {
        Ok(match kind {
            HELLO => Body::Hello { nonce: reader.u64()?, round: reader.u32()?, past: take_past(reader)? },
            STANDING => Body::Standing {
                nonce: reader.u64()?,
                round: reader.u32()?,
                own_nonce: reader.u64()?,
                ready: reader.bool()?,
                past: take_past(reader)?,
                admitted: reader.bool()?,
                anew: reader.bytes()?,
            },
            FETCH => Body::Fetch { nonce: reader.u64()?, transfer: reader.u64()?, next: reader.u32()? },
            SNAPSHOT_CHUNK => Body::SnapshotChunk {
                nonce: reader.u64()?,
                transfer: reader.u64()?,
                index: reader.u32()?,
                last: reader.bool()?,
                bounds: Bounds::decode(reader)?,
                entries: reader.bytes()?,
            },
            COMPARE => Body::Compare {
                walk: reader.u64()?,
                part: reader.u32()?,
                asks: reader.bool()?,
                tags: Tags::take(reader)?,
            },
            SAME => Body::Same { walk: reader.u64()? },
            DIFFER => Body::Differ {
                generation: take_generation(reader)?,
                wanted: Tags::take(reader)?,
                entries: Entries::take(reader)?,
            },
            REPAIR => Body::Repair { generation: take_generation(reader)?, entries: Entries::take(reader)? },
            COLLECT => Body::Collect {
                round: reader.u64()?,
                step: take_step(reader)?,
                generation: take_generation(reader)?,
                tombstones: Tags::take(reader)?,
            },
            COLLECTED => Body::Collected {
                round: reader.u64()?,
                step: take_step(reader)?,
                generation: take_generation(reader)?,
                held: reader.bytes()?,
            },
            _ => return Err(Malformed("unknown kind of message")),
        })
    }
}

fn take_past(reader: &mut Reader<'_>) -> Result<Past, Malformed> {
    let pasts = [Past::Forgotten, Past::None, Past::GivenUp];
    pasts.get(usize::from(reader.u8()?)).copied().ok_or(Malformed("unknown past of an incarnation"))
}

fn take_step(reader: &mut Reader<'_>) -> Result<Step, Malformed> {
    let steps = [Step::Hold, Step::Advance, Step::Refuse, Step::Forget];
    steps.get(reader.u8()? as usize).copied().ok_or(Malformed("unknown step of a collection"))
}

/// Decodes a key from a message.
///
/// # Errors
/// [`Malformed`] when the bytes end early or the key is too long.
#[inline]
pub fn take_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let key = reader.bytes()?;
    if key.len() > KEY_BYTES_MAX { Err(Malformed("a key is too long")) } else { Ok(key) }
}

/// Decodes a deadline and a value from a message, after the tag.
///
/// # Errors
/// [`Malformed`] when the bytes end early or are not a register's.
#[inline]
pub fn take_register<'a>(version: Version, reader: &mut Reader<'a>) -> Result<Register<'a>, Malformed> {
    let (deadline, value): (UnixMs, &[u8]) = (reader.u64()?, reader.bytes()?);
    let register = Register { version, deadline, value };
    if value.len() > VALUE_BYTES_MAX_CEILING {
        return Err(Malformed("a value is too long"));
    }
    if register.is_deleted() && !value.is_empty() {
        return Err(Malformed("a tombstone with a value"));
    }
    Ok(register)
}

/// Keys with their tags, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags<'a>(&'a [u8]);

impl<'a> Tags<'a> {
    /// Wraps what [`Tags::append`] has built.
    pub fn built(bytes: &'a [u8]) -> Tags<'a> {
        Tags(bytes)
    }

    /// Appends one to the bytes of others.
    pub fn append(out: &mut Vec<u8>, key: &[u8], tag: Tag) {
        out.put_u64(tag.version());
        out.put_bytes(key);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Tags<'a>, Malformed> {
        let tags = Tags(reader.bytes()?);
        let mut rest = Reader::new(tags.0);
        while !rest.is_empty() {
            Tags::next(&mut rest)?;
        }
        Ok(tags)
    }

    fn next(reader: &mut Reader<'a>) -> Result<(&'a [u8], Tag), Malformed> {
        let tag = Tag::decode(reader)?;
        Ok((take_key(reader)?, tag))
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys with their tags, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Tag)> + use<'a> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || Tags::next(&mut reader).ok())
    }
}

/// Keys with their registers, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// Wraps what [`Entries::append`] has built.
    pub fn built(bytes: &'a [u8]) -> Entries<'a> {
        Entries(bytes)
    }

    /// Appends one to the bytes of others.
    pub fn append(out: &mut Vec<u8>, key: &[u8], register: Register<'_>) {
        out.put_u64(register.version);
        out.put_bytes(key);
        out.put_u64(register.deadline);
        out.put_bytes(register.value);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Entries<'a>, Malformed> {
        let entries = Entries(reader.bytes()?);
        let mut rest = Reader::new(entries.0);
        while !rest.is_empty() {
            Entries::next(&mut rest)?;
        }
        Ok(entries)
    }

    fn next(reader: &mut Reader<'a>) -> Result<(&'a [u8], Register<'a>), Malformed> {
        let tag = Tag::decode(reader)?;
        let key = take_key(reader)?;
        Ok((key, take_register(tag.version(), reader)?))
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys with their registers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Register<'a>)> + use<'a> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || Entries::next(&mut reader).ok())
    }
}
