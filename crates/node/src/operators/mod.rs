//! `KEYSPACE` and `CLUSTER`: requests about the cluster map, from operators and from clients that know Redis Cluster.
//!
//! The hash slots are those of the default keyspace: a cluster-aware client that sends a key of another keyspace to
//! the node of its slot is still served, by forwarding.

pub(crate) mod asking;
pub(crate) mod history;
pub(crate) mod lock_list;
pub(crate) mod notes;
pub(crate) mod recent;
mod slots;

use crate::context::status::{group_status, leader_of, quarantined};
use crate::context::{Call, Confirmation, Context};
use crate::groups::replica::recovery_line;
use crate::maintenance::quarantine;
use crate::membership::handovers;
use crate::session::{ClientId, ClientKind};
use cluster::configuration::NodeAddress;
use cluster::control::{
    CONTROL_GROUP, Change, ClusterMap, Feature, QuarantineStep, Refusal, Saved, Slots, refuse,
};
use cluster::keyspace::{Keyspace, idle_with};
use cluster::setting::{Protocol, Setting as _};
use cluster::slots::slot_of;
use cluster::words::{quoted, word};
use commands::{ClusterCommand, KeyspaceCommand, printable};
use kv::table::Eviction;
use kv::{Reply, ReplyBuffer};
use protocol::NodeId;
use protocol::planted::Fault;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use wire::resp::Arguments;

/// The result of a request to recover a keyspace.
enum Recovery {
    /// What is lost.
    Loss(Vec<String>),
    /// The change that accepts the loss.
    Wanted(Box<Change>),
}

/// A range of the default keyspace's slots, and the nodes that serve it.
struct Range<'a> {
    slots: Slots,
    leader: NodeId,
    members: &'a [NodeId],
    group: u16,
}

/// Whether a group answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Now,
    /// Enough of its members can be reached: it will answer, for example once they have elected a leader.
    Soon,
    Not,
}

// KEYSPACE

pub(crate) fn keyspace_command(
    cx: &mut Context,
    client: ClientId,
    command: KeyspaceCommand,
    arguments: Arguments<'_>,
) {
    let change = match command {
        KeyspaceCommand::List => {
            let prefixes: Vec<String> = cx.map.keyspaces.keys().cloned().collect();
            return cx.answer(client, |replies| {
                replies.array(prefixes.len());
                prefixes.iter().for_each(|prefix| replies.bulk(prefix.as_bytes()));
            });
        }
        // Carried out by `following`.
        KeyspaceCommand::Changes
        | KeyspaceCommand::Copy
        | KeyspaceCommand::Watch
        | KeyspaceCommand::Unwatch => return,
        KeyspaceCommand::Get => return keyspace_get(cx, client, &arguments[2]),
        KeyspaceCommand::Drop => text(&arguments[2]).map(|prefix| Change::DropKeyspace(prefix.to_string())),
        KeyspaceCommand::Recover => match recovery(cx, &arguments[2], arguments.get(3)) {
            Ok(Recovery::Loss(lines)) => {
                return cx.answer(client, |replies| {
                    replies.array(lines.len());
                    lines.iter().for_each(|line| replies.bulk(line.as_bytes()));
                });
            }
            Ok(Recovery::Wanted(change)) => Ok(*change),
            Err(why) => Err(why),
        },
        KeyspaceCommand::Create => words(arguments).and_then(|(prefix, settings)| {
            let settings = std::iter::once(("prefix", prefix)).chain(settings);
            let keyspace = Keyspace::of_settings(settings)?;
            if keyspace.database() != 0 {
                cx.map.require(Feature::Databases)?;
            }
            require_eviction(cx, keyspace.eviction)?;
            Ok(Change::CreateKeyspace(keyspace))
        }),
        KeyspaceCommand::Set => words(arguments).and_then(|(prefix, settings)| {
            refuse_idle(cx, prefix, &settings)?;
            let eviction = settings.iter().find(|(name, _)| *name == Eviction::NAME);
            if let Some(eviction) = eviction.and_then(|(_, value)| Eviction::parse(value)) {
                require_eviction(cx, eviction)?;
            }
            let settings: BTreeMap<String, String> =
                settings.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            Ok(Change::SetKeyspace { prefix: prefix.to_string(), settings })
        }),
    };
    change_or_refuse(cx, client, change);
}

