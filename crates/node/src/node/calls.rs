//! What components want of the node: their calls, and a new cluster map.

use super::Node;
use super::submitting::decoded;
use crate::collections::slab::Handle;
use crate::connections;
use crate::context::routing::MOVED;
use crate::context::{Call, CommandPart, Submitted, peers};
use crate::maintenance::mapping::{self, Part};
use crate::messages::envelope::DecodedRequest;
use crate::requests::completing::{Lacking, Next};
use crate::session::origin::Origin;
use cluster::control::{self, CONTROL_GROUP, ClusterMap};
use kv::Command;
use kv::codec::Malformed;
use protocol::coded::{KeptPiece, Message, Refusal};
use protocol::planted::Fault;
use protocol::{Input, NodeId, Request, Result as Outcome, Ticket};
use std::rc::Rc;

impl Node {
    /// Carries out the calls of components, and the calls that result from these. Every input of the node ends with
    /// this.
    #[inline]
    pub(super) fn carry_out_calls(&mut self) {
        if !self.cx.has_no_calls() {
            self.carry_out_each_call();
        }
    }

    #[inline(never)]
    fn carry_out_each_call(&mut self) {
        while let Some(call) = self.cx.next_call() {
            match call {
                // The keyspace may have been dropped since.
                Call::Submit { group, asked, .. } if self.cx.groups.get(group).is_none() => {
                    self.complete_with_error(asked.ticket, group, Outcome::Refused, MOVED);
                }
                Call::Submit { group, asked, request } => {
                    let decoded = match &request {
                        Submitted::Encoded(request) => decoded(request),
                        Submitted::Part(CommandPart { id, offset, length, bytes }) => {
                            let (id, offset, length) = (*id, *offset, *length);
                            DecodedRequest::Command(Command::LongPart { id, offset, length, bytes })
                        }
                    };
                    if self.has_moved(asked.ticket, group, &decoded.request()) {
                        self.complete_with_error(asked.ticket, group, Outcome::Refused, MOVED);
                        continue;
                    }
                    self.submit(group, asked, &decoded.request());
                }
                Call::Complete { ticket, group, result, reply } => {
                    self.complete_with(ticket, group, result, reply);
                }
                Call::CompleteLong { ticket, group, result, reply } => {
                    self.complete_long(ticket, group, result, reply);
                }
                Call::Change { client: Some((client, answer)), change } => {
                    self.cluster.change_for(&mut self.cx, client, answer, &change);
                }
                Call::Change { client: None, change } => self.cluster.change(&mut self.cx, &change),
                Call::CreateDatabase { number, keyspace } => {
                    self.cluster.create_database(&mut self.cx, number, *keyspace);
                }
                Call::DatabaseRefused { number, why } => self.held.refuse_database(number, &why),
                Call::NoteDeniedScript { client, error } => {
                    connections::note_denied_script(&mut self.cx, client, &error);
                }
                Call::FollowMap(map) => self.follow_map(&map),
                Call::RetireAll => self.for_each_group(Node::retire),
                Call::ExtendLease { until_us } => {
                    self.cx.groups.extend_leases(until_us);
                    self.for_each_active(|node, id| node.step(id, Input::Lease { until_us }));
                }
                Call::GiveValue { group, reference, value } => {
                    let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
                    if let Some(values) = replica.and_then(|replica| replica.spilled_values_mut()) {
                        values.take_value(self.cx.now, reference, value.as_deref(), self.unsettled.effects());
                        self.settle(group);
                    }
                }
                Call::TakeValue { group, reference, value } => {
                    let Node { cx, completing, coding, .. } = self;
                    completing.take_value(cx, coding, group, reference, value.as_ref());
                }
                Call::RefuseValue { group, reference } => {
                    self.completing.refuse_peers(&mut self.cx, group, reference);
                }
                Call::FetchValue { number, to, group, reference } => {
                    self.forwarding.ask_for_value(&mut self.cx, to, number, group, reference);
                }
                Call::Supply(handle) => self.supply(handle),
                Call::KeepPiece { group, piece } => {
                    self.keep_piece(group, self.cx.configuration.node, piece);
                }
                Call::Settle { group } if self.cx.groups.get(group).is_none() => {}
                Call::Settle { group } => self.settle(group),
                Call::ReadPiece { group, to, piece } => {
                    let Node { cx, completing, values, coding, .. } = self;
                    completing.read_piece(cx, (values, coding), group, to, piece);
                }
                Call::Fragments { group, message } => {
                    let own = self.cx.configuration.node;
                    let read = self.fragment_message(group, own, &message);
                    assert_eq!(read, Ok(()), "this node writes what can be read");
                }
                Call::Attempt { number } => self.attempt(number),
                Call::Attempted { number, result, reply } => {
                    self.waits.attempted(&mut self.cx, number, result, reply);
                }
                Call::EndSession { client, wait, subscriptions, tracks } => {
                    if tracks {
                        self.following.end_all(&mut self.cx, client);
                    }
                    if let Some(subscriptions) = subscriptions {
                        self.channels.forget(client, &subscriptions);
                    }
                    if let Some(number) = wait {
                        self.waits.leave(&mut self.cx, number);
                    }
                }
            }
        }
    }

