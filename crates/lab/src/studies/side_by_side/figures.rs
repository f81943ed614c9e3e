//! The study's figures, throughput and latency over clients, and its tables.

use super::{GET, MANY, PUT, QUORATE_ANY, SHARED, SYNCED, UNSYNCED};
use crate::harness::{Figure, Shape, Table};

fn names(arms: &[&str]) -> Vec<String> {
    arms.iter().map(|arm| (*arm).to_owned()).collect()
}

fn at(operation: &str, at_once: u32) -> Vec<(&'static str, String)> {
    vec![("operation", operation.to_owned()), ("at_once", at_once.to_string())]
}

pub(super) fn all() -> Vec<Figure> {
    let lines = |operation: &str, y: &'static str, file: &str, title: &str| Figure {
        file: format!("{operation}-{file}"),
        title: format!("{title}, {operation} of 256 bytes, three nodes, written to disk"),
        paper: "",
        shape: Shape::Lines,
        x: "clients",
        y,
        only: at(operation, 1),
        arms: names(&SYNCED),
        logarithmic: (true, true),
    };
    let bars = |file: &str, title: &str, [clients, at_once]: [u32; 2], arms: &[&str]| Figure {
        file: file.to_owned(),
        title: title.to_owned(),
        paper: "",
        shape: Shape::Bars,
        x: "clients",
        y: "per_s",
        only: at(PUT, at_once).into_iter().chain([("clients", clients.to_string())]).collect(),
        arms: names(arms),
        logarithmic: (false, true),
    };
    vec![
        lines(PUT, "per_s", "throughput", "Throughput"),
        lines(PUT, "p50_ms", "median", "Median latency"),
        lines(PUT, "p99_ms", "p99", "99th percentile of latency"),
        lines(GET, "per_s", "throughput", "Throughput"),
        lines(GET, "p99_ms", "p99", "99th percentile of latency"),
        bars("put-shared", "256 writes at once over 16 connections", [SHARED, MANY / SHARED], &[]),
        bars("put-not-synced", "Writes of 256 clients that are not synced", [MANY, 1], &UNSYNCED),
    ]
}

pub(super) fn tables() -> Vec<Table> {
    let table = |title: &str, operation: &str, at_once: u32, arms: &[&str]| Table {
        title: title.to_owned(),
        paper: "",
        only: at(operation, at_once),
        arms: names(arms),
        measures: vec!["per_s", "p50_ms", "p95_ms", "p99_ms", "failure", "unknown"],
    };
    let reads: Vec<&str> = SYNCED.into_iter().chain([QUORATE_ANY]).collect();
    let cost = Table {
        title: "What a write costs".to_owned(),
        paper: "",
        only: vec![("operation", PUT.to_owned()), ("clients", MANY.to_string())],
        arms: Vec::new(),
        measures: vec!["cpu_us_per_op", "loader_cpu_us_per_op", "peer_bytes_per_op", "disk_bytes_per_op"],
    };
    vec![
        table("Writes, synced", PUT, 1, &SYNCED),
        table("Reads", GET, 1, &reads),
        table("Writes, 16 at once on a connection", PUT, MANY / SHARED, &[]),
        table("Writes of 256 clients, not synced", PUT, 1, &UNSYNCED),
        cost,
    ]
}
