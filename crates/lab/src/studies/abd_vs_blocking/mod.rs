//! ABD's registers against per-key locks on a majority, after Y. Watchpillai's and B. Udayagiri's study.
//!
//! The study compares ABD with a protocol that locks a key on a majority before it reads or writes it, and counts
//! an operation that meets a lock as failed. Here both are run as in the study, and beyond it: with retries when a
//! lock is met, with a hundred times the keys, with a dead replica, and with nodes that are far from each other.

mod claims;
mod compared;
mod figures;

use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Scale, Study, Table,
    load_measures,
};
use crate::load::{Mix, Operation, Options, Outcome, Report, Sizes, Stop};
use crate::network::Link;
use crate::report::Colour;
use crate::systems::{Quorate, Relayed, System};

pub(super) struct AbdVsBlocking;

/// The paper's numbers of replicas.
const NODES: [usize; 3] = [1, 3, 5];

/// The paper's numbers of clients, and those of a quick run.
const CLIENTS: [u32; 9] = [1, 2, 4, 8, 12, 16, 20, 24, 32];
const CLIENTS_QUICK: [u32; 4] = [1, 4, 12, 32];

/// The numbers of clients in a quick run of what the paper did not vary.
const CLIENTS_QUICK_BEYOND: [u32; 2] = [1, 32];

/// The paper's workloads: name, and the percentages of GET and PUT.
const WORKLOADS: [(&str, u32, u32); 2] = [("GET-heavy", 90, 10), ("PUT-heavy", 10, 90)];

/// The paper's number of keys, and a hundred times as many.
const KEYS: u64 = 10;
const KEYS_MANY: u64 = 1000;

/// The number of operations for each client: the paper's.
const OPERATIONS: u64 = 2000;

/// The same in a quick run, and the minimum for all clients together: a percentile needs that many.
const OPERATIONS_QUICK: u64 = 150;
const OPERATIONS_QUICK_MIN: u64 = 2000;

/// The same with delayed links, where each operation takes milliseconds.
const OPERATIONS_QUICK_DELAYED: u64 = 50;
const OPERATIONS_QUICK_DELAYED_MIN: u64 = 200;

const VALUE_BYTES: usize = 64;

/// The one-way delay between two nodes on delayed links: that of data centres in one region.
const DELAY: Duration = Duration::from_millis(1);

/// The protocol that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Abd,
    /// As in the study: an operation that meets a lock has failed.
    Blocking,
    /// An operation that meets a lock tries again.
    Backoff,
}

impl Protocol {
    const ALL: [Protocol; 3] = [Protocol::Abd, Protocol::Blocking, Protocol::Backoff];

    fn settings(self) -> &'static str {
        match self {
            Protocol::Abd => "replication=abd",
            Protocol::Blocking => "replication=blocking retry=none",
            Protocol::Backoff => "replication=blocking retry=backoff",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Protocol::Abd => Colour::ABD,
            Protocol::Blocking => Colour::BLOCKING,
            Protocol::Backoff => Colour::BLOCKING.dashed(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Abd => "ABD",
            Protocol::Blocking => "Blocking",
            Protocol::Backoff => "Blocking, backoff",
        }
    }

    /// The arm with this many replicas.
    fn arm(self, nodes: usize) -> String {
        format!("{} N={nodes}", self.name())
    }

    /// The arm with this many replicas and delayed links.
    fn delayed_arm(self, nodes: usize) -> String {
        format!("{} N={nodes}, 1 ms", self.name())
    }
}

/// A cluster whose nodes are far from each other, but as near to clients as ever.
fn delayed(quorate: Quorate) -> Box<dyn System> {
    // A delay without jitter is constant: nothing is drawn from the seed.
    const RELAY_SEED: u64 = 1;
    let link = Link { delay: DELAY, ..Link::default() };
    Box::new(Relayed::new(Box::new(quorate), RELAY_SEED).with_link(link))
}

/// How many operations each client does at a point.
fn operations(scale: Scale, is_delayed: bool, clients: u32) -> u64 {
    let (of_each, least) = match (scale, is_delayed) {
        (Scale::Full, _) => return OPERATIONS,
        (Scale::Quick, false) => (OPERATIONS_QUICK, OPERATIONS_QUICK_MIN),
        (Scale::Quick, true) => (OPERATIONS_QUICK_DELAYED, OPERATIONS_QUICK_DELAYED_MIN),
    };
    of_each.max(least.div_ceil(u64::from(clients)))
}

