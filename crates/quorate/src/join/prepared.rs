//! `quorate join --config FILE`: adds a node whose file exists already, as in a pod of Kubernetes, before each of its starts.
//!
//! The same command runs in front of nodes that begin a new cluster, of members that were restarted, and of new nodes. Only a
//! running cluster tells these apart. So where none answers, the node starts without it if it may be one that begins the
//! cluster, or a member of it.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use cluster::control::NodeState;
use node::NodeId;
use server::Config;

use super::add;
use crate::connection::{Cluster, map_of};
use crate::output::say;

/// How long a node of the cluster may be silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// For how long a new node tries to be added. After that its supervisor starts this command again, with the reason in the log.
const ADD_WITHIN: Duration = Duration::from_secs(120);

/// For how long a node that has a folder looks for the cluster before it starts as it is: all nodes may be starting.
const LOOK_FOR: Duration = Duration::from_secs(30);

const BETWEEN: Duration = Duration::from_secs(1);

/// What the running cluster says.
enum Found {
    /// The node is a member, or has just become one.
    Member,
    /// It could not be added, or not yet.
    NotAdded(anyhow::Error),
    /// No other node answers with a map.
    NoAnswer(anyhow::Error),
}

/// Has the node of a file added to the running cluster, unless that has it.
///
/// # Errors
/// A new node could not be added.
pub(super) fn run(file: &Path, beginners: NodeId) -> Result<()> {
    let config = Config::read(file)?;
    let node = config.node;
    let others = Cluster::of_others(&config)?;
    if others.addresses.is_empty() {
        say(&format!("node {node} begins a cluster of its own: {} names no other node", file.display()));
        return Ok(());
    }
    let may_start_alone = node <= beginners || config.data.join("storage").exists();
    let patience = match (node <= beginners, may_start_alone) {
        (true, _) => Duration::ZERO,
        (false, true) => LOOK_FOR,
        (false, false) => ADD_WITHIN,
    };
    let asked_at = Instant::now();
    let mut said = String::new();
    loop {
        let why = match look(&config, &others) {
            Found::Member => return Ok(()),
            Found::NoAnswer(error) if asked_at.elapsed() >= patience => {
                if may_start_alone {
                    say(&format!("node {node} starts as it is: no other node answers ({error:#})"));
                    return Ok(());
                }
                return Err(error).with_context(|| {
                    format!("node {node} is new, and no node of the cluster answers that could add it")
                });
            }
            Found::NotAdded(error) if asked_at.elapsed() >= ADD_WITHIN || is_final(&error) => {
                return Err(error).with_context(|| not_added(&config));
            }
            Found::NoAnswer(error) | Found::NotAdded(error) => error,
        };
        let line = format!("node {node} is not added yet: {why:#}; trying again");
        if line != said {
            say(&line);
            said = line;
        }
        sleep(BETWEEN);
    }
}

/// Looks for the cluster, and has the node added. A node that is cut off may have an old map, so the others are asked, too.
fn look(config: &Config, others: &Cluster) -> Found {
    let (mut failed, mut not_added) = (Vec::new(), None);
    for address in &others.addresses {
        let asked = others.connect(address, ANSWER_WITHIN).and_then(|mut client| {
            let map = map_of(&mut client).with_context(|| address.clone())?;
            Ok((client, map))
        });
        let node = config.node;
        let outcome = match asked {
            Ok((mut client, map)) => match map.nodes.get(&node) {
                Some(known) if known.state == NodeState::Leaving => {
                    Err(anyhow!("node {node} is being removed from the cluster"))
                }
                Some(_) => {
                    say(&format!("node {node} is a member of the cluster"));
                    Ok(())
                }
                None => config.own().and_then(|own| add(&mut client, own)),
            },
            Err(error) => {
                failed.push(format!("{error:#}"));
                continue;
            }
        };
        match outcome {
            Ok(()) => return Found::Member,
            Err(error) => not_added = Some(error),
        }
    }
    not_added.map_or_else(|| Found::NoAnswer(anyhow!("{}", failed.join("; "))), Found::NotAdded)
}

/// Whether trying again does not mend it: a right is missing.
fn is_final(error: &anyhow::Error) -> bool {
    error.to_string().starts_with("NOPERM")
}

fn not_added(config: &Config) -> String {
    let (node, file) = (config.node, config.file.display());
    match config.operator_password {
        Some(_) => format!("node {node} was not added to the cluster"),
        None => format!(
            "node {node} was not added to the cluster: {file} needs operator_password, since only operators add nodes"
        ),
    }
}
