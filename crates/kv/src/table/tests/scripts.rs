//! Scripts: what a script may do with the table, and how its writes are undone.

use super::*;
use crate::command::{Deadline, Draft, Script, ScriptLimits, ScriptOptions};
use crate::limits::SCRIPT_PUBLISHED_BYTES_MAX;
use crate::table::Interpreter;
use crate::table::{Access, ScriptRefusal};

const SCRIPT_LIMITS: ScriptLimits = ScriptLimits { value_bytes_max: 100, cost_max: 1000 };

/// A language for tests: each line of the text is a command in the syntax of these tests, `undo`, or `publish` with a
/// message. The reply contains the result of each line.
#[derive(Debug)]
pub(super) struct Lines;

impl Interpreter for Lines {
    fn run(&self, script: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let text = String::from_utf8(script.text().to_vec()).unwrap();
        let mut answer = Vec::new();
        for line in text.lines().map(str::trim) {
            if line == "undo" {
                access.undo();
                continue;
            }
            if let Some(message) = line.strip_prefix("publish ") {
                answer.push(match access.publish(false, b"channel", message.as_bytes()) {
                    Ok(is_taken) => is_taken.to_string(),
                    Err(_) => "writes".into(),
                });
                continue;
            }
            let words: Vec<Vec<u8>> = line.split_whitespace().map(script::word).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let (mut scratch, mut reply) = (Vec::new(), ReplyBuffer::new());
            answer.push(match access.call(&script::parse(&words, &mut scratch), &mut reply) {
                Ok(()) => text_of(&reply),
                Err(ScriptRefusal::Write) => "writes".into(),
                Err(ScriptRefusal::Undeclared(key)) => format!("undeclared {}", key.escape_ascii()),
                Err(ScriptRefusal::NotInMemory(key)) => format!("not in memory {}", key.escape_ascii()),
                Err(ScriptRefusal::NotInScripts) => "not in scripts".into(),
                Err(ScriptRefusal::NoRoom) => "no room".into(),
                Err(ScriptRefusal::LooksAround) => "looks around".into(),
                Err(ScriptRefusal::HasLookedAround) => "has looked around".into(),
                Err(ScriptRefusal::TooMuch) => "too much".into(),
            });
        }
        out.push(Reply::Status(answer.join(", ").replace('"', "").as_bytes()));
    }
}

impl Store {
    pub(super) fn scripted() -> Store {
        let mut store = Store::new();
        store.table.set_interpreter(&Lines);
        store
    }

    fn eval(&mut self, text: &str, keys: &[&str]) -> String {
        self.eval_as(text, keys, true)
    }

    fn eval_as(&mut self, text: &str, keys: &[&str], writes: bool) -> String {
        self.eval_in(text, keys, &[], writes)
    }

    pub(super) fn eval_in(&mut self, text: &str, keys: &[&str], extent: &[&str], writes: bool) -> String {
        let mut scratch = Vec::new();
        let inputs = keys.iter().map(|key| key.as_bytes());
        let extent = extent.iter().map(|prefix| prefix.as_bytes());
        let (text, count) = (text.as_bytes(), keys.len());
        let script = Script::build_in(&mut scratch, text, inputs, count, extent, SCRIPT_LIMITS, writes);
        let command = Command::Script(script.expect("so many keys there are"));
        if writes { self.apply(&command) } else { self.read(&command) }
    }
}

#[test]
fn a_script_uses_undeclared_keys_of_its_extent_and_undo_restores_them() {
    let mut store = Store::scripted();
    store.play("SET p:a 1 -> OK");
    let answer = store.eval_in("GET p:a\nSET p:b 2\nSET p:x:c 3\nGET q", &["p:d"], &["p:", "p:x:"], true);
    assert_eq!(answer, "1, OK, undeclared p:x:c, undeclared q");
    assert_eq!(store.eval_in("GET p:b\nGET p:x:c", &[], &["p:", "p:x:"], false), "2, undeclared p:x:c");
    assert_eq!((store.version("p:a"), store.version("p:b")), (1, 2));
    store.eval_in("DEL p:a\nSET p:b 9\nSET p:new 1\nSET p:new 2\nSET p:d 1\nundo", &["p:d"], &["p:"], true);
    assert_eq!(store.eval_in("KEYS *\nKEYS *b", &[], &["p:", "p:x:"], false), "[p:a p:b], [p:b]");
    store.play("GET p:a -> \"1\"\nGET p:b -> \"2\"\nGET p:new -> nil\nGET p:d -> nil");
    assert_eq!((store.version("p:a"), store.version("p:b")), (1, 2));
}

