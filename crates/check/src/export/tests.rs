//! Small histories and their exported forms.

use super::*;

fn history(lines: &[&str]) -> History {
    let mut history = History::new();
    history.read(lines.join("\n").as_bytes()).unwrap();
    history
}

fn exported(lines: &[&str], checker: Checker) -> (Vec<String>, Exported) {
    let mut output = Vec::new();
    let exported = history(lines).export(checker, None, &mut output).unwrap();
    (String::from_utf8(output).unwrap().lines().map(str::to_owned).collect(), exported)
}

fn refusal(lines: &[&str], checker: Checker) -> String {
    let mut output = Vec::new();
    let error = history(lines).export(checker, None, &mut output).unwrap_err();
    assert!(matches!(error, ExportError::Refused(_)) && output.is_empty(), "{error}");
    error.to_string()
}

const SET: &str =
    r#"{"client":7,"operation":"set","key":"k","value":"a\"b","start":10,"end":20,"outcome":"ok"}"#;
const OPEN: &str = r#"{"client":7,"operation":"set","key":"k","value":"c","start":30,"outcome":"unknown"}"#;
const READ: &str =
    r#"{"client":7,"operation":"get","key":"k","value":"a\"b","start":40,"end":50,"outcome":"ok"}"#;
const UNREAD: &str = r#"{"client":8,"operation":"get","key":"k","start":41,"outcome":"unknown"}"#;
const REFUSED: &str =
    r#"{"client":8,"operation":"set","key":"k","value":"d","start":45,"end":46,"outcome":"failed"}"#;
const IF_ABSENT: &str = r#"{"client":7,"operation":"set-if-absent","key":"k","value":"e","applied":false,"start":60,"end":61,"outcome":"ok"}"#;
const SWAP: &str = r#"{"client":7,"operation":"compare-and-set","key":"k","expected":"a\"b","value":{"base64":"AP8="},"applied":true,"start":61,"end":70,"outcome":"ok"}"#;
const DELETE: &str = r#"{"client":7,"operation":"delete","key":"k","start":80,"end":90,"outcome":"ok"}"#;
const DELETED: &str =
    r#"{"client":7,"operation":"delete","key":"k","applied":true,"start":80,"end":90,"outcome":"ok"}"#;
const ADD: &str =
    r#"{"client":7,"operation":"increment","key":"n","delta":2,"sum":2,"start":80,"end":90,"outcome":"ok"}"#;
const ACQUIRE: &str = r#"{"client":1,"operation":"acquire","lock":"l","owner":"me","lease_ms":1,"token":5,"start":10,"end":20,"outcome":"ok"}"#;
const DENIED: &str = r#"{"client":2,"operation":"acquire","lock":"l","owner":"you","lease_ms":1,"token":null,"start":30,"end":40,"outcome":"ok"}"#;
const VAIN: &str = r#"{"client":2,"operation":"acquire","lock":"l","owner":"you","lease_ms":1,"wait":true,"token":null,"start":50,"end":60,"outcome":"ok"}"#;
const RELEASE: &str =
    r#"{"client":1,"operation":"release","lock":"l","token":5,"start":70,"outcome":"unknown"}"#;
const NEXT: &str = r#"{"client":3,"operation":"acquire","lock":"l","owner":"they","lease_ms":1,"token":6,"start":100,"queued":105,"end":110,"outcome":"ok"}"#;

#[test]
fn porcupine_gets_everything_that_can_have_happened() {
    let (lines, summary) =
        exported(&[SET, OPEN, READ, UNREAD, REFUSED, IF_ABSENT, SWAP, DELETED, ADD], Checker::Porcupine);
    assert_eq!(
        lines,
        [
            r#"{"client":7,"input":{"operation":"set","key":"k","value":"a\"b"},"call":10,"output":{},"return":20}"#,
            r#"{"client":7,"input":{"operation":"set","key":"k","value":"c"},"call":30}"#,
            r#"{"client":7,"input":{"operation":"get","key":"k"},"call":40,"output":{"value":"a\"b"},"return":50}"#,
            r#"{"client":7,"input":{"operation":"set-if-absent","key":"k","value":"e"},"call":60,"output":{"applied":false},"return":61}"#,
            r#"{"client":7,"input":{"operation":"compare-and-set","key":"k","expected":"a\"b","value":{"base64":"AP8="}},"call":61,"output":{"applied":true},"return":70}"#,
            r#"{"client":7,"input":{"operation":"delete","key":"k"},"call":80,"output":{"applied":true},"return":90}"#,
            r#"{"client":7,"input":{"operation":"increment","key":"n","delta":2},"call":80,"output":{"sum":2},"return":90}"#,
        ]
    );
    assert_eq!(summary, Exported { operations: 7, ..Exported::default() });
}

