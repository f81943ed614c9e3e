//! `quorate node`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use cluster::control::NodeState;
use node::NodeId;
use serde_json::json;
use server::status::standing::{self, Replica, Shard};
use server::status::{Standing, words};

use super::{ANSWER_WITHIN, Manage, Node, say};
use crate::connection::{Cluster, Refusal, map_of};

/// For how long a removal that is refused is tried again: nodes come and go while others are removed.
const REFUSED_FOR: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  quorate node list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate node list
  quorate node add 4 10.0.0.4 7000 8000 9000     quorate join also writes its file
  quorate node remove 4
  quorate node remove --above 3 --wait           nodes 4, 5 and so on, the last one first, until they have left
  quorate node drain 2                           before maintenance: others lead what it leads
  quorate node drain 2 --end                     it may lead again
  quorate node lead cart: 3                      node 3 leads the keyspace, now and whenever it can
  quorate node lead --spread                     each node leads as many as any other, one handover at a time
  quorate node replace 3                         its disk is lost; it returns with an empty folder";

/// Add, remove, replace, drain and list nodes; move leaders.
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
        #[arg(required_unless_present = "above", conflicts_with = "above")]
        id: Option<u16>,
        /// Even if that leaves fewer replicas than there should be
        #[arg(long)]
        force: bool,
        /// Instead: all nodes with greater numbers than this one, each when the one before has left
        #[arg(long, value_name = "NUMBER", requires = "wait")]
        above: Option<u16>,
        /// Return when the replicas have moved and the node has left
        #[arg(long)]
        wait: bool,
    },
    /// Have others lead what a node leads, until you end that
    Drain {
        /// Its number
        id: u16,
        /// It may lead again, and leads again what it is preferred to lead
        #[arg(long)]
        end: bool,
    },
    /// Have a node lead a keyspace or a group, now and whenever it can
    Lead {
        /// The keyspace's prefix ("default" for the default keyspace), or a group's number
        #[arg(required_unless_present = "spread", conflicts_with = "spread")]
        keyspace: Option<String>,
        /// The node's number; by default the one that leads fewest
        id: Option<u16>,
        /// Instead: move leaders, one at a time, until no node leads two more than another that could lead one of them
        #[arg(long)]
        spread: bool,
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
        Verb::Remove { id: Some(id), force, wait: false, .. } => {
            ask_to_remove(&mut manage.open()?, *id, *force)?;
            manage.done(
                &format!("node {id} leaves: its replicas move to others, and then its process ends"),
                &[("node", json!(id)), ("leaving", json!(true))],
            )
        }
        Verb::Remove { id, force, above, .. } => remove(manage, *id, *above, *force),
        Verb::Drain { id, end: true } => {
            manage.open()?.ask(&["CLUSTER", "DRAIN", &id.to_string(), "END"])?;
            manage.done(
                &format!("node {id} may lead again; what it is preferred to lead returns to it when it has been well for 10 s"),
                &[("node", json!(id)), ("drained", json!(false))],
            )
        }
        Verb::Drain { id, end: false } => drain(manage, *id),
        Verb::Lead { keyspace: None, .. } => spread(manage),
        Verb::Lead { keyspace: Some(keyspace), id, .. } => {
            let id_text = id.map(|id| id.to_string());
            let words = ["CLUSTER", "LEAD", keyspace].into_iter().chain(id_text.as_deref());
            manage.open()?.ask(&words.collect::<Vec<_>>())?;
            let to = id.map_or("the node that leads fewest".to_owned(), |id| format!("node {id}"));
            manage.done(
                &format!("{to} leads '{keyspace}' in a moment, and whenever it can"),
                &[("keyspace", json!(keyspace)), ("node", json!(id))],
            )
        }
        Verb::Replace { id, accept_loss } => {
            let word: &[&str] = if *accept_loss { &["ACCEPTLOSS"] } else { &[] };
            manage.open()?.ask(&[&["CLUSTER", "REPLACE", &id.to_string()], word].concat())?;
            let rest = match accept_loss {
                true => {
                    "what the others hold; start it with an empty folder. quorate status names keyspaces that it alone held"
                }
                false => "everything from the others; start it with an empty folder",
            };
            manage.done(
                &format!("node {id} is a new member of its groups, and gets {rest}"),
                &[("node", json!(id)), ("replaced", json!(true))],
            )
        }
    }
}

