//! Sorted sets: replies of their commands, large ones compared with small ones, and a comparison with a model.

use super::script::play;
use super::*;
use crate::command::{AddOptions, Aggregate, By, SetOperation, SortedCommand};
use crate::table::kind::Kind;
use crate::table::order::scored_parts;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_have_scores() {
    play(
        r#"
        ZADD z 1 a 2 b 3.5 c    -> 3
        ZADD z 1 a 5 b 7 d      -> 1
        ZADD z CH 1 a 6 b 8 e   -> 2
        ZCARD z                 -> 5
        ZSCORE z c              -> 3.5
        ZSCORE z x              -> nil
        ZMSCORE z a x e         -> [1 nil 8]
        ZINCRBY z 2.5 a         -> 3.5
        ZINCRBY z -1 new        -> -1
        ZADD z INCR 1 a         -> 4.5
        ZADD z inf i            -> 1
        ZINCRBY z -inf i        -> !ERR resulting score is not a number (NaN)
        ZSCORE z i              -> inf
        ZRANK z new             -> 0
        ZRANK z i               -> 6
        ZRANK z i WITHSCORE     -> [6 inf]
        ZREVRANK z i WITHSCORE  -> [0 inf]
        ZRANK z nosuch WITHSCORE -> aborted
        ZREVRANK z i            -> 0
        ZREVRANK z new          -> 6
        ZRANK z x               -> nil
        ZREM z i x a            -> 2
        ZRANGE z 0 -1           -> ["new" "c" "b" "d" "e"]
        ZREM z b c d e new      -> 5
        EXISTS z                -> 0
        ZSCORE z a              -> nil
        ZMSCORE z a b           -> [nil nil]
        ZCARD z                 -> 0
        ZRANK z a               -> nil
        ZREM z a                -> 0
        ZADD z -0 a             -> 1
        ZADD z CH 0 a           -> 0
    "#,
    );
}

#[test]
fn options_decide_which_scores_change() {
    play(
        r#"
        ZADD z 5 a              -> 1
        ZADD z NX CH 1 a 2 b    -> 1
        ZADD z XX CH 7 a 7 c    -> 1
        ZADD z GT CH 6 a 3 b 1 c -> 2
        ZADD z LT CH 6 a 9 b    -> 1
        ZADD z XX GT CH 1 a 9 d -> 0
        ZRANGE z 0 -1 WITHSCORES -> <"c":1 "b":3 "a":6>
        ZADD z NX INCR 1 a      -> nil
        ZADD z XX INCR 1 x      -> nil
        ZADD z GT INCR -1 a     -> nil
        ZADD z LT INCR -1 a     -> 5
        ZADD no XX 1 a          -> 0
        EXISTS no               -> 0
    "#,
    );
}

