//! What the paper claims, and what was measured here.
//!
//! What it says of times is judged on the recipes that it used. Its Redis kept its data in memory, as far as it says, while
//! the others synced every write: claims that set Redis beside others are looked at with both kinds of Redis.

use super::sides::{
    CONSUL_BEST, CONSUL_PAPER, ETCD_BEST, ETCD_PAPER, KAZOO, QUORATE, REDIS_BEST, REDIS_PAPER,
    REDIS_PAPER_UNSYNCED,
};
use super::{THINK_MS, sides};
use crate::harness::{Claim, Judgement, Results, Selection, Spread};
use crate::report::short;

/// The recipes of the paper that sync: etcd's, Consul's and ZooKeeper's.
const AGREEING: [&str; 3] = [ETCD_PAPER, CONSUL_PAPER, KAZOO];

/// The paper's most processes.
const MANY: u32 = 5;

/// A factor below which the paper calls a change small: its own largest is 1.64 (ZooKeeper, 1 to 5 processes).
const SMALL: f64 = 1.7;

/// An acquire that takes so many times as long as the average is an anomaly: the paper's others stay below 8.
const ANOMALY: f64 = 20.0;

pub(super) fn all() -> Vec<Claim> {
    vec![
        Claim::new(
            "With different keys the time to acquire grows with the number of processes in etcd, Consul and ZooKeeper",
            "average from 1 to 5 processes: etcd 4.91 to 7.68 ms, Consul 11.7 to 16.52, ZooKeeper 3.64 to 5.9 (table 1)",
            times_grow,
        ),
        Claim::new(
            "With different keys Redis hardly changes with the number of processes",
            "average 1.2, 1.36 and 1.3 ms with 1, 3 and 5 processes (table 1)",
            redis_stays,
        ),
        Claim::new(
            "With different keys Redis is fastest, then ZooKeeper, then etcd, then Consul",
            "average of 5 processes 1.3, 5.9, 7.68 and 16.52 ms (table 1)",
            order_different,
        ),
        Claim::new(
            "The 90th percentile is about 20 % above the average",
            "5 processes, different keys: 1.49 to 1.3, 7.4 to 5.9, 9.31 to 7.68, 20.29 to 16.52 ms (5.1)",
            ninetieth,
        ),
        Claim::new(
            "The 99th percentile is about twice the average in etcd, Consul and ZooKeeper, and 4 times in Redis, where it is \
             still almost half of the others'",
            "5 processes, different keys: 16.1, 25.07, 9.97 and 5.07 ms (5.1); ratios 2.1, 1.5, 1.7 and 3.9",
            ninety_ninth,
        ),
        Claim::new(
            "In etcd, Consul and ZooKeeper it makes little difference whether processes want the same key or different keys",
            "average of 5 processes, same and different: 7.6 and 7.68, 16.36 and 16.52, 5.94 and 5.9 ms (5.3)",
            contention_is_free,
        ),
        Claim::new(
            "With the same key Redis takes 3 times as long with 3 processes, and almost 5 times with 5",
            "average 1.2, 3.78 and 5.7 ms (table 2)",
            redis_degrades,
        ),
        Claim::new(
            "With the same key Redis still has the lowest average, if only just",
            "5 processes: Redis 5.7, ZooKeeper 5.94, etcd 7.6, Consul 16.36 ms (table 2)",
            order_same,
        ),
        Claim::new(
            "With the same key Redis is mostly fast and sometimes very slow; all others show no such anomalies",
            "5 processes: 90th percentile 1.3 ms, 99th 203.87, greatest 411.2; 99th of the others about twice the average",
            only_redis_has_anomalies,
        ),
        Claim::new(
            "ZooKeeper is the most suitable where the worst case counts",
            "99th percentile 10.17 ms, greatest 19.98 with 5 processes and the same key (5.3). The text's 7.49 for 3 \
             processes is table 2's for 1; for 3 it has 8.9",
            zookeeper_has_the_best_worst_case,
        ),
        Claim::new(
            "Where it does not count, Redis is the best",
            "90th percentile 1.3 ms with 5 processes and the same key (5.3)",
            redis_is_mostly_best,
        ),
        Claim::new(
            "Redis's worst case is 10 to 20 times the others'",
            "greatest 411.2 ms against 47.13, 95.05 and 19.98 (6)",
            redis_worst_case,
        ),
        Claim::new(
            "etcd, Consul and ZooKeeper ensure that only one client holds the lock at any moment",
            "\u{201c}satisfy all considered properties\u{201d} (4.5, 6), from documentation",
            agreeing_are_safe,
        ),
        Claim::new(
            "Redlock may lose safety under some circumstances",
            "after Kleppmann's analysis (4.4, 6)",
            redlock_is_unsafe,
        ),
        Claim::new(
            "All four are free from deadlock: a lock whose holder is gone can be acquired again",
            "leases, sessions and ephemeral nodes (4.1 to 4.5), from documentation",
            no_deadlock,
        ),
        Claim::new(
            "All four tolerate the failure of a node: locks are acquired, held and released as long as a majority is there",
            "\u{201c}by tolerating up to (N/2) - 1 failures\u{201d} (4.4, 4.5), from documentation",
            a_node_may_fail,
        ),
        Claim::new(
            "Redis with Redlock is the easiest to set up, and kazoo the most mature library",
            "a judgement (6)",
            |_| {
                Judgement::not_measured(
                    "A judgement of the authors, without a figure that could be measured.",
                )
            },
        ),
    ]
}

