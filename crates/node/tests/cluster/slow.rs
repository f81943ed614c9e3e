//! `SLOWLOG` and `LATENCY`: which commands took long, and which clients sent them.

use crate::reading::Reply;
use crate::support::{Client, Cluster, setup};
use node::DebugCommand;

/// The requests in the log, the newest first.
fn logged(cluster: &mut Cluster, client: Client) -> Vec<String> {
    let entries = cluster.ask_for(client, "SLOWLOG GET -1").elements();
    let words = |entry: Reply| {
        entry.elements()[3].clone().elements().into_iter().map(Reply::text).collect::<Vec<_>>()
    };
    entries.into_iter().map(|entry| words(entry).join(" ")).collect()
}

/// Starts three nodes. A write of a client of node 2 takes at least four turns, a millisecond each.
fn three_nodes() -> (Cluster, Client, Client) {
    let mut cluster = setup(3, &["prefix= replication=consensus"])
        .with(|configuration| configuration.enable_debug_command = DebugCommand::Yes)
        .start();
    let (client, operator) = (cluster.client(2), cluster.client(2));
    (cluster, client, operator)
}

#[test]
fn commands_slower_than_the_threshold_are_logged_by_the_clients_node() {
    let (mut cluster, client, operator) = three_nodes();
    assert_eq!(cluster.ask(client, "CONFIG SET slowlog-log-slower-than 2000"), "OK");
    cluster.ask(client, "CLIENT SETNAME me");
    cluster.ask(client, "PING");
    let replies = cluster.pipeline(client, &["SET k v", "PING", "ECHO x", "SET k w"]);
    assert_eq!(replies, ["OK", "PONG", "\"x\"", "OK"]);
    assert_eq!(logged(&mut cluster, operator), ["SET k w", "SET k v"]);
    let entry = cluster.ask_for(operator, "SLOWLOG GET 1").elements().remove(0).elements();
    let Reply::Integer(took_us) = entry[2] else { panic!("{entry:?}") };
    assert!((2000..20_000).contains(&took_us), "{took_us}");
    assert_eq!((entry[0].to_string(), entry[5].to_string()), ("1".into(), "\"me\"".into()));
    let elsewhere = cluster.client(1);
    assert_eq!(cluster.ask(elsewhere, "SLOWLOG LEN"), "0");
    assert_eq!(cluster.ask(client, "SLOWLOG RESET"), "OK");
    assert_eq!(cluster.ask(client, "CONFIG SET slowlog-log-slower-than -1"), "OK");
    cluster.ask(client, "SET k v");
    assert_eq!(cluster.ask(client, "SLOWLOG LEN"), "0");
    assert_eq!(cluster.ask(client, "SLOWLOG GET -2"), "-ERR count should be greater than or equal to -1");
}

#[test]
fn a_threshold_of_zero_logs_all_commands_without_secrets() {
    let (mut cluster, client, operator) = three_nodes();
    cluster.ask(operator, "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 5");
    assert!(cluster.ask(operator, "CONFIG SET requirepass secret").starts_with("-ERR"));
    for request in ["GET k", "AUTH someone secret", "HELLO 2 AUTH someone secret SETNAME x", "BLPOP l 0.001"]
    {
        cluster.ask(client, request);
    }
    let expected = [
        "BLPOP l 0.001",
        "HELLO 2 AUTH (redacted) (redacted) SETNAME x",
        "AUTH (redacted) (redacted)",
        "GET k",
        "CONFIG SET requirepass (redacted)",
    ];
    assert_eq!(logged(&mut cluster, operator), expected);
    let entries = cluster.ask_for(operator, "SLOWLOG GET").elements();
    assert_eq!(
        entries[1].clone().elements()[2],
        Reply::Integer(0),
        "waiting for an element is no slowness: {entries:?}"
    );
}

