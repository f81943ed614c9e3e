//! Quorate's own goals compared with the other systems, judged by ratios within a round.

use super::{
    ETCD, ETCD_UNSYNCED, GET, MANY, PIPELINED, PUT, QUORATE, QUORATE_ALL, QUORATE_ANY, QUORATE_UNSYNCED,
    REDIS, SHARED, VALKEY, ZOOKEEPER, ZOOKEEPER_UNSYNCED,
};
use crate::harness::{Claim, Judgement, Results, Spread};
use crate::report::short;

/// A goal: a measure of one arm is at least, or at most, a given multiple of another's.
struct Goal {
    claim: &'static str,
    asked: &'static str,
    arms: [&'static str; 2],
    /// Operation, connections, requests in flight on each.
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

/// What one client or many would lose by taking Quorate instead.
const NO_SLOWER: [Goal; 17] = [
    at_least(
        "256 clients write no less than Valkey's that sync every write and wait for one replica",
        VALKEY,
        MANY_PUTS,
    ),
    at_least("256 writes at once over 16 connections are no fewer than Redis's", REDIS, SHARED_PUTS),
    at_least("256 writes at once over 16 connections are no fewer than Valkey's", VALKEY, SHARED_PUTS),
    at_most("Slow writes of 256 clients are no slower than Redis's", REDIS, MANY_PUTS, "p99_ms"),
    at_most("Slow writes of 256 clients are no slower than Valkey's", VALKEY, MANY_PUTS, "p99_ms"),
    at_most("One client waits no longer for a write than Redis's", REDIS, (PUT, 1, 1), "p50_ms"),
    at_most("One client waits no longer for a write than Valkey's", VALKEY, (PUT, 1, 1), "p50_ms"),
    at_most("One client waits no longer for a read than etcd's", ETCD, (GET, 1, 1), "p50_ms"),
    at_most("One client waits no longer for a read than ZooKeeper's", ZOOKEEPER, (GET, 1, 1), "p50_ms"),
    at_most("One client waits no longer for a read than Redis's", REDIS, (GET, 1, 1), "p50_ms"),
    at_most("One client waits no longer for a read than Valkey's", VALKEY, (GET, 1, 1), "p50_ms"),
    at_least("256 clients read no less than ZooKeeper's", ZOOKEEPER, MANY_GETS),
    at_least("256 clients read no less than Redis's", REDIS, MANY_GETS),
    at_least("256 clients read no less than Valkey's", VALKEY, MANY_GETS),
    at_most("Slow reads of 256 clients are no slower than Redis's", REDIS, MANY_GETS, "p99_ms"),
    at_most("Slow reads of 256 clients are no slower than Valkey's", VALKEY, MANY_GETS, "p99_ms"),
    Goal {
        claim: "Without sync, 256 clients write no less than ZooKeeper's without sync",
        asked: "no slower",
        arms: [QUORATE_UNSYNCED, ZOOKEEPER_UNSYNCED],
        point: MANY_PUTS,
        measure: "per_s",
        bound: Bound::AtLeast(1.0),
    },
];

/// At least as many operations as another system's.
const fn at_least(claim: &'static str, theirs: &'static str, point: (&'static str, u32, u32)) -> Goal {
    let (arms, bound) = ([QUORATE, theirs], Bound::AtLeast(1.0));
    Goal { claim, asked: "no slower", arms, point, measure: "per_s", bound }
}

/// A latency no higher than another system's.
const fn at_most(
    claim: &'static str,
    theirs: &'static str,
    point: (&'static str, u32, u32),
    measure: &'static str,
) -> Goal {
    let (arms, bound) = ([QUORATE, theirs], Bound::AtMost(1.0));
    Goal { claim, asked: "no slower", arms, point, measure, bound }
}

pub(super) fn all() -> Vec<Claim> {
    let claim = |goal: &'static Goal| {
        let claim = Claim::new(goal.claim, goal.asked, |results| goal.judge(results));
        claim.about(&goal.arms).within_rounds()
    };
    GOALS.iter().chain(&NO_SLOWER).map(claim).collect()
}

impl Goal {
    fn judge(&self, results: &Results) -> Judgement {
        let [ours, theirs] = self.arms.map(|arm| self.by_round(results, arm));
        let both = |(round, ours): (u32, f64)| Some((ours, theirs.iter().find(|(it, _)| *it == round)?.1));
        let rounds: Vec<(f64, f64)> = ours.into_iter().filter_map(both).collect();
        let spread = |value: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(value).collect());
        let (Some(ratio), Some(ours), Some(theirs)) = (
            spread(|(ours, theirs)| ours / theirs),
            spread(|(ours, _)| *ours),
            spread(|(_, theirs)| *theirs),
        ) else {
            let [ours, theirs] = self.arms;
            return Judgement::not_measured(format!("There is no round with both {ours} and {theirs}."));
        };
        let (holds, are_worse) = match self.bound {
            Bound::AtLeast(least) => (ratio.median >= least, ratio.median < 1.0),
            Bound::AtMost(most) => (ratio.median <= most, ratio.median > 1.0),
        };
        let unit = if self.measure == "per_s" { "op/s" } else { "ms" };
        // The better one comes first.
        let mut sides =
            [(self.arms[0], ours), (self.arms[1], theirs)].map(|(arm, spread)| (arm, spread.median));
        if are_worse {
            sides.reverse();
        }
        let [first, second] = sides.map(|(arm, median)| format!("{arm} {} {unit}", short(median)));
        let text = format!(
            "{first}; {second}: {} is {} times {} (rounds: {} to {})",
            self.arms[0],
            short(ratio.median),
            self.arms[1],
            short(ratio.min),
            short(ratio.max)
        );
        let why = match (holds, are_worse) {
            (true, _) => String::new(),
            (false, true) => format!("{} is better here.", self.arms[1]),
            (false, false) => format!("Better than {}, and by less than was asked.", self.arms[1]),
        };
        Judgement::holds_if(holds, text, why)
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
    use crate::harness::{Row, STEAL_PERCENT, Verdict};

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

    fn verdict(claim: &Claim, results: &Results) -> Verdict {
        claim.judged(results).judgement.verdict
    }

    /// Rounds in which our measure is `ratios` times theirs, which corresponds to 100 op/s.
    fn rounds(goal: &Goal, ratios: &[f64]) -> Results {
        let mut results = results();
        for (repeat, ratio) in (1..).zip(ratios) {
            let ours = if goal.measure == "per_s" { 100.0 * ratio } else { 100.0 / ratio };
            push(&mut results, goal.arms[0], goal.point, repeat, ours);
            push(&mut results, goal.arms[1], goal.point, repeat, 100.0);
        }
        results
    }

    #[test]
    fn every_goal_is_judged_by_all_its_rounds() {
        for (goal, claim) in GOALS.iter().chain(&NO_SLOWER).zip(all()) {
            let verdict = |ratios: &[f64]| verdict(&claim, &rounds(goal, ratios));
            let (good, bad) = match goal.bound {
                Bound::AtLeast(bound) => (bound * 1.1, bound * 0.9),
                Bound::AtMost(bound) => (bound * 0.9, bound * 1.1),
            };
            assert_eq!(verdict(&[good, good]), Verdict::Holds, "{}", goal.claim);
            assert_eq!(verdict(&[bad, bad]), Verdict::DoesNotHold, "{}", goal.claim);
            assert_eq!(verdict(&[good, bad, good]), Verdict::Undecided, "{}", goal.claim);
            assert_eq!(verdict(&[good]), Verdict::Undecided, "{}", goal.claim);
        }
    }

    #[test]
    fn without_both_systems_in_a_round_nothing_is_judged() {
        for (goal, claim) in GOALS.iter().chain(&NO_SLOWER).zip(all()) {
            assert_eq!(verdict(&claim, &results()), Verdict::NotMeasured);
            let mut alone = results();
            push(&mut alone, goal.arms[0], goal.point, 1, 100.0);
            push(&mut alone, goal.arms[0], goal.point, 2, 100.0);
            assert_eq!(verdict(&claim, &alone), Verdict::NotMeasured, "{}", goal.claim);
            push(&mut alone, goal.arms[1], goal.point, 3, 100.0);
            assert_eq!(verdict(&claim, &alone), Verdict::NotMeasured, "{}", goal.claim);
        }
    }

    #[test]
    fn a_round_in_which_the_machine_was_disturbed_is_left_out() {
        let goal = &GOALS[0];
        let mut disturbed = results();
        for row in rounds(goal, &[11.0, 11.0, 9.0]).rows() {
            let mut row = row.clone();
            row.figures.insert(STEAL_PERCENT.to_owned(), if row.repeat == 3 { 40.0 } else { 0.0 });
            disturbed.push(row);
        }
        assert_eq!(verdict(&all()[0], &disturbed), Verdict::Holds);
    }

    /// The second round is a tenth of the first for both: a ratio of medians over all rounds would say little.
    #[test]
    fn a_machine_that_is_slow_for_a_round_slows_both_sides_of_its_ratio() {
        let mut results = results();
        for (repeat, ours, theirs) in [(1, 1100.0, 100.0), (2, 110.0, 10.0)] {
            push(&mut results, QUORATE, MANY_PUTS, repeat, ours);
            push(&mut results, ETCD, MANY_PUTS, repeat, theirs);
        }
        let judged = all()[0].judged(&results).judgement;
        assert_eq!(
            (judged.verdict, judged.ours.as_str(), judged.why.as_str()),
            (
                Verdict::Holds,
                "Quorate 605 op/s; etcd 55 op/s: Quorate is 11 times etcd (rounds: 11 to 11)",
                ""
            )
        );
    }

    #[test]
    fn the_better_system_is_listed_first() {
        let judged = |goal: &Goal, ratio| goal.judge(&rounds(goal, &[ratio, ratio]));
        let slower = judged(&NO_SLOWER[1], 0.5);
        assert!(slower.ours.starts_with("Redis, WAIT 1 100 op/s; Quorate 50 op/s"), "{}", slower.ours);
        assert_eq!(slower.why, "Redis, WAIT 1 is better here.");
        let waits_longer = judged(&NO_SLOWER[5], 2.0);
        assert!(waits_longer.ours.starts_with("Redis, WAIT 1 10 ms; Quorate 20 ms"), "{}", waits_longer.ours);
        let less_than_asked = judged(&GOALS[0], 5.0);
        assert!(less_than_asked.ours.starts_with("Quorate 500 op/s"), "{}", less_than_asked.ours);
        assert_eq!(less_than_asked.why, "Better than etcd, and by less than was asked.");
    }
}
