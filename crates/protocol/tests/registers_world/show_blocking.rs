//! How messages, outcomes and changes read in a transcript.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use crate::registers_world::{Letter, World};
use kv::codec::Reader;
use kv::{Command, Deadline, Expiry, Register, Reply};
use protocol::blocking::{Answer, Ask, Lock, Message, Status};
use protocol::contract::{NodeId, Result, Trace};
use protocol::registers::Tag;
use protocol::registers::message::Body;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn command(command: &Command<'_>) -> String {
    match *command {
        Command::Get { key } => format!("get {}", text(key)),
        Command::Set { key, value, expiry: Expiry::Set(Deadline::In(ms)), .. } => {
            format!("set {} {} for {ms} ms", text(key), text(value))
        }
        Command::Set { key, value, .. } => format!("set {} {}", text(key), text(value)),
        Command::Delete { keys } => format!("del {}", keys.iter().map(text).collect::<Vec<_>>().join(" ")),
        Command::MultiGet { keys } => format!("mget {}", keys.iter().map(text).collect::<Vec<_>>().join(" ")),
        _ => format!("{command:?}"),
    }
}

/// What a key holds, under the tag of its write.
pub fn register(register: Register<'_>) -> String {
    let tag = Tag::of_version(register.version);
    match register {
        Register { version: 0, .. } => "nothing".into(),
        register if register.is_deleted() => format!("deleted@{tag}"),
        Register { deadline: Register::NEVER, value, .. } => format!("{}@{tag}", text(value)),
        Register { deadline, value, .. } => format!("{}@{tag} until {deadline}", text(value)),
    }
}

fn ask(ask: Ask<'_>) -> String {
    match ask {
        Ask::Lock { attempt, key, newer_than: None } => format!("Lock {} {}", named(attempt), text(key)),
        Ask::Lock { attempt, key, newer_than: Some(tag) } => {
            format!("Lock {} {} value if newer than {tag}", named(attempt), text(key))
        }
        Ask::Write { attempt, grant, key, register: stored, .. } => {
            format!(
                "Write {} grant {} {}={}",
                named(attempt),
                grant_number(grant),
                text(key),
                register(stored)
            )
        }
        Ask::Unlock { attempt, key, tag: Tag::NONE } => format!("Unlock {} {}", named(attempt), text(key)),
        Ask::Unlock { attempt, key, tag } => format!("Unlock {} {} holds {tag}?", named(attempt), text(key)),
    }
}

/// An attempt is told as its number, behind its coordinator's life if that is not the first.
fn named(attempt: u64) -> String {
    match (attempt >> 40, attempt & ((1 << 40) - 1)) {
        (1, number) => format!("#{number}"),
        (life, number) => format!("#{life}.{number}"),
    }
}

/// A grant is told as life and number within it.
fn grant_number(grant: u64) -> String {
    format!("{}.{}", grant >> 40, grant & ((1 << 40) - 1))
}

fn answer(answer: Answer<'_>) -> String {
    match answer {
        Answer::Granted { attempt, grant, tag, value, .. } => {
            let value = value.map_or(String::new(), |value| format!(" \"{}\"", text(value)));
            format!("Granted {} grant {} has {tag}{value}", named(attempt), grant_number(grant))
        }
        Answer::Denied { attempt } => format!("Denied {}", named(attempt)),
        Answer::Stored { attempt } => format!("Stored {}", named(attempt)),
        Answer::Lost { attempt, grant } => format!("Lost {} grant {}", named(attempt), grant_number(grant)),
        Answer::Unlocked { attempt, freed, holds } => {
            let freed = if freed { "" } else { " already" };
            format!("Unlocked {}{freed}{}", named(attempt), if holds { " holds it" } else { "" })
        }
    }
}

