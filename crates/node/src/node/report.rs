//! What a node reports about itself: health, and figures for people and programs that look at a whole
//! cluster.

use crate::context::status::group_status;
use crate::groups::Group;
use crate::node::Node;
use cluster::setting::Setting;
use commands::statistics;
use info::report::{
    CommandFigures, Counters, Disk, FollowerHealth, GroupFigures, Health, KeyspaceHealth, Link, Memory,
    Report,
};
use kv::{Reply, ReplyBuffer};
use protocol::NodeId;
use protocol::status::Status;

/// How long after its admission a node waits for all of its replicas before it is ready without some of them.
/// Until they have heard of each other, a replica does not know whether it can get back what it lacks.
const GATHERS_MS: u64 = 10_000;

/// Returns the state of this node.
pub(super) fn health(node: &Node) -> Health {
    health_of(node, &statuses(node))
}

/// The state of each group that this node knows, in the order of their numbers.
pub(super) fn statuses(node: &Node) -> Vec<Status> {
    node.cx.groups.ids().iter().map(|id| group_status(&node.cx, *id)).collect()
}

fn health_of(node: &Node, statuses: &[Status]) -> Health {
    let groups = node.cx.groups.iter().map(|(_, group)| group);
    let keyspaces: Vec<KeyspaceHealth> =
        groups.zip(statuses).map(|(group, status)| keyspace_health(group, status)).collect();
    let explanation = explain_unready(node, &keyspaces, statuses);
    let default = keyspaces.iter().find(|keyspace| keyspace.prefix.is_empty());
    Health {
        ready: explanation.is_empty(),
        explanation,
        node: node.cx.configuration.node,
        cluster: node.cx.configuration.cluster.clone(),
        version: crate::VERSION.to_owned(),
        release: node.cx.configuration.releases.newest,
        level: node.cx.map.level,
        role: default.map_or("none", |keyspace| &keyspace.role).to_owned(),
        epoch: default.map_or(0, |keyspace| keyspace.epoch),
        offset: default.map_or(0, |keyspace| keyspace.offset),
        lag: default.map_or(0, |keyspace| keyspace.lag),
        lag_ms: default.map_or(0, |keyspace| keyspace.lag_ms),
        map_version: node.cx.map.version,
        control_leader: node.cluster.control().leader(node.cx.now),
        journal_bytes: node.cx.journal.held_bytes(),
        disk_full: node.cx.room.is_short(),
        keyspaces,
    }
}

/// Why clients should not be sent to this node; empty if they may.
fn explain_unready(node: &Node, keyspaces: &[KeyspaceHealth], statuses: &[Status]) -> String {
    let cx = &node.cx;
    if !cx.admission.is_admitted() {
        return cx.admission.explanation().to_owned();
    }
    let named = |it: &KeyspaceHealth| {
        let name = if it.prefix.is_empty() { "default" } else { &it.prefix };
        format!("keyspace '{name}': {}", it.explanation)
    };
    if !keyspaces.iter().any(|keyspace| keyspace.ready) {
        let first = keyspaces.first().map_or("it knows no keyspace".to_owned(), named);
        return format!("no keyspace can be served through this node; {first}");
    }
    let gathers = cx.now.ms_since(cx.admission.since_us()) < GATHERS_MS;
    let behind = cx.groups.iter().zip(statuses).position(|((_, group), status)| {
        let is_here = group.members.contains(&cx.configuration.node);
        is_here && !status.ready && (status.catches_up || gathers)
    });
    behind.map_or(String::new(), |place| format!("a replica here catches up; {}", named(&keyspaces[place])))
}

/// The state of a group here.
pub(super) fn keyspace_health(group: &Group, status: &Status) -> KeyspaceHealth {
    let followers = status.followers.iter().map(|follower| FollowerHealth {
        node: follower.id,
        state: follower.state.to_owned(),
        acked: follower.acked,
        lag: follower.lag,
        lag_ms: follower.lag_ms,
    });
    KeyspaceHealth {
        prefix: group.keyspace.prefix.clone(),
        shard: group.shard,
        replication: group.keyspace.replication.text().to_string(),
        acks: group.keyspace.acks.text().to_string(),
        durability: group.keyspace.durability().text().to_string(),
        reads: group.keyspace.reads.text().to_string(),
        ready: status.ready,
        writable: status.writable,
        role: status.role.to_owned(),
        leader: status.leader,
        epoch: status.epoch,
        offset: status.offset,
        applied: status.applied,
        lag: status.lag,
        lag_ms: status.lag_ms,
        explanation: status.explanation.clone(),
        followers: followers.collect(),
    }
}