/// The latencies of failures, and those of all operations together, as in the study
/// (workload/workload_generator.cpp, lines 58 to 69 and 76 to 87).
fn failure_figures(report: &Report) -> Figures {
    let rows = report.rows();
    let ended = rows.iter().filter_map(|row| Some((row.operation?, row.outcome)));
    let latencies = |is_counted: fn(Operation, Outcome) -> bool| {
        let counted = ended.clone().filter(|(operation, outcome)| is_counted(*operation, *outcome));
        let counted = counted.filter_map(|(operation, outcome)| report.latencies(operation, outcome));
        counted.cloned().reduce(|mut sum, more| {
            sum += more;
            sum
        })
    };
    let failed = latencies(|_, outcome| outcome != Outcome::Ok);
    let measures = [
        ("failed_p50_ms", failed.clone(), 0.5),
        ("failed_p95_ms", failed, 0.95),
        ("get_all_p95_ms", latencies(|operation, _| operation == Operation::Get), 0.95),
        ("put_all_p95_ms", latencies(|operation, _| operation == Operation::Set), 0.95),
    ];
    let ms = |latencies: Histogram<u64>, quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    let measures = measures.into_iter();
    measures.filter_map(|(name, latencies, quantile)| Some((name, ms(latencies?, quantile)))).collect()
}

/// The points of an arm. Those with a dead replica come last, because the points of an arm share one start of its
/// system.
fn points(scale: Scale, nodes: usize, is_delayed: bool) -> Vec<Point> {
    let clients = scale.pick(&CLIENTS_QUICK[..], &CLIENTS[..]);
    let beyond = scale.pick(&CLIENTS_QUICK_BEYOND[..], &CLIENTS[..]);
    let mut groups = vec![(KEYS, 0, if is_delayed { beyond } else { clients })];
    // A quick run varies one thing at a time, and only with three replicas.
    if !is_delayed && scale.pick(nodes == 3, true) {
        groups.push((KEYS_MANY, 0, beyond));
    }
    if !is_delayed && scale.pick(nodes == 3, nodes > 1) {
        groups.push((KEYS, 1, beyond));
    }
    let mut points = Vec::new();
    for (keys, down, clients) in groups {
        for (workload, ..) in WORKLOADS {
            points.extend(clients.iter().map(|clients| {
                let point = Point::new().with("workload", workload).with("keys", keys);
                let point =
                    point.with("down", down).with("delay_ms", u128::from(is_delayed) * DELAY.as_millis());
                point.with("clients", clients)
            }));
        }
    }
    points
}