#[test]
fn porcupine_gets_locks_with_leases() {
    let (lines, summary) = exported(&[ACQUIRE, DENIED, VAIN, RELEASE, NEXT], Checker::Porcupine);
    assert_eq!(
        lines,
        [
            r#"{"client":1,"input":{"operation":"acquire","lock":"l","owner":"me","lease_ms":1},"call":10,"output":{"token":5},"return":20}"#,
            r#"{"client":2,"input":{"operation":"acquire","lock":"l","owner":"you","lease_ms":1},"call":30,"output":{"token":null},"return":40}"#,
            r#"{"client":2,"input":{"operation":"acquire","lock":"l","owner":"you","lease_ms":1},"call":50}"#,
            r#"{"client":1,"input":{"operation":"release","lock":"l","token":5},"call":70}"#,
            r#"{"client":3,"input":{"operation":"acquire","lock":"l","owner":"they","lease_ms":1},"call":100,"output":{"token":6},"return":110}"#,
        ]
    );
    assert_eq!(summary.left_out, BTreeMap::from([("places in a lock's queue", 1)]));
}

/// An unknown outcome ends the process, and operations that touch at one instant are concurrent.
#[test]
fn knossos_gets_a_key_as_a_register() {
    let (lines, summary) =
        exported(&[SET, OPEN, READ, UNREAD, REFUSED, IF_ABSENT, SWAP, DELETE], Checker::Knossos);
    assert_eq!(
        lines,
        [
            r#"{:index 0, :time 10, :process 0, :type :invoke, :f :write, :value :absent}"#,
            r#"{:index 1, :time 10, :process 0, :type :ok, :f :write, :value :absent}"#,
            r#"{:index 2, :time 10, :process 1, :type :invoke, :f :write, :value "a\"b"}"#,
            r#"{:index 3, :time 20, :process 1, :type :ok, :f :write, :value "a\"b"}"#,
            r#"{:index 4, :time 30, :process 1, :type :invoke, :f :write, :value "c"}"#,
            r#"{:index 5, :time 40, :process 2, :type :invoke, :f :read, :value nil}"#,
            r#"{:index 6, :time 45, :process 3, :type :invoke, :f :write, :value "d"}"#,
            r#"{:index 7, :time 46, :process 3, :type :fail, :f :write, :value "d"}"#,
            r#"{:index 8, :time 50, :process 2, :type :ok, :f :read, :value "a\"b"}"#,
            r#"{:index 9, :time 60, :process 2, :type :invoke, :f :cas, :value [:absent "e"]}"#,
            r#"{:index 10, :time 61, :process 4, :type :invoke, :f :cas, :value ["a\"b" [:bytes 0 255]]}"#,
            r#"{:index 11, :time 61, :process 2, :type :fail, :f :cas, :value [:absent "e"]}"#,
            r#"{:index 12, :time 70, :process 4, :type :ok, :f :cas, :value ["a\"b" [:bytes 0 255]]}"#,
            r#"{:index 13, :time 80, :process 4, :type :invoke, :f :write, :value :absent}"#,
            r#"{:index 14, :time 90, :process 1, :type :info, :f :write, :value "c"}"#,
            r#"{:index 15, :time 90, :process 4, :type :ok, :f :write, :value :absent}"#,
        ]
    );
    assert_eq!(summary.left_out, BTreeMap::from([("conditions that did not hold (:fail)", 1)]));
}

