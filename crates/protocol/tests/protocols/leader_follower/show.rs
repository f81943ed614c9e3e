//! How messages, records and statuses of leader-follower are shown in a transcript.

use crate::kit::show::{commands, counts, flag, nodes};
use kv::codec::Reader;
use protocol::leader_follower::record::{Change, RecordedBatch};
use protocol::leader_follower::{Message, Status};

/// The kind of a message, by which scripts pick letters.
pub(crate) fn kind(message: &Message<'_>) -> &'static str {
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

/// The kind first, then the content, last the sender's epoch. `#` names a request and its answers.
pub(crate) fn message(message: &Message<'_>) -> String {
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
                commands(bytes).join(", "),
                flag(acknowledge, " ack")
            )
        }
        Message::Acknowledge { join, offset, rests, .. } => {
            format!("#{join} {offset}{}", flag(rests, " rests"))
        }
        Message::Join { last, applied, join, .. } => format!("#{join} last {last} applied {applied}"),
        Message::Resume { join, after, head, .. } => format!("#{join} after {after} head {head}"),
        Message::SnapshotBegin { join, transfer, moment, head, kept, .. } => {
            let kept = kept.map_or("unknown".to_string(), |kept| kept.to_string());
            format!("#{join} transfer {transfer} at {} head {head} kept {kept}", moment.position)
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

/// Shows a replica's record, change by change.
pub(crate) fn record(record: &[u8]) -> String {
    let mut reader = Reader::new(record);
    let mut shown = Vec::new();
    while !reader.is_empty() {
        let batch = |batch: RecordedBatch<'_>| {
            let last = batch.first + u64::from(batch.count) - 1;
            format!("{}..{last}@{} [{}]", batch.first, batch.epoch, commands(batch.records).join(", "))
        };
        shown.push(match Change::take(&mut reader).expect("replicas write what can be read") {
            Change::Epoch { epoch, leads } => {
                format!("Epoch {epoch}{}", if leads { ", leads" } else { "" })
            }
            Change::Intact(intact) => if intact { "Intact" } else { "Not intact" }.into(),
            Change::Batch { batch: recorded, commit } => format!("Batch {} commit {commit}", batch(recorded)),
            Change::Truncate { after } => format!("Truncate after {after}"),
            Change::Commit { offset } => format!("Commit {offset}"),
            Change::SnapshotBegin(moment) => format!("SnapshotBegin at {}", moment.position),
            Change::SnapshotChunk(chunk) => format!("SnapshotChunk of {} bytes", chunk.len()),
            Change::SnapshotBatch(recorded) => format!("SnapshotBatch {}", batch(recorded)),
            Change::SnapshotEnd => "SnapshotEnd".into(),
        });
    }
    shown.join("; ")
}

pub(crate) fn status(status: &Status) -> String {
    let mut line = format!(
        "{} in epoch {} of leader {}, holds {}, applied {}, backlog after {}",
        status.role, status.epoch, status.leader, status.offset, status.applied, status.backlog_start
    );
    line += flag(status.ready, ", ready");
    line += flag(status.writable, ", writable");
    line += &format!(", in sync {}", nodes(&status.in_sync));
    if status.lag > 0 {
        line += &format!(", lag {} records for {} ms", status.lag, status.lag_ms);
    }
    let counters = status.counters;
    line += &counts(&[
        (counters.partial_resyncs, "partial resyncs"),
        (counters.transfers, "snapshot transfers"),
        (counters.truncated_records, "records cut off"),
        (counters.lost_writes, "acknowledged writes lost"),
        (counters.refused_writes, "writes refused"),
        (counters.unknown_writes, "writes unknown"),
    ]);
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
