//! The study's claims, and how they are judged.
//!
//! Where the study's own results (results/20251205_013120/results.csv of its code) contradict its text, the reason says
//! so. Their column `throughput` counts failures, too.

use super::compared::{Place, Tally, both, peak_words, peaks};
use super::{DELAY, KEYS, KEYS_MANY, NODES, Protocol, WORKLOADS};
use crate::harness::{Claim, Judgement, Results, Verdict};
use crate::report::short;

/// Below this share of its peak a rate has declined. In the study's own results ABD keeps 80 % or more with most
/// clients, and blocking about half or less.
const DECLINED: f64 = 0.75;

/// From this share of the points on, the claim holds at "almost all".
const ALMOST_ALL: f64 = 0.8;

/// The arms with 1, 3 and 5 replicas.
const ABD: [&str; 3] = ["ABD N=1", "ABD N=3", "ABD N=5"];
const BLOCKING: [&str; 3] = ["Blocking N=1", "Blocking N=3", "Blocking N=5"];
const BACKOFF: [&str; 3] = ["Blocking, backoff N=1", "Blocking, backoff N=3", "Blocking, backoff N=5"];
const FAR: [&str; 2] = ["ABD N=3, 1 ms", "Blocking N=3, 1 ms"];

fn missing() -> Judgement {
    Judgement::not_measured("a part of what it needs was not measured")
}

pub(super) fn all() -> Vec<Claim> {
    vec![
        Claim::new(
            "With one replica ABD has the higher successful throughput at every number of clients",
            "figure 1 and section 6.1",
            one_replica,
        )
        .about(&[ABD[0], BLOCKING[0]]),
        Claim::new(
            "ABD has the higher successful throughput for all numbers of replicas and almost all numbers of clients",
            "section 7",
            everywhere,
        )
        .about(&[ABD, BLOCKING].concat()),
        Claim::new(
            "ABD's throughput grows up to a point of saturation and then stays flat",
            "peaks of 37,000 op/s (N=1, 12 clients), 20,000 (N=3, 8 clients, a mild decrease beyond) and 9,000 to 11,000 (N=5, 4 to \
             8 clients)",
            abd_saturates,
        )
        .about(&ABD),
        Claim::new(
            "More replicas cost ABD throughput",
            "37,000, 20,000, 10,000 op/s with 1, 3, 5 replicas",
            replicas_cost,
        )
        .about(&ABD),
        Claim::new(
            "Blocking peaks at few clients and then loses successful throughput",
            "peaks at 8 clients (N=1) and 4 clients (N=3, N=5)",
            blocking_declines,
        )
        .about(&BLOCKING),
        Claim::new(
            "Failures of the blocking protocol grow with the number of clients",
            "section 6.1, no figures given",
            failures_grow,
        )
        .about(&BLOCKING),
        Claim::new(
            "Blocking declines because ever more clients meet on the same keys",
            "section 6.1: 10 keys",
            contention_is_the_cause,
        )
        .about(&BLOCKING[1..2]),
        Claim::new(
            "At low client counts both have a low median latency; with one replica blocking may have a slight advantage \
             for GET, since ABD writes back all the same",
            "figure 5 and section 6.2",
            one_replica_reads,
        )
        .about(&[ABD[0], BLOCKING[0]]),
        Claim::new("PUT is more expensive than GET for both protocols", "section 6.3", puts_cost_more)
            .about(&[&ABD[1..], &BLOCKING[1..]].concat()),
        Claim::new(
            "The 95th percentile of blocking's latency grows more steeply with contention than ABD's",
            "figures 9, 10, 15, 16 and section 7",
            tails_widen,
        )
        .about(&[&ABD[1..], &BLOCKING[1..]].concat()),
        Claim::new(
            "Blocking can be very fast when contention is low; ABD pays for extra phases",
            "sections 6.3 and 7",
            extra_phases,
        )
        .about(&FAR),
        Claim::new(
            "Retries would bring storms that complicate tail latency and fairness",
            "section 6.1: why locks are not retried",
            retry_storms,
        )
        .about(&[&ABD[1..], &BLOCKING[1..], &BACKOFF[1..]].concat()),
        Claim::new(
            "The protocols work on a set of unreliable servers: a majority is enough",
            "section 1; no server was stopped in the study",
            majority_is_enough,
        )
        .about(&[ABD[1], BACKOFF[1]]),
    ]
}

