//! `INFO`: facts and figures in the text form that clients, tools and exporters of Redis read.
//!
//! The names of fields are Redis's where Redis has the field; the section `quorate` holds what only this
//! server has.

#[cfg(test)]
mod tests;

use std::fmt::{Display, Write};

use crate::VERSION;
use crate::facts::{Facts, PeerFacts, StoringTimes};
use crate::report::{FollowerHealth, GroupFigures, KeyspaceHealth};
use cluster::keyspace::database_named;
use cluster::words::field;
use commands::{DATABASES, RedisVersion, by_number};

struct Section {
    /// The name by which clients request it.
    name: &'static str,
    /// Its heading.
    title: &'static str,
    /// Whether it is shown without being requested.
    by_default: bool,
    write: fn(&Facts, &mut Fields<'_>),
}

/// All sections in the order of the output.
static SECTIONS: [Section; 17] = [
    Section { name: "server", title: "Server", by_default: true, write: server },
    Section { name: "clients", title: "Clients", by_default: true, write: clients },
    Section { name: "memory", title: "Memory", by_default: true, write: memory },
    Section { name: "persistence", title: "Persistence", by_default: true, write: persistence },
    Section { name: "stats", title: "Stats", by_default: true, write: stats },
    Section { name: "replication", title: "Replication", by_default: true, write: replication },
    Section { name: "cpu", title: "CPU", by_default: true, write: cpu },
    Section { name: "commandstats", title: "Commandstats", by_default: false, write: command_statistics },
    Section { name: "errorstats", title: "Errorstats", by_default: true, write: error_statistics },
    Section { name: "latencystats", title: "Latencystats", by_default: false, write: latency_statistics },
    Section { name: "cluster", title: "Cluster", by_default: true, write: cluster },
    Section { name: "keyspace", title: "Keyspace", by_default: true, write: keyspace },
    Section { name: "locks", title: "Locks", by_default: true, write: locks },
    Section { name: "quorate", title: "Quorate", by_default: true, write: quorate },
    Section { name: "coding", title: "Coding", by_default: false, write: coding },
    Section { name: "codingtrace", title: "Codingtrace", by_default: false, write: coding_trace },
    Section { name: "values", title: "Values", by_default: false, write: values },
];

/// Appends the sections with these names, ignoring case. `default`, `all` and `everything` stand for
/// several sections; no names at all stand for `default`. Unknown names are ignored, as in Redis.
pub fn render(facts: &Facts, sections: &[&[u8]], out: &mut String) {
    let asked = |name: &str| sections.iter().any(|section| section.eq_ignore_ascii_case(name.as_bytes()));
    let all = asked("all") || asked("everything");
    let default = sections.is_empty() || asked("default");
    let begin = out.len();
    for section in &SECTIONS {
        if all || (default && section.by_default) || asked(section.name) {
            if out.len() > begin {
                out.push_str("\r\n");
            }
            // Writing to a string does not fail, here and below.
            let _ = write!(out, "# {}\r\n", section.title);
            (section.write)(facts, &mut Fields { out });
        }
    }
}

/// Writes one `name:value` line after another.
struct Fields<'o> {
    out: &'o mut String,
}

impl Fields<'_> {
    fn put(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.out, "{name}:{value}\r\n");
    }

    /// Writes Redis's fields whose values are always the same here.
    fn constants(&mut self, fields: &[(&str, &str)]) {
        fields.iter().for_each(|(name, value)| self.put(name, value));
    }

    /// Writes a number of bytes, and the same in a readable form.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.put(name, bytes);
        let _ = write!(self.out, "{name}_human:{}\r\n", human(bytes));
    }
}