/// Checked before it is sent, too: a control leader of release 1 would not know the word.
fn require_eviction(cx: &Context, eviction: Eviction) -> Result<(), Refusal> {
    match eviction.goes_by_writes() {
        true => cx.map.require(Feature::EvictionByWrites),
        false => Ok(()),
    }
}

/// Refuses settings that mean nothing with a keyspace's protocol, also with the value that they have.
fn refuse_idle(cx: &Context, prefix: &str, settings: &Settings<'_>) -> Result<(), Refusal> {
    let Some(keyspace) = cx.map.keyspaces.get(prefix).map(|entry| &entry.keyspace) else { return Ok(()) };
    let idle = settings.iter().find_map(|(setting, _)| idle_with(keyspace.replication, setting));
    if let Some((setting, owner)) = idle {
        let (name, protocol) = (keyspace.name(), keyspace.replication.text());
        refuse!("keyspace '{name}' uses {protocol}, and {setting} is for {}", owner.text());
    }
    Ok(())
}

fn keyspace_get(cx: &mut Context, client: ClientId, prefix: &[u8]) {
    let found = text(prefix).ok().and_then(|prefix| cx.map.keyspaces.get(prefix));
    let Some(entry) = found else {
        return refuse(cx, client, &Refusal::NoKeyspace(String::from_utf8_lossy(prefix).into_owned()));
    };
    let settings = entry.keyspace.settings();
    cx.answer(client, |replies| {
        replies.map(settings.len());
        for (name, value) in &settings {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
    });
}

/// What is lost of a keyspace that serves nothing, as far as its replicas here know. With `ACCEPTLOSS`, the change
/// that continues without it.
fn recovery(cx: &Context, prefix: &[u8], word: Option<&[u8]>) -> Result<Recovery, Refusal> {
    let is_accepted = match word {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"ACCEPTLOSS") => true,
        Some(_) => refuse!("syntax error"),
    };
    let prefix = text(prefix)?;
    let entry = cx.map.keyspaces.get(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.into()))?;
    let name = entry.keyspace.name();
    // A consensus group whose only replica is lost does not go on by itself.
    let is_alone = |id: &u16| cx.map.groups.get(id).is_some_and(|group| group.members.len() == 1);
    let begins_again = entry.keyspace.replication == Protocol::Consensus && entry.groups.iter().any(is_alone);
    if entry.keyspace.has_leader() && !begins_again {
        refuse!(
            "keyspace '{name}' has a leader, which goes on by itself as soon as enough of its replicas are there: start \
             the nodes that are missing, or replace those that never come back: quorate node replace ID [--accept-loss] \
             (CLUSTER REPLACE id [ACCEPTLOSS])"
        );
    }
    let replicas = entry.groups.iter().filter_map(|id| Some((*id, cx.groups.get(*id)?)));
    let here: Vec<_> =
        replicas.filter_map(|(id, group)| Some((id, group, group.replica.as_ref()?))).collect();
    if here.is_empty() {
        let mut members: Vec<NodeId> = entry
            .groups
            .iter()
            .filter_map(|id| cx.map.groups.get(id))
            .flat_map(|it| it.members.clone())
            .collect();
        members.sort_unstable();
        members.dedup();
        refuse!("this node holds no replica of keyspace '{name}'; ask one of {members:?}");
    }
    let (mut lines, mut lost) = (Vec::new(), BTreeMap::new());
    for (id, group, replica) in &here {
        let Some(loss) = replica.loss(cx.now) else { continue };
        if !loss.silent.is_empty() {
            refuse!(
                "nodes {:?} of keyspace '{name}' are not heard: they may hold what the others have lost. Start them, or \
                 replace those that never come back, and ask again",
                loss.silent
            );
        }
        if begins_again {
            lines.push(format!(
                "keyspace '{name}', shard {}: node {:?} held its only replica, and has lost its storage. Everything that was \
                 acknowledged is lost. Do not start that storage again if you find it",
                group.shard, loss.lost
            ));
        } else {
            lines.push(format!(
                "keyspace '{name}', shard {}: nodes {:?} have lost their memory, nodes {:?} have theirs. Lost are those \
                 acknowledged writes that the latter do not hold; how many cannot be known. {} keys are on this node",
                group.shard,
                loss.lost,
                loss.holding,
                replica.table().len()
            ));
        }
        let life = |node: &NodeId| Some((*node, cx.map.nodes.get(node)?.start.life));
        lost.insert(*id, loss.lost.iter().filter_map(life).collect());
    }
    if lost.is_empty() {
        let why = here.iter().map(|(_, _, replica)| replica.summary(cx.now).explanation);
        let otherwise = if begins_again { "no replica here is empty" } else { "it is served" };
        let why = why.into_iter().find(|why| !why.is_empty()).unwrap_or(otherwise.into());
        refuse!("keyspace '{name}': there is nothing to give up now: {why}");
    }
    if is_accepted {
        let change = Change::RecoverKeyspace { prefix: prefix.into(), lost };
        return Ok(Recovery::Wanted(Box::new(change)));
    }
    let accept = recovery_line(&entry.keyspace).accepts();
    lines.push(match begins_again {
        true => format!("To begin again, empty, and then restore a backup, if there is one: {accept}"),
        false => format!(
            "To go on with what these nodes hold: {accept}. To begin again, empty: quorate keyspace drop {}, and create \
             (KEYSPACE DROP, CREATE)",
            quoted(prefix)
        ),
    });
    Ok(Recovery::Loss(lines))
}

