//! The operations of registers: each key is read or written as a whole, independently of other keys.
//!
//! A register has no read-modify-write: another write may fall between a coordinator's read and its write, and
//! nothing orders the two. Commands that need one are refused, with an explanation (Herlihy 1991: registers cannot
//! even let two processes agree).

use kv::command::Needs;
use kv::{Command, Comparison, Condition, Deadline, Expiry, List, Register, SetAnswer, UnixMs};

/// The keys of a read: usually one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys<'a> {
    /// One key.
    One(&'a [u8]),
    /// Several, repeats included.
    Many(List<'a>),
}

/// What a coordinator has to do for a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan<'a> {
    /// It concerns the table as a whole: it is answered from this replica's own table, with no promise about other
    /// replicas.
    Local,
    /// The keys are read, each independently.
    Read(Question, Keys<'a>),
    /// The key is written.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its absolute deadline; 0 when that has passed already, so that the key is deleted.
        deadline: UnixMs,
        /// The value.
        value: &'a [u8],
    },
    /// The keys are deleted, each independently.
    Delete(List<'a>),
    /// Registers cannot execute the command: the error gives the reason, and names a protocol that can.
    Refused(String),
}

/// What a request wants to know about its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The value (`GET`).
    Value,
    /// The values of several keys (`MGET`).
    Values,
    /// How many exist (`EXISTS`).
    Count,
    /// Only confirmation that it was written (`SET`).
    Written,
    /// How many of the deleted keys existed (`DEL`).
    Deleted,
    /// Another detail of one key, which the table answers.
    Detail(Detail),
}

/// The other details of one key that a read can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named and explained as in kv::Command.
pub enum Detail {
    Fetch,
    Type,
    Length,
    Range { start: i64, end: i64 },
    TimeToLive(kv::command::ExpiryUnit),
    Encoding,
    MemoryUsage,
    Digest,
}

impl Detail {
    /// Returns the command that requests this detail.
    pub fn command<'a>(&self, key: &'a [u8]) -> Command<'a> {
        match *self {
            Detail::Fetch => Command::Fetch { key },
            Detail::Type => Command::Type { key },
            Detail::Length => Command::Length { key },
            Detail::Range { start, end } => Command::GetRange { key, start, end },
            Detail::TimeToLive(unit) => Command::TimeToLive { key, unit },
            Detail::Encoding => Command::Encoding { key, limits: kv::command::EncodingLimits::default() },
            Detail::MemoryUsage => Command::MemoryUsage { key },
            Detail::Digest => Command::Digest { key },
        }
    }
}

