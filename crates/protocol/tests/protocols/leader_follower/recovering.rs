//! One replica of a group continues alone, when acknowledged writes are lost with others.

use super::*;
use kv::{Condition, Expiry, SKIPPED_VERSIONS, SetAnswer};
use protocol::contract::{Configuration, Effects, Input, Replica as _};
use protocol::leader_follower::record::{Change, RecordedBatch};
use protocol::leader_follower::{Acks, Durability};

const NOW: Now = Now { monotonic_us: 1000, unix_ms: 1 };

/// Two batches of epoch 3, of which the first is known to be committed.
fn before() -> Vec<u8> {
    let mut record = Vec::new();
    Change::Epoch { epoch: 3, leads: false }.encode(&mut record);
    Change::Intact(true).encode(&mut record);
    for (first, commit) in [(1, 0), (2, 1)] {
        let mut records = Vec::new();
        let set = Command::Set {
            key: b"k",
            value: b"v",
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        };
        set.encode(&mut records);
        let batch = RecordedBatch { epoch: 3, first, count: 1, time: 9, records: &records };
        Change::Batch { batch, commit }.encode(&mut record);
    }
    record
}

fn replica(records: &[&[u8]]) -> Replica {
    let options = Options {
        acks: Acks::Majority,
        reads_any: false,
        backlog_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        durability: Durability::Fsync,
        planted: Default::default(),
    };
    let mut replica = Replica::new(1, options, Timing::default(), 7);
    records.iter().for_each(|record| replica.replay(NOW, record).expect("a record"));
    replica
}

#[test]
fn its_records_are_committed_and_versions_are_skipped() {
    let before = before();
    let skip = [Command::SkipVersions { by: SKIPPED_VERSIONS }];
    let record = replica(&[&before]).alone(7, &skip);
    let mut alone = replica(&[&before, &record]);
    let (last, epoch, is_whole) = alone.recorded();
    assert_eq!(((last.epoch, last.offset), epoch, is_whole), ((7, 3), 7, true));
    let (members, in_sync) = (vec![1], vec![1]);
    let configuration = Configuration { epoch: 8, leader: 1, members, in_sync, is_given_up: false };
    let mut effects = Effects::default();
    alone.step(NOW, Input::Configure(&configuration), &mut effects);
    alone.step(NOW, Input::Lease { until_us: u64::MAX }, &mut effects);
    alone.step(NOW, Input::Flush, &mut effects);
    assert!(!alone.has_taken_over(8), "a crash now might still lose it");
    alone.step(NOW, Input::Durable { record: effects.records.len() as u64 }, &mut effects);
    alone.check_invariants(NOW);
    assert!(alone.has_taken_over(8) && !alone.has_taken_over(7));
    let status = alone.status(NOW);
    assert!(status.role == "leader" && status.ready && status.applied >= 3, "{status:?}");
    assert_eq!(alone.table().version_floor(), 3 + SKIPPED_VERSIONS);
}

#[test]
#[should_panic(expected = "epoch 3 would follow 3")]
fn an_epoch_that_others_may_know_is_not_started_again() {
    replica(&[&before()]).alone(3, &[Command::Purge { until: 0 }]);
}
