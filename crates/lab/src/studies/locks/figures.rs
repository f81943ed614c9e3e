//! The measures, figures and tables, and the remarks for readers.

use super::THINK_MS;
use super::paper::{MEASURES, PAPER_MEASURES};
use super::sides::{self, Kind};
use crate::harness::{Figure, Measure, Shape, Table};

/// Every measure of the study.
pub(super) fn measures() -> Vec<Measure> {
    vec![
        Measure::new("acquires", "Acquires", ""),
        Measure::new("failures", "Failures", ""),
        Measure::new("unfinished", "Waits cut off by the end of the run", ""),
        Measure::new("avg_ms", "Average time to acquire", "ms"),
        Measure::new("p50_ms", "Median time to acquire", "ms"),
        Measure::new("min_ms", "Least time to acquire", "ms"),
        Measure::new("max_ms", "Greatest time to acquire", "ms"),
        Measure::new("p90_ms", "90th percentile of the time to acquire", "ms"),
        Measure::new("p99_ms", "99th percentile of the time to acquire", "ms"),
        Measure::new("p999_ms", "99.9th percentile of the time to acquire", "ms"),
        Measure::new("per_s", "Acquires per second", "1/s"),
        Measure::new("release_p50_ms", "Median time to release", "ms"),
        Measure::new("failure_avg_ms", "Average time of a failure", "ms"),
        Measure::new("failure_max_ms", "Greatest time of a failure", "ms"),
        Measure::new("cpu_us_per_acquire", "Processor time of all nodes per acquire", "us"),
        Measure::new("paper_avg_ms", "The paper's average", "ms"),
        Measure::new("paper_p50_ms", "The paper's median", "ms"),
        Measure::new("paper_min_ms", "The paper's least", "ms"),
        Measure::new("paper_max_ms", "The paper's greatest", "ms"),
        Measure::new("paper_p90_ms", "The paper's 90th percentile", "ms"),
        Measure::new("paper_p99_ms", "The paper's 99th percentile", "ms"),
        Measure::new("handoffs", "Hand-offs to one who waited", ""),
        Measure::new("handoff_p50_ms", "Median time of a hand-off", "ms"),
        Measure::new("handoff_p99_ms", "99th percentile of the time of a hand-off", "ms"),
        Measure::new("handoff_max_ms", "Greatest time of a hand-off", "ms"),
        Measure::new("jain", "Fairness (Jain's index)", ""),
        Measure::new("least_pct", "Acquires of who got least, of the mean", "%"),
        Measure::new("most_pct", "Acquires of who got most, of the mean", "%"),
        Measure::new("overlaps", "Grants while another one held the lock", ""),
        Measure::new("trials", "Trials", ""),
        Measure::new("never_granted", "Trials in which the next one never got the lock", ""),
        Measure::new("lease_ms", "Lease", "ms"),
        Measure::new("lease_min_ms", "Least time from a holder's request to the next grant", "ms"),
        Measure::new("stale_paused", "Writes accepted from a holder that was paused", ""),
        Measure::new("guarded_paused", "The same, guarded by the lock", ""),
        Measure::new("stale_cut_off", "Writes accepted from a holder that is cut off", ""),
        Measure::new("guarded_cut_off", "The same, guarded by the lock", ""),
        Measure::new("takeover_paused_ms", "Median time until the next one has a paused holder's lock", "ms")
            .or_never(),
        Measure::new("takeover_paused_max_ms", "The greatest", "ms"),
        Measure::new(
            "takeover_cut_off_ms",
            "Median time until the next one has a cut off holder's lock",
            "ms",
        )
        .or_never(),
        Measure::new("takeover_cut_off_max_ms", "The greatest", "ms"),
        Measure::new("takeover_killed_ms", "Median time until the next one has a killed holder's lock", "ms")
            .or_never(),
        Measure::new("takeover_killed_max_ms", "The greatest", "ms"),
        Measure::new("restarts", "Restarts of all nodes, one after the other", ""),
        Measure::new(
            "two_holders_restarted",
            "Locks granted again after them while their holder had them",
            "",
        ),
        Measure::new("jumps", "Jumps of clocks", ""),
        Measure::new("two_holders_jumped", "Locks granted again after them while their holder had them", ""),
        Measure::new(
            "takeover_jumped_ms",
            "Time until the next one has a lock after its clocks were set back",
            "ms",
        ),
        Measure::new("never_told", "Nodes where one who waits is not told of a release", ""),
        Measure::new("told_max_ms", "Greatest time from a release until one who waits is told", "ms"),
        Measure::new("gap_ms", "Longest time without a grant after a node was killed", "ms").or_never(),
        Measure::new("stuck", "Contenders without a grant in the last quarter", ""),
    ]
}

