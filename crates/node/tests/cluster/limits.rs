//! What a client may use of a node: requests in flight, unread replies, and the length of both.

use crate::reading::Reply;
use crate::support::{Client, Cluster, assert_error, setup};

fn value(bytes: usize) -> Vec<u8> {
    vec![b'v'; bytes]
}

fn store(cluster: &mut Cluster, client: Client, key: &str, bytes: usize) {
    cluster.send_words(client, &[b"SET", key.as_bytes(), &value(bytes)]);
    assert_eq!(cluster.reply(client), "OK");
}

#[test]
fn a_client_may_have_twice_as_many_requests_pending_after_each_round_and_ten_thousand_at_most() {
    let mut cluster = setup(3, &["prefix= acks=all"]).start();
    for node in [1, 2] {
        let client = cluster.client(node);
        let mut rounds = Vec::new();
        for _ in 0..8 {
            let mut sent = 0;
            while cluster.node(node).wants_input(client.id) {
                cluster.send(client, &format!("SET k{sent} v"));
                sent += 1;
            }
            (0..sent).for_each(|_| assert_eq!(cluster.reply(client), "OK"));
            rounds.push(sent);
        }
        assert_eq!(rounds, [256, 512, 1024, 2048, 4096, 8192, 10_000, 10_000]);
        assert_eq!(cluster.ask(client, "DBSIZE"), "10000");
    }
}

#[test]
fn a_client_with_unread_replies_is_not_read_until_it_reads_them() {
    let mut cluster = setup(1, &[]).start();
    let client = cluster.client(1);
    store(&mut cluster, client, "k", 100_000);
    cluster.stop_reading(client);
    let mut sent = 0;
    while cluster.node(1).wants_input(client.id) {
        cluster.send(client, "GET k");
        sent += 1;
    }
    assert_eq!(sent, 11, "a megabyte of replies");
    cluster.node(1).output(client.id).expect("it is connected").bytes.clear();
    assert!(cluster.node(1).wants_input(client.id));
}

#[test]
fn a_client_that_never_reads_is_closed_at_the_limit_and_others_are_served() {
    let mut cluster = setup(1, &[]).with(|configuration| configuration.output_bytes_max = 2 << 20).start();
    let (client, other) = (cluster.client(1), cluster.client(1));
    store(&mut cluster, other, "k", 100_000);
    cluster.stop_reading(client);
    for _ in 0..30 {
        cluster.send(client, "GET k");
    }
    assert!(cluster.is_closed(client));
    assert!(cluster.node(1).output(client.id).is_none(), "its replies are gone from the memory");
    assert_eq!(cluster.ask(other, "STRLEN k"), "100000");
}

#[test]
fn replies_that_wait_for_an_earlier_one_count_as_unread() {
    let mut cluster = setup(3, &["prefix= acks=none", "prefix=slow: acks=all"]).start();
    let client = cluster.client(1);
    store(&mut cluster, client, "k", 100_000);
    cluster.pause(3);
    cluster.send(client, "SET slow:k v");
    let mut sent = 0;
    while cluster.node(1).wants_input(client.id) && sent < 1000 {
        cluster.send(client, "GET k");
        sent += 1;
    }
    assert!(sent < 20, "{sent} replies of 100 kB each are held for a client that is still read");
    cluster.go_on(3);
    assert_eq!(cluster.reply(client), "OK");
    (0..sent).for_each(|_| assert_eq!(cluster.reply(client).len(), 100_002));
    assert!(cluster.node(1).wants_input(client.id));
}

#[test]
fn a_follower_that_requests_much_gets_it_piece_by_piece() {
    let setup = setup(3, &["prefix= acks=majority"]);
    let mut cluster = setup.with(|configuration| configuration.output_bytes_max = 1 << 30).start();
    let client = cluster.client(2);
    store(&mut cluster, client, "k", 1 << 20);
    (0..100).for_each(|_| cluster.send(client, "GET k"));
    let mut most = 0;
    for _ in 0..200 {
        cluster.turn();
        most = most.max(cluster.waiting_bytes(1, 2));
    }
    assert!(most < 20 << 20, "{most} bytes of replies left the leader at once");
    (0..100).for_each(|_| assert_eq!(cluster.reply(client).len(), (1 << 20) + 2));
}

