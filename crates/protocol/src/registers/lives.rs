//! The newest incarnation of each member, as far as this replica knows. (The code calls an incarnation a life.)
//!
//! A member that restarts has forgotten what it acknowledged. So an answer counts only as long as its sender has not
//! begun another incarnation, and every message carries the incarnations that its sender knows. A coordinator that learns
//! of a newer incarnation drops the answers of the earlier one ([`Lives::take_renewed`]).

use super::members::{Group, MEMBERS_MAX, MemberSet};
use super::tag::Incarnation;
use kv::codec::{Malformed, Reader, Writer};

/// The newest incarnation known of each member.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    own: usize,
    known: Vec<Incarnation>,
    /// The number that identifies the incarnation, as the member itself reported it; 0 when only others reported
    /// the incarnation.
    nonces: Vec<u64>,
    renewed: MemberSet,
    /// Something has changed since [`Lives::take_changed`] was last called.
    changed: bool,
}

/// How a message relates to the newest incarnation known of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// It is from that incarnation.
    Current,
    /// It is from an earlier incarnation: ignore it.
    Earlier,
    /// It names other members than there are, or a later incarnation of the receiver than the receiver's own.
    Impossible,
}

impl Lives {
    /// Returns the state in which no other member's incarnation is known.
    pub fn new(group: &Group, incarnation: Incarnation, nonce: u64) -> Lives {
        let mut lives = Lives {
            own: group.own(),
            known: vec![0; group.len()],
            nonces: vec![0; group.len()],
            renewed: MemberSet::EMPTY,
            changed: false,
        };
        lives.begin(incarnation, nonce);
        lives
    }

    /// Restores what an earlier incarnation of this member knew of the others.
    pub(super) fn restore(&mut self, known: &[Life]) {
        for (member, life) in known.iter().enumerate().take(self.known.len()) {
            if member != self.own {
                (self.known[member], self.nonces[member]) = (life.incarnation, life.nonce);
            }
        }
    }

    /// Begins this member's own incarnation.
    pub fn begin(&mut self, incarnation: Incarnation, nonce: u64) {
        self.known[self.own] = incarnation;
        self.nonces[self.own] = nonce;
        self.changed = true;
    }

    /// This member's present incarnation.
    #[inline]
    pub fn own(&self) -> Incarnation {
        self.known.get(self.own).copied().unwrap_or_default()
    }

    /// The newest incarnation known of a member; 0 when none is known.
    #[inline]
    pub fn of(&self, member: usize) -> Incarnation {
        self.known[member]
    }

    /// The newest incarnation known of each member.
    pub fn known(&self) -> &[Incarnation] {
        &self.known
    }

    /// Takes a member's report that it begins this incarnation, identified by `nonce`. Returns false when another
    /// incarnation with the same or a later number is known: the member must take a later number.
    pub fn admit(&mut self, member: usize, incarnation: Incarnation, nonce: u64) -> bool {
        self.learn(member, incarnation);
        if self.known[member] > incarnation || ![0, nonce].contains(&self.nonces[member]) {
            return false;
        }
        self.changed |= self.nonces[member] != nonce;
        self.nonces[member] = nonce;
        true
    }

    fn learn(&mut self, member: usize, incarnation: Incarnation) {
        if self.known[member] < incarnation {
            assert_ne!(member, self.own, "only a replica itself begins its incarnations");
            self.known[member] = incarnation;
            self.nonces[member] = 0;
            self.renewed.insert(member);
            self.changed = true;
        }
    }

    /// Learns the incarnations in a message, and returns how the message relates to its sender's newest incarnation.
    #[inline]
    pub fn learn_from(&mut self, from: usize, reported: LivesView<'_>) -> Sender {
        if reported.len() != self.known.len() || reported.of(self.own) > self.own() {
            return Sender::Impossible;
        }
        if reported.of(from) < self.known[from] {
            return Sender::Earlier;
        }
        // The others never know a later incarnation of this replica than it does itself, so there is nothing to learn
        // about its own.
        for member in 0..self.known.len() {
            self.learn(member, reported.of(member));
        }
        Sender::Current
    }

    /// Returns the members whose newer incarnations became known since the last call.
    #[inline]
    pub fn take_renewed(&mut self) -> MemberSet {
        std::mem::take(&mut self.renewed)
    }

    /// True when more is known than at the last call.
    #[inline]
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns everything known, encoded for a record.
    pub(super) fn known_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (incarnation, nonce) in self.known.iter().zip(&self.nonces) {
            bytes.put_u16(*incarnation);
            bytes.put_u64(*nonce);
        }
        bytes
    }

    /// Appends them to a message. The sender's own incarnation is at its own index.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.known.len() as u8);
        self.known.iter().for_each(|incarnation| out.put_u16(*incarnation));
    }
}

