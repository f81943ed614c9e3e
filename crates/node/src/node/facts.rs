//! Collects the facts of `INFO`.

use crate::context::status::{group_status, is_master};
use crate::groups::Group;
use crate::node::Node;
use cluster::setting::{Setting, policy_name};
use info::facts::{
    ClientFacts, CodingFacts, CpuFacts, Facts, KeyspaceFacts, LockFacts, MemoryFacts, ReplicaFacts,
    ReplicationFacts, ServerFacts, StatsFacts, ValueFacts,
};
use info::{Usage, render};
use kv::table::Eviction;
use kv::{Reply, ReplyBuffer, Table};
use protocol::NodeId;
use protocol::leader_follower::FollowerStatus;
use protocol::status::Status;
use wire::resp::Arguments;

/// `INFO [section …]`.
pub(super) fn info(node: &Node, arguments: Arguments<'_>) -> ReplyBuffer {
    let sections: Vec<&[u8]> = arguments.iter().skip(1).collect();
    let (mut text, mut replies) = (String::new(), ReplyBuffer::new());
    render(&facts(node), &sections, &mut text);
    replies.push(Reply::Text(text.as_bytes()));
    replies
}

/// `ROLE`: in the default keyspace.
pub(super) fn role(node: &Node) -> ReplyBuffer {
    let replication = facts(node).replication;
    let mut replies = ReplyBuffer::new();
    if replication.is_master {
        let connected = || replication.replicas.iter().filter(|replica| replica.is_connected());
        replies.array(3);
        replies.bulk(b"master");
        replies.integer(replication.offset as i64);
        replies.array(connected().count());
        for replica in connected() {
            replies.array(3);
            replies.bulk(replica.host.as_bytes());
            replies.bulk(replica.port.to_string().as_bytes());
            replies.bulk(replica.offset.to_string().as_bytes());
        }
        return replies;
    }
    replies.array(5);
    replies.bulk(b"slave");
    replies.bulk(replication.leader_host.as_bytes());
    replies.integer(i64::from(replication.leader_port));
    replies.bulk(if replication.leader_is_up { b"connected" } else { b"connect" });
    replies.integer(replication.offset as i64);
    replies
}

/// `MEMORY STATS`: those of Redis's fields that are known here.
pub(super) fn memory_stats(node: &Node) -> ReplyBuffer {
    let Facts { memory, keyspaces, .. } = facts(node);
    let keys: u64 = keyspaces.iter().map(|keyspace| keyspace.keys).sum();
    let percentage =
        |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let peak = memory.used_peak.max(memory.used);
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", memory.used),
        ("replication.backlog", memory.backlog),
        ("clients.normal", memory.clients),
        ("lua.caches", memory.scripts.1 as u64),
        ("overhead.total", memory.used.saturating_sub(memory.dataset)),
        ("keys.count", keys),
        ("keys.bytes-per-key", memory.dataset.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", memory.dataset),
        ("allocator.resident", memory.resident),
    ];
    let shares = [
        ("dataset.percentage", percentage(memory.dataset, memory.used)),
        ("peak.percentage", percentage(memory.used, peak)),
        ("fragmentation", if memory.used == 0 { 0.0 } else { memory.resident as f64 / memory.used as f64 }),
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
    let statuses: Vec<Status> = node.cx.groups.ids().iter().map(|id| group_status(&node.cx, *id)).collect();
    let groups = node.cx.groups.iter().map(|(_, group)| group);
    let default = groups.clone().zip(&statuses).find(|(group, _)| group.keyspace.prefix.is_empty());
    let keyspaces = groups.zip(&statuses);
    Facts {
        server: server_facts(node),
        clients: ClientFacts {
            connected: client_count(node),
            connections_max: node.cx.parameters.connections_max() as u64,
            blocked: blocked_clients(node),
            tracking: node.following.tracking.counts()[0],
        },
        memory: memory_facts(node, &statuses),
        stats: stats_facts(node, &statuses),
        locks: lock_facts(node),
        replication: default
            .map(|(group, status)| replication_facts(node, group, status))
            .unwrap_or_default(),
        cpu: CpuFacts { system: node.usage.system_us as f64 / 1e6, user: node.usage.user_us as f64 / 1e6 },
        coding: coding_facts(node),
        values: value_facts(node),
        keyspaces: keyspaces.map(|(group, status)| keyspace_facts(group, status)).collect(),
        commands: node.cx.clients.statistics.clone(),
        saved_ms: node.cx.journal.saved_ms(),
        disk_is_full: node.cx.room.is_short(),
        disk_ready_bytes: node.cx.journal.ready_bytes(),
        disk_refused: node.cx.room.refused(),
        loading: statuses.iter().any(|status| status.role == "recovering"),
    }
}

/// How many clients are connected.
pub(super) fn client_count(node: &Node) -> u64 {
    node.cx.clients.sessions.iter().filter(|(_, session)| !session.is_internal()).count() as u64
}

/// How many clients wait for something, or have a request that is held.
fn blocked_clients(node: &Node) -> u64 {
    let sessions = node.cx.clients.sessions.iter();
    sessions.filter(|(_, session)| session.is_waiting() || session.is_held_back()).count() as u64
}

fn coding_facts(node: &Node) -> CodingFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref()?.fragments());
    let (cached_values, cached_bytes) = node.coding.cached();
    let mut facts = CodingFacts {
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

pub(super) fn value_facts(node: &Node) -> ValueFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
    let (pending_bytes, cached_bytes) = node.values.memory_bytes();
    ValueFacts {
        on_disk: replicas.map(|replica| replica.table().spilled_len() as u64).sum(),
        pending_bytes: pending_bytes as u64,
        cached_bytes: cached_bytes as u64,
        counters: node.values.counters(),
    }
}