fn only(values: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    values.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// The arms that sync to disk.
fn synced() -> Vec<String> {
    let sides = sides::ALL.iter().filter(|side| side.kind == Kind::Synced);
    sides.map(|side| side.name.to_owned()).collect()
}

/// The arms that do not.
fn unsynced() -> Vec<String> {
    let sides = sides::ALL.iter().filter(|side| side.kind == Kind::Unsynced);
    sides.map(|side| side.name.to_owned()).collect()
}

/// The arms whose messages take as long as between zones.
fn zones() -> Vec<String> {
    let sides = sides::ALL.iter().filter(|side| side.kind == Kind::Zones);
    sides.map(|side| side.name.to_owned()).collect()
}

/// The measures in the paper's tables.
const TIMES: [(&str, &str); 4] =
    [("avg_ms", "average"), ("p50_ms", "median"), ("p99_ms", "99th percentile"), ("max_ms", "greatest")];

/// The quantiles by which a distribution is drawn.
const QUANTILES: [(&str, &str); 6] = [
    ("min_ms", "least"),
    ("p50_ms", "50 %"),
    ("p90_ms", "90 %"),
    ("p99_ms", "99 %"),
    ("p999_ms", "99.9 %"),
    ("max_ms", "greatest"),
];

pub(super) fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (keys, paper) in [("different", "table 1"), ("same", "table 2")] {
        let title = if keys == "same" { "the same key" } else { "different keys" };
        for (measure, words) in TIMES {
            figures.push(Figure {
                file: format!("acquire-{keys}-{}", measure.trim_end_matches("_ms")),
                title: format!("Time to acquire, {title}, {words}"),
                paper,
                shape: Shape::Bars,
                x: "processes",
                y: measure,
                only: only(&[("part", "acquire"), ("keys", keys), ("think_ms", "0")]),
                arms: synced(),
                logarithmic: (false, true),
            });
        }
    }
    for (keys, processes, title) in [
        ("different", "1", "1 process"),
        ("different", "5", "5 processes, different keys"),
        ("same", "5", "5 processes, the same key"),
    ] {
        let point = [("part", "acquire"), ("keys", keys), ("processes", processes), ("think_ms", "0")];
        figures.push(Figure {
            file: format!("distribution-{keys}-{processes}"),
            title: format!("Distribution of the time to acquire, {title}"),
            paper: if keys == "same" { "table 2" } else { "table 1" },
            shape: Shape::Quantiles(&QUANTILES),
            x: "processes",
            y: "p50_ms",
            only: only(&point),
            arms: synced(),
            logarithmic: (false, true),
        });
    }
    for (file, title, y, logarithmic) in [
        ("handoff-median", "Hand-off of one lock, median", "handoff_p50_ms", true),
        ("handoff-p99", "Hand-off of one lock, 99th percentile", "handoff_p99_ms", true),
        ("contenders-throughput", "Acquires per second of one lock", "per_s", true),
        ("fairness", "Fairness among contenders for one lock", "jain", false),
    ] {
        figures.push(Figure {
            file: file.to_owned(),
            title: format!("{title}, by contenders"),
            paper: "",
            shape: if y == "jain" { Shape::Bars } else { Shape::Lines },
            x: "contenders",
            y,
            only: only(&[("part", "contenders"), ("hold_ms", "0")]),
            arms: synced(),
            logarithmic: (true, logarithmic),
        });
    }
    figures.push(Figure {
        file: "holder-killed".to_owned(),
        title: "Until the next one has the lock of a holder that was killed".to_owned(),
        paper: "",
        shape: Shape::Bars,
        x: "part",
        y: "takeover_killed_ms",
        only: only(&[("part", "holder gone")]),
        arms: synced(),
        logarithmic: (false, true),
    });
    figures.push(Figure {
        file: "node-killed".to_owned(),
        title: "Longest time without a grant after a node was killed".to_owned(),
        paper: "",
        shape: Shape::Bars,
        x: "node",
        y: "gap_ms",
        only: only(&[("part", "node killed")]),
        arms: synced(),
        logarithmic: (false, true),
    });
    figures
}