fn ask_to_remove(node: &mut Node, id: u16, force: bool) -> Result<()> {
    let word: &[&str] = if force { &["FORCE"] } else { &[] };
    node.ask(&[&["CLUSTER", "REMOVE", &id.to_string()], word].concat()).map(drop)
}

/// Removes one node or all above a number, the one with the highest number first, and waits until they have left.
fn remove(manage: &Manage, id: Option<u16>, above: Option<u16>, force: bool) -> Result<()> {
    let mut cluster = manage.cluster()?;
    let mut removed: Vec<u16> = Vec::new();
    let (mut failed_since, mut said): (Option<Instant>, String) = (None, String::new());
    loop {
        match remove_step(&mut cluster, id, above, force) {
            Ok(None) => break,
            Ok(Some(leaves)) => {
                failed_since = None;
                if !removed.contains(&leaves) {
                    removed.push(leaves);
                    if !manage.json {
                        say(&format!("node {leaves} leaves: its replicas move to others"))?;
                    }
                }
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if failed_since.get_or_insert_with(Instant::now).elapsed() >= REFUSED_FOR => {
                return Err(error);
            }
            Err(error) => {
                let line = format!("not yet: {error:#}; trying again for {} s", REFUSED_FOR.as_secs());
                if line != said && !manage.json {
                    say(&line)?;
                    said = line;
                }
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let ids: Vec<String> = removed.iter().map(u16::to_string).collect();
    let text = match ids.as_slice() {
        [] => match (id, above) {
            (Some(id), _) => format!("the cluster has no node {id}"),
            (None, above) => format!("the cluster has no node above {}", above.unwrap_or_default()),
        },
        [one] => format!("node {one} has left the cluster"),
        several => format!("nodes {} have left the cluster", several.join(", ")),
    };
    manage.done(&text, &[("removed", json!(removed))])
}

/// Whether a removal is refused for a reason that does not pass by itself: one of the cluster map, or of this client.
fn is_final(error: &anyhow::Error) -> bool {
    // `open` says it of each node, and keeps the text only.
    let text = format!("{error:#}");
    let is_of_client = ["NOPERM ", "NOAUTH ", "WRONGPASS "].iter().any(|code| text.contains(code));
    // `… cannot be removed now: …` is about nodes that are not there, and `…; try again` about changes under way.
    let is_of_map = text.starts_with("ERR ")
        && ["cannot be removed: ", "cannot be removed without FORCE: ", "is the last one of the cluster"]
            .iter()
            .any(|words| text.contains(words));
    is_of_client || is_of_map || error.downcast_ref::<Refusal>().is_some()
}

/// Asks for the next removal, unless it is under way. Returns the node that leaves; `None` when all have left.
fn remove_step(
    cluster: &mut Cluster,
    id: Option<NodeId>,
    above: Option<NodeId>,
    force: bool,
) -> Result<Option<NodeId>> {
    let (_, mut client) = cluster.open(ANSWER_WITHIN)?;
    let map = map_of(&mut client)?;
    // The node that was asked may be one that leaves.
    *cluster = cluster.with_others(&mut client, &map)?;
    let is_asked_for = |node: &NodeId| above.map_or(id == Some(*node), |above| *node > above);
    let Some((next, node)) = map.nodes.iter().rev().find(|(node, _)| is_asked_for(node)) else {
        return Ok(None);
    };
    if node.state != NodeState::Leaving {
        ask_to_remove(&mut Node(client), *next, force)?;
    }
    Ok(Some(*next))
}

/// Drains a node, and waits until it leads nothing that another node could lead.
fn drain(manage: &Manage, id: u16) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    manage.open()?.ask(&["CLUSTER", "DRAIN", &id.to_string()])?;
    let by = Instant::now() + PATIENCE;
    loop {
        let standing = manage.standing()?;
        let led = standing.keyspaces.iter().filter(|keyspace| {
            let mut shards = keyspace.shards.iter();
            shards.any(|shard| shard.leader == id && shard.members.iter().any(|member| *member != id))
        });
        let led: Vec<String> = led.map(|keyspace| format!("'{}'", keyspace.prefix)).collect();
        let drained = [("node", json!(id)), ("drained", json!(true)), ("leads", json!(led))];
        if led.is_empty() {
            let text = format!(
                "node {id} leads nothing that another node can lead, until: quorate node drain {id} --end"
            );
            return manage.done(&text, &drained);
        }
        if Instant::now() >= by {
            bail!(
                "node {id} is to lead nothing, and still leads {}: no other replica of them is up and in step. It hands them over as \
                 soon as one is (quorate status shows which)",
                led.join(", ")
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Moves leaders until the nodes that may lead have about as many each.
fn spread(manage: &Manage) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut moved = Vec::new();
    loop {
        let (mut standing, map) = (manage.standing()?, map_of(&mut manage.open()?.0)?);
        let may_lead = |node: &&standing::Node| node.alive && !node.drained && !node.leaving;
        let nodes: Vec<NodeId> = standing.nodes.iter().filter(may_lead).map(|node| node.node).collect();
        // What is about to return to its preferred leader counts as led by that.
        for shard in standing.keyspaces.iter_mut().flat_map(|it| &mut it.shards) {
            let preferred = map.preferred_leader(shard.group);
            if nodes.contains(&preferred) {
                shard.leader = preferred;
            }
        }
        let shards = standing.keyspaces.iter().flat_map(|it| &it.shards);
        let Some(Move { group, from, to }) = next_move(&nodes, shards) else {
            let text = match moved.len() {
                0 => "no leader has to move".to_owned(),
                count => format!(
                    "{} moved: no node leads two more than another that could",
                    words::count(count, "leader")
                ),
            };
            return manage.done(&text, &[("moved", json!(moved))]);
        };
        manage.open()?.ask(&["CLUSTER", "LEAD", &group.to_string(), &to.to_string()])?;
        let by = Instant::now() + PATIENCE;
        let leads = |standing: &Standing| {
            let mut shards = standing.keyspaces.iter().flat_map(|it| &it.shards);
            shards.any(|shard| shard.group == group && shard.leader == to)
        };
        while !leads(&manage.standing()?) {
            if Instant::now() >= by {
                bail!(
                    "node {to} is to lead group {group} instead of node {from}, and does not within {} s: its replica may not be in \
                     step (quorate status). It leads as soon as it can; then say this again for the others",
                    PATIENCE.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !manage.json {
            say(&format!("group {group}: node {to} leads instead of node {from}"))?;
        }
        moved.push(json!({ "group": group, "from": from, "to": to }));
    }
}

/// A leader that moves.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    group: u16,
    from: NodeId,
    to: NodeId,
}

/// The next move, from a node that leads at least two more shards than the other one. Each makes the numbers more even, so
/// they come to an end.
fn next_move<'a>(nodes: &[NodeId], shards: impl Iterator<Item = &'a Shard>) -> Option<Move> {
    let shards: Vec<&Shard> = shards.filter(|shard| nodes.contains(&shard.leader)).collect();
    let led = |node: NodeId| shards.iter().filter(|shard| shard.leader == node).count();
    let counts: BTreeMap<NodeId, usize> = nodes.iter().map(|node| (*node, led(*node))).collect();
    let moves = shards.iter().flat_map(|shard| {
        let can_lead = |it: &&Replica| it.sound && it.node != shard.leader && nodes.contains(&it.node);
        let others = shard.replicas.iter().filter(can_lead).collect::<Vec<_>>();
        others.into_iter().map(move |replica| Move {
            group: shard.group,
            from: shard.leader,
            to: replica.node,
        })
    });
    let gain = |it: &Move| counts[&it.from].saturating_sub(counts[&it.to]);
    moves.filter(|it| gain(it) >= 2).max_by_key(|it| (gain(it), std::cmp::Reverse(it.group)))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard with its members, the first of which leads it.
    fn shard(group: u16, members: &[NodeId]) -> Shard {
        let replica = |node: &NodeId| Replica {
            node: *node,
            role: "follower".to_owned(),
            ready: true,
            sound: true,
            lag_records: 0,
            lag_ms: 0,
        };
        Shard {
            group,
            shard: 0,
            members: members.to_vec(),
            leader: members[0],
            epoch: 1,
            in_sync: members.to_vec(),
            serves: true,
            survives: 1,
            replicas: members.iter().map(replica).collect(),
        }
    }

    /// How many each of three nodes leads after all moves, and how many there were.
    fn spread(nodes: &[NodeId], mut shards: Vec<Shard>) -> ([usize; 3], usize) {
        let mut count = 0;
        while let Some(Move { group, from, to }) = next_move(nodes, shards.iter()) {
            let shard = shards.iter_mut().find(|shard| shard.group == group).unwrap();
            assert!(shard.leader == from && shard.members.contains(&to) && nodes.contains(&to));
            (shard.leader, count) = (to, count + 1);
        }
        let led = [1, 2, 3].map(|node| shards.iter().filter(|shard| shard.leader == node).count());
        (led, count)
    }

    #[test]
    fn a_removal_is_tried_again_only_if_its_refusal_may_pass() {
        for last in [
            "ERR node 3 cannot be removed without FORCE: of the control group 2 of 3 replicas would be left",
            "ERR node 3 cannot be removed: it holds a replica of keyspace 'r:', whose members cannot be changed yet",
            "ERR node 1 is the last one of the cluster",
            "NOPERM this user may not run 'cluster|remove'",
            "no node can be reached: 127.0.0.1:7000: it refuses the password: WRONGPASS invalid username-password pair",
        ] {
            assert!(is_final(&anyhow::anyhow!("{last}")), "{last}");
        }
        for passing in [
            "ERR node 3 cannot be removed now: without it 1 of 2 replicas of the control group would be left that answer",
            "ERR shard 0 of keyspace 'a:': its members have changed and it is not settled yet; try again",
            "TRYAGAIN NOLEADER the control group has no leader",
            "UNKNOWN the change may have been made",
            "no node can be reached: 127.0.0.1:7000: cannot connect to 127.0.0.1:7000: Connection refused",
        ] {
            assert!(!is_final(&anyhow::anyhow!("{passing}")), "{passing}");
        }
    }

    #[test]
    fn leaders_are_spread_with_no_move_too_many() {
        let all_at_3 = |count: u16| (1..=count).map(|group| shard(group, &[3, 1, 2])).collect::<Vec<_>>();
        assert_eq!(spread(&[1, 2, 3], all_at_3(6)), ([2, 2, 2], 4));
        assert_eq!(spread(&[1, 2, 3], all_at_3(1)), ([0, 0, 1], 0));
        let (led, moves) = spread(&[1, 2, 3], all_at_3(7));
        assert_eq!(
            (led.iter().sum::<usize>(), led.iter().max(), led.iter().min(), moves),
            (7, Some(&3), Some(&2), 4)
        );
        // Node 2 is down or drained; node 1 holds one of them only.
        assert_eq!(spread(&[1, 3], all_at_3(4)), ([2, 0, 2], 2));
        let few = vec![shard(1, &[3, 1]), shard(2, &[3]), shard(3, &[3]), shard(4, &[3])];
        assert_eq!(spread(&[1, 2, 3], few), ([1, 0, 3], 1));
        // A replica that is not in step cannot take over, and shards of registers have no leader.
        let mut behind = all_at_3(4);
        behind.iter_mut().flat_map(|shard| &mut shard.replicas).for_each(|it| it.sound = it.node != 2);
        assert_eq!(spread(&[1, 2, 3], behind), ([2, 0, 2], 2));
        let registers = (1..=4).map(|group| Shard { leader: 0, ..shard(group, &[1, 2, 3]) }).collect();
        assert_eq!(spread(&[1, 2, 3], registers), ([0, 0, 0], 0));
    }
}
