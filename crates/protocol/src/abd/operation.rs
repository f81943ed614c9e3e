//! One read or write of one key, and the table of all operations.

use super::message::OperationId;
use crate::registers::{MemberSet, RequestId, Tag};
use kv::{Register, UnixMs};

/// What is done with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Set,
    Delete,
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The place is free.
    Free,
    /// A majority must report its tags.
    Query,
    /// A majority must come to hold the value.
    Update,
}

/// An operation. Key and value are in one buffer that the next operation in this place reuses.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) phase: Phase,
    pub(super) request: RequestId,
    /// The key's place among the request's keys.
    pub(super) place: u32,
    /// Distinguishes this operation from earlier ones in the same place.
    serial: u32,
    pub(super) generation: u64,
    /// The tag in the operation's queries. Answers are relative to it, so repeated queries keep it.
    pub(super) asked: Tag,
    /// Query: the newest tag among the answers. Update: the tag to be held.
    pub(super) tag: Tag,
    /// The members that have answered the query in their present incarnation.
    pub(super) answered: MemberSet,
    /// The members known to hold `tag`, or something newer, in their present incarnation.
    pub(super) holders: MemberSet,
    /// The members to which the update was sent.
    pub(super) sent: MemberSet,
    /// For a delete, whether the key existed when it began.
    pub(super) was_live: bool,
    pub(super) sent_us: u64,
    pub(super) tries: u32,
    /// The deadline. Read: of the value that will be returned. Set: of the value that will be written. Delete, while it
    /// queries: of the newest value found.
    pub(super) deadline: UnixMs,
    bytes: Vec<u8>,
    key_length: usize,
}

impl Operation {
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_length]
    }

    /// Returns what a read has found, or a write writes.
    #[inline]
    pub(super) fn register(&self) -> Register<'_> {
        let value = &self.bytes[self.key_length..];
        Register { version: self.tag.version(), deadline: self.deadline, value }
    }

    /// Takes a newer value that a read has found.
    pub(super) fn take_value(&mut self, value: &[u8]) {
        self.bytes.truncate(self.key_length);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// All operations, in places that are reused. An answer finds its operation by index.
#[derive(Debug, Default)]
pub(super) struct Operations {
    places: Vec<Operation>,
    free: Vec<u32>,
    serial: u32,
    /// Bytes of keys and values.
    pub(super) bytes: usize,
}

/// An index into the operations.
pub(super) type Place = usize;

impl Operations {
    /// Operation numbers start with one that is unlikely to be used in two incarnations.
    pub(super) fn new(serial: u32) -> Operations {
        Operations { serial, ..Operations::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Begins an operation; the caller fills in the other fields.
    #[inline]
    pub(super) fn begin(
        &mut self,
        kind: Kind,
        (request, place): (RequestId, u32),
        key: &[u8],
        value: &[u8],
    ) -> Place {
        self.serial = self.serial.wrapping_add(1);
        let index = self.free.pop().map_or(self.places.len(), |index| index as usize);
        if index == self.places.len() {
            self.places.push(Operation {
                kind,
                phase: Phase::Free,
                request,
                place,
                serial: 0,
                generation: 0,
                asked: Tag::NONE,
                tag: Tag::NONE,
                answered: MemberSet::EMPTY,
                holders: MemberSet::EMPTY,
                sent: MemberSet::EMPTY,
                was_live: false,
                sent_us: 0,
                tries: 0,
                deadline: 0,
                bytes: Vec::new(),
                key_length: 0,
            });
        }
        let operation = &mut self.places[index];
        assert!(
            operation.phase == Phase::Free && operation.bytes.is_empty(),
            "an operation begins in another's place"
        );
        (operation.kind, operation.phase) = (kind, Phase::Query);
        (operation.request, operation.place, operation.serial) = (request, place, self.serial);
        (operation.sent, operation.was_live, operation.tries) = (MemberSet::EMPTY, false, 0);
        operation.bytes.extend_from_slice(key);
        operation.bytes.extend_from_slice(value);
        operation.key_length = key.len();
        self.bytes += key.len() + value.len();
        index
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> &Operation {
        &self.places[place]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> &mut Operation {
        &mut self.places[place]
    }

    /// Returns the number of the operation in messages.
    #[inline]
    pub(super) fn id(&self, place: Place) -> OperationId {
        u64::from(self.places[place].serial) << 32 | place as u64
    }

    /// Returns the place of an operation that is still under way.
    #[inline]
    pub(super) fn find(&self, id: OperationId) -> Option<Place> {
        let place = id as u32 as usize;
        let operation = self.places.get(place)?;
        (operation.phase != Phase::Free && operation.serial == (id >> 32) as u32).then_some(place)
    }

    /// Returns the places of all operations under way.
    pub(super) fn open(&self) -> impl Iterator<Item = Place> + use<> {
        let is_open = |operation: &Operation| operation.phase != Phase::Free;
        let open: Vec<Place> = (0..self.places.len()).filter(|place| is_open(&self.places[*place])).collect();
        open.into_iter()
    }

    /// Takes over a newer value for a read.
    pub(super) fn adopt(&mut self, place: Place, register: Register<'_>) {
        let operation = &mut self.places[place];
        let before = operation.bytes();
        operation.take_value(register.value);
        operation.deadline = register.deadline;
        self.bytes = self.bytes - before + operation.bytes();
    }

    #[inline]
    pub(super) fn end(&mut self, place: Place) {
        const KEPT_BYTES: usize = 4096;
        let operation = &mut self.places[place];
        assert_ne!(operation.phase, Phase::Free, "an operation ends twice");
        self.bytes -= operation.bytes();
        operation.phase = Phase::Free;
        operation.bytes.clear();
        operation.bytes.shrink_to(KEPT_BYTES);
        self.free.push(place as u32);
    }
}
