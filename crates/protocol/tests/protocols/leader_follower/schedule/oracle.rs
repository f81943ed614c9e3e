//! What must hold after every step, and which answers clients may get.

use crate::kit::history::Question;
use crate::kit::schedule::{Check, Ending};
use crate::leader_follower::{World, peek};
use kv::{Command, Reply};
use protocol::Replica as _;
use protocol::Ticket;
use protocol::contract::{NodeId, Result as Outcome, Trace};
use protocol::leader_follower::Acks;
use std::collections::BTreeMap;

/// The keys that are written. `counter` is only added to; `fleeting` is set to expire and not checked by value.
pub(crate) const KEYS: [&str; 2] = ["x", "y"];
pub(crate) const COUNTER: &str = "counter";
pub(crate) const FLEETING: &str = "fleeting";

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Pending,
    Happened,
    NeverHappened,
}

/// Remembers the answers to clients and what replicas have shown.
pub(crate) struct Oracle {
    acks: Acks,
    /// Several histories exist: followers may still show one that was given up (`acks = none`).
    forked: bool,
    /// The least version of its key that each open read must see at the leader.
    least: BTreeMap<Ticket, u64>,
    fates: BTreeMap<String, Fate>,
    /// The newest version of each key that any client knows, from a write's or a read's outcome.
    known: BTreeMap<String, u64>,
    /// The value of each version. A version is an offset: one history has one value for it.
    values: BTreeMap<(String, u64), String>,
    /// The digest of the table after each applied offset.
    digests: BTreeMap<u64, u64>,
    /// The last offset that each node ever held.
    held: BTreeMap<NodeId, u64>,
    added_surely: i64,
    added_perhaps: i64,
    /// The newest write that was acknowledged to a client.
    acknowledged: u64,
    /// The fewest followers for which `acks` has waited so far.
    pub(crate) needed: usize,
}

impl Oracle {
    pub(crate) fn new(acks: Acks, needed: usize) -> Oracle {
        Oracle {
            acks,
            forked: false,
            least: BTreeMap::new(),
            fates: BTreeMap::new(),
            known: BTreeMap::new(),
            values: BTreeMap::new(),
            digests: BTreeMap::new(),
            held: BTreeMap::new(),
            added_surely: 0,
            added_perhaps: 0,
            acknowledged: 0,
            needed,
        }
    }

    /// With `acks = none` a new leader may begin another history: then no acknowledged write has to last.
    pub(crate) fn forget_promises(&mut self) {
        if self.acks == Acks::None {
            self.forked = true;
            self.least.clear();
            self.known.clear();
            self.values.clear();
            self.digests.clear();
            self.added_perhaps += std::mem::take(&mut self.added_surely);
        }
    }

