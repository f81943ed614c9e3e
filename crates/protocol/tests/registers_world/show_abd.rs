//! How messages, outcomes and changes read in a transcript.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use crate::registers_world::Letter;
use kv::codec::Reader;
use kv::{Command, Deadline, Expiry, Register, Reply};
use protocol::abd::{Item, Message, Status};
use protocol::contract::{Result, Trace};
use protocol::registers::Past;
use protocol::registers::message::{Body, Entries, Message as Upkeep, Tags};
use protocol::registers::{LivesView, Tag};

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn command(command: &Command<'_>) -> String {
    let list = |keys: &kv::List<'_>| keys.iter().map(text).collect::<Vec<_>>().join(" ");
    match command {
        Command::Get { key } => format!("get {}", text(key)),
        Command::MultiGet { keys } => format!("mget {}", list(keys)),
        Command::Exists { keys } => format!("exists {}", list(keys)),
        Command::Delete { keys } => format!("del {}", list(keys)),
        Command::Set { key, value, expiry: Expiry::Set(Deadline::In(ms)), .. } => {
            format!("set {} {} for {ms} ms", text(key), text(value))
        }
        Command::Set { key, value, .. } => format!("set {} {}", text(key), text(value)),
        Command::TimeToLive { key, .. } => format!("pttl {}", text(key)),
        Command::IncrementBy { key, .. } => format!("incr {}", text(key)),
        Command::Keys { .. } => "keys".into(),
        Command::Clear => "flushall".into(),
        _ => format!("{command:?}"),
    }
}

pub fn letter(letter: &Letter) -> String {
    format!("{} → {} {}", letter.from, letter.to, message(&letter.message()))
}