fn change_or_refuse(cx: &mut Context, client: ClientId, change: Result<Change, Refusal>) {
    match change {
        Ok(change) => {
            cx.call(Call::Change { client: Some((client, Confirmation::Ok)), change: Box::new(change) })
        }
        Err(why) => refuse(cx, client, &why),
    }
}

fn refuse(cx: &mut Context, client: ClientId, why: &Refusal) {
    cx.answer(client, |replies| replies.error(&format!("{} {why}", why.code())));
}

// CLUSTER

pub(crate) fn cluster_command(
    cx: &mut Context,
    client: ClientId,
    command: ClusterCommand,
    arguments: Arguments<'_>,
) {
    let change = match command {
        ClusterCommand::Add => added(arguments).map(Change::AddNode),
        ClusterCommand::Remove => match arguments.get(3) {
            None => number(&arguments[2]).map(|id| Change::RemoveNode { id, force: false }),
            Some(word) if word.eq_ignore_ascii_case(b"FORCE") => {
                number(&arguments[2]).map(|id| Change::RemoveNode { id, force: true })
            }
            Some(_) => Err(Refusal::Other("syntax error".into())),
        },
        ClusterCommand::Replace => match arguments.get(3) {
            None => number(&arguments[2]).map(|id| Change::ReplaceNode { id, accept_loss: false }),
            Some(word) if word.eq_ignore_ascii_case(b"ACCEPTLOSS") => {
                number(&arguments[2]).map(|id| Change::ReplaceNode { id, accept_loss: true })
            }
            Some(_) => Err(Refusal::Other("syntax error".into())),
        },
        ClusterCommand::Drain => match arguments.get(3) {
            None => number(&arguments[2]).map(|id| Change::DrainNode { id, is_drained: true }),
            Some(word) if word.eq_ignore_ascii_case(b"END") => {
                number(&arguments[2]).map(|id| Change::DrainNode { id, is_drained: false })
            }
            Some(_) => Err(Refusal::Other("syntax error".into())),
        }
        .and_then(|change| moving(cx, change)),
        ClusterCommand::Lead => handovers::wanted(cx, &arguments[2], arguments.get(3).map(number))
            .and_then(|change| moving(cx, change)),
        ClusterCommand::Failover => match arguments.get(2) {
            Some(word) if !word.eq_ignore_ascii_case(b"FORCE") && !word.eq_ignore_ascii_case(b"TAKEOVER") => {
                Err(Refusal::Other("syntax error".into()))
            }
            _ => handovers::everything_here(cx).and_then(|change| moving(cx, change)),
        },
        ClusterCommand::Quarantine => match (&arguments[2], arguments.get(3), arguments.get(4)) {
            (word, None, None) if word.eq_ignore_ascii_case(b"LIST") => {
                return quarantine::list(cx, client);
            }
            (word, Some(group), Some(offset)) if word.eq_ignore_ascii_case(b"SKIP") => number(group)
                .and_then(|group| {
                    let step = QuarantineStep::Skip(number(offset)?);
                    Ok(Change::Quarantine { group, step })
                }),
            (word, Some(group), None) if word.eq_ignore_ascii_case(b"RETRY") => {
                number(group).map(|group| Change::Quarantine { group, step: QuarantineStep::Retry })
            }
            _ => Err(Refusal::Other("syntax error".into())),
        },
        ClusterCommand::Level => match arguments.get(2) {
            None => {
                let map = Rc::clone(&cx.map);
                return cx.answer(client, |replies| show_level(&map, replies));
            }
            Some(word) => {
                let is_held = word.eq_ignore_ascii_case(b"HOLD");
                match is_held || word.eq_ignore_ascii_case(b"RISE") {
                    // Checked before it is sent: a control leader of release 1 would not know this change.
                    true if cx.configuration.planted.has(Fault::FeatureUsedEarly) => {
                        Ok(Change::HoldLevel(is_held))
                    }
                    true => cx.map.require(Feature::LevelHeld).map(|()| Change::HoldLevel(is_held)),
                    false => Err(Refusal::Other("syntax error".into())),
                }
            }
        },
        ClusterCommand::Backup => backup(arguments)
            .and_then(|saved| cx.map.require(Feature::Backups).map(|()| Change::Saved(saved))),
        ClusterCommand::KeySlot => {
            let slot = slot_of(&arguments[2]);
            return cx.answer(client, |replies| replies.integer(i64::from(slot)));
        }
        ClusterCommand::MyId => {
            let name = name_of(cx, cx.configuration.node);
            return cx.answer(client, |replies| replies.bulk(name.as_bytes()));
        }
        ClusterCommand::MyShardId => {
            let name = own_shard(cx);
            return cx.answer(client, |replies| replies.bulk(name.as_bytes()));
        }
        ClusterCommand::CountKeysInSlot | ClusterCommand::GetKeysInSlot => {
            let mut text = ReplyBuffer::new();
            if let Err(why) = slots::keys_in_slot(cx, command, arguments, &mut text) {
                text.error(&why);
            }
            return cx.answer(client, |replies| replies.extend_encoded(text.as_bytes()));
        }
        ClusterCommand::SlotStats => {
            let mut text = ReplyBuffer::new();
            if let Err(why) = slots::slot_stats(cx, arguments, &mut text) {
                text.error(&why);
            }
            return cx.answer(client, |replies| replies.extend_encoded(text.as_bytes()));
        }
        ClusterCommand::Links => {
            let mut text = ReplyBuffer::new();
            cluster_links(cx, &mut text);
            return cx.answer(client, |replies| replies.extend_encoded(text.as_bytes()));
        }
        ClusterCommand::Replicas => {
            let lines = cluster_replicas(cx, &arguments[2], tls_distance(cx, client));
            return cx.answer(client, |replies| match lines {
                Ok(lines) => {
                    replies.array(lines.len());
                    lines.iter().for_each(|line| replies.bulk(line.as_bytes()));
                }
                Err(why) => replies.error(&why),
            });
        }
        ClusterCommand::Map => {
            let map = cx.map.shown();
            return cx.answer(client, |replies| replies.push(Reply::Text(&map)));
        }
        ClusterCommand::Info => {
            let text = cluster_info(cx);
            return cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
        }
        ClusterCommand::Nodes => {
            let text = cluster_nodes(cx, tls_distance(cx, client));
            return cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
        }
        ClusterCommand::Slots => {
            let mut text = ReplyBuffer::new();
            cluster_slots(cx, tls_distance(cx, client), &mut text);
            return cx.answer(client, |replies| replies.extend_encoded(text.as_bytes()));
        }
        ClusterCommand::Shards => {
            let mut text = ReplyBuffer::new();
            cluster_shards(cx, tls_distance(cx, client), &mut text);
            return cx.answer(client, |replies| replies.extend_encoded(text.as_bytes()));
        }
    };
    change_or_refuse(cx, client, change);
}