    pub(crate) fn ask(&mut self, ticket: Ticket, question: &Question) {
        match question {
            Question::Get { keys } => {
                self.least.insert(ticket, self.known.get(&keys[0]).copied().unwrap_or(0));
            }
            Question::Set { value, .. } => {
                self.fates.insert(value.clone(), Fate::Pending);
            }
            _ => {}
        }
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Checks the outcome of a client's request. `linearizable` is false for a read at a follower.
    pub(crate) fn answer(&mut self, ending: &Ending<'_>, linearizable: bool) -> Check {
        if let Outcome::Done { offset, .. } = ending.result {
            self.acknowledged = self.acknowledged.max(*offset);
        }
        let least = self.least.remove(&ending.ticket).unwrap_or(0);
        match (ending.question, ending.result) {
            (Question::Set { key, value }, Outcome::Done { version, .. }) => {
                self.fates.insert(value.clone(), Fate::Happened);
                self.learn(key, *version);
                self.is_value(key, *version, value)
            }
            (Question::Set { value, .. }, Outcome::Refused | Outcome::Redirect { .. }) => {
                match self.fates.insert(value.clone(), Fate::NeverHappened) {
                    Some(Fate::Happened) => Err(format!("{value} was refused after it was seen")),
                    _ => Ok(()),
                }
            }
            (Question::Add { .. }, Outcome::Done { .. }) => {
                self.added_surely += 1;
                Ok(())
            }
            (Question::Add { .. }, Outcome::Unknown) => {
                self.added_perhaps += 1;
                Ok(())
            }
            (Question::Get { keys }, Outcome::Done { version, .. }) => {
                let key = &keys[0];
                if linearizable && *version < least {
                    return Err(format!("a read of {key} saw version {version} after {least} was returned"));
                }
                if self.forked && !linearizable {
                    return Ok(());
                }
                self.learn(key, *version);
                self.see(key, *version, ending.reply)
            }
            (Question::Get { .. }, Outcome::Unknown) if ending.by.is_some() => {
                Err("a read's outcome is unknown".into())
            }
            _ => Ok(()),
        }
    }

    fn learn(&mut self, key: &str, version: u64) {
        let known = self.known.entry(key.into()).or_default();
        *known = version.max(*known);
    }

    fn see(&mut self, key: &str, version: u64, reply: &[u8]) -> Check {
        let value = match Reply::first(reply) {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Null => return Ok(()),
            other => return Err(format!("a read of {key} answered {other:?}")),
        };
        match self.fates.insert(value.clone(), Fate::Happened) {
            None => return Err(format!("{key} holds {value}, which nobody wrote")),
            Some(Fate::NeverHappened) => return Err(format!("{key} holds {value}, which was refused")),
            Some(Fate::Pending | Fate::Happened) => {}
        }
        self.is_value(key, version, &value)
    }

    fn is_value(&mut self, key: &str, version: u64, value: &str) -> Check {
        let known = self.values.entry((key.into(), version)).or_insert_with(|| value.to_string());
        match known == value {
            true => Ok(()),
            false => Err(format!("version {version} of {key} is {value} and was {known}")),
        }
    }

    /// Checks a replica after its step.
    pub(crate) fn look(&mut self, world: &World, id: NodeId, traces: &[Trace]) -> Check {
        let (Some(replica), Some(status)) = (world.replica(id), world.status(id)) else {
            return Ok(());
        };
        let held = self.held.entry(id).or_default();
        *held = status.offset.max(*held);
        if status.applied > status.offset {
            return Err(format!("node {id} applied {} and holds {}", status.applied, status.offset));
        }
        let changed = |trace: &Trace| matches!(trace, Trace::Committed { .. } | Trace::Installed { .. });
        if self.forked || !traces.iter().any(changed) {
            return Ok(()); // There is nothing to compare it with, or its table has not changed.
        }
        let digest = replica.table().digest();
        let known = *self.digests.entry(status.applied).or_insert(digest);
        if known != digest {
            return Err(format!("node {id} differs from others that applied {}", status.applied));
        }
        let holders = self.held.values().filter(|held| **held >= status.applied).count();
        if holders <= self.needed {
            return Err(format!("node {id} shows {}, which {holders} nodes ever held", status.applied));
        }
        Ok(())
    }

    /// Checks that when the group is whole again, all nodes hold everything that was acknowledged.
    pub(crate) fn settle(&mut self, world: &mut World) -> Check {
        for id in world.alive() {
            for key in KEYS {
                // An array of three (value, version, deadline), or null.
                let reply = peek(world, id, &Command::Fetch { key: key.as_bytes() });
                let mut reader = kv::codec::Reader::new(&reply);
                let mut next = || Reply::decode(&mut reader).unwrap_or(Reply::Null);
                let (value, version) = match next() {
                    Reply::Array(_) => (next(), next()),
                    _ => (Reply::Null, Reply::Integer(0)),
                };
                let version = if let Reply::Integer(version) = version { version as u64 } else { 0 };
                let known = self.known.get(key).copied().unwrap_or(0);
                if version < known {
                    return Err(format!(
                        "node {id} has version {version} of {key}, and {known} was returned"
                    ));
                }
                let mut reply = kv::ReplyBuffer::new();
                reply.push(value);
                self.see(key, version, reply.as_bytes())?;
            }
            let reply = peek(world, id, &Command::Get { key: COUNTER.as_bytes() });
            let count = match Reply::first(&reply) {
                Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).parse().unwrap_or(-1),
                _ => 0,
            };
            let (least, most) = (self.added_surely, self.added_surely + self.added_perhaps);
            if count < least || count > most {
                return Err(format!("node {id} counts {count}, and {least} to {most} were added"));
            }
        }
        Ok(())
    }
}
