//! What Quorate asks of itself beside the others, and how it is judged: by ratios within a round.

use super::{
    ETCD, ETCD_UNSYNCED, GET, MANY, PIPELINED, PUT, QUORATE, QUORATE_ALL, QUORATE_ANY, QUORATE_UNSYNCED,
    REDIS, SHARED, ZOOKEEPER,
};
use crate::harness::{Claim, Judgement, Results, Spread};
use crate::report::short;

/// A goal: a measure of one arm is so many times another's, at least or at most.
struct Goal {
    claim: &'static str,
    asked: &'static str,
    arms: [&'static str; 2],
    /// Operation, connections, requests at once on each.
    point: (&'static str, u32, u32),
    measure: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const MANY_PUTS: (&str, u32, u32) = (PUT, MANY, 1);
const SHARED_PUTS: (&str, u32, u32) = (PUT, SHARED, MANY / SHARED);
const MANY_GETS: (&str, u32, u32) = (GET, MANY, 1);

const GOALS: [Goal; 12] = [
    Goal {
        claim: "256 clients write ten times as much as etcd's",
        asked: "at least 10 times",
        arms: [QUORATE, ETCD],
        point: MANY_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(10.0),
    },
    Goal {
        claim: "256 clients write four times as much as ZooKeeper's",
        asked: "at least 4 times",
        arms: [QUORATE, ZOOKEEPER],
        point: MANY_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(4.0),
    },
    Goal {
        claim: "Their slow writes are faster than etcd's",
        asked: "a lower 99th percentile",
        arms: [QUORATE, ETCD],
        point: MANY_PUTS,
        measure: "p99_ms",
        bound: Bound::AtMost(1.0),
    },
    Goal {
        claim: "Their slow writes are faster than ZooKeeper's",
        asked: "a lower 99th percentile",
        arms: [QUORATE, ZOOKEEPER],
        point: MANY_PUTS,
        measure: "p99_ms",
        bound: Bound::AtMost(1.0),
    },
    Goal {
        claim: "They write no less than Redis's that sync every write and wait for one replica",
        asked: "at least as much",
        arms: [QUORATE, REDIS],
        point: MANY_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(1.0),
    },
    Goal {
        claim: "256 writes at once over 16 connections are ten times as many as etcd's",
        asked: "at least 10 times",
        arms: [QUORATE, ETCD],
        point: SHARED_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(10.0),
    },
    Goal {
        claim: "One client waits no longer for a write than etcd's",
        asked: "a median no higher",
        arms: [QUORATE, ETCD],
        point: (PUT, 1, 1),
        measure: "p50_ms",
        bound: Bound::AtMost(1.0),
    },
    Goal {
        claim: "One client waits no longer for a write than ZooKeeper's",
        asked: "a median no higher",
        arms: [QUORATE, ZOOKEEPER],
        point: (PUT, 1, 1),
        measure: "p50_ms",
        bound: Bound::AtMost(1.0),
    },
    Goal {
        claim: "Without sync, 256 clients write six times as much as etcd's without sync",
        asked: "at least 6 times",
        arms: [QUORATE_UNSYNCED, ETCD_UNSYNCED],
        point: MANY_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(6.0),
    },
    Goal {
        claim: "256 clients read four times as much as etcd's, linearizable both",
        asked: "at least 4 times",
        arms: [QUORATE, ETCD],
        point: MANY_GETS,
        measure: "per_s",
        bound: Bound::AtLeast(4.0),
    },
    Goal {
        claim: "That a read is linearizable costs next to nothing",
        asked: "at least 0.9 of reads=any at the same node",
        arms: [QUORATE, QUORATE_ANY],
        point: MANY_GETS,
        measure: "per_s",
        bound: Bound::AtLeast(0.9),
    },
    Goal {
        claim: "Consensus without sync, 50 connections with 16 writes at once: nearly as much as leader-follower that awaits all",
        asked: "at least 0.7 times",
        arms: [QUORATE_UNSYNCED, QUORATE_ALL],
        point: (PUT, PIPELINED[0], PIPELINED[1]),
        measure: "per_s",
        bound: Bound::AtLeast(0.7),
    },
];

pub(super) fn all() -> Vec<Claim> {
    let claim = |goal: &'static Goal| {
        Claim::new(goal.claim, goal.asked, |results| goal.judge(results)).within_rounds()
    };
    GOALS.iter().map(claim).collect()
}

impl Goal {
    fn judge(&self, results: &Results) -> Judgement {
        let [ours, theirs] = self.arms.map(|arm| self.by_round(results, arm));
        let ratio_in = |(round, ours): &(u32, f64)| {
            let (_, theirs) = theirs.iter().find(|(other, _)| other == round)?;
            Some(ours / theirs)
        };
        let Some(ratio) = Spread::of(ours.iter().filter_map(ratio_in).collect()) else {
            let [ours, theirs] = self.arms;
            return Judgement::not_measured(format!("there are no rounds with both {ours} and {theirs}"));
        };
        let middle = |values: &[(u32, f64)]| Spread::of(values.iter().map(|(_, value)| *value).collect());
        let [ours, theirs] = [ours, theirs].map(|values| middle(&values).map_or(0.0, |spread| spread.median));
        let unit = if self.measure == "per_s" { "op/s" } else { "ms" };
        let text = format!(
            "{} against {} {unit}: {} times (rounds: {} to {})",
            short(ours),
            short(theirs),
            short(ratio.median),
            short(ratio.min),
            short(ratio.max)
        );
        let holds = match self.bound {
            Bound::AtLeast(least) => ratio.median >= least,
            Bound::AtMost(most) => ratio.median <= most,
        };
        Judgement::holds_if(holds, text, format!("{} beside {}.", self.arms[0], self.arms[1]))
    }

    /// The measure of an arm in each round.
    fn by_round(&self, results: &Results, arm: &str) -> Vec<(u32, f64)> {
        let (operation, clients, at_once) = self.point;
        let selection = results.arm(arm).with("operation", operation);
        let selection = selection.with("clients", clients).with("at_once", at_once);
        let value = |row: &&crate::harness::Row| Some((row.repeat, *row.figures.get(self.measure)?));
        selection.rows().iter().filter_map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::{Row, Verdict};

    fn results() -> Results {
        Results::new(&["operation", "clients", "at_once"], &["per_s", "p50_ms", "p99_ms"])
    }

    fn push(
        results: &mut Results,
        arm: &str,
        (operation, clients, at_once): (&str, u32, u32),
        repeat: u32,
        per_s: f64,
    ) {
        let figures = [("per_s", per_s), ("p50_ms", 1e3 / per_s), ("p99_ms", 2e3 / per_s)];
        results.push(Row {
            arm: arm.to_owned(),
            point: vec![operation.to_owned(), clients.to_string(), at_once.to_string()],
            repeat,
            figures: BTreeMap::from(figures.map(|(name, value)| (name.to_owned(), value))),
            checked: None,
        });
    }

    fn verdicts(results: &Results) -> Vec<Verdict> {
        all().iter().map(|claim| claim.judged(results).judgement.verdict).collect()
    }

    #[test]
    fn without_rows_nothing_is_judged() {
        assert!(verdicts(&results()).iter().all(|verdict| *verdict == Verdict::NotMeasured));
    }

    #[test]
    fn a_round_of_one_system_alone_says_nothing() {
        let mut results = results();
        push(&mut results, QUORATE, MANY_PUTS, 1, 100.0);
        push(&mut results, ETCD, MANY_PUTS, 2, 1.0);
        assert_eq!(verdicts(&results)[0], Verdict::NotMeasured);
    }

    /// The second round is a tenth of the others for both: taken over all rounds apart, medians would say 1.
    #[test]
    fn a_machine_that_is_slow_for_a_round_slows_both_sides_of_its_ratio() {
        let mut results = results();
        for (repeat, ours, theirs) in [(1, 1100.0, 100.0), (2, 110.0, 10.0)] {
            push(&mut results, QUORATE, MANY_PUTS, repeat, ours);
            push(&mut results, ETCD, MANY_PUTS, repeat, theirs);
        }
        let claims = all();
        let judged = claims[0].judged(&results).judgement;
        assert_eq!(
            (judged.verdict, judged.ours.as_str()),
            (Verdict::Holds, "605 against 55 op/s: 11 times (rounds: 11 to 11)")
        );
        assert_eq!(claims[2].judged(&results).judgement.verdict, Verdict::Holds, "a lower 99th percentile");
    }

    #[test]
    fn all_rounds_have_to_lie_on_one_side() {
        let cases = [
            ([10.1, 11.0, 12.0], Verdict::Holds),
            ([9.0, 11.0, 12.0], Verdict::Undecided),
            ([9.0, 9.9, 8.0], Verdict::DoesNotHold),
        ];
        for (ratios, expected) in cases {
            let mut results = results();
            for (repeat, ratio) in (1..).zip(ratios) {
                push(&mut results, QUORATE, MANY_PUTS, repeat, ratio * 50.0);
                push(&mut results, ETCD, MANY_PUTS, repeat, 50.0);
            }
            assert_eq!(all()[0].judged(&results).judgement.verdict, expected);
        }
    }

    #[test]
    fn a_latency_is_to_be_lower() {
        let mut results = results();
        for repeat in 1..=2 {
            push(&mut results, QUORATE, (PUT, 1, 1), repeat, 100.0);
            push(&mut results, ETCD, (PUT, 1, 1), repeat, 200.0);
            push(&mut results, ZOOKEEPER, (PUT, 1, 1), repeat, 50.0);
        }
        let verdicts = verdicts(&results);
        assert_eq!((verdicts[6], verdicts[7]), (Verdict::DoesNotHold, Verdict::Holds));
    }
}