/// The kinds of what a message carries, by which scripts pick letters: a turn is of the kind of each of its items.
pub fn kinds(message: &Message<'_>) -> Vec<&'static str> {
    match message {
        Message::Turn { items, .. } => items.iter().map(|item| item_kind(&item)).collect(),
        Message::Upkeep(upkeep) => vec![upkeep_kind(upkeep)],
    }
}

fn item_kind(item: &Item<'_>) -> &'static str {
    match item {
        Item::Query { .. } => "Query",
        Item::Update { .. } => "Update",
        Item::Same { .. } => "Same",
        Item::Older { .. } => "Older",
        Item::Newer { .. } => "Newer",
        Item::Seen { .. } => "Seen",
        Item::Value { .. } => "Value",
        Item::Held { .. } => "Held",
    }
}

fn upkeep_kind(upkeep: &Upkeep<'_>) -> &'static str {
    match upkeep.body {
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

/// What it carries, then the lives that its sender knows of when any is not the first.
pub fn message(message: &Message<'_>) -> String {
    match message {
        Message::Turn { lives: known, items } => {
            let items: Vec<String> = items.iter().map(|item| self::item(&item)).collect();
            format!("{}{}", items.join("; "), lives(known))
        }
        Message::Upkeep(upkeep) => {
            format!("{}{}{}", upkeep_kind(upkeep), body(&upkeep.body), lives(&upkeep.lives))
        }
    }
}

fn lives(lives: &LivesView<'_>) -> String {
    if lives.iter().all(|life| life == 1) {
        return String::new();
    }
    let lives: Vec<String> = lives.iter().map(|life| life.to_string()).collect();
    format!(" (lives {})", lives.join(","))
}

/// An operation's name without what tells lives apart.
fn operation(id: u64) -> String {
    format!("#{}", id as u32)
}

fn register(register: &Register<'_>) -> String {
    let tag = Tag::of_version(register.version);
    match register.deadline {
        0 => format!("{tag} deleted"),
        Register::NEVER => format!("{tag} {}", text(register.value)),
        deadline => format!("{tag} {} until {deadline}", text(register.value)),
    }
}

fn item(item: &Item<'_>) -> String {
    let kind = item_kind(item);
    match item {
        Item::Query { operation: id, wants_value, tag, key } => {
            let what = if *wants_value { "" } else { " tag only" };
            format!("{kind} {} {} mine {tag}{what}", operation(*id), text(key))
        }
        Item::Update { operation: id, generation, key, register: held } => {
            let generation =
                if *generation == 0 { String::new() } else { format!(" of generation {generation}") };
            format!("{kind} {} {} {}{generation}", operation(*id), text(key), register(held))
        }
        Item::Same { operation: id } | Item::Held { operation: id } => format!("{kind} {}", operation(*id)),
        Item::Older { operation: id, tag }
        | Item::Newer { operation: id, tag, .. }
        | Item::Seen { operation: id, tag, .. } => {
            format!("{kind} {} {tag}", operation(*id))
        }
        Item::Value { operation: id, register: held } => {
            format!("{kind} {} {}", operation(*id), register(held))
        }
    }
}

fn tags(tags: &Tags<'_>) -> String {
    let shown: Vec<String> = tags.iter().map(|(key, tag)| format!("{} {tag}", text(key))).collect();
    format!("[{}]", shown.join(", "))
}

fn entries(entries: &Entries<'_>) -> String {
    let shown: Vec<String> =
        entries.iter().map(|(key, held)| format!("{} {}", text(key), register(&held))).collect();
    format!("[{}]", shown.join(", "))
}

fn told_past(past: Past) -> &'static str {
    match past {
        Past::Forgotten => "",
        Past::None => " never started before",
        Past::GivenUp => " given up",
    }
}

fn body(body: &Body<'_>) -> String {
    let flag = |is_set: bool, text: &'static str| if is_set { text } else { "" };
    match body {
        Body::Hello { round, past, .. } => format!(" {round}{}", told_past(*past)),
        Body::Standing { round, ready, past, admitted, .. } => {
            let given_up = !ready && *past == Past::GivenUp;
            format!(
                " {round} {}{}{}",
                if *ready { "ready" } else { "refilling" },
                flag(given_up, " given up"),
                flag(!admitted, " not admitted")
            )
        }
        Body::Fetch { transfer, next, .. } => format!(" copy {transfer} from chunk {next}"),
        Body::Chunk { transfer, index, last, entries, .. } => {
            format!(" copy {transfer} chunk {index}{}, {} bytes", flag(*last, " last"), entries.len())
        }
        Body::Compare { tags: told, .. } => format!(" {}", tags(told)),
        Body::Same { walk } => format!(" walk {walk}"),
        Body::Differ { wanted, entries: told, .. } => {
            format!(" wanted {} newer {}", tags(wanted), entries(told))
        }
        Body::Repair { entries: told, .. } => format!(" {}", entries(told)),
        Body::Collect { step, generation, tombstones, .. } => {
            let list = if tombstones.is_empty() { String::new() } else { format!(" {}", tags(tombstones)) };
            format!(" {step:?} generation {generation}{list}")
        }
        Body::Collected { step, generation, held, .. } => {
            let list = if held.is_empty() { String::new() } else { format!(" held {held:?}") };
            format!(" {step:?} generation {generation}{list}")
        }
    }
}

pub fn reply(encoded: &[u8]) -> String {
    let mut reader = Reader::new(encoded);
    let mut shown = Vec::new();
    while let Ok(reply) = Reply::decode(&mut reader) {
        shown.push(match reply {
            Reply::Ok => "OK".into(),
            Reply::Null => "nothing".into(),
            Reply::Integer(integer) => integer.to_string(),
            Reply::Bulk(bytes) => format!("\"{}\"", text(bytes)),
            Reply::Error(bytes) => text(bytes),
            Reply::Array(_) => continue,
            other => format!("{other:?}"),
        });
    }
    shown.join(" ")
}

pub fn outcome(result: &Result, encoded: &[u8]) -> String {
    match result {
        Result::Done { version: 0, .. } => reply(encoded),
        Result::Done { version, .. } => format!("{} [tag {}]", reply(encoded), Tag::of_version(*version)),
        Result::Refused => format!("[refused] {}", reply(encoded)),
        Result::Unknown => format!("[unknown] {}", reply(encoded)),
        Result::Redirect { to } => format!("[redirect to {to}]"),
    }
}

pub fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Refilling { incarnation } => format!("starts empty in life {incarnation}"),
        Trace::Resumed { incarnation, keys } => {
            format!("goes on in life {incarnation}, with the {keys} keys that it had recorded")
        }
        Trace::Refilled { incarnation, keys } => {
            format!("is refilled with {keys} keys and ready in life {incarnation}")
        }
        Trace::Begun { incarnation } => format!("begins with nothing in life {incarnation}"),
        Trace::MemoryLost { members } => format!("stands still: {members:?} have lost their memory"),
        Trace::GivenUp { incarnation } => format!("gives up what it had before life {incarnation}"),
        Trace::RefillServed { to } => format!("begins a copy for {to}"),
        Trace::TombstonesCollected { tombstones } => format!("{tombstones} tombstones are collected"),
        Trace::Rejected { peer, why } => format!("rejected what {peer} sent: {why}"),
        other => format!("{other:?}"),
    }
}

pub fn status(status: &Status) -> String {
    let mut line = format!("{} in life {}", status.role, status.incarnation);
    line += if status.ready { ", ready" } else { "" };
    let (counters, upkeep) = (status.counters, status.upkeep);
    for (count, what) in [
        (status.open_operations as u64, "operations open"),
        (status.tombstones as u64, "tombstones"),
        (counters.one_round_reads, "reads in one round"),
        (counters.two_round_reads, "reads in two"),
        (counters.write_backs, "write-backs"),
        (counters.retries, "retries"),
        (counters.refused, "refused"),
        (counters.unknown, "unknown"),
        (upkeep.refills, "refills"),
        (upkeep.repaired_keys, "keys repaired"),
        (upkeep.collected_tombstones, "tombstones collected"),
    ] {
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    for peer in &status.peers {
        let heard = if peer.answering { "answering" } else { "silent" };
        line += &format!("\n  node {} {heard}, life {}", peer.id, peer.incarnation);
    }
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
