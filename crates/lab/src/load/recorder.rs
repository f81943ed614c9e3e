//! Records a run, operation by operation, as a history that can be checked.
//!
//! A record is a few numbers, because it is written while latencies are measured; names of keys and values are
//! generated when the run is over. A value is represented by the two numbers that it begins with: the rest was
//! compared when it was read.

use std::time::Instant;

use check::{Action, Answer, History};

use super::options::Options;
use super::outcome::{Expected, Operation, Outcome};
use super::reply::Reply;
use super::template::Template;
use super::value::Values;

/// The most operations that all threads record together: some two gigabytes.
const OPERATIONS_MAX: usize = 32 << 20;

/// One thread's records.
pub(crate) struct Recorder {
    /// The origin of all threads' times.
    epoch: Instant,
    records: Vec<Record>,
    records_max: usize,
    /// Values that were never written: a record holds the index of its value.
    strange: Vec<Vec<u8>>,
}

struct Record {
    connection: u32,
    key: u64,
    asked: Asked,
    observed: Observed,
    start_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Copy)]
enum Asked {
    Get,
    /// The sequence of the write.
    Set(u64),
    Incr,
}

/// The meaning of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Done,
    Absent,
    /// The sequence of the write that was read.
    Written(u64),
    Strange(usize),
    Sum(i64),
    Refused,
    Unknown,
}

impl Recorder {
    pub(crate) fn new(epoch: Instant, threads: usize) -> Self {
        Self { epoch, records: Vec::new(), records_max: OPERATIONS_MAX / threads, strange: Vec::new() }
    }

    /// Whether there is no room for another record.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= self.records_max
    }

    /// Extracts what a record needs from a reply.
    pub(crate) fn read(&mut self, asked: Expected, outcome: Outcome, reply: &Reply<'_>) -> Observed {
        match (asked.operation, outcome, reply) {
            (Operation::Get, Outcome::Miss, _) => Observed::Absent,
            (Operation::Get, Outcome::Ok | Outcome::WrongValue, Reply::Bulk(value)) => {
                match Values::sequence_of(value) {
                    Some(sequence) if outcome == Outcome::Ok => Observed::Written(sequence),
                    _ => {
                        self.strange.push(value.to_vec());
                        Observed::Strange(self.strange.len() - 1)
                    }
                }
            }
            (Operation::Incr, Outcome::Ok | Outcome::WrongValue, Reply::Integer(sum)) => Observed::Sum(*sum),
            (Operation::Set, Outcome::Ok, _) => Observed::Done,
            (_, Outcome::Error(word), _) if word.is_refusal() => Observed::Refused,
            _ => Observed::Unknown,
        }
    }

    /// Records an operation. An operation with unknown outcome has no end.
    pub(crate) fn write(
        &mut self,
        connection: usize,
        asked: Expected,
        observed: Observed,
        start: Instant,
        end: Instant,
    ) {
        let action = match asked.operation {
            Operation::Get => Asked::Get,
            Operation::Set => Asked::Set(asked.sequence),
            Operation::Incr => Asked::Incr,
            // PING has neither key nor effect; with a custom command, nothing is recorded.
            Operation::Ping | Operation::Custom => return,
        };
        let since = |time: Instant| time.saturating_duration_since(self.epoch).as_nanos() as u64;
        self.records.push(Record {
            connection: connection as u32,
            key: asked.key,
            asked: action,
            observed,
            start_ns: since(start),
            end_ns: since(end),
        });
    }
}

