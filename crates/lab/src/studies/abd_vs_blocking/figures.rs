//! The study's sixteen figures, each for both workloads, and figures of what it did not vary.

use super::{KEYS, KEYS_MANY, NODES, Protocol, WORKLOADS};
use crate::harness::{Figure, Shape, Table};

/// The points that a figure or table shows.
fn only(workload: &str, keys: u64, down: u32) -> Vec<(&'static str, String)> {
    vec![("workload", workload.to_owned()), ("keys", keys.to_string()), ("down", down.to_string())]
}

fn lines(
    file: String,
    title: String,
    paper: &'static str,
    y: &'static str,
    only: Vec<(&'static str, String)>,
    arms: Vec<String>,
) -> Figure {
    // Latencies differ by powers of ten where operations wait for locks; rates and shares are easier to read on a
    // linear axis.
    let is_latency = y.ends_with("_ms");
    let logarithmic = (false, is_latency);
    Figure { file, title, paper, shape: Shape::Lines, x: "clients", y, only, arms, logarithmic }
}

/// Measure, file, title, and the paper's figures for 1, 3 and 5 replicas.
const MEASURES: [(&str, &str, &str, [&str; 3]); 8] = [
    ("per_s", "throughput", "Successful throughput", ["figure 1", "figure 2", "figure 3"]),
    ("get_p50_ms", "get-median", "GET median latency", ["figure 5", "figure 6", "figure 7"]),
    ("get_p95_ms", "get-p95", "GET 95th percentile latency", ["figure 8", "figure 9", "figure 10"]),
    ("put_p50_ms", "put-median", "PUT median latency", ["figure 11", "figure 12", "figure 13"]),
    ("put_p95_ms", "put-p95", "PUT 95th percentile latency", ["figure 14", "figure 15", "figure 16"]),
    ("failed_percent", "failures", "Failed operations", ["", "", ""]),
    ("failed_p50_ms", "failure-median", "Median latency of failures", ["", "", ""]),
    ("failed_p95_ms", "failure-p95", "95th percentile of the latency of failures", ["", "", ""]),
];

pub(super) fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (workload, ..) in WORKLOADS {
        let both = [Protocol::Abd, Protocol::Blocking];
        let arms = both.iter().flat_map(|protocol| NODES.map(|nodes| protocol.arm(nodes))).collect();
        let paper = if workload == WORKLOADS[0].0 { "figure 4" } else { "" };
        figures.push(lines(
            format!("throughput-all-{}", short(workload)),
            format!("Successful throughput, {workload}, 1, 3 and 5 replicas"),
            paper,
            "per_s",
            only(workload, KEYS, 0),
            arms,
        ));
    }
    for (y, file, title, papers) in MEASURES {
        for (nodes, paper) in NODES.into_iter().zip(papers) {
            for (workload, ..) in WORKLOADS {
                figures.push(lines(
                    format!("{file}-n{nodes}-{}", short(workload)),
                    format!("{title}, N={nodes}, {workload}"),
                    paper,
                    y,
                    only(workload, KEYS, 0),
                    Protocol::ALL.map(|protocol| protocol.arm(nodes)).to_vec(),
                ));
            }
        }
    }
    figures.extend(beyond());
    figures
}

/// Figures of what the study did not vary, with three replicas.
fn beyond() -> Vec<Figure> {
    let near = Protocol::ALL.map(|protocol| protocol.arm(3)).to_vec();
    let far = Protocol::ALL.map(|protocol| protocol.delayed_arm(3)).to_vec();
    let mut figures = Vec::new();
    for (workload, ..) in WORKLOADS {
        let variants = [
            ("many-keys", "1000 keys", only(workload, KEYS_MANY, 0), &near),
            ("one-killed", "a replica killed", only(workload, KEYS, 1), &near),
            ("delayed", "1 ms between nodes", only(workload, KEYS, 0), &far),
        ];
        for (file, words, only, arms) in variants {
            for (y, measure, title) in [
                ("per_s", "throughput", "Successful throughput"),
                ("failed_percent", "failures", "Failed operations"),
            ] {
                figures.push(lines(
                    format!("{measure}-{file}-{}", short(workload)),
                    format!("{title}, N=3, {workload}, {words}"),
                    "",
                    y,
                    only.clone(),
                    arms.clone(),
                ));
            }
        }
    }
    figures
}

fn short(workload: &str) -> &'static str {
    if workload == WORKLOADS[0].0 { "get-heavy" } else { "put-heavy" }
}

pub(super) fn tables() -> Vec<Table> {
    let near = |nodes: usize| Protocol::ALL.map(|protocol| protocol.arm(nodes)).to_vec();
    let far: Vec<String> =
        [3, 5].iter().flat_map(|nodes| Protocol::ALL.map(|protocol| protocol.delayed_arm(*nodes))).collect();
    let measures = vec![
        "per_s",
        "success",
        "failure",
        "unknown",
        "get_p50_ms",
        "get_p95_ms",
        "put_p50_ms",
        "put_p95_ms",
        "failed_p50_ms",
        "failed_p95_ms",
        "get_all_p95_ms",
        "put_all_p95_ms",
    ];
    let table = |title: String, paper: &'static str, only, arms| Table {
        title,
        paper,
        only,
        arms,
        measures: measures.clone(),
    };
    let mut tables = Vec::new();
    for (workload, ..) in WORKLOADS {
        for nodes in NODES {
            let title = format!("{workload}, N={nodes}");
            tables.push(table(title, "section 6", only(workload, KEYS, 0), near(nodes)));
        }
    }
    let every: Vec<String> = NODES.into_iter().flat_map(near).collect();
    for (workload, ..) in WORKLOADS {
        let title = |words: &str| format!("{workload}, {words}");
        tables.push(table(title("1000 keys"), "", only(workload, KEYS_MANY, 0), every.clone()));
        tables.push(table(title("a replica killed"), "", only(workload, KEYS, 1), every.clone()));
        tables.push(table(title("1 ms between nodes"), "", only(workload, KEYS, 0), far.clone()));
    }
    tables.push(Table {
        title: "What an operation costs, PUT-heavy, 10 keys, 32 clients".to_owned(),
        paper: "",
        only: [only(WORKLOADS[1].0, KEYS, 0), vec![("clients", "32".to_owned())]].concat(),
        arms: every,
        measures: vec!["cpu_us_per_op", "loader_cpu_us_per_op", "peer_bytes_per_op"],
    });
    tables
}
