//! The study's figures (latency over concurrency, for each workload) and tables, and those it lacks.

use super::faults::SLICES;
use super::tester::Mode;
use super::{FOLLOWER_READS, LEADER_LOST, SLOW_FOLLOWER_CLIENTS, TESTER_CLIENTS, WORKLOADS};
use crate::harness::{Figure, Shape, Table};

/// What the study's tester counts, and the operations it performs.
const COUNTS: [&str; 3] = ["requests_per_s", "operations_per_s", "puts_per_s"];

/// The arms that speak the Redis protocol.
const OVER_RESP: [&str; 8] = [
    "Quorate acks=none",
    "Quorate acks=1",
    "Quorate acks=all",
    "Quorate consensus",
    "Redis",
    "Redis WAIT 1",
    "Redis WAIT 2",
    "Valkey WAIT 2",
];

pub(super) fn all() -> Vec<Figure> {
    let mut figures = vec![Figure {
        file: "throughput-by-workload".to_owned(),
        title: "Throughput by workload at 50 clients".to_owned(),
        paper: "table 6.1",
        shape: Shape::Bars,
        x: "workload",
        y: "per_s",
        only: vec![("clients", "50".to_owned())],
        arms: Vec::new(),
        logarithmic: (false, false),
    }];
    figures.push(Figure {
        file: "follower-reads".to_owned(),
        title: "Reads at a follower that miss the write just acknowledged".to_owned(),
        paper: "",
        shape: Shape::Bars,
        x: "workload",
        y: "stale_pct",
        only: vec![("workload", FOLLOWER_READS.to_owned())],
        arms: Vec::new(),
        logarithmic: (false, false),
    });
    for (y, file, words) in [
        ("requests_per_s", "tester-requests", "requests, as it counts them"),
        ("operations_per_s", "tester-operations", "each PUT and each GET counts as one"),
    ] {
        figures.push(Figure {
            file: file.to_owned(),
            title: format!("The study's own tester at {TESTER_CLIENTS} clients: {words}"),
            paper: if y == "requests_per_s" { "figure throughput_by_mode.png" } else { "" },
            shape: Shape::Bars,
            x: "workload",
            y,
            only: vec![("clients", TESTER_CLIENTS.to_string())],
            arms: Vec::new(),
            logarithmic: (false, false),
        });
    }
    figures.push(Figure {
        file: "slow-follower".to_owned(),
        title: "PUT at 20 clients, and while a follower stands still for 18 of every 20 ms".to_owned(),
        paper: "",
        shape: Shape::Bars,
        x: "workload",
        y: "put_p95_ms",
        only: vec![("clients", SLOW_FOLLOWER_CLIENTS.to_string())],
        // The study's store takes a hundred times as long, with or without a slow follower: see the table.
        arms: OVER_RESP.map(str::to_owned).to_vec(),
        logarithmic: (false, false),
    });
    figures.push(Figure {
        file: "leader-lost".to_owned(),
        title: "Acknowledged writes over time: the leader is killed at 0 s".to_owned(),
        paper: "",
        shape: Shape::Quantiles(&SLICES),
        x: "workload",
        y: SLICES[0].0,
        only: vec![("workload", LEADER_LOST.to_owned())],
        arms: Vec::new(),
        logarithmic: (false, false),
    });
    let measures = [
        ("mean_ms", "mean-latency", "Mean latency"),
        ("p50_ms", "p50-latency", "Median latency"),
        ("p95_ms", "p95-latency", "95th percentile of latency"),
        ("p99_ms", "p99-latency", "99th percentile of latency"),
        ("per_s", "throughput", "Throughput"),
    ];
    for (y, file, title) in measures {
        for (workload, get, set) in WORKLOADS {
            let paper = match (y, workload) {
                ("per_s" | "p50_ms" | "p99_ms", _) => "",
                (_, "mixed") => "figure \u{201c}Latency vs Concurrency (mixed)\u{201d}",
                (_, "read-heavy") => "figure \u{201c}Latency vs Concurrency (read-heavy)\u{201d}",
                _ => "figure \u{201c}Latency vs Concurrency (write-heavy)\u{201d}",
            };
            figures.push(Figure {
                file: format!("{file}-{workload}"),
                title: format!("{title}, {workload} ({get} % reads, {set} % writes)"),
                paper,
                shape: Shape::Lines,
                x: "clients",
                y,
                only: vec![("workload", workload.to_owned())],
                arms: Vec::new(),
                logarithmic: (false, true),
            });
        }
    }
    figures
}

pub(super) fn tables() -> Vec<Table> {
    let throughput = Table {
        title: "Throughput of the three workloads at 50 clients".to_owned(),
        paper: "table 6.1",
        only: vec![("clients", "50".to_owned())],
        arms: Vec::new(),
        measures: vec!["per_s", "mean_ms", "p95_ms"],
    };
    let metrics = |workload: &str| Table {
        title: format!("All metrics, {workload}"),
        paper: "section 5.3",
        only: vec![("workload", workload.to_owned())],
        arms: Vec::new(),
        measures: vec!["total", "success", "failure", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "per_s"],
    };
    let cost = Table {
        title: "What an operation costs, at 50 clients".to_owned(),
        paper: "",
        only: vec![("clients", "50".to_owned())],
        arms: Vec::new(),
        measures: vec![
            "get_p50_ms",
            "put_p50_ms",
            "cpu_us_per_op",
            "loader_cpu_us_per_op",
            "peer_bytes_per_op",
            "disk_bytes_per_op",
        ],
    };
    let followers = Table {
        title: "What a follower shows right after a write was acknowledged".to_owned(),
        paper: "",
        only: vec![("workload", FOLLOWER_READS.to_owned()), ("clients", "1".to_owned())],
        arms: Vec::new(),
        measures: vec!["stale_pct", "seen_p50_ms", "seen_p95_ms"],
    };
    let tester = |mode: &'static str| Table {
        title: format!("The study's own tester, {}", mode.replace("tester: ", "")),
        paper: "section 6",
        only: vec![("workload", mode.to_owned()), ("clients", TESTER_CLIENTS.to_string())],
        arms: Vec::new(),
        measures: [&COUNTS[..], &["request_mean_ms", "request_p50_ms", "request_p95_ms", "request_p99_ms"]]
            .concat(),
    };
    let slow = Table {
        title: "While a follower stands still for 18 of every 20 ms, and otherwise, at 20 clients".to_owned(),
        paper: "",
        only: vec![("clients", SLOW_FOLLOWER_CLIENTS.to_string())],
        arms: Vec::new(),
        measures: vec!["per_s", "put_p50_ms", "put_p95_ms", "p99_ms"],
    };
    let lost = Table {
        title: "When the leader is killed while clients write".to_owned(),
        paper: "",
        only: vec![("workload", LEADER_LOST.to_owned())],
        arms: Vec::new(),
        measures: vec!["writes_resumed", "writes_gap_ms", "writes_failed", "writes_at_risk", "writes_lost"],
    };
    [throughput]
        .into_iter()
        .chain(WORKLOADS.iter().map(|(name, ..)| metrics(name)))
        .chain(Mode::ALL.iter().map(|(name, _)| tester(name)))
        .chain([cost, followers, slow, lost])
        .collect()
}