/// The kinds of items in a message, by which scripts pick letters.
pub fn kinds(message: &Message<'_>) -> Vec<&'static str> {
    match message {
        Message::Turn { asks, answers, .. } => {
            let asks = asks.iter().map(|ask| match ask {
                Ask::Lock { .. } => "Lock",
                Ask::Write { .. } => "Write",
                Ask::Unlock { .. } => "Unlock",
            });
            let answers = answers.iter().map(|answer| match answer {
                Answer::Granted { .. } => "Granted",
                Answer::Denied { .. } => "Denied",
                Answer::Stored { .. } => "Stored",
                Answer::Lost { .. } => "Lost",
                Answer::Unlocked { .. } => "Unlocked",
            });
            asks.chain(answers).collect()
        }
        Message::Upkeep(message) => vec![upkeep(&message.body)],
    }
}

fn upkeep(body: &Body<'_>) -> &'static str {
    match body {
        Body::Hello { .. } => "Hello",
        Body::Standing { .. } => "Standing",
        Body::Fetch { .. } => "Fetch",
        Body::Chunk { .. } => "Chunk",
        Body::Compare { .. } => "Compare",
        Body::Same { .. } => "Same",
        Body::Differ { .. } => "Differ",
        Body::Repair { .. } => "Repair",
        Body::Collect { .. } => "Collect",
        Body::Collected { .. } => "Collected",
    }
}

/// All items of a message, or what upkeep it is.
pub fn message(message: &Message<'_>) -> String {
    match message {
        Message::Turn { asks, answers, .. } => {
            asks.iter().map(ask).chain(answers.iter().map(answer)).collect::<Vec<_>>().join(", ")
        }
        Message::Upkeep(message) => upkeep(&message.body).into(),
    }
}

/// Upkeep goes on all the time and is told in the scripts of `abd`.
pub fn is_upkeep(letter: &Letter) -> bool {
    matches!(letter.message(), Message::Upkeep(_))
}

pub fn letter(letter: &Letter) -> String {
    format!("{} → {} {}", letter.from, letter.to, message(&letter.message()))
}

pub fn reply(encoded: &[u8]) -> String {
    let mut reader = Reader::new(encoded);
    let mut elements = Vec::new();
    while let Ok(element) = Reply::decode(&mut reader) {
        elements.push(element);
    }
    match elements.as_slice() {
        [Reply::Array(_), elements @ ..] => elements.iter().map(one).collect::<Vec<_>>().join(", "),
        elements => elements.iter().map(one).collect(),
    }
}

fn one(element: &Reply<'_>) -> String {
    match *element {
        Reply::Ok => "OK".into(),
        Reply::Null => "nothing".into(),
        Reply::Integer(integer) => integer.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Reply::Error(bytes) => text(bytes),
        other => format!("{other:?}"),
    }
}

pub fn outcome(result: &Result, encoded: &[u8]) -> String {
    match result {
        Result::Done { version: 0, .. } => format!("{} [done]", reply(encoded)),
        Result::Done { version, .. } => format!("{} [done {}]", reply(encoded), Tag::of_version(*version)),
        Result::Refused => format!("[refused] {}", reply(encoded)),
        Result::Unknown => format!("[unknown] {}", reply(encoded)),
        Result::Redirect { to } => format!("[redirect to {to}]"),
    }
}

pub fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Refilling { incarnation } => format!("begins life {incarnation} without its memory"),
        Trace::Resumed { incarnation, keys } => {
            format!("goes on in life {incarnation}, with the {keys} keys that it had recorded")
        }
        Trace::Refilled { incarnation, keys } => format!("is refilled in life {incarnation}, {keys} keys"),
        Trace::Begun { incarnation } => format!("the group begins, life {incarnation}"),
        Trace::MemoryLost { members } => format!("stands still: {members:?} have lost their memory"),
        Trace::GivenUp { incarnation } => format!("gives up what it had before life {incarnation}"),
        Trace::RefillServed { to } => format!("gives {to} a copy"),
        Trace::TombstonesCollected { tombstones } => format!("{tombstones} tombstones are forgotten by all"),
        Trace::Rejected { peer, why } => format!("rejected what {peer} sent: {why}"),
        other => format!("{other:?}"),
    }
}

/// The locks that a replica has granted and that last, by key.
pub fn locks(world: &World, id: NodeId) -> Vec<(Vec<u8>, Lock)> {
    let Some(replica) = world.replica(id) else { return Vec::new() };
    replica.locks(world.now(id)).map(|(key, lock)| (key.to_vec(), *lock)).collect()
}

pub fn lock(key: &[u8], lock: &Lock, now_us: u64) -> String {
    let holder = lock.holder;
    let left_ms = lock.expires_us.saturating_sub(now_us) / 1000;
    format!("{} is {}'s {} for {left_ms} ms", text(key), holder.node, named(holder.attempt))
}

pub fn status(status: &Status) -> String {
    let mut line = format!("{}{}", status.role, if status.ready { ", ready" } else { "" });
    let counters = status.counters;
    let counted = [
        (counters.granted, "locks granted"),
        (counters.denied, "denied"),
        (counters.expired, "expired"),
        (counters.writes_denied, "writes denied"),
        (counters.backoffs, "backoffs"),
        (counters.one_round_reads, "reads in one round"),
        (counters.repairs, "repairs"),
        (counters.surplus_released, "surplus locks released"),
        (counters.retries, "retries"),
        (counters.withdrawn, "withdrawn"),
        (counters.refused, "refused"),
        (counters.unknown, "unknown"),
    ];
    for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!(", {count} {what}");
    }
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
