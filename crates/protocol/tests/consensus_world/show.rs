//! How messages, outcomes and changes read in a transcript.

use super::Letter;
use kv::codec::Reader;
use kv::locks::Word;
use kv::{Command, Deadline, Expiry, Hold, LockCommand, Reply};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::util::{LogSync, SequenceNumber};
use protocol::consensus::{Body, Entry, Status};
use protocol::contract::{Notice, Result, Trace};

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
        Command::Purge { until } => format!("purge until {until}"),
        Command::Lock(command) => lock(&command),
        Command::Fenced(fenced) => {
            let inner = fenced.command().map_or(String::new(), |inner| self::command(&inner));
            format!("{inner} with token {} of {}", fenced.token, text(fenced.name))
        }
        _ => format!("{command:?}"),
    }
}

fn lock(command: &LockCommand<'_>) -> String {
    match *command {
        LockCommand::Acquire { name, owner, hold: Hold::Lease(ms), waiter } => {
            let waits = waiter.map_or(String::new(), |it| format!(", waits as {} of {}", it.number, it.node));
            format!("lock {} for {} and {ms} ms{waits}", text(name), text(owner))
        }
        LockCommand::Renew { name, token, lease_ms } => {
            format!("renew {} of {token} for {lease_ms} ms", text(name))
        }
        LockCommand::Release { name, token } => format!("unlock {} of {token}", text(name)),
        LockCommand::Describe { name } => format!("info {}", text(name)),
        LockCommand::Expire { name, token, number } => {
            format!("lease {number} of {} of {token} is over", text(name))
        }
        LockCommand::Forsake { node, .. } => format!("nobody waits at node {node}"),
        _ => format!("{command:?}"),
    }
}

/// What a request that waits is told. Behind a copy nothing is told: that is told already.
pub fn notice(notice: &Notice) -> Option<String> {
    let Notice::Told { waiter, name, word, offset } = notice else { return None };
    let word = match word {
        Word::Granted(token) => format!("granted {} with token {token}", text(name)),
        Word::SessionOver => "its session is over".into(),
        Word::Superseded => "its owner asked again".into(),
        Word::Forsaken => "given up".into(),
    };
    Some(format!("tells {} of node {}: {word} [offset {offset}]", waiter.number, waiter.node))
}

/// An entry: who proposed it, which of its proposals it is, and what it holds.
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

pub fn letter(letter: &Letter) -> String {
    let message = letter.message();
    let shown = format!("{} → {} {}", letter.from, letter.to, body(&message.body));
    match message.envelope.configuration {
        1 => shown,
        configuration => format!("{shown} [configuration {configuration}]"),
    }
}

pub fn kind(letter: &Letter) -> String {
    letter.message().body.kind().to_string()
}

/// A transfer: the sender's life, and which one in it.
fn name(transfer: &u64) -> String {
    format!("transfer {}.{}", transfer >> 32, transfer & 0xffff_ffff)
}

/// Kind first, then what it carries, last the ballot.
pub fn body(body: &Body<'_>) -> String {
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
        Body::CopyBegin { transfer, moment } => {
            format!("{} of {} entries, offset {}", name(transfer), moment.index, moment.offset)
        }
        Body::CopyChunk { transfer, index, chunk } => {
            format!("{} chunk {index}, {} bytes", name(transfer), chunk.len())
        }
        Body::CopyEnd { transfer, chunks, round, rest, voters: _ } => {
            format!(
                "{} of {chunks} chunks, behind it {} in {}",
                name(transfer),
                entries(rest),
                ballot(*round)
            )
        }
        Body::CopyProgress { transfer, next: u32::MAX } => format!("{} whole", name(transfer)),
        Body::CopyProgress { transfer, next } => format!("{} next {next}", name(transfer)),
        Body::Behind { index, asks } => format!("{index}{}", if *asks { ", asks for help" } else { "" }),
        Body::Decided { configuration, from, entries: list } => {
            format!("of configuration {configuration} from {from} {}", entries(list))
        }
        Body::Newer { members } => format!("of {members:?}"),
        Body::Outlived { voter } => format!("by life {}", voter.identity.life),
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

/// What a table holds for a key: its value, version and deadline.
pub fn fetched(encoded: &[u8]) -> String {
    let mut reader = Reader::new(encoded);
    let mut shown = Vec::new();
    while let Ok(one) = Reply::decode(&mut reader) {
        shown.push(match one {
            Reply::Bulk(bytes) => text(bytes),
            Reply::Integer(integer) => integer.to_string(),
            _ => String::new(),
        });
    }
    shown.join(" ")
}

pub fn reply(encoded: &[u8]) -> String {
    match Reply::first(encoded) {
        Reply::Status(status) => text(status),
        Reply::Map(_) => fields(encoded),
        Reply::Ok => "OK".into(),
        Reply::Null => "nothing".into(),
        Reply::Integer(integer) => integer.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Reply::Error(bytes) => text(bytes),
        other => format!("{other:?}"),
    }
}

/// The fields of a lock's description.
fn fields(encoded: &[u8]) -> String {
    let mut reader = Reader::new(encoded);
    let element = |reader: &mut Reader<'_>| match Reply::decode(reader) {
        Ok(Reply::Bulk(bytes)) => text(bytes),
        Ok(Reply::Integer(value)) => value.to_string(),
        Ok(Reply::Null) => "none".into(),
        other => format!("{other:?}"),
    };
    element(&mut reader); // The head.
    let mut fields = Vec::new();
    while !reader.is_empty() {
        fields.push(format!("{} {}", element(&mut reader), element(&mut reader)));
    }
    fields.join(", ")
}

pub fn outcome(result: &Result, encoded: &[u8]) -> String {
    match result {
        Result::Done { offset: 0, .. } => format!("{} [done]", reply(encoded)),
        Result::Done { offset, .. } => format!("{} [done offset {offset}]", reply(encoded)),
        Result::Refused => format!("[refused] {}", reply(encoded)),
        Result::Unknown => format!("[unknown] {}", reply(encoded)),
        Result::Redirect { to } => format!("[redirect to {to}]"),
    }
}

pub fn trace(trace: &Trace) -> String {
    match trace {
        Trace::Role { role: role @ ("voter" | "outsider"), epoch, offset } => {
            format!("begins configuration {epoch} as {role}, holds up to {offset}")
        }
        Trace::Role { role, epoch, offset } => {
            format!("becomes {role} in ballot {epoch}, holds up to {offset}")
        }
        Trace::Committed { offset } => format!("committed up to {offset}"),
        Trace::FullResync { follower, offset, why } => format!("sends {follower} a copy at {offset}: {why}"),
        Trace::Installed { offset, keys } => format!("installed a copy of {keys} keys at {offset}"),
        Trace::Rejected { peer, why } => format!("rejected what {peer} sent: {why}"),
        Trace::ResyncAbandoned { follower, why } => format!("gave up the copy for {follower}: {why}"),
        Trace::EpochPassed { epoch } => {
            format!("raises its ballot, as {epoch} was promised to somebody who is gone")
        }
        other => format!("{other:?}"),
    }
}

pub fn status(status: &Status) -> String {
    let mut line = format!(
        "{} in ballot {} of leader {}, holds {}, applied {}",
        status.role, status.epoch, status.leader, status.offset, status.applied
    );
    for (is_so, what) in [
        (status.ready, "ready"),
        (status.writable, "writable"),
        (status.leased, "leased"),
        (status.resyncing, "gets a copy"),
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
