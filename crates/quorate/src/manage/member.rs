//! `quorate node`.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use server::status::words;

use super::Manage;

const EXAMPLES: &str = "\
Examples:
  quorate node list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate node list
  quorate node add 4 10.0.0.4 7000 8000 9000     quorate join also writes its file
  quorate node remove 4
  quorate node replace 3                         its disk is lost; it returns with an empty folder";

/// Add, remove, replace and list nodes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    manage: Manage,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the nodes, with the state of each
    List,
    /// Add a node, which gets its replicas when it has started
    Add {
        /// Its number
        id: u16,
        /// The address at which others reach it
        host: String,
        /// Its port for Redis clients
        client_port: u16,
        /// Its port for HTTP
        http_port: u16,
        /// Its port for other nodes
        peer_port: u16,
    },
    /// Move a node's replicas to others, and then remove it
    Remove {
        /// Its number
        id: u16,
        /// Even if that leaves fewer replicas than there should be
        #[arg(long)]
        force: bool,
    },
    /// Let a dead node return with an empty folder
    Replace {
        /// Its number
        id: u16,
        /// Give up what this node alone held
        #[arg(long)]
        accept_loss: bool,
    },
}

pub(super) fn run(args: &NodeArgs) -> Result<()> {
    let manage = &args.manage;
    match &args.verb {
        Verb::List => list(manage),
        Verb::Add { id, host, client_port, http_port, peer_port } => {
            let numbers = [*id, *client_port, *http_port, *peer_port].map(|number| number.to_string());
            let [id_text, client, http, peer] = numbers.each_ref().map(String::as_str);
            manage.open()?.ask(&["CLUSTER", "ADD", id_text, host, client, http, peer])?;
            manage.done(
                &format!("node {id} is added; start it, and it gets its replicas"),
                &[("node", json!(id)), ("added", json!(true))],
            )
        }
        Verb::Remove { id, force } => {
            let word: &[&str] = if *force { &["FORCE"] } else { &[] };
            manage.open()?.ask(&[&["CLUSTER", "REMOVE", &id.to_string()], word].concat())?;
            manage.done(
                &format!("node {id} leaves: its replicas move to others, and then its process ends"),
                &[("node", json!(id)), ("leaving", json!(true))],
            )
        }
        Verb::Replace { id, accept_loss } => {
            let word: &[&str] = if *accept_loss { &["ACCEPTLOSS"] } else { &[] };
            manage.open()?.ask(&[&["CLUSTER", "REPLACE", &id.to_string()], word].concat())?;
            manage.done(
                &format!("node {id} is a new member of its groups, and gets everything from the others"),
                &[("node", json!(id)), ("replaced", json!(true))],
            )
        }
    }
}

fn list(manage: &Manage) -> Result<()> {
    let standing = manage.standing()?;
    if standing.nodes.is_empty() {
        bail!("no node is known");
    }
    let rows = standing.nodes.iter().map(|node| {
        let leads = standing.keyspaces.iter().flat_map(|keyspace| &keyspace.shards);
        let (mut leads, mut holds) = (leads.filter(|shard| shard.leader == node.node).count(), 0);
        for shard in standing.keyspaces.iter().flat_map(|keyspace| &keyspace.shards) {
            holds += usize::from(shard.members.contains(&node.node));
        }
        if !node.alive {
            leads = 0;
        }
        vec![
            node.node.to_string(),
            node.address.clone(),
            node.state_word().to_owned(),
            format!("{leads} of {holds}"),
            node.facts.as_ref().map_or("-".to_owned(), |facts| words::duration(facts.uptime_s)),
            node.facts.as_ref().map_or("-".to_owned(), |facts| words::bytes(facts.memory.resident)),
            node.error.clone().unwrap_or_default(),
        ]
    });
    let json = serde_json::to_value(&standing.nodes)?;
    manage.rows(&["node", "address", "state", "leads", "up for", "memory", ""], rows.collect(), &json)
}
