//! Collects the facts of `INFO`.

use super::{
    ClientFacts, CodingFacts, CpuFacts, Facts, KeyspaceFacts, LockFacts, MemoryFacts, ReplicaFacts,
    ReplicationFacts, ServerFacts, StatsFacts, ValueFacts, render,
};
use crate::groups::Group;
use crate::node::Node;
use crate::session::ClientId;
use crate::setting::Setting;
use crate::usage::Usage;
use kv::{Reply, Table};
use protocol::NodeId;
use protocol::leader_follower::FollowerStatus;
use protocol::status::Status;
use wire::resp::Arguments;

impl Node {
    /// `INFO [section …]`.
    pub(crate) fn info(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let sections: Vec<&[u8]> = arguments.iter().skip(1).collect();
        let mut text = String::new();
        render(&self.facts(), &sections, &mut text);
        self.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
    }

    fn facts(&self) -> Facts {
        let statuses: Vec<Status> = self.groups.ids().iter().map(|id| self.group_status(*id)).collect();
        let groups = self.groups.iter().map(|(_, group)| group);
        let default = groups.clone().zip(&statuses).find(|(group, _)| group.keyspace.prefix.is_empty());
        let keyspaces = groups.zip(&statuses);
        Facts {
            server: self.server_facts(),
            clients: ClientFacts {
                connected: self.sessions.iter().filter(|(_, session)| !session.is_internal()).count() as u64,
                connections_max: self.parameters.connections_max() as u64,
                blocked: self.sessions.iter().filter(|(_, session)| session.is_waiting()).count() as u64,
            },
            memory: self.memory_facts(&statuses),
            stats: self.stats_facts(&statuses),
            locks: self.lock_facts(),
            replication: default
                .map(|(group, status)| self.replication_facts(group, status))
                .unwrap_or_default(),
            cpu: CpuFacts {
                system: self.usage.system_us as f64 / 1e6,
                user: self.usage.user_us as f64 / 1e6,
            },
            coding: self.coding_facts(),
            values: self.value_facts(),
            keyspaces: keyspaces.map(|(group, status)| keyspace_facts(group, status)).collect(),
            commands: self.statistics.clone(),
            disk_is_full: self.room.is_short(),
            disk_ready_bytes: self.journal.ready_bytes(),
            disk_refused: self.room.refused,
            loading: statuses.iter().any(|status| status.role == "recovering"),
        }
    }

