//! The table is compared with Redis's own: what a client reads from `COMMAND` decides how it routes and what it may retry, and
//! flags, categories and keys decide what a user may do.

use super::*;
use crate::spec::{Begin, Category, Find, Flag, KeyFlag, KeySpec};
use std::collections::BTreeSet;

/// Facts about each command of Redis; the file says how they were gathered.
const FACTS: &str = include_str!("redis-7.0.15.txt");

/// The differences that are meant, under their reasons. `-`: only Redis has it, `+`: only this table.
const DELIBERATE: &[(&str, &[&str])] = &[
    (
        "users are the whole cluster's, and so in a category of our own; every node has to agree, which no transaction waits for",
        &[
            "acl|deluser: categories +cluster",
            "acl|deluser: flags +no_multi",
            "acl|setuser: categories +cluster",
            "acl|setuser: flags +no_multi",
        ],
    ),
    (
        "it changes the cluster map for all nodes, as our other commands of operators do, and needs a node that serves",
        &[
            "cluster|failover: categories +cluster",
            "cluster|failover: flags -no_async_loading +loading +no_multi +noscript",
        ],
    ),
    (
        "every node has to agree on a library, which no transaction and no script waits for",
        &[
            "function|delete: flags +no_multi",
            "function|flush: flags +no_multi",
            "function|load: flags +no_multi",
            "function|restore: flags +no_multi",
            "swapdb: flags +no_multi +noscript",
        ],
    ),
    (
        "they are done in several steps on several groups, or ask one, and so are no step of a transaction or of a script",
        &["move: flags +no_multi +noscript"],
    ),
    (
        "Redis does not mark them, but in a transaction it refuses them as well or does nothing useful",
        &[
            "client|reply: flags +no_multi",
            "replconf: flags +no_multi",
            "wait: flags +no_multi",
            "watch: flags +no_multi",
        ],
    ),
    ("in the records of scripts: nodes of release 1 refuse it there", &["latency|help: flags +noscript"]),
    ("an option of Redis 7.2", &["zrank: arity -3 +-3", "zrevrank: arity -3 +-3"]),
    ("only a node of Redis that fails over sends more arguments", &["psync: arity --3 +3"]),
    (
        "they return entries, a score, or the result of comparing scores, which a user without the right to read must not learn",
        &[
            "xautoclaim: keys -RW,delete:index=1:range=0,1,0 +RW,access,delete:index=1:range=0,1,0",
            "xclaim: keys -RW,update:index=1:range=0,1,0 +RW,access,update:index=1:range=0,1,0",
            "zadd: keys -RW,update:index=1:range=0,1,0 +RW,access,update,variable_flags:index=1:range=0,1,0",
        ],
    ),
    (
        "slots are moved, and nodes added, by KEYSPACE and CLUSTER commands of our own",
        &[
            "cluster|addslots: missing",
            "cluster|addslotsrange: missing",
            "cluster|bumpepoch: missing",
            "cluster|count-failure-reports: missing",
            "cluster|delslots: missing",
            "cluster|delslotsrange: missing",
            "cluster|flushslots: missing",
            "cluster|forget: missing",
            "cluster|meet: missing",
            "cluster|replicate: missing",
            "cluster|saveconfig: missing",
            "cluster|set-config-epoch: missing",
            "cluster|setslot: missing",
            "migrate: missing",
            "restore-asking: missing",
        ],
    ),
    ("leaders change by the cluster's own rules", &["failover: missing"]),
    ("there are no modules", &["module|load: missing", "module|loadex: missing", "module|unload: missing"]),
    (
        "it is refused, with the reason",
        &["cluster|reset: categories +cluster", "cluster|reset: flags +loading"],
    ),
    ("they are for the developers of Redis", &["pfdebug: missing", "pfselftest: missing"]),
];

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

fn described(spec: &KeySpec) -> String {
    let begin = match spec.begin {
        Begin::At(at) => format!("index={at}"),
        Begin::After(word, from) => format!("keyword={word},{from}"),
        Begin::AfterUnsure(..) | Begin::Unknown => "unknown".into(),
    };
    let find = match spec.find {
        _ if begin == "unknown" => "unknown".into(),
        Find::Range { last, step } => format!("range={last},{step},0"),
        Find::Half => "range=-1,1,2".into(),
        Find::Counted { step } => format!("keynum=0,1,{step}"),
    };
    format!("{}:{begin}:{find}", sorted(spec.access.iter().map(KeyFlag::name)))
}

/// What differs between two lists of words, with the sign of the list that has it.
fn difference(theirs: &str, ours: &str) -> String {
    let words = |list: &'_ str| {
        list.split(',').filter(|word| !matches!(*word, "" | "-")).map(str::to_string).collect::<BTreeSet<_>>()
    };
    let (theirs, ours) = (words(theirs), words(ours));
    let only = |sign: char, one: &BTreeSet<String>, other: &BTreeSet<String>| {
        one.difference(other).map(|word| format!(" {sign}{word}")).collect::<String>()
    };
    only('-', &theirs, &ours) + &only('+', &ours, &theirs)
}

/// The differences between a line of [`FACTS`] and the table, each with the command's name.
fn differences(line: &str) -> Vec<String> {
    let columns: Vec<&str> = line.split(' ').collect();
    let [name, arity, flags, places, categories, keys @ ..] = &columns[..] else { panic!("{line}") };
    let Some(spec) = by_full_name(name.as_bytes()) else { return vec![format!("{name}: missing")] };
    let ((first, last, step), _) = spec.keys.legacy();
    let our_flags = sorted(spec.shown_flags().iter().map(Flag::name));
    let our_categories = sorted(spec.categories().iter().map(Category::name));
    let our_keys: Vec<String> = spec.keys.iter().map(described).collect();
    let pair = |theirs: &str, ours: &str| match theirs == ours {
        true => String::new(),
        false => format!(" -{theirs} +{ours}"),
    };
    let found = [
        ("arity", pair(arity, &spec.arity.to_string())),
        ("flags", difference(flags, &our_flags)),
        ("places", pair(places, &format!("{first},{last},{step}"))),
        ("categories", difference(categories, &our_categories)),
        ("keys", pair(&keys.join(" "), &our_keys.join(" "))),
    ];
    let found = found.into_iter().filter(|(_, difference)| !difference.is_empty());
    found.map(|(what, difference)| format!("{name}: {what}{difference}")).collect()
}

#[test]
fn commands_are_described_as_by_redis() {
    let lines = FACTS.lines().filter(|line| !line.starts_with('#'));
    assert!(lines.clone().count() > 300);
    let found: BTreeSet<String> = lines.flat_map(differences).collect();
    let meant: BTreeSet<String> =
        DELIBERATE.iter().flat_map(|(_, them)| them.iter()).map(|it| it.to_string()).collect();
    let new: Vec<_> = found.difference(&meant).collect();
    assert!(new.is_empty(), "not as in Redis, and not among the deliberate differences: {new:#?}");
    let gone: Vec<_> = meant.difference(&found).collect();
    assert!(gone.is_empty(), "no longer different from Redis; remove them from the list: {gone:#?}");
}
