//! Why stop-signs are entries of ours: the crate's own stop-signs, shown on the crate alone. If a newer version of the
//! crate makes this test fail, reconsider the protocol's `mod.rs`.

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::{PaxosMessage, PaxosMsg};
use omnipaxos::storage::{StopSign, Storage, StorageOp, StorageResult};
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use protocol::consensus::Entry;

/// The crate's storage, in memory.
#[derive(Default)]
struct Memory {
    log: Vec<Entry>,
    promise: Option<Ballot>,
    round: Option<Ballot>,
    decided: usize,
    stop_sign: Option<StopSign>,
}

type Snapshot = <Entry as omnipaxos::storage::Entry>::Snapshot;

impl Storage<Entry> for Memory {
    fn write_atomically(&mut self, operations: Vec<StorageOp<Entry>>) -> StorageResult<()> {
        for operation in operations {
            match operation {
                StorageOp::AppendOnPrefix(from, entries) => self.append_on_prefix(from, entries)?,
                StorageOp::SetAcceptedRound(round) => self.round = Some(round),
                StorageOp::SetDecidedIndex(index) => self.decided = index,
                StorageOp::SetStopsign(stop_sign) => self.stop_sign = stop_sign,
                other => unreachable!("{other:?}"),
            }
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: Entry) -> StorageResult<()> {
        self.append_entries(vec![entry])
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> StorageResult<()> {
        self.log.extend(entries);
        Ok(())
    }

    fn append_on_prefix(&mut self, from: usize, entries: Vec<Entry>) -> StorageResult<()> {
        self.log.truncate(from);
        self.append_entries(entries)
    }

    fn set_promise(&mut self, promise: Ballot) -> StorageResult<()> {
        self.promise = Some(promise);
        Ok(())
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.decided = index;
        Ok(())
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.decided)
    }

    fn set_accepted_round(&mut self, round: Ballot) -> StorageResult<()> {
        self.round = Some(round);
        Ok(())
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.round)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Entry>> {
        Ok(self.log.get(from..to).unwrap_or_default().to_vec())
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.log.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Entry>> {
        Ok(self.log.get(from..).unwrap_or_default().to_vec())
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.promise)
    }

    fn set_stopsign(&mut self, stop_sign: Option<StopSign>) -> StorageResult<()> {
        self.stop_sign = stop_sign;
        Ok(())
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(self.stop_sign.clone())
    }

    fn trim(&mut self, _: usize) -> StorageResult<()> {
        Ok(())
    }

    fn set_compacted_idx(&mut self, _: usize) -> StorageResult<()> {
        Ok(())
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(0)
    }

    fn set_snapshot(&mut self, _: Option<Snapshot>) -> StorageResult<()> {
        Ok(())
    }

    fn get_snapshot(&self) -> StorageResult<Option<Snapshot>> {
        Ok(None)
    }
}

fn cluster(configuration_id: u32, nodes: Vec<u64>) -> ClusterConfig {
    ClusterConfig { configuration_id, nodes, flexible_quorum: None }
}

type Group = Vec<OmniPaxos<Entry, Memory>>;

/// Three nodes; node 1 leads. Without heartbeats no other node tries to.
fn group() -> Group {
    let mut group: Group = (1..=3)
        .map(|pid| {
            let server = ServerConfig { pid, ..ServerConfig::default() };
            cluster(1, vec![1, 2, 3]).build_for_server(server, Memory::default()).expect("a group of three")
        })
        .collect();
    group[0].try_become_leader();
    stabilize(&mut group, |_| true);
    group
}

/// Delivers the messages that `arrives` selects until nothing is under way.
fn stabilize(group: &mut Group, arrives: impl Fn(&PaxosMessage<Entry>) -> bool) {
    loop {
        let mut messages = Vec::new();
        for node in group.iter_mut() {
            let mut own = Vec::new();
            node.take_outgoing_messages(&mut own);
            messages.extend(own);
        }
        if messages.is_empty() {
            return;
        }
        for message in messages {
            if let Message::SequencePaxos(message) = message
                && arrives(&message)
            {
                group[message.to as usize - 1].handle_incoming(Message::SequencePaxos(message));
            }
        }
    }
}

#[test]
fn a_follower_that_starts_over_counts_the_stop_sign_twice() {
    let mut group = group();
    group[0].reconfigure(cluster(2, vec![1, 2]), None).unwrap();
    // No node receives that it is decided.
    stabilize(&mut group, |message| !matches!(message.msg, PaxosMsg::Decide(_)));
    assert!(group[0].is_reconfigured().is_some());
    assert_eq!(group[1].get_accepted_idx(), 1);
    // Node 2 starts over with its leader, as after any lost message.
    group[1].reconnected(1);
    stabilize(&mut group, |_| true);
    assert_eq!(group[1].get_accepted_idx(), 2, "one entry, the stop-sign, is there");
    assert!(group[1].is_reconfigured().is_none(), "it knows that it is decided, and does not see it");
}

#[test]
fn a_stop_sign_cannot_name_a_group_of_one() {
    let mut group = group();
    assert!(group[0].reconfigure(cluster(2, vec![1]), None).is_err());
}