fn one_replica(results: &Results) -> Judgement {
    let tally = Tally::of(results, 1);
    let failed = both(results).map(|place| place.last(BLOCKING[0], "failed_percent"));
    let (1.., [Some(reading), Some(writing)]) = (tally.count(), failed) else { return missing() };
    let ours = format!(
        "ABD's is {}; with most clients {} % (GET-heavy) and {} % (PUT-heavy) of blocking's operations fail",
        tally.words(),
        short(reading),
        short(writing)
    );
    let is_met = reading + writing > 0.0;
    if tally.higher == tally.count() {
        let why = if is_met {
            "Locks are met, and who meets one has failed."
        } else {
            "The study's reason is that locks are met; here none is."
        };
        return Judgement::new(Verdict::Holds, ours, why);
    }
    let met = if is_met { "they are met here, too" } else { "here none is, and nothing fails" };
    Judgement::of_fault(
        None,
        ours,
        &format!(
            "the study's reason is that locks are met; {met}. The study's clients reach the one server three or four times in each \
             operation, with a new connection and a new thread each time (blocking/blocking_client.cpp, lines 196 to 214 and 222 \
             to 242; 27 to 32), and holds the lock all that time."
        ),
    )
}

fn everywhere(results: &Results) -> Judgement {
    let tallies = NODES.map(|nodes| (nodes, Tally::of(results, nodes)));
    if tallies.iter().any(|(_, tally)| tally.count() == 0) {
        return missing();
    }
    let is_higher = |tally: &Tally| tally.higher as f64 >= tally.count() as f64 * ALMOST_ALL;
    let words = tallies.iter().map(|(nodes, tally)| format!("N={nodes}: {}", tally.words()));
    Judgement::holds_if(
        tallies.iter().all(|(_, tally)| is_higher(tally)),
        format!("ABD's is, with {}", words.collect::<Vec<_>>().join("; ")),
        "Almost all are four of five. Only successes count on both sides.",
    )
}

fn abd_saturates(results: &Results) -> Judgement {
    let peaks = peaks(results, Protocol::Abd);
    if peaks.len() < WORKLOADS.len() * NODES.len() {
        return missing();
    }
    Judgement::holds_if(
        peaks.iter().all(|(_, _, peak)| peak.left >= DECLINED && peak.clients > 1),
        peak_words(&peaks),
        "Flat is what keeps three quarters of its peak; the study's own results keep 80 % or more (results/20251205_013120/results.csv, lines 2 to 55). At which \
         rate is another matter: its clients make a connection and a thread for each message (abd/abd_client.cpp, lines 60 to 66 \
         and 75 to 89).",
    )
}

fn replicas_cost(results: &Results) -> Judgement {
    let peaks = peaks(results, Protocol::Abd);
    let rates = |workload: &str| -> Vec<f64> {
        let of = peaks.iter().filter(|(name, ..)| *name == workload);
        of.map(|(_, _, peak)| peak.rate).collect()
    };
    let rates = WORKLOADS.map(|(workload, ..)| (workload, rates(workload)));
    if rates.iter().any(|(_, rates)| rates.len() < NODES.len()) {
        return missing();
    }
    let falls = rates.iter().all(|(_, rates)| rates.windows(2).all(|pair| pair[0] > pair[1]));
    let words = rates.iter().map(|(workload, rates)| {
        let rates: Vec<String> = rates.iter().map(|rate| short(*rate)).collect();
        format!("{workload}: {} op/s", rates.join(", "))
    });
    Judgement::holds_if(
        falls,
        words.collect::<Vec<_>>().join("; "),
        "All replicas and the clients share the processors of one machine, here as in the study (run_exp.sh, line 9): what a \
         replica costs that has a machine of its own was not measured.",
    )
}

fn blocking_declines(results: &Results) -> Judgement {
    let peaks = peaks(results, Protocol::Blocking);
    if peaks.len() < WORKLOADS.len() * NODES.len() {
        return missing();
    }
    let declined = peaks
        .iter()
        .filter(|(_, _, peak)| peak.left < DECLINED && peak.clients * 2 <= peak.most_clients)
        .count();
    let holds = declined == peaks.len();
    let why = if holds {
        "An operation that meets a lock fails at once and is not tried again.".to_owned()
    } else {
        format!(
            "It does at {declined} of {}. Suspected: how long a lock stands, in the study for four rounds of new connections \
             (blocking/blocking_client.cpp, lines 222 to 242), here for one or two rounds on connections that are there.",
            peaks.len()
        )
    };
    Judgement::holds_if(holds, peak_words(&peaks), why)
}