#[test]
fn a_script_uses_only_declared_keys() {
    let mut store = Store::scripted();
    store.play("SET a 1 -> OK\nSET c 3 -> OK");
    let answer = store.eval("GET a\nINCRBY b 4\nGET c\nRENAME a c\nRENAME a b", &["b", "a", "b"]);
    assert_eq!(answer, "1, 4, undeclared c, undeclared c, OK");
    assert_eq!(store.read(&Command::Get { key: b"b" }), "\"1\"");
    assert_eq!(store.eval("GET a", &[]), "undeclared a");
}

#[test]
fn scripts_cannot_use_commands_on_all_keys_or_of_the_cluster() {
    let mut store = Store::scripted();
    store.set("k", "v");
    for line in ["KEYS *", "RANDOMKEY", "DBSIZE", "FLUSHALL", "PURGE 9", "FETCH k", "REPLICATE k w 9"] {
        assert_eq!(store.eval(line, &["k"]), "not in scripts", "{line}");
    }
}

/// Builds a script that runs by the rules of release 2, for a table of one shard.
fn by_second_rules<'a>(text: &str, scratch: &'a mut Vec<u8>, extent: &[&str], writes: bool) -> Command<'a> {
    let extent = extent.iter().map(|prefix| prefix.as_bytes());
    let script =
        Script::build_in(scratch, text.as_bytes(), [&b"k"[..]], 1, extent, SCRIPT_LIMITS, writes).unwrap();
    Command::Script(script.with_options(ScriptOptions { by_second_rules: true, ..ScriptOptions::default() }))
}

#[test]
fn a_script_may_look_around_if_it_does_not_write() {
    let mut store = Store::scripted();
    store.set("k", "v");
    let mut scratch = Vec::new();
    let mut eval =
        |text: &str, extent: &[&str]| store.apply(&by_second_rules(text, &mut scratch, extent, true));
    assert_eq!(eval("SCAN\nDBSIZE\nRANDOMKEY\nGET k", &[""]), "[0 [k]], 1, k, v");
    assert_eq!(eval("DBSIZE\nSET k w\nGET k", &[""]), "1, has looked around, v");
    assert_eq!(
        eval("SET k v\nDBSIZE\nSCAN\nMEMORY k\nSET k w", &[""]),
        "OK, looks around, looks around, looks around, OK"
    );
    // Without an extent other keys of its keyspace are elsewhere.
    assert_eq!(
        eval("DBSIZE\nSCAN\nRANDOMKEY\nMEMORY other", &[]),
        "not in scripts, not in scripts, not in scripts, undeclared other"
    );
    let bytes = store.read(&Command::MemoryUsage { key: b"k" });
    let answer = store.apply(&by_second_rules("MEMORY k\nMEMORY other", &mut scratch, &[""], true));
    assert_eq!(answer, format!("{bytes}, nil"));
}

/// What such a command answers decides what a run costs, and thereby what the scripts behind it may do.
#[test]
fn a_script_looks_around_in_no_transaction_that_may_write() {
    let mut store = Store::scripted();
    let mut scratch = Vec::new();
    for (writes, expected) in [(true, "[looks around]"), (false, "[0]")] {
        let mut draft = Draft::default();
        assert!(draft.push(&by_second_rules("DBSIZE", &mut scratch, &[""], writes)));
        let transaction = Command::Transaction(draft.transaction());
        let answer = if writes { store.apply(&transaction) } else { store.read(&transaction) };
        assert_eq!(answer, expected);
    }
}

#[test]
fn replicas_that_answer_differently_stay_equal() {
    let mut stores = [1, 2].map(|seed| {
        let mut store = Store { table: Table::new(seed), ..Store::scripted() };
        store.table.set_interpreter(&Lines);
        (0..20).for_each(|number| store.set(&format!("k{number}"), "v"));
        store
    });
    let mut scratch = Vec::new();
    let script = by_second_rules("SCAN\nSET k w\nDEL k1", &mut scratch, &[""], true);
    let [first, second] = stores.each_mut().map(|store| store.apply(&script));
    assert_ne!(first, second, "their keys are in different orders");
    for store in &mut stores {
        assert!(store.version("k1") > 0 && store.version("k") == 0);
    }
}

