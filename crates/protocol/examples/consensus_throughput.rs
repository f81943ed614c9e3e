//! How fast three replicas of `consensus` agree in one process, without disks or sockets:
//! `cargo run --release -p quorate-protocol --example consensus_throughput`.

use kv::{Command, Condition, Expiry, SetAnswer};
use protocol::consensus::{Lease, Message, Options, Replica, Timing};
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Replica as _, Submission};
use protocol::{Request, Ticket};
use std::collections::VecDeque;

const COMMANDS: u64 = 1_000_000;
const KEYS: u64 = 100_000;

struct Group {
    replicas: Vec<Replica>,
    letters: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    recorded: Vec<u64>,
    record_bytes: usize,
    done: u64,
    now: Now,
}

impl Group {
    fn new() -> Group {
        let options = Options {
            lease: Lease::Log,
            reads_any: false,
            log_bytes: 64 << 20,
            spill_bytes_min: usize::MAX,
            is_bounded: false,
            planted: Default::default(),
        };
        let replicas = (1..=3).map(|id| Replica::new(id, options, Timing::default(), 1, u64::from(id)));
        let now = Now { monotonic_us: 1_000_000, unix_ms: 1 };
        let mut group = Group {
            replicas: replicas.collect(),
            letters: VecDeque::new(),
            recorded: vec![0; 3],
            record_bytes: 0,
            done: 0,
            now,
        };
        let members = vec![1, 2, 3];
        let configuration = Configuration {
            epoch: 1,
            leader: 1,
            members: members.clone(),
            in_sync: members,
            is_given_up: false,
        };
        (1..=3).for_each(|id| group.step(id, Input::Configure(&configuration)));
        group
    }

    fn step(&mut self, id: NodeId, input: Input<'_, Message<'_>>) {
        let index = id as usize - 1;
        let mut effects = Effects::default();
        self.replicas[index].step(self.now, input, &mut effects);
        self.record_bytes +=
            effects.records.iter().map(|record| record.parts(&effects.bytes).concat().len()).sum::<usize>();
        self.recorded[index] += effects.records.len() as u64;
        self.done += effects.outcomes.len() as u64;
        for message in &effects.messages {
            self.letters.push_back((id, message.to, message.bytes.parts(&effects.bytes).concat()));
        }
        if !effects.records.is_empty() {
            let record = self.recorded[index];
            self.step(id, Input::Durable { record });
        }
    }

    /// Everybody's turn ends, until nothing is under way.
    fn settle(&mut self) {
        loop {
            (1..=3).for_each(|id| self.step(id, Input::Flush));
            if self.letters.is_empty() {
                return;
            }
            for (from, to, bytes) in std::mem::take(&mut self.letters) {
                let message = Message::decode(&bytes).expect("replicas send what can be read");
                self.step(to, Input::Message { from, message });
            }
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now.monotonic_us += milliseconds * 1000;
        (1..=3).for_each(|id| self.step(id, Input::Tick));
        self.settle();
    }
}

fn main() {
    let value = [b'v'; 256];
    for batch in [1, 16, 256, 1024] {
        let mut group = Group::new();
        (0..20).for_each(|_| group.pass(80));
        let leader = (1..=3).find(|id| group.replicas[*id as usize - 1].is_leader()).expect("somebody leads");
        let (before, commands) = (group.done, if batch == 1 { COMMANDS / 10 } else { COMMANDS });
        group.record_bytes = 0;
        #[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "an example that measures")]
        let begin = std::time::Instant::now();
        let mut number = 0;
        while number < commands {
            for _ in 0..batch {
                let key = (number.wrapping_mul(2_654_435_761) % KEYS).to_le_bytes();
                let command = Command::Set {
                    key: &key,
                    value: &value,
                    expiry: Expiry::Clear,
                    condition: Condition::Always,
                    answer: SetAnswer::Status,
                };
                let ticket = Ticket { client: 1, sequence: number };
                let (follows, seen, deadline_us) = (false, 0, u64::MAX);
                let request = &Request::Command(&command);
                group.step(
                    leader,
                    Input::Request(&Submission {
                        ticket,
                        request,
                        follows,
                        seen,
                        deadline_us,
                        fenced: false,
                    }),
                );
                number += 1;
            }
            group.settle();
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(group.done - before, number, "every command is answered");
        println!(
            "{batch:>5} commands per entry: {:>9.0} entries/s {:>9.0} commands/s, {:.0} record bytes per command",
            number as f64 / batch as f64 / seconds,
            number as f64 / seconds,
            group.record_bytes as f64 / number as f64
        );
    }
}