    fn coding_facts(&self) -> CodingFacts {
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref()?.fragments());
        let (cached_values, cached_bytes) = self.coding.cached();
        let mut facts = CodingFacts {
            cached_values: cached_values as u64,
            cached_bytes: cached_bytes as u64,
            counters: self.coding.counters,
            choice: self.coding.choice_summary(),
            traces: self.coding.traces(),
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

    pub(crate) fn value_facts(&self) -> ValueFacts {
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let (pending_bytes, cached_bytes) = self.values.memory_bytes();
        ValueFacts {
            on_disk: replicas.map(|replica| replica.table().spilled_len() as u64).sum(),
            pending_bytes: pending_bytes as u64,
            cached_bytes: cached_bytes as u64,
            counters: self.values.counters,
        }
    }

    fn server_facts(&self) -> ServerFacts {
        let process = &self.configuration.process;
        ServerFacts {
            os: process.os.clone(),
            process_id: process.process_id,
            run_id: process.run_id.clone(),
            tcp_port: self.address_of(self.configuration.node).1,
            unix_us: self.now.unix_ms * 1000,
            clock: self.clock.facts(),
            uptime_seconds: self.now.ms_since(self.started.monotonic_us) / 1000,
            executable: process.executable.clone(),
            config_file: process.config_file.clone(),
            multiplexing_api: process.multiplexing_api.to_string(),
            node: self.configuration.node as u64,
            cluster: self.configuration.cluster.clone(),
            nodes: self.configuration.nodes.len(),
        }
    }

    fn memory_facts(&self, statuses: &[Status]) -> MemoryFacts {
        let replicas = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let dataset: u64 = replicas.map(|replica| replica.memory_bytes() as u64).sum();
        let backlog: u64 = statuses.iter().map(|status| status.backlog_bytes as u64).sum();
        let output: u64 = self.sessions.iter().map(|(_, session)| session.output_bytes() as u64).sum();
        let Usage { resident_bytes, resident_bytes_peak, machine_bytes, .. } = self.usage;
        MemoryFacts {
            used: dataset + backlog + output,
            used_peak: resident_bytes_peak,
            dataset,
            backlog,
            resident: resident_bytes,
            machine: machine_bytes,
            bytes_max: self.memory.bytes_max(),
            data_max: self.memory.data_max(),
            clients: self.memory.clients_bytes(),
            data: self.memory.data_bytes(),
            requests: self.memory.request_bytes() as u64,
            is_full: self.memory.is_full(),
            scripts: self.scripts.size(),
        }
    }

    fn stats_facts(&self, statuses: &[Status]) -> StatsFacts {
        let counted = self.tables().map(Table::statistics);
        let (mut expired, mut hits, mut misses) = (0, 0, 0);
        for statistics in counted {
            expired += statistics.expired;
            hits += statistics.hits;
            misses += statistics.misses;
        }
        StatsFacts {
            connections: self.counters.connections,
            rejected_connections: self.counters.rejected_connections,
            auth_failures: self.auth_guard.failures(),
            http_requests_refused: self.counters.http_requests_refused,
            operations_per_second: self.rate.per_second,
            input_bytes: self.usage.client_input_bytes,
            output_bytes: self.usage.client_output_bytes,
            replication_input_bytes: self.usage.peer_input_bytes,
            replication_output_bytes: self.usage.peer_output_bytes,
            full_resyncs: statuses.iter().map(|status| status.counted("full_resyncs")).sum(),
            partial_resyncs: statuses.iter().map(|status| status.counted("partial_resyncs")).sum(),
            expired_keys: expired,
            keyspace_hits: hits,
            keyspace_misses: misses,
            output_overflows: self.counters.output_overflows,
            forwarded: self.counters.forwarded,
            waiting: self.waiting.count(),
            channels: self.channels.channel_count(),
            patterns: self.channels.pattern_count(),
            shard_channels: self.channels.shard_channel_count(),
            messages_dropped: self.counters.messages_dropped,
            long_writes: self.counters.long_writes,
            long_replies: self.counters.long_replies,
        }
    }

    fn lock_facts(&self) -> LockFacts {
        let waiting_clients = self.lock_waits.waiting() as u64;
        let sum = LockFacts { waiting_clients, ..LockFacts::default() };
        self.tables().map(Table::locks).fold(sum, |sum, locks| LockFacts {
            held: sum.held + locks.len() as u64,
            waiters: sum.waiters + locks.waiters() as u64,
            sessions: sum.sessions + locks.sessions() as u64,
            grants: sum.grants + locks.statistics().grants,
            expiries: sum.expiries + locks.statistics().expiries,
            ..sum
        })
    }

    fn replication_facts(&self, group: &Group, status: &Status) -> ReplicationFacts {
        let replica = |follower: &FollowerStatus| {
            let (host, port) = self.address_of(follower.id);
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
        let (leader_host, leader_port) = self.address_of(status.leader);
        ReplicationFacts {
            is_leader: matches!(status.role, "leader" | "recovering"),
            replicas: status.followers.iter().map(replica).collect(),
            // 40 digits that change with the history: its name here is the epoch.
            replication_id: format!("{:040x}", status.epoch),
            offset: status.offset,
            applied: status.applied,
            backlog_start: status.backlog_start,
            backlog_bytes: status.backlog_bytes as u64,
            backlog_bytes_max: group.keyspace.backlog_bytes as u64,
            leader_host,
            leader_port,
            leader_is_up: status.ready,
            is_resyncing: status.resyncing,
            leader_silent_ms: status.leader_silent_ms,
        }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.groups.iter().filter_map(|(_, group)| group.replica.as_ref()).map(|replica| replica.table())
    }

    /// The host and the port at which clients reach a node.
    fn address_of(&self, id: NodeId) -> (String, u16) {
        let node = self.configuration.nodes.iter().find(|node| node.id == id);
        node.map(|node| (node.host.clone(), node.client_port)).unwrap_or_default()
    }
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
    }
}
