//! The metrics of a node's groups, and how long commands, commits and leases took.

use super::{head, seconds};
use cluster::Keyspace;
use cluster::control::{ClusterMap, LeaseTimes, Saved};
use cluster::words::label as label_text;
use commands::by_number;
use commands::statistics::{CommandStatistics, Latencies};
use kv::Table;
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
    /// When the group began again, empty, in milliseconds since the Unix epoch; 0: not since the process was started.
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

/// Appends the metrics of groups, and when their keyspaces were saved.
pub fn group_metrics(groups: &[GroupMetrics<'_>], map: &ClusterMap, out: &mut String) {
    type Value = fn(&GroupMetrics<'_>, &Status) -> u64;
    fn table(group: &GroupMetrics<'_>, value: impl Fn(&Table) -> u64) -> u64 {
        group.table.map_or(0, value)
    }
    let series: [(&str, &str, Value); 25] = [
        ("ready", "1 when requests can be served.", |_, status| status.ready.into()),
        ("writable", "Leader: 1 when enough followers are live.", |_, status| status.writable.into()),
        ("leader", "1 on the node that leads.", |_, status| (status.role == "leader").into()),
        ("epoch", "The highest epoch seen.", |_, status| status.epoch),
        ("offset", "The last offset held.", |_, status| status.offset),
        ("applied", "The last offset applied.", |_, status| status.applied),
        ("lag_records", "Follower: records not applied yet.", |_, status| status.lag),
        ("backlog_bytes", "History kept.", |_, status| status.backlog_bytes as u64),
        ("keys", "Keys.", |group, _| table(group, |table| table.len() as u64)),
        ("memory_bytes", "Memory of keys and values.", |group, _| {
            table(group, |table| table.memory_bytes() as u64)
        }),
        ("memory_max_bytes", "The most that keys and values may take; 0: any.", |group, _| {
            group.keyspace.shard_memory_max()
        }),
        ("hits_total", "Lookups that found the key.", |group, _| {
            table(group, |table| table.statistics().hits)
        }),
        ("misses_total", "Lookups that did not find the key.", |group, _| {
            table(group, |table| table.statistics().misses)
        }),
        ("evicted_total", "Keys removed for that bound.", |group, _| {
            table(group, |table| table.statistics().evicted)
        }),
        ("changes_bytes", "Latest changes kept for readers.", |group, _| {
            table(group, |table| table.history().map_or(0, |history| history.bytes() as u64))
        }),
        ("locks", "Locks that are held.", |group, _| table(group, |table| table.locks().len() as u64)),
        ("lock_waiters", "Requests that wait for a lock.", |group, _| {
            table(group, |table| table.locks().waiters() as u64)
        }),
        ("lock_sessions", "Sessions that hold locks.", |group, _| {
            table(group, |table| table.locks().sessions() as u64)
        }),
        ("lock_grants_total", "Locks that were granted.", |group, _| {
            table(group, |table| table.locks().statistics().grants)
        }),
        ("lock_expiries_total", "Leases of locks and sessions that have ended.", |group, _| {
            table(group, |table| table.locks().statistics().expiries)
        }),
        ("queue_waiters", "Requests that wait for elements.", |group, _| {
            table(group, |table| table.queues().waiters() as u64)
        }),
        ("queue_unsettled", "Requests that were served and are not settled.", |group, _| {
            table(group, |table| table.queues().unsettled() as u64)
        }),
        ("queue_served_total", "Requests that waited and were served.", |group, _| {
            table(group, |table| table.queues().statistics().served)
        }),
        ("queue_returned_total", "Replies whose elements went back.", |group, _| {
            table(group, |table| table.queues().statistics().returned)
        }),
        ("queue_dropped_total", "Replies whose elements could not go back.", |group, _| {
            table(group, |table| table.queues().statistics().dropped)
        }),
    ];
    for (name, help, value) in series {
        let name = format!("quorate_keyspace_{name}");
        head(&name, help, out);
        for group in groups {
            let (label, value) = (label(group), value(group, &group.status));
            let _ = writeln!(out, "{name}{{{label}}} {value}");
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

/// When each keyspace was saved last, and when it should be again, as `quorate backup` has said. Nothing of those of which
/// no backup was ever tried.
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