/// A change that moves leaders. Checked before it is sent: a control leader of release 1 would not know it.
fn moving(cx: &Context, change: Change) -> Result<Change, Refusal> {
    cx.map.require(Feature::Handovers).map(|()| change)
}

/// The reply of `CLUSTER LEVEL`.
fn show_level(map: &ClusterMap, replies: &mut ReplyBuffer) {
    let below = map.nodes_below(map.level + 1);
    replies.map(4);
    replies.bulk(b"level");
    replies.integer(i64::from(map.level));
    replies.bulk(b"attainable");
    replies.integer(i64::from(map.attainable_level()));
    replies.bulk(b"held");
    replies.integer(i64::from(map.is_level_held));
    replies.bulk(b"nodes-below-the-next");
    replies.array(below.len());
    below.iter().for_each(|id| replies.integer(i64::from(*id)));
}

/// The default keyspace's slots, in ascending order.
fn ranges(cx: &Context) -> Vec<Range<'_>> {
    let groups = cx.map.keyspaces.get("").map(|entry| entry.groups.as_slice()).unwrap_or_default();
    let range = |group: &u16| {
        let entry = cx.map.groups.get(group)?;
        let leader = leader_of(cx, *group);
        Some(Range { slots: entry.slots, leader, members: &entry.members, group: *group })
    };
    groups.iter().filter_map(range).collect()
}

