//! Transactions within one group: commands queued after `MULTI` take effect in one step, if no watched key has changed.

use crate::support::{Client, Cluster, assert_error, play, setup};

fn one_node() -> Cluster {
    setup(1, &[]).start()
}

/// Starts leader-follower and consensus, each on three nodes; node 1 leads the first.
fn both_protocols() -> [Cluster; 2] {
    ["prefix= acks=majority", "prefix= replication=consensus"].map(|keyspace| setup(3, &[keyspace]).start())
}

#[test]
fn both_protocols_execute_queued_commands_in_one_step_through_any_node() {
    for mut cluster in both_protocols() {
        for node in 1..=3 {
            let client = cluster.client(node);
            let script = "
                DEL a b     -> 0
                MULTI       -> OK
                SET a 1     -> QUEUED
                INCRBY a 4  -> QUEUED
                MGET a b    -> QUEUED
                SET b x EX 10 -> QUEUED
                EXEC        -> [OK, 5, [\"5\", nil], OK]
                TTL b       -> 10
                EXEC        -> -ERR EXEC without MULTI
                DEL a b     -> 2";
            play(&mut cluster, client, script);
        }
    }
}

#[test]
fn the_rules_and_their_errors_are_those_of_redis() {
    let (mut cluster, script) = (
        one_node(),
        "
        EXEC            -> -ERR EXEC without MULTI
        DISCARD         -> -ERR DISCARD without MULTI
        UNWATCH         -> OK
        MULTI           -> OK
        MULTI           -> -ERR MULTI calls can not be nested
        WATCH x         -> -ERR WATCH inside MULTI is not allowed
        SET k v         -> QUEUED
        EXEC            -> [OK]
        MULTI           -> OK
        EXEC            -> []
        MULTI           -> OK
        SET k w         -> QUEUED
        DISCARD         -> OK
        GET k           -> \"v\"
        MULTI           -> OK
        SET k w         -> QUEUED
        GET             -> -ERR wrong number of arguments for 'get' command
        EXEC            -> -EXECABORT Transaction discarded because of previous errors.
        GET k           -> \"v\"
        MULTI           -> OK
        CLIENT          -> -ERR wrong number of arguments for 'client' command
        SET k w         -> QUEUED
        EXEC            -> -EXECABORT Transaction discarded because of previous errors.
        MULTI           -> OK
        SET k w FOO     -> QUEUED
        INCRBY k abc    -> QUEUED
        MSET a b c      -> QUEUED
        SELECT 99       -> QUEUED
        INCR k          -> QUEUED
        SET k x         -> QUEUED
        EXEC            -> [-ERR syntax error, -ERR value is not an integer or out of range, -ERR wrong number of arguments for 'mset' command, -ERR DB index is out of range, -ERR value is not an integer or out of range, OK]
        GET k           -> \"x\"
        MULTI           -> OK
        WAIT 0 0        -> -ERR Command not allowed inside a transaction
        KEYSPACE DROP x -> -ERR Command not allowed inside a transaction
        EXEC            -> -EXECABORT Transaction discarded because of previous errors.
        MULTI           -> OK
        SET k y         -> QUEUED
        RESET           -> RESET
        EXEC            -> -ERR EXEC without MULTI
        MULTI           -> OK
        SET k y         -> QUEUED
        EXEC now        -> -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
        EXEC            -> -ERR EXEC without MULTI
        EXEC now        -> -EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command
        GET k           -> \"x\"
        ",
    );
    let client = cluster.client(1);
    play(&mut cluster, client, script);
    assert_error(&cluster.ask(client, "MULTI x"), "ERR");
    assert_eq!(cluster.pipeline(client, &["MULTI", "NOSUCH", "PING"])[0], "OK");
    assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");
    assert_eq!(cluster.pipeline(client, &["MULTI", "SET k z", "QUIT"]), ["OK", "QUEUED", "OK"]);
    assert!(cluster.is_closed(client));
    let other = cluster.client(1);
    assert_eq!(cluster.ask(other, "GET k"), "\"x\"", "queued commands are dropped with their client");
}

#[test]
fn commands_of_the_node_itself_are_executed_in_order_and_only_with_the_transaction() {
    for mut cluster in both_protocols() {
        let client = cluster.client(2);
        let script = "
            MULTI               -> OK
            PING                -> QUEUED
            SET k 1             -> QUEUED
            CLIENT SETNAME me   -> QUEUED
            ECHO hello          -> QUEUED
            GET k               -> QUEUED
            UNWATCH             -> QUEUED
            CLIENT GETNAME      -> QUEUED
            EXEC                -> [PONG, OK, OK, \"hello\", \"1\", OK, \"me\"]
            MULTI               -> OK
            PING                -> QUEUED
            CONFIG SET timeout x -> QUEUED
            ECHO hello          -> QUEUED";
        play(&mut cluster, client, script);
        let answer = cluster.ask(client, "EXEC");
        assert!(
            answer.starts_with("[PONG, -ERR CONFIG SET failed") && answer.ends_with(", \"hello\"]"),
            "{answer}"
        );
        // An aborted transaction has no effect.
        let script = "
            WATCH k             -> OK
            SET k 2             -> OK
            MULTI               -> OK
            CLIENT SETNAME you  -> QUEUED
            SET k 3             -> QUEUED
            EXEC                -> nil
            CLIENT GETNAME      -> \"me\"
            GET k               -> \"2\"";
        play(&mut cluster, client, script);
    }
}

#[test]
fn a_queued_request_is_in_the_list_of_clients() {
    let mut cluster = one_node();
    let (client, other) = (cluster.client(1), cluster.client(1));
    cluster.pipeline(client, &["MULTI", "GET k", "PING"]);
    let answer = cluster.ask(other, "CLIENT LIST");
    assert!(answer.contains("flags=x") && answer.contains("multi=2"), "{answer}");
    assert!(answer.contains("multi=-1"), "{answer}");
}

#[test]
fn an_abort_is_null_in_both_resp_versions() {
    let mut cluster = one_node();
    for (version, expected) in [(2, "*-1\r\n"), (3, "_\r\n")] {
        let client = cluster.client(1);
        cluster.ask(client, &format!("HELLO {version}"));
        cluster.pipeline(client, &["WATCH k", "INCR k", "MULTI", "GET k"]);
        cluster.stop_reading(client);
        cluster.send(client, "EXEC");
        let output = cluster.node(1).output(client.id).expect("it is connected");
        assert_eq!(String::from_utf8_lossy(&output.bytes), expected);
    }
}

#[test]
fn a_change_of_a_watched_key_aborts_through_any_nodes() {
    for mut cluster in both_protocols() {
        for (watcher, writer) in [(1, 1), (1, 2), (2, 1), (2, 3), (3, 3)] {
            let (client, other) = (cluster.client(watcher), cluster.client(writer));
            cluster.pipeline(client, &["SET k 1", "DEL absent"]);
            for (change, expected) in [
                ("SET k 1", "nil"),
                ("EXPIRE k 100", "nil"),
                ("SET other 1", "[OK]"),
                ("SET absent 1 XX", "[OK]"),
                ("DEL k", "nil"),
                ("SET absent 1", "nil"),
                ("FLUSHALL", "nil"),
            ] {
                assert_eq!(cluster.ask(client, "WATCH k absent"), "OK");
                cluster.ask(other, change);
                let answer = cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"]);
                assert_eq!(answer[2], expected, "{change}: {watcher} {writer}");
                // Any end of a transaction ends the watch.
                cluster.ask(other, "SET k 1");
                assert_eq!(cluster.pipeline(client, &["MULTI", "GET nothing", "EXEC"])[2], "[nil]");
            }
        }
    }
}

#[test]
fn creating_and_removing_a_watched_key_aborts() {
    for mut cluster in both_protocols() {
        let (client, other) = (cluster.client(2), cluster.client(3));
        cluster.ask(client, "WATCH k");
        cluster.pipeline(other, &["SET k 1", "DEL k"]);
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"])[2], "nil");
        cluster.ask(client, "WATCH k");
        cluster.ask(other, "SET k 1 PX 5");
        cluster.turns(300); // The key is removed by then.
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"])[2], "nil");
    }
}

#[test]
fn a_watched_key_that_expires_aborts_unless_it_had_expired_before() {
    for mut cluster in both_protocols() {
        let client = cluster.client(2);
        cluster.pipeline(client, &["SET k 1 PX 50", "WATCH k"]);
        cluster.turns(60);
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"])[2], "nil");
        cluster.ask(client, "SET l 1 PX 50");
        cluster.turns(60);
        assert_eq!(cluster.ask(client, "WATCH l"), "OK");
        cluster.turns(300);
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"])[2], "[OK]");
    }
}

#[test]
fn unwatch_and_discard_forget_what_was_watched() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    for forget in [&["UNWATCH"][..], &["MULTI", "DISCARD"], &["RESET"]] {
        cluster.pipeline(client, &["WATCH k", "INCR k"]);
        cluster.pipeline(client, forget);
        assert_eq!(cluster.pipeline(client, &["MULTI", "PING", "EXEC"])[2], "[PONG]", "{forget:?}");
    }
    // After MULTI, UNWATCH is queued, and comes too late.
    cluster.pipeline(client, &["WATCH k", "INCR k", "MULTI", "UNWATCH"]);
    assert_eq!(cluster.ask(client, "EXEC"), "nil");
}

#[test]
fn two_clients_that_count_with_watch_lose_no_step() {
    for mut cluster in both_protocols() {
        let clients = [cluster.client(1), cluster.client(2), cluster.client(3)];
        cluster.ask(clients[0], "SET n 0");
        let (mut done, mut aborted) = (0, 0);
        for _ in 0..10 {
            let values = clients.map(|client| {
                assert_eq!(cluster.ask(client, "WATCH n"), "OK");
                cluster.ask(client, "GET n").trim_matches('"').parse::<i64>().expect("a number")
            });
            for (client, value) in clients.iter().zip(values) {
                for request in ["MULTI", &format!("SET n {}", value + 1), "EXEC"] {
                    cluster.send(*client, request);
                }
            }
            for client in clients {
                match [cluster.reply(client), cluster.reply(client), cluster.reply(client)][2].as_str() {
                    "[OK]" => done += 1,
                    "nil" => aborted += 1,
                    other => panic!("{other}"),
                }
            }
        }
        assert_eq!((done, aborted), (10, 20));
        assert_eq!(cluster.ask(clients[0], "GET n"), "\"10\"");
    }
}

#[test]
fn a_pipeline_that_does_not_wait_for_its_watch_is_aborted_or_guarded() {
    for mut cluster in both_protocols() {
        for node in 1..=3 {
            let client = cluster.client(node);
            cluster.send(client, "WATCH k");
            let has_versions = cluster.node(node).wants_input(client.id);
            // A driver would read nothing more before the versions have arrived. This test ignores that.
            for request in ["MULTI", "SET k 1", "EXEC"] {
                cluster.send(client, request);
            }
            let answer: Vec<String> = (0..4).map(|_| cluster.reply(client)).collect();
            assert_eq!(answer[3], if has_versions { "[OK]" } else { "nil" }, "{answer:?}");
            assert!(cluster.node(node).wants_input(client.id));
        }
    }
}

#[test]
fn registers_execute_one_command_and_refuse_more_by_name() {
    for protocol in ["abd", "blocking"] {
        let mut cluster = setup(3, &[&format!("prefix= replication={protocol}")]).start();
        let client = cluster.client(2);
        cluster.ask(client, "MULTI");
        cluster.pipeline(client, &["PING", "SET k v"]);
        assert_eq!(cluster.ask(client, "EXEC"), "[PONG, OK]");
        assert_eq!(cluster.pipeline(client, &["MULTI", "GET k", "EXEC"])[2], "[\"v\"]");
        assert_eq!(cluster.pipeline(client, &["MULTI", "PING", "EXEC"])[2], "[PONG]");
        for requests in [&["SET k 1", "GET k"][..], &["GET k", "GET l"]] {
            cluster.ask(client, "MULTI");
            cluster.pipeline(client, requests);
            let answer = cluster.ask(client, "EXEC");
            assert!(answer.starts_with("-ERR MULTI needs several keys changed at one moment"), "{answer}");
        }
        let answer = cluster.ask(client, "WATCH k");
        assert!(answer.starts_with("-ERR WATCH needs one order of all writes"), "{answer}");
        assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
        // A key that could not be watched does not count as unchanged.
        assert_eq!(cluster.pipeline(client, &["MULTI", "PING", "EXEC"])[2], "nil");
        assert_eq!(cluster.pipeline(client, &["MULTI", "PING", "EXEC"])[2], "[PONG]");
        let answer = cluster.ask(client, "SET k w IFEQ v");
        assert!(answer.starts_with("-ERR SET IFEQ needs read-modify-write"), "{answer}");
        assert_eq!(cluster.ask(client, "DIGEST nothing"), "nil");
    }
}

#[test]
fn a_transaction_whose_link_is_lost_is_unknown_or_retried() {
    for mut cluster in both_protocols() {
        let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads");
        let client = cluster.client(leader % 3 + 1);
        cluster.pipeline(client, &["MULTI", "INCR k", "INCR k"]);
        cluster.send(client, "EXEC");
        cluster.turn(); // The request is sent …
        cluster.cut_off(leader); // … and whether it arrives is unknown.
        match cluster.reply(client).as_str() {
            // With consensus it becomes certain that the request did not arrive.
            "[1, 2]" => assert_eq!(cluster.ask(client, "GET k"), "\"2\""),
            reply => assert_error(reply, "UNKNOWN"),
        }
        assert_eq!(cluster.ask(client, "EXEC"), "-ERR EXEC without MULTI");
        // A transaction that only reads is retried at the next leader.
        cluster.reconnect(leader);
        cluster.settle();
        cluster.pipeline(client, &["MULTI", "GET k", "GET l"]);
        let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads");
        if leader != client.node {
            cluster.send(client, "EXEC");
            cluster.cut_off(leader);
            let reply = cluster.reply(client);
            assert!(reply.starts_with('['), "{reply}");
        }
    }
}

#[test]
fn versions_of_lost_writes_are_not_taken_for_those_of_others() {
    let mut cluster = setup(3, &["prefix= acks=none replicas=2"]).start();
    let watchers: Vec<Client> = (0..10).map(|_| cluster.client(3)).collect();
    cluster.ask(watchers[0], "SET before 1");
    cluster.settle();
    cluster.break_link(1, 2); // What follows never reaches another node.
    for _ in 0..5 {
        assert_eq!(cluster.ask(watchers[0], "SET k old"), "OK");
    }
    for watcher in &watchers {
        assert_eq!(cluster.ask(*watcher, "WATCH k"), "OK");
    }
    cluster.kill(1);
    let other = cluster.client(3);
    cluster.until("node 2 leads", |cluster| cluster.ask(other, "SET k new") == "OK");
    // One of the new values has the version of the lost one.
    for watcher in watchers {
        assert_eq!(cluster.pipeline(watcher, &["MULTI", "SET k mine", "EXEC"])[2], "nil");
        assert_eq!(cluster.ask(other, "SET k new"), "OK");
    }
}

#[test]
fn a_watch_outlives_a_change_of_leader_by_consensus() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads");
    let (node, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let (left_alone, changed) = (cluster.client(node), cluster.client(node));
    cluster.pipeline(left_alone, &["SET a 1", "SET b 1", "WATCH a"]);
    cluster.ask(changed, "WATCH b");
    cluster.kill(leader);
    let other = cluster.client(third);
    cluster.until("another one serves", |cluster| cluster.ask(other, "SET b 2") == "OK");
    let exec = ["MULTI", "SET done 1", "EXEC"];
    assert_eq!(cluster.pipeline(left_alone, &exec)[2], "[OK]");
    assert_eq!(cluster.pipeline(changed, &exec)[2], "nil");
}

#[test]
fn a_watching_client_reads_nothing_stale() {
    for protocol in ["acks=majority", "replication=consensus"] {
        let mut cluster = setup(3, &[&format!("prefix= {protocol} reads=any")]).start();
        let leader = (1..=3).find(|id| cluster.keyspace(*id, "default").role == "leader").expect("one leads");
        let behind = leader % 3 + 1;
        let (writer, reader) = (cluster.client(leader), cluster.client(behind));
        cluster.ask(writer, "SET k old");
        cluster.settle();
        cluster.cut_off(behind);
        cluster.ask(writer, "SET k new");
        assert_eq!(cluster.ask(reader, "GET k"), "\"old\"");
        assert_error(&cluster.ask(reader, "WATCH k"), "NOLEADER");
        cluster.ask(reader, "UNWATCH");
        assert_eq!(cluster.ask(reader, "GET k"), "\"old\"");
        cluster.reconnect(behind);
        cluster.until("it is admitted again", |cluster| cluster.ask(reader, "WATCH k") == "OK");
        assert_eq!(cluster.ask(reader, "GET k"), "\"new\"", "as new as the watched keys");
    }
}

#[test]
fn the_queue_of_a_transaction_is_bounded() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "MULTI"), "OK");
    let value = vec![b'v'; 1 << 20];
    let mut queued = 0;
    let error = loop {
        cluster.send_words(client, &[b"SET", b"k", &value]);
        match cluster.reply(client) {
            answer if answer == "QUEUED" => queued += 1,
            answer => break answer,
        }
    };
    assert!((60..70).contains(&queued), "{queued}");
    assert!(error.starts_with("-ERR the transaction would take more than"), "{error}");
    assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");

    assert_eq!(cluster.ask(client, "MULTI"), "OK");
    let answer = cluster.pipeline(client, &vec!["PING"; 25_001]);
    assert!(answer[..25_000].iter().all(|answer| answer == "QUEUED"));
    assert_eq!(answer[25_000], "-ERR a transaction holds at most 25000 commands");
    assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");
}