/// Formats bytes as Redis does: `1.06M`.
fn human(bytes: u64) -> String {
    let units = [("P", 1 << 50), ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1u64 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.2}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

fn coding(facts: &Facts, fields: &mut Fields<'_>) {
    let coding = &facts.coding;
    fields.put("coded_fragments", coding.fragments);
    fields.bytes("coded_fragment_memory", coding.fragment_bytes);
    fields.put("coded_fragments_lacking", coding.lacking);
    fields.put("coded_fragments_rebuilt", coding.counters.rebuilt);
    fields.put("coded_bytes_rebuilt", coding.counters.rebuilt_bytes);
    fields.put("coded_values_stored", coding.counters.values_coded);
    fields.put("coded_values_copied", coding.counters.values_copied);
    fields.put("coded_fallbacks", coding.counters.fallbacks);
    fields.put("coded_pieces_damaged", coding.counters.damaged_pieces);
    fields.put("coded_cache_values", coding.cached_values);
    fields.bytes("coded_cache_memory", coding.cached_bytes);
    fields.put("coded_cache_hits", coding.counters.cache_hits);
    fields.put("coded_cache_misses", coding.counters.cache_misses);
    let choice = &coding.choice;
    for (way, count) in &choice.chosen {
        fields.put(&format!("coded_chosen_{way}"), count);
    }
    fields.put("coded_keep_usec", format_args!("{:.0}", choice.keep_us));
    let figure = |figure: Option<f64>| figure.map_or("unknown".to_owned(), |figure| format!("{figure:.0}"));
    fields.put("coded_encoding_bytes_per_second", figure(choice.encoding));
    fields.put("coded_uplink_bytes_per_second", figure(choice.uplink));
    for PeerFacts { node, bandwidth, round_trip_us } in &choice.peers {
        let (bandwidth, round_trip) = (figure(*bandwidth), figure(*round_trip_us));
        let value = format_args!("bytes_per_second={bandwidth},round_trip_usec={round_trip}");
        fields.put(&format!("coded_peer{node}"), value);
    }
}

/// Writes how long the steps of the last writes of large values took, the oldest first.
fn coding_trace(facts: &Facts, fields: &mut Fields<'_>) {
    for StoringTimes { id, bytes, parts, encode_us, disperse_us, order_us } in &facts.coding.traces {
        let value = format_args!(
            "bytes={bytes},k={parts},encode_usec={encode_us},disperse_usec={disperse_us},order_usec={order_us}"
        );
        fields.put(&format!("trace{}", id.counter), value);
    }
}

fn values(facts: &Facts, fields: &mut Fields<'_>) {
    let values = &facts.values;
    let counters = values.counters;
    fields.put("values_on_disk", values.on_disk);
    fields.bytes("values_pending_memory", values.pending_bytes);
    fields.bytes("values_cache_memory", values.cached_bytes);
    fields.put("values_cache_hits", counters.hits);
    fields.put("values_cache_misses", counters.misses);
    let asked = (counters.hits + counters.misses).max(1);
    fields.put("values_cache_hit_rate", format_args!("{:.3}", counters.hits as f64 / asked as f64));
    fields.put("values_stored", counters.stored);
    fields.put("values_removed", counters.removed);
    fields.put("values_damaged", counters.damaged);
    fields.put("values_repaired", counters.repaired);
    fields.put("values_scrubbed", counters.scrubbed);
    fields.put("values_scrub_passes", counters.passes);
}

fn server(facts: &Facts, fields: &mut Fields<'_>) {
    let (report, server, process) = (&facts.report, &facts.server, &facts.server.process);
    let of_level = || RedisVersion::of_level(report.health.level);
    fields.put("redis_version", server.redis_version.unwrap_or_else(of_level));
    fields.put("quorate_version", VERSION);
    fields.put("quorate_release", report.health.release);
    fields.put("quorate_level", report.health.level);
    fields.constants(&[("redis_mode", "cluster")]);
    fields.put("os", field(&process.os));
    fields.put("arch_bits", usize::BITS);
    fields.put("multiplexing_api", process.multiplexing_api);
    fields.put("process_id", process.process_id);
    fields.put("run_id", &process.run_id);
    fields.put("tcp_port", facts.address_of(report.health.node).1);
    fields.put("server_time_usec", report.time_ms * 1000);
    fields.put("clock_ahead_ms", report.clock.ahead_ms);
    fields.put("clock_status", if report.clock.off { "off" } else { "ok" });
    fields.put("clocks_known", server.clocks_known);
    fields.put("clocks_agree", u64::from(server.clocks_agree));
    fields.put("uptime_in_seconds", report.uptime_s);
    fields.put("uptime_in_days", report.uptime_s / (24 * 60 * 60));
    fields.put("executable", field(&process.executable));
    fields.put("config_file", field(&process.config_file));
}

fn locks(facts: &Facts, fields: &mut Fields<'_>) {
    fields.put("locks_held", facts.sum(|group| group.locks));
    fields.put("lock_waiters", facts.sum(|group| group.lock_waiters));
    fields.put("lock_sessions", facts.locks.sessions);
    fields.put("lock_grants", facts.locks.grants);
    fields.put("lock_expiries", facts.locks.expiries);
    fields.put("lock_waiting_clients", facts.clients.wait_for_locks);
}

fn clients(facts: &Facts, fields: &mut Fields<'_>) {
    fields.put("connected_clients", facts.report.counters.clients);
    fields.constants(&[("cluster_connections", "0")]);
    fields.put("maxclients", facts.clients.connections_max);
    fields.put("blocked_clients", facts.clients.blocked);
    fields.put("tracking_clients", facts.stats.tracked[0]);
    fields.put("total_blocking_keys", facts.clients.awaited_keys);
    fields.put("total_blocking_keys_on_nokey", facts.clients.consumed_keys);
}

fn memory(facts: &Facts, fields: &mut Fields<'_>) {
    let (memory, process) = (&facts.memory, &facts.report.memory);
    fields.bytes("used_memory", memory.used);
    fields.bytes("used_memory_rss", process.resident);
    fields.bytes("used_memory_peak", facts.used_peak());
    fields.put("used_memory_overhead", memory.used.saturating_sub(memory.dataset));
    fields.put("used_memory_dataset", memory.dataset);
    fields.bytes("total_system_memory", process.machine);
    fields.put("used_memory_scripts_eval", memory.scripts.1);
    fields.put("number_of_cached_scripts", memory.scripts.0);
    fields.put("used_memory_clients", process.clients);
    fields.put("used_memory_data", process.data);
    fields.put("used_memory_requests", memory.requests);
    fields.bytes("maxmemory", memory.keyspace_max);
    fields.put("maxmemory_policy", memory.policy);
    fields.put("node_memory_max", process.max);
    fields.put("maxmemory_data", process.data_max);
    fields.put("maxmemory_reached", u64::from(process.full));
    fields.put("mem_fragmentation_ratio", format_args!("{:.2}", facts.fragmentation()));
    fields.put("mem_replication_backlog", memory.backlog);
    // `maxmemory` bounds what keys take.
    fields.put("mem_not_counted_for_evict", memory.used.saturating_sub(memory.dataset));
    fields.put("lazyfree_pending_objects", facts.stats.untidy);
}

fn persistence(facts: &Facts, fields: &mut Fields<'_>) {
    fields.put("loading", facts.loading as u8);
    fields.constants(&[
        ("async_loading", "0"),
        ("rdb_changes_since_last_save", "0"),
        ("rdb_bgsave_in_progress", "0"),
    ]);
    fields.put("rdb_last_save_time", facts.saved_ms / 1000);
    fields.constants(&[
        ("rdb_last_bgsave_status", "ok"),
        ("rdb_last_bgsave_time_sec", "-1"),
        ("rdb_current_bgsave_time_sec", "-1"),
        ("aof_enabled", "0"),
        ("aof_rewrite_in_progress", "0"),
        ("aof_rewrite_scheduled", "0"),
        ("aof_last_rewrite_time_sec", "-1"),
        ("aof_current_rewrite_time_sec", "-1"),
        ("aof_last_bgrewrite_status", "ok"),
    ]);
    fields.put("aof_last_write_status", if facts.report.disk.full { "err" } else { "ok" });
    fields.put("disk_full", u8::from(facts.report.disk.full));
    fields.put("disk_ready_bytes", facts.disk_ready_bytes);
    fields.put("disk_refused", facts.disk_refused);
}

fn stats(facts: &Facts, fields: &mut Fields<'_>) {
    let (stats, counters, traffic) = (&facts.stats, &facts.stats.counters, &facts.report.counters);
    fields.put("total_connections_received", counters.connections);
    fields.put("total_commands_processed", facts.commands.calls());
    fields.put("instantaneous_ops_per_sec", stats.operations_per_second);
    fields.put("total_net_input_bytes", traffic.client_bytes_in);
    fields.put("total_net_output_bytes", traffic.client_bytes_out);
    fields.put("total_net_repl_input_bytes", traffic.peer_bytes_in);
    fields.put("total_net_repl_output_bytes", traffic.peer_bytes_out);
    fields.put("rejected_connections", counters.rejected_connections);
    fields.put("acl_access_denied_auth", stats.auth_failures);
    for (what, count) in ["cmd", "key", "channel", "db"].iter().zip(counters.denied) {
        fields.put(&format!("acl_access_denied_{what}"), count);
    }
    fields.put("http_requests_refused", counters.http_requests_refused);
    fields.put("sync_full", stats.full_resyncs);
    fields.put("sync_partial_ok", stats.partial_resyncs);
    fields.put("expired_keys", stats.counted.expired);
    fields.put("expired_keys_active", stats.counted.purged);
    // The names of Redis, and that of Valkey.
    for name in ["expired_subkeys", "expired_subkeys_active", "expired_fields"] {
        fields.put(name, stats.counted.purged_fields);
    }
    fields.put("evicted_keys", facts.sum(|group| group.evicted));
    fields.constants(&[("evicted_clients", "0")]);
    fields.put("keyspace_hits", stats.counted.hits);
    fields.put("keyspace_misses", stats.counted.misses);
    fields.put("lazyfreed_objects", stats.counted.freed_later);
    fields.put("pubsub_channels", stats.channels);
    fields.put("pubsub_patterns", stats.patterns);
    fields.put("pubsubshard_channels", stats.shard_channels);
    let [_, keys, items, prefixes] = stats.tracked;
    fields.put("tracking_total_keys", keys);
    fields.put("tracking_total_items", items);
    fields.put("tracking_total_prefixes", prefixes);
    fields.constants(&[("latest_fork_usec", "0")]);
    fields.put("total_error_replies", facts.commands.error_replies());
    fields.put("client_output_buffer_limit_disconnections", counters.output_overflows);
    fields.put("forwarded_commands", counters.forwarded);
    fields.put("waiting_commands", stats.waiting);
    fields.put("long_writes", counters.long_writes);
    fields.put("long_replies", counters.long_replies);
    fields.put("transaction_requests", counters.transaction_requests);
    fields.put("transactions_begun", counters.transactions_begun);
    fields.put("transactions_committed", counters.transactions_committed);
    fields.put("transactions_refused", counters.transactions_refused);
    fields.put("transactions_unknown", counters.transactions_unknown);
    fields.put("transactions_repeated", counters.transactions_repeated);
    fields.put("votes_forgotten", counters.votes_forgotten);
    fields.put("dropped_messages", counters.messages_dropped);
}

/// Redis's replication id for no history.
const NO_REPLICATION_ID: &str = "0000000000000000000000000000000000000000";

fn replication(facts: &Facts, fields: &mut Fields<'_>) {
    let (replication, default) = (&facts.replication, facts.default_keyspace());
    if replication.is_master {
        fields.put("role", "master");
    } else {
        let (host, port) = facts.address_of(default.leader);
        fields.put("role", "slave");
        fields.put("master_host", field(host));
        fields.put("master_port", port);
        fields.put("master_link_status", if default.ready { "up" } else { "down" });
        let silent_seconds = replication.leader_silent_ms / 1000;
        // Redis writes -1 if there is no contact with the leader.
        let last_heard = if default.ready { silent_seconds as i64 } else { -1 };
        fields.put("master_last_io_seconds_ago", last_heard);
        fields.put("master_sync_in_progress", replication.is_resyncing as u8);
        fields.put("slave_read_repl_offset", default.offset);
        fields.put("slave_repl_offset", default.applied);
        if !default.ready {
            fields.put("master_link_down_since_seconds", silent_seconds);
        }
        // Every node takes writes, and passes them on.
        fields.constants(&[("slave_priority", "100"), ("slave_read_only", "0"), ("replica_announced", "1")]);
    }
    // Those that are connected, with Redis's fields only: clients match whole lines. The section `quorate`
    // has the rest.
    let connected = default.followers.iter().filter(|follower| follower.is_connected());
    fields.put("connected_slaves", connected.clone().count());
    for (number, follower) in connected.enumerate() {
        let (host, port) = facts.address_of(follower.node);
        let (host, state, lag) = (field(host), follower.redis_state(), follower.lag_ms / 1000);
        fields.put(
            &format!("slave{number}"),
            format_args!("ip={host},port={port},state={state},offset={},lag={lag}", follower.acked),
        );
    }
    fields.constants(&[("master_failover_state", "no-failover")]);
    // 40 digits that change with the history. Here they are the epoch.
    fields.put("master_replid", format_args!("{:040x}", default.epoch));
    fields.put("master_replid2", NO_REPLICATION_ID);
    fields.put("master_repl_offset", default.offset);
    fields.constants(&[("second_repl_offset", "-1"), ("repl_backlog_active", "1")]);
    fields.put("repl_backlog_size", replication.backlog_bytes_max);
    fields.put("repl_backlog_first_byte_offset", replication.backlog_start);
    fields.put("repl_backlog_histlen", replication.backlog_bytes);
}

fn cpu(facts: &Facts, fields: &mut Fields<'_>) {
    let seconds = |us: u64| us as f64 / 1e6;
    fields.put("used_cpu_sys", format_args!("{:.6}", seconds(facts.usage.system_us)));
    fields.put("used_cpu_user", format_args!("{:.6}", seconds(facts.usage.user_us)));
    fields.constants(&[("used_cpu_sys_children", "0.000000"), ("used_cpu_user_children", "0.000000")]);
}

fn command_statistics(facts: &Facts, fields: &mut Fields<'_>) {
    for (number, counters) in facts.commands.used() {
        let Some(spec) = by_number(number) else { continue };
        let per_call = counters.latency.sum_us() as f64 / counters.calls.max(1) as f64;
        fields.put(
            &format!("cmdstat_{}", spec.name),
            format_args!(
                "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                counters.calls,
                counters.latency.sum_us(),
                counters.rejected,
                counters.failed
            ),
        );
    }
}

fn error_statistics(facts: &Facts, fields: &mut Fields<'_>) {
    for (code, count) in facts.commands.errors() {
        fields.put(&format!("errorstat_{}", field(code)), format_args!("count={count}"));
    }
}

fn latency_statistics(facts: &Facts, fields: &mut Fields<'_>) {
    for (number, counters) in facts.commands.used() {
        let Some(spec) = by_number(number).filter(|_| counters.latency.count() > 0) else {
            continue;
        };
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| counters.latency.percentile(percent));
        fields.put(
            &format!("latency_percentiles_usec_{}", spec.name),
            format_args!("p50={p50}.000,p99={p99}.000,p99.9={p999}.000"),
        );
    }
}