#[test]
fn large_requests_and_replies_have_logs_of_their_own() {
    let (mut cluster, client, operator) = three_nodes();
    let lengths = |cluster: &mut Cluster| {
        ["slow", "large-request", "large-reply"]
            .map(|log| cluster.ask(operator, &format!("COMMANDLOG LEN {log}")))
    };
    let value = "A".repeat(1024);
    cluster.ask(client, &format!("SET before {value}"));
    cluster.ask(
        operator,
        "CONFIG SET commandlog-request-larger-than 1024 commandlog-reply-larger-than 1024 commandlog-execution-slower-than -1",
    );
    assert_eq!(
        cluster.ask(operator, "CONFIG GET slowlog-log-slower-than"),
        "[\"slowlog-log-slower-than\", \"-1\"]"
    );
    cluster.ask(client, "CLIENT SETNAME me");
    assert_eq!(lengths(&mut cluster), ["0", "0", "0"], "what is short, or came before");
    cluster.ask(client, &format!("SET k {value}"));
    cluster.ask(client, "GET k");
    cluster.ask(client, &format!("ECHO {value}"));
    cluster.turns(1); // What was answered at once is noted in the next turn.
    assert_eq!(lengths(&mut cluster), ["0", "2", "2"]);
    let entry = |cluster: &mut Cluster, log: &str| {
        cluster.ask_for(operator, &format!("COMMANDLOG GET 1 {log}")).elements().remove(0).elements()
    };
    let echoed = entry(&mut cluster, "large-request");
    let Reply::Integer(bytes) = echoed[2] else { panic!("{echoed:?}") };
    assert!((1024..1100).contains(&bytes), "{bytes}");
    assert!(
        echoed[3].to_string().contains("(896 more bytes)") && echoed[5].to_string() == "\"me\"",
        "{echoed:?}"
    );
    assert_eq!(cluster.ask(operator, "COMMANDLOG RESET large-reply"), "OK");
    assert_eq!(lengths(&mut cluster), ["0", "2", "0"]);
    cluster.ask(client, "GET k");
    assert_eq!(entry(&mut cluster, "large-reply")[3].to_string(), "[\"GET\", \"k\"]");
    // A threshold of zero logs everything.
    cluster.ask(operator, "CONFIG SET commandlog-reply-larger-than 0 commandlog-large-reply-max-len 3");
    for _ in 0..5 {
        cluster.ask(client, "PING");
    }
    cluster.turns(1);
    assert_eq!(cluster.ask(operator, "COMMANDLOG LEN large-reply"), "3");
    cluster.ask(operator, "CONFIG SET commandlog-reply-larger-than -1 commandlog-request-larger-than -1");
    cluster.ask(operator, "COMMANDLOG RESET large-request");
    cluster.ask(client, &format!("SET k {value}"));
    assert_eq!(lengths(&mut cluster), ["0", "0", "3"], "they are off");
    let wrong = "-ERR type should be one of the following: slow, large-request, large-reply";
    assert_eq!(cluster.ask(operator, "COMMANDLOG LEN nosuch"), wrong);
    let count = "-ERR count should be greater than or equal to -1";
    assert_eq!(cluster.ask(operator, "COMMANDLOG GET -2 slow"), count);
}

