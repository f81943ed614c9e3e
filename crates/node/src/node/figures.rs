//! What a node reports to `CLUSTER REPORT`: its health, and figures for people and programs that look at a whole
//! cluster. The command needs the password, so its reply may hold more than `GET /health`.

use super::facts::client_count;
use super::report::health;
use crate::context::status::group_status;
use crate::node::Node;
use cluster::setting::Setting;
use commands::statistics;
use info::report::{Clock, CommandFigures, Counters, Disk, GroupFigures, Link, Memory, Report};
use kv::{Reply, ReplyBuffer};
use protocol::NodeId;

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
        Link { node: id, up: cx.peers.is_up(id), release, silent_ms }
    };
    Report {
        health: health(node),
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
        clock: Clock { off: clock.is_off, ahead_ms: clock.ahead_ms },
        links: cx.map.nodes.keys().copied().filter(is_other).map(link).collect(),
        counters: Counters {
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
