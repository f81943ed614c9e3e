//! What a node reports to `CLUSTER REPORT`: its health, and figures for people and programs that look at a whole
//! cluster. The command needs the password, so its reply may hold more than `GET /health`.

use super::facts::client_count;
use super::report::{Health, health};
use crate::context::status::group_status;
use crate::node::Node;
use cluster::setting::Setting;
use commands::statistics::Counters;
use kv::{Reply, ReplyBuffer};
use protocol::NodeId;
use serde::Serialize;
use wire::release::Release;

/// Everything that a node reports. The names are documented in docs/reference/commands.md.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    health: Health,
    /// The cluster's agreed time, in milliseconds since the Unix epoch.
    time_ms: u64,
    /// Seconds since the process has started.
    uptime_s: u64,
    /// Whether the control group has admitted this node. If it was refused with a reason, `refusal` has it.
    admitted: bool,
    refusal: Option<String>,
    memory: MemoryFigures,
    disk: DiskFigures,
    certificate: Option<CertificateFigures>,
    clock: ClockFigures,
    links: Vec<LinkFigures>,
    counters: CounterFigures,
    groups: Vec<GroupFigures>,
    commands: Vec<CommandFigures>,
}

/// Memory, in bytes. A bound of 0 is none.
#[derive(Serialize)]
struct MemoryFigures {
    resident: u64,
    max: u64,
    machine: u64,
    data: u64,
    data_max: u64,
    clients: u64,
    full: bool,
}

/// The disk with the node's folder: its free bytes and its size, both 0 where the system does not report them; in how
/// many seconds it is full at the rate of the last hour, if it fills; how
/// many values it has damaged since the node's start, and how many of these were fetched from another replica.
#[derive(Serialize)]
struct DiskFigures {
    free: u64,
    size: u64,
    full: bool,
    full_in_s: Option<u64>,
    damaged: u64,
    repaired: u64,
}

/// The node's certificate: in how many seconds it expires, and whether the files have been changed to some that cannot
/// be used.
#[derive(Serialize)]
struct CertificateFigures {
    left_s: i64,
    unusable: bool,
}

#[derive(Serialize)]
struct ClockFigures {
    off: bool,
    ahead_ms: i64,
}

/// The link to another node.
#[derive(Serialize)]
struct LinkFigures {
    node: NodeId,
    up: bool,
    /// The release that both sides speak; 0 while the link is down.
    release: Release,
    /// For how long nothing has been received from the node.
    silent_ms: u64,
}

/// Counted since the process has started, apart from `clients`, which are those connected now.
#[derive(Serialize)]
struct CounterFigures {
    clients: u64,
    commands: u64,
    errors: u64,
    forwarded: u64,
    /// Commands that have ended since `CONFIG RESETSTAT`, and how long they took in all.
    calls: u64,
    calls_us: u64,
    client_bytes_in: u64,
    client_bytes_out: u64,
    peer_bytes_in: u64,
    peer_bytes_out: u64,
}

/// A shard of a keyspace. Counted since the replica was made.
#[derive(Serialize)]
struct GroupFigures {
    group: u16,
    prefix: String,
    shard: u16,
    keys: u64,
    memory: u64,
    memory_max: u64,
    eviction: String,
    evicted: u64,
    lookups: u64,
    unknown_writes: u64,
    lost_writes: u64,
    began_empty_ms: u64,
    locks: u64,
    lock_waiters: u64,
    /// Latencies of its commands that came from clients of this node.
    latency: Vec<(u64, u64)>,
}

/// A command of this node's clients, since `CONFIG RESETSTAT`.
#[derive(Serialize)]
struct CommandFigures {
    name: &'static str,
    calls: u64,
    failed: u64,
    rejected: u64,
    us: u64,
    /// Times in microseconds, each with the number of calls that took this long or up to an eighth less.
    latency: Vec<(u64, u64)>,
}

/// `CLUSTER REPORT`.
pub(super) fn report(node: &Node) -> ReplyBuffer {
    let text = serde_json::to_vec(&figures(node)).expect("a report is made of numbers, strings and lists");
    let mut replies = ReplyBuffer::new();
    replies.push(Reply::Text(&text));
    replies
}

fn figures(node: &Node) -> Report {
    let (cx, usage) = (&node.cx, &node.usage);
    let clock = node.clock.facts();
    let is_other = |id: &NodeId| *id != cx.configuration.node;
    let link = |id: NodeId| {
        let peer = cx.peers.get(id);
        let (silent_ms, release) = peer.map_or((0, 0), |peer| (peer.silent_ms(cx.now), peer.release()));
        LinkFigures { node: id, up: cx.peers.is_up(id), release, silent_ms }
    };
    Report {
        health: health(node),
        time_ms: cx.now.unix_ms,
        uptime_s: cx.now.ms_since(node.started.monotonic_us) / 1000,
        admitted: cx.is_admitted,
        refusal: cx.refusal.clone(),
        memory: MemoryFigures {
            resident: usage.resident_bytes,
            max: cx.memory.bytes_max(),
            machine: usage.machine_bytes,
            data: cx.memory.data_bytes(),
            data_max: cx.memory.data_max(),
            clients: cx.memory.clients_bytes(),
            full: cx.memory.is_full(),
        },
        disk: DiskFigures {
            free: usage.disk_free_bytes,
            size: usage.disk_bytes,
            full: cx.room.is_short(),
            full_in_s: usage.disk_full_in_s,
            damaged: node.values.counters.damaged,
            repaired: node.values.counters.repaired,
        },
        certificate: usage
            .certificate_left_s
            .map(|left_s| CertificateFigures { left_s, unusable: usage.certificate_is_unusable }),
        clock: ClockFigures { off: clock.is_off, ahead_ms: clock.ahead_ms },
        links: cx.map.nodes.keys().copied().filter(is_other).map(link).collect(),
        counters: CounterFigures {
            clients: client_count(node),
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
        groups: cx.groups.ids().iter().map(|id| group_figures(node, *id)).collect(),
        commands: cx.clients.statistics.used().filter_map(command_figures).collect(),
    }
}

fn group_figures(node: &Node, id: u16) -> GroupFigures {
    let (group, status) = (&node.cx.groups[id], group_status(&node.cx, id));
    let table = group.replica.as_ref().map(|replica| replica.table());
    let counted = table.map(|table| table.statistics());
    GroupFigures {
        group: id,
        prefix: group.keyspace.prefix.clone(),
        shard: group.shard,
        keys: table.map_or(0, |table| table.len() as u64),
        memory: table.map_or(0, |table| table.memory_bytes() as u64),
        memory_max: group.keyspace.shard_memory_max(),
        eviction: group.keyspace.eviction.text().to_string(),
        evicted: counted.map_or(0, |counted| counted.evicted),
        lookups: counted.map_or(0, |counted| counted.hits + counted.misses),
        unknown_writes: status.counted("unknown_writes"),
        lost_writes: status.counted("lost_writes"),
        began_empty_ms: group.began_empty_ms,
        locks: table.map_or(0, |table| table.locks().len() as u64),
        lock_waiters: table.map_or(0, |table| table.locks().waiters() as u64),
        latency: group.latency.buckets().collect(),
    }
}

fn command_figures((number, counted): (usize, &Counters)) -> Option<CommandFigures> {
    Some(CommandFigures {
        name: commands::by_number(number)?.name,
        calls: counted.calls,
        failed: counted.failed,
        rejected: counted.rejected,
        us: counted.latency.sum_us(),
        latency: counted.latency.buckets().collect(),
    })
}