fn server_facts(node: &Node) -> ServerFacts {
    let process = &node.cx.configuration.process;
    ServerFacts {
        os: process.os.clone(),
        process_id: process.process_id,
        run_id: process.run_id.clone(),
        tcp_port: address_of(node, node.cx.configuration.node).1,
        unix_us: node.cx.now.unix_ms * 1000,
        clock: node.clock.facts(),
        uptime_seconds: node.cx.now.ms_since(node.started.monotonic_us) / 1000,
        executable: process.executable.clone(),
        config_file: process.config_file.clone(),
        multiplexing_api: process.multiplexing_api.to_string(),
        release: node.cx.configuration.releases.newest,
        level: node.cx.map.level,
        node: node.cx.configuration.node as u64,
        cluster: node.cx.configuration.cluster.clone(),
        nodes: node.cx.configuration.nodes.len(),
    }
}

fn memory_facts(node: &Node, statuses: &[Status]) -> MemoryFacts {
    let replicas = node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
    let dataset: u64 = replicas.map(|replica| replica.memory_bytes() as u64).sum();
    let backlog: u64 = statuses.iter().map(|status| status.backlog_bytes as u64).sum();
    let output: u64 = node.cx.clients.sessions.iter().map(|(_, session)| session.output_bytes() as u64).sum();
    let default = node.cx.map.keyspaces.get("").map(|entry| &entry.keyspace);
    let Usage { resident_bytes, resident_bytes_peak, machine_bytes, .. } = node.usage;
    MemoryFacts {
        used: dataset + backlog + output,
        used_peak: resident_bytes_peak,
        dataset,
        backlog,
        resident: resident_bytes,
        machine: machine_bytes,
        keyspace_max: default.map_or(0, |keyspace| keyspace.memory_max),
        policy: policy_name(default.map_or(Eviction::None, |keyspace| keyspace.eviction)),
        bytes_max: node.cx.memory.bytes_max(),
        data_max: node.cx.memory.data_max(),
        clients: node.cx.memory.clients_bytes(),
        data: node.cx.memory.data_bytes(),
        requests: node.cx.memory.request_bytes() as u64,
        is_full: node.cx.memory.is_full(),
        scripts: node.scripts.size(),
    }
}