fn failures_grow(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let (mut grow, mut with_one) = (true, 0.0);
    for place in both(results) {
        for (nodes, arm) in NODES.into_iter().zip(BLOCKING) {
            let series = place.series(arm, "failed_percent");
            let (Some((few, first)), Some((many, last))) = (series.first(), series.last()) else {
                return missing();
            };
            let workload = place.workload;
            words.push(format!("N={nodes} {workload}: {first:.1} % at {few}, {last:.1} % at {many}"));
            if nodes == 1 {
                with_one += last;
            } else {
                grow &= last > first;
            }
        }
    }
    let mechanism =
        if grow { "The more operations are under way, the likelier one of them has the key. " } else { "" };
    let with_one = if with_one == 0.0 {
        "With one replica none fails here, and it is not judged by that: a node carries out one operation after the other."
    } else {
        "It is judged with 3 and 5 replicas."
    };
    Judgement::holds_if(grow, words.join("; "), format!("{mechanism}{with_one}"))
}

fn contention_is_the_cause(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut is_cause = true;
    for place in both(results) {
        let many = Place { keys: KEYS_MANY, ..place };
        let last = |place: &Place<'_>, measure| place.last(BLOCKING[1], measure);
        let failed = (last(&place, "failed_percent"), last(&many, "failed_percent"));
        let rates = (last(&place, "per_s"), last(&many, "per_s"));
        let ((Some(few_failed), Some(many_failed)), (Some(few), Some(much))) = (failed, rates) else {
            return missing();
        };
        words.push(format!(
            "{}: {few_failed:.1} % fail with {KEYS} keys, {many_failed:.1} % with {KEYS_MANY}; {} and {} op/s succeed",
            place.workload,
            short(few),
            short(much)
        ));
        is_cause &= many_failed < few_failed / 4.0 && much > few;
    }
    Judgement::holds_if(
        is_cause,
        format!("N=3, 32 clients: {}", words.join("; ")),
        "It is the cause where a hundred times the keys leave less than a quarter of the failures, and more succeeds. The study varied \
         the number of clients alone, so that it could not tell contention from load.",
    )
}

fn one_replica_reads(results: &Results) -> Judgement {
    let place = Place::of(results, WORKLOADS[0].0);
    let median = |arm| place.first(arm, "get_p50_ms");
    let (Some(abd), Some(blocking)) = (median(ABD[0]), median(BLOCKING[0])) else { return missing() };
    Judgement::holds_if(
        blocking < abd,
        format!("GET median with one client: ABD {} ms, blocking {} ms", short(abd), short(blocking)),
        "In the study's own results blocking has none: 215 us against ABD's 143 (results/20251205_013120/results.csv, lines 56 and 2), though its ABD writes \
         back after every GET (abd/abd_client.cpp, line 131). Here a GET ends after one round where a majority agrees, as one \
         replica always does.",
    )
}

fn puts_cost_more(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut holds = true;
    let place = Place::of(results, WORKLOADS[0].0);
    for arm in [&ABD[1..], &BLOCKING[1..]].concat() {
        let (Some(get), Some(put)) = (place.first(arm, "get_p50_ms"), place.first(arm, "put_p50_ms")) else {
            return missing();
        };
        words.push(format!("{arm} {} / {} ms", short(put), short(get)));
        holds &= put > get;
    }
    Judgement::holds_if(
        holds,
        format!("PUT / GET medians with one client, GET-heavy: {}", words.join("; ")),
        "Here a PUT takes two rounds, and a GET one where the replicas agree. In the study's ABD each takes two (abd/abd_client.cpp, \
         lines 121 and 131, 145 and 154), and its own medians are alike: 165 and 165 us with 3 replicas, 186 and 187 with 5 \
         (results/20251205_013120/results.csv, lines 20 and 38).",
    )
}