#[test]
fn knossos_gets_a_lock_as_a_mutex_if_no_lease_ran_out() {
    let (lines, _) = exported(&[ACQUIRE, DENIED, VAIN, RELEASE, NEXT], Checker::Knossos);
    let ends: Vec<&str> = lines.iter().map(|line| line.split_once(":process ").unwrap().1).collect();
    assert_eq!(
        ends,
        [
            "0, :type :invoke, :f :acquire, :value nil}",
            "0, :type :ok, :f :acquire, :value nil}",
            "1, :type :invoke, :f :acquire, :value nil}",
            "1, :type :fail, :f :acquire, :value nil}",
            "1, :type :invoke, :f :acquire, :value nil}",
            "0, :type :invoke, :f :release, :value nil}",
            "2, :type :invoke, :f :acquire, :value nil}",
            "1, :type :info, :f :acquire, :value nil}",
            "0, :type :info, :f :release, :value nil}",
            "2, :type :ok, :f :acquire, :value nil}",
        ]
    );
    let late = RELEASE.replace("70", "1000011");
    for lines in [&[ACQUIRE, NEXT][..], &[ACQUIRE, &late, NEXT]] {
        let why = refusal(lines, Checker::Knossos);
        assert!(why.contains("may have run out") && why.ends_with("client 1 that began at 10 ns"), "{why}");
    }
}

#[test]
fn elle_gets_transactions_of_reads_and_writes() {
    let (lines, _) = exported(&[SET, OPEN, READ, SWAP], Checker::Elle);
    let ends: Vec<&str> = lines.iter().map(|line| line.split_once(":type ").unwrap().1).collect();
    assert_eq!(
        ends,
        [
            r#":invoke, :f :txn, :value [[:w "k" "a\"b"]]}"#,
            r#":ok, :f :txn, :value [[:w "k" "a\"b"]]}"#,
            r#":invoke, :f :txn, :value [[:w "k" "c"]]}"#,
            r#":invoke, :f :txn, :value [[:r "k" nil]]}"#,
            r#":ok, :f :txn, :value [[:r "k" "a\"b"]]}"#,
            r#":invoke, :f :txn, :value [[:r "k" nil] [:w "k" [:bytes 0 255]]]}"#,
            r#":info, :f :txn, :value [[:w "k" "c"]]}"#,
            r#":ok, :f :txn, :value [[:r "k" "a\"b"] [:w "k" [:bytes 0 255]]]}"#,
        ]
    );
}

#[test]
fn operations_that_other_checkers_cannot_express_are_refused() {
    let session = r#"{"client":1,"operation":"open-session","session":"0-5","lease_ms":500,"start":10,"end":20,"outcome":"ok"}"#;
    let other = SET.replace("\"key\":\"k\"", "\"key\":\"other\"");
    let cases: [(&[&str], Checker, &str); 9] = [
        (&[session], Checker::Porcupine, "Porcupine has no words for a session"),
        (&[session], Checker::Elle, "Elle has no words for a session"),
        (&[ADD], Checker::Knossos, "Knossos has no words for an increment: the increment of client 7"),
        (&[DELETED], Checker::Knossos, "a delete that found something"),
        (&[SET, &other], Checker::Knossos, "one key or one lock at a time"),
        (&[DELETE], Checker::Elle, "Elle has no words for a delete"),
        (&[ADD], Checker::Elle, "an increment"),
        (&[ACQUIRE], Checker::Elle, "Elle has no words for locks"),
        (&[SET, REFUSED, SET], Checker::Elle, "a value that is written to a key twice"),
    ];
    for (lines, checker, reason) in cases {
        let why = refusal(lines, checker);
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn one_key_of_several_is_exported_by_itself() {
    let other = SET.replace("\"key\":\"k\"", "\"key\":\"other\"");
    let history = history(&[SET, &other, ACQUIRE, RELEASE]);
    let subjects: Vec<Subject> = history.subjects().into_iter().collect();
    assert_eq!(subjects.len(), 3);
    for (subject, operations) in subjects.into_iter().zip([1, 1, 2]) {
        let mut output = Vec::new();
        let exported = history.export(Checker::Knossos, Some(subject), &mut output).unwrap();
        assert_eq!(exported.operations, operations);
    }
}