#[test]
fn a_transaction_can_begin_and_end_subscriptions() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    cluster.ask(client, "HELLO 3");
    cluster.pipeline(client, &["SUBSCRIBE a"]);
    cluster.pipeline(client, &["SUBSCRIBE b"]);
    let queued = ["MULTI", "SET k v", "UNSUBSCRIBE a", "PING", "SUBSCRIBE c d", "UNSUBSCRIBE", "GET k"];
    cluster.pipeline(client, &queued);
    let replies = cluster.ask(client, "EXEC");
    assert_eq!(
        replies,
        "[OK, [\"unsubscribe\", \"a\", 1], PONG, [\"subscribe\", \"c\", 2], [\"subscribe\", \"d\", 3], \
         [\"unsubscribe\", \"b\", 2], [\"unsubscribe\", \"c\", 1], [\"unsubscribe\", \"d\", 0], \"v\"]"
    );
    assert_eq!(cluster.ask(client, "PUBLISH c x"), "0");
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"");
}

#[test]
fn watched_keys_are_bounded_and_each_counts_once() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    let watch = |from: u32| {
        let keys: Vec<String> = (from..from + 6000).map(|number| format!("key:{number}")).collect();
        format!("WATCH {}", keys.join(" "))
    };
    for _ in 0..3 {
        assert_eq!(cluster.ask(client, &watch(0)), "OK");
    }
    assert_eq!(cluster.ask(client, &watch(6000)), "-ERR more than 10000 keys would be watched");
    assert_eq!(cluster.ask(client, &watch(4000)), "OK", "only 4000 of them are new");

    let client = cluster.client(1);
    let key = |number: u8| vec![number; 64 * 1024];
    for number in 0..64 {
        cluster.send_words(client, &[b"WATCH", &key(number), &key(number)]);
        assert_eq!(cluster.reply(client), "OK");
    }
    cluster.send_words(client, &[b"WATCH", &key(64)]);
    assert_eq!(cluster.reply(client), "-ERR the watched keys would have more than 4194304 bytes");
    cluster.send_words(client, &[b"WATCH", &key(63)]);
    assert_eq!(cluster.reply(client), "OK");
}

