//! `quorate keyspace`.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use server::status::{Standing, words};

use super::{ANSWER_WITHIN, Manage, Node, Reply, say, text};
use crate::connection::map_of;

const EXAMPLES: &str = "\
Examples:
  quorate keyspace list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate keyspace list
  quorate keyspace create cart: replication=leader-follower acks=majority
  quorate keyspace create cache: replication=leader-follower acks=none memory_max=2gb eviction=lru --if-not-exists
  quorate keyspace alter cart: acks=all
  quorate keyspace drop cart: --yes

The settings are those of a node's configuration file. \"\" is the default keyspace, which always exists.";

const CREATE_HELP: &str = "\
Settings:
  replication=consensus|leader-follower|abd|blocking   how replicas agree [consensus]
  acks=none|NUMBER|majority|all      leader-follower: the followers that hold a write before it is acknowledged [majority]
  durability=none|os|fsync           what an acknowledged write outlives: nothing, processes, machines [consensus: fsync, others: none]
  reads=linearizable|any             any: every replica answers, perhaps with an older value [linearizable]
  replicas=NUMBER, shards=NUMBER     copies (0: one on each node) [0], and parts with a leader each [1]
  memory_max=BYTES, eviction=none|lru|lfu|lrm|random|ttl|volatile-lru|…   100mb, 2gb [0: no bound, none]
  storage=memory|disk                disk: long values are on the disk, with a cache in front of them [memory]
  changes_bytes=BYTES                changes that are kept for those who follow them, and for backups [0]
and leader, lease, retry, coding, coding_threshold, storage_threshold, backlog_bytes, script_cost_max: see
docs/reference/configuration.md.

Examples:
  quorate keyspace create cart:                                                        nothing is lost
  quorate keyspace create cache: replication=leader-follower acks=none memory_max=2gb eviction=lru
  quorate keyspace create profile: replication=abd                                     no leader: values are written whole";

const ALTER_HELP: &str = "\
Settings that can be changed while the keyspace is in use: acks, reads, lease, retry, coding, coding_threshold, backlog_bytes,
script_cost_max, memory_max, eviction, changes_bytes. The others are chosen when a keyspace is made: quorate keyspace create --help

Examples:
  quorate keyspace alter cart: acks=all
  quorate keyspace alter cache: memory_max=4gb eviction=lfu
  quorate keyspace alter '' changes_bytes=256mb          the default keyspace";

