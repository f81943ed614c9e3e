//! Collects what `INFO` and the metrics show: the node's report, and what only they show.

use super::report::{report, statuses};
use crate::context::status::{group_status, is_master};
use crate::groups::Group;
use crate::node::{Node, key_sizes};
use cluster::setting::policy_name;
use info::facts::{
    ClientFacts, CodingFacts, Facts, LockFacts, MemoryFacts, ReplicationFacts, ServerFacts, StatsFacts,
    ValueFacts,
};
use info::metrics::{GroupMetrics, group_metrics, node_metrics, time_metrics};
use info::render;
use kv::table::Eviction;
use kv::{Reply, ReplyBuffer, Table};
use protocol::status::Status;
use wire::resp::Arguments;

/// `INFO [section …]`.
pub(super) fn info(node: &Node, arguments: Arguments<'_>) -> ReplyBuffer {
    let sections: Vec<&[u8]> = arguments.iter().skip(1).collect();
    let (mut text, mut replies) = (String::new(), ReplyBuffer::new());
    render(&facts(node), &sections, &mut text);
    if sections.iter().any(|section| section.eq_ignore_ascii_case(b"keysizes")) {
        key_sizes::write(node, &mut text);
    }
    replies.push(Reply::Text(text.as_bytes()));
    replies
}

/// Appends the node's metrics in Prometheus's text format.
pub(super) fn metrics(node: &Node, out: &mut String) {
    let facts = facts(node);
    node_metrics(&facts, out);
    let groups: Vec<_> = node.cx.groups.iter().map(|(id, group)| metrics_of(node, id, group)).collect();
    time_metrics(&facts.commands, node.cluster.control().lease_times(), &groups, out);
    group_metrics(&groups, &node.cx.map, out);
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

/// `ROLE`: in the default keyspace.
pub(super) fn role(node: &Node) -> ReplyBuffer {
    let facts = facts(node);
    let default = facts.default_keyspace();
    let mut replies = ReplyBuffer::new();
    if facts.replication.is_master {
        let connected = || default.followers.iter().filter(|follower| follower.is_connected());
        replies.array(3);
        replies.bulk(b"master");
        replies.integer(default.offset as i64);
        replies.array(connected().count());
        for follower in connected() {
            let (host, port) = facts.address_of(follower.node);
            replies.array(3);
            replies.bulk(host.as_bytes());
            replies.bulk(port.to_string().as_bytes());
            replies.bulk(follower.acked.to_string().as_bytes());
        }
        return replies;
    }
    let (host, port) = facts.address_of(default.leader);
    replies.array(5);
    replies.bulk(b"slave");
    replies.bulk(host.as_bytes());
    replies.integer(i64::from(port));
    replies.bulk(if default.ready { b"connected" } else { b"connect" });
    replies.integer(default.offset as i64);
    replies
}

/// `MEMORY STATS`: those of Redis's fields that are known here.
pub(super) fn memory_stats(node: &Node) -> ReplyBuffer {
    let facts = facts(node);
    let (memory, process) = (&facts.memory, &facts.report.memory);
    let keys: u64 = facts.report.groups.iter().map(|group| group.keys).sum();
    let percentage =
        |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let peak = facts.used_peak();
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", memory.used),
        ("replication.backlog", memory.backlog),
        ("clients.normal", process.clients),
        ("lua.caches", memory.scripts.1 as u64),
        ("overhead.total", memory.used.saturating_sub(memory.dataset)),
        ("keys.count", keys),
        ("keys.bytes-per-key", memory.dataset.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", memory.dataset),
        ("allocator.resident", process.resident),
    ];
    let shares = [
        ("dataset.percentage", percentage(memory.dataset, memory.used)),
        ("peak.percentage", percentage(memory.used, peak)),
        ("fragmentation", facts.fragmentation()),
    ];
    let mut replies = ReplyBuffer::new();
    replies.map(numbers.len() + shares.len());
    for (name, number) in numbers {
        replies.bulk(name.as_bytes());
        replies.integer(number as i64);
    }
    for (name, share) in shares {
        replies.bulk(name.as_bytes());
        replies.push(Reply::Double(share));
    }
    replies
}

fn facts(node: &Node) -> Facts {
    let (cx, statuses) = (&node.cx, statuses(node));
    Facts {
        report: report(node, &statuses),
        usage: node.usage,
        server: ServerFacts {
            process: cx.configuration.process.clone(),
            redis_version: cx.configuration.redis_version,
            nodes: cx.configuration.nodes.clone(),
            level_attainable: cx.map.attainable_level(),
            quarantined_groups: cx.groups.iter().filter(|(_, group)| group.holds.is_some()).count(),
            clocks_known: node.clock.known(),
            clocks_agree: node.clock.is_agreed(),
        },
        clients: client_facts(node),
        memory: memory_facts(node, &statuses),
        stats: stats_facts(node, &statuses),
        locks: lock_facts(node),
        replication: replication_facts(node, &statuses),
        coding: coding_facts(node),
        values: value_facts(node),
        commands: cx.clients.statistics.clone(),
        saved_ms: cx.journal.saved_ms(),
        disk_ready_bytes: cx.journal.ready_bytes(),
        disk_refused: cx.room.refused(),
        loading: statuses.iter().any(|status| status.role == "recovering"),
    }
}

fn client_facts(node: &Node) -> ClientFacts {
    let sessions = node.cx.clients.sessions.iter();
    let (wait_for_locks, wait_for_elements) = node.waits.waiting();
    let (awaited_keys, consumed_keys) = node.waits.awaited_keys();
    ClientFacts {
        connections_max: node.cx.parameters.connections_max() as u64,
        blocked: sessions.filter(|(_, session)| session.is_waiting() || session.is_held_back()).count()
            as u64,
        wait_for_locks,
        wait_for_elements,
        awaited_keys,
        consumed_keys,
    }
}

fn coding_facts(node: &Node) -> CodingFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref()?.fragments());
    let (cached_values, cached_bytes) = node.coding.cached();
    let mut facts = CodingFacts {
        is_on: node.coding.is_on(),
        cached_values: cached_values as u64,
        cached_bytes: cached_bytes as u64,
        counters: node.coding.counters(),
        choice: node.coding.choice_summary(),
        traces: node.coding.traces(),
        ..CodingFacts::default()
    };
    for replica in replicas {
        let (fragments, bytes) = replica.fragments_kept();
        facts.fragments += fragments as u64;
        facts.fragment_bytes += bytes as u64;
        facts.lacking += replica.fragments_lacking() as u64;
    }
    facts
}