#[test]
fn a_key_that_is_watched_again_after_a_change_aborts() {
    for mut cluster in both_protocols() {
        let client = cluster.client(2);
        cluster.pipeline(client, &["WATCH k", "SET k 1", "WATCH k"]);
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET done 1", "EXEC"])[2], "nil");
    }
}

#[test]
fn watched_keys_that_now_belong_to_another_keyspace_abort() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let (client, half, operator) = (cluster.client(2), cluster.client(2), cluster.client(1));
    cluster.ask(client, "WATCH b:a");
    cluster.ask(half, "WATCH b:a");
    let answer =
        cluster.ask(operator, "KEYSPACE CREATE b: replication=leader-follower acks=majority replicas=3");
    assert_eq!(answer, "OK");
    cluster.settle();
    assert_eq!(cluster.ask(half, "WATCH b:b"), "OK", "of the new keyspace, as b:a is now");
    for client in [client, half] {
        assert_eq!(cluster.pipeline(client, &["MULTI", "SET b:a 1", "EXEC"])[2], "nil");
        cluster.ask(client, "WATCH b:a");
        assert_eq!(
            cluster.pipeline(client, &["MULTI", "SET b:a 1", "EXEC"])[2],
            "[OK]",
            "trying again helps"
        );
    }
}

