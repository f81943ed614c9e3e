//! How messages, outcomes and changes read in a transcript.

use super::Letter;
use kv::codec::Reader;
use kv::{Command, Deadline, Expiry, Reply};
use protocol::contract::{NodeId, Result, Trace, Wish};
use protocol::leader_follower::record::{Change, RecordedBatch};
use protocol::leader_follower::{Message, Status};

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
        Command::IncrementBy { key, .. } => format!("incr {}", text(key)),
        Command::Delete { keys } => format!("del {}", keys.iter().map(text).collect::<Vec<_>>().join(" ")),
        Command::Purge { until } => format!("purge until {until}"),
        _ => format!("{command:?}"),
    }
}

fn records(records: &[u8]) -> String {
    let mut reader = Reader::new(records);
    let mut shown = Vec::new();
    while let Ok(record) = Command::decode(&mut reader) {
        shown.push(command(&record));
    }
    shown.join(", ")
}

pub fn letter(letter: &Letter) -> String {
    format!("{} → {} {}", letter.from, letter.to, message(&letter.message()))
}

/// The kind of a message, by which scripts pick letters.
pub fn kind(message: &Message<'_>) -> &'static str {
    match message {
        Message::Append { count: 0, .. } => "Heartbeat",
        Message::Append { .. } => "Append",
        Message::Acknowledge { .. } => "Acknowledge",
        Message::Join { .. } => "Join",
        Message::Resume { .. } => "Resume",
        Message::SnapshotBegin { .. } => "SnapshotBegin",
        Message::SnapshotChunk { .. } => "SnapshotChunk",
        Message::SnapshotEnd { .. } => "SnapshotEnd",
        Message::SnapshotProgress { .. } => "SnapshotProgress",
        Message::Probe { .. } => "Probe",
        Message::Holding { .. } => "Holding",
        Message::Fetch { .. } => "Fetch",
        Message::Stale { .. } => "Stale",
    }
}

/// Kind first, then what it carries, last the sender's epoch. `#` names a question and its answers.
pub fn message(message: &Message<'_>) -> String {
    let (kind, epoch) = (kind(message), message.epoch());
    let body = match *message {
        Message::Append { previous, count: 0, commit, leader_offset, acknowledge, rest, .. } => {
            format!(
                "after {previous} commit {commit} head {leader_offset}{}{}",
                flag(acknowledge, " ack"),
                flag(rest, " rest")
            )
        }
        Message::Append {
            previous,
            batch_epoch,
            count,
            commit,
            leader_offset,
            acknowledge,
            records: bytes,
            ..
        } => {
            let written =
                if batch_epoch == epoch { String::new() } else { format!(" of epoch {batch_epoch}") };
            format!(
                "after {previous} +{count}{written} [{}] commit {commit} head {leader_offset}{}",
                records(bytes),
                flag(acknowledge, " ack")
            )
        }
        Message::Acknowledge { join, offset, rests, .. } => {
            format!("#{join} {offset}{}", flag(rests, " rests"))
        }
        Message::Join { last, applied, join, .. } => format!("#{join} last {last} applied {applied}"),
        Message::Resume { join, after, head, .. } => format!("#{join} after {after} head {head}"),
        Message::SnapshotBegin { join, transfer, position, head, kept, .. } => {
            let kept = kept.map_or("unknown".to_string(), |kept| kept.to_string());
            format!("#{join} transfer {transfer} at {position} head {head} kept {kept}")
        }
        Message::SnapshotChunk { transfer, index, entries, .. } => {
            format!("transfer {transfer} chunk {index}, {} bytes", entries.len())
        }
        Message::SnapshotEnd { transfer, chunks, .. } => format!("transfer {transfer} of {chunks} chunks"),
        Message::SnapshotProgress { transfer, next, .. } => format!("transfer {transfer} next {next}"),
        Message::Fetch { last, applied, join, .. } => format!("#{join} last {last} applied {applied}"),
        Message::Probe { .. } | Message::Stale { .. } => String::new(),
        Message::Holding { last, intact, .. } => {
            format!("last {last}{}", if intact { " intact" } else { " not intact" })
        }
    };
    let space = flag(!body.is_empty(), " ");
    format!("{kind}{space}{body} (epoch {epoch})")
}

fn flag(is_set: bool, text: &'static str) -> &'static str {
    if is_set { text } else { "" }
}

pub fn reply(encoded: &[u8]) -> String {
    match Reply::first(encoded) {
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
        Result::Done { offset: 0, version: 0 } => format!("{} [done]", reply(encoded)),
        Result::Done { offset: 0, version } => format!("{} [read version {version}]", reply(encoded)),
        Result::Done { offset, .. } => format!("{} [done offset {offset}]", reply(encoded)),
        Result::Refused => format!("[refused] {}", reply(encoded)),
        Result::Unknown => format!("[unknown] {}", reply(encoded)),
        Result::Redirect { to } => format!("[redirect to {to}]"),
    }
}

pub fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Role { role, epoch, offset } => {
            format!("becomes {role} in epoch {epoch}, holds up to {offset}")
        }
        Trace::Committed { offset } => format!("committed up to {offset}"),
        Trace::PartialResync { follower, after } => format!("partial resync of {follower} after {after}"),
        Trace::FullResync { follower, offset, why } => {
            format!("full resync of {follower} at {offset}: {why}")
        }
        Trace::Installed { offset, keys } => format!("installed a snapshot of {keys} keys at {offset}"),
        Trace::Truncated { after, records } => format!("cut off {records} records after {after}"),
        Trace::LostWrites { epoch, records } => {
            format!("{records} acknowledged writes of epoch {epoch} were lost")
        }
        Trace::Leased { leased } => if *leased { "has a lease" } else { "has no lease" }.into(),
        Trace::Follower { follower, live } => {
            format!("follower {follower} {}", if *live { "is live" } else { "is silent" })
        }
        Trace::EpochPassed { epoch } => format!("its epoch has passed, {epoch} is the newest"),
        Trace::Rejected { peer, why } => format!("rejected what {peer} sent: {why}"),
        Trace::ResyncAbandoned { follower, why } => format!("gave up the resync of {follower}: {why}"),
        Trace::Refilling { incarnation } => format!("refills itself in life {incarnation}"),
        Trace::Resumed { incarnation, keys } => {
            format!("goes on in life {incarnation}, with the {keys} keys that it had recorded")
        }
        Trace::Refilled { incarnation, keys } => {
            format!("is refilled with {keys} keys in life {incarnation}")
        }
        Trace::Begun { incarnation } => format!("begins empty in life {incarnation}"),
        Trace::MemoryLost { members } => format!("stands still: {members:?} have lost their memory"),
        Trace::GivenUp { incarnation } => format!("gives up what it had before life {incarnation}"),
        Trace::RefillServed { to } => format!("gives {to} a copy"),
        Trace::TombstonesCollected { tombstones } => format!("{tombstones} tombstones are collected"),
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(",")
}

pub fn wish(wish: &Wish) -> String {
    match wish {
        Wish::InSync { epoch, in_sync } => format!("wishes in epoch {epoch} in sync {}", list(in_sync)),
    }
}

/// What a record of a replica's says, change by change.
pub fn record(record: &[u8]) -> String {
    let mut reader = Reader::new(record);
    let mut shown = Vec::new();
    while !reader.is_empty() {
        let batch = |batch: RecordedBatch<'_>| {
            let last = batch.first + u64::from(batch.count) - 1;
            format!("{}..{last}@{} [{}]", batch.first, batch.epoch, records(batch.records))
        };
        shown.push(match Change::take(&mut reader).expect("replicas write what can be read") {
            Change::Epoch { epoch, leads } => {
                format!("Epoch {epoch}{}", if leads { ", leads" } else { "" })
            }
            Change::Intact(intact) => if intact { "Intact" } else { "Not intact" }.into(),
            Change::Batch { batch: recorded, commit } => format!("Batch {} commit {commit}", batch(recorded)),
            Change::Truncate { after } => format!("Truncate after {after}"),
            Change::Commit { offset } => format!("Commit {offset}"),
            Change::CopyBegin { position, .. } => format!("CopyBegin at {position}"),
            Change::CopyChunk(chunk) => format!("CopyChunk of {} bytes", chunk.len()),
            Change::CopyBatch(recorded) => format!("CopyBatch {}", batch(recorded)),
            Change::CopyEnd => "CopyEnd".into(),
        });
    }
    shown.join("; ")
}