/// Incarnations as encoded in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivesView<'a>(&'a [u8]);

impl<'a> LivesView<'a> {
    /// Decodes them from a message.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or there are more than a group can have.
    #[inline]
    pub fn decode(reader: &mut Reader<'a>) -> Result<LivesView<'a>, Malformed> {
        let count = reader.u8()? as usize;
        if count > MEMBERS_MAX {
            return Err(Malformed("more incarnations than a group can have members"));
        }
        Ok(LivesView(reader.take(2 * count)?))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A member's incarnation; 0 beyond the last member.
    #[inline]
    pub fn of(&self, member: usize) -> Incarnation {
        self.0.get(2 * member..2 * member + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// All incarnations in the members' order.
    pub fn iter(&self) -> impl Iterator<Item = Incarnation> {
        let lives = *self;
        (0..lives.len()).map(move |member| lives.of(member))
    }

    /// Appends them to a message unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.len() as u8);
        out.extend_from_slice(self.0);
    }
}

/// A member's incarnation, as a record keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its number.
    pub incarnation: Incarnation,
    /// The number that identifies it; 0 when the member itself has not reported it.
    pub nonce: u64,
}

/// The incarnations of all members, as encoded in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownLives<'a>(&'a [u8]);

impl<'a> KnownLives<'a> {
    const LIFE_BYTES: usize = 10;

    /// Wraps what [`Lives::known_bytes`] returned.
    pub(super) fn of(bytes: &'a [u8]) -> KnownLives<'a> {
        KnownLives(bytes)
    }

    /// Decodes them from a record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes end early or there are more than a group can have.
    pub fn decode(reader: &mut Reader<'a>) -> Result<KnownLives<'a>, Malformed> {
        let count = usize::from(reader.u8()?);
        if count > MEMBERS_MAX {
            return Err(Malformed("more incarnations than a group can have members"));
        }
        Ok(KnownLives(reader.take(Self::LIFE_BYTES * count)?))
    }

    /// Appends them to a record unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8((self.0.len() / Self::LIFE_BYTES) as u8);
        out.extend_from_slice(self.0);
    }

    /// The incarnations in the members' order.
    pub fn iter(&self) -> impl Iterator<Item = Life> + use<'a> {
        let mut reader = Reader::new(self.0);
        let mut next = move || Ok::<_, Malformed>(Life { incarnation: reader.u16()?, nonce: reader.u64()? });
        std::iter::from_fn(move || next().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Configuration;

    fn lives_of(id: u16, incarnation: Incarnation) -> Lives {
        let configuration = Configuration { members: vec![1, 2, 3], ..Configuration::default() };
        Lives::new(&Group::new(id, &configuration).unwrap(), incarnation, 77)
    }

    fn encoded(lives: &Lives) -> Vec<u8> {
        let mut bytes = Vec::new();
        lives.encode(&mut bytes);
        bytes
    }

    #[test]
    fn messages_of_an_earlier_incarnation_are_recognized_and_every_message_spreads_incarnations() {
        let (mut first, mut second) = (lives_of(1, 1), lives_of(2, 1));
        assert!(second.admit(2, 5, 9), "member 3 begins its fifth incarnation");
        let bytes = encoded(&second);
        assert_eq!(
            first.learn_from(1, LivesView::decode(&mut Reader::new(&bytes)).unwrap()),
            Sender::Current
        );
        assert_eq!(first.known(), [1, 1, 5]);
        assert_eq!(first.take_renewed().iter().collect::<Vec<_>>(), [1, 2]);
        assert!(first.take_renewed().is_empty());
        let bytes = encoded(&lives_of(3, 4));
        assert_eq!(
            first.learn_from(2, LivesView::decode(&mut Reader::new(&bytes)).unwrap()),
            Sender::Earlier
        );
        let bytes = encoded(&first);
        let mut other = lives_of(1, 0);
        assert_eq!(
            other.learn_from(0, LivesView::decode(&mut Reader::new(&bytes)).unwrap()),
            Sender::Impossible
        );
    }

    #[test]
    fn an_incarnation_number_that_was_used_before_is_not_admitted() {
        let mut lives = lives_of(1, 1);
        assert!(lives.admit(1, 3, 7));
        assert!(lives.admit(1, 3, 7), "reported again");
        assert!(!lives.admit(1, 3, 8), "another incarnation under the same number");
        assert!(!lives.admit(1, 2, 8));
        assert!(lives.admit(1, 4, 8));
    }
}