/// Has a client queue a write and then `count` times a command that the node answers. Returns how many of these were carried
/// out, the bytes of their replies, and the last reply.
fn execute_on_the_node(cluster: &mut Cluster, request: &str, count: usize) -> (usize, usize, String) {
    let client = cluster.client(1);
    cluster.pipeline(client, &["MULTI", "INCR executed"]);
    cluster.pipeline(client, &vec![request; count]);
    let replies = cluster.ask_for(client, "EXEC").elements();
    assert_eq!((replies.len(), replies[0].to_string()), (count + 1, "1".into()), "{request}");
    assert_eq!(cluster.ask(client, "GETDEL executed"), "\"1\"");
    let replies: Vec<String> = replies.iter().skip(1).map(ToString::to_string).collect();
    let carried_out = replies.iter().take_while(|reply| !reply.ends_with("was left out")).count();
    let bytes = replies[..carried_out].iter().map(String::len).sum();
    assert!(replies[carried_out..].iter().all(|reply| reply.starts_with("-ERR the commands of the trans")));
    (carried_out, bytes, replies[count - 1].clone())
}

const ANSWERED_AT_LENGTH: [&str; 6] =
    ["COMMAND", "COMMAND DOCS", "INFO", "CONFIG GET *", "CLUSTER REPORT", "CLIENT LIST"];

