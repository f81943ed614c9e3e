//! What is drawn straight from the measures, and set in tables. What is computed first is in `derived`.

use super::points::{MBIT_FAST, MBIT_SLOW, MBITS, REBUILD_MBIT};
use super::{at, part};
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
