//! Fragments: what a replica keeps of values that are too large for the log. See [`crate::coded`].
//!
//! They are records of this replica as all else is, so they become durable with the rest, and a checkpoint holds them; but
//! they are its own, and a copy for another replica does not: that one rebuilds what it lacks.

use super::Replica;
use super::record::{Change, put_fragment};
use crate::coded::{Fragment, Fragments, Kept, KeptPiece, Message, Piece, Refusal, number_of};
use crate::contract::{Effects, NodeId, Now, Outgoing, Recipient};
use crate::planted::Fault;
use kv::table::CodedChanges;
use kv::{Command, Reference, ValueId};

/// Pieces that one question brings, at most.
const FETCHED_MAX: u32 = 16;

impl Fragments for Replica {
    fn about_fragments(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        if !self.is_started {
            if let Message::Keep(piece) = message {
                // It is to be a member, and does not know yet of what group.
                let refused = Message::Refused { id: piece.reference.id, why: Refusal::NoMember };
                tell(from, 0, refused, effects);
            }
            return;
        }
        match message {
            Message::Keep(piece) => self.keep(now, from, &piece, effects),
            Message::Forget { id } if from == id.coordinator.node => self.fragments.forget(id),
            // Meant for its node.
            _ => {}
        }
    }

    fn take_rebuilt(&mut self, now: Now, reference: Reference, stripe: u32, bytes: &[u8]) {
        let Some(number) = number_of(self.id) else { return };
        if self.table.reference(reference.id) != Some(reference) {
            return; // It was overwritten meanwhile.
        }
        let piece = Piece::new(reference, number, stripe, bytes);
        if self.fragments.keep(&piece, &self.table, now.monotonic_us) == Kept::New {
            self.record_piece(&piece);
        }
    }

    fn pieces(&self, id: ValueId, stripe: u32, count: u32) -> Vec<KeptPiece> {
        let mixed = self.options.planted.has(Fault::FragmentsMixed);
        let held = match self.fragments.get(id).filter(|fragment| fragment.is_whole()) {
            None if mixed => self.fragments.any_whole(),
            held => held,
        };
        let Some(fragment) = held else { return Vec::new() };
        let stripes = stripe..stripe.saturating_add(count.min(FETCHED_MAX));
        let kept = stripes.map_while(|stripe| fragment.kept_piece(stripe));
        kept.map(|kept| if mixed { kept.of_another(id) } else { kept }).collect()
    }

    fn fragment(&self, id: ValueId) -> Option<&Fragment> {
        self.fragments.get(id)
    }

    fn fragments_kept(&self) -> (usize, usize) {
        (self.fragments.len(), self.fragments.bytes())
    }

    fn fragments_lacking(&self) -> usize {
        self.fragments.lacking_len()
    }

    fn lacking_report(&self) -> Message<'static> {
        let holds_beginning = self.applied as u64 >= self.group.begins;
        let values = self.fragments.lacking_len() as u32;
        Message::Lacks { membership: self.group.id, holds_beginning, values }
    }

    fn has_fragments(&self) -> bool {
        !self.fragments.is_empty() || self.fragments.lacking_len() > 0
    }

    fn to_be_rebuilt(
        &self,
        now: Now,
        age_ms: u64,
        values_max: usize,
        is_wanted: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Reference> {
        let Some(before_us) = now.monotonic_us.checked_sub(age_ms * 1000) else { return Vec::new() };
        let ids = self.fragments.lacking_since(before_us).filter(|id| is_wanted(*id)).take(values_max);
        ids.filter_map(|id| self.table.reference(id)).collect()
    }

    fn to_be_abandoned(&self, now: Now, age_ms: u64) -> Vec<ValueId> {
        let Some(before_us) = now.monotonic_us.checked_sub(age_ms * 1000) else { return Vec::new() };
        self.fragments.loose_since(before_us).collect()
    }
}

