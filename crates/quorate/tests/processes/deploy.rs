//! The files in `deploy` fit the program: alarms and dashboard use metrics that a node has, and configurations can be
//! read.

mod chart;

use std::collections::{BTreeMap, BTreeSet};
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
fn all_metrics_in_alarms_dashboard_and_the_page_of_what_is_wrong_exist() {
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
    let page = troubleshooting();
    for expression in rules.into_iter().chain(shown).chain(page.lines()) {
        let named = metrics(expression);
        count += named.len();
        missing.extend(
            named.into_iter().filter(|name| !there.contains(name)).map(|name| (name, expression.to_owned())),
        );
    }
    assert!(count > 50, "only {count} metrics are named");
    assert!(missing.is_empty(), "no node has {missing:#?}");
}

/// The page for the person on call.
fn troubleshooting() -> String {
    fs::read_to_string(deploy("../docs/guide/troubleshooting.md")).unwrap()
}

/// The alarms that a text names.
fn alarms(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_alarm = |word: &&str| {
        let rest = word.strip_prefix("Quorate").unwrap_or_default();
        rest.starts_with(|letter: char| letter.is_ascii_uppercase())
    };
    words.filter(is_alarm).map(str::to_owned).collect()
}

/// Each alarm leads to the section of the page that names it, and the page names no alarm that does not exist.
#[test]
fn each_alarm_is_on_the_page_of_what_is_wrong() {
    let rules = fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let page = troubleshooting();
    let of_symptoms = page.split("\n## ").skip(1).map(|section| {
        let heading = section.lines().next().unwrap_or_default();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -".contains(*letter));
        let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        (anchor, alarms(section))
    });
    let sections: BTreeMap<String, BTreeSet<String>> = of_symptoms.collect();
    let mut named = BTreeSet::new();
    for rule in rules.split("- alert: ").skip(1) {
        let alarm = rule.lines().next().unwrap().to_owned();
        let place = rule.split("runbook: \"docs/guide/troubleshooting.md#").nth(1);
        let place = place.and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let section = sections.get(place).unwrap_or_else(|| panic!("{alarm} leads to no section: #{place}"));
        assert!(section.contains(&alarm), "{alarm} is not named in its section, #{place}");
        named.insert(alarm);
    }
    assert!(named.len() > 25, "{named:?}");
    assert_eq!(alarms(&page), named, "the page names those that exist");
}

/// A planned restart makes each of these true for a while, at one node after another.
#[test]
fn no_alarm_is_raised_by_a_planned_restart() {
    let rules = fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let mut count = 0;
    for rule in rules.split("- alert: ").skip(1) {
        let field = |name: &str| rule.lines().find_map(|line| line.trim_start().strip_prefix(name));
        let expression = field("expr: ").unwrap();
        let is_of_a_restart = [
            "up{",
            "quorate_keyspace_ready",
            "quorate_keyspace_writable",
            "quorate_control_leader",
            "quorate_admitted",
            "quorate_peer_link_up",
            "quorate_follower_lag",
            "quorate_keyspace_unknown_writes",
        ]
        .iter()
        .any(|metric| expression.contains(metric));
        // What no node does is not what one node's restart does.
        if !is_of_a_restart || expression.starts_with("max by") {
            continue;
        }
        count += 1;
        let held = field("for: ").and_then(|time| time.strip_suffix('m')?.parse::<u32>().ok());
        assert!(held.is_some_and(|minutes| minutes >= 3), "{expression} for {held:?} minutes");
    }
    assert!(count >= 8, "{count}");
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
