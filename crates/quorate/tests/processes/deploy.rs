//! The files in `deploy` fit the program: alarms and dashboard use metrics that a node has, and configurations can be
//! read.

mod chart;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::support::{Server, until};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// The names in an expression that are metrics of a node, and not functions, labels or `up`.
fn metrics(expression: &str) -> BTreeSet<String> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_of_name(letter));
    words
        .filter(|word| word.starts_with("quorate_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// Every expression in a document, wherever it stands.
fn expressions<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == "expr" || name == "query" => found.push(text),
                    _ => expressions(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn all_metrics_in_alarms_and_dashboard_exist() {
    let keyspace = "[[keyspace]]\nprefix = \"cache:\"\nreplication = \"leader-follower\"\nacks = \"none\"\n";
    let server = Server::start("", keyspace);
    // The times of a command appear when the command was run.
    server.client().ask("PING");
    let mut there = BTreeSet::new();
    until("both keyspaces have metrics", || {
        let text = server.http("GET /metrics HTTP/1.1", "").1;
        // Series that this node does not have, such as those of followers, are declared nevertheless.
        let announced = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| line.split(['{', ' ']).next());
        there = announced.chain(samples).map(str::to_owned).collect();
        text.contains("quorate_keyspace_ready{keyspace=\"cache:\"} 1")
    });

    let rules = fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let rules: Vec<&str> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix("expr: ")).collect();
    let alarms = fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap().matches("- alert: ").count();
    assert!(rules.len() == alarms && alarms > 15, "{} expressions of {alarms} alarms", rules.len());
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(deploy("grafana/quorate.json")).unwrap()).unwrap();
    let mut shown = Vec::new();
    expressions(&dashboard, &mut shown);
    assert!(shown.len() > 25, "{shown:?}");

    let (mut count, mut missing) = (0, Vec::new());
    for expression in rules.into_iter().chain(shown) {
        let named = metrics(expression);
        count += named.len();
        missing.extend(
            named.into_iter().filter(|name| !there.contains(name)).map(|name| (name, expression.to_owned())),
        );
    }
    assert!(count > 50, "only {count} metrics are named");
    assert!(missing.is_empty(), "no node has {missing:#?}");
}

/// Every alarm is described in the runbook, and the runbook has no alarm that does not exist.
#[test]
fn each_alarm_is_in_the_runbook() {
    let rules = fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let runbook = fs::read_to_string(deploy("../docs/guide/runbook.md")).unwrap();
    let alarms: Vec<&str> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect();
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(alarms.len() > 15);
    assert_eq!(alarms, sections, "in the same order");
    for alarm in alarms {
        let place = format!("runbook: \"docs/guide/runbook.md#{}\"", alarm.to_lowercase());
        assert!(rules.contains(&place), "{alarm} does not say where it is");
    }
}

/// The usual metrics of Prometheus's client libraries, and what distinguishes nodes.
#[test]
fn a_node_describes_its_process_and_itself() {
    let server = Server::start("", "");
    // The disk is measured once a second.
    until("the disk has a size", || server.metric("quorate_disk_bytes") > 0);
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "quorate_disk_free_bytes",
        "quorate_disk_bytes",
    ] {
        let text = server.http("GET /metrics HTTP/1.1", "").1;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value: f64 = line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap();
        assert!(value > 0.0 || name == "process_cpu_seconds_total", "{name} {value}");
    }
    let text = server.http("GET /metrics HTTP/1.1", "").1;
    let version = env!("CARGO_PKG_VERSION");
    let line = format!("quorate_build_info{{version=\"{version}\",cluster=\"test\",node=\"1\"}} 1");
    assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
}

/// The configurations in the Compose file are those of one cluster, and each can be read.
#[test]
fn the_nodes_of_the_compose_file_can_start() {
    let text = fs::read_to_string(deploy("docker/compose.yaml")).unwrap();
    let mut found = Vec::new();
    for part in text.split("content: |\n").skip(1) {
        let block: Vec<&str> =
            part.lines().take_while(|line| line.is_empty() || line.starts_with("      ")).collect();
        let block = block.join("\n");
        // What Compose substitutes, or refuses.
        let mut given = String::new();
        let mut rest = block.as_str();
        while let Some((before, variable)) = rest.split_once("${") {
            let (name, after) = variable.split_once('}').unwrap();
            assert!(name.contains(":?"), "{name} is not required");
            given.push_str(before);
            given.push_str("0123456789abcdef");
            rest = after;
        }
        given.push_str(rest);
        found.push(server::Config::parse(&given).unwrap_or_else(|error| panic!("{error:#}: {given}")));
    }
    assert_eq!(found.iter().map(|config| config.node).collect::<Vec<_>>(), [1, 2, 3]);
    for config in &found {
        assert_eq!((&config.nodes, &config.cluster), (&found[0].nodes, &found[0].cluster));
        // Otherwise no node could be replaced.
        assert!(config.operator_password.is_some());
        // The image's volume is mounted there.
        assert_eq!(config.data, Path::new("/data"));
    }
}
