//! Abd in the test kit.

mod golden;
mod malformed;
mod schedule;
mod schedules;
mod show;

use crate::kit::{Protocol, Start};
use crate::registers::{self, Registers, Replaced};
use kv::Version;
use protocol::abd::{Message, Options, Replica, Status, Timing};
use protocol::contract::Now;
use protocol::registers::Tag;

pub(crate) struct Abd;

type World = crate::kit::World<Abd>;

impl Protocol for Abd {
    type Replica = Replica;
    type Options = Options;
    type Timing = Timing;
    type Status = Status;
    type Beside = Replaced;

    fn make(start: Start<Self>, _: &Replaced) -> Replica {
        const TABLE_SEED: u64 = 7;
        Replica::new(start.id, start.options, start.timing, start.starts, start.seed, TABLE_SEED)
    }

    fn status(replica: &Replica, now: Now) -> Status {
        replica.status(now)
    }

    fn kinds(message: &Message<'_>) -> Vec<&'static str> {
        show::kinds(message)
    }

    fn show_message(message: &Message<'_>) -> String {
        show::message(message)
    }

    fn show_status(status: &Status) -> String {
        show::status(status)
    }

    fn show_done(version: Version, _offset: Version) -> String {
        if version == 0 { String::new() } else { format!(" [tag {}]", Tag::of_version(version)) }
    }

    fn show_records(records: &[Vec<u8>]) -> Vec<String> {
        registers::show_records(records)
    }
}

impl Registers for Abd {
    fn keeps_records(options: &Options) -> bool {
        options.keeps_records
    }

    fn has_memory(replica: &Replica, now: Now) -> bool {
        replica.status(now).role == "replica"
    }
}