impl Study for AbdVsBlocking {
    fn name(&self) -> &'static str {
        "abd-vs-blocking"
    }

    fn title(&self) -> &'static str {
        "Quorum registers (ABD) against per-key locks on a quorum"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper {
            title: "Experimental Evaluation of ABD and Blocking Protocols",
            authors: "Yashita Watchpillai and Balaji Udayagiri, Penn State",
            setting: "machines of a computer room, with one TCP connection and one thread for each message",
            code: Some("github.com/yashita31/PA2_511 at 1298b3b"),
        })
    }

    fn varies(&self) -> &'static str {
        "1, 3, 5 replicas x 1 to 32 clients x 90 % and 10 % GET; and with backoff, 1000 keys, a replica killed, 1 ms links"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "workload", title: "Workload" },
            Parameter { name: "keys", title: "Keys" },
            Parameter { name: "down", title: "Replicas killed" },
            Parameter { name: "delay_ms", title: "Delay between nodes, one way (ms)" },
            Parameter { name: "clients", title: "Concurrent clients" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        let further = [
            Measure::new("failed_percent", "Operations that failed", "%"),
            Measure::new("failed_p50_ms", "Median latency of failures", "ms"),
            Measure::new("failed_p95_ms", "95th percentile of the latency of failures", "ms"),
            Measure::new("get_all_p95_ms", "95th percentile of GET latency, failures among successes", "ms"),
            Measure::new("put_all_p95_ms", "95th percentile of PUT latency, failures among successes", "ms"),
        ];
        load_measures().into_iter().chain(further).collect()
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let arm = |protocol: Protocol, nodes: usize, is_delayed: bool| {
            let quorate = Quorate::new(&plan.quorate, nodes, protocol.settings());
            let system: Box<dyn System> = if is_delayed { delayed(quorate) } else { Box::new(quorate) };
            let name = if is_delayed { protocol.delayed_arm(nodes) } else { protocol.arm(nodes) };
            Arm {
                name,
                colour: shade(protocol, nodes),
                system: Some(system),
                differs: String::new(),
                points: points(plan.scale, nodes, is_delayed),
            }
        };
        let mut arms = Vec::new();
        for nodes in NODES {
            arms.extend(Protocol::ALL.map(|protocol| arm(protocol, nodes, false)));
        }
        let delayed: &[usize] = plan.scale.pick(&[3], &[3, 5]);
        for nodes in delayed {
            arms.extend(Protocol::ALL.map(|protocol| arm(protocol, *nodes, true)));
        }
        arms
    }

    fn measure(&self, _arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let workload = WORKLOADS.iter().find(|(name, ..)| *name == point.get("workload"));
        let (_, get, set) = workload.copied().unwrap_or(WORKLOADS[0]);
        let clients: u32 = point.number("clients")?;
        let down: usize = point.number("down")?;

        let system = arena.system()?;
        let mut addresses = system.resp();
        ensure!(2 * down < addresses.len(), "{down} of {} replicas are not a minority", addresses.len());
        // The last nodes are dead; clients know that, and use the others.
        for node in addresses.len() - down..addresses.len() {
            system.kill(node);
        }
        addresses.truncate(addresses.len() - down);

        let is_delayed = point.get("delay_ms") != "0";
        let options = Options {
            addresses,
            connections: clients as usize,
            mix: Mix { get, set, ..Mix::default() },
            keys: point.number("keys")?,
            key_prefix: arena.new_keys(),
            value_bytes: Sizes::fixed(VALUE_BYTES),
            warmup: arena.scale().pick(Duration::from_millis(50), Duration::from_millis(250)),
            stop: Stop::CountEach(operations(arena.scale(), is_delayed, clients)),
            seed: u64::from(arena.repeat()),
            ..Options::default()
        };
        let driven = arena.drive(&options)?;
        let mut figures = driven.figures();
        figures.extend(failure_figures(&driven.report));
        if let (Some(failed), Some(total)) = (figures.get("failure"), figures.get("total")) {
            figures.insert("failed_percent", 100.0 * failed / total);
        }
        Ok(figures)
    }

    fn claims(&self) -> Vec<Claim> {
        claims::all()
    }

    fn figures(&self) -> Vec<Figure> {
        figures::all()
    }

    fn tables(&self) -> Vec<Table> {
        figures::tables()
    }

    fn remarks(&self) -> Vec<String> {
        let remarks = [
            "A client is a connection that has one operation under way. The study's clients ran the protocol themselves; \
             here the node that a client is connected to does, and clients are spread over all nodes.",
            "The study's processes made a TCP connection and a thread for every message and read replies byte by byte, and \
             its figures measure that. Nodes here keep their connections, and put all that a moment has for another node \
             into one message.",
            "The study's ABD writes back after every read, and its blocking protocol locks and reads in two rounds. Here a \
             read is done after one round when a majority agrees, and a lock's grant brings what the replica holds.",
            "The study's quorum is always the first R servers, and its ABD ignores acknowledgements of writes. Here all \
             are asked, and a majority must have answered.",
            "The study puts the latencies of failed operations among those of successes (workload/workload_generator.cpp, lines 58 \
             to 69 and 76 to 87). Here latencies are those of successes, and failures have latencies of their own; the 95th \
             percentiles of both together are told beside them.",
            "Each client does 2000 operations, as in the study (run_exp.sh, line 11), and who is done waits for the others. A quick \
             run has fewer: 150 for each client, 2000 of all at least; with delays 50, and 200 of all at least.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

/// The more replicas, the darker the protocol's colour, to distinguish figures of several numbers of replicas.
fn shade(protocol: Protocol, nodes: usize) -> Colour {
    match nodes {
        1 => protocol.colour().lighter(45),
        3 => protocol.colour(),
        _ => protocol.colour().darker(45),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::sample_report;

    #[test]
    fn failures_have_separate_latencies_and_widen_those_of_all() {
        // GETs take 0.1 ms and PUTs 0.2; two further PUTs fail after 9 ms.
        let figures = failure_figures(&sample_report(10, 100));
        let ms =
            ["failed_p50_ms", "failed_p95_ms", "get_all_p95_ms", "put_all_p95_ms"].map(|name| figures[name]);
        assert!(
            ms.iter().zip([9.0, 9.0, 0.1, 9.0]).all(|(ms, expected)| (ms / expected - 1.0).abs() < 0.01),
            "{ms:?}"
        );
        assert!(failure_figures(&sample_report(1000, 100))["put_all_p95_ms"] < 0.21);
    }

    #[test]
    fn each_client_does_as_many_operations_as_in_the_study() {
        assert_eq!([1, 32].map(|clients| operations(Scale::Full, false, clients)), [2000, 2000]);
        assert_eq!(
            [1, 4, 12, 32].map(|clients| operations(Scale::Quick, false, clients)),
            [2000, 500, 167, 150]
        );
        assert_eq!([1, 32].map(|clients| operations(Scale::Quick, true, clients)), [200, 50]);
    }
}
