//! How messages, changes and statuses of `consensus` are shown in a transcript.

use crate::kit::show::{self, command};
use kv::Command;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::util::{LogSync, SequenceNumber};
use protocol::consensus::{Body, Entry, Message, Status};
use protocol::contract::Trace;

/// Shows the message's content, and its configuration if that is not the first one.
pub(crate) fn message(message: &Message<'_>) -> String {
    let shown = body(&message.body);
    match message.envelope.configuration {
        1 => shown,
        configuration => format!("{shown} [configuration {configuration}]"),
    }
}

/// Shows an entry: its proposer, its number among the proposer's proposals, and what it holds.
fn entry(entry: &Entry) -> String {
    let head = entry.head();
    let mut reader = entry.commands();
    let mut commands = Vec::new();
    if let Some(stop_sign) = entry.stop_sign() {
        commands.push(format!("stop-sign: configuration {} of {:?}", stop_sign.id, stop_sign.members));
    }
    while let Ok(one) = Command::decode(&mut reader) {
        commands.push(command(&one));
    }
    format!(
        "{}.{}: {}",
        head.proposer.node,
        head.proposer.batch,
        if commands.is_empty() { "empty".into() } else { commands.join(", ") }
    )
}

fn entries(list: &[Entry]) -> String {
    format!("[{}]", list.iter().map(entry).collect::<Vec<_>>().join("; "))
}

/// A ballot: its number and its node.
fn ballot(ballot: Ballot) -> String {
    format!("{}@{}", ballot.n, ballot.pid)
}

fn sequence(number: SequenceNumber) -> String {
    format!("#{}.{}", number.session, number.counter)
}

fn sync(sync: &LogSync<Entry>) -> String {
    format!("from {} {}", sync.sync_idx, entries(&sync.suffix))
}

/// Shows a transfer: the sender's incarnation, and the transfer's number in it.
fn name(transfer: &u64) -> String {
    format!("transfer {}.{}", transfer >> 32, transfer & 0xffff_ffff)
}

/// The kind first, then the content, last the ballot.
fn body(body: &Body<'_>) -> String {
    let rest = match body {
        Body::Heartbeat(HeartbeatMsg::Request(request)) => format!("round {}", request.round),
        Body::Heartbeat(HeartbeatMsg::Reply(reply)) => format!(
            "round {} own {} follows {}{}",
            reply.round,
            ballot(reply.ballot),
            ballot(reply.leader),
            if reply.happy { "" } else { " unhappy" }
        ),
        Body::Paxos(message) => paxos(message),
        Body::Position { ballot: of, end, decided } => {
            format!("end {end} decided {decided} ({})", ballot(*of))
        }
        Body::Confirm { ballot: of, number } | Body::Confirmed { ballot: of, number } => {
            format!("?{number} ({})", ballot(*of))
        }
        Body::SnapshotBegin { transfer, moment } => {
            format!("{} of {} entries, offset {}", name(transfer), moment.index, moment.offset)
        }
        Body::SnapshotChunk { transfer, index, chunk } => {
            format!("{} chunk {index}, {} bytes", name(transfer), chunk.len())
        }
        Body::SnapshotEnd { transfer, chunks, round, rest, voters: _ } => {
            format!(
                "{} of {chunks} chunks, behind it {} in {}",
                name(transfer),
                entries(rest),
                ballot(*round)
            )
        }
        Body::SnapshotProgress { transfer, next: u32::MAX } => format!("{} whole", name(transfer)),
        Body::SnapshotProgress { transfer, next } => format!("{} next {next}", name(transfer)),
        Body::Behind { index, asks } => format!("{index}{}", if *asks { ", asks for help" } else { "" }),
        Body::Decided { configuration, from, entries: list } => {
            format!("of configuration {configuration} from {from} {}", entries(list))
        }
        Body::Newer { members } => format!("of {members:?}"),
        Body::Outlived { voter } => format!("by life {}", voter.identity.life),
        Body::HandOver { ballot: of } => format!("({})", ballot(*of)),
        Body::LedBefore { ballot: of } => format!("({})", ballot(*of)),
    };
    format!("{} {rest}", body.kind())
}

fn paxos(message: &PaxosMsg<Entry>) -> String {
    match message {
        PaxosMsg::PrepareReq(request) => format!("({})", ballot(request.n)),
        PaxosMsg::Prepare(prepare) => format!(
            "accepted {} in {} decided {} ({})",
            prepare.accepted_idx,
            ballot(prepare.n_accepted),
            prepare.decided_idx,
            ballot(prepare.n)
        ),
        PaxosMsg::Promise(promise) => format!(
            "accepted {} in {} decided {}{} ({})",
            promise.accepted_idx,
            ballot(promise.n_accepted),
            promise.decided_idx,
            promise.log_sync.as_ref().map(|it| format!(" brings {}", sync(it))).unwrap_or_default(),
            ballot(promise.n)
        ),
        PaxosMsg::AcceptSync(accept) => format!(
            "{} {} decided {} ({})",
            sequence(accept.seq_num),
            sync(&accept.log_sync),
            accept.decided_idx,
            ballot(accept.n)
        ),
        PaxosMsg::AcceptDecide(accept) => format!(
            "{} {} decided {} ({})",
            sequence(accept.seq_num),
            entries(&accept.entries),
            accept.decided_idx,
            ballot(accept.n)
        ),
        PaxosMsg::Accepted(accepted) => format!("{} ({})", accepted.accepted_idx, ballot(accepted.n)),
        PaxosMsg::NotAccepted(refusal) => format!("({})", ballot(refusal.n)),
        PaxosMsg::Decide(decide) => {
            format!("{} {} ({})", sequence(decide.seq_num), decide.decided_idx, ballot(decide.n))
        }
        other => format!("{other:?}"),
    }
}

pub(crate) fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Role { role: role @ ("voter" | "outsider"), epoch, offset } => {
            format!("begins configuration {epoch} as {role}, holds up to {offset}")
        }
        Trace::Role { role, epoch, offset } => {
            format!("becomes {role} in ballot {epoch}, holds up to {offset}")
        }
        Trace::EpochPassed { epoch } => {
            format!("raises its ballot, as {epoch} was promised to somebody who is gone")
        }
        other => show::trace(other),
    }
}

pub(crate) fn status(status: &Status) -> String {
    let mut line = format!(
        "{} in ballot {} of leader {}, holds {}, applied {}",
        status.role, status.epoch, status.leader, status.offset, status.applied
    );
    for (is_so, what) in [
        (status.ready, "ready"),
        (status.writable, "writable"),
        (status.leased, "leased"),
        (status.receives_snapshot, "receives a snapshot"),
    ] {
        line += &if is_so { format!(", {what}") } else { String::new() };
    }
    if status.configuration != 1 {
        line += &format!(", configuration {} of {:?}", status.configuration, status.members);
    }
    if status.next_configuration > 0 {
        line += &format!(", to be followed by {}", status.next_configuration);
    }
    for (node, index) in &status.learners {
        line += &format!(", learner {node} at {index}");
    }
    for (is_so, what) in [(status.removed, "removed"), (status.excluded, "excluded")] {
        line += &if is_so { format!(", {what}") } else { String::new() };
    }
    if status.log_start > 0 {
        line += &format!(", log cut before {}", status.log_start);
    }
    if !status.explanation.is_empty() {
        line += &format!("\n  not ready: {}", status.explanation);
    }
    line
}
