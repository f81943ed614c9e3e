//! What the study claims, and what was measured here.

use super::compared::{Peak, Place, Tally, both, peak_words, peaks};
use super::{DELAY, KEYS, KEYS_MANY, NODES, Protocol, WORKLOADS};
use crate::harness::{Claim, Judgement, Results, Verdict};
use crate::report::short;

/// Medians that differ by less than this share are told as equal.
const TIE: f64 = 0.05;

/// Below this share of its peak a rate has declined.
const DECLINED: f64 = 0.9;

fn missing() -> Judgement {
    Judgement::not_measured("a part of what it needs was not measured")
}

pub(super) fn all() -> Vec<Claim> {
    vec![
        Claim::new(
            "With one replica ABD has the higher successful throughput at every number of clients",
            "figure 1 and section 6.1",
            one_replica,
        ),
        Claim::new(
            "ABD has the higher successful throughput for all numbers of replicas and almost all numbers of clients",
            "section 7",
            everywhere,
        ),
        Claim::new(
            "ABD's throughput grows up to a point of saturation and then stays flat",
            "peaks of 37,000 op/s (N=1, 12 clients), 20,000 (N=3, 8 clients) and 9,000 to 11,000 (N=5, 4 to 8 clients)",
            abd_saturates,
        ),
        Claim::new(
            "More replicas cost ABD throughput",
            "37,000, 20,000, 10,000 op/s with 1, 3, 5 replicas",
            replicas_cost,
        ),
        Claim::new(
            "Blocking peaks at few clients and then loses successful throughput",
            "peaks at 8 clients (N=1) and 4 clients (N=3, N=5)",
            blocking_declines,
        ),
        Claim::new(
            "Failures of the blocking protocol grow with the number of clients",
            "section 6.1, no figures given",
            failures_grow,
        ),
        Claim::new(
            "Blocking declines because ever more clients meet on the same keys",
            "section 6.1: 10 keys",
            contention_is_the_cause,
        ),
        Claim::new(
            "At low client counts both have a low median latency; with one replica blocking may have a slight advantage \
             for GET, since ABD writes back all the same",
            "figure 5 and section 6.2",
            one_replica_reads,
        ),
        Claim::new("PUT is more expensive than GET for both protocols", "section 6.3", puts_cost_more),
        Claim::new(
            "The 95th percentile of blocking's latency grows more steeply with contention than ABD's",
            "figures 9, 10, 15, 16 and section 7",
            tails_widen,
        ),
        Claim::new(
            "Blocking can be very fast when contention is low; ABD pays for extra phases",
            "sections 6.3 and 7",
            extra_phases,
        ),
        Claim::new(
            "Retries would bring storms that complicate tail latency and fairness",
            "section 6.1: why locks are not retried",
            retry_storms,
        ),
        Claim::new(
            "The protocols work on a set of unreliable servers: a majority is enough",
            "section 1; no server was stopped in the study",
            majority_is_enough,
        ),
    ]
}

fn one_replica(results: &Results) -> Judgement {
    let tally = Tally::of(results, &[1]);
    let failed = both(results).map(|place| place.last(&Protocol::Blocking.arm(1), "failed_percent"));
    let (1.., [Some(reading), Some(writing)]) = (tally.count(), failed) else { return missing() };
    let ours = format!(
        "ABD's is {}; with most clients {} % (GET-heavy) and {} % (PUT-heavy) of blocking's operations fail",
        tally.words(),
        short(reading),
        short(writing)
    );
    if tally.higher == tally.count() && reading.min(writing) > 0.0 {
        return Judgement::new(Verdict::Holds, ours, "Locks are met, and who meets one has failed.");
    }
    Judgement::of_fault(
        None,
        ours,
        "the study's reason is that locks are met. With one replica nobody has to be asked here: a node carries out one \
         operation after the other, and no lock stands while another operation runs. The study's clients reach the one server \
         three or four times in each operation, with a new connection and a new thread each time \
         (blocking/blocking_client.cpp, lines 196 to 214 and 222 to 242; 27 to 32), and the lock stands meanwhile.",
    )
}

fn everywhere(results: &Results) -> Judgement {
    let tally = Tally::of(results, &NODES);
    if tally.count() == 0 {
        return missing();
    }
    let holds = tally.higher * 10 >= tally.count() * 8;
    let why = if holds {
        "What ABD spends on rounds, blocking spends on locks, and on operations that come to nothing."
    } else {
        "Only successes count on both sides; where few meet, a lock costs no more than a round of ABD's."
    };
    Judgement::holds_if(holds, format!("ABD's is {}", tally.words()), why)
}

