//! How messages, locks and statuses of `blocking` are shown in a transcript.

use super::World;
use crate::kit::show::{counts, text};
use crate::registers;
use kv::Register;
use protocol::blocking::{Answer, Ask, Items, Lock, Message, Status};
use protocol::contract::NodeId;
use protocol::registers::Tag;

/// Shows what a key holds, under the tag of its write.
pub(crate) fn register(register: Register<'_>) -> String {
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

/// Shows an attempt as its number, after its coordinator's incarnation if that is not the first.
fn named(attempt: u64) -> String {
    match (attempt >> 40, attempt & ((1 << 40) - 1)) {
        (1, number) => format!("#{number}"),
        (life, number) => format!("#{life}.{number}"),
    }
}

/// Shows a grant as the replica's incarnation and the grant's number within it.
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
pub(crate) fn kinds(message: &Message<'_>) -> Vec<&'static str> {
    match message {
        Message::Turn { items: Items { asks, answers }, .. } => {
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
        Message::Upkeep(message) => vec![registers::kind(&message.body)],
    }
}

/// Shows all items of a message, or which upkeep it is.
pub(crate) fn message(message: &Message<'_>) -> String {
    match message {
        Message::Turn { items: Items { asks, answers }, .. } => {
            asks.iter().map(ask).chain(answers.iter().map(answer)).collect::<Vec<_>>().join(", ")
        }
        Message::Upkeep(message) => registers::kind(&message.body).into(),
    }
}

/// The locks that a replica has granted and that last, by key.
pub(crate) fn locks(world: &World, id: NodeId) -> Vec<(Vec<u8>, Lock)> {
    let Some(replica) = world.replica(id) else { return Vec::new() };
    replica.locks(world.now(id)).map(|(key, lock)| (key.to_vec(), *lock)).collect()
}

pub(crate) fn lock(key: &[u8], lock: &Lock, now_us: u64) -> String {
    let holder = lock.holder;
    let left_ms = lock.expires_us.saturating_sub(now_us) / 1000;
    format!("{} is {}'s {} for {left_ms} ms", text(key), holder.node, named(holder.attempt))
}

pub(crate) fn status(status: &Status) -> String {
    let mut line = format!("{}{}", status.role, if status.ready { ", ready" } else { "" });
    let counters = status.counters;
    line += &counts(&[
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
    ]);
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