/// The name of a node: 40 hexadecimal digits.
fn name_of(cx: &Context, id: NodeId) -> String {
    let identity = cx.map.nodes.get(&id).map_or(0, |node| node.start.identity);
    format!("{identity:016x}{id:024x}")
}

fn address(cx: &Context, id: NodeId) -> Option<&NodeAddress> {
    cx.map.nodes.get(&id).map(|node| &node.address)
}

/// By how much a TLS client's port differs from the plain port: on all nodes as much as on this one, since the map
/// has the plain ports only. 0 for plain clients.
fn tls_distance(cx: &Context, client: ClientId) -> i32 {
    let session = cx.clients.sessions.get(client);
    let is_over_tls =
        session.is_some_and(|session| matches!(session.kind(), ClientKind::Resp { tls: Some(_), .. }));
    let tls = cx.configuration.process.tls.as_ref().filter(|tls| is_over_tls && tls.client_port != 0);
    let own = cx.configuration.nodes.iter().find(|node| node.id == cx.configuration.node);
    tls.zip(own).map_or(0, |(tls, own)| i32::from(tls.client_port) - i32::from(own.client_port))
}

fn port_of(address: &NodeAddress, tls_distance: i32) -> u16 {
    u16::try_from(i32::from(address.client_port) + tls_distance).unwrap_or_default()
}

fn is_reached(cx: &Context, id: NodeId) -> bool {
    id == cx.configuration.node || cx.peers.is_up(id)
}