fn abd_saturates(results: &Results) -> Judgement {
    let peaks = peaks(results, Protocol::Abd);
    if peaks.is_empty() {
        return missing();
    }
    let flat = peaks.iter().all(|(_, _, peak)| peak.left >= DECLINED && peak.clients > 1);
    Judgement::holds_if(
        flat,
        peak_words(&peaks),
        if flat {
            "It saturates when the machine does. At which rate is another matter: the study's clients make a connection and a \
             thread for each message (abd/abd_client.cpp, lines 60 to 66 and 75 to 89); a node here puts more operations into a \
             message the more clients there are."
        } else {
            "Not everywhere: see figures 1 to 4."
        },
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
    let falls = rates.iter().all(|(_, rates)| {
        rates.windows(2).all(|pair| pair[0] > pair[1] / (1.0 + TIE)) && rates[0] > rates[2]
    });
    let words = rates.iter().map(|(workload, rates)| {
        let rates: Vec<String> = rates.iter().map(|rate| short(*rate)).collect();
        format!("{workload}: {} op/s", rates.join(", "))
    });
    Judgement::holds_if(
        falls,
        words.collect::<Vec<_>>().join("; "),
        if falls {
            "Every replica is asked, and all of them and the clients share the processors of one machine: with machines of \
             their own the cost would be less."
        } else {
            "Not in every step: what a replica more costs is less than what else goes on at this machine."
        },
    )
}

fn blocking_declines(results: &Results) -> Judgement {
    let peaks = peaks(results, Protocol::Blocking);
    if peaks.is_empty() {
        return missing();
    }
    let of_several: Vec<&Peak> =
        peaks.iter().filter(|(_, nodes, _)| *nodes > 1).map(|(_, _, peak)| peak).collect();
    let declined = of_several
        .iter()
        .filter(|peak| peak.left < DECLINED && peak.clients * 2 <= peak.most_clients)
        .count();
    Judgement::holds_if(
        declined * 2 > of_several.len(),
        peak_words(&peaks),
        "An operation that meets a lock fails at once and is not tried again, so what grows with the clients is failures. \
         Whether successes decline, too, is a matter of how long a lock stands: in the study for four rounds of new \
         connections, here for one or two rounds on connections that are there. With one replica no lock is met at all.",
    )
}

fn failures_grow(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut grow = true;
    for place in both(results) {
        for nodes in NODES {
            let series = place.series(&Protocol::Blocking.arm(nodes), "failed_percent");
            let (Some((few, first)), Some((many, last))) = (series.first(), series.last()) else {
                return missing();
            };
            let workload = place.workload;
            words.push(format!("N={nodes} {workload}: {first:.1} % at {few}, {last:.1} % at {many}"));
            // One replica carries out one operation after the other: nobody meets a lock.
            grow &= nodes == 1 || last > first;
        }
    }
    Judgement::holds_if(
        grow,
        words.join("; "),
        "The more operations are under way, the likelier one of them has the key. Among several replicas two clients may \
         even get a part of the locks each, so that both fail. With one replica no operation ever meets another.",
    )
}

fn contention_is_the_cause(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut is_cause = true;
    for place in both(results) {
        let many = Place { keys: KEYS_MANY, ..place };
        let failed = |place: &Place<'_>| place.last(&Protocol::Blocking.arm(3), "failed_percent");
        let rate = |place: &Place<'_>, protocol: Protocol| place.last(&protocol.arm(3), "per_s");
        let (Some(few_failed), Some(many_failed)) = (failed(&place), failed(&many)) else { return missing() };
        let (Some(few), Some(much)) = (rate(&place, Protocol::Blocking), rate(&many, Protocol::Blocking))
        else {
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
        "With a hundred times the keys clients hardly meet, and what is left is what a lock itself costs. The study varied \
         the number of clients alone, so that it could not tell contention from load.",
    )
}

fn one_replica_reads(results: &Results) -> Judgement {
    let place = Place::of(results, WORKLOADS[0].0);
    let median = |protocol: Protocol| place.first(&protocol.arm(1), "get_p50_ms");
    let (Some(abd), Some(blocking)) = (median(Protocol::Abd), median(Protocol::Blocking)) else {
        return missing();
    };
    let ours = format!("GET median with one client: ABD {} ms, blocking {} ms", short(abd), short(blocking));
    if blocking < abd / (1.0 + TIE) {
        return Judgement::new(
            Verdict::Holds,
            ours,
            "A lock in the same process costs less than the rest of a read.",
        );
    }
    Judgement::of_fault(
        None,
        ours,
        "the write-back that would make ABD slower is one that the study's GET always does (abd/abd_client.cpp, lines 121 to \
         131). A read whose majority agrees on the newest tag is done after one round here, and one replica always agrees with \
         itself.",
    )
}

fn puts_cost_more(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut holds = true;
    let place = Place::of(results, WORKLOADS[0].0);
    for protocol in [Protocol::Abd, Protocol::Blocking] {
        for nodes in [3, 5] {
            let median = |measure: &str| place.first(&protocol.arm(nodes), measure);
            let (Some(get), Some(put)) = (median("get_p50_ms"), median("put_p50_ms")) else {
                return missing();
            };
            words.push(format!("{} {} / {} ms", protocol.arm(nodes), short(put), short(get)));
            holds &= put > get;
        }
    }
    Judgement::holds_if(
        holds,
        format!("PUT / GET medians with one client, GET-heavy: {}", words.join("; ")),
        "A PUT takes two rounds, a GET one where the replicas agree.",
    )
}

fn tails_widen(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let (mut steeper, mut compared) = (0, 0);
    for (place, measure, name) in [
        (Place::of(results, WORKLOADS[0].0), "get_p95_ms", "GET"),
        (Place::of(results, WORKLOADS[1].0), "put_p95_ms", "PUT"),
    ] {
        for nodes in [3, 5] {
            let growth = |protocol: Protocol| {
                let arm = protocol.arm(nodes);
                Some(place.last(&arm, measure)? / place.first(&arm, measure)?)
            };
            let (Some(abd), Some(blocking)) = (growth(Protocol::Abd), growth(Protocol::Blocking)) else {
                return missing();
            };
            compared += 1;
            steeper += usize::from(blocking > abd * (1.0 + TIE));
            words.push(format!("N={nodes} {name}: ABD {abd:.1} times, blocking {blocking:.1} times"));
        }
    }
    let ours = format!("From 1 client to 32: {}", words.join("; "));
    if steeper == compared {
        return Judgement::new(
            Verdict::Holds,
            ours,
            "Among successes alone, too: an operation may have to wait for a third replica's lock.",
        );
    }
    Judgement::of_fault(
        None,
        ours,
        "not everywhere, once only successes are looked at: operations that meet a lock fail at once and are not among them. The \
         study puts the latencies of failures among those of successes (workload/workload_generator.cpp, lines 58 to 69 and 76 \
         to 87), and a lock that a server grants after the quorum was full is not among those that are released \
         (blocking/blocking_client.cpp, lines 45 to 53): it stands for 5 s (common/types.h, line 28).",
    )
}

fn extra_phases(results: &Results) -> Judgement {
    let place = Place::of(results, WORKLOADS[0].0);
    let median = |protocol: Protocol, measure: &str| place.first(&protocol.delayed_arm(3), measure);
    let medians =
        |protocol: Protocol| Some((median(protocol, "get_p50_ms")?, median(protocol, "put_p50_ms")?));
    let (Some(abd), Some(blocking)) = (medians(Protocol::Abd), medians(Protocol::Blocking)) else {
        return missing();
    };
    let ours = format!(
        "One client, N=3, 1 ms each way: GET {} and {} ms, PUT {} and {} ms (ABD and blocking)",
        short(abd.0),
        short(blocking.0),
        short(abd.1),
        short(blocking.1)
    );
    // Half a round, where a round is there and back.
    let margin = DELAY.as_secs_f64() * 1000.0;
    if blocking.0 < abd.0 - margin || blocking.1 < abd.1 - margin {
        return Judgement::new(Verdict::Holds, ours, "Alone, the lock saves a round.");
    }
    Judgement::of_fault(
        None,
        ours,
        "where a round costs something, rounds can be counted: a GET takes one in both protocols and a PUT two, because a grant \
         says what the replica holds and ABD writes back only what needs it. The study's ABD has two phases for every GET \
         (abd/abd_client.cpp, lines 121 and 131), and its blocking three for a GET and four for a PUT \
         (blocking/blocking_client.cpp, lines 196 to 214 and 222 to 242).",
    )
}

fn retry_storms(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut storms = false;
    for place in both(results) {
        for nodes in [3, 5] {
            let last = |protocol: Protocol, measure: &str| place.last(&protocol.arm(nodes), measure);
            let rates = (last(Protocol::Blocking, "per_s"), last(Protocol::Backoff, "per_s"));
            let tails = (last(Protocol::Abd, "p95_ms"), last(Protocol::Backoff, "p95_ms"));
            let (Some(none), Some(backoff)) = rates else { return missing() };
            let (Some(abd), Some(tail)) = tails else { return missing() };
            let failed = last(Protocol::Backoff, "failed_percent").unwrap_or_default();
            words.push(format!(
                "N={nodes} {}: {} op/s instead of {}, {failed:.1} % fail, p95 {} ms (ABD {})",
                place.workload,
                short(backoff),
                short(none),
                short(tail),
                short(abd)
            ));
            storms |= tail > 3.0 * abd || failed > 1.0;
        }
    }
    Judgement::holds_if(
        storms,
        format!("With backoff, 32 clients: {}", words.join("; ")),
        if storms {
            "Nothing fails any more, but who is unlucky waits: random, growing waits among 32 clients on 10 keys."
        } else {
            "Random, growing waits, and a line within each node, are enough: nothing fails and tails stay near ABD's."
        },
    )
}

fn majority_is_enough(results: &Results) -> Judgement {
    let mut words = Vec::new();
    let mut holds = true;
    for place in both(results) {
        let killed = Place { down: 1, ..place };
        for protocol in [Protocol::Abd, Protocol::Backoff] {
            let arm = protocol.arm(3);
            let (Some(up), Some(down)) = (place.last(&arm, "per_s"), killed.last(&arm, "per_s")) else {
                return missing();
            };
            let failed = killed.last(&arm, "failed_percent").unwrap_or_default();
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
        "All replicas are asked and whichever majority answers is taken. The study's ABD asks the first R servers alone \
         (abd/abd_client.cpp, lines 113 to 119): with one of those gone it goes on with what the others answer, be it a single \
         one (92 to 109, 126 to 128), which is no majority, and its PUT tells of success whatever was stored (154 and 155). Its \
         blocking asks all N and goes on with R that have granted (blocking/blocking_client.cpp, lines 27 to 58).",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::Row;

    /// Rates of an arm over the number of clients, the same for both workloads, and how many operations failed.
    fn results(rates: &[(String, &[(u32, f64)])], failed_percent: f64) -> Results {
        let mut results =
            Results::new(&["workload", "keys", "down", "clients"], &["per_s", "failed_percent"]);
        for (arm, series) in rates {
            for (workload, ..) in WORKLOADS {
                for (clients, rate) in *series {
                    let point =
                        vec![workload.to_owned(), KEYS.to_string(), "0".to_owned(), clients.to_string()];
                    let figures =
                        [("per_s".to_owned(), *rate), ("failed_percent".to_owned(), failed_percent)];
                    let figures = BTreeMap::from(figures);
                    results.push(Row { arm: arm.clone(), point, repeat: 1, figures, checked: None });
                }
            }
        }
        results
    }

    #[test]
    fn a_higher_rate_confirms_the_claim_only_with_the_reason_that_it_gives() {
        let judged = |blocking: f64, failed: f64| {
            let rates = [
                (Protocol::Abd.arm(1), &[(1, 100.0), (32, 200.0)][..]),
                (Protocol::Blocking.arm(1), &[(1, blocking), (32, 50.0)]),
            ];
            one_replica(&results(&rates, failed))
        };
        assert_eq!(judged(50.0, 20.0).verdict, Verdict::Holds);
        assert_eq!(judged(50.0, 0.0).verdict, Verdict::NotReproduced, "no lock was met");
        let lower = judged(150.0, 20.0);
        assert_eq!(lower.verdict, Verdict::NotReproduced);
        assert!(
            lower.ours.contains("higher at 2, lower at 2 of 4 points, and at 0 the repeats"),
            "{}",
            lower.ours
        );
    }

    #[test]
    fn a_decline_is_what_is_left_of_the_peak() {
        let rates = |last: f64| {
            let of = |nodes| (Protocol::Blocking.arm(nodes), [(1, 50.0), (4, 100.0), (32, last)]);
            let of = NODES.map(of);
            let of: Vec<(String, &[(u32, f64)])> =
                of.iter().map(|(arm, series)| (arm.clone(), &series[..])).collect();
            blocking_declines(&results(&of, 50.0))
        };
        assert_eq!(rates(60.0).verdict, Verdict::Holds);
        assert_eq!(rates(95.0).verdict, Verdict::DoesNotHold);
        assert!(rates(60.0).ours.contains("100 op/s at 4, 60 % of it"), "{}", rates(60.0).ours);
    }

    #[test]
    fn nothing_is_judged_that_was_not_measured() {
        let results = Results::new(&["workload", "keys", "down", "clients"], &["per_s"]);
        for claim in all() {
            assert_eq!(claim.judged(&results).judgement.verdict, Verdict::NotMeasured, "{}", claim.claim);
        }
    }
}
