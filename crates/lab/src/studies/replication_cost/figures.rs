//! The comparison has tables and no figures: each of its tables, and figures that illustrate them.

use super::{ACKS_NONE, IN_PROCESS, QUORATE_RESYNC, REDIS, REDIS_RESYNC, WORKLOADS};
use crate::harness::{Figure, Shape, Table};

fn only(values: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    values.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

pub(super) fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (keys, file, title) in [
        ("same", "in-process-same-key", "SET in process, always the same key"),
        ("distinct", "in-process-distinct-keys", "SET in process, 200 000 distinct keys"),
    ] {
        figures.push(Figure {
            file: file.to_owned(),
            title: title.to_owned(),
            paper: "table in section 1",
            shape: Shape::Bars,
            x: "value_bytes",
            y: "ns_per_op",
            only: only(&[("part", "table"), ("op", "SET"), ("keys", keys), ("threads", "1")]),
            arms: vec![IN_PROCESS.to_owned()],
            logarithmic: (false, false),
        });
    }
    for (op, file) in [("SET", "in-process-set-threads"), ("GET", "in-process-get-threads")] {
        figures.push(Figure {
            file: file.to_owned(),
            title: format!("{op} of 64 B in process by threads, 200 000 distinct keys each"),
            paper: "",
            shape: Shape::Bars,
            x: "threads",
            y: "per_s",
            only: only(&[("part", "table"), ("op", op), ("keys", "distinct"), ("value_bytes", "64")]),
            arms: vec![IN_PROCESS.to_owned()],
            logarithmic: (false, false),
        });
    }
    for (x, file, title, parameter, value) in [
        (
            "batch",
            "leader-by-batch",
            "A leader's SET in process with one follower, by batch",
            "replicas",
            "1",
        ),
        ("replicas", "leader-by-followers", "A leader's SET in process, batches of 1000", "batch", "1000"),
    ] {
        figures.push(Figure {
            file: file.to_owned(),
            title: title.to_owned(),
            paper: "tables in sections 2 and 3",
            shape: Shape::Bars,
            x,
            y: "ns_per_op",
            only: only(&[("part", "log"), (parameter, value)]),
            arms: vec![IN_PROCESS.to_owned()],
            logarithmic: (false, false),
        });
    }
    for (workload, ..) in WORKLOADS {
        for pipeline in ["1", "16"] {
            let name = workload.replace(' ', "-");
            figures.push(Figure {
                file: format!("throughput-{name}-{pipeline}"),
                title: format!("Throughput over the wire, {workload}, pipeline {pipeline}"),
                paper: match workload {
                    "write-heavy" => "section 4 A",
                    "read-heavy" => "section 4 B",
                    _ => "section 6",
                },
                shape: Shape::Lines,
                x: "replicas",
                y: "per_s",
                only: only(&[("part", "wire"), ("workload", workload), ("pipeline", pipeline)]),
                arms: Vec::new(),
                logarithmic: (false, false),
            });
        }
    }
    for (y, file, title) in [
        ("cpu_us_per_op", "processor", "Processor time of all nodes per write, pipeline 16"),
        ("peer_bytes_per_op", "bytes", "Bytes between nodes per write of 64 B, pipeline 16"),
    ] {
        figures.push(Figure {
            file: format!("{file}-write-heavy"),
            title: title.to_owned(),
            paper: "",
            shape: Shape::Lines,
            x: "replicas",
            y,
            only: only(&[("part", "wire"), ("workload", "write-heavy"), ("pipeline", "16")]),
            arms: Vec::new(),
            logarithmic: (false, false),
        });
    }
    for (part, file, title) in [
        ("full resync", "full-resync", "Full resync, from the start of an empty replica"),
        ("partial resync", "partial-resync", "Partial resync, from the healing of the link"),
    ] {
        figures.push(Figure {
            file: file.to_owned(),
            title: title.to_owned(),
            paper: "table in section 5",
            shape: Shape::Bars,
            x: "kib",
            y: "resync_ms",
            only: only(&[("part", part)]),
            arms: vec![QUORATE_RESYNC.to_owned(), REDIS_RESYNC.to_owned()],
            logarithmic: (false, false),
        });
    }
    for (y, file, title) in
        [("lag_p50_ms", "lag-median", "Median replica lag"), ("lag_p99_ms", "lag-p99", "Replica lag, p99")]
    {
        figures.push(Figure {
            file: file.to_owned(),
            title: format!("{title}, one replica"),
            paper: "table in section 5",
            shape: Shape::Bars,
            x: "rate",
            y,
            only: only(&[("part", "lag")]),
            arms: vec![ACKS_NONE.to_owned(), REDIS.to_owned()],
            logarithmic: (false, false),
        });
    }
    figures
}

pub(super) fn tables() -> Vec<Table> {
    let table = |title: &str, paper, values: &[(&'static str, &str)], measures: &[&'static str]| Table {
        title: title.to_owned(),
        paper,
        only: only(values),
        arms: Vec::new(),
        measures: measures.to_vec(),
    };
    let wire =
        ["per_s", "p50_ms", "p99_ms", "get_p50_ms", "put_p50_ms", "cpu_us_per_op", "peer_bytes_per_op"];
    vec![
        table(
            "SET and GET in process",
            "section 1",
            &[("part", "table")],
            &["ns_per_op", "per_s", "gib_per_s"],
        ),
        table(
            "Appending to a circular buffer in process",
            "section 2",
            &[("part", "append")],
            &["batch_us", "ns_per_op", "per_s"],
        ),
        table(
            "A leader's SET in process, with its followers",
            "sections 2 and 3",
            &[("part", "log")],
            &["batch_us", "ns_per_op", "per_s"],
        ),
        table(
            "Write-heavy over the wire",
            "section 4 A",
            &[("part", "wire"), ("workload", "write-heavy")],
            &wire,
        ),
        table(
            "Read-heavy over the wire",
            "section 4 B",
            &[("part", "wire"), ("workload", "read-heavy")],
            &wire,
        ),
        table(
            "Reads of all nodes",
            "section 6",
            &[("part", "wire"), ("workload", super::READS_EVERYWHERE)],
            &["per_s", "p50_ms"],
        ),
        table(
            "Full resync",
            "section 5",
            &[("part", "full resync")],
            &["resync_ms", "full_resyncs", "partial_resyncs"],
        ),
        table(
            "Partial resync",
            "section 5",
            &[("part", "partial resync")],
            &["resync_ms", "full_resyncs", "partial_resyncs"],
        ),
        table(
            "Replica lag",
            "section 5",
            &[("part", "lag")],
            &["lag_p50_ms", "lag_p95_ms", "lag_p99_ms", "lag_max_ms", "lag_probes", "per_s"],
        ),
    ]
}