    /// Whether the keys of a client's command, which may have waited for values or fragments, are in another group by now.
    fn has_moved(&self, ticket: Ticket, group: u16, request: &Request<'_>) -> bool {
        let Request::Command(command) = request else { return false };
        let is_new = matches!(
            Origin::of(ticket),
            Origin::Session(_) | Origin::Peer(..) | Origin::Part(_) | Origin::Coding(_) | Origin::TwoPhase
        );
        is_new && !self.cx.belongs(group, command)
    }

    /// Continues a request that lacked values.
    fn supply(&mut self, handle: Handle) {
        let Some(lacking) = self.completing.take(handle) else { return };
        let Lacking { ticket, group, result, .. } = lacking;
        let mut scratch = Vec::new();
        match lacking.next(&self.cx, &mut scratch) {
            Next::Value(value) => self.complete_with_value(ticket, group, result, value),
            Next::Reply(replies) => self.complete_with(ticket, group, result, replies),
            Next::Submit(asked, command) if self.has_moved(ticket, group, &Request::Command(&command)) => {
                self.complete_with_error(asked.ticket, group, Outcome::Refused, MOVED);
            }
            Next::Submit(asked, command) => self.submit(group, asked, &Request::Command(&command)),
            Next::Refused(error) => self.complete_with_error(ticket, group, Outcome::Refused, error),
        }
    }

    /// Takes a message about fragments from a node, which may be this one. It is for this node's replica, or for the
    /// coordinator here.
    ///
    /// # Errors
    /// [`Malformed`] when it is not such a message.
    pub(super) fn fragment_message(
        &mut self,
        group: u16,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        match Message::decode(bytes)? {
            Message::Keep(piece) => self.keep_piece(group, from, piece.into()),
            Message::Forget { id } => {
                let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
                if let Some(fragments) = replica.and_then(|replica| replica.fragments_mut()) {
                    fragments.forget_value(from, id);
                    self.settle(group);
                }
            }
            message => self.coding.take(&mut self.cx, group, from, message),
        }
        Ok(())
    }

    /// Gives this node's replica a piece of its fragment, or sends the coordinator the reason why it is not kept.
    fn keep_piece(&mut self, group: u16, from: NodeId, piece: KeptPiece) {
        let id = piece.piece().reference.id;
        let replica = self.cx.groups.get_mut(group).and_then(|group| group.replica.as_mut());
        let why = match replica.and_then(|replica| replica.fragments_mut()) {
            // A piece that cannot be written would wait in memory.
            _ if self.cx.room.is_short() => Refusal::NoRoom,
            // The coordinator need not wait for this node.
            None => Refusal::NoMember,
            Some(fragments) => {
                fragments.keep_piece(self.cx.now, from, piece, self.unsettled.effects());
                self.coding.note_sent(&self.cx, from);
                return self.settle(group);
            }
        };
        self.coding.send(&mut self.cx, group, from, &Message::Refused { id, why });
    }