#[test]
fn replies_of_reads_behind_a_write_are_bounded() {
    let setup = setup(3, &["prefix= acks=majority"]);
    let mut cluster = setup.with(|configuration| configuration.output_bytes_max = 1 << 30).start();
    let client = cluster.client(1);
    store(&mut cluster, client, "k", 1 << 20);
    cluster.send(client, "INCR n");
    (0..200).for_each(|_| cluster.send(client, "GET k"));
    assert_eq!(cluster.reply(client), "1");
    let replies: Vec<usize> = (0..200).map(|_| cluster.reply(client).len()).collect();
    let count = replies.iter().filter(|length| **length == (1 << 20) + 2).count();
    assert!((128..=130).contains(&count), "{count} replies of a megabyte at once");
    assert_eq!(cluster.ask(client, "GET n"), "\"1\"", "the client goes on");
}

#[test]
fn requests_of_a_client_that_is_being_closed_are_ignored() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let client = cluster.client(2);
    cluster.send(client, "SET k v");
    let error = wire::resp::request::ProtocolError::BulkLength;
    cluster.node(2).protocol_error(client.id, &error);
    cluster.send(client, "SET k w");
    cluster.send(client, "PING");
    assert_eq!(cluster.reply(client), "OK");
    assert_eq!(cluster.reply(client), "-ERR Protocol error: invalid bulk length");
    cluster.until("the connection ends", |cluster| cluster.is_closed(client));
    assert_eq!(cluster.arrived(client), None);
    let other = cluster.client(1);
    assert_eq!(cluster.ask(other, "GET k"), "\"v\"");
}

#[test]
fn too_many_clients_are_refused() {
    let mut cluster = setup(1, &[]).with(|configuration| configuration.connections_max = 3).start();
    let clients: Vec<Client> = (0..3).map(|_| cluster.client(1)).collect();
    assert!(cluster.try_client(1).is_none());
    cluster.node(1).disconnect(clients[0].id);
    assert!(cluster.try_client(1).is_some());
}

#[test]
fn keys_and_values_over_the_limit_are_refused_by_name() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    for node in [1, 2] {
        let client = cluster.client(node);
        cluster.send_words(client, &[b"SET", &value(65_537), b"v"]);
        assert_eq!(cluster.reply(client), "-ERR key is 65537 bytes long; at most 65536 are allowed");
        cluster.send_words(client, &[b"SET", b"k", &value((1 << 20) + 1)]);
        assert_eq!(cluster.reply(client), "-ERR value is 1048577 bytes long; at most 1048576 are allowed");
        cluster.send_words(client, &[b"SET", &value(65_536), &value(1 << 20)]);
        assert_eq!(cluster.reply(client), "OK", "the longest of both");
        store(&mut cluster, client, "k", 1 << 20);
        assert_error(&cluster.ask(client, "APPEND k x"), "ERR");
        assert_error(&cluster.ask(client, "SETRANGE k 1048576 x"), "ERR");
        assert_eq!(cluster.ask(client, "STRLEN k"), "1048576");
    }
}

#[test]
fn a_node_accepts_any_length_that_another_one_may_send() {
    let mut cluster = setup(2, &["prefix= acks=majority"]).start();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "CONFIG SET proto-max-bulk-len 512mb"), "OK");
    let request = cluster.node(1).request_limits(client.id).request_bytes_max;
    // Node 2 has the default limit, but receives the records of what node 1 accepts.
    let taken = cluster.node(2).peer_payload_bytes_max();
    assert!(taken > request, "a request of {request} bytes becomes a record; node 2 takes {taken}");
    assert!(
        taken > kv::limits::REPLY_BYTES_MAX,
        "a forwarded MGET is answered in one piece; node 2 takes {taken}"
    );
}

#[test]

fn a_peer_that_does_not_read_costs_bounded_memory() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let client = cluster.client(1);
    cluster.pause(3);
    for _ in 0..200 {
        store(&mut cluster, client, "k", 1 << 20);
    }
    let waiting = cluster.waiting_bytes(1, 3);
    assert!(waiting < 70 << 20, "{waiting} bytes wait for node 3");
    cluster.go_on(3);
    cluster.settle();
}

