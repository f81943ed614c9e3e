//! What a node reports about itself: health, metrics and `INFO`.

use super::facts;
use crate::context::status::group_status;
use crate::groups::Group;
use crate::node::Node;
use cluster::setting::Setting;
use cluster::words::label as label_text;
use info::metrics::{GroupMetrics, coding_metrics, group_metrics, seconds, time_metrics};
use info::{FollowerHealth, Health, KeyspaceHealth};
use std::fmt::Write;

/// How long after its admission a node waits for all of its replicas before it is ready without some of them. Until they have
/// heard of each other, a replica does not know whether it can get back what it lacks.
const GATHERS_MS: u64 = 10_000;

/// Returns the state of this node.
pub(super) fn health(node: &Node) -> Health {
    let keyspaces: Vec<KeyspaceHealth> =
        node.cx.groups.ids().iter().map(|id| keyspace_health(node, *id)).collect();
    let explanation = explain_unready(node, &keyspaces);
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
fn explain_unready(node: &Node, keyspaces: &[KeyspaceHealth]) -> String {
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
    let holds_up = |id: &u16| {
        let is_here = cx.groups[*id].members.contains(&cx.configuration.node);
        let status = is_here.then(|| group_status(cx, *id)).filter(|status| !status.ready);
        status.is_some_and(|status| status.catches_up || gathers)
    };
    let behind = cx.groups.ids().iter().position(holds_up);
    behind.map_or(String::new(), |place| format!("a replica here catches up; {}", named(&keyspaces[place])))
}

pub(super) fn keyspace_health(node: &Node, id: u16) -> KeyspaceHealth {
    let (group, status) = (&node.cx.groups[id], group_status(&node.cx, id));
    let followers = status.followers.into_iter().map(|follower| FollowerHealth {
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
        explanation: status.explanation,
        followers: followers.collect(),
    }
}

/// Appends the node's counters in Prometheus's text format.
pub(super) fn metrics(node: &Node, out: &mut String) {
    let counters = &node.cx.counters;
    let mut single = |name: &str, kind: &str, help: &str, value: u64| {
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "# HELP quorate_{name} {help}\n# TYPE quorate_{name} {kind}\nquorate_{name} {value}\n"
        );
    };
    let usage = node.usage;
    single("clients", "gauge", "Clients connected over RESP.", facts::client_count(node));
    single("connections_total", "counter", "Connections taken over RESP.", counters.connections);
    single(
        "connections_rejected_total",
        "counter",
        "Connections refused, too many.",
        counters.rejected_connections,
    );
    single(
        "auth_failures_total",
        "counter",
        "Attempts to authenticate that failed or were not looked at, over RESP.",
        node.auth_guard.failures(),
    );
    single(
        "unauthenticated_closed_total",
        "counter",
        "Clients that had not authenticated and made room for others.",
        counters.unauthenticated_closed,
    );
    single(
        "http_requests_refused_total",
        "counter",
        "Connections for Redis clients that spoke HTTP and were closed.",
        counters.http_requests_refused,
    );
    single("commands_total", "counter", "Requests of clients.", counters.commands);
    single("forwarded_total", "counter", "Requests passed on to a leader.", counters.forwarded);
    let waiting = node.forwarding.waiting_count() as u64;
    single("waiting_requests", "gauge", "Requests that wait until a node can take them.", waiting);
    single("long_writes_total", "counter", "Writes sent to their groups in parts.", counters.long_writes);
    single("long_replies_total", "counter", "Replies sent to other nodes in parts.", counters.long_replies);
    single("errors_total", "counter", "Error replies.", counters.errors);
    single("output_overflows_total", "counter", "Clients closed for not reading.", counters.output_overflows);
    single("memory_max_bytes", "gauge", "Memory that the node may take; 0: any.", node.cx.memory.bytes_max());
    single("memory_data_max_bytes", "gauge", "Memory that data may take.", node.cx.memory.data_max());
    single("memory_data_bytes", "gauge", "Memory that data takes.", node.cx.memory.data_bytes());
    single("memory_clients_bytes", "gauge", "Memory that clients hold.", node.cx.memory.clients_bytes());
    single("memory_requests_bytes", "gauge", "Requests under way.", node.cx.memory.request_bytes() as u64);
    single("memory_full", "gauge", "1 while data may not grow.", node.cx.memory.is_full().into());
    single(
        "memory_clients_closed_total",
        "counter",
        "Clients closed for the memory that they held.",
        counters.memory_closed,
    );
    single(
        "memory_refused_total",
        "counter",
        "Commands refused for lack of memory.",
        counters.memory_refused,
    );
    single("map_version", "gauge", "Version of the cluster map.", node.cx.map.version);
    single("release", "gauge", "Release of this program.", node.cx.configuration.releases.newest.into());
    single("level", "gauge", "Release whose features the cluster uses.", node.cx.map.level.into());
    let attainable = node.cx.map.attainable_level();
    single("level_attainable", "gauge", "The newest release that all nodes know.", attainable.into());
    let control_leader = node.cluster.control().leader(node.cx.now);
    single(
        "control_leader",
        "gauge",
        "Node that leads the control group; 0: no lease.",
        control_leader.into(),
    );
    let is_admitted = node.cx.admission.is_admitted().into();
    single("admitted", "gauge", "1 while the control group lets this node take part.", is_admitted);
    single(
        "quarantined_groups",
        "gauge",
        "Groups whose replica here stands still before a record that has ended the process.",
        node.cx.groups.iter().filter(|(_, group)| group.holds.is_some()).count() as u64,
    );
    let clock = node.clock.facts();
    single(
        "clock_off",
        "gauge",
        "1 while this machine's wall clock is farther than a second from most nodes' clocks.",
        clock.is_off.into(),
    );
    single("clocks_known", "gauge", "Nodes' wall clocks that are known here.", clock.answers as u64);
    single("journal_bytes", "gauge", "Log that the next start would read.", node.cx.journal.held_bytes());
    single(
        "disk_full",
        "gauge",
        "1 while there is no room for the log, or for values.",
        node.cx.room.is_short().into(),
    );
    single("disk_free_bytes", "gauge", "Room on the disk with the node's folder.", usage.disk_free_bytes);
    single("disk_bytes", "gauge", "Size of the disk with the node's folder.", usage.disk_bytes);
    single(
        "disk_ready_bytes",
        "gauge",
        "Log that can be written without more room, the reserve included.",
        node.cx.journal.ready_bytes(),
    );
    single(
        "disk_refused_total",
        "counter",
        "Commands refused for lack of room on a disk.",
        node.cx.room.refused(),
    );
    let (for_locks, for_elements) = node.waits.waiting();
    single("lock_waiting_clients", "gauge", "Clients that wait for a lock.", for_locks as u64);
    single("queue_waiting_clients", "gauge", "Clients that wait for elements.", for_elements as u64);
    let values = facts::value_facts(node);
    single("values_on_disk", "gauge", "Values that are on the disk.", values.on_disk);
    single("values_pending_bytes", "gauge", "Values that are not on the disk yet.", values.pending_bytes);
    single("values_cache_bytes", "gauge", "Values in memory for later readers.", values.cached_bytes);
    let counters = values.counters;
    single("values_cache_hits_total", "counter", "Values that were in memory.", counters.hits);
    single("values_cache_misses_total", "counter", "Values that were read from the disk.", counters.misses);
    single("values_damaged_total", "counter", "Values that could not be read.", counters.damaged);
    single(
        "values_repaired_total",
        "counter",
        "Values that could not be read and were fetched from another replica.",
        counters.repaired,
    );
    single(
        "values_scrubbed_total",
        "counter",
        "Values that were read only to find out whether they are whole.",
        counters.scrubbed,
    );
    single(
        "values_scrub_passes_total",
        "counter",
        "How often all values were scrubbed, from the first to the last one.",
        counters.passes,
    );
    if node.coding.is_on() {
        coding_metrics(node.coding.counters(), &node.coding.choice_summary(), out);
    }
    let _ = write!(
        out,
        "# HELP quorate_clock_off_seconds How far the wall clock is from the time that is used, either way.\n\
         # TYPE quorate_clock_off_seconds gauge\nquorate_clock_off_seconds {}\n",
        seconds(clock.ahead_ms.unsigned_abs())
    );
    link_metrics(node, out);
    let groups: Vec<_> = node.cx.groups.iter().map(|(id, group)| metrics_of(node, id, group)).collect();
    let (commands, leases) = (&node.cx.clients.statistics, node.cluster.control().lease_times());
    time_metrics(commands, leases, &groups, out);
    group_metrics(&groups, &node.cx.map, out);
}

/// The program's version, and the nodes to which it has links.
fn link_metrics(node: &Node, out: &mut String) {
    let (version, cluster) = (crate::VERSION, label_text(&node.cx.configuration.cluster));
    let _ = write!(
        out,
        "# HELP quorate_build_info 1: the program's version, and which node of which cluster it is.\n\
         # TYPE quorate_build_info gauge\n\
         quorate_build_info{{version=\"{version}\",cluster=\"{cluster}\",node=\"{}\"}} 1\n\
         # HELP quorate_peer_link_up 1 while the link to a node is up.\n# TYPE quorate_peer_link_up gauge\n",
        node.cx.configuration.node
    );
    for id in node.cx.map.nodes.keys().filter(|id| **id != node.cx.configuration.node) {
        let _ = writeln!(out, "quorate_peer_link_up{{node=\"{id}\"}} {}", u8::from(node.cx.peers.is_up(*id)));
    }
}

/// What the metrics of a group are written from.
fn metrics_of<'n>(node: &'n Node, id: u16, group: &'n Group) -> GroupMetrics<'n> {
    GroupMetrics {
        keyspace: &group.keyspace,
        shard: group.shard,
        status: group_status(&node.cx, id),
        table: group.replica.as_ref().map(|replica| replica.table()),
        latency: &group.latency,
        commits: group.commits.times(),
        applies: group.applies.times(),
        leaderships: node.recent.begun(id),
        began_empty_ms: group.began_empty_ms,
    }
}
