//! The status of a replica, for people, metrics and tests.

use super::Replica;
pub use super::counters::Counters;
use super::routing::Standing;
use crate::contract::{NodeId, Now};
use crate::status::{self, counter};
use kv::Version;
use omnipaxos::ballot_leader_election::Ballot;

/// A leader's view of one follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// The follower.
    pub id: NodeId,
    /// Whether a message of it came recently.
    pub live: bool,
    /// How many entries it has accepted durably in this ballot.
    pub accepted: u64,
    /// How many commands these entries hold; 0 if their end is cut off from the leader's log.
    pub held: Version,
}

/// The status of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `leader`, `candidate`, `follower`, `learner` (a future member, or excluded), `removed` or `idle`.
    pub role: &'static str,
    /// The number of the newest configuration that it is in; 0 for none.
    pub configuration: u32,
    /// The members of that configuration.
    pub members: Vec<NodeId>,
    /// Whether it is a voter of the newest configuration that it knows of.
    pub voter: bool,
    /// It was removed: it is no longer a member of the newest configuration that it knows of. It still sends others what they
    /// lack of the configurations that it was in.
    pub removed: bool,
    /// Its storage was lost or rolled back, so it is no voter until it has been removed and added again.
    pub excluded: bool,
    /// The number of the configuration that the control group has named, if that has not begun here yet; otherwise 0.
    pub next_configuration: u32,
    /// The future members that have reported their position, each with the number of entries that it has applied.
    pub learners: Vec<(NodeId, u64)>,
    /// The number of the ballot that it has promised.
    pub epoch: u64,
    /// The leader, as far as it knows; 0 for none.
    pub leader: NodeId,
    /// How many commands its log holds.
    pub offset: Version,
    /// How many of these commands are applied.
    pub applied: Version,
    /// How many entries are applied.
    pub applied_entries: u64,
    /// How many entries its log holds, counted from the first that the group ever had.
    pub end_entries: u64,
    /// The first entry that is still in memory.
    pub log_start: u64,
    /// How many commands the entries before it hold.
    pub log_start_offset: Version,
    /// Bytes of entries in memory.
    pub log_bytes: usize,
    /// Whether requests can be served, here or by the leader.
    pub ready: bool,
    /// Whether it waits for what a leader sends it.
    pub catches_up: bool,
    /// Whether it leads and may append.
    pub writable: bool,
    /// Whether it leads and may answer reads alone at this moment.
    pub leased: bool,
    /// Whether a snapshot of another replica's table is arriving.
    pub receives_snapshot: bool,
    /// The status of each follower; empty unless this replica leads.
    pub followers: Vec<FollowerStatus>,
    /// The counts of events.
    pub counters: Counters,
    /// Why it is not ready, for people; otherwise empty.
    pub explanation: String,
}

impl Replica {
    fn lost_explanation(&self) -> String {
        format!(
            "the storage of its only replica was lost with everything in it, and this does not end by itself. To begin \
             again, empty: {}",
            self.recovery_line.accepts()
        )
    }

    /// The replica's status. O(members).
    pub fn status(&self, now: Now) -> Status {
        let log = self.log.borrow();
        let standing = self.standing(now);
        let leads = self.agreement.leads();
        let is_started = self.links.is_started();
        let explanation = match standing {
            _ if !is_started => "it has no configuration",
            _ if self.members.is_excluded() => {
                "its storage is not what it was: remove it from the group and add it again"
            }
            _ if self.members.is_removed() => "it was removed from the group",
            _ if self.members.is_lost() => &self.lost_explanation(),
            _ if !self.agreement.takes_part() => "it waits for what the group has decided before it came",
            Standing::MayNotAppend if leads && log.is_ending(self.members.group().id) => {
                "its configuration is about to end"
            }
            Standing::MayNotAppend if leads => "an older leader's lease may last, or too few nodes are heard",
            Standing::MayNotAppend => "it is about to lead",
            Standing::Nobody => "no leader is known",
            Standing::Leads | Standing::Follows(_) => "",
        };
        let leader = self.agreement.leader();
        let mut status = Status {
            role: match leader {
                _ if !is_started => "idle",
                _ if self.members.is_removed() => "removed",
                _ if !self.agreement.takes_part() => "learner",
                _ if leads => "leader",
                Some(leader) if leader == self.settings.id => "candidate",
                _ => "follower",
            },
            epoch: u64::from(log.promise().n),
            leader: leader.unwrap_or(0),
            offset: log.end_offset(),
            applied: self.applied.offset(),
            applied_entries: self.applied.index() as u64,
            end_entries: log.end() as u64,
            log_start: log.base() as u64,
            log_start_offset: log.base_offset(),
            log_bytes: log.bytes(),
            ready: explanation.is_empty(),
            catches_up: is_started
                && !self.agreement.takes_part()
                && leader.is_some_and(|it| it != self.settings.id),
            writable: standing == Standing::Leads,
            leased: self.may_answer(now),
            receives_snapshot: self.incoming.is_received(),
            followers: self.followers(now),
            counters: self.counters,
            explanation: explanation.to_string(),
            ..Status::default()
        };
        self.members.describe(&mut status);
        status
    }

    fn followers(&self, now: Now) -> Vec<FollowerStatus> {
        let Some(ballot) = self.agreement.leads_in() else { return Vec::new() };
        let log = self.log.borrow();
        let follower = |(id, (round, index)): (NodeId, (Ballot, usize))| {
            let accepted = if round == ballot { index } else { 0 };
            FollowerStatus {
                id,
                live: self.rounds.is_peer_live(now, id, &self.links, &self.settings),
                accepted: accepted as u64,
                held: log.offset_at(accepted).unwrap_or(0),
            }
        };
        self.links.accepted().map(follower).collect()
    }
}

impl From<Status> for status::Status {
    fn from(status: Status) -> status::Status {
        let counted = status.counters;
        let follower = |follower: FollowerStatus| status::FollowerStatus {
            id: follower.id,
            state: match follower.live {
                true if 0 < follower.accepted && follower.accepted < status.log_start => "snapshot",
                true => "streaming",
                false => "silent",
            },
            acked: follower.held,
            lag: status.offset.saturating_sub(follower.held),
            lag_ms: 0,
        };
        status::Status {
            role: status.role,
            epoch: status.epoch,
            leader: status.leader,
            offset: status.offset,
            applied: status.applied,
            ready: status.ready,
            catches_up: status.catches_up,
            writable: status.writable,
            lag: status.offset.saturating_sub(status.applied),
            backlog_start: status.log_start_offset,
            backlog_bytes: status.log_bytes,
            receives_snapshot: status.receives_snapshot,
            followers: status.followers.iter().copied().map(follower).collect(),
            counters: vec![
                counter(
                    "partial_resyncs",
                    "Times that it had lost a message and started over.",
                    counted.resyncs,
                ),
                counter("full_resyncs", "Snapshot transfers to others.", counted.transfers_sent),
                counter("copies_installed", "Snapshots of others installed.", counted.transfers_installed),
                counter("log_cuts", "Times that the log in memory was cut.", counted.log_cuts),
                counter("dropped_messages", "Messages that came late or twice.", counted.dropped_messages),
                counter("refused_writes", "Writes refused.", counted.refused_writes),
                counter("unknown_writes", "Writes with unknown outcome.", counted.unknown_writes),
            ],
            explanation: status.explanation,
            ..status::Status::default()
        }
    }
}