fn tails_widen(results: &Results) -> Judgement {
    let places = [
        (Place::of(results, WORKLOADS[0].0), "get_p95_ms", "get_all_p95_ms", "GET"),
        (Place::of(results, WORKLOADS[1].0), "put_p95_ms", "put_all_p95_ms", "PUT"),
    ];
    let mut words = Vec::new();
    let (mut is_steeper, mut is_steeper_with_failures) = (true, Some(true));
    for (place, measure, with_failures, name) in places {
        for (index, nodes) in NODES.into_iter().enumerate().skip(1) {
            let growth = |arm, measure| Some(place.last(arm, measure)? - place.first(arm, measure)?);
            let (abd, blocking) = (growth(ABD[index], measure), growth(BLOCKING[index], measure));
            let (Some(abd), Some(blocking)) = (abd, blocking) else { return missing() };
            let mixed = growth(ABD[index], with_failures).zip(growth(BLOCKING[index], with_failures));
            is_steeper &= blocking > abd;
            is_steeper_with_failures = is_steeper_with_failures
                .zip(mixed)
                .map(|(is_steeper, (abd, blocking))| is_steeper && blocking > abd);
            let mixed =
                mixed.map_or(String::new(), |(_, blocking)| format!(", {} with failures", short(blocking)));
            words.push(format!(
                "N={nodes} {name}: ABD {} ms, blocking {}{mixed}",
                short(abd),
                short(blocking)
            ));
        }
    }
    let ours = format!("What p95 grows by from 1 client to 32: {}", words.join("; "));
    if is_steeper {
        return Judgement::new(Verdict::Holds, ours, "It is steeper among successes alone, too.");
    }
    Judgement::of_fault(
        is_steeper_with_failures,
        ours,
        "the study has the latencies of failures among those of successes (workload/workload_generator.cpp, lines 58 to 69 and 76 to \
         87). Not tried: a lock that a server grants after the quorum was full is not among those that are released \
         (blocking/blocking_client.cpp, lines 45 to 53), and stands for 5 s (common/types.h, line 28).",
    )
}

fn extra_phases(results: &Results) -> Judgement {
    let place = Place::of(results, WORKLOADS[0].0);
    let medians = |arm| Some((place.first(arm, "get_p50_ms")?, place.first(arm, "put_p50_ms")?));
    let (Some(abd), Some(blocking)) = (medians(FAR[0]), medians(FAR[1])) else { return missing() };
    let ours = format!(
        "One client, N=3, 1 ms each way: GET {} and {} ms, PUT {} and {} ms (ABD and blocking)",
        short(abd.0),
        short(blocking.0),
        short(abd.1),
        short(blocking.1)
    );
    // Half a round, where a round is there and back.
    let margin = DELAY.as_secs_f64() * 1000.0;
    Judgement::holds_if(
        blocking.0 < abd.0 - margin || blocking.1 < abd.1 - margin,
        ours,
        "It holds where blocking saves a round of 2 ms. The study's ABD has two rounds for every GET (abd/abd_client.cpp, lines 121 and \
         131), and its blocking three for a GET and four for a PUT (blocking/blocking_client.cpp, lines 196 to 214 and 222 to \
         242). In its own results with one client blocking is the slower at any number of replicas: GET 215, 261 and 347 us \
         against ABD's 143, 165 and 187 (results/20251205_013120/results.csv, lines 56, 74, 92 and 2, 20, 38).",
    )
}

fn retry_storms(results: &Results) -> Judgement {
    /// A tail of this many times ABD's, or this percentage of failures, is a storm.
    const TAIL: f64 = 3.0;
    const FAILED_PERCENT: f64 = 1.0;
    let mut words = Vec::new();
    let (mut tail_most, mut failed_most) = (0.0_f64, 0.0_f64);
    for place in both(results) {
        for index in 1..NODES.len() {
            let rates = (place.last(BLOCKING[index], "per_s"), place.last(BACKOFF[index], "per_s"));
            let tails = (place.last(ABD[index], "p95_ms"), place.last(BACKOFF[index], "p95_ms"));
            let failed = place.last(BACKOFF[index], "failed_percent");
            let ((Some(none), Some(backoff)), (Some(abd), Some(tail)), Some(failed)) = (rates, tails, failed)
            else {
                return missing();
            };
            words.push(format!(
                "N={} {}: {} op/s instead of {}, {failed:.1} % fail, p95 {} ms (ABD {})",
                NODES[index],
                place.workload,
                short(backoff),
                short(none),
                short(tail),
                short(abd)
            ));
            (tail_most, failed_most) = (tail_most.max(tail / abd), failed_most.max(failed));
        }
    }
    Judgement::holds_if(
        tail_most > TAIL || failed_most > FAILED_PERCENT,
        format!("With backoff, 32 clients: {}", words.join("; ")),
        format!(
            "Who meets a lock tries again after a random, growing wait. The 95th percentile is up to {} times ABD's and up to {} % \
             fail; {TAIL} times or {FAILED_PERCENT} % would be a storm.",
            short(tail_most),
            short(failed_most)
        ),
    )
}