#[test]
fn a_script_that_may_only_read_cannot_write() {
    let mut store = Store::scripted();
    store.set("a", "1");
    assert_eq!(store.eval_as("GET a\nINCRBY a 1\nGET a", &["a"], false), "1, writes, 1");
    assert_eq!(store.version("a"), 1);
}

#[test]
fn a_script_reports_the_keys_it_has_read_on_request() {
    let mut table = Table::new(1);
    table.set_interpreter(&Lines);
    let options = ScriptOptions { tells_reads: true, ..ScriptOptions::default() };
    let mut reads_of = |texts: &[&str], writes: bool| {
        let mut scratches = vec![Vec::new(); texts.len()];
        let keys = [&b"p:b"[..], b"p:a"];
        let scripts: Vec<Command<'_>> = (texts.iter().zip(&mut scratches))
            .map(|(text, scratch)| {
                let extent = [&b"p:"[..]];
                let script =
                    Script::build_in(scratch, text.as_bytes(), keys, 2, extent, SCRIPT_LIMITS, writes);
                Command::Script(script.unwrap().with_options(options))
            })
            .collect();
        let mut draft = Draft::default();
        scripts.iter().for_each(|script| assert!(draft.push(script)));
        let together = Command::Transaction(draft.transaction());
        let command = if let [only] = &scripts[..] { only } else { &together };
        let mut out = ReplyBuffer::new();
        out.ok();
        match writes {
            true => _ = table.apply(command, 1, 1, &mut out),
            false => _ = table.read(command, 1, &mut out),
        }
        let (reads, rest) =
            ReplyBuffer::split_reads(&out.as_bytes()[1..]).expect("the reply names the keys that were read");
        assert!(matches!(Reply::first(rest), Reply::Status(_) | Reply::Array(2)));
        let keys: Vec<String> = reads.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        keys.join(" ")
    };
    assert_eq!(reads_of(&["SET p:b 1\nDEL p:c"], true), "", "it only writes");
    assert_eq!(reads_of(&["GET p:b\nSET p:x 1"], true), "p:b", "not all that was declared");
    assert_eq!(reads_of(&["EXISTS p:c p:d\nGET q"], true), "p:c p:d", "a refused key does not count");
    assert_eq!(reads_of(&["GET p:c"], false), "p:c");
    assert_eq!(reads_of(&["GET p:c", "GET p:d"], true), "p:c p:d", "a transaction reports the keys once");
    assert_eq!(reads_of(&["SET p:b 2", "SET p:a 1"], true), "");
}

/// As in Redis: a script that has already written may continue.
#[test]
fn in_a_full_keyspace_a_script_may_not_enlarge_the_data_first() {
    let mut store = Store::scripted();
    store.set("a", "1");
    let mut eval = |text: &str| {
        let mut scratch = Vec::new();
        let keys = [&b"a"[..], b"b"];
        let script = Script::build(&mut scratch, text.as_bytes(), keys, 2, SCRIPT_LIMITS, true).unwrap();
        let options = ScriptOptions { is_in_full: true, ..ScriptOptions::default() };
        store.apply(&Command::Script(script.with_options(options)))
    };
    assert_eq!(eval("GET a\nSET b 2\nGET b\nAPPEND a x"), "1, no room, nil, no room");
    assert_eq!(eval("DEL b\nSET b 2\nGET b"), "0, OK, 2");
}