/// Whether a group answers requests now, as far as this node knows.
fn serving(cx: &Context, id: u16) -> Serving {
    let Some(group) = cx.groups.get(id).filter(|_| quarantined(cx, id).is_none()) else {
        return Serving::Not;
    };
    let is_majority = |members: &[NodeId]| {
        2 * members.iter().filter(|member| is_reached(cx, **member)).count() > members.len()
    };
    let status = group_status(cx, id);
    let (serves, may_serve) = match group.keyspace.replication {
        Protocol::LeaderFollower => {
            let entry = cx.map.groups.get(&id);
            let may_lead = entry.is_some_and(|group| group.in_sync.iter().any(|id| is_reached(cx, *id)));
            // Without the control group, no leader's lease lasts.
            let control = cx.map.groups.get(&CONTROL_GROUP);
            let is_led = control.is_some_and(|control| is_majority(&control.members));
            (is_led && is_reached(cx, leader_of(cx, id)), is_led && may_lead)
        }
        Protocol::Consensus => {
            let leads_in_vain = status.role == "leader" && !status.writable;
            let is_majority = is_majority(&group.members);
            (is_majority && !leads_in_vain, is_majority)
        }
        _ => {
            let is_majority = is_majority(&group.members);
            (is_majority, is_majority)
        }
    };
    match (serves && status.ready, may_serve) {
        (true, _) => Serving::Now,
        (false, true) => Serving::Soon,
        (false, false) => Serving::Not,
    }
}

