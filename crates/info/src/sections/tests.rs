//! The content and the form of `INFO`.

use super::*;
use crate::facts::{ReplicationFacts, ServerFacts};
use crate::report::{Health, Report};
use cluster::{NodeAddress, ProcessFacts};
use commands::statistics::CommandStatistics;

fn text_of(facts: &Facts, sections: &str) -> String {
    let sections: Vec<&[u8]> = sections.split_whitespace().map(str::as_bytes).collect();
    let mut out = String::new();
    render(facts, &sections, &mut out);
    out
}

fn titles(sections: &str) -> Vec<String> {
    let text = text_of(&Facts::default(), sections);
    text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_string).collect()
}

#[test]
fn sections_come_in_a_fixed_order() {
    assert_eq!(titles("keyspace SERVER nosuch"), ["Server", "Keyspace"]);
    assert_eq!(titles("nosuch"), [""; 0]);
    assert_eq!(titles(""), titles("default"));
    assert!(!titles("").contains(&"Commandstats".to_string()));
    assert_eq!(titles("commandstats default").len(), titles("").len() + 1);
    assert_eq!(titles("all").len(), SECTIONS.len());
    assert_eq!(titles("everything"), titles("all"));
    assert_eq!(
        text_of(&Facts::default(), "cluster keyspace"),
        "# Cluster\r\ncluster_enabled:1\r\n\r\n# Keyspace\r\n"
    );
}

#[test]
fn every_line_is_a_heading_a_field_or_empty() {
    let process = ProcessFacts { os: "two\r\nlines".into(), ..Default::default() };
    let facts = Facts { server: ServerFacts { process, ..Default::default() }, ..Default::default() };
    for line in text_of(&facts, "all").split("\r\n") {
        assert!(line.is_empty() || line.starts_with("# ") || line.contains(':'), "{line}");
        assert!(!line.contains(['\r', '\n']), "{line}");
    }
}

/// The fields that clients, exporters and Redis's own tests look for.
#[test]
fn the_fields_that_clients_read_exist() {
    let text = text_of(&Facts::default(), "");
    let fields = "redis_version redis_mode os process_id run_id tcp_port uptime_in_seconds connected_clients \
                  used_memory used_memory_human maxmemory loading async_loading rdb_changes_since_last_save \
                  rdb_bgsave_in_progress aof_enabled total_commands_processed instantaneous_ops_per_sec \
                  expired_keys keyspace_hits keyspace_misses total_error_replies role connected_slaves \
                  master_replid master_repl_offset slave_repl_offset master_link_status cluster_enabled";
    for field in fields.split_whitespace() {
        assert!(text.contains(&format!("\r\n{field}:")), "{field}");
    }
}

fn node(id: u16, host: &str, client_port: u16) -> NodeAddress {
    NodeAddress { id, host: host.into(), client_port, http_port: 0, peer_port: 0 }
}

/// A node that knows these nodes, and reports on the default keyspace.
fn facts_of(default: KeyspaceHealth, nodes: Vec<NodeAddress>, replication: ReplicationFacts) -> Facts {
    let health = Health { keyspaces: vec![default], ..Default::default() };
    Facts {
        report: Report { health, groups: vec![GroupFigures::default()], ..Default::default() },
        server: ServerFacts { nodes, ..Default::default() },
        replication,
        ..Default::default()
    }
}