    /// Follows a new cluster map.
    pub(super) fn follow_map(&mut self, map: &Rc<ClusterMap>) {
        let Node { cx, coding, values, quarantine, .. } = self;
        let moves = mapping::moves_keys(&cx.map, map);
        let dropped = mapping::adopt(cx, coding, values, map);
        for group in cx.groups.ids().to_vec() {
            if let Some(replica) = &mut cx.groups[group].replica {
                let waits = replica.leads_by_old_map();
                replica.set_map_version(map.version, moves);
                if waits {
                    cx.groups.touch(group);
                }
            }
        }
        quarantine.follow(cx, map);
        // At once: the drop counts as made when a majority of the members take no part in the group any more.
        if !self.cx.configuration.planted.has(Fault::DroppedGroupGoesOn) {
            dropped.into_iter().for_each(|id| self.retire(id));
        }
        if self.cx.admission.is_admitted() {
            for (id, entry) in map.groups.iter().filter(|(id, _)| **id != CONTROL_GROUP) {
                match mapping::part_in(&self.cx, map, *id, entry) {
                    Part::Stays => {}
                    Part::Holds => self.take_part(map, *id, entry),
                    Part::Ends => {
                        let was_recorded = std::mem::take(&mut self.cx.groups[*id].is_recorded);
                        self.retire(*id);
                        if was_recorded {
                            self.cx.journal.forget(*id);
                        }
                    }
                }
            }
        }
        self.cx.map = Rc::clone(map);
        if connections::follow_users(&mut self.cx) {
            self.end_denied_waits();
        }
        self.clock.follow_map(&mut self.cx);
        for entry in map.keyspaces.values().filter(|entry| entry.floor > 0) {
            for id in &entry.groups {
                if let Some(replica) = &mut self.cx.groups[*id].replica {
                    replica.set_floor(self.cx.now, entry.floor, self.unsettled.effects());
                    self.settle(*id);
                }
            }
        }
    }

    /// Ends the waits of clients whose users may no longer do what they wait for. What they were served goes back.
    fn end_denied_waits(&mut self) {
        for (number, client, found, request) in self.waits.of_limited_users(&self.cx) {
            if let Some(error) = connections::denies(&mut self.cx, client, found, request.as_arguments()) {
                self.waits.give_up(&mut self.cx, number, error.as_bytes());
            }
        }
    }

    /// Holds a replica of a group, configured with the group's members.
    fn take_part(&mut self, map: &ClusterMap, id: u16, entry: &control::Group) {
        if self.cx.groups[id].replica.is_none() {
            let Node { cx, quarantine, following, .. } = self;
            let mut replica = mapping::make_replica(cx, quarantine, id, entry);
            following.attach(&mut replica);
            replica.set_map_version(map.version, false);
            let group = &mut cx.groups[id];
            group.replica = Some(replica);
            group.is_recorded = cx.journal.describe(id, &mut group.tail, &group.keyspace);
            quarantine.resume(cx, id, map);
        }
        let before = self.cx.groups[id].configured.clone();
        let Some(configuration) = mapping::configuration_for(&mut self.cx, map, id, entry) else { return };
        self.step(id, Input::Configure(&configuration));
        let until_us = self.cluster.control().lease_until_us();
        self.step(id, Input::Lease { until_us });
        self.note_locks(id);
        // A follower takes a link that comes up for a reason to join its leader again.
        if before.is_some_and(|it| it.epoch == configuration.epoch && it.members == configuration.members) {
            return;
        }
        for peer in self.cx.peers.ids() {
            if self.cx.peers.is_up(peer) {
                self.step(id, Input::Link { peer, up: true });
                peers::set_reached(&mut self.cx, id, peer);
            }
        }
    }

    /// Drops a replica. All of its requests get outcomes with that.
    fn retire(&mut self, id: u16) {
        let Node { cx, values, unsettled, .. } = self;
        if mapping::retire(cx, values, unsettled.effects(), id) {
            self.settle(id);
        }
    }

    /// Removes groups whose keyspace was dropped a while ago.
    pub(super) fn forget_dismissed(&mut self) {
        while let Some(id) = self.cx.groups.next_dismissed(self.cx.now.monotonic_us) {
            self.retire(id);
            self.forwarding.end_group(&mut self.cx, id);
            self.cx.groups.remove_dismissed(id);
            self.cx.journal.forget(id);
        }
    }
}
