//! Any node accepts any command: it forwards what it does not lead, and reports the true outcome.

use crate::support::{Cluster, assert_error, setup};

fn three_nodes() -> Cluster {
    setup(3, &["prefix= acks=majority"]).start()
}

#[test]
fn a_client_of_any_node_writes_and_reads_through_the_leader() {
    let mut cluster = three_nodes();
    for node in 1..=3 {
        let client = cluster.client(node);
        assert_eq!(cluster.ask(client, &format!("SET from:{node} v{node}")), "OK");
        assert_eq!(cluster.ask(client, &format!("GET from:{node}")), format!("\"v{node}\""));
        assert_eq!(cluster.ask(client, "INCR counter"), node.to_string());
    }
    let client = cluster.client(3);
    assert_eq!(cluster.ask(client, "MGET from:1 from:2 nothing"), r#"["v1", "v2", nil]"#);
}

#[test]
fn an_error_of_a_forwarded_command_is_only_the_clients_reply() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.ask(client, "SET k text");
    assert_eq!(cluster.ask(client, "INCR k"), "-ERR value is not an integer or out of range");
    assert_eq!(cluster.ask(client, "RENAME nothing k"), "-ERR no such key");
    assert_eq!(cluster.ask(client, "GET k"), "\"text\"");
}

#[test]
fn replies_come_in_the_order_of_the_requests_from_any_node() {
    let keyspaces = ["prefix= acks=majority", "prefix=b: acks=none leader=2", "prefix=c: acks=all leader=3"];
    let mut cluster = setup(3, &keyspaces).start();
    let client = cluster.client(2);
    let requests = [
        "SET a 1",
        "PING",
        "SET b:k 2",
        "GET a",
        "ECHO x",
        "SET c:k 3",
        "GET b:k",
        "GET",
        "INCR c:k",
        "GET a",
    ];
    let wrong = "-ERR wrong number of arguments for 'get' command";
    let replies = ["OK", "PONG", "OK", "\"1\"", "\"x\"", "OK", "\"2\"", wrong, "4", "\"1\""];
    assert_eq!(cluster.pipeline(client, &requests), replies);
}

#[test]
fn a_pipelined_read_sees_the_write_before_it_from_every_node() {
    let mut cluster = setup(3, &["prefix= acks=all"]).start();
    for node in 1..=3 {
        let client = cluster.client(node);
        let mut expected = Vec::new();
        for number in 0..50 {
            cluster.send(client, &format!("SET k {number}"));
            cluster.send(client, "GET k");
            expected.extend(["OK".to_string(), format!("\"{number}\"")]);
        }
        let replies: Vec<String> = expected.iter().map(|_| cluster.reply(client)).collect();
        assert_eq!(replies, expected, "at node {node}");
    }
}

#[test]
fn a_pipelined_read_does_not_see_the_write_after_it() {
    for settings in ["replication=consensus", "replication=consensus lease=off", "acks=all", "acks=none"] {
        let mut cluster = setup(3, &[&format!("prefix= {settings}")]).start();
        for node in 1..=3 {
            let client = cluster.client(node);
            let lines =
                ["SET k a", "GET k", "APPEND k b", "STRLEN k", "APPEND k c", "GET k", "DEL k", "GET k"];
            let expected = ["OK", "\"a\"", "2", "2", "3", "\"abc\"", "1", "nil"];
            assert_eq!(cluster.pipeline(client, &lines), expected, "{settings}, at node {node}");
        }
    }
}

#[test]
fn a_write_whose_link_is_lost_before_it_arrives_is_unknown_and_did_not_happen() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.send(client, "SET k v");
    cluster.turn(); // Node 2 sends the write …
    cluster.break_link(1, 2); // … which never arrives.
    assert_error(&cluster.reply(client), "UNKNOWN");
    cluster.mend_link(1, 2);
    cluster.settle();
    assert_eq!(cluster.ask(client, "GET k"), "nil");
}

#[test]
fn a_write_whose_answer_is_lost_is_unknown_and_did_happen() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.send(client, "INCR k");
    let at_leader = cluster.client(1);
    cluster.until("the write takes effect", |cluster| cluster.ask(at_leader, "EXISTS k") == "1");
    // The answer, if it has been sent, is still in flight.
    assert_eq!(cluster.arrived(client), None);
    cluster.break_link(1, 2);
    assert_error(&cluster.reply(client), "UNKNOWN");
    cluster.mend_link(1, 2);
    cluster.settle();
    assert_eq!(cluster.ask(client, "GET k"), "\"1\"", "it is never tried a second time");
}

#[test]
fn a_read_whose_link_is_lost_is_retried_when_the_link_is_back() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    for is_mended in [true, false] {
        cluster.send(client, "GET k");
        cluster.turn();
        cluster.break_link(1, 2);
        cluster.turns(100);
        assert_eq!(cluster.arrived(client), None);
        if is_mended {
            cluster.mend_link(1, 2);
            assert_eq!(cluster.reply(client), "nil");
        } else {
            assert_error(&cluster.reply(client), "NOLEADER");
        }
    }
}

