//! Fragments: a replica's parts of values that are too large for the log. See [`crate::coded`].
//!
//! They are kept in this replica's records like everything else, so they become durable with the rest, and a checkpoint
//! holds them. But they are this replica's own: a snapshot for another replica does not hold them, and that replica
//! rebuilds what it lacks.

use super::Replica;
use super::applied::Applied;
use super::group::Group;
use super::log::SharedLog;
use super::options::Settings;
use super::record::Change;
use crate::coded::{Fragment, Fragments, HeldPiece, Kept, KeptPiece, Message, Piece, Refusal, number_of};
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient};
use crate::planted::Fault;
use kv::{Reference, ValueId};

/// The maximum number of pieces that one request returns.
const FETCHED_MAX: u32 = 16;

impl Fragments for Replica {
    fn keep_piece(&mut self, now: Now, from: NodeId, piece: KeptPiece, effects: &mut Effects) {
        if !self.links.is_started() {
            // It will be a member, and does not know its group yet.
            let refused = Message::Refused { id: piece.piece().reference.id, why: Refusal::NoMember };
            return send(from, 0, refused, effects);
        }
        let state = (&self.settings, self.members.group(), &self.log);
        self.applied.take_piece(now, from, piece, state, effects);
    }

    fn forget_value(&mut self, from: NodeId, id: ValueId) {
        if self.links.is_started() && from == id.coordinator.node {
            self.applied.forget_fragment(id);
        }
    }

    fn take_rebuilt(&mut self, now: Now, piece: KeptPiece) {
        let Piece { reference, number, .. } = piece.piece();
        if self.applied.table().reference(reference.id) != Some(reference) {
            return; // The value has been overwritten since the piece was made.
        }
        assert_eq!(number_of(self.settings.id), Some(number), "it was made for this replica");
        if self.applied.keep(&piece, now.monotonic_us) == Kept::New {
            self.applied.record_piece(piece, &self.log);
        }
    }

    fn pieces(&self, id: ValueId, stripe: u32, count: u32) -> Vec<HeldPiece> {
        let mixed = self.settings.options.planted.has(Fault::FragmentsMixed);
        let held = match self.applied.fragments().get(id).filter(|fragment| fragment.is_whole()) {
            None if mixed => self.applied.fragments().any_whole(),
            held => held,
        };
        let Some(fragment) = held else { return Vec::new() };
        let stripes = stripe..stripe.saturating_add(count.min(FETCHED_MAX));
        let held = stripes.map_while(|stripe| fragment.piece(stripe));
        held.map(|held| if mixed { held.of_another(id) } else { held }).collect()
    }

    fn lose_piece(&mut self, now: Now, name: &Reference) {
        self.applied.lose_piece(name, now.monotonic_us);
    }

    fn stored_len(&self) -> usize {
        self.applied.fragments().stored().len()
    }

    fn stored_name(&self, place: usize) -> Option<Reference> {
        self.applied.fragments().stored().iter().nth(place).copied()
    }

    fn stores(&self, name: &Reference) -> bool {
        self.applied.fragments().stored().contains(name)
    }

    fn fragment(&self, id: ValueId) -> Option<&Fragment> {
        self.applied.fragments().get(id)
    }

    fn fragments_kept(&self) -> (usize, usize) {
        (self.applied.fragments().len(), self.applied.fragments().memory_bytes())
    }

    fn fragments_lacking(&self) -> usize {
        self.applied.fragments().lacking_len()
    }

    fn lacking_report(&self) -> Message<'static> {
        let holds_beginning = self.applied.index() as u64 >= self.members.group().begins;
        let values = self.applied.fragments().lacking_len() as u32;
        Message::Lacks { membership: self.members.group().id, holds_beginning, values }
    }

    fn has_fragments(&self) -> bool {
        !self.applied.fragments().is_empty() || self.applied.fragments().lacking_len() > 0
    }

    fn to_be_rebuilt(
        &self,
        now: Now,
        age_ms: u64,
        values_max: usize,
        is_wanted: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Reference> {
        let Some(before_us) = now.monotonic_us.checked_sub(age_ms * 1000) else { return Vec::new() };
        let ids =
            self.applied.fragments().lacking_since(before_us).filter(|id| is_wanted(*id)).take(values_max);
        ids.filter_map(|id| self.applied.table().reference(id)).collect()
    }

    fn to_be_abandoned(&self, now: Now, age_ms: u64) -> Vec<ValueId> {
        let Some(before_us) = now.monotonic_us.checked_sub(age_ms * 1000) else { return Vec::new() };
        self.applied.fragments().loose_since(before_us).collect()
    }
}

impl Applied {
    /// A coordinator has sent a piece to keep. Answers when it is durable, or why it is refused.
    fn take_piece(
        &mut self,
        now: Now,
        from: NodeId,
        kept: KeptPiece,
        (settings, group, log): (&Settings, &Group, &SharedLog),
        effects: &mut Effects,
    ) {
        let piece = kept.piece();
        let (id, stripe) = (piece.reference.id, piece.stripe);
        let refuse = |why: Refusal, effects: &mut Effects| {
            send(from, 0, Message::Refused { id, why }, effects);
        };
        if !group.contains(settings.id) {
            return refuse(Refusal::NoMember, effects);
        }
        let is_fit = id.coordinator.node == from && number_of(settings.id) == Some(piece.number);
        // A piece that this node has just made has not travelled, so its checksum need not be verified.
        if !is_fit || from != settings.id && !piece.is_intact() {
            return refuse(Refusal::Unfit, effects);
        }
        if self.table().is_abandoned(id) && self.table().reference(id).is_none() {
            return refuse(Refusal::Abandoned, effects);
        }
        let piece_record = match self.keep(&kept, now.monotonic_us) {
            Kept::New => self.record_piece(kept, log),
            Kept::Known => 0,
            Kept::Unfit => return refuse(Refusal::Unfit, effects),
        };
        if !self.fragments().get(id).is_some_and(Fragment::is_whole) {
            send(from, piece_record, Message::Taken { id, stripe }, effects);
        }
        if let Some(record) = self.fragments().safe_behind(id) {
            let sent_early = settings.options.planted.has(Fault::FragmentAcknowledgedBeforeDurable);
            let after_record = if sent_early { 0 } else { record };
            let (membership, members) = (group.id, group.members.len() as u16);
            send(from, after_record, Message::Kept { id, membership, members }, effects);
        }
    }

    /// Records a piece that is kept. Returns the record.
    fn record_piece(&mut self, kept: KeptPiece, log: &SharedLog) -> u64 {
        let id = kept.piece().reference.id;
        let record = log.borrow_mut().record(vec![Change::Fragment(kept)]);
        self.note_piece_recorded(id, record);
        record
    }
}

fn send(to: NodeId, after_record: u64, message: Message<'_>, effects: &mut Effects) {
    let bytes = effects.encode(|out| {
        message.encode(out);
        None
    });
    effects.messages.push(Outgoing { to, bytes, after_record, recipient: Recipient::Coordinator });
}
