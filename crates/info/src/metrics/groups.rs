//! The metrics of a node's groups, and how long commands, commits and leases took.

use super::{head, seconds};
use cluster::Keyspace;
use cluster::control::{ClusterMap, LeaseTimes, Saved};
use cluster::words::label as label_text;
use commands::by_number;
use commands::statistics::{CommandStatistics, Latencies};
use kv::Table;
use kv::locks::Locks;
use kv::queues::Queues;
use protocol::status::{Counter, Status};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the metrics of one shard of a keyspace are written from.
#[derive(Debug)]
pub struct GroupMetrics<'a> {
    /// Its keyspace.
    pub keyspace: &'a Keyspace,
    /// The number of the shard.
    pub shard: u16,
    /// The replica here, as far as the node has one.
    pub status: Status,
    /// The table of the replica here; `None`: there is no replica.
    pub table: Option<&'a Table>,
    /// How long commands of this node's clients took.
    pub latency: &'a Latencies,
    /// How long commits took.
    pub commits: &'a Latencies,
    /// How long it took to apply records.
    pub applies: &'a Latencies,
    /// Leaderships that this node has begun.
    pub leaderships: u64,
    /// When the group began again, empty, in milliseconds since the Unix epoch; 0: not since the process was
    /// started.
    pub began_empty_ms: u64,
}

/// The labels that distinguish a group's series. The shard is included where a keyspace has several.
fn label(group: &GroupMetrics<'_>) -> String {
    let name = label_text(group.keyspace.name());
    match group.keyspace.shards {
        1 => format!("keyspace=\"{name}\""),
        _ => format!("keyspace=\"{name}\",shard=\"{}\"", group.shard),
    }
}

/// How long commands took, by name and by keyspace, and how long commits and applying took.
pub fn time_metrics(
    commands: &CommandStatistics,
    leases: &LeaseTimes,
    groups: &[GroupMetrics<'_>],
    out: &mut String,
) {
    let begin = |name: &str, help: &str, out: &mut String| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n");
    };
    let name = "quorate_command_seconds";
    begin(name, "Time from a command of this node's clients to its reply.", out);
    for (number, latency) in commands.measured() {
        if let Some(spec) = by_number(number) {
            latency.render(name, &format!("command=\"{}\"", label_text(spec.name)), out);
        }
    }
    let groups = || groups.iter().map(|group| (label(group), group));
    let name = "quorate_keyspace_command_seconds";
    begin(name, "Time from a command of this node's clients to its reply.", out);
    groups().for_each(|(label, group)| group.latency.render(name, &label, out));
    let name = "quorate_keyspace_commit_seconds";
    begin(name, "Time from a write's order by this replica to its outcome, of one write at a time.", out);
    groups().for_each(|(label, group)| group.commits.render(name, &label, out));
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
    ordered.for_each(|(label, group)| group.applies.render(name, &label, out));
}

/// What is counted of a group: names without `quorate_keyspace_`, explanations and values.
fn figures(group: &GroupMetrics<'_>) -> [(&'static str, &'static str, u64); 25] {
    let (status, memory_max) = (&group.status, group.keyspace.shard_memory_max());
    let (keys, memory) = group.table.map_or((0, 0), |table| (table.len(), table.memory_bytes()));
    let counted = group.table.map(Table::statistics).unwrap_or_default();
    let changes = group.table.and_then(Table::history).map_or(0, |history| history.bytes());
    let (locks, queues) = (group.table.map(Table::locks), group.table.map(Table::queues));
    let lock = locks.map(Locks::statistics).unwrap_or_default();
    let queue = queues.map(Queues::statistics).unwrap_or_default();
    let of_locks = |count: fn(&Locks) -> usize| locks.map_or(0, count) as u64;
    let of_queues = |count: fn(&Queues) -> usize| queues.map_or(0, count) as u64;
    [
        ("ready", "1 when requests can be served.", status.ready.into()),
        ("writable", "Leader: 1 when enough followers are live.", status.writable.into()),
        ("leader", "1 on the node that leads.", (status.role == "leader").into()),
        ("epoch", "The highest epoch seen.", status.epoch),
        ("offset", "The last offset held.", status.offset),
        ("applied", "The last offset applied.", status.applied),
        ("lag_records", "Follower: records not applied yet.", status.lag),
        ("backlog_bytes", "History kept.", status.backlog_bytes as u64),
        ("keys", "Keys.", keys as u64),
        ("memory_bytes", "Memory of keys and values.", memory as u64),
        ("memory_max_bytes", "The most that keys and values may take; 0: any.", memory_max),
        ("hits_total", "Lookups that found the key.", counted.hits),
        ("misses_total", "Lookups that did not find the key.", counted.misses),
        ("evicted_total", "Keys removed for that bound.", counted.evicted),
        ("changes_bytes", "Latest changes kept for readers.", changes as u64),
        ("locks", "Locks that are held.", of_locks(Locks::len)),
        ("lock_waiters", "Requests that wait for a lock.", of_locks(Locks::waiters)),
        ("lock_sessions", "Sessions that hold locks.", of_locks(Locks::sessions)),
        ("lock_grants_total", "Locks that were granted.", lock.grants),
        ("lock_expiries_total", "Leases of locks and sessions that have ended.", lock.expiries),
        ("queue_waiters", "Requests that wait for elements.", of_queues(Queues::waiters)),
        ("queue_unsettled", "Requests that were served and are not settled.", of_queues(Queues::unsettled)),
        ("queue_served_total", "Requests that waited and were served.", queue.served),
        ("queue_returned_total", "Replies whose elements went back.", queue.returned),
        ("queue_dropped_total", "Replies whose elements could not go back.", queue.dropped),
    ]
}