impl<'a> Plan<'a> {
    /// Returns the plan for a command at a coordinator whose clock shows `now`. A refusal names `protocol`.
    #[inline]
    pub fn of(command: &Command<'a>, now: UnixMs, protocol: &str) -> Plan<'a> {
        match *command {
            Command::Get { key } => Plan::Read(Question::Value, Keys::One(key)),
            Command::Set {
                key,
                value,
                expiry: expiry @ (Expiry::Clear | Expiry::Set(_)),
                condition: Condition::Always,
                answer: SetAnswer::Status,
            } => Plan::Set { key, value, deadline: deadline(expiry, now) },
            _ => Plan::of_any(command, protocol),
        }
    }

    fn of_any(command: &Command<'a>, protocol: &str) -> Plan<'a> {
        use self::Keys::{Many, One};
        use Command::*;
        let detail = |key, detail| Plan::Read(Question::Detail(detail), One(key));
        match *command {
            MultiGet { keys } => Plan::Read(Question::Values, Many(keys)),
            Exists { keys } => Plan::Read(Question::Count, Many(keys)),
            Delete { keys } => Plan::Delete(keys),
            Fetch { key } => detail(key, Detail::Fetch),
            Type { key } => detail(key, Detail::Type),
            Length { key } => detail(key, Detail::Length),
            GetRange { key, start, end } => detail(key, Detail::Range { start, end }),
            TimeToLive { key, unit } => detail(key, Detail::TimeToLive(unit)),
            Encoding { key, .. } => detail(key, Detail::Encoding),
            MemoryUsage { key } => detail(key, Detail::MemoryUsage),
            Digest { key } => detail(key, Detail::Digest),
            Size {} | Keys { .. } | Scan { .. } | RandomKey { .. } => Plan::Local,
            // The arguments are wrong, whatever the key holds.
            Foreseen(foreseen) if let kv::Answer::Error(text) = foreseen.answer() => {
                Plan::Refused(String::from_utf8_lossy(text).into_owned())
            }
            _ => Plan::Refused(refusal(command, protocol)),
        }
    }
}

/// Returns a deadline as a value keeps it.
fn deadline(expiry: Expiry, now: UnixMs) -> UnixMs {
    let at = match expiry {
        Expiry::Set(Deadline::In(ms)) => now.saturating_add_signed(ms),
        Expiry::Set(Deadline::At(ms)) => ms.max(0) as UnixMs,
        Expiry::Clear | Expiry::Keep => return Register::NEVER,
    };
    if at <= now { Register::UNWRITTEN.deadline } else { at.min(Register::NEVER - 1) }
}

/// Returns why registers cannot execute a command, and which protocol can.
fn refusal(command: &Command<'_>, protocol: &str) -> String {
    let (name, reason) = needs(command);
    format!(
        "ERR {name} needs {reason}, which {protocol} registers cannot do; use a keyspace with replication=consensus \
         (the default) or leader-follower"
    )
}

/// A command's name, with the option that makes it impossible, and what it needs.
fn needs(command: &Command<'_>) -> (&'static str, &'static str) {
    use Command::*;
    let name = match command {
        Set { answer: SetAnswer::Integer, .. } => "SETNX",
        Set { condition: Condition::IfAbsent, .. } => "SET NX",
        Set { condition: Condition::IfPresent, .. } => "SET XX",
        Set { answer: SetAnswer::Before, .. } => "SET with GET",
        Set { .. } => "SET KEEPTTL",
        SetIf { comparison: Comparison::Equal(_), .. } => "SET IFEQ",
        SetIf { comparison: Comparison::NotEqual(_), .. } => "SET IFNE",
        SetIf { comparison: Comparison::DigestEqual(_), .. } => "SET IFDEQ",
        SetIf { comparison: Comparison::DigestNotEqual(_) | Comparison::NoDigest, .. } => "SET IFDNE",
        DeleteIf { .. } => "DELEX or DELIFEQ",
        command => command.name(),
    };
    let reason = match command.needs() {
        Needs::Order => "one order of all writes",
        Needs::Compares => "one order of all writes to compare with",
        Needs::Modifies => "read-modify-write",
        Needs::SeveralKeys => "several keys changed at one moment",
        Needs::AllKeys => "all keys removed at one moment",
        Needs::SeveralReads => "several reads at one moment",
        Needs::AnyType => "a value of any type, of which a register only has strings",
        Needs::Bytes if command.is_write() => "read-modify-write",
        Needs::Bytes => "the bytes of a value, of which a register only has the whole",
        Needs::OwnVersions => "versions of its own choice",
        Needs::List => "a list, whose elements change one by one",
        Needs::Set => "a set, whose members change one by one",
        Needs::SortedSet => "a sorted set, whose scores change one by one",
        Needs::Hash => "a hash, whose fields change one by one",
        Needs::Stream => "a stream, whose entries have one order",
    };
    (name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{HashCommand, ListCommand, SetCommand, SortedCommand, StreamCommand};

    fn set(expiry: Expiry, condition: Condition, answer: SetAnswer) -> Command<'static> {
        Command::Set { key: b"k", value: b"v", expiry, condition, answer }
    }

    #[test]
    fn read_modify_write_commands_are_refused_by_name() {
        let refused = |command| match Plan::of(&command, 0, "abd") {
            Plan::Refused(why) => why,
            plan => panic!("{plan:?}"),
        };
        assert_eq!(
            refused(Command::IncrementBy { key: b"k", delta: 1 }),
            "ERR INCR needs read-modify-write, which abd registers cannot do; use a keyspace with replication=consensus \
             (the default) or leader-follower"
        );
        for (command, name) in [
            (set(Expiry::Clear, Condition::IfAbsent, SetAnswer::Status), "SET NX"),
            (set(Expiry::Clear, Condition::IfAbsent, SetAnswer::Integer), "SETNX"),
            (set(Expiry::Keep, Condition::Always, SetAnswer::Status), "SET KEEPTTL"),
            (set(Expiry::Clear, Condition::Always, SetAnswer::Before), "SET with GET"),
            (Command::Clear {}, "FLUSHALL"),
            (Command::Hash(HashCommand::Length { key: b"k" }), "HLEN"),
            (Command::OnSet(SetCommand::All { key: b"k" }), "SMEMBERS"),
            (Command::OnSorted(SortedCommand::Length { key: b"k" }), "ZCARD"),
            (Command::OnStream(StreamCommand::Length { key: b"k" }), "XLEN"),
            (Command::OnList(ListCommand::Length { key: b"k" }), "LLEN"),
            (Command::Purge { until: 1 }, "this command"),
        ] {
            assert!(refused(command).starts_with(&format!("ERR {name} needs ")), "{command:?}");
        }
    }

    #[test]
    fn deadlines_become_absolute_and_a_passed_one_deletes() {
        let planned = |expiry| match Plan::of(&set(expiry, Condition::Always, SetAnswer::Status), 1000, "abd")
        {
            Plan::Set { deadline, .. } => deadline,
            plan => panic!("{plan:?}"),
        };
        assert_eq!(planned(Expiry::Clear), Register::NEVER);
        assert_eq!(planned(Expiry::Set(Deadline::In(5))), 1005);
        assert_eq!(planned(Expiry::Set(Deadline::At(1001))), 1001);
        for passed in [Deadline::In(0), Deadline::In(i64::MIN), Deadline::At(1000), Deadline::At(-1)] {
            assert_eq!(planned(Expiry::Set(passed)), 0, "{passed:?}");
        }
        assert!(planned(Expiry::Set(Deadline::In(i64::MAX))) < Register::NEVER);
    }
}
