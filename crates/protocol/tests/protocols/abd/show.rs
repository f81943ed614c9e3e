//! How messages and statuses of abd are shown in a transcript.

use crate::kit::show::{counts, flag, text};
use crate::registers;
use kv::Register;
use protocol::abd::{Item, Message, Status};
use protocol::registers::message::{Body, Entries, Tags};
use protocol::registers::{LivesView, Past, Tag};

/// The kinds of a message's items, by which scripts pick letters: a turn has the kind of each of its items.
pub(crate) fn kinds(message: &Message<'_>) -> Vec<&'static str> {
    match message {
        Message::Turn { items, .. } => items.iter().map(|item| item_kind(&item)).collect(),
        Message::Upkeep(upkeep) => vec![registers::kind(&upkeep.body)],
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

/// Shows the message's content, then the incarnations that its sender knows of if any is not the first.
pub(crate) fn message(message: &Message<'_>) -> String {
    match message {
        Message::Turn { lives: known, items, .. } => {
            let items: Vec<String> = items.iter().map(|item| self::item(&item)).collect();
            format!("{}{}", items.join("; "), lives(known))
        }
        Message::Upkeep(upkeep) => {
            format!("{}{}{}", registers::kind(&upkeep.body), body(&upkeep.body), lives(&upkeep.lives))
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

/// An operation's name without the part that distinguishes incarnations.
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

fn show_past(past: Past) -> &'static str {
    match past {
        Past::Forgotten => "",
        Past::None => " never started before",
        Past::GivenUp => " given up",
    }
}

fn body(body: &Body<'_>) -> String {
    match body {
        Body::Hello { round, past, .. } => format!(" {round}{}", show_past(*past)),
        Body::Standing { round, ready, past, admitted, .. } => {
            let given_up = !ready && *past == Past::GivenUp;
            format!(
                " {round} {}{}{}",
                if *ready { "ready" } else { "refilling" },
                flag(given_up, " given up"),
                flag(!admitted, " not admitted")
            )
        }
        Body::Fetch { transfer, next, .. } => format!(" transfer {transfer} from chunk {next}"),
        Body::SnapshotChunk { transfer, index, last, entries, .. } => {
            format!(" transfer {transfer} chunk {index}{}, {} bytes", flag(*last, " last"), entries.len())
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

pub(crate) fn status(status: &Status) -> String {
    let mut line = format!("{} in life {}", status.role, status.incarnation);
    line += flag(status.ready, ", ready");
    let (counters, upkeep) = (status.counters, status.upkeep);
    line += &counts(&[
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
    ]);
    for peer in &status.peers {
        let heard = if peer.answering { "answering" } else { "silent" };
        line += &format!("\n  node {} {heard}, life {}", peer.id, peer.incarnation);
    }
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