/// Make, change, drop and list keyspaces.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeyspaceArgs {
    #[command(flatten)]
    manage: Manage,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the keyspaces, with each one's promise
    List,
    /// Show every setting of a keyspace
    Get {
        /// The prefix of its keys
        prefix: String,
    },
    /// Make a keyspace for all keys with a prefix
    #[command(after_help = CREATE_HELP)]
    Create {
        /// The prefix of its keys
        prefix: String,
        /// Settings; those that are not given have their defaults
        #[arg(value_name = "SETTING=VALUE")]
        settings: Vec<String>,
        /// Leave a keyspace as it is that is there already, also with other settings
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Change settings of a keyspace while it is in use
    #[command(after_help = ALTER_HELP)]
    Alter {
        /// The prefix of its keys
        prefix: String,
        /// What to change
        #[arg(value_name = "SETTING=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove a keyspace with all its keys
    Drop {
        /// The prefix of its keys
        prefix: String,
        /// Confirm: the keys cannot be restored
        #[arg(long)]
        yes: bool,
    },
    /// Show what an unavailable keyspace of abd or blocking has lost, and continue without it
    Recover {
        /// The prefix of its keys
        prefix: String,
        /// Give up what is lost; a keyspace of consensus whose only replica is lost begins again, empty
        #[arg(long)]
        accept_loss: bool,
    },
}

pub(super) fn run(args: &KeyspaceArgs) -> Result<()> {
    let manage = &args.manage;
    match &args.verb {
        Verb::List => list(manage),
        Verb::Get { prefix } => {
            let settings = manage.open()?.pairs(&["KEYSPACE", "GET", prefix])?;
            let rows = settings.iter().map(|(name, value)| vec![name.clone(), text(value)]).collect();
            manage.rows(&["setting", "value"], rows, &Value::Object(Map::from_iter(settings.clone())))
        }
        Verb::Create { prefix, settings, if_not_exists } => {
            // Creating it again, with the same settings, succeeds: a client may have lost the answer.
            let is_there = manage.open()?.ask(&["KEYSPACE", "GET", prefix]).is_ok();
            let what = if is_there { "exists already with these settings" } else { "is created" };
            match change(manage, "CREATE", what, ("created", !is_there), prefix, settings) {
                Err(error) if *if_not_exists && error.to_string().starts_with("EXISTS ") => manage.done(
                    &format!("keyspace '{}' is there already, and stays as it is", name(prefix)),
                    &[("prefix", json!(prefix)), ("created", json!(false))],
                ),
                done => done,
            }
        }
        Verb::Alter { prefix, settings } => {
            change(manage, "SET", "is altered", ("altered", true), prefix, settings)
        }
        Verb::Drop { prefix, yes } => {
            let standing = manage.standing()?;
            let found = standing.keyspaces.iter().find(|keyspace| keyspace.prefix == *prefix);
            let Some(found) = found else { bail!("there is no keyspace '{prefix}'") };
            let keys = words::counted(found.keys, "key");
            ensure!(
                *yes,
                "this removes keyspace '{}' with its {keys} for good; repeat it with --yes",
                found.name()
            );
            manage.open()?.ask(&["KEYSPACE", "DROP", prefix])?;
            let done = format!("keyspace '{}' with its {keys} is dropped", found.name());
            manage.done(
                &done,
                &[("prefix", json!(prefix)), ("dropped", json!(true)), ("keys", json!(found.keys))],
            )
        }
        Verb::Recover { prefix, accept_loss } => {
            // Replacing the lost nodes with --accept-loss has done it, or they have come back.
            if *accept_loss && is_served(&manage.standing()?, prefix) {
                return manage.done(
                    &format!("keyspace '{}' is served: nothing has to be given up", name(prefix)),
                    &[("prefix", json!(prefix)), ("served", json!(true))],
                );
            }
            let words: &[&str] = if *accept_loss { &["ACCEPTLOSS"] } else { &[] };
            match recover(manage, prefix, words)? {
                Reply::Array(lines) if !manage.json => {
                    lines.into_iter().try_for_each(|line| say(&text(&super::json(line))))
                }
                reply => manage.done(
                    &format!("keyspace '{}' goes on with what is left", name(prefix)),
                    &[("prefix", json!(prefix)), ("reply", super::json(reply))],
                ),
            }
        }
    }
}

/// Asks the nodes that hold replicas, which alone know what is lost: of each shard one, until one knows of a loss.
fn recover(manage: &Manage, prefix: &str, words: &[&str]) -> Result<Reply> {
    let cluster = manage.cluster()?;
    let (_, mut client) = cluster.open(ANSWER_WITHIN)?;
    let map = map_of(&mut client)?;
    let places = cluster.places(&mut client, &map)?;
    let mut groups = map.keyspaces.get(prefix).map(|entry| entry.groups.clone()).unwrap_or_default();
    let command = [&["KEYSPACE", "RECOVER", prefix], words].concat();
    let mut refused = None;
    for (id, place) in &places {
        let holds = |group: &u16| map.groups.get(group).is_some_and(|group| group.members.contains(id));
        if !groups.iter().any(holds) {
            continue;
        }
        let Ok(holder) = cluster.connect(place, ANSWER_WITHIN) else { continue };
        match Node(holder).ask(&command) {
            Ok(reply) => return Ok(reply),
            Err(error) => refused = refused.or(Some(error)),
        }
        groups.retain(|group| !holds(group));
    }
    // None of them can be asked: this node says who they are.
    refused.map_or_else(|| Node(client).ask(&command), Err)
}

fn is_served(standing: &Standing, prefix: &str) -> bool {
    let keyspace = standing.keyspaces.iter().find(|keyspace| keyspace.prefix == prefix);
    keyspace.is_some_and(|keyspace| keyspace.shards.iter().all(|shard| shard.serves && shard.survives >= 0))
}

fn name(prefix: &str) -> &str {
    if prefix.is_empty() { "default" } else { prefix }
}

fn change(
    manage: &Manage,
    verb: &str,
    what: &str,
    (field, is_done): (&str, bool),
    prefix: &str,
    settings: &[String],
) -> Result<()> {
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    manage.open()?.ask(&[&["KEYSPACE", verb, prefix], settings.as_slice()].concat())?;
    let standing = manage.standing()?;
    let promise = standing.keyspaces.iter().find(|keyspace| keyspace.prefix == prefix);
    let promise = promise.map(|keyspace| keyspace.promise.clone()).unwrap_or_default();
    let line = format!("keyspace '{}' {what}\n  {promise}", name(prefix));
    manage.done(&line, &[("prefix", json!(prefix)), (field, json!(is_done)), ("promise", json!(promise))])
}

fn list(manage: &Manage) -> Result<()> {
    let standing = manage.standing()?;
    let rows = standing.keyspaces.iter().map(|keyspace| {
        let bound = match keyspace.memory_max {
            0 => String::new(),
            most => format!(" of {}", words::bytes(most)),
        };
        vec![
            keyspace.name().to_owned(),
            words::number(keyspace.keys),
            format!("{}{bound}", words::bytes(keyspace.memory)),
            keyspace.shards.len().to_string(),
            keyspace.promise.clone(),
        ]
    });
    let json = serde_json::to_value(&standing.keyspaces)?;
    manage.rows(&["keyspace", "keys", "memory", "shards", "promise"], rows.collect(), &json)
}