pub(super) fn tables() -> Vec<Table> {
    let beside: Vec<&'static str> =
        MEASURES.into_iter().zip(PAPER_MEASURES).flat_map(|(ours, paper)| [ours, paper]).collect();
    let think = THINK_MS.to_string();
    let table = |title: &str, paper, values: &[(&'static str, &str)], arms, measures: &[&'static str]| {
        Table { title: title.to_owned(), paper, only: only(values), arms, measures: measures.to_vec() }
    };
    let costs = [
        "acquires",
        "failures",
        "failure_avg_ms",
        "failure_max_ms",
        "unfinished",
        "per_s",
        "release_p50_ms",
        "cpu_us_per_acquire",
        "least_pct",
        "most_pct",
        "overlaps",
    ];
    let contention = [
        "per_s",
        "handoff_p50_ms",
        "handoff_p99_ms",
        "handoff_max_ms",
        "p50_ms",
        "p99_ms",
        "jain",
        "least_pct",
        "most_pct",
        "failures",
        "unfinished",
        "overlaps",
    ];
    let part = |part| [("part", part)];
    let different = [("part", "acquire"), ("keys", "different"), ("think_ms", "0")];
    let same = [("part", "acquire"), ("keys", "same"), ("think_ms", "0")];
    let rarely = [("part", "acquire"), ("keys", "same"), ("think_ms", think.as_str())];
    vec![
        table("Time to acquire, different keys", "table 1", &different, synced(), &beside),
        table("Time to acquire, the same key", "table 2", &same, synced(), &beside),
        table("The same key where contenders hardly ever meet", "table 2", &rarely, synced(), &beside),
        table("Different keys, nothing synced to disk", "table 1", &different, unsynced(), &beside),
        table("Different keys, between zones", "table 1", &different, zones(), &beside),
        table("The same key, between zones", "table 2", &same, zones(), &beside),
        table("The same key, nothing synced to disk", "table 2", &same, unsynced(), &beside),
        table("What acquires cost, and what failed", "", &part("acquire"), Vec::new(), &costs),
        table("Contenders for one lock", "", &part("contenders"), synced(), &contention),
        table(
            "A holder that is paused or cut off, and writes when another one has its lock",
            "safety (4.5)",
            &part("holder gone"),
            synced(),
            &["trials", "stale_paused", "guarded_paused", "stale_cut_off", "guarded_cut_off"],
        ),
        table(
            "Until the next one has the lock of a holder that is gone",
            "freedom from deadlock (4.5)",
            &part("holder gone"),
            synced(),
            &[
                "lease_ms",
                "lease_min_ms",
                "takeover_killed_ms",
                "takeover_killed_max_ms",
                "takeover_paused_ms",
                "takeover_cut_off_ms",
                "never_granted",
            ],
        ),
        table(
            "A lock that is held while all nodes are killed and started again, one after the other",
            "safety (4.4)",
            &part("nodes restarted"),
            Vec::new(),
            &["restarts", "two_holders_restarted"],
        ),
        table(
            "Clocks of a majority of the servers jump",
            "safety (4.4)",
            &part("clocks jump"),
            Vec::new(),
            &["jumps", "two_holders_jumped", "lease_ms", "takeover_jumped_ms"],
        ),
        table(
            "Waiting at each node after many have waited there and given up",
            "freedom from deadlock (4.5)",
            &part("waits after contention"),
            synced(),
            &["told_max_ms", "never_told"],
        ),
        table(
            "A node that is killed",
            "fault tolerance (4.5)",
            &part("node killed"),
            synced(),
            &["gap_ms", "stuck", "acquires", "failures", "failure_max_ms", "p50_ms"],
        ),
    ]
}

pub(super) fn remarks() -> Vec<String> {
    let remarks = [
        "Clients are Python processes, one contender each, as in the paper; with many contenders there are four processes with \
         a thread and a connection for each. Nodes and clients share one machine. The paper's network of \u{201c}sub-milliseconds\u{201d} (4) is in the \
         times of the arms called zones alone, where the lab's relay adds 0.25 ms to every message between nodes and between them and \
         clients.",
        "The paper does not say what its \u{201c}short computation\u{201d} (4) is. Here the lock is held for a SHA-256 of 16 KiB, some \
         10 to 50 us, and asked for again at once. A point of a full run has a pause of 50 ms after each release, so that contenders \
         hardly meet; the paper tells of none.",
        "The paper's recipes, of whose libraries it names no versions: python-etcd3's Lock (0.12.0; a lease and a transaction for each \
         acquire: etcd3/locks.py, lines 83 and 85), consul-lock (0.1.6; a session, a check-and-set and the end of the session: \
         consul_lock/lock_impl.py, lines 94, 131 and 150; its imports are Python 2's, its code runs here unchanged), kazoo's Lock \
         (2.11.0), and redlock-py with its defaults: three tries, 0.2 s apart (1.0.8; redlock/__init__.py, lines 40 and 41).",
        "The paper's \u{201c}Python redlock library\u{201d} (4.4) may be redlock-py or the package redlock. That redlock-py is meant is \
         an inference from its times: with one key, its greatest of 411 and 415 ms and its 99th percentile of 204 ms are two \
         sleeps and one of 0.2 s, which redlock-py makes always as long; redlock 1.2.0 draws up to 0.2 s (redlock/lock.py, line 171).",
        "The best recipes: etcd's lock service (v3lock) on a lease that lasts; a Consul session that lasts, with blocking \
         queries; kazoo's Lock, again; Redlock as its page describes it, all servers at once and a time drawn by chance \
         before another try; Quorate's LOCK.",
        "Failures are counted apart: where redlock-py gives up after three tries, the paper has nothing to say. Waits that \
         the end of a run cuts off are counted, too, and are in no time.",
        "All systems sync to disk before they answer, Redis by appendfsync always. The paper does not say whether its Redis did; \
         Redis 5.0 does not unless it is told to. What is not synced is measured apart, etcd where it has --unsafe-no-fsync.",
        "Each process is connected to a node of its own, the first to the leader. Where a library knows one address, its user \
         connects to the next node after a failure.",
        "A hand-off counts from the holder's call of release to the moment when another contender, who waited already, has \
         the grant.",
        "A holder is stale once another one has the lock. Its write goes to a resource that knows nothing of locks, and to \
         one that the system itself guards: in the same transaction as the lock's key (etcd), node (ZooKeeper) or session \
         (Consul), or with a fencing token (Quorate). The locks of the paper's libraries for etcd, Consul and Redis have no method \
         that guards a write.",
        "Restarts: each node is killed and started again with what is in its folder, one after the other, so that a majority is there \
         at any moment, while a client holds a lock for 20 s; then another one asks for it. Redlock's page tells of such restarts, and \
         asks for servers that sync, or that stay away for as long as a lease after each crash; redlock-py knows of neither.",
        "Clocks: libfaketime sets the clocks of two of three servers 60 s ahead, or 6 s back; the clients' clock stays. It is done to \
         Redis alone, since programs in Go ask the kernel for the time and not the C library.",
    ];
    remarks.iter().map(|remark| (*remark).to_owned()).collect()
}