#[test]
fn events_and_histograms_show_the_times_of_commands() {
    let (mut cluster, client, operator) = three_nodes();
    cluster.ask(operator, "CONFIG SET latency-monitor-threshold 200");
    cluster.ask(client, "DEBUG SLEEP 0.3");
    let history = cluster.ask_for(operator, "LATENCY HISTORY command").elements();
    let Reply::Integer(took_ms) = history[0].clone().elements()[1] else { panic!("{history:?}") };
    assert!((300..310).contains(&took_ms), "{took_ms}");
    let latest = cluster.ask(operator, "LATENCY LATEST");
    assert!(
        latest.starts_with("[[\"command\", ") && latest.ends_with(&format!(", {took_ms}, {took_ms}]]")),
        "{latest}"
    );
    assert!(cluster.ask(operator, "LATENCY GRAPH command").contains("command - high 30"));
    assert!(cluster.ask(operator, "LATENCY DOCTOR").contains("1 seconds with slow ones"));
    assert_eq!(cluster.ask(operator, "LATENCY RESET nosuch"), "0");
    assert_eq!(cluster.ask(operator, "LATENCY RESET"), "1");
    assert_eq!(
        cluster.ask(operator, "LATENCY GRAPH command"),
        "-ERR No samples available for event 'command'"
    );

    cluster.ask(client, "CONFIG RESETSTAT");
    cluster.pipeline(client, &["CLIENT ID", "CLIENT GETNAME", "CLIENT ID", "SET k v"]);
    let expected = "[\"client|id\", [\"calls\", 2, \"histogram_usec\", [1, 2]], \
                    \"client|getname\", [\"calls\", 1, \"histogram_usec\", [1, 1]]]";
    assert_eq!(cluster.ask(operator, "LATENCY HISTOGRAM nosuch client"), expected);
    let written = cluster.ask(operator, "LATENCY HISTOGRAM SET");
    assert!(written.starts_with("[\"set\", [\"calls\", 1, \"histogram_usec\", ["), "{written}");
}

/// The field of an answer to `HOTKEYS GET`.
fn counted(cluster: &mut Cluster, client: Client, name: &str) -> Option<Reply> {
    let mut fields = cluster.ask_for(client, "HOTKEYS GET").elements().remove(0).elements().into_iter();
    while let Some(field) = fields.next() {
        let value = fields.next();
        if field.text() == name {
            return value;
        }
    }
    None
}

#[test]
fn the_keys_with_most_traffic_are_counted_while_an_operator_wants_it() {
    let (mut cluster, client, operator) = three_nodes();
    assert_eq!(cluster.ask(operator, "HOTKEYS GET"), "nil");
    assert_eq!(cluster.ask(operator, "HOTKEYS STOP"), "nil");
    assert_eq!(cluster.ask(operator, "CONFIG SET slowlog-log-slower-than -1"), "OK");
    assert_eq!(cluster.ask(operator, "HOTKEYS START METRICS 2 CPU NET COUNT 2"), "OK");
    let error = "-ERR hotkey tracking session already in progress";
    assert_eq!(cluster.ask(operator, "HOTKEYS START METRICS 1 NET"), error);
    let error = "-ERR hotkey tracking session in progress, stop tracking first";
    assert_eq!(cluster.ask(operator, "HOTKEYS RESET"), error);
    cluster.ask(client, &format!("SET read {}", "x".repeat(1000)));
    for _ in 0..5 {
        cluster.ask(client, "GET read");
    }
    cluster.pipeline(client, &["SET cold 1", "PING", "MULTI", "SET written 1", "SET written 22", "EXEC"]);
    // Refused, so not counted.
    cluster.ask(operator, "ACL SETUSER default -hset");
    cluster.ask(client, &format!("HSET refused f {}", "x".repeat(2000)));
    let keys = counted(&mut cluster, operator, "by-net-bytes").expect("bytes are counted").elements();
    assert_eq!((keys[0].to_string(), keys[2].to_string()), ("\"read\"".into(), "\"written\"".into()));
    // Keys and values of a SET and five GETs, without RESP's heads: replies arrive from another node, and
    // count, too.
    let Reply::Integer(bytes) = keys[1] else { panic!("{keys:?}") };
    assert!((6000..6400).contains(&bytes), "{bytes}");
    assert_eq!(counted(&mut cluster, operator, "tracking-active"), Some(Reply::Integer(1)));
    assert_eq!(cluster.ask(operator, "HOTKEYS STOP"), "OK");
    cluster.ask(client, &format!("SET late {}", "x".repeat(9000)));
    let after = counted(&mut cluster, operator, "by-net-bytes").expect("still there").elements();
    assert_eq!(format!("{after:?}"), format!("{keys:?}"));
    assert_eq!(counted(&mut cluster, operator, "tracking-active"), Some(Reply::Integer(0)));
    assert_eq!(cluster.ask(operator, "HOTKEYS RESET"), "OK");
    assert_eq!(cluster.ask(operator, "HOTKEYS GET"), "nil");
}