#[test]
fn without_a_link_to_the_leader_commands_time_out_and_are_not_done() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.break_link(1, 2);
    let requests = ["SET k v", "INCR k", "GET k", "WAIT 1 0", "DBSIZE"];
    let took_ms = cluster.time(|cluster| {
        requests.iter().for_each(|request| cluster.send(client, request));
        for _ in requests {
            let reply = cluster.reply(client);
            assert_error(&reply, "NOLEADER");
            assert!(reply.starts_with("-CLUSTERDOWN") && reply.contains("nothing was done"), "{reply}");
        }
    });
    assert!((4900..5500).contains(&took_ms), "{took_ms}");
    cluster.mend_link(1, 2);
    cluster.settle();
    assert_eq!(cluster.ask(client, "EXISTS k"), "0");
}

#[test]
fn requests_that_wait_for_a_link_to_the_leader_go_on_in_order() {
    let mut cluster = three_nodes();
    let (client, other) = (cluster.client(2), cluster.client(2));
    cluster.break_link(1, 2);
    for number in 0..50 {
        cluster.send(client, &format!("SET k {number}"));
        cluster.send(client, "GET k");
        cluster.send(other, "INCR other");
    }
    cluster.turns(1000);
    assert_eq!((cluster.arrived(client), cluster.arrived(other)), (None, None));
    cluster.mend_link(1, 2);
    for number in 0..50 {
        assert_eq!(cluster.reply(client), "OK");
        assert_eq!(cluster.reply(client), format!("\"{number}\""));
        assert_eq!(cluster.reply(other), (number + 1).to_string());
    }
}

#[test]
fn a_pipeline_interrupted_by_a_broken_link_is_answered_whole_and_in_order() {
    let mut cluster = three_nodes();
    let client = cluster.client(2);
    cluster.send(client, "SET k v");
    cluster.send(client, "GET k");
    cluster.send(client, "PING");
    cluster.turn();
    cluster.break_link(1, 2);
    cluster.send(client, "SET k w");
    let codes = [cluster.reply(client), cluster.reply(client), cluster.reply(client), cluster.reply(client)];
    assert_error(&codes[0], "UNKNOWN");
    assert_error(&codes[1], "NOLEADER");
    assert_eq!(codes[2], "PONG");
    assert_error(&codes[3], "NOLEADER");
}

#[test]
fn a_leader_that_does_not_answer_ends_a_write_as_unknown_and_a_read_as_refused() {
    let mut cluster = setup(3, &["prefix= acks=majority"])
        .with(|configuration| configuration.command_timeout_ms = 300)
        .start();
    let client = cluster.client(3);
    cluster.pause(1);
    let took_ms = cluster.time(|cluster| {
        cluster.send(client, "SET k v");
        cluster.send(client, "GET k");
        assert_error(&cluster.reply(client), "UNKNOWN");
        assert_error(&cluster.reply(client), "NOLEADER");
    });
    // The leader would have answered at the timeout; the rest is the time allowed for its answer.
    assert!((300..1500).contains(&took_ms), "{took_ms}");
}

#[test]
fn a_late_answer_is_not_given_to_another_request() {
    let mut cluster = setup(3, &["prefix= acks=majority"])
        .with(|configuration| configuration.command_timeout_ms = 300)
        .start();
    let client = cluster.client(2);
    cluster.pause(1);
    cluster.send(client, "SET k late");
    assert_error(&cluster.reply(client), "UNKNOWN");
    cluster.send(client, "ECHO meanwhile");
    cluster.send(client, "GET other");
    cluster.go_on(1);
    assert_eq!(cluster.reply(client), "\"meanwhile\"");
    assert_eq!(cluster.reply(client), "nil");
    cluster.settle();
    assert_eq!(cluster.arrived(client), None, "the late answer is dropped");
}

#[test]
fn pending_requests_of_a_client_that_leaves_are_dropped() {
    let mut cluster = three_nodes();
    let first = cluster.client(2);
    cluster.send(first, "INCR k");
    cluster.turn();
    cluster.node(2).disconnect(first.id);
    // The next client gets the same slot, and must not get the answer.
    let second = cluster.client(2);
    assert_eq!(second.id.index(), first.id.index());
    cluster.turns(20);
    assert_eq!(cluster.arrived(second), None);
    assert_eq!(cluster.ask(second, "GET k"), "\"1\"", "what was asked still happens");
}

/// A restarted node numbers its requests from the beginning: the leader's late answer to a request of an earlier
/// incarnation must not be taken for the answer to a new request with the same number.
#[test]
fn an_answer_to_a_node_that_died_is_not_given_to_a_client_of_its_next_incarnation() {
    let mut cluster = setup(3, &["prefix= acks=2"]).start();
    let lost = cluster.client(2);
    cluster.pause(3);
    cluster.send(lost, "SET k text");
    cluster.turns(5);
    cluster.kill(2);
    cluster.restart(2);
    let client = cluster.client(2);
    cluster.until("it is admitted", |cluster| cluster.keyspace(2, "default").role == "follower");
    cluster.send(client, "INCR counter");
    cluster.turns(5);
    cluster.go_on(3);
    assert_eq!(cluster.reply(client), "1");
}