#[test]
fn history_gives_way_where_memory_is_short() {
    for keyspace in ["prefix= acks=majority", "prefix= replication=consensus"] {
        let mut cluster =
            setup(3, &[keyspace]).with(|configuration| configuration.memory_max = 64 << 20).start();
        let client = cluster.client(1);
        (0..200).for_each(|number| store(&mut cluster, client, &format!("k{number}"), 100_000));
        cluster.settle();
        for node in 1..=3 {
            let own = cluster.client(node);
            let history = |cluster: &mut Cluster, resident: u64| -> usize {
                cluster.node(node).measured(resident, 0, 0);
                let info = cluster.ask(own, "INFO replication");
                let bytes = info.lines().find_map(|line| line.strip_prefix("repl_backlog_histlen:"));
                bytes.expect("INFO has it").trim().parse().expect("a number")
            };
            let some = history(&mut cluster, 10 << 20);
            assert!((4 << 20..=8 << 20).contains(&some), "{keyspace}: an eighth of the memory: {some}");
            let little = history(&mut cluster, 60 << 20);
            assert!(little <= 1 << 20, "{keyspace}: a 64th while data is full: {little}");
        }
        cluster.send(client, "SET k v");
        assert_error(&cluster.reply(client), "OOM");
        (1..=3).for_each(|node| cluster.node(node).measured(10 << 20, 0, 0));
        store(&mut cluster, client, "k", 100_000);
        cluster.settle();
    }
}

/// What takes too long in one step is refused by the node that has the data, whichever node the client asks, and whether the
/// request came in one piece or in parts.
#[test]
fn what_takes_too_long_is_refused_by_name_through_any_node() {
    for (keyspace, long_bytes) in [
        ("prefix= replication=consensus", 1 << 20),
        ("prefix= replication=consensus", 400),
        ("prefix= replicas=1 acks=none leader=1", 1 << 20),
        ("prefix= replicas=1 acks=none leader=1", 400),
    ] {
        let mut cluster =
            setup(3, &[keyspace]).with(|configuration| configuration.long_command_bytes = long_bytes).start();
        for node in [1, 2, 3] {
            let client = cluster.client(node);
            let context = format!("{keyspace}, {long_bytes}, node {node}");
            cluster.ask(client, "HSET h f 1");
            let walk = "HRANDFIELD h -100000000";
            let reply = cluster.ask(client, walk);
            assert!(reply.starts_with("-ERR HRANDFIELD would take about "), "{context}: {reply}");
            assert!(reply.contains("nothing was done: send its arguments in several commands"), "{reply}");

            assert_eq!(cluster.ask(client, "MULTI"), "OK");
            store_queued(&mut cluster, client, "k", 500);
            assert_eq!(cluster.ask(client, walk), "QUEUED");
            let reply = cluster.ask(client, "EXEC");
            assert!(
                reply.starts_with("-ERR the transaction would look at so many keys"),
                "{context}: {reply}"
            );
            assert_eq!(cluster.ask(client, "EXISTS k"), "0", "{context}");
        }
    }
}

fn store_queued(cluster: &mut Cluster, client: Client, key: &str, bytes: usize) {
    cluster.send_words(client, &[b"SET", key.as_bytes(), &value(bytes)]);
    assert_eq!(cluster.reply(client), "QUEUED");
}

/// The sum of a transaction's commands counts, however short each of them is; scripts share one limit.
#[test]
fn a_transaction_of_many_small_commands_is_done_whole_or_refused_whole() {
    let mut cluster = setup(3, &["prefix= replication=consensus"]).start();
    let client = cluster.client(2);
    let elements = vec!["e"; 5000].join(" ");
    assert_eq!(cluster.ask(client, &format!("RPUSH l {elements}")), "5000");
    let mut exec = |request: &str| {
        assert_eq!(cluster.ask(client, "SET k 0"), "OK");
        assert_eq!(cluster.ask(client, "MULTI"), "OK");
        let queued = cluster.pipeline(client, &vec![request; 25_000]);
        assert_eq!(queued.iter().find(|reply| *reply != "QUEUED"), None, "{request}");
        (cluster.ask_for(client, "EXEC"), cluster.ask(client, "GET k"))
    };
    // Each is written with 300 digits.
    let far = "INCRBYFLOAT k 1e300";
    let (done, value) = exec(far);
    assert_eq!((done.elements().len(), value.len()), (25_000, 307));
    let (refused, _) = exec("LPOS l x");
    let refused = refused.to_string();
    assert!(refused.contains("the transaction would look at so many keys"), "{refused}");

    let (begun, _) = exec("EVAL return(1) 0");
    let replies = begun.elements();
    let done = replies.iter().take_while(|reply| **reply == Reply::Integer(1)).count();
    assert!((100..25_000).contains(&done), "{done} scripts of 25,000");
    let refused = replies[done].to_string();
    assert!(refused.contains("the script was stopped and nothing of it was kept"), "{refused}");
}