#[test]
fn what_the_node_answers_in_a_transaction_is_bounded_in_bytes() {
    // A 32nd of its memory.
    let mut cluster = setup(1, &[]).with(|configuration| configuration.memory_max = 64 << 20).start();
    let client = cluster.client(1);
    for request in ANSWERED_AT_LENGTH {
        let one = cluster.ask(client, request).len();
        let (carried_out, bytes, last) =
            execute_on_the_node(&mut cluster, request, ((3 << 20) / one + 2).min(25_000 - 1));
        // As text the replies are a little longer or shorter than they were as counted.
        assert!(
            carried_out > 0 && bytes < (3 << 20) + one,
            "{request}: {carried_out} replies, {bytes} bytes"
        );
        assert!(last.ends_with("this command was left out"), "{request}: {last}");
    }
    let (carried_out, _, last) = execute_on_the_node(&mut cluster, "PING", 20_000);
    assert_eq!((carried_out, last.as_str()), (20_000, "PONG"), "short replies are not cut");
}

#[test]
fn what_the_node_answers_in_a_transaction_is_bounded_in_time() {
    let setup = setup(1, &[]).with(|configuration| configuration.output_bytes_max = 1 << 30);
    let mut cluster = setup.start();
    // 25 ms as estimated, with no bound on the memory. The node looks at all its groups for some short replies, too.
    for (request, most, bytes_max) in [("INFO", 2000, 4 << 20), ("ROLE", 6000, 1 << 20)] {
        let (carried_out, bytes, last) = execute_on_the_node(&mut cluster, request, 24_000);
        let is_bounded = (100..most).contains(&carried_out) && bytes < bytes_max;
        assert!(is_bounded, "{request}: {carried_out} replies, {bytes} bytes");
        assert!(last.ends_with("this command was left out"), "{last}");
    }
    // What is published is not lost.
    let (carried_out, _, last) = execute_on_the_node(&mut cluster, "PUBLISH channel message", 24_000);
    assert_eq!((carried_out, last.as_str()), (24_000, "0"));
}

