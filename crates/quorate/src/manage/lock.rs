//! `quorate lock`.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{Manage, Reply, pairs, text};

const EXAMPLES: &str = "\
Examples:
  quorate lock list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate lock list
  quorate lock get job:7
  quorate lock release job:7 --token 1045        the lock of an owner that has crashed";

/// List, describe and release locks.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    manage: Manage,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the locks that are held, with their owners and waiting clients
    List {
        /// The maximum number of locks to request from each node
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        count: u64,
    },
    /// Show the holder of a lock, for how long, and how many clients wait
    Get {
        /// The lock's name
        name: String,
    },
    /// Release a lock in place of its owner, so that the next waiting client gets it
    Release {
        /// The lock's name
        name: String,
        /// The token that it is held with, as `get` shows it: a lock that has another owner by now stays held
        #[arg(long, value_name = "TOKEN")]
        token: u64,
    },
}

pub(super) fn run(args: &LockArgs) -> Result<()> {
    let manage = &args.manage;
    match &args.verb {
        Verb::List { count } => list(manage, *count),
        Verb::Get { name } => {
            let facts = manage.open()?.pairs(&["LOCK.INFO", name])?;
            ensure!(!facts.is_empty(), "nobody holds the lock '{name}'");
            let rows = facts.iter().map(|(name, value)| vec![name.clone(), text(value)]).collect();
            let facts = facts.iter().map(|(name, value)| (name.replace('-', "_"), value.clone()));
            let fields = Map::from_iter([("name".to_owned(), json!(name))].into_iter().chain(facts));
            manage.rows(&["", ""], rows, &Value::Object(fields))
        }
        Verb::Release { name, token } => {
            let released = manage.open()?.ask(&["UNLOCK", name, &token.to_string()])?;
            ensure!(
                released == Reply::Integer(1),
                "the lock '{name}' is not held with the token {token} any more"
            );
            manage.done(
                &format!("the lock '{name}' is released"),
                &[("name", json!(name)), ("token", json!(token)), ("released", json!(true))],
            )
        }
    }
}

/// Asks all nodes, through one: each has the locks of its replicas. The leader's entry counts, as followers are
/// behind.
fn list(manage: &Manage, count: u64) -> Result<()> {
    let standing = manage.standing()?;
    let leader_of = |keyspace: &str, shard: &Value| {
        let keyspace = standing.keyspaces.iter().find(|it| it.prefix == keyspace)?;
        keyspace.shards.iter().find(|it| json!(it.shard) == *shard).map(|it| it.leader)
    };
    let (mut node, mut locks) = (manage.open()?, BTreeMap::new());
    for id in standing.nodes.iter().filter(|node| node.reached).map(|node| node.node) {
        let words = ["CLUSTER", "ASK", &id.to_string(), "LOCK.LIST", "COUNT", &count.to_string()];
        let Reply::Array(listed) = node.ask(&words)? else { bail!("node {id} lists no locks") };
        for lock in listed {
            let fields = fields_of(lock);
            let key = (text(&fields["keyspace"]), text(&fields["name"]));
            let leads = leader_of(&key.0, &fields["shard"]) == Some(id);
            if leads || !locks.contains_key(&key) {
                locks.insert(key, fields);
            }
        }
    }
    let rows = locks.values().map(|lock| {
        let waiting: Vec<String> = lock["waiting"].as_array().into_iter().flatten().map(text).collect();
        let more = lock["waiters"].as_u64().unwrap_or(0).saturating_sub(waiting.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let held = match &lock["session"] {
            Value::Null => format!("{} ms", text(&lock["lease_ms"])),
            session => format!("session {}", text(session)),
        };
        let (name, owner, token) = (text(&lock["name"]), text(&lock["owner"]), text(&lock["token"]));
        vec![name, owner, token, held, waiting.join(", ") + &more]
    });
    let json = Value::Array(locks.values().cloned().collect());
    manage.rows(&["lock", "owner", "token", "held for", "waiting"], rows.collect(), &json)
}

/// A lock of `LOCK.LIST`, with the fields of `LOCK.INFO` on the same level as the rest.
fn fields_of(lock: Reply) -> Value {
    let mut fields = Map::new();
    let Reply::Array(mut list) = lock else { return Value::Object(fields) };
    // The state of the lock is a list within the list.
    let place = list.iter().position(|item| *item == Reply::Bulk(b"lock".to_vec()));
    if let Some(place) = place.filter(|place| place + 1 < list.len()) {
        let inner = list.remove(place + 1);
        list.remove(place);
        fields.extend(pairs(inner).into_iter().map(|(name, value)| (name.replace('-', "_"), value)));
    }
    fields.extend(pairs(Reply::Array(list)));
    // Only the leader measures it, and only when asked for this lock.
    fields.remove("left_ms");
    Value::Object(fields)
}