/// Appends the metrics of groups, and when their keyspaces were saved.
pub fn group_metrics(groups: &[GroupMetrics<'_>], map: &ClusterMap, out: &mut String) {
    let all: Vec<_> = groups.iter().map(|group| (label(group), figures(group))).collect();
    for place in 0..all.first().map_or(0, |(_, figures)| figures.len()) {
        for (number, (label, figures)) in all.iter().enumerate() {
            let (name, help, value) = figures[place];
            if number == 0 {
                head(&format!("quorate_keyspace_{name}"), help, out);
            }
            let _ = writeln!(out, "quorate_keyspace_{name}{{{label}}} {value}");
        }
    }
    // The protocols' counters: each under its name, for the keyspaces whose protocol has it.
    let mut counted: BTreeMap<&str, (&str, String)> = BTreeMap::new();
    for group in groups {
        let label = label(group);
        for Counter { name, help, value } in &group.status.counters {
            let (_, lines) = counted.entry(name).or_insert((help, String::new()));
            let _ = writeln!(lines, "quorate_keyspace_{name}_total{{{label}}} {value}");
        }
    }
    for (name, (help, lines)) in counted {
        head(&format!("quorate_keyspace_{name}_total"), help, out);
        out.push_str(&lines);
    }
    backup_metrics(map, out);
    let name = "quorate_keyspace_leaderships_total";
    head(name, "Leaderships that this node has begun.", out);
    for group in groups.iter().filter(|group| group.keyspace.has_leader()) {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), group.leaderships);
    }
    let name = "quorate_keyspace_began_empty_timestamp_seconds";
    head(name, "When it began again, empty.", out);
    for group in groups.iter().filter(|group| group.began_empty_ms > 0) {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), seconds(group.began_empty_ms));
    }
    let name = "quorate_keyspace_lag_seconds";
    head(name, "Follower: since when it has not applied all.", out);
    for group in groups {
        let _ = writeln!(out, "{name}{{{}}} {}", label(group), seconds(group.status.lag_ms));
    }
    let name = "quorate_follower_lag_records";
    head(name, "Leader: records that a follower has not acknowledged.", out);
    for group in groups {
        for follower in &group.status.followers {
            let (label, id) = (label(group), follower.id);
            let _ = writeln!(out, "{name}{{{label},node=\"{id}\"}} {}", follower.lag);
        }
    }
}

/// When each keyspace was saved last, and when it should be again, as `quorate backup` has said. Nothing of
/// those of which no backup was ever tried.
fn backup_metrics(map: &ClusterMap, out: &mut String) {
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
        head(&name, help, out);
        for entry in map.keyspaces.values() {
            if let Some(saved) = &entry.saved {
                let (keyspace, time) = (label_text(entry.keyspace.name()), seconds(time(saved)));
                let _ = writeln!(out, "{name}{{keyspace=\"{keyspace}\"}} {time}");
            }
        }
    }
}
