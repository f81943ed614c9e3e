//! The study's figures (latency over concurrency, for each workload) and tables, and those it lacks.

use super::{FOLLOWER_READS, WORKLOADS};
use crate::harness::{Figure, Shape, Table};

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
        logarithmic: (false, true),
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
    let measures = [
        ("mean_ms", "mean-latency", "Mean latency"),
        ("p95_ms", "p95-latency", "95th percentile of latency"),
        ("per_s", "throughput", "Throughput"),
    ];
    for (y, file, title) in measures {
        for (workload, get, set) in WORKLOADS {
            let paper = match (y, workload) {
                ("per_s", _) => "",
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
    [throughput]
        .into_iter()
        .chain(WORKLOADS.iter().map(|(name, ..)| metrics(name)))
        .chain([cost, followers])
        .collect()
}