/// The rows of an arm where processes acquire without a pause.
fn at<'r>(results: &'r Results, arm: &str, keys: &str, processes: u32) -> Selection<'r> {
    let rows = results.arm(arm).with("part", "acquire").with("think_ms", 0);
    rows.with("keys", if processes == 1 { "different" } else { keys }).with("processes", processes)
}

fn spread(results: &Results, arm: &str, keys: &str, processes: u32, measure: &str) -> Option<Spread> {
    at(results, arm, keys, processes).spread(measure)
}

fn median(results: &Results, arm: &str, keys: &str, processes: u32, measure: &str) -> Option<f64> {
    at(results, arm, keys, processes).median(measure)
}

/// Those of the arms that have such a figure, with it.
fn found<'a>(
    results: &Results,
    arms: &[&'a str],
    keys: &str,
    processes: u32,
    measure: &str,
) -> Vec<(&'a str, f64)> {
    let figure = |arm: &&'a str| Some((*arm, median(results, arm, keys, processes, measure)?));
    arms.iter().filter_map(figure).collect()
}

fn words(figures: &[(&str, f64)], unit: &str) -> String {
    let words: Vec<String> =
        figures.iter().map(|(arm, figure)| format!("{arm}: {}{unit}", short(*figure))).collect();
    words.join("; ")
}

/// What is said when an arm of a claim was not measured.
fn absent(results: &Results, arms: &[&str]) -> String {
    let absent: Vec<&str> = arms.iter().copied().filter(|arm| results.arm(arm).is_empty()).collect();
    if absent.is_empty() { String::new() } else { format!(" Not measured: {}.", absent.join(", ")) }
}

fn nothing() -> Judgement {
    Judgement::not_measured("There are no rows of the paper's recipes.")
}

/// Whether all hold: one that does not decides, one that is not known leaves it open.
fn all_hold(parts: &[Option<bool>]) -> Option<bool> {
    if parts.contains(&Some(false)) { Some(false) } else { parts.iter().all(Option::is_some).then_some(true) }
}

/// The paper's Redis, in memory, where it was measured; else the one that syncs.
fn redis(results: &Results) -> &'static str {
    if results.arm(REDIS_PAPER_UNSYNCED).is_empty() { REDIS_PAPER } else { REDIS_PAPER_UNSYNCED }
}

fn times_grow(results: &Results) -> Judgement {
    let growth = |arm: &&'static str| {
        let [one, many] = [1, MANY].map(|processes| spread(results, arm, "different", processes, "avg_ms"));
        let (one, many) = (one?, many?);
        Some((format!("{arm}: {} to {} ms", short(one.median), short(many.median)), many.is_above(&one)))
    };
    let found: Vec<_> = AGREEING.iter().filter_map(growth).collect();
    if found.is_empty() {
        return nothing();
    }
    let ours: Vec<&str> = found.iter().map(|(words, _)| words.as_str()).collect();
    Judgement::decided(
        all_hold(&found.iter().map(|(_, grows)| *grows).collect::<Vec<_>>()),
        ours.join("; "),
        format!(
            "Every acquire is a write that the nodes and their disks must agree on, one after the other.{}",
            absent(results, &AGREEING)
        ),
    )
}

