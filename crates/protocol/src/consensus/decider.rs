//! What decides entries: the crate OmniPaxos or, in a group of one, the durable end of the log.

use super::entry::Entry;
use super::group::Group;
use super::log::{Handle, SharedLog};
use super::options::Settings;
use crate::contract::NodeId;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::{BLEMessage, HeartbeatMsg};
use omnipaxos::messages::sequence_paxos::{PaxosMessage, PaxosMsg};
use omnipaxos::storage::{Storage, StorageOp};
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use std::rc::Rc;

/// A message of the crate.
pub(super) type CrateMessage = omnipaxos::messages::Message<Entry>;

/// Decides entries, for a replica with a vote.
pub(super) enum Decider {
    /// In a group of several.
    OmniPaxos(Box<OmniPaxos<Entry, Handle>>),
    /// In a group of one: what is durable is decided. It leads in a ballot of this incarnation.
    Alone { ballot: Ballot },
}

impl std::fmt::Debug for Decider {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Decider::OmniPaxos(_) => "OmniPaxos",
            Decider::Alone { .. } => "Alone",
        })
    }
}

impl Decider {
    /// Starts from what the log holds. After a snapshot has changed the log, it starts again, and messages that the crate was
    /// about to send are forgotten, as after a restart of the replica.
    ///
    /// # Panics
    /// When the configuration is invalid: a node number of 0, or this node is not a member.
    pub(super) fn new(settings: &Settings, group: &Group, is_preferred: bool, log: &SharedLog) -> Decider {
        let (id, members, configuration) = (settings.id, group.nodes(), group.id);
        if members == [id] {
            let ballot = Ballot::with(configuration, log.borrow().promise().n + 1, 0, u64::from(id));
            let took_over = vec![StorageOp::SetPromise(ballot), StorageOp::SetAcceptedRound(ballot)];
            let _ = Handle(Rc::clone(log)).write_atomically(took_over);
            return Decider::Alone { ballot };
        }
        let cluster = ClusterConfig {
            configuration_id: configuration,
            nodes: members.iter().map(|member| u64::from(*member)).collect(),
            flexible_quorum: None,
        };
        let server = ServerConfig {
            pid: u64::from(id),
            // A tick is a round of heartbeats.
            election_tick_timeout: 1,
            resend_message_tick_timeout: settings.timing.resend_rounds,
            // If several bid at the same time, the one that the cluster map prefers wins.
            leader_priority: u32::from(is_preferred),
            // An entry is a batch already.
            batch_size: 1,
            flush_batch_tick_timeout: u64::MAX,
            buffer_size: 64,
        };
        let built = cluster.build_for_server(server, Handle(Rc::clone(log)));
        Decider::OmniPaxos(Box::new(built.expect("a group of several nodes, this one among them")))
    }

    /// The ballot in which this replica leads and may append.
    pub(super) fn leads_in(&self, id: NodeId) -> Option<Ballot> {
        match self {
            Decider::OmniPaxos(paxos) => {
                (paxos.get_current_leader() == Some((u64::from(id), true))).then(|| paxos.get_promise())
            }
            Decider::Alone { ballot } => Some(*ballot),
        }
    }

    /// The leader that this replica has promised to follow, if any.
    pub(super) fn leader(&self) -> Option<NodeId> {
        match self {
            Decider::OmniPaxos(paxos) => paxos.get_current_leader().map(|(leader, _)| leader as NodeId),
            Decider::Alone { ballot } => Some(ballot.pid as NodeId),
        }
    }

    /// True when the promised ballot has passed its prepare phase: entries may be accepted in it.
    pub(super) fn is_accepting(&self) -> bool {
        match self {
            Decider::OmniPaxos(paxos) => paxos.get_current_leader().is_some_and(|(_, accepting)| accepting),
            Decider::Alone { .. } => true,
        }
    }

    /// Appends an entry to a log that this replica leads.
    pub(super) fn append(&mut self, log: &SharedLog, entry: Entry) {
        match self {
            // The crate refuses only while it is being reconfigured.
            Decider::OmniPaxos(paxos) => paxos.append(entry).expect("nothing reconfigures it"),
            Decider::Alone { .. } => log.borrow_mut().append(vec![entry]),
        }
    }

    pub(super) fn handle(&mut self, id: NodeId, from: NodeId, message: PaxosMsg<Entry>) {
        if let Decider::OmniPaxos(paxos) = self {
            let (from, to) = (u64::from(from), u64::from(id));
            paxos.handle_incoming(CrateMessage::SequencePaxos(PaxosMessage { from, to, msg: message }));
        }
    }

    pub(super) fn heartbeat(&mut self, id: NodeId, from: NodeId, message: HeartbeatMsg) {
        if let Decider::OmniPaxos(paxos) = self {
            let (from, to) = (u64::from(from), u64::from(id));
            paxos.handle_incoming(CrateMessage::BLE(BLEMessage { from, to, msg: message }));
        }
    }

    /// A round of heartbeats has ended.
    pub(super) fn tick(&mut self) {
        if let Decider::OmniPaxos(paxos) = self {
            paxos.tick();
        }
    }

    /// Makes the leader start over with this replica, because something that it sent was lost.
    pub(super) fn start_over_with(&mut self, leader: NodeId) {
        if let Decider::OmniPaxos(paxos) = self {
            paxos.reconnected(u64::from(leader));
        }
    }

    /// Tries to lead in a higher ballot.
    pub(super) fn raise_ballot(&mut self) {
        if let Decider::OmniPaxos(paxos) = self {
            paxos.try_become_leader();
        }
    }

    /// Leads the new configuration like the previous one: with a ballot greater than those with which the others begin, so that
    /// no election follows.
    pub(super) fn go_on_leading(&mut self, messages: &mut Vec<CrateMessage>) {
        if let Decider::OmniPaxos(paxos) = self {
            paxos.try_become_leader();
            // It requests promises in the second ballot only.
            paxos.take_outgoing_messages(messages);
            messages.retain(|message| matches!(message, CrateMessage::BLE(_)));
            paxos.try_become_leader();
        }
    }

    /// Cuts off the log of this replica alone before an index, which must be decided.
    pub(super) fn cut_before(&mut self, log: &SharedLog, index: usize) {
        match self {
            // The crate's way to cut one replica's log: an empty snapshot that is never sent.
            Decider::OmniPaxos(paxos) => {
                let _ = paxos.snapshot(Some(index), true); // Refused when it is cut there already.
            }
            Decider::Alone { .. } => {
                let _ = Handle(Rc::clone(log)).set_compacted_idx(index);
            }
        }
    }

    /// Takes the messages to send.
    pub(super) fn take_messages(&mut self, messages: &mut Vec<CrateMessage>) {
        if let Decider::OmniPaxos(paxos) = self {
            paxos.take_outgoing_messages(messages);
        }
    }
}
