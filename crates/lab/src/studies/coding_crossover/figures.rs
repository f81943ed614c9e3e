//! Figures and tables of the measures themselves. Those that need a computation are in `derived`.

use super::points::{
    FAR_MBIT, FAR_SIZES, GONE_MBIT, MBIT_FAST, MBIT_SLOW, MBITS, REBUILD_MBIT, WRITERS_MBIT, WRITERS_QUICK,
};
use super::{CPU, at, part};
use crate::harness::{Figure, Shape, Table};

fn only(part: &str, at: &str, mbit: u64) -> Vec<(&'static str, String)> {
    vec![("part", part.to_owned()), ("at", at.to_owned()), ("mbit", mbit.to_string())]
}

fn lines(
    file: &str,
    title: String,
    paper: &'static str,
    y: &'static str,
    only: Vec<(&'static str, String)>,
) -> Figure {
    Figure {
        file: file.to_owned(),
        title,
        paper,
        shape: Shape::Lines,
        x: "bytes",
        y,
        only,
        arms: Vec::new(),
        logarithmic: (true, true),
    }
}

pub(super) fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    let bandwidths = [
        (MBIT_FAST, "10 Gbit/s", "scenario 1"),
        (MBIT_SLOW, "1 Mbit/s", "write performance on low bandwidth with large payload"),
        (MBITS[0], "10 Mbit/s", "scenario 3"),
        (MBITS[4], "70 Mbit/s", "scenario 3"),
    ];
    for (mbit, words, paper) in bandwidths {
        let title = format!("Write time by size, {words} per node");
        figures.push(lines(
            &format!("write-{mbit}"),
            title,
            paper,
            "p50_ms",
            only(part::WRITE, at::LEADER, mbit),
        ));
    }
    for (mbit, words, _) in [bandwidths[0], bandwidths[2]] {
        let title = format!("Read time by size at a follower, none from a cache, {words} per node");
        let mut only = only(part::READ, at::FOLLOWER, mbit);
        only.push(("hits", "0".to_owned()));
        figures.push(lines(&format!("read-follower-{mbit}"), title, "", "p50_ms", only));
    }
    for (y, file, title) in [
        ("log_per_value", "bytes-on-disk", "Growth of all logs per byte of values"),
        ("wire_per_value", "bytes-on-wire", "Bytes between nodes per byte of values"),
        ("cpu_us_per_op", "cpu", "Processor time of all nodes per write"),
    ] {
        let title = format!("{title}, 70 Mbit/s per node");
        figures.push(Figure {
            logarithmic: (true, y == "cpu_us_per_op"),
            ..lines(file, title, "storage efficiency", y, only(part::WRITE, at::LEADER, MBITS[4]))
        });
    }
    for bytes in FAR_SIZES {
        let mut only = only(part::FAR, at::LEADER, FAR_MBIT);
        only.push(("bytes", bytes.to_string()));
        figures.push(Figure {
            shape: Shape::Bars,
            x: "delay_ms",
            logarithmic: (false, false),
            ..lines(
                &format!("far-{bytes}"),
                format!("Write time of {} KB by the delay between nodes, {FAR_MBIT} Mbit/s", bytes / 1000),
                "discussion: high inter-node latency",
                "p50_ms",
                only,
            )
        });
    }
    for (file, title, y) in [
        ("writers-throughput", "Writes per second by clients", "per_s"),
        ("writers-latency", "Write time by clients", "p50_ms"),
    ] {
        figures.push(Figure {
            shape: Shape::Bars,
            x: "clients",
            logarithmic: (false, false),
            ..lines(
                file,
                format!("{title}, 100 KB, {WRITERS_MBIT} Mbit/s per node"),
                "",
                y,
                only(part::WRITERS, at::LEADER, WRITERS_MBIT),
            )
        });
    }
    let mut busy = only(part::WRITERS, at::LEADER, WRITERS_MBIT);
    busy.push(("clients", WRITERS_QUICK[0].to_string()));
    figures.push(Figure {
        shape: Shape::Quantiles(&CPU),
        logarithmic: (false, false),
        ..lines(
            "processor-time",
            format!(
                "Processor time of all nodes over the time of a load, {} clients write 100 KB",
                WRITERS_QUICK[0]
            ),
            "CPU usage tracking during system runtime",
            CPU[0].0,
            busy,
        )
    });
    figures.push(Figure {
        shape: Shape::Bars,
        x: "gone",
        logarithmic: (false, false),
        ..lines(
            "read-degraded",
            format!("Read time of 1 MB at the leader by nodes that are gone, {GONE_MBIT} Mbit/s"),
            "",
            "p50_ms",
            only(part::DEGRADED, at::LEADER, GONE_MBIT),
        )
    });
    figures.push(Figure {
        shape: Shape::Bars,
        logarithmic: (false, false),
        ..lines(
            "rebuild",
            format!(
                "Time until a replaced node holds its part of all values, {REBUILD_MBIT} Mbit/s per node"
            ),
            "future work: recovery analysis",
            "rebuild_ms",
            only(part::REBUILD, at::LEADER, REBUILD_MBIT),
        )
    });
    figures
}

pub(super) fn tables() -> Vec<Table> {
    let table = |title: &str, paper, only: &[(&'static str, &str)], measures: &[&'static str]| Table {
        title: title.to_owned(),
        paper,
        only: only.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        arms: Vec::new(),
        measures: measures.to_vec(),
    };
    let times = ["success", "failure", "p50_ms", "mean_ms", "sending_ms", "over_sending"];
    let writes =
        [&times[..], &["sent_per_value", "wire_per_value", "log_per_value", "cpu_us_per_op"]].concat();
    let reads = [&times[..4], &["hit_percent", "sent_per_value", "wire_per_value", "cpu_us_per_op"]].concat();
    vec![
        table(
            "Writes at the leader",
            "scenarios 1 to 3",
            &[("part", part::WRITE), ("at", at::LEADER)],
            &writes,
        ),
        table("Writes at a follower", "", &[("part", part::WRITE), ("at", at::FOLLOWER)], &writes),
        table("Reads at the leader", "read performance", &[("part", part::READ), ("at", at::LEADER)], &reads),
        table("Reads at a follower", "", &[("part", part::READ), ("at", at::FOLLOWER)], &reads),
        table(
            "Writes by nodes that are far from each other",
            "discussion: high inter-node latency",
            &[("part", part::FAR)],
            &["success", "failure", "p50_ms", "mean_ms", "disperse_ms", "order_ms"],
        ),
        table(
            "Many writers, and the processor time of all nodes over the time",
            "CPU usage tracking during system runtime",
            &[("part", part::WRITERS)],
            &[
                &["success", "failure", "per_s", "p50_ms", "p99_ms", "cpu_us_per_op"][..],
                &CPU.map(|(name, _)| name),
            ]
            .concat(),
        ),
        table(
            "Reads while nodes are gone",
            "",
            &[("part", part::DEGRADED)],
            &["success", "failure", "p50_ms", "mean_ms", "p99_ms"],
        ),
        table(
            "Where the time of a write goes",
            "operation-level tracing",
            &[("part", part::WRITE), ("at", at::LEADER)],
            &["k", "encode_ms", "cut_ms", "disperse_ms", "order_ms", "apply_ms", "p50_ms"],
        ),
        table(
            "A node that lost its disk is let in again",
            "future work: recovery analysis",
            &[("part", part::REBUILD)],
            &[
                "rebuild_ms",
                "rebuild_per_value",
                "rebuild_of_link",
                "alone_p99_ms",
                "beside_p99_ms",
                "beside_over_alone",
            ],
        ),
    ]
}