impl Replica {
    fn keep(&mut self, now: Now, from: NodeId, piece: &Piece<'_>, effects: &mut Effects) {
        let id = piece.reference.id;
        let refuse = |why: Refusal, effects: &mut Effects| {
            tell(from, 0, Message::Refused { id, why }, effects);
        };
        if !self.group.contains(self.id) {
            return refuse(Refusal::NoMember, effects);
        }
        let is_fit = id.coordinator.node == from && number_of(self.id) == Some(piece.number);
        // What this node has just made has been nowhere.
        if !is_fit || from != self.id && !piece.is_intact() {
            return refuse(Refusal::Unfit, effects);
        }
        if self.table.is_abandoned(id) && self.table.reference(id).is_none() {
            return refuse(Refusal::Abandoned, effects);
        }
        let piece_record = match self.fragments.keep(piece, &self.table, now.monotonic_us) {
            Kept::New => self.record_piece(piece),
            Kept::Known => 0,
            Kept::Unfit => return refuse(Refusal::Unfit, effects),
        };
        if !self.fragments.get(id).is_some_and(Fragment::is_whole) {
            tell(from, piece_record, Message::Taken { id, stripe: piece.stripe }, effects);
        }
        if let Some(record) = self.fragments.safe_behind(id) {
            let told_early = self.options.planted.has(Fault::FragmentToldBeforeDurable);
            let after_record = if told_early { 0 } else { record };
            let (membership, members) = (self.group.id, self.group.members.len() as u16);
            tell(from, after_record, Message::Kept { id, membership, members }, effects);
        }
    }

    /// Records a piece. Tells the record.
    fn record_piece(&mut self, piece: &Piece<'_>) -> u64 {
        let id = piece.reference.id;
        let kept = self.fragments.kept_piece(id, piece.stripe).unwrap_or_else(|| (*piece).into());
        let record = self.log.borrow_mut().record(vec![Change::Fragment(kept)]);
        self.fragments.recorded(id, record);
        record
    }

    /// Follows what was applied.
    pub(super) fn follow_values(&mut self) {
        if let Some(changes) = self.table.take_coded_changes() {
            let now_us = self.log.borrow().now_us;
            self.fragments.follow(&changes, &self.table, now_us);
        }
    }

    /// A planted fault: values are given up, so their fragments go, and the table does not know. Nobody waits for the
    /// outcome of that.
    pub(super) fn forgets_abandoned(&mut self, command: &Command<'_>) -> bool {
        let Command::Abandon { coordinator, counter } = *command else { return false };
        let abandoned = [(coordinator, counter)].into();
        let changes = CodedChanges { abandoned, ..CodedChanges::default() };
        self.fragments.follow(&changes, &self.table, 0);
        true
    }

    /// The table is another one from now on, of this membership.
    pub(super) fn match_fragments(&mut self, membership: u32) {
        self.table.take_coded_changes();
        self.table.set_membership(membership);
        let now_us = self.log.borrow().now_us;
        self.fragments.match_with(&self.table, now_us);
    }

    /// Lets go of fragments that no reader can be after any more.
    pub(super) fn let_fragments_go(&mut self, now: Now) {
        let before_us = now.monotonic_us.saturating_sub(self.timing.fragment_grace_ms * 1000);
        self.fragments.let_go(before_us, self.timing.fragment_grace_bytes);
    }

    // Records.

    pub(super) fn replay_piece(&mut self, piece: &Piece<'_>) {
        let now_us = self.log.borrow().now_us;
        self.fragments.keep(piece, &self.table, now_us);
    }

    /// Appends pieces to a record of a checkpoint, from a place on, about so many bytes. Tells the place for the next, if
    /// there is more.
    pub(super) fn record_fragments(
        &self,
        place: &mut FragmentsLeft,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let enough = out.len() + bytes_max;
        while let Some(id) = place.ids.last() {
            let from = place.stripe;
            let pieces = self.fragments.get(*id).into_iter().flat_map(|fragment| fragment.pieces_from(from));
            for piece in pieces {
                if out.len() >= enough {
                    return true;
                }
                put_fragment(out, &piece);
                place.stripe = piece.stripe + 1;
            }
            place.ids.pop();
            place.stripe = 0;
        }
        false
    }
}

/// The fragments that a checkpoint has not recorded yet.
#[derive(Debug, Default)]
pub(super) struct FragmentsLeft {
    pub(super) ids: Vec<ValueId>,
    /// Of the last one: the stripe to go on with.
    pub(super) stripe: u32,
}

fn tell(to: NodeId, after_record: u64, message: Message<'_>, effects: &mut Effects) {
    let bytes = effects.encode(|out| {
        message.encode(out);
        None
    });
    effects.messages.push(Outgoing { to, bytes, after_record, recipient: Recipient::Coordinator });
}