fn cluster(_: &Facts, fields: &mut Fields<'_>) {
    fields.put("cluster_enabled", 1);
}

fn keyspace(facts: &Facts, fields: &mut Fields<'_>) {
    for database in 0..DATABASES {
        let groups = facts.report.groups.iter();
        let within = groups.filter(|group| database_named(group.prefix.as_bytes()) == database);
        let sum = |count: fn(&GroupFigures) -> u64| within.clone().map(count).sum::<u64>();
        let (keys, expires) = (sum(|group| group.keys), sum(|group| group.expires));
        let hashes = sum(|group| group.expiring_hashes);
        if keys > 0 {
            let name = format!("db{database}");
            // The last two are the name of Redis, and that of Valkey.
            let value = format_args!(
                "keys={keys},expires={expires},avg_ttl=0,subexpiry={hashes},keys_with_volatile_items={hashes}"
            );
            fields.put(&name, value);
        }
    }
}

fn quorate(facts: &Facts, fields: &mut Fields<'_>) {
    let health = &facts.report.health;
    fields.put("cluster_name", field(&health.cluster));
    fields.put("node", health.node);
    fields.put("nodes", facts.server.nodes.len());
    for follower in &facts.default_keyspace().followers {
        let FollowerHealth { node, acked, lag, lag_ms, .. } = follower;
        let (host, port) = facts.address_of(*node);
        let (host, state) = (field(host), follower.redis_state());
        fields.put(
            &format!("follower{node}"),
            format_args!(
                "ip={host},port={port},state={state},offset={acked},lag_records={lag},lag_ms={lag_ms}"
            ),
        );
    }
    fields.put("keyspaces", health.keyspaces.len());
    for (number, (shard, group)) in health.keyspaces.iter().zip(&facts.report.groups).enumerate() {
        let KeyspaceHealth { replication, acks, durability, reads, role, leader, epoch, .. } = shard;
        let KeyspaceHealth { offset, lag, lag_ms, ready, .. } = shard;
        let GroupFigures { keys, expires, memory, memory_max, eviction, evicted, .. } = group;
        fields.put(
            &format!("keyspace{number}"),
            format_args!(
                "prefix={},replication={replication},acks={acks},durability={durability},reads={reads},role={role},\
                 leader={leader},epoch={epoch},offset={offset},lag={lag},lag_ms={lag_ms},ready={},keys={keys},\
                 expires={expires},memory={memory},memory_max={memory_max},eviction={eviction},evicted={evicted}",
                field(&shard.prefix),
                u8::from(*ready)
            ),
        );
    }
}