fn value_facts(node: &Node) -> ValueFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
    let (pending_bytes, cached_bytes) = node.values.memory_bytes();
    ValueFacts {
        on_disk: replicas.map(|replica| replica.table().spilled_len() as u64).sum(),
        pending_bytes: pending_bytes as u64,
        cached_bytes: cached_bytes as u64,
        counters: node.values.counters(),
    }
}

fn memory_facts(node: &Node, statuses: &[Status]) -> MemoryFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
    let dataset: u64 = replicas.map(|replica| replica.memory_bytes() as u64).sum();
    let backlog: u64 = statuses.iter().map(|status| status.backlog_bytes as u64).sum();
    let output: u64 = node.cx.clients.sessions.iter().map(|(_, session)| session.output_bytes() as u64).sum();
    let default = node.cx.map.keyspaces.get("").map(|entry| &entry.keyspace);
    MemoryFacts {
        used: dataset + backlog + output,
        dataset,
        backlog,
        keyspace_max: default.map_or(0, |keyspace| keyspace.memory_max),
        policy: policy_name(default.map_or(Eviction::None, |keyspace| keyspace.eviction)),
        requests: node.cx.memory.request_bytes() as u64,
        scripts: node.scripts.size(),
    }
}

fn stats_facts(node: &Node, statuses: &[Status]) -> StatsFacts {
    StatsFacts {
        counters: node.cx.counters,
        auth_failures: node.auth_guard.failures(),
        operations_per_second: node.rate.per_second(),
        full_resyncs: statuses.iter().map(|status| status.counted("full_resyncs")).sum(),
        partial_resyncs: statuses.iter().map(|status| status.counted("partial_resyncs")).sum(),
        counted: node.cx.groups.statistics().since(node.cx.counted_before),
        untidy: tables(node).map(|table| table.untidy() as u64).sum(),
        waiting: node.forwarding.waiting_count(),
        channels: node.channels.channel_count(),
        patterns: node.channels.pattern_count(),
        shard_channels: node.channels.shard_channel_count(),
        tracked: node.following.tracking.counts(),
    }
}

fn lock_facts(node: &Node) -> LockFacts {
    let locks = || tables(node).map(Table::locks);
    LockFacts {
        sessions: locks().map(|locks| locks.sessions() as u64).sum(),
        grants: locks().map(|locks| locks.statistics().grants).sum(),
        expiries: locks().map(|locks| locks.statistics().expiries).sum(),
    }
}

fn replication_facts(node: &Node, statuses: &[Status]) -> ReplicationFacts {
    let mut groups = node.cx.groups.iter().map(|(_, group)| group).zip(statuses);
    let default = groups.find(|(group, _)| group.keyspace.prefix.is_empty());
    let Some((group, status)) = default else { return ReplicationFacts::default() };
    ReplicationFacts {
        is_master: is_master(&node.cx),
        backlog_start: status.backlog_start,
        backlog_bytes: status.backlog_bytes as u64,
        backlog_bytes_max: group.keyspace.backlog_bytes as u64,
        is_resyncing: status.receives_snapshot,
        leader_silent_ms: status.leader_silent_ms,
    }
}

fn tables(node: &Node) -> impl Iterator<Item = &Table> {
    node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref()).map(|replica| replica.table())
}