fn stats_facts(node: &Node, statuses: &[Status]) -> StatsFacts {
    let counted = tables(node).map(Table::statistics);
    let (mut expired, mut evicted, mut hits, mut misses) = (0, 0, 0, 0);
    for statistics in counted {
        expired += statistics.expired;
        evicted += statistics.evicted;
        hits += statistics.hits;
        misses += statistics.misses;
    }
    StatsFacts {
        counters: node.cx.counters,
        auth_failures: node.auth_guard.failures(),
        operations_per_second: node.rate.per_second(),
        input_bytes: node.usage.client_input_bytes,
        output_bytes: node.usage.client_output_bytes,
        replication_input_bytes: node.usage.peer_input_bytes,
        replication_output_bytes: node.usage.peer_output_bytes,
        full_resyncs: statuses.iter().map(|status| status.counted("full_resyncs")).sum(),
        partial_resyncs: statuses.iter().map(|status| status.counted("partial_resyncs")).sum(),
        expired_keys: expired,
        evicted_keys: evicted,
        keyspace_hits: hits,
        keyspace_misses: misses,
        waiting: node.forwarding.waiting_count(),
        channels: node.channels.channel_count(),
        patterns: node.channels.pattern_count(),
        shard_channels: node.channels.shard_channel_count(),
        tracked: node.following.tracking.counts(),
    }
}

fn lock_facts(node: &Node) -> LockFacts {
    let waiting_clients = node.waits.waiting().0 as u64;
    let sum = LockFacts { waiting_clients, ..LockFacts::default() };
    tables(node).map(Table::locks).fold(sum, |sum, locks| LockFacts {
        held: sum.held + locks.len() as u64,
        waiters: sum.waiters + locks.waiters() as u64,
        sessions: sum.sessions + locks.sessions() as u64,
        grants: sum.grants + locks.statistics().grants,
        expiries: sum.expiries + locks.statistics().expiries,
        ..sum
    })
}

fn replication_facts(node: &Node, group: &Group, status: &Status) -> ReplicationFacts {
    let replica = |follower: &FollowerStatus| {
        let (host, port) = address_of(node, follower.id);
        ReplicaFacts {
            node: follower.id as u64,
            host,
            port,
            state: match follower.state {
                "streaming" => "online".into(),
                "snapshot" => "send_bulk".into(),
                _ => "offline".into(),
            },
            offset: follower.acked,
            lag_records: follower.lag,
            lag_ms: follower.lag_ms,
        }
    };
    let (leader_host, leader_port) = address_of(node, status.leader);
    ReplicationFacts {
        is_master: is_master(&node.cx),
        replicas: status.followers.iter().map(replica).collect(),
        // 40 digits that change with the history. Here they are the epoch.
        replication_id: format!("{:040x}", status.epoch),
        offset: status.offset,
        applied: status.applied,
        backlog_start: status.backlog_start,
        backlog_bytes: status.backlog_bytes as u64,
        backlog_bytes_max: group.keyspace.backlog_bytes as u64,
        leader_host,
        leader_port,
        leader_is_up: status.ready,
        is_resyncing: status.receives_snapshot,
        leader_silent_ms: status.leader_silent_ms,
    }
}

fn tables(node: &Node) -> impl Iterator<Item = &Table> {
    node.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref()).map(|replica| replica.table())
}

/// The host and the port at which clients reach a node.
fn address_of(node: &Node, id: NodeId) -> (String, u16) {
    let node = node.cx.configuration.nodes.iter().find(|node| node.id == id);
    node.map(|node| (node.host.clone(), node.client_port)).unwrap_or_default()
}

fn keyspace_facts(group: &Group, status: &Status) -> KeyspaceFacts {
    let table = group.replica.as_ref().map(|replica| replica.table());
    KeyspaceFacts {
        prefix: group.keyspace.prefix.clone(),
        replication: group.keyspace.replication.text().to_string(),
        acks: group.keyspace.acks.text().to_string(),
        durability: group.keyspace.durability().text().to_string(),
        reads: group.keyspace.reads.text().to_string(),
        role: status.role.into(),
        leader: status.leader as u64,
        epoch: status.epoch,
        offset: status.offset,
        lag: status.lag,
        lag_ms: status.lag_ms,
        ready: status.ready,
        keys: table.map_or(0, |table| table.len() as u64),
        expires: table.map_or(0, |table| table.expires() as u64),
        memory: table.map_or(0, |table| table.memory_bytes() as u64),
        memory_max: group.keyspace.shard_memory_max(),
        eviction: group.keyspace.eviction.text().to_string(),
        evicted: table.map_or(0, |table| table.statistics().evicted),
    }
}