/// `CLUSTER REPORT`.
pub(super) fn reply(node: &Node) -> ReplyBuffer {
    let report = report(node, &statuses(node));
    let text = serde_json::to_vec(&report).expect("a report is made of numbers, strings and lists");
    let mut replies = ReplyBuffer::new();
    replies.push(Reply::Text(&text));
    replies
}

/// Everything that this node reports to others.
pub(super) fn report(node: &Node, statuses: &[Status]) -> Report {
    let (cx, usage) = (&node.cx, &node.usage);
    let is_other = |id: &NodeId| *id != cx.configuration.node;
    let link = |id: NodeId| {
        let peer = cx.peers.get(id);
        let (silent_ms, release) = peer.map_or((0, 0), |peer| (peer.silent_ms(cx.now), peer.release()));
        Link { node: id, up: cx.peers.is_up(id), release, silent_ms }
    };
    let groups = cx.groups.iter().zip(statuses);
    Report {
        health: health_of(node, statuses),
        time_ms: cx.now.unix_ms,
        uptime_s: cx.now.ms_since(node.started.monotonic_us) / 1000,
        admitted: cx.admission.is_admitted(),
        refusal: cx.admission.refusal().map(str::to_owned),
        memory: Memory {
            resident: usage.resident_bytes,
            max: cx.memory.bytes_max(),
            machine: usage.machine_bytes,
            data: cx.memory.data_bytes(),
            data_max: cx.memory.data_max(),
            clients: cx.memory.clients_bytes(),
            full: cx.memory.is_full(),
        },
        disk: Disk {
            free: usage.disk_free_bytes,
            size: usage.disk_bytes,
            full: cx.room.is_short(),
            full_in_s: usage.disk_full_in_s,
            damaged: node.values.counters().damaged,
            repaired: node.values.counters().repaired,
        },
        certificate: usage.certificate,
        clock: node.clock.report(),
        links: cx.map.nodes.keys().copied().filter(is_other).map(link).collect(),
        counters: Counters {
            clients: cx.clients.sessions.iter().filter(|(_, session)| !session.is_internal()).count() as u64,
            commands: cx.counters.commands,
            errors: cx.counters.errors,
            forwarded: cx.counters.forwarded,
            calls: cx.clients.statistics.calls(),
            calls_us: cx.clients.statistics.microseconds(),
            client_bytes_in: usage.client_input_bytes,
            client_bytes_out: usage.client_output_bytes,
            peer_bytes_in: usage.peer_input_bytes,
            peer_bytes_out: usage.peer_output_bytes,
        },
        groups: groups.map(|((id, group), status)| group_figures(id, group, status)).collect(),
        commands: cx.clients.statistics.used().filter_map(command_figures).collect(),
    }
}

fn group_figures(id: u16, group: &Group, status: &Status) -> GroupFigures {
    let figures = GroupFigures {
        group: id,
        prefix: group.keyspace.prefix.clone(),
        shard: group.shard,
        memory_max: group.keyspace.shard_memory_max(),
        eviction: group.keyspace.eviction.text().to_string(),
        unknown_writes: status.counted("unknown_writes"),
        lost_writes: status.counted("lost_writes"),
        began_empty_ms: group.began_empty_ms,
        latency: group.latency.buckets().collect(),
        ..GroupFigures::default()
    };
    let Some(replica) = &group.replica else { return figures };
    let (table, counted) = (replica.table(), replica.table().statistics());
    GroupFigures {
        keys: table.len() as u64,
        expires: table.expires() as u64,
        expiring_hashes: table.hashes_with_deadlines() as u64,
        memory: table.memory_bytes() as u64,
        evicted: counted.evicted,
        lookups: counted.hits + counted.misses,
        locks: table.locks().len() as u64,
        lock_waiters: table.locks().waiters() as u64,
        ..figures
    }
}

fn command_figures((number, counted): (usize, &statistics::Counters)) -> Option<CommandFigures> {
    Some(CommandFigures {
        name: commands::by_number(number)?.name.to_owned(),
        calls: counted.calls,
        failed: counted.failed,
        rejected: counted.rejected,
        us: counted.latency.sum_us(),
        latency: counted.latency.buckets().collect(),
    })
}