#[test]
fn ranges_go_by_rank_score_or_member() {
    play(
        r#"
        ZADD z 1 a 2 b 3 c 4 d  -> 4
        ZRANGE z 1 2            -> ["b" "c"]
        ZRANGE z 1 2 REV        -> ["c" "b"]
        ZRANGE z -2 9 WITHSCORES -> <"c":3 "d":4>
        ZRANGE z 5 9            -> []
        ZRANGE z (1 3 BYSCORE   -> ["b" "c"]
        ZRANGE z (1 (3 BYSCORE  -> ["b"]
        ZRANGE z -inf +inf BYSCORE LIMIT 1 2 -> ["b" "c"]
        ZRANGE z -inf +inf BYSCORE REV LIMIT 1 2 -> ["c" "b"]
        ZRANGE z -inf inf BYSCORE LIMIT 3 9 -> ["d"]
        ZRANGE z 3 2 BYSCORE    -> []
        ZRANGE z (4 9 BYSCORE   -> []
        ZCOUNT z 2 3            -> 2
        ZCOUNT z (2 +inf        -> 2
        ZCOUNT no 2 3           -> 0
        ZADD l 0 a 0 b 0 bb 0 c -> 4
        ZRANGE l - + BYLEX      -> ["a" "b" "bb" "c"]
        ZRANGE l [b [bb BYLEX   -> ["b" "bb"]
        ZRANGE l (b (c BYLEX    -> ["bb"]
        ZRANGE l + + BYLEX      -> []
        ZRANGE l [b + BYLEX REV LIMIT 0 2 -> ["c" "bb"]
        ZLEXCOUNT l [b +        -> 3
        ZLEXCOUNT l - (b        -> 1
        ZADD m 1 a 2 b 3 c 4 d  -> 4
        ZRANGE m [b (d BYLEX    -> ["b" "c"]
        ZRANGE m (b [d BYLEX    -> ["c" "d"]
        ZREMRANGEBYLEX l [b [bb -> 2
        ZREMRANGEBYRANK z 0 0   -> 1
        ZREMRANGEBYSCORE z (2 3 -> 1
        ZRANGE z 0 -1           -> ["b" "d"]
        ZREMRANGEBYRANK z 0 -1  -> 2
        EXISTS z                -> 0
        ZREMRANGEBYRANK z 0 -1  -> 0
        ZRANGESTORE d l 0 0     -> 1
        ZRANGE d 0 -1 WITHSCORES -> <"a":0>
        ZRANGESTORE d l 5 9     -> 0
        EXISTS d                -> 0
    "#,
    );
}

#[test]
fn members_are_popped_at_both_ends() {
    play(
        r#"
        ZADD z 1 a 2 b 3 c 4 d 5 e -> 5
        ZPOPMIN z               -> ["a" 1]
        ZPOPMAX z               -> ["e" 5]
        ZPOPMAX z 2             -> <"d":4 "c":3>
        ZPOPMIN z 0             -> []
        ZMPOP no z MIN 5        -> ["z" [["b" 2]]]
        ZMPOP no z MIN 5        -> aborted
        ZPOPMIN z               -> []
        ZPOPMIN z 3             -> []
        EXISTS z                -> 0
    "#,
    );
}

#[test]
fn several_sorted_sets_are_combined() {
    play(
        r#"
        ZADD a 1 x 2 y 3 z      -> 3
        ZADD b 10 x 20 y 5 q    -> 3
        SADD s x w              -> 2
        ZUNION a b WITHSCORES   -> <"z":3 "q":5 "x":11 "y":22>
        ZUNION a b              -> ["z" "q" "x" "y"]
        ZUNION a s WITHSCORES   -> <"w":1 "x":2 "y":2 "z":3>
        ZINTER a b MAX WITHSCORES -> <"x":10 "y":20>
        ZINTER a b MIN WITHSCORES -> <"x":1 "y":2>
        ZINTER a no             -> []
        ZDIFF a b WITHSCORES    -> <"z":3>
        ZDIFF no a              -> []
        ZUNIONSTORE d WEIGHTS a 2 b 1 -> 4
        ZRANGE d 0 -1 WITHSCORES -> <"q":5 "z":6 "x":12 "y":24>
        ZINTERSTORE d WEIGHTS a -1 b 1 -> 2
        ZRANGE d 0 -1 WITHSCORES -> <"x":9 "y":18>
        ZDIFFSTORE d d a        -> 0
        EXISTS d                -> 0
        ZINTERCARD 0 a b        -> 2
        ZINTERCARD 1 a b s      -> 1
        ZINTERCARD 0 a no       -> 0
        ZADD i inf m            -> 1
        ZADD j -inf m           -> 1
        ZUNION i j WITHSCORES   -> <"m":0>
    "#,
    );
}

#[test]
fn commands_on_sorted_sets_refuse_other_types_and_the_reverse() {
    let mut store = Store::new();
    store.play("ZADD z 1 a -> 1\nSET v v -> OK\nSADD s a -> 1");
    for line in [
        "ZADD v 1 a",
        "ZADD s INCR 1 a",
        "ZINCRBY v 1 a",
        "ZREM s a",
        "ZCARD v",
        "ZSCORE s a",
        "ZMSCORE v a",
        "ZRANK v a",
        "ZCOUNT v 1 2",
        "ZRANGE s 0 1",
        "ZRANGESTORE d v 0 1",
        "ZREMRANGEBYRANK v 0 1",
        "ZPOPMIN v",
        "ZMPOP no v MIN 1",
        "ZRANDMEMBER v",
        "ZSCAN v 0 10",
        "ZUNION no v",
        "ZINTER v no",
        "ZDIFF z v",
        "ZUNIONSTORE d v z",
        "ZINTERCARD 0 z v",
        "GET z",
        "SADD z a",
        "LPUSH z a",
        "SINTER z s",
    ] {
        store.play(&format!("{line} -> {WRONGTYPE}"));
    }
    store.play("TYPE z -> zset\nENCODING z -> \"listpack\"\nMGET z -> [nil]");
    let long = "m".repeat(65);
    store.play(&format!("ZADD z 1 {long} -> 1\nENCODING z -> \"skiplist\""));
}

/// Adds the numbers below `end`, each with itself as score.
fn fill(store: &mut Store, end: usize) {
    let texts: Vec<String> = (0..end).map(|number| number.to_string()).collect();
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, texts.iter().flat_map(|text| [text.as_bytes(), text.as_bytes()]));
    let add = SortedCommand::Add { key: b"z", pairs, options: AddOptions::default(), counts_changes: false };
    assert_eq!(store.apply(&Command::OnSorted(add)), end.to_string());
}

#[test]
fn large_sorted_sets_answer_as_small_ones() {
    let mut store = Store::new();
    fill(&mut store, 3000);
    store.play(
        r#"
        ENCODING z              -> "skiplist"
        ZRANK z 1234            -> 1234
        ZREVRANK z 0            -> 2999
        ZSCORE z 2999           -> 2999
        ZRANGE z (1000 1003 BYSCORE -> ["1001" "1002" "1003"]
        ZCOUNT z 500 599        -> 100
        ZINCRBY z 5000 7        -> 5007
        ZRANK z 7               -> 2999
        COPY z copy             -> 1
        ZREMRANGEBYSCORE z 10 2989 -> 2980
        ZCARD z                 -> 20
        ZSCORE z 500            -> nil
        ZSCORE copy 500         -> 500
        ZPOPMAX z               -> ["7" 5007]
        ZREMRANGEBYRANK z 3 -1  -> 16
        ZRANGE z 0 -1           -> ["0" "1" "2"]
        ZADD z 9 500            -> 1
        ZRANGE z 0 -1 WITHSCORES -> <"0":0 "1":1 "2":2 "500":9>
        ZCARD copy              -> 3000
        ZREMRANGEBYRANK copy 0 -1 -> 3000
        EXISTS copy             -> 0
        DEL z                   -> 1
    "#,
    );
    assert_eq!(store.table.entry_bytes, 0);
    while store.table.tidy(100) {}
}

#[test]
fn a_snapshot_has_a_large_sorted_set_as_it_was_when_the_snapshot_began() {
    let mut store = Store::new();
    fill(&mut store, 1000);
    let (digest, floor) = (store.table.digest(), store.table.version_floor());
    let id = store.table.begin_snapshot();
    let (mut copy, mut chunks) = (Table::new(7), 0);
    loop {
        let mut chunk = Vec::new();
        let more = store.table.snapshot_chunk(id, 100, &mut chunk);
        copy.install(&chunk).unwrap();
        chunks += 1;
        if !more {
            break;
        }
        if chunks == 9 {
            store.play("ZREMRANGEBYRANK z 5 900 -> 896");
        }
    }
    copy.set_version_floor(floor);
    assert_eq!(copy.digest(), digest);
    let mut copy = Store { table: copy, ..Store::new() };
    copy.play("ZSCORE z 777 -> 777\nZRANK z 777 -> 777\nZINCRBY z 1 777 -> 778\nZCARD z -> 1000");
}

#[test]
fn a_chunk_with_an_invalid_sorted_set_is_refused() {
    let mut store = Store::new();
    store.play("ZADD z 1 member 2 others -> 2");
    let id = store.table.begin_snapshot();
    let mut chunk = Vec::new();
    store.table.snapshot_chunk(id, 1000, &mut chunk);
    assert_eq!(Table::new(2).install(&chunk), Ok(1));
    let at = chunk.windows(6).position(|window| window == b"others").unwrap();
    let mut twice = chunk.clone();
    twice[at..at + 6].copy_from_slice(b"member");
    assert!(Table::new(2).install(&twice).is_err());
    chunk[at - 8..at].copy_from_slice(&[0xff; 8]); // Not a number.
    assert!(Table::new(2).install(&chunk).is_err());
}

#[test]
fn a_scan_returns_members_that_stay_exactly_once() {
    let mut store = Store::new();
    fill(&mut store, 500);
    let (mut position, mut seen, mut number) = (0, Vec::new(), 0);
    loop {
        let scan = SortedCommand::Scan { key: b"z", position, count: 7, pattern: None };
        let answer = store.read(&Command::OnSorted(scan));
        let mut words = answer.split('"').skip(1).step_by(2).map(str::to_owned);
        position = words.next().unwrap().parse().unwrap();
        seen.extend(words.step_by(2).map(|word| word.parse::<u32>().unwrap()));
        if position == 0 {
            break;
        }
        // Move one member to another rank. After 30 steps most members are removed.
        number += 1;
        store.play(&format!("ZINCRBY z 1000 {number} -> {}", number + 1000));
        if number == 30 {
            store.play("ZREMRANGEBYSCORE z 100 499 -> 400");
        }
    }
    let mut stayed: Vec<u32> = seen.iter().copied().filter(|member| *member < 100).collect();
    stayed.sort_unstable();
    assert!(stayed.into_iter().eq(0..100));
    store.play(
        "ZADD s 1.5 a 2 b -> 2\nZSCAN s 0 MATCH a -> [\"0\" [\"a\" \"1.5\"]]\nZSCAN no 0 9 -> [\"0\" []]\n\
         ZSCAN s 0 NOSCORES -> [\"0\" [\"a\" \"b\"]]",
    );
}

#[test]
fn members_are_drawn_at_random() {
    let mut store = Store::new();
    fill(&mut store, 100);
    let mut draw = |count| {
        let answer =
            store.read(&Command::OnSorted(SortedCommand::Random { key: b"z", count, with_scores: false }));
        answer.matches('"').count() / 2
    };
    assert_eq!([draw(None), draw(Some(7)), draw(Some(-7)), draw(Some(1000))], [1, 7, 7, 100]);
    let seen: BTreeSet<String> = (0..2000)
        .map(|_| {
            store.read(&Command::OnSorted(SortedCommand::Random {
                key: b"z",
                count: None,
                with_scores: false,
            }))
        })
        .collect();
    assert_eq!(seen.len(), 100, "each of them");
    store.play("ZADD s 5 a -> 1\nZRANDMEMBER s -2 WITHSCORES -> <\"a\":5 \"a\":5>");
    store.play("ZRANDMEMBER no -> nil\nZRANDMEMBER no 2 -> []");
}

/// A command on one of a few sorted sets, as an encoded record.
pub(super) fn sorted_record() -> impl Strategy<Value = super::model::Record> {
    let key = || (0..4u8).prop_map(|number| format!("key{number}").into_bytes());
    let member = || prop_oneof![9 => (0..30u8).prop_map(|number| vec![number]), 1 => vec(any::<u8>(), 0..90)];
    let score = || prop_oneof![9 => (-5..6i32).prop_map(|it| it.to_string()), 1 => Just("inf".to_owned())];
    (key(), vec(key(), 1..4), vec((score(), member()), 1..12), any::<[bool; 5]>(), 0..7i64, 0..14u8).prop_map(
        |(key, keys, pairs, flags, count, which)| {
            use SetOperation::*;
            let (key, mut scratch, mut more) = (&key[..], Vec::new(), Vec::new());
            let (score, member) = (pairs[0].0.as_bytes(), &pairs[0].1[..]);
            let options = match flags {
                [true, true, ..] => AddOptions { only_new: true, ..AddOptions::default() },
                [true, false, only_old, true, _] => {
                    AddOptions { only_old, only_greater: true, ..AddOptions::default() }
                }
                [true, false, only_old, false, _] => AddOptions { only_old, ..AddOptions::default() },
                [false, ..] => AddOptions::default(),
            };
            let start = (count - 3).to_string();
            let command = match which {
                0..6 => {
                    let items = pairs.iter().flat_map(|(score, member)| [score.as_bytes(), &member[..]]);
                    let pairs = List::build(&mut scratch, items);
                    SortedCommand::Add { key, pairs, options, counts_changes: flags[4] }
                }
                6 | 7 => SortedCommand::Increment { key, delta: score, member, options },
                8 => {
                    let members = List::build(&mut scratch, pairs.iter().map(|(_, member)| &member[..]));
                    SortedCommand::Remove { key, members }
                }
                9 => {
                    SortedCommand::Pop { key, is_highest: flags[0], count: flags[1].then_some(count as u64) }
                }
                10 => {
                    let ends = List::build(&mut scratch, [start.as_bytes(), &b"2"[..]]);
                    SortedCommand::RemoveRange { key, by: By::Score, ends }
                }
                11 => {
                    let ends = List::build(&mut scratch, [start.as_bytes(), &b"3"[..]]);
                    SortedCommand::RemoveRange { key, by: By::Rank, ends }
                }
                12 => {
                    let ends = List::build(&mut scratch, [start.as_bytes(), &b"-1"[..]]);
                    let (from, by, is_reverse) = (&keys[0][..], By::Rank, flags[0]);
                    SortedCommand::StoreRange { to: key, from, by, ends, is_reverse, skip: 1, count: 20 }
                }
                _ => {
                    let operation = [Intersection, Union, Difference][count as usize % 3];
                    let inputs = List::build(&mut more, keys.iter().map(Vec::as_slice));
                    let aggregate =
                        [Aggregate::Sum, Aggregate::Least, Aggregate::Greatest][count as usize % 2];
                    SortedCommand::Store { to: key, operation, inputs, is_weighted: false, aggregate }
                }
            };
            super::model::Record::of(&Command::OnSorted(command))
        },
    )
}

type Scores = BTreeMap<Vec<u8>, f64>;

/// The members in the order of scores.
fn in_order(scores: &Scores) -> Vec<(f64, Vec<u8>)> {
    let mut all: Vec<_> = scores.iter().map(|(member, score)| (*score, member.clone())).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    all
}

/// The effect of a command on sorted sets, in the simplest code.
fn carry_out(sets: &mut BTreeMap<Vec<u8>, Scores>, command: &SortedCommand<'_>) {
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<f64>().unwrap();
    let of = |sets: &BTreeMap<Vec<u8>, Scores>, key: &[u8]| sets.get(key).cloned().unwrap_or_default();
    let set = |scores: &mut Scores, member: &[u8], score: f64, options: AddOptions| {
        let before = scores.get(member).copied();
        let is_allowed = match before {
            None => !options.only_old,
            Some(before) => !options.only_new && (!options.only_greater || score > before),
        };
        if is_allowed && !score.is_nan() {
            scores.insert(member.to_vec(), score);
        }
    };
    let ranks = |length: usize, start: f64, end: f64| {
        let place = |rank: f64| if rank < 0.0 { rank + length as f64 } else { rank };
        let (start, end) = (place(start).max(0.0) as usize, (place(end) + 1.0).max(0.0) as usize);
        start.min(length)..end.min(length).max(start.min(length))
    };
    match *command {
        SortedCommand::Add { key, pairs, options, .. } => {
            let scores = sets.entry(key.to_vec()).or_default();
            pairs.pairs().for_each(|(score, member)| set(scores, member, number(score), options));
        }
        SortedCommand::Increment { key, delta, member, options } => {
            let scores = sets.entry(key.to_vec()).or_default();
            let sum = scores.get(member).copied().unwrap_or(0.0) + number(delta);
            set(scores, member, sum, options);
        }
        SortedCommand::Remove { key, members } => {
            let scores = sets.entry(key.to_vec()).or_default();
            members.iter().for_each(|member| _ = scores.remove(member));
        }
        SortedCommand::Pop { key, is_highest, count } => {
            let scores = sets.entry(key.to_vec()).or_default();
            let mut all = in_order(scores);
            if is_highest {
                all.reverse();
            }
            all.iter().take(count.unwrap_or(1) as usize).for_each(|(_, member)| _ = scores.remove(member));
        }
        SortedCommand::RemoveRange { key, by, ends } => {
            let scores = sets.entry(key.to_vec()).or_default();
            let ends: Vec<f64> = ends.iter().map(number).collect();
            let all = in_order(scores);
            let gone: Vec<_> = match by {
                By::Rank => all[ranks(all.len(), ends[0], ends[1])].to_vec(),
                _ => all.into_iter().filter(|(score, _)| (ends[0]..=ends[1]).contains(score)).collect(),
            };
            gone.iter().for_each(|(_, member)| _ = scores.remove(member));
        }
        SortedCommand::StoreRange { to, from, ends, is_reverse, skip, count, .. } => {
            let ends: Vec<f64> = ends.iter().map(number).collect();
            let mut all = in_order(&of(sets, from));
            if is_reverse {
                all.reverse();
            }
            let range =
                all[ranks(all.len(), ends[0], ends[1])].iter().skip(skip as usize).take(count as usize);
            sets.insert(to.to_vec(), range.map(|(score, member)| (member.clone(), *score)).collect());
        }
        SortedCommand::Store { to, operation, inputs, aggregate, .. } => {
            let mut all: Vec<Scores> = inputs.iter().map(|key| of(sets, key)).collect();
            if operation != SetOperation::Difference {
                all.sort_by_key(|scores| scores.len());
            }
            let mut result = all[0].clone();
            for other in &all[1..] {
                for (member, score) in other {
                    match (operation, result.get(member).copied()) {
                        (SetOperation::Difference, _) => drop(result.remove(member)),
                        (_, Some(held)) => {
                            let sum = match aggregate {
                                Aggregate::Sum if (held + score).is_nan() => 0.0,
                                Aggregate::Sum => held + score,
                                Aggregate::Least => held.min(*score),
                                Aggregate::Greatest => held.max(*score),
                            };
                            result.insert(member.clone(), sum);
                        }
                        (SetOperation::Union, None) => drop(result.insert(member.clone(), *score)),
                        (SetOperation::Intersection, None) => {}
                    }
                }
                if operation == SetOperation::Intersection {
                    result.retain(|member, _| other.contains_key(member));
                }
            }
            sets.insert(to.to_vec(), result);
        }
        _ => {}
    }
    sets.retain(|_, scores| !scores.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sorted_sets_match_a_simple_model(records in vec(sorted_record(), 0..120)) {
        let (mut store, mut sets) = (Store::new(), BTreeMap::new());
        for record in &records {
            let Command::OnSorted(command) = record.command() else { panic!("a command on sorted sets") };
            store.apply(&record.command());
            carry_out(&mut sets, &command);
            prop_assert_eq!(store.table.len(), sets.len(), "{:?}", command);
            for (key, scores) in &sets {
                let (items, _) = store.table.items_of(key, Kind::Sorted, 1).unwrap();
                let members: Vec<Vec<u8>> = items.iter_from(0).map(|item| scored_parts(item).1.to_vec()).collect();
                let expected: Vec<Vec<u8>> = in_order(scores).into_iter().map(|(_, member)| member).collect();
                prop_assert_eq!(members, expected, "{:?}", command);
                for (rank, (score, member)) in in_order(scores).into_iter().enumerate() {
                    let answer = store.read(&Command::OnSorted(SortedCommand::Score { key, member: &member }));
                    prop_assert_eq!(answer, score.to_string());
                    let rank_of = SortedCommand::Rank { key, member: &member, is_reverse: false };
                    prop_assert_eq!(store.read(&Command::OnSorted(rank_of)), rank.to_string());
                }
            }
            for entry in store.table.index.iter() {
                entry.collection().inspect(|collection| collection.check_invariants());
            }
            store.table.check_invariants();
        }
    }
}