#[test]
fn messages_of_a_script_leave_only_with_its_reply() {
    let mut table = Table::new(1);
    table.set_interpreter(&Lines);
    let mut published = |text: &str, writes: bool, is_asked: bool| {
        let mut scratch = Vec::new();
        let script = Script::build(&mut scratch, text.as_bytes(), [], 0, SCRIPT_LIMITS, writes).unwrap();
        let mut out = ReplyBuffer::new();
        match (writes, is_asked) {
            (true, true) => _ = table.apply(&Command::Script(script), 1, 1, &mut out),
            (true, false) => table.apply_unasked(&Command::Script(script), 1, 1),
            (false, _) => _ = table.read(&Command::Script(script), 1, &mut out),
        }
        assert!(!table.unasked.has_announcements());
        let messages = out.take_announcements().into_iter();
        messages.map(|it| String::from_utf8(it.message.into()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(published("publish one\npublish two", true, true), ["one", "two"]);
    assert!(published("publish one", true, false).is_empty(), "a follower sends no reply");
    assert!(published("publish one", false, true).is_empty(), "every replica may answer a read");
    assert_eq!(published("publish one\nundo\npublish two", true, true), ["two"]);
    let long = "x".repeat(SCRIPT_PUBLISHED_BYTES_MAX / 2);
    let answer = published(&format!("publish {long}\npublish {long}\npublish short"), true, true);
    assert_eq!(answer, [long, "short".into()], "a message beyond the limit is refused");
}

#[test]
fn all_writes_of_a_script_have_one_version() {
    let mut store = Store::scripted();
    store.eval("SET a 1\nSET b 2\nINCRBY a 1", &["a", "b"]);
    assert_eq!((store.version("a"), store.version("b")), (1, 1));
    store.set("c", "3");
    assert_eq!(store.version("c"), 2);
}

#[test]
fn undo_restores_every_key_with_its_version_and_expiry() {
    let mut store = Store::scripted();
    store.play("SET a 1 -> OK\nSET b 2 PX 500 -> OK\nSET gone x PX 10 -> OK\nwait 20");
    let snapshot = store.table.begin_snapshot();
    let before = (store.table.len(), store.table.expires());
    let text = "SET a 9\nDEL b\nSET new 1\nSET gone 2\nPERSIST a\nRENAME a b\nundo";
    store.eval(text, &["a", "b", "new", "gone"]);
    assert_eq!((store.version("a"), store.version("b"), store.version("new")), (1, 2, 0));
    assert_eq!((store.table.len(), store.table.expires()), before);
    store.table.end_snapshot(snapshot);
    store.play("GET a -> \"1\"\nPTTL b -> 480\nGET gone -> nil\nGET new -> nil\nwait 480\nGET b -> nil");
    store.set("d", "x");
    assert!(store.version("d") > 4, "versions that were used up are not used again");
}

#[test]
fn a_transaction_can_hold_scripts() {
    let mut store = Store::scripted();
    let mut draft = crate::command::Draft::default();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let deadline = Deadline::In(5);
    let expire = Command::Expire { key: b"a", deadline, condition: crate::command::ExpireCondition::Always };
    let write =
        Script::build(&mut first, b"SET a 1\nSET a 2\nundo", [&b"a"[..]], 1, SCRIPT_LIMITS, true).unwrap();
    let read = Script::build(&mut second, b"GET a", [&b"a"[..]], 1, SCRIPT_LIMITS, false).unwrap();
    store.set("a", "0");
    for command in [Command::Script(read), expire, Command::Script(write), Command::Script(read)] {
        assert!(draft.push(&command));
    }
    let reply = store.apply(&Command::Transaction(draft.transaction()));
    assert_eq!(reply, "[0 1 OK, OK 0]");
    store.play("PTTL a -> 5");
}

/// A language with one program: the second key gets what the first one held, and the first one `new`.
#[derive(Debug)]
struct Moves;

impl Interpreter for Moves {
    fn run(&self, script: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let keys: Vec<&[u8]> = script.keys().collect();
        let set = |key, value, answer| Command::Set {
            key,
            value,
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer,
        };
        let mut before = ReplyBuffer::new();
        access.call(&set(keys[0], b"new", SetAnswer::Before), &mut before).unwrap();
        let Reply::Bulk(value) = Reply::first(before.as_bytes()) else { return out.null() };
        access.call(&set(keys[1], value, SetAnswer::Status), out).unwrap();
    }
}

#[test]
fn a_script_sees_the_same_replies_where_its_own_reply_is_dropped() {
    let mut tables = [Store::new(), Store::new()];
    let mut scratch = Vec::new();
    let script = Script::build(&mut scratch, b"", [&b"a"[..], b"b"], 2, SCRIPT_LIMITS, true).unwrap();
    for store in &mut tables {
        store.table.set_interpreter(&Moves);
        store.set("a", "old");
    }
    let [leader, follower] = &mut tables;
    assert_eq!(leader.apply(&Command::Script(script)), "OK");
    follower.table.apply_unasked(&Command::Script(script), 2, follower.time);
    for store in [leader, follower] {
        store.play("GET a -> \"new\"\nGET b -> \"old\"");
    }
}

#[test]
fn a_table_without_an_interpreter_refuses_scripts() {
    assert_eq!(Store::new().eval("GET a", &["a"]), "!ERR there is nothing here that runs scripts");
}