#[test]
fn a_leader_lists_its_followers() {
    let streams = FollowerHealth { node: 2, state: "streaming".into(), acked: 90, lag: 10, lag_ms: 2500 };
    let absent = FollowerHealth { node: 3, state: "absent".into(), ..streams.clone() };
    let copied = FollowerHealth { node: 4, state: "snapshot".into(), acked: 0, ..streams.clone() };
    let default =
        KeyspaceHealth { offset: 100, followers: vec![streams, absent, copied], ..Default::default() };
    let nodes = (2..=4).map(|id| node(id, "127.0.0.1", 6999 + id)).collect();
    let facts = facts_of(default, nodes, ReplicationFacts { is_master: true, ..Default::default() });
    let text = text_of(&facts, "replication");
    // The followers that are connected are counted, and numbered from 0.
    assert!(text.starts_with(
        "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
         slave0:ip=127.0.0.1,port=7001,state=online,offset=90,lag=2\r\n\
         slave1:ip=127.0.0.1,port=7003,state=send_bulk,offset=0,lag=2\r\n"
    ));
    assert!(text.contains("\r\nmaster_repl_offset:100\r\n"));
    assert!(!text.contains("master_host") && !text.contains("offline"));
    // All of them, and what only this server has.
    let text = text_of(&facts, "quorate");
    for (node, port, state, offset) in
        [(2, 7001, "online", 90), (3, 7002, "offline", 90), (4, 7003, "send_bulk", 0)]
    {
        let line = format!(
            "\r\nfollower{node}:ip=127.0.0.1,port={port},state={state},offset={offset},lag_records=10,lag_ms=2500\r\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}

/// Lettuce matches the whole line, and takes no underscore in the names of fields: a line that it does not
/// match is no replica. Others cut the line at commas and `=`, and take any name that begins with `slave` and
/// a digit for such a line.
#[test]
fn lines_of_replicas_have_the_fields_of_redis_and_no_others() {
    let follower = FollowerHealth { node: 2, state: "streaming".into(), ..Default::default() };
    let default = KeyspaceHealth { followers: vec![follower], ..Default::default() };
    let replication = ReplicationFacts { is_master: true, ..Default::default() };
    let text = text_of(&facts_of(default, vec![node(2, "10.0.0.2", 7001)], replication), "all");
    let is_slave = |line: &&str| {
        line.strip_prefix("slave").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let lines: Vec<&str> = text.split("\r\n").filter(is_slave).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    let (name, fields) = line.split_once(':').unwrap();
    assert_eq!(name, "slave0");
    assert!(
        fields.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, ',' | '=' | '.' | ':')),
        "{fields}"
    );
    let names: Vec<&str> = fields.split(',').map(|field| field.split_once('=').unwrap().0).collect();
    assert_eq!(names, ["ip", "port", "state", "offset", "lag"]);
}

#[test]
fn a_follower_names_its_leader() {
    let default = KeyspaceHealth { leader: 1, ready: true, offset: 100, applied: 95, ..Default::default() };
    let of = |default: KeyspaceHealth| {
        let replication = ReplicationFacts { leader_silent_ms: 1500, ..Default::default() };
        text_of(&facts_of(default, vec![node(1, "10.0.0.1", 7000)], replication), "replication")
    };
    let up = of(default.clone());
    assert!(up.starts_with("# Replication\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:7000\r\n"));
    assert!(up.contains("master_link_status:up\r\nmaster_last_io_seconds_ago:1\r\n"));
    assert!(up.contains("slave_read_repl_offset:100\r\nslave_repl_offset:95\r\n"));
    assert!(up.contains("\r\nslave_read_only:0\r\n"), "it passes writes on");
    let down = of(KeyspaceHealth { ready: false, ..default });
    assert!(down.contains("master_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\n"));
    assert!(down.contains("master_link_down_since_seconds:1\r\n"));
}

#[test]
fn keyspaces_are_summed_up_for_redis_and_listed_one_by_one() {
    let shard = KeyspaceHealth {
        prefix: "cache:".into(),
        replication: "leader-follower".into(),
        acks: "majority".into(),
        durability: "none".into(),
        reads: "any".into(),
        role: "leader".into(),
        leader: 1,
        epoch: 4,
        offset: 17,
        ready: true,
        ..Default::default()
    };
    let group = GroupFigures {
        prefix: "cache:".into(),
        keys: 5,
        expires: 2,
        expiring_hashes: 4,
        memory: 900,
        memory_max: 1000,
        eviction: "lru".into(),
        evicted: 3,
        ..Default::default()
    };
    let health = Health { keyspaces: vec![shard, KeyspaceHealth::default()], ..Default::default() };
    let groups = vec![group, GroupFigures { keys: 1, ..Default::default() }];
    let facts = Facts { report: Report { health, groups, ..Default::default() }, ..Default::default() };
    assert_eq!(
        text_of(&facts, "keyspace"),
        "# Keyspace\r\ndb0:keys=6,expires=2,avg_ttl=0,subexpiry=4,keys_with_volatile_items=4\r\n"
    );
    assert!(text_of(&facts, "quorate").contains(
        "\r\nkeyspaces:2\r\nkeyspace0:prefix=cache:,replication=leader-follower,acks=majority,durability=none,\
         reads=any,role=leader,leader=1,epoch=4,offset=17,lag=0,lag_ms=0,ready=1,keys=5,expires=2,memory=900,memory_max=1000,\
         eviction=lru,evicted=3\r\n"
    ));
}

#[test]
fn statistics_of_commands_and_errors() {
    let number = |name: &str| (0..).find(|number| by_number(*number).unwrap().name == name).unwrap();
    let (get, config_get) = (number("get"), number("config|get"));
    let mut commands = CommandStatistics::new();
    for microseconds in [1, 4] {
        commands.called(get);
        commands.took(get, microseconds);
    }
    commands.failed(get);
    commands.rejected(config_get);
    commands.error(b"WRONGTYPE Operation");
    let facts = Facts { commands, ..Default::default() };
    assert_eq!(
        text_of(&facts, "commandstats"),
        "# Commandstats\r\n\
         cmdstat_get:calls=2,usec=5,usec_per_call=2.50,rejected_calls=0,failed_calls=1\r\n\
         cmdstat_config|get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n"
    );
    assert_eq!(text_of(&facts, "errorstats"), "# Errorstats\r\nerrorstat_WRONGTYPE:count=1\r\n");
    assert_eq!(
        text_of(&facts, "latencystats"),
        "# Latencystats\r\nlatency_percentiles_usec_get:p50=1.000,p99=4.000,p99.9=4.000\r\n"
    );
}

#[test]
fn bytes_are_also_written_in_a_readable_form() {
    for (bytes, expected) in
        [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (1_111_490, "1.06M"), (3 << 40, "3.00T")]
    {
        assert_eq!(human(bytes), expected);
    }
}