#[test]
fn a_turn_takes_few_commands_that_the_node_answers_at_length() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    for request in ANSWERED_AT_LENGTH {
        cluster.turn();
        let (mut taken, mut bytes) = (0, 0);
        while !cluster.node(1).is_spent() {
            bytes += cluster.ask(client, request).len();
            taken += 1;
        }
        assert!(taken > 0 && bytes < 2 << 20, "{request}: {taken} in one turn, {bytes} bytes");
    }
}

/// A queue's worker that calls functions in transactions must not fail because the control group elects another leader.
#[test]
fn a_queued_call_of_a_function_waits_while_the_control_group_is_silent() {
    let mut cluster = setup(3, &["prefix= replication=consensus leader=2"]).start();
    let client = cluster.client(1);
    let library = "#!lua name=lib\nredis.register_function('add', function(keys) return redis.call('incr', keys[1]) end)";
    cluster.send_words(client, &[b"FUNCTION", b"LOAD", library.as_bytes()]);
    assert_eq!(cluster.reply(client), "\"lib\"");
    let queue_a_call = |cluster: &mut Cluster| {
        cluster.cut_off(1);
        cluster.turns(600);
        play(cluster, client, "MULTI -> OK\nSET k 1 -> QUEUED");
        cluster.send(client, "FCALL add 1 k");
        cluster.turns(10);
        assert_eq!(cluster.arrived(client), None, "it waits");
    };

    queue_a_call(&mut cluster);
    cluster.reconnect(1);
    assert_eq!(cluster.reply(client), "QUEUED");
    play(&mut cluster, client, "EXEC -> [OK, 2]");

    queue_a_call(&mut cluster);
    assert_error(&cluster.reply(client), "NOLEADER");
    assert_error(&cluster.ask(client, "EXEC"), "EXECABORT");
}
