//! The metrics of a node itself.

use super::{coding_metrics, counters_and_gauges, head, seconds};
use crate::facts::Facts;
use cluster::words::label;
use std::fmt::Write;

/// Appends the metrics that have one value each, those of large values, and those of the links to other
/// nodes.
pub fn node_metrics(facts: &Facts, out: &mut String) {
    let Facts { report, server, clients, stats, values, .. } = facts;
    let (health, memory, disk, clock) = (&report.health, &report.memory, &report.disk, report.clock);
    let (counters, large) = (&stats.counters, &values.counters);
    let metrics = [
        ("clients", "Clients connected over RESP.", report.counters.clients),
        ("connections_total", "Connections taken over RESP.", counters.connections),
        ("connections_rejected_total", "Connections refused, too many.", counters.rejected_connections),
        (
            "auth_failures_total",
            "Failed or ignored attempts to authenticate, over RESP.",
            stats.auth_failures,
        ),
        ("unauthenticated_closed_total", "Closed to make room for others.", counters.unauthenticated_closed),
        ("http_requests_refused_total", "Clients closed for HTTP.", counters.http_requests_refused),
        ("commands_total", "Requests of clients.", counters.commands),
        ("forwarded_total", "Requests passed on to a leader.", counters.forwarded),
        ("waiting_requests", "Requests that wait until a node can take them.", stats.waiting as u64),
        ("long_writes_total", "Writes sent to their groups in parts.", counters.long_writes),
        ("long_replies_total", "Replies sent to other nodes in parts.", counters.long_replies),
        ("transaction_requests_total", "Requests over several groups.", counters.transaction_requests),
        ("transactions_begun_total", "Transactions over several groups.", counters.transactions_begun),
        ("transactions_committed_total", "Those that were committed.", counters.transactions_committed),
        ("transactions_refused_total", "Those that did nothing.", counters.transactions_refused),
        ("transactions_unknown_total", "Those whose outcome is not known.", counters.transactions_unknown),
        ("transactions_repeated_total", "Begun again after a conflict.", counters.transactions_repeated),
        ("errors_total", "Error replies.", counters.errors),
        ("output_overflows_total", "Clients closed for not reading.", counters.output_overflows),
        ("memory_max_bytes", "Memory that the node may take; 0: any.", memory.max),
        ("memory_data_max_bytes", "Memory that data may take.", memory.data_max),
        ("memory_data_bytes", "Memory that data takes.", memory.data),
        ("memory_clients_bytes", "Memory that clients hold.", memory.clients),
        ("memory_requests_bytes", "Requests under way.", facts.memory.requests),
        ("memory_full", "1 while data may not grow.", memory.full.into()),
        ("memory_clients_closed_total", "Clients closed for their memory.", counters.memory_closed),
        ("memory_refused_total", "Commands refused for lack of memory.", counters.memory_refused),
        ("map_version", "Version of the cluster map.", health.map_version),
        ("release", "Release of this program.", health.release.into()),
        ("level", "Release whose features the cluster uses.", health.level.into()),
        ("level_attainable", "The newest release that all nodes know.", server.level_attainable.into()),
        ("control_leader", "Node that leads the control group; 0: no lease.", health.control_leader.into()),
        ("admitted", "1 while the control group lets this node take part.", report.admitted.into()),
        (
            "quarantined_groups",
            "Replicas that stand before a fatal record.",
            server.quarantined_groups as u64,
        ),
        ("clock_off", "1 while the clock is farther than a second from most others.", clock.off.into()),
        ("clocks_known", "Nodes' wall clocks that are known here.", server.clocks_known as u64),
        ("journal_bytes", "Log that the next start would read.", health.journal_bytes),
        ("disk_full", "1 while there is no room for the log, or for values.", disk.full.into()),
        ("disk_free_bytes", "Room on the disk with the node's folder.", disk.free),
        ("disk_bytes", "Size of the disk with the node's folder.", disk.size),
        ("disk_ready_bytes", "Log that can be written, the reserve included.", facts.disk_ready_bytes),
        ("disk_refused_total", "Commands refused for lack of room on a disk.", facts.disk_refused),
        ("lock_waiting_clients", "Clients that wait for a lock.", clients.wait_for_locks as u64),
        ("queue_waiting_clients", "Clients that wait for elements.", clients.wait_for_elements as u64),
        ("values_on_disk", "Values that are on the disk.", values.on_disk),
        ("values_pending_bytes", "Values that are not on the disk yet.", values.pending_bytes),
        ("values_cache_bytes", "Values in memory for later readers.", values.cached_bytes),
        ("values_cache_hits_total", "Values that were in memory.", large.hits),
        ("values_cache_misses_total", "Values that were read from the disk.", large.misses),
        ("values_damaged_total", "Values that could not be read.", large.damaged),
        ("values_repaired_total", "Of these, fetched from another replica.", large.repaired),
        ("values_scrubbed_total", "Values that were read only to check them.", large.scrubbed),
        ("values_scrub_passes_total", "How often all values were scrubbed.", large.passes),
    ];
    counters_and_gauges(&metrics, out);
    if facts.coding.is_on {
        coding_metrics(facts.coding.counters, &facts.coding.choice, out);
    }
    head("quorate_clock_off_seconds", "How far the wall clock is off, either way.", out);
    let off = seconds(clock.ahead_ms.unsigned_abs());
    // Writing to a string does not fail, here and below.
    let _ = writeln!(out, "quorate_clock_off_seconds {off}");
    head("quorate_build_info", "1: the program's version, and which node of which cluster it is.", out);
    let (version, cluster, node) = (&health.version, label(&health.cluster), health.node);
    let labels = format_args!("version=\"{version}\",cluster=\"{cluster}\",node=\"{node}\"");
    let _ = writeln!(out, "quorate_build_info{{{labels}}} 1");
    head("quorate_peer_link_up", "1 while the link to a node is up.", out);
    for link in &report.links {
        let _ = writeln!(out, "quorate_peer_link_up{{node=\"{}\"}} {}", link.node, u8::from(link.up));
    }
}
