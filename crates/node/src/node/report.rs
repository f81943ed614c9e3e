//! What a node reports about itself: health, metrics and `INFO`.

use super::facts;
use crate::context::status::group_status;
use crate::groups::Group;
use crate::node::Node;
use cluster::control::Saved;
use cluster::setting::Setting;
use cluster::words::label as label_text;
use info::{FollowerHealth, Health, KeyspaceHealth};
use protocol::status::{Counter, Status};
use std::collections::BTreeMap;
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
        version: crate::VERSION,
        release: node.cx.configuration.releases.newest,
        level: node.cx.map.level,
        role: default.map_or("none", |keyspace| keyspace.role),
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
        state: follower.state,
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
        role: status.role,
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
    node.coding.coding_metrics(out);
    let _ = write!(
        out,
        "# HELP quorate_clock_off_seconds How far the wall clock is from the time that is used, either way.\n\
         # TYPE quorate_clock_off_seconds gauge\nquorate_clock_off_seconds {}\n",
        seconds(clock.ahead_ms.unsigned_abs())
    );
    link_metrics(node, out);
    time_metrics(node, out);
    group_metrics(node, out);
}

/// Milliseconds as seconds, the unit that Prometheus wants.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
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

/// The labels that distinguish a group's series. The shard is included where a keyspace has several.
fn label(group: &Group) -> String {
    let name = label_text(group.keyspace.name());
    match group.keyspace.shards {
        1 => format!("keyspace=\"{name}\""),
        _ => format!("keyspace=\"{name}\",shard=\"{}\"", group.shard),
    }
}

/// How long commands took, by name and by keyspace, and how long commits and applying took.
fn time_metrics(node: &Node, out: &mut String) {
    let begin = |name: &str, help: &str, out: &mut String| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n");
    };
    let name = "quorate_command_seconds";
    begin(name, "Time from a command of this node's clients to its reply.", out);
    for (number, latency) in node.cx.clients.statistics.measured() {
        if let Some(spec) = commands::by_number(number) {
            latency.render(name, &format!("command=\"{}\"", label_text(spec.name)), out);
        }
    }
    let groups = || node.cx.groups.iter().map(|(_, group)| (label(group), group));
    let name = "quorate_keyspace_command_seconds";
    begin(name, "Time from a command of this node's clients to its reply.", out);
    groups().for_each(|(label, group)| group.latency.render(name, &label, out));
    let name = "quorate_keyspace_commit_seconds";
    begin(name, "Time from a write's order by this replica to its outcome, of one write at a time.", out);
    groups().for_each(|(label, group)| group.commits.times().render(name, &label, out));
    let leases = node.cluster.control().lease_times();
    let name = "quorate_lease_renewal_seconds";
    begin(name, "Time from a renewal of this node's lease to its answer.", out);
    leases.renewals.render(name, "", out);
    let name = "quorate_lease_wait_seconds";
    begin(name, "Time from the end of this node's lease to the next one.", out);
    leases.waits.render(name, "", out);
    let name = "quorate_keyspace_apply_seconds";
    begin(
        name,
        "Time from when this replica held a record until it had applied it, of one record at a time.",
        out,
    );
    let ordered = groups().filter(|(_, group)| group.keyspace.has_leader());
    ordered.for_each(|(label, group)| group.applies.times().render(name, &label, out));
}