fn cluster_info(cx: &Context) -> String {
    let (mut slots, mut leaders) = ([0_u32; 3], Vec::new());
    for Range { slots: Slots { first, last }, leader, group, .. } in ranges(cx) {
        let serving = serving(cx, group);
        slots[serving as usize] += u32::from(last - first) + 1;
        if serving == Serving::Now {
            leaders.push(leader);
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    // Clients stop sending requests when this is `fail`, so other keyspaces count, too.
    let serves = cx.groups.ids().iter().all(|id| serving(cx, *id) == Serving::Now);
    let state = if cx.admission.is_admitted() && serves { "ok" } else { "fail" };
    let [served, waiting, lost] = slots;
    let (nodes, version, size) = (cx.map.nodes.len(), cx.map.version, leaders.len());
    let assigned: u32 = slots.iter().sum();
    let quarantined = cx.map.quarantine.standing.len();
    format!(
        "cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\n\
         cluster_slots_ok:{served}\r\ncluster_slots_pfail:{waiting}\r\ncluster_slots_fail:{lost}\r\n\
         cluster_known_nodes:{nodes}\r\ncluster_size:{size}\r\ncluster_current_epoch:{version}\r\n\
         cluster_my_epoch:{version}\r\ncluster_quarantined_groups:{quarantined}\r\n"
    )
}

fn cluster_nodes(cx: &Context, tls_distance: i32) -> String {
    let ranges = ranges(cx);
    cx.map.nodes.keys().map(|id| node_line(cx, &ranges, *id, tls_distance) + "\n").collect()
}

/// The node that a node follows in the default keyspace; `None`: it leads, or has no part in it.
fn followed_by(ranges: &[Range<'_>], id: NodeId) -> Option<NodeId> {
    let leads = ranges.iter().any(|range| range.leader == id);
    ranges.iter().find(|range| !leads && range.members.contains(&id)).map(|range| range.leader)
}

/// A node's line of `CLUSTER NODES`.
fn node_line(cx: &Context, ranges: &[Range<'_>], id: NodeId, tls_distance: i32) -> String {
    let myself = if id == cx.configuration.node { "myself," } else { "" };
    let (role, leader) = match followed_by(ranges, id) {
        Some(leader) => ("slave", name_of(cx, leader)),
        None => ("master", "-".to_string()),
    };
    let (failed, link) = if is_reached(cx, id) { ("", "connected") } else { (",fail?", "disconnected") };
    let (host, port, peer_port) = address(cx, id).map_or((String::new(), 0, 0), |address| {
        // An earlier release may have admitted a host that is not a word.
        (word(&address.host), port_of(address, tls_distance), address.peer_port)
    });
    let (name, version) = (name_of(cx, id), cx.map.version);
    let mut line =
        format!("{name} {host}:{port}@{peer_port} {myself}{role}{failed} {leader} 0 0 {version} {link}");
    for Range { slots: Slots { first, last }, .. } in ranges.iter().filter(|range| range.leader == id) {
        // Writing to a string does not fail.
        let _ = if first == last { write!(line, " {first}") } else { write!(line, " {first}-{last}") };
    }
    line
}

/// `CLUSTER REPLICAS`: the lines of the nodes that follow the one with this name.
fn cluster_replicas(cx: &Context, name: &[u8], tls_distance: i32) -> Result<Vec<String>, String> {
    let ranges = ranges(cx);
    let known = cx.map.nodes.keys().copied().find(|id| name_of(cx, *id).as_bytes() == name);
    let leader = known.ok_or_else(|| format!("ERR Unknown node {}", printable(name)))?;
    if followed_by(&ranges, leader).is_some() {
        return Err("ERR The specified node is not a master".into());
    }
    let followers = cx.map.nodes.keys().filter(|id| followed_by(&ranges, **id) == Some(leader));
    Ok(followers.map(|id| node_line(cx, &ranges, *id, tls_distance)).collect())
}

/// The name of the default keyspace's first shard of which this node is a member: 40 hexadecimal digits, the same on all of
/// its members.
fn own_shard(cx: &Context) -> String {
    let ranges = ranges(cx);
    let own = ranges.iter().find(|range| range.members.contains(&cx.configuration.node));
    let cluster = kv::digest::digest_of(cx.configuration.cluster.as_bytes());
    format!("{cluster:016x}{:024x}", own.map_or(0, |range| range.group))
}

/// `CLUSTER LINKS`. One link carries the messages of both directions.
fn cluster_links(cx: &Context, replies: &mut ReplyBuffer) {
    let links: Vec<_> = cx.peers.iter().filter(|(_, peer)| peer.is_up()).collect();
    replies.array(links.len());
    for (id, peer) in links {
        replies.map(6);
        for (field, value) in [("direction", "to"), ("node", &name_of(cx, id)), ("events", "rw")] {
            replies.bulk(field.as_bytes());
            replies.bulk(value.as_bytes());
        }
        let bytes = peer.output_bytes() as u64;
        for (field, value) in
            [("create-time", peer.since_ms()), ("send-buffer-allocated", bytes), ("send-buffer-used", bytes)]
        {
            replies.bulk(field.as_bytes());
            replies.integer(value as i64);
        }
    }
}

fn cluster_slots(cx: &Context, tls_distance: i32, replies: &mut ReplyBuffer) {
    let ranges = ranges(cx);
    replies.array(ranges.len());
    for range in ranges {
        let followers = range.members.iter().filter(|member| **member != range.leader);
        let nodes: Vec<NodeId> = std::iter::once(range.leader).chain(followers.copied()).collect();
        replies.array(2 + nodes.len());
        replies.integer(i64::from(range.slots.first));
        replies.integer(i64::from(range.slots.last));
        for id in nodes {
            let known = address(cx, id);
            let (host, port) =
                known.map_or(("", 0), |address| (address.host.as_str(), port_of(address, tls_distance)));
            replies.array(4);
            replies.bulk(host.as_bytes());
            replies.integer(i64::from(port));
            replies.bulk(name_of(cx, id).as_bytes());
            replies.array(0);
        }
    }
}

fn cluster_shards(cx: &Context, tls_distance: i32, replies: &mut ReplyBuffer) {
    let ranges = ranges(cx);
    replies.array(ranges.len());
    for range in ranges {
        replies.map(2);
        replies.bulk(b"slots");
        replies.array(2);
        replies.integer(i64::from(range.slots.first));
        replies.integer(i64::from(range.slots.last));
        replies.bulk(b"nodes");
        replies.array(range.members.len());
        let status = group_status(cx, range.group);
        for id in range.members {
            // Only the leader knows how far the others are.
            let follower = status.followers.iter().find(|follower| follower.id == *id);
            let offset = follower.map_or(status.offset, |follower| follower.acked);
            let known = address(cx, *id);
            let (host, port) = known.map_or(("", 0), |address| (address.host.as_str(), address.client_port));
            let tls_port = known.filter(|_| tls_distance != 0).map(|address| port_of(address, tls_distance));
            let role = if *id == range.leader { "master" } else { "replica" };
            let health = if is_reached(cx, *id) { "online" } else { "failed" };
            replies.map(7 + usize::from(tls_port.is_some()));
            for (field, value) in [
                ("id", name_of(cx, *id).as_str()),
                ("endpoint", host),
                ("ip", host),
                ("role", role),
                ("health", health),
            ] {
                replies.bulk(field.as_bytes());
                replies.bulk(value.as_bytes());
            }
            replies.bulk(b"port");
            replies.integer(i64::from(port));
            if let Some(port) = tls_port {
                replies.bulk(b"tls-port");
                replies.integer(i64::from(port));
            }
            replies.bulk(b"replication-offset");
            replies.integer(offset as i64);
        }
    }
}

fn text(argument: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(argument).map_err(|_| Refusal::Other("the prefix of a keyspace is text".into()))
}

/// Settings of a keyspace and their values.
type Settings<'a> = Vec<(&'a str, &'a str)>;

/// The prefix, and `setting=value` for each of the others.
fn words<'a>(arguments: Arguments<'a>) -> Result<(&'a str, Settings<'a>), Refusal> {
    let setting = |argument: &'a [u8]| {
        let word = std::str::from_utf8(argument).ok();
        let given = || String::from_utf8_lossy(argument).into_owned();
        word.and_then(|word| word.split_once('='))
            .ok_or_else(|| format!("'{}' is not of the form setting=value", given()))
    };
    let settings: Result<Vec<_>, String> = arguments.iter().skip(3).map(setting).collect();
    Ok((text(arguments.get(2).unwrap_or_default())?, settings?))
}

fn number<Number: std::str::FromStr>(argument: &[u8]) -> Result<Number, Refusal> {
    let parsed = std::str::from_utf8(argument).ok().and_then(|text| text.parse().ok());
    let given = || String::from_utf8_lossy(argument);
    parsed.ok_or_else(|| Refusal::Other(format!("'{}' is not a number that can be", given())))
}

/// `CLUSTER BACKUP due-ms prefix moment-ms [prefix moment-ms …]`, or `CLUSTER BACKUP FORGET`.
fn backup(arguments: Arguments<'_>) -> Result<BTreeMap<String, Saved>, Refusal> {
    let words = arguments.skip(3);
    if words.is_empty() && arguments[2].eq_ignore_ascii_case(b"FORGET") {
        return Ok(BTreeMap::new());
    }
    let due_ms: u64 = number(&arguments[2])?;
    if words.is_empty() || !words.len().is_multiple_of(2) {
        refuse!("syntax error");
    }
    let saved = |at: usize| {
        let at_ms: u64 = number(&words[at + 1])?;
        Ok((text(&words[at])?.to_owned(), Saved { at_ms, due_ms: at_ms.saturating_add(due_ms) }))
    };
    (0..words.len()).step_by(2).map(saved).collect()
}

/// `CLUSTER ADD id host client-port http-port peer-port`.
fn added(arguments: Arguments<'_>) -> Result<NodeAddress, Refusal> {
    Ok(NodeAddress {
        id: number(&arguments[2])?,
        host: String::from_utf8_lossy(&arguments[3]).into_owned(),
        client_port: number(&arguments[4])?,
        http_port: number(&arguments[5])?,
        peer_port: number(&arguments[6])?,
    })
}