/// The history of all threads, in the order in which operations were sent.
pub(crate) fn history(options: &Options, recorders: &[Recorder]) -> History {
    let mut records: Vec<(&Recorder, &Record)> = recorders
        .iter()
        .flat_map(|recorder| recorder.records.iter().map(move |record| (recorder, record)))
        .collect();
    records.sort_by_key(|(_, record)| record.start_ns);

    let digits = options.key_digits();
    let keys = Template::new(&options.key_prefix, digits, "");
    let counters = Template::new(&format!("{}counter:", options.key_prefix), digits, "");
    let mut history = History::new();
    let mut bytes = Vec::new();
    for (recorder, record) in records {
        bytes.clear();
        if matches!(record.asked, Asked::Incr) { &counters } else { &keys }.append(record.key, &mut bytes);
        let key = history.key(&bytes);
        let mut value_of = |sequence: u64| history.value(&Values::header(record.key, sequence));
        let action = match record.asked {
            Asked::Get => Action::Get,
            Asked::Set(sequence) => Action::Set(value_of(sequence)),
            Asked::Incr => Action::Increment(1),
        };
        let answer = match record.observed {
            Observed::Done => check::Outcome::Ok(Answer::Done),
            Observed::Absent => check::Outcome::Ok(Answer::Value(None)),
            Observed::Written(sequence) => check::Outcome::Ok(Answer::Value(Some(value_of(sequence)))),
            Observed::Strange(position) => {
                check::Outcome::Ok(Answer::Value(Some(history.value(&recorder.strange[position]))))
            }
            Observed::Sum(sum) => check::Outcome::Ok(Answer::Sum(sum)),
            Observed::Refused => check::Outcome::Failed,
            Observed::Unknown => check::Outcome::Unknown,
        };
        let id = history.begin(u64::from(record.connection), key, action, record.start_ns);
        history.set_node(id, node_of(options, record.connection));
        if answer != check::Outcome::Unknown {
            history.end(id, record.end_ns, answer);
        }
    }
    history
}

/// The number, from 1, of a connection's address.
fn node_of(options: &Options, connection: u32) -> u32 {
    1 + connection % options.addresses.len() as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::outcome::ErrorWord;

    #[test]
    fn a_history_records_requests_times_and_answers() {
        let options = Options { key_prefix: "k".to_owned(), key_bytes: Some(3), ..Options::default() };
        let epoch = Instant::now();
        let at = |ns| epoch + Duration::from_nanos(ns);
        let mut recorder = Recorder::new(epoch, 1);
        let get = Expected { operation: Operation::Get, key: 7, sequence: 0 };
        let set = Expected { operation: Operation::Set, key: 7, sequence: 5 };
        let incr = Expected { operation: Operation::Incr, ..get };
        let mut record = |asked, outcome, reply, start, end| {
            let observed = recorder.read(asked, outcome, &reply);
            recorder.write(3, asked, observed, at(start), at(end));
        };
        let value = Values::header(7, 5);
        record(get, Outcome::Ok, Reply::Bulk(&value), 50, 60);
        record(set, Outcome::Ok, Reply::Status(b"OK"), 10, 20);
        record(get, Outcome::WrongValue, Reply::Bulk(b"what"), 70, 80);
        record(get, Outcome::Miss, Reply::Null, 1, 2);
        record(incr, Outcome::Ok, Reply::Integer(1), 90, 95);
        let refused = Outcome::Error(ErrorWord::of(b"CLUSTERDOWN x"));
        record(set, refused, Reply::Error(b"CLUSTERDOWN x"), 100, 101);
        let unknown = Outcome::Error(ErrorWord::of(b"UNKNOWN x"));
        record(set, unknown, Reply::Error(b"UNKNOWN x"), 110, 111);

        let mut lines = Vec::new();
        history(&options, &[recorder]).write(&mut lines).unwrap();
        let value = String::from_utf8(value.to_vec()).unwrap();
        let line = |operation: &str, rest: &str| {
            let key = if operation == "increment" { "kcounter:07" } else { "k07" };
            format!("{{\"client\":3,\"node\":1,\"operation\":\"{operation}\",\"key\":\"{key}\",{rest}}}\n")
        };
        let set = |rest: &str| line("set", &format!("\"value\":\"{value}\",{rest}"));
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            [
                line("get", "\"value\":null,\"start\":1,\"end\":2,\"outcome\":\"ok\""),
                set("\"start\":10,\"end\":20,\"outcome\":\"ok\""),
                line("get", &format!("\"value\":\"{value}\",\"start\":50,\"end\":60,\"outcome\":\"ok\"")),
                line("get", "\"value\":\"what\",\"start\":70,\"end\":80,\"outcome\":\"ok\""),
                line("increment", "\"delta\":1,\"sum\":1,\"start\":90,\"end\":95,\"outcome\":\"ok\""),
                set("\"start\":100,\"end\":101,\"outcome\":\"failed\""),
                set("\"start\":110,\"outcome\":\"unknown\""),
            ]
            .concat()
        );
    }
}