fn group_metrics(node: &Node, out: &mut String) {
    type Value = fn(&Group, &Status) -> u64;
    fn table(group: &Group, value: impl Fn(&kv::Table) -> u64) -> u64 {
        group.replica.as_ref().map_or(0, |replica| value(replica.table()))
    }
    let series: [(&str, &str, &str, Value); 25] = [
        ("ready", "gauge", "1 when requests can be served.", |_, status| status.ready.into()),
        ("writable", "gauge", "Leader: 1 when enough followers are live.", |_, status| {
            status.writable.into()
        }),
        ("leader", "gauge", "1 on the node that leads.", |_, status| (status.role == "leader").into()),
        ("epoch", "gauge", "The highest epoch seen.", |_, status| status.epoch),
        ("offset", "gauge", "The last offset held.", |_, status| status.offset),
        ("applied", "gauge", "The last offset applied.", |_, status| status.applied),
        ("lag_records", "gauge", "Follower: records not applied yet.", |_, status| status.lag),
        ("backlog_bytes", "gauge", "History kept.", |_, status| status.backlog_bytes as u64),
        ("keys", "gauge", "Keys.", |group, _| table(group, |table| table.len() as u64)),
        ("memory_bytes", "gauge", "Memory of keys and values.", |group, _| {
            table(group, |table| table.memory_bytes() as u64)
        }),
        ("memory_max_bytes", "gauge", "The most that keys and values may take; 0: any.", |group, _| {
            group.keyspace.shard_memory_max()
        }),
        ("hits_total", "counter", "Lookups that found the key.", |group, _| {
            table(group, |table| table.statistics().hits)
        }),
        ("misses_total", "counter", "Lookups that did not find the key.", |group, _| {
            table(group, |table| table.statistics().misses)
        }),
        ("evicted_total", "counter", "Keys removed for that bound.", |group, _| {
            table(group, |table| table.statistics().evicted)
        }),
        ("changes_bytes", "gauge", "Latest changes kept for readers.", |group, _| {
            table(group, |table| table.history().map_or(0, |history| history.bytes() as u64))
        }),
        ("locks", "gauge", "Locks that are held.", |group, _| {
            table(group, |table| table.locks().len() as u64)
        }),
        ("lock_waiters", "gauge", "Requests that wait for a lock.", |group, _| {
            table(group, |table| table.locks().waiters() as u64)
        }),
        ("lock_sessions", "gauge", "Sessions that hold locks.", |group, _| {
            table(group, |table| table.locks().sessions() as u64)
        }),
        ("lock_grants_total", "counter", "Locks that were granted.", |group, _| {
            table(group, |table| table.locks().statistics().grants)
        }),
        ("lock_expiries_total", "counter", "Leases of locks and sessions that have ended.", |group, _| {
            table(group, |table| table.locks().statistics().expiries)
        }),
        ("queue_waiters", "gauge", "Requests that wait for elements.", |group, _| {
            table(group, |table| table.queues().waiters() as u64)
        }),
        ("queue_unsettled", "gauge", "Requests that were served and are not settled.", |group, _| {
            table(group, |table| table.queues().unsettled() as u64)
        }),
        ("queue_served_total", "counter", "Requests that waited and were served.", |group, _| {
            table(group, |table| table.queues().statistics().served)
        }),
        ("queue_returned_total", "counter", "Replies whose elements went back.", |group, _| {
            table(group, |table| table.queues().statistics().returned)
        }),
        ("queue_dropped_total", "counter", "Replies whose elements could not go back.", |group, _| {
            table(group, |table| table.queues().statistics().dropped)
        }),
    ];
    let statuses: Vec<Status> = node.cx.groups.ids().iter().map(|id| group_status(&node.cx, *id)).collect();
    for (name, kind, help, value) in series {
        let _ = write!(out, "# HELP quorate_keyspace_{name} {help}\n# TYPE quorate_keyspace_{name} {kind}\n");
        for ((_, group), status) in node.cx.groups.iter().zip(&statuses) {
            let (label, value) = (label(group), value(group, status));
            let _ = writeln!(out, "quorate_keyspace_{name}{{{label}}} {value}");
        }
    }
    // The protocols' counters: each under its name, for the keyspaces whose protocol has it.
    let mut counted: BTreeMap<&str, (&str, String)> = BTreeMap::new();
    for ((_, group), status) in node.cx.groups.iter().zip(&statuses) {
        let label = label(group);
        for Counter { name, help, value } in &status.counters {
            let (_, lines) = counted.entry(name).or_insert((help, String::new()));
            let _ = writeln!(lines, "quorate_keyspace_{name}_total{{{label}}} {value}");
        }
    }
    for (name, (help, lines)) in counted {
        let name = format!("quorate_keyspace_{name}_total");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{lines}");
    }
    backup_metrics(node, out);
    let name = "quorate_keyspace_leaderships_total";
    let _ = write!(out, "# HELP {name} Leaderships that this node has begun.\n# TYPE {name} counter\n");
    for (id, group) in node.cx.groups.iter().filter(|(_, group)| group.keyspace.has_leader()) {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), node.recent.begun(id));
    }
    let name = "quorate_keyspace_began_empty_timestamp_seconds";
    let _ = write!(out, "# HELP {name} When it began again, empty.\n# TYPE {name} gauge\n");
    for (_, group) in node.cx.groups.iter().filter(|(_, group)| group.began_empty_ms > 0) {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), seconds(group.began_empty_ms));
    }
    let name = "quorate_keyspace_lag_seconds";
    let _ = write!(out, "# HELP {name} Follower: since when it has not applied all.\n# TYPE {name} gauge\n");
    for ((_, group), status) in node.cx.groups.iter().zip(&statuses) {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), seconds(status.lag_ms));
    }
    let name = "quorate_follower_lag";
    let _ = write!(
        out,
        "# HELP {name}_records Leader: records that a follower has not acknowledged.\n# TYPE {name}_records gauge\n"
    );
    for ((_, group), status) in node.cx.groups.iter().zip(&statuses) {
        for follower in &status.followers {
            let (label, id) = (label(group), follower.id);
            let _ = writeln!(out, "{name}_records{{{label},node=\"{id}\"}} {}", follower.lag);
        }
    }
}

/// When each keyspace was saved last, and when it should be again, as `quorate backup` has said. Nothing of those of which
/// no backup was ever tried.
fn backup_metrics(node: &Node, out: &mut String) {
    type Time = fn(&Saved) -> u64;
    let series: [(&str, &str, Time); 2] = [
        (
            "backup_timestamp_seconds",
            "The moment that the newest backup shows; 0: no backup holds it.",
            |saved| saved.at_ms,
        ),
        ("backup_due_timestamp_seconds", "When a newer backup should be there.", |saved| saved.due_ms),
    ];
    for (name, help, time) in series {
        let name = format!("quorate_keyspace_{name}");
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for entry in node.cx.map.keyspaces.values() {
            if let Some(saved) = &entry.saved {
                let (keyspace, time) = (label_text(entry.keyspace.name()), seconds(time(saved)));
                let _ = writeln!(out, "{name}{{keyspace=\"{keyspace}\"}} {time}");
            }
        }
    }
}