pub fn status(status: &Status) -> String {
    let mut line = format!(
        "{} in epoch {} of leader {}, holds {}, applied {}, backlog after {}",
        status.role, status.epoch, status.leader, status.offset, status.applied, status.backlog_start
    );
    line += flag(status.ready, ", ready");
    line += flag(status.writable, ", writable");
    line += &format!(", in sync {}", list(&status.in_sync));
    if status.lag > 0 {
        line += &format!(", lag {} records for {} ms", status.lag, status.lag_ms);
    }
    let counters = status.counters;
    let counted = [
        (counters.partial_resyncs, "partial resyncs"),
        (counters.full_resyncs, "full resyncs"),
        (counters.truncated_records, "records cut off"),
        (counters.lost_writes, "acknowledged writes lost"),
        (counters.refused_writes, "writes refused"),
        (counters.unknown_writes, "writes unknown"),
    ];
    for (count, what) in counted.into_iter().filter(|(count, _)| *count > 0) {
        line += &format!(", {count} {what}");
    }
    for follower in &status.followers {
        line += &format!("\n  follower {} {}, acknowledged {}", follower.id, follower.state, follower.acked);
        if follower.lag > 0 {
            line += &format!(", lag {} records for {} ms", follower.lag, follower.lag_ms);
        }
    }
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