fn redis_stays(results: &Results) -> Judgement {
    let arms = [redis(results), REDIS_PAPER];
    let growth = |arm: &'static str| {
        let [one, many] = [1, MANY].map(|processes| median(results, arm, "different", processes, "avg_ms"));
        Some((arm, one?, many?))
    };
    let Some((arm, one, many)) = growth(arms[0]) else { return nothing() };
    let mut ours = format!("{arm}: {} to {} ms", short(one), short(many));
    if let Some((arm, one, many)) = growth(REDIS_PAPER).filter(|_| arm != REDIS_PAPER) {
        ours.push_str(&format!("; {arm}: {} to {} ms", short(one), short(many)));
    }
    Judgement::holds_if(
        many / one < SMALL,
        ours,
        "The paper's servers had machines of their own. Here three servers and five clients share the processors, and where \
         the servers sync, the disk.",
    )
}

/// Whether the averages of these arms rise in their order.
fn in_order(results: &Results, arms: &[&str], keys: &str) -> Option<bool> {
    let spreads: Option<Vec<Spread>> =
        arms.iter().map(|arm| spread(results, arm, keys, MANY, "avg_ms")).collect();
    let steps: Vec<Option<bool>> = spreads?.windows(2).map(|pair| pair[1].is_above(&pair[0])).collect();
    all_hold(&steps)
}

/// The paper's order with Redis as the paper had it, and with a Redis that syncs as the others do.
fn order(results: &Results, keys: &str, arms: &[&'static str], why: &str) -> Judgement {
    let is_there = |arm: &&str| spread(results, arm, keys, MANY, "avg_ms").is_some();
    let with = |redis: &'static str| -> Vec<&'static str> {
        [redis].into_iter().chain(arms.iter().copied()).filter(is_there).collect()
    };
    let (unsynced, synced) = (with(redis(results)), with(REDIS_PAPER));
    if synced.len() < 2 && unsynced.len() < 2 {
        return nothing();
    }
    let mut shown = unsynced.clone();
    if !shown.contains(&REDIS_PAPER) {
        shown.extend(synced.first().filter(|arm| **arm == REDIS_PAPER));
    }
    let ours = words(&found(results, &shown, keys, MANY, "avg_ms"), " ms");
    let missing = absent(results, arms);
    match (in_order(results, &unsynced, keys), in_order(results, &synced, keys)) {
        // The same beside a Redis that syncs as the others do, and beside one that does not.
        (Some(true), Some(false)) => Judgement::of_fault(
            Some(true),
            ours,
            &format!(
                "the order holds only for a Redis that does not sync beside others that do. {why}{missing}"
            ),
        ),
        (holds, _) => Judgement::decided(holds, ours, format!("{why}{missing}")),
    }
}

fn order_different(results: &Results) -> Judgement {
    let why = "python-etcd3 makes a lease for every acquire, and consul-lock a session: two and three entries of the log \
               where kazoo has one.";
    order(results, "different", &[KAZOO, ETCD_PAPER, CONSUL_PAPER], why)
}

fn order_same(results: &Results) -> Judgement {
    let arms = [redis(results), REDIS_PAPER, KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let shown = found(results, &arms, "same", MANY, "avg_ms");
    let (Some(redis), Some(least)) = (
        spread(results, arms[0], "same", MANY, "avg_ms"),
        arms[2..]
            .iter()
            .filter_map(|arm| spread(results, arm, "same", MANY, "avg_ms"))
            .min_by(|a, b| a.median.total_cmp(&b.median)),
    ) else {
        return nothing();
    };
    let failures = |arm: &str| median(results, arm, "same", MANY, "failures").unwrap_or(0.0);
    let why = format!(
        "An average over acquires leaves out the {} tries per run that redlock-py gave up (three tries of 0.2 s), and \
         whoever got the lock last is the first to get it again: see fairness.{}",
        short(failures(arms[0])),
        absent(results, &AGREEING)
    );
    Judgement::decided(least.is_above(&redis), words(&dedup(shown), " ms"), why)
}

fn dedup(mut figures: Vec<(&str, f64)>) -> Vec<(&str, f64)> {
    figures.dedup_by(|left, right| left.0 == right.0);
    figures
}

/// A quantile over the average, for the paper's recipes with different keys.
fn over_average<'a>(results: &Results, arms: &[&'a str], measure: &str) -> Vec<(&'a str, f64)> {
    let ratio = |arm: &&'a str| {
        let of = |measure| median(results, arm, "different", MANY, measure);
        Some((*arm, of(measure)? / of("avg_ms")?))
    };
    arms.iter().filter_map(ratio).collect()
}