fn majority_is_enough(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut holds = true;
    for place in both(results) {
        let killed = Place { down: 1, ..place };
        for arm in [ABD[1], BACKOFF[1]] {
            let last =
                (place.last(arm, "per_s"), killed.last(arm, "per_s"), killed.last(arm, "failed_percent"));
            let (Some(up), Some(down), Some(failed)) = last else { return missing() };
            words.push(format!(
                "{arm} {}: {} op/s with all, {} with one killed, {failed:.1} % fail",
                place.workload,
                short(up),
                short(down)
            ));
            holds &= failed < 1.0;
        }
    }
    Judgement::holds_if(
        holds,
        format!("32 clients: {}", words.join("; ")),
        "It holds where less than 1 % fail. The study's ABD asks the first R servers alone (abd/abd_client.cpp, lines 113 to 119): with \
         one of those gone it goes on with what the others answer, be it a single one (92 to 109, 126 to 128), which is no \
         majority, and its PUT tells of success whatever was stored (154 and 155). Its blocking asks all N and goes on with R \
         that have granted (blocking/blocking_client.cpp, lines 27 to 58).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::measured::Measured;

    const CLIENTS: [u32; 3] = [1, 4, 32];

    fn set(
        measured: &mut Measured,
        arm: &str,
        (workload, clients): (&str, u32),
        measure: &str,
        rounds: [f64; 2],
    ) {
        measured.set(arm, &[workload, &KEYS.to_string(), "0", &clients.to_string()], measure, &rounds);
    }

    /// Almost the same value in both rounds.
    fn alike(value: f64) -> [f64; 2] {
        [value, value * 1.01]
    }

    /// Figures with which every claim holds, in two rounds.
    fn holding() -> Measured {
        let mut measured = Measured::new(&["workload", "keys", "down", "clients"]);
        for (workload, ..) in WORKLOADS {
            for (index, size) in [4.0, 2.0, 1.0].into_iter().enumerate() {
                for (arm, rates, failed, p95) in [
                    (ABD[index], [100.0, 200.0, 190.0], [0.0; 3], [1.0, 2.0, 4.0]),
                    (BLOCKING[index], [80.0, 100.0, 50.0], [0.0, 10.0, 40.0], [1.0, 3.0, 9.0]),
                    (BACKOFF[index], [80.0, 100.0, 90.0], [0.0; 3], [1.0, 9.0, 40.0]),
                ] {
                    for (number, clients) in CLIENTS.into_iter().enumerate() {
                        let at = (workload, clients);
                        set(&mut measured, arm, at, "per_s", alike(size * rates[number]));
                        set(&mut measured, arm, at, "failed_percent", alike(failed[number]));
                        for measure in
                            ["p95_ms", "get_p95_ms", "put_p95_ms", "get_all_p95_ms", "put_all_p95_ms"]
                        {
                            set(&mut measured, arm, at, measure, alike(p95[number]));
                        }
                        let get = if arm == BLOCKING[0] { 0.5 } else { 1.0 };
                        set(&mut measured, arm, at, "get_p50_ms", alike(get));
                        set(&mut measured, arm, at, "put_p50_ms", alike(2.0));
                    }
                }
            }
            for (arm, put) in [(FAR[0], 8.0), (FAR[1], 4.0)] {
                set(&mut measured, arm, (workload, 1), "get_p50_ms", alike(4.0));
                set(&mut measured, arm, (workload, 1), "put_p50_ms", alike(put));
            }
            for arm in [ABD[1], BLOCKING[1], BACKOFF[1]] {
                let failed = if arm == BLOCKING[1] { 1.0 } else { 0.0 };
                for (keys, down) in [(KEYS_MANY, "0"), (KEYS, "1")] {
                    let point = [workload, &keys.to_string(), down, "32"];
                    measured.set(arm, &point, "failed_percent", &alike(failed));
                    measured.set(arm, &point, "per_s", &alike(500.0));
                }
            }
        }
        measured
    }

    /// The judgement of a claim after one measure of an arm is changed in both rounds.
    fn changed(begins: &str, arm: &str, at: (&str, u32), measure: &str, rounds: [f64; 2]) -> Judgement {
        let mut measured = holding();
        set(&mut measured, arm, at, measure, rounds);
        measured.judged(&all(), begins)
    }

    /// Asserts that a claim no longer holds with the first value, and is undecided with it in only one round.
    fn overturns(
        begins: &str,
        arm: &str,
        at: (&str, u32),
        measure: &str,
        value: f64,
        holds: f64,
        verdict: Verdict,
    ) {
        let judged = |rounds| changed(begins, arm, at, measure, rounds).verdict;
        assert_eq!(judged(alike(value)), verdict, "{begins}: {measure} {value}");
        assert_eq!(judged([value, holds]), Verdict::Undecided, "{begins}: {measure} {value} and {holds}");
    }

    #[test]
    fn names_are_those_of_the_arms() {
        for (protocol, names) in
            [(Protocol::Abd, ABD), (Protocol::Blocking, BLOCKING), (Protocol::Backoff, BACKOFF)]
        {
            assert_eq!(NODES.map(|nodes| protocol.arm(nodes)), names);
        }
        assert_eq!([Protocol::Abd, Protocol::Blocking].map(|protocol| protocol.delayed_arm(3)), FAR);
    }

    #[test]
    fn every_claim_follows_its_figures_and_needs_repeats_and_its_arms() {
        let arms: [(&str, &[&str]); 13] = [
            ("With one replica", &[ABD[0], BLOCKING[0]]),
            ("ABD has", &[ABD[0], ABD[1], ABD[2], BLOCKING[0], BLOCKING[1], BLOCKING[2]]),
            ("ABD's throughput", &ABD),
            ("More replicas", &ABD),
            ("Blocking peaks", &BLOCKING),
            ("Failures", &BLOCKING),
            ("Blocking declines", &BLOCKING[1..2]),
            ("At low", &[ABD[0], BLOCKING[0]]),
            ("PUT", &[ABD[1], ABD[2], BLOCKING[1], BLOCKING[2]]),
            ("The 95th", &[ABD[1], ABD[2], BLOCKING[1], BLOCKING[2]]),
            ("Blocking can", &FAR),
            ("Retries", &[ABD[1], BLOCKING[2], BACKOFF[1], BACKOFF[2]]),
            ("The protocols", &[ABD[1], BACKOFF[1]]),
        ];
        assert_eq!(arms.len(), all().len());
        for (begins, arms) in arms {
            let judged = holding().judged(&all(), begins);
            assert_eq!(judged.verdict, Verdict::Holds, "{begins}: {judged:?}");
            holding().needs_repeats_and_arms(&all(), begins, arms);
        }
    }

    const READING: &str = WORKLOADS[0].0;
    const WRITING: &str = WORKLOADS[1].0;

    #[test]
    fn throughput_is_judged_at_every_or_almost_every_number_of_clients() {
        use Verdict::{DoesNotHold, Holds, NotReproduced};
        overturns("With one replica", BLOCKING[0], (READING, 1), "per_s", 500.0, 300.0, NotReproduced);
        let lower = changed("With one replica", BLOCKING[0], (READING, 1), "per_s", alike(500.0));
        assert!(
            lower.ours.contains("higher at 5 of 6 points") && lower.why.contains("they are met here, too"),
            "{lower:?}"
        );
        let mut unmet = holding();
        for (workload, ..) in WORKLOADS {
            set(&mut unmet, BLOCKING[0], (workload, 32), "failed_percent", [0.0; 2]);
        }
        let unmet = unmet.judged(&all(), "With one replica");
        assert!(unmet.verdict == Holds && unmet.why.ends_with("here none is."), "{unmet:?}");

        // One of six is a few, two are not.
        let mut measured = holding();
        set(&mut measured, BLOCKING[2], (READING, 1), "per_s", alike(500.0));
        assert_eq!(measured.judged(&all(), "ABD has").verdict, Holds);
        set(&mut measured, BLOCKING[2], (WRITING, 1), "per_s", alike(500.0));
        assert_eq!(measured.judged(&all(), "ABD has").verdict, DoesNotHold);
        set(&mut measured, BLOCKING[2], (WRITING, 1), "per_s", [500.0, 50.0]);
        assert_eq!(measured.judged(&all(), "ABD has").verdict, Verdict::Undecided);

        overturns("ABD's throughput", ABD[1], (READING, 32), "per_s", 200.0, 380.0, DoesNotHold);
        overturns("More replicas", ABD[1], (READING, 4), "per_s", 900.0, 400.0, DoesNotHold);
        overturns("Blocking peaks", BLOCKING[0], (READING, 32), "per_s", 390.0, 200.0, DoesNotHold);
        let kept = changed("Blocking peaks", BLOCKING[0], (READING, 32), "per_s", alike(390.0));
        assert!(kept.why.starts_with("It does at 5 of 6."), "{}", kept.why);
    }

    #[test]
    fn failures_are_judged_with_several_replicas_and_by_the_number_of_keys() {
        use Verdict::DoesNotHold;
        overturns("Failures", BLOCKING[1], (READING, 1), "failed_percent", 50.0, 0.0, DoesNotHold);
        assert_eq!(
            changed("Failures", BLOCKING[0], (READING, 1), "failed_percent", alike(90.0)).verdict,
            Verdict::Holds
        );
        overturns("Blocking declines", BLOCKING[1], (READING, 32), "failed_percent", 3.0, 40.0, DoesNotHold);
    }

    #[test]
    fn retries_bring_storms_where_tails_or_failures_grow() {
        let mut calm = holding();
        for arm in &BACKOFF[1..] {
            for (workload, ..) in WORKLOADS {
                set(&mut calm, arm, (workload, 32), "p95_ms", alike(5.0));
            }
        }
        assert_eq!(calm.judged(&all(), "Retries").verdict, Verdict::DoesNotHold);
        set(&mut calm, BACKOFF[1], (READING, 32), "failed_percent", [0.0, 5.0]);
        assert_eq!(calm.judged(&all(), "Retries").verdict, Verdict::Undecided);
        set(&mut calm, BACKOFF[1], (READING, 32), "failed_percent", [5.0, 5.0]);
        assert_eq!(calm.judged(&all(), "Retries").verdict, Verdict::Holds);
    }

    #[test]
    fn latencies_are_judged_by_medians_of_one_client() {
        use Verdict::DoesNotHold;
        overturns("At low", BLOCKING[0], (READING, 1), "get_p50_ms", 1.5, 0.5, DoesNotHold);
        overturns("PUT", ABD[2], (READING, 1), "put_p50_ms", 0.5, 2.0, DoesNotHold);
        // Less than half a round is not a phase.
        overturns("Blocking can", FAR[1], (READING, 1), "put_p50_ms", 7.5, 4.0, DoesNotHold);
    }

    #[test]
    fn a_steeper_tail_is_attributed_to_failures_only_if_they_cause_it() {
        let measured = |with_failures: f64| {
            let mut measured = holding();
            set(&mut measured, BLOCKING[1], (READING, 32), "get_p95_ms", alike(2.0));
            set(&mut measured, BLOCKING[1], (READING, 32), "get_all_p95_ms", alike(with_failures));
            measured
        };
        let verdict = |measured: &Measured| measured.judged(&all(), "The 95th").verdict;
        assert_eq!(verdict(&measured(9.0)), Verdict::RestsOnFault);
        assert_eq!(verdict(&measured(2.0)), Verdict::NotReproduced);
        let mut overlaps = holding();
        set(&mut overlaps, BLOCKING[1], (READING, 32), "get_p95_ms", [2.0, 9.0]);
        assert_eq!(verdict(&overlaps), Verdict::Undecided);
    }

    #[test]
    fn a_majority_is_enough_where_hardly_anything_fails() {
        let mut measured = holding();
        let mut killed = |rounds: [f64; 2]| {
            measured.set(ABD[1], &[READING, &KEYS.to_string(), "1", "32"], "failed_percent", &rounds);
            measured.judged(&all(), "The protocols").verdict
        };
        assert_eq!(killed([30.0, 30.0]), Verdict::DoesNotHold);
        assert_eq!(killed([0.0, 30.0]), Verdict::Undecided);
    }
}