fn ninetieth(results: &Results) -> Judgement {
    let arms = [redis(results), KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let ratios = over_average(results, &arms, "p90_ms");
    if ratios.is_empty() {
        return nothing();
    }
    Judgement::holds_if(
        ratios.iter().all(|(_, ratio)| (1.1..1.4).contains(ratio)),
        words(&ratios, " times the average"),
        format!("Held where it is 1.1 to 1.4 times the average.{}", absent(results, &AGREEING)),
    )
}

fn ninety_ninth(results: &Results) -> Judgement {
    let arms = [redis(results), KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let ratios = over_average(results, &arms, "p99_ms");
    let tails = found(results, &arms, "different", MANY, "p99_ms");
    let (Some((redis, tail)), Some(others)) = (
        tails.first().copied().filter(|(arm, _)| *arm == arms[0]),
        tails.iter().skip(1).map(|(_, tail)| *tail).min_by(f64::total_cmp),
    ) else {
        return nothing();
    };
    let holds = ratios.iter().all(|(arm, ratio)| {
        if *arm == redis { (2.7..5.5).contains(ratio) } else { (1.4..2.7).contains(ratio) }
    });
    Judgement::holds_if(
        holds && tail < others,
        format!("{}; 99th percentiles {}", words(&ratios, " times the average"), words(&tails, " ms")),
        format!(
            "Held where it is 1.4 to 2.7 times the average, Redis's 2.7 to 5.5, and Redis's is below the others'.{}",
            absent(results, &AGREEING)
        ),
    )
}

fn contention_is_free(results: &Results) -> Judgement {
    let mut ours = Vec::new();
    let (mut worst, mut rarely): (f64, f64) = (0.0, 0.0);
    for arm in AGREEING {
        let average = |keys| median(results, arm, keys, MANY, "avg_ms");
        let (Some(different), Some(same)) = (average("different"), average("same")) else { continue };
        worst = worst.max(same / different);
        let paused = results.arm(arm).with("part", "acquire").with("think_ms", THINK_MS).median("p50_ms");
        rarely = rarely.max(paused.unwrap_or(0.0) / different);
        let paused = paused.map_or(String::new(), |ms| format!(", {} as median with a pause", short(ms)));
        ours.push(format!("{arm}: {} same, {} different{paused} (ms)", short(same), short(different)));
    }
    if ours.is_empty() {
        return nothing();
    }
    let ours = ours.join("; ");
    if worst < SMALL {
        return Judgement::holds_if(true, ours, absent(results, &AGREEING));
    }
    let fault = format!(
        "five processes that want one lock wait for each other here, up to {} times as long. In the paper they can hardly have \
         met, or its times would show four holds and hand-offs. With a pause of {THINK_MS} ms between acquires, so that they \
         hardly meet, it is {} times.{}",
        short(worst),
        short(rarely),
        absent(results, &AGREEING)
    );
    Judgement::of_fault((rarely > 0.0).then_some(rarely < SMALL), ours, &fault)
}

fn redis_degrades(results: &Results) -> Judgement {
    let arm = redis(results);
    let average = |processes| median(results, arm, "same", processes, "avg_ms");
    let (Some(one), Some(many)) = (average(1), average(MANY)) else { return nothing() };
    let ratio = many / one;
    Judgement::holds_if(
        ratio > 2.5,
        format!(
            "{arm}: {} with 1 process, {} with {MANY} (ms): {} times",
            short(one),
            short(many),
            short(ratio)
        ),
        "Held where it is more than 2.5 times. The average is that of many tries of 1 ms and a few of 200 or 400 ms: \
         redlock-py sleeps 0.2 s, always as long, after a try that failed.",
    )
}

fn only_redis_has_anomalies(results: &Results) -> Judgement {
    let redis = redis(results);
    let arms = [redis, KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let tails = found(results, &arms, "same", MANY, "max_ms");
    let times = |arm: &str| {
        let of = |measure| median(results, arm, "same", MANY, measure);
        Some(of("max_ms")? / of("p50_ms")?)
    };
    let (Some(of_redis), true) = (times(redis), tails.len() > 1) else { return nothing() };
    let anomalous: Vec<&str> =
        arms[1..].iter().copied().filter(|arm| times(arm).is_some_and(|times| times > ANOMALY)).collect();
    let mut why = format!(
        "An anomaly is a greatest time of more than {ANOMALY} medians. redlock-py's is its fixed sleep: Redlock with a time \
         drawn by chance, which its page asks for, has a greatest time of {} ms.",
        median(results, REDIS_BEST, "same", MANY, "max_ms").map_or("?".to_owned(), short)
    );
    if !anomalous.is_empty() {
        why.push_str(&format!(
            " Under contention others show them too: {}. consul-lock sleeps 50, 200, 450 ms and so on; python-etcd3 misses \
             a release that comes before its watch, and wakes all who wait at once.",
            anomalous.join(", ")
        ));
    }
    Judgement::holds_if(
        of_redis > ANOMALY && anomalous.is_empty(),
        format!("greatest: {}", words(&tails, " ms")),
        format!("{why}{}", absent(results, &AGREEING)),
    )
}

fn zookeeper_has_the_best_worst_case(results: &Results) -> Judgement {
    let arms = [KAZOO, ETCD_PAPER, CONSUL_PAPER, redis(results)];
    let tails = found(results, &arms, "same", MANY, "p99_ms");
    let Some((_, own)) = tails.first().copied().filter(|(arm, _)| *arm == KAZOO) else { return nothing() };
    if tails.len() < 2 {
        return nothing();
    }
    let best: Vec<(&str, f64)> =
        found(results, &[QUORATE, ETCD_BEST, CONSUL_BEST, REDIS_BEST], "same", MANY, "p99_ms");
    Judgement::holds_if(
        tails.iter().all(|(_, tail)| *tail >= own),
        format!("99th percentile: {}", words(&tails, " ms")),
        format!(
            "Among the paper's recipes. kazoo's is the only one of them that serves in order. The best recipes of the others: \
             {}.{}",
            words(&best, " ms"),
            absent(results, &AGREEING)
        ),
    )
}

fn redis_is_mostly_best(results: &Results) -> Judgement {
    let arms = [redis(results), KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let usual = found(results, &arms, "same", MANY, "p90_ms");
    let Some((_, own)) = usual.first().copied().filter(|(arm, _)| *arm == arms[0]) else { return nothing() };
    if usual.len() < 2 {
        return nothing();
    }
    let figure = |measure| median(results, arms[0], "same", MANY, measure).map_or("?".to_owned(), short);
    Judgement::holds_if(
        usual.iter().all(|(_, p90)| *p90 >= own),
        format!("90th percentile: {}", words(&usual, " ms")),
        format!(
            "Beside it stand {} tries that were given up, and shares from {} % to {} % of the mean: who has just released the \
             lock gets it again while the others sleep.{}",
            figure("failures"),
            figure("least_pct"),
            figure("most_pct"),
            absent(results, &AGREEING)
        ),
    )
}

fn redis_worst_case(results: &Results) -> Judgement {
    let arms = [redis(results), KAZOO, ETCD_PAPER, CONSUL_PAPER];
    let worst = found(results, &arms, "same", MANY, "max_ms");
    let Some((_, own)) = worst.first().copied().filter(|(arm, _)| *arm == arms[0]) else { return nothing() };
    let others = worst.iter().skip(1).map(|(_, worst)| *worst).max_by(f64::total_cmp);
    let Some(others) = others else { return nothing() };
    Judgement::holds_if(
        own / others > 4.0,
        words(&worst, " ms"),
        format!(
            "The paper's own tables have 4.3 to 20.6 times: held above 4 times the worst of the others.{}",
            absent(results, &AGREEING)
        ),
    )
}

/// The synced arms of these recipes that have gone through trials.
fn tried<'r>(results: &'r Results, arms: &[&'static str]) -> Vec<(&'static str, Selection<'r>)> {
    let rows = |arm: &&'static str| (*arm, results.arm(arm).with("part", "holder gone"));
    arms.iter().map(rows).filter(|(_, rows)| !rows.is_empty()).collect()
}

fn sum(rows: &Selection<'_>, measures: &[&str]) -> f64 {
    let of = |measure: &&str| rows.spread(measure).map_or(0.0, |spread| spread.max);
    measures.iter().map(of).sum()
}

fn trials_words(found: &[(&str, Selection<'_>)]) -> String {
    let words = |(arm, rows): &(&str, Selection<'_>)| {
        let stale = sum(rows, &["stale_paused", "stale_cut_off"]);
        let guarded = match rows.median("guarded_paused") {
            None => "nothing to guard by".to_owned(),
            Some(_) => format!("{} guarded", short(sum(rows, &["guarded_paused", "guarded_cut_off"]))),
        };
        format!("{arm}: {} stale writes accepted, {guarded}", short(stale))
    };
    found.iter().map(words).collect::<Vec<_>>().join("; ")
}

/// Whether any two contenders ever held one lock at once, in all runs of these arms.
fn overlaps(results: &Results, arms: &[&str]) -> f64 {
    arms.iter().filter_map(|arm| results.arm(arm).spread("overlaps")).map(|spread| spread.max).sum()
}

fn agreeing_are_safe(results: &Results) -> Judgement {
    let found = tried(results, &[ETCD_PAPER, ETCD_BEST, KAZOO, CONSUL_PAPER, CONSUL_BEST]);
    if found.is_empty() {
        return nothing();
    }
    let arms: Vec<&str> = found.iter().map(|(arm, _)| *arm).collect();
    let stale: f64 = found.iter().map(|(_, rows)| sum(rows, &["stale_paused", "stale_cut_off"])).sum();
    let guarded: f64 = found.iter().map(|(_, rows)| sum(rows, &["guarded_paused", "guarded_cut_off"])).sum();
    let quorate = tried(results, &[QUORATE]);
    let beside = match quorate.is_empty() {
        true => String::new(),
        false => format!(" Beside them, {}.", trials_words(&quorate)),
    };
    Judgement::holds_if(
        stale == 0.0 && guarded == 0.0 && overlaps(results, &arms) == 0.0,
        trials_words(&found),
        format!(
            "The service grants the lock to one at a time ({} overlapping grants in all runs), but a holder that was paused \
             or cut off does not know that its lease is over, and writes. That is so with every lease. What helps is a \
             write that carries the grant: {} of those of stale holders were accepted. The paper's libraries for etcd and \
             Consul give nothing to carry.{beside}",
            short(overlaps(results, &arms)),
            short(guarded)
        ),
    )
}

fn redlock_is_unsafe(results: &Results) -> Judgement {
    let found = tried(results, &[REDIS_PAPER, REDIS_BEST]);
    if found.is_empty() {
        return nothing();
    }
    let stale: f64 = found.iter().map(|(_, rows)| sum(rows, &["stale_paused", "stale_cut_off"])).sum();
    Judgement::holds_if(
        stale > 0.0,
        trials_words(&found),
        "As with every lease; but Redlock has no number that grows, so that nothing can refuse the stale holder's write. Lost \
         data of restarted servers and jumping clocks, the other ways to lose safety, were not tried.",
    )
}

/// All synced arms but Quorate's.
fn others() -> Vec<&'static str> {
    let is_other = |side: &&sides::Side| !side.is_unsynced && !side.name.starts_with("Quorate");
    sides::ALL.iter().filter(is_other).map(|side| side.name).collect()
}

fn no_deadlock(results: &Results) -> Judgement {
    let found = tried(results, &others());
    if found.is_empty() {
        return nothing();
    }
    let words = |(arm, rows): &(&str, Selection<'_>)| {
        let figure = |measure| rows.median(measure).map_or("?".to_owned(), short);
        format!("{arm}: {} ms (lease {})", figure("takeover_killed_ms"), figure("lease_ms"))
    };
    let told = |arm: &&&str| sum(&results.arm(arm).with("part", "waits after contention"), &["never_told"]);
    let arms = others();
    let never_told: Vec<&str> = arms.iter().filter(|arm| told(arm) > 0.0).copied().collect();
    let beside = match never_told.is_empty() {
        true => String::new(),
        false => format!(
            " But after many have waited at a node and given up, who waits there is never told of a release, though the lock is \
             free: {}.",
            never_told.join(", ")
        ),
    };
    Judgement::holds_if(
        never_told.is_empty() && found.iter().all(|(_, rows)| sum(rows, &["never_granted"]) == 0.0),
        found.iter().map(words).collect::<Vec<_>>().join("; "),
        format!(
            "From the death of the holder until the next one, who waits, has the lock. Consul grants no lease below 10 s and \
             lets a session live for up to twice as long.{beside}{}",
            absent(results, &AGREEING)
        ),
    )
}

fn a_node_may_fail(results: &Results) -> Judgement {
    let rows = |arm: &'static str| (arm, results.arm(arm).with("part", "node killed"));
    let found: Vec<(&str, Selection<'_>)> =
        others().into_iter().map(rows).filter(|(_, rows)| !rows.is_empty()).collect();
    if found.is_empty() {
        return nothing();
    }
    let words = |(arm, rows): &(&str, Selection<'_>)| {
        let gap =
            rows.spread("gap_ms").map_or("none went on".to_owned(), |gap| format!("{} ms", short(gap.max)));
        match rows.spread("stuck").map_or(0.0, |stuck| stuck.max) {
            0.0 => format!("{arm}: {gap}"),
            stuck => format!("{arm}: {gap}, {} of 3 got nothing more", short(stuck)),
        }
    };
    let goes_on =
        |(_, rows): &(&str, Selection<'_>)| rows.spread("stuck").is_none_or(|stuck| stuck.max == 0.0);
    let stopped: Vec<&str> = found.iter().filter(|found| !goes_on(found)).map(|(arm, _)| *arm).collect();
    let mut why = "The longest time that any of three contenders was without a grant after a node was killed, the leader \
                   where there is one."
        .to_owned();
    if stopped.contains(&REDIS_PAPER) {
        why.push_str(
            " redlock-py raises an error when any server does not answer, though a majority has granted, and leaves the lock \
             to its lease: with one server down it grants nothing at all.",
        );
    }
    Judgement::holds_if(
        stopped.is_empty(),
        found.iter().map(words).collect::<Vec<_>>().join("; "),
        format!("{why}{}", absent(results, &AGREEING)),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::{Row, Verdict};

    const PARAMETERS: [&str; 7] = ["part", "keys", "processes", "think_ms", "contenders", "hold_ms", "node"];
    const MEASURES: [&str; 14] = [
        "avg_ms",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "max_ms",
        "failures",
        "overlaps",
        "stale_paused",
        "guarded_paused",
        "takeover_killed_ms",
        "never_granted",
        "never_told",
        "gap_ms",
        "stuck",
    ];

    fn results() -> Results {
        Results::new(&PARAMETERS, &MEASURES)
    }

    fn push(results: &mut Results, arm: &str, point: [&str; 4], figures: &[(&str, f64)]) {
        let mut values: Vec<String> = point.iter().map(|value| (*value).to_owned()).collect();
        values.resize(PARAMETERS.len(), String::new());
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let figures: BTreeMap<String, f64> = figures.collect();
        results.push(Row { arm: arm.to_owned(), point: values, repeat: 1, figures, checked: None });
    }

    /// An average with what the paper says of the quantiles beside it.
    fn times(average: f64, tail: f64) -> [(&'static str, f64); 5] {
        [
            ("avg_ms", average),
            ("p50_ms", average * 0.95),
            ("p90_ms", average * 1.2),
            ("p99_ms", average * tail),
            ("max_ms", average * 3.0),
        ]
    }

    fn verdict(results: &Results, of: fn(&Results) -> Judgement) -> Verdict {
        of(results).verdict
    }

    #[test]
    fn without_rows_nothing_is_judged() {
        let results = results();
        assert!(all().iter().all(|claim| claim.judged(&results).judgement.verdict == Verdict::NotMeasured));
    }

    /// The paper's table 1, as if it were measured here.
    fn table_1() -> Results {
        let mut results = results();
        for (arm, one, many, tail) in [
            (REDIS_PAPER_UNSYNCED, 1.2, 1.3, 3.9),
            (KAZOO, 3.64, 5.9, 1.7),
            (ETCD_PAPER, 4.91, 7.68, 2.1),
            (CONSUL_PAPER, 11.7, 16.52, 1.5),
        ] {
            push(&mut results, arm, ["acquire", "different", "1", "0"], &times(one, tail));
            push(&mut results, arm, ["acquire", "different", "5", "0"], &times(many, tail));
        }
        results
    }

    #[test]
    fn the_papers_own_figures_bear_out_its_claims() {
        let results = table_1();
        for judge in [times_grow, redis_stays, order_different, ninetieth, ninety_ninth] {
            assert_eq!(verdict(&results, judge), Verdict::Holds, "{:?}", judge(&results));
        }
    }

    #[test]
    fn an_order_that_only_an_unsynced_redis_keeps_rests_on_that() {
        let mut results = table_1();
        push(&mut results, REDIS_PAPER, ["acquire", "different", "5", "0"], &times(6.5, 2.0));
        assert_eq!(verdict(&results, order_different), Verdict::RestsOnFault);
    }

    #[test]
    fn waiting_for_each_other_shows_that_the_papers_processes_hardly_met() {
        let mut results = table_1();
        push(&mut results, KAZOO, ["acquire", "same", "5", "0"], &times(6.0, 1.7));
        assert_eq!(verdict(&results, contention_is_free), Verdict::Holds);
        push(&mut results, ETCD_PAPER, ["acquire", "same", "5", "0"], &times(30.0, 1.7));
        assert_eq!(verdict(&results, contention_is_free), Verdict::NotReproduced, "nobody has paused");
        push(&mut results, ETCD_PAPER, ["acquire", "same", "5", "50"], &times(8.0, 1.7));
        assert_eq!(verdict(&results, contention_is_free), Verdict::RestsOnFault);
        push(&mut results, ETCD_PAPER, ["acquire", "same", "5", "50"], &times(25.0, 1.7));
        push(&mut results, ETCD_PAPER, ["acquire", "same", "5", "50"], &times(25.0, 1.7));
        assert_eq!(
            verdict(&results, contention_is_free),
            Verdict::NotReproduced,
            "a pause does not explain it"
        );
    }

    #[test]
    fn a_stale_write_that_is_accepted_decides_about_safety() {
        let mut results = results();
        let point = ["holder gone", "", "", ""];
        push(&mut results, KAZOO, point, &[("stale_paused", 0.0), ("guarded_paused", 0.0)]);
        assert_eq!(verdict(&results, agreeing_are_safe), Verdict::Holds);
        push(&mut results, ETCD_PAPER, point, &[("stale_paused", 1.0)]);
        assert_eq!(verdict(&results, agreeing_are_safe), Verdict::DoesNotHold);
    }

    #[test]
    fn one_lock_that_nobody_got_again_decides_about_deadlock() {
        let mut results = results();
        let point = ["holder gone", "", "", ""];
        push(&mut results, KAZOO, point, &[("takeover_killed_ms", 2_000.0), ("never_granted", 0.0)]);
        assert_eq!(verdict(&results, no_deadlock), Verdict::Holds);
        push(&mut results, ETCD_PAPER, point, &[("never_granted", 1.0)]);
        assert_eq!(verdict(&results, no_deadlock), Verdict::DoesNotHold);
    }

    #[test]
    fn one_who_is_never_told_of_a_release_decides_about_deadlock_too() {
        let mut results = results();
        push(&mut results, ETCD_BEST, ["holder gone", "", "", ""], &[("never_granted", 0.0)]);
        push(&mut results, ETCD_BEST, ["waits after contention", "", "", ""], &[("never_told", 1.0)]);
        let judgement = no_deadlock(&results);
        assert_eq!(judgement.verdict, Verdict::DoesNotHold);
        assert!(judgement.why.contains(ETCD_BEST), "{}", judgement.why);
    }

    #[test]
    fn two_holders_at_once_decide_about_safety_too() {
        let mut results = results();
        push(&mut results, KAZOO, ["holder gone", "", "", ""], &[("stale_paused", 0.0)]);
        push(&mut results, KAZOO, ["acquire", "same", "5", "0"], &[("overlaps", 1.0)]);
        assert_eq!(verdict(&results, agreeing_are_safe), Verdict::DoesNotHold);
    }

    #[test]
    fn one_contender_that_gets_nothing_more_decides_about_fault_tolerance() {
        let mut results = results();
        push(&mut results, KAZOO, ["node killed", "", "", ""], &[("gap_ms", 900.0), ("stuck", 0.0)]);
        assert_eq!(verdict(&results, a_node_may_fail), Verdict::Holds);
        push(&mut results, REDIS_PAPER, ["node killed", "", "", ""], &[("stuck", 3.0)]);
        let judgement = a_node_may_fail(&results);
        assert_eq!(judgement.verdict, Verdict::DoesNotHold);
        assert!(judgement.ours.contains("3 of 3 got nothing more"), "{}", judgement.ours);
    }
}
