//! The state of a connection: its client's user, its protocol, and how it ends.

use crate::reading::Reply;
use crate::support::{Cluster, Setup, assert_error, setup};
use wire::release::Releases;

fn with_a_password() -> Cluster {
    setup(1, &[]).with(|configuration| configuration.password = Some("open sesame".into())).start()
}

fn one_node() -> Cluster {
    setup(1, &[]).start()
}

const NOT_AUTHENTICATED: &str = "-NOAUTH Authentication required.";
const WRONG_PASSWORD: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn before_authentication_only_commands_that_authenticate_are_answered() {
    let mut cluster = with_a_password();
    let client = cluster.client(1);
    for request in ["GET k", "SET k v", "PING", "INFO", "CLIENT LIST", "CONFIG GET *", "FLUSHALL", "DBSIZE"] {
        assert_eq!(cluster.ask(client, request), NOT_AUTHENTICATED, "{request}");
    }
    assert_eq!(cluster.ask(client, "AUTH wrong"), WRONG_PASSWORD);
    cluster.send_words(client, &[b"AUTH", b"someone", b"open sesame"]);
    assert_eq!(cluster.reply(client), WRONG_PASSWORD);
    assert!(!cluster.node(1).request_limits(client.id).authenticated);

    cluster.send_words(client, &[b"AUTH", b"open sesame"]);
    assert_eq!(cluster.reply(client), "OK");
    assert_eq!(cluster.ask(client, "SET k v"), "OK");
    assert!(cluster.node(1).request_limits(client.id).authenticated);

    let other = cluster.client(1);
    cluster.send_words(other, &[b"AUTH", b"default", b"open sesame"]);
    assert_eq!(cluster.reply(other), "OK");
}

#[test]
fn hello_can_authenticate_and_is_refused_without_authentication() {
    let mut cluster = with_a_password();
    let client = cluster.client(1);
    let refused = cluster.ask(client, "HELLO 3");
    assert_error(&refused, "NOAUTH");
    cluster.send_words(client, &[b"HELLO", b"3", b"AUTH", b"default", b"wrong"]);
    assert_eq!(cluster.reply(client), WRONG_PASSWORD);
    assert_eq!(cluster.ask(client, "GET k"), NOT_AUTHENTICATED);
    cluster.send_words(client, &[b"HELLO", b"3", b"AUTH", b"default", b"open sesame", b"SETNAME", b"me"]);
    assert!(cluster.reply(client).starts_with("{\"server\": \"redis\""));
    assert_eq!(cluster.ask(client, "CLIENT GETNAME"), "\"me\"");
}

#[test]
fn reset_ends_authentication() {
    let mut cluster = with_a_password();
    let client = cluster.client(1);
    cluster.send_words(client, &[b"HELLO", b"3", b"AUTH", b"default", b"open sesame", b"SETNAME", b"me"]);
    cluster.reply(client);
    assert_eq!(cluster.ask(client, "RESET"), "RESET");
    assert_eq!(cluster.ask(client, "GET k"), NOT_AUTHENTICATED);
    assert!(!cluster.node(1).request_limits(client.id).authenticated);
}

#[test]
fn hello_chooses_the_protocol_of_later_replies() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    let pairs = cluster.ask_for(client, "HELLO 2").elements();
    assert_eq!(pairs.len(), 14, "a map is an array in RESP2");
    let Reply::Map(pairs) = cluster.ask_for(client, "HELLO 3") else { panic!("no map") };
    let fields: Vec<String> = pairs.iter().map(|(field, _)| field.clone().text()).collect();
    assert_eq!(fields, ["server", "version", "mode", "role", "proto", "id", "modules"]);
    let value = |name: &str| {
        let found = pairs.iter().find(|(field, _)| *field == Reply::Bulk(name.into()));
        found.expect("the field is there").1.to_string()
    };
    assert_eq!(value("server"), "\"redis\"");
    assert_eq!(value("version"), "\"8.6.3\"");
    assert_eq!(value("role"), "\"master\"");
    assert_eq!(value("proto"), "3");
    assert_eq!(value("modules"), "[]");
    assert_eq!(value("id"), cluster.ask(client, "CLIENT ID"));

    assert!(matches!(cluster.ask_for(client, "CONFIG GET maxclients"), Reply::Map(_)));
    assert!(matches!(cluster.ask_for(client, "INFO"), Reply::Verbatim(_)));
    cluster.ask(client, "RESET");
    assert!(matches!(cluster.ask_for(client, "CONFIG GET maxclients"), Reply::Array(_)), "RESP2 again");
}

/// Clients compare the version before they use what came after it.
#[test]
fn a_node_says_the_version_of_redis_whose_commands_it_serves_or_that_it_is_told_to_say() {
    let older = |setup: Setup| setup.with(|it| it.releases = Releases { oldest: 1, newest: 1 });
    let told = |setup: Setup| setup.with(|it| it.redis_version = Some("7.4.2".parse().expect("a version")));
    let plain = || setup(1, &[]);
    for (setup, said) in [
        (older(plain()), "7.0.15"),
        (plain(), "8.6.3"),
        (told(plain()), "7.4.2"),
        (told(older(plain())), "7.4.2"),
    ] {
        let mut cluster = setup.start();
        let client = cluster.client(1);
        let hello = cluster.ask_for(client, "HELLO 2").elements();
        assert_eq!(hello[3].to_string(), format!("\"{said}\""));
        assert!(
            cluster.ask(client, "INFO server").contains(&format!("\r\nredis_version:{said}\r\n")),
            "{said}"
        );
    }
}

#[test]
fn hello_refuses_unknown_options() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "HELLO 4"), "-NOPROTO unsupported protocol version");
    assert_eq!(cluster.ask(client, "HELLO x"), "-ERR Protocol version is not an integer or out of range");
    assert_eq!(cluster.ask(client, "HELLO 3 NOSUCH"), "-ERR Syntax error in HELLO option 'NOSUCH'");
    assert_eq!(cluster.ask(client, "HELLO 3 AUTH default"), "-ERR Syntax error in HELLO option 'AUTH'");
    assert_eq!(cluster.ask(client, "GET k"), "nil", "and the connection goes on in RESP2");
}

#[test]
fn a_forwarded_reply_is_in_the_clients_own_protocol() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let (old, new) = (cluster.client(2), cluster.client(2));
    cluster.ask(new, "HELLO 3");
    for client in [old, new] {
        assert_eq!(cluster.pipeline(client, &["GET nothing", "SET k v", "GET k"]), ["nil", "OK", "\"v\""]);
    }
}

#[test]
fn authentication_without_a_configured_password() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    let answer = cluster.ask(client, "AUTH secret");
    assert!(answer.starts_with("-ERR AUTH <password> called without any password configured"), "{answer}");
    assert_eq!(cluster.ask(client, "AUTH default secret"), "OK");
    assert_eq!(cluster.ask(client, "AUTH someone secret"), WRONG_PASSWORD);
    assert_eq!(cluster.ask(client, "AUTH a b c"), "-ERR syntax error");
}

#[test]
fn clients_have_names_and_are_listed() {
    let mut cluster = one_node();
    let (first, second) = (cluster.client(1), cluster.client(1));
    assert_eq!(cluster.ask(first, "CLIENT GETNAME"), "nil");
    assert_eq!(cluster.ask(first, "CLIENT SETNAME one"), "OK");
    assert_eq!(cluster.ask(first, "CLIENT GETNAME"), "\"one\"");
    cluster.send_words(first, &[b"CLIENT", b"SETNAME", b"two words"]);
    let refused = "-ERR Client names cannot contain spaces, newlines or special characters.";
    assert_eq!(cluster.reply(first), refused);
    assert_eq!(cluster.ask(first, "CLIENT SETINFO LIB-NAME library"), "OK");
    assert_eq!(cluster.ask(first, "CLIENT SETINFO lib-ver 1.2"), "OK");
    assert_eq!(cluster.ask(first, "CLIENT SETINFO nosuch x"), "-ERR Unrecognized option 'nosuch'");
    cluster.send_words(first, &[b"CLIENT", b"SETINFO", b"lib-name", b"a b"]);
    assert_error(&cluster.reply(first), "ERR");

    let id = cluster.ask(first, "CLIENT ID");
    let info = cluster.ask_for(first, "CLIENT INFO").text();
    for part in [
        &format!("id={id} "),
        "name=one ",
        "lib-name=library ",
        "lib-ver=1.2 ",
        "cmd=client|info ",
        "resp=2 ",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
    let list = cluster.ask_for(second, "CLIENT LIST").text();
    assert_eq!(list.lines().count(), 2, "{list}");
    let one = cluster.ask_for(second, &format!("CLIENT LIST ID {id}")).text();
    assert!(one.lines().count() == 1 && one.contains("name=one "), "{one}");
    assert_eq!(cluster.ask_for(second, "CLIENT LIST TYPE replica").text(), "");
    assert_error(&cluster.ask(second, "CLIENT LIST TYPE nosuch"), "ERR");
}

#[test]
fn clients_are_chosen_by_what_they_are_and_by_what_they_are_not() {
    let mut cluster = one_node();
    let (asker, other) = (cluster.client(1), cluster.client(1));
    cluster.ask(asker, "CLIENT SETNAME asker");
    for request in ["CLIENT SETNAME other", "CLIENT CAPA nosuch redirect", "READONLY", "SELECT 3"] {
        assert_eq!(cluster.ask(other, request), "OK", "{request}");
    }
    let named = |cluster: &mut Cluster, filter: &str| {
        let list = cluster.ask_for(asker, &format!("CLIENT LIST {filter}")).text();
        let names = list.lines().filter_map(|line| line.split(' ').find_map(|it| it.strip_prefix("name=")));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    for filter in [
        "CAPA r",
        "FLAGS r",
        "DB 3",
        "NOT-NAME asker",
        "NOT-FLAGS N",
        "NOT-DB 0",
        "SKIPME yes",
        "TYPE normal DB 3",
    ] {
        assert_eq!(named(&mut cluster, filter), ["other"], "{filter}");
    }
    for filter in
        ["NOT-CAPA r", "FLAGS N", "NAME other NAME asker", "NOT-ID 1 NOT-NAME other", "DB 0 MAXAGE 1"]
    {
        let expected: &[&str] = if filter.contains("MAXAGE") { &[] } else { &["asker"] };
        assert_eq!(named(&mut cluster, filter), expected, "{filter}");
    }
    assert_eq!(named(&mut cluster, "NOT-IP 1.2.3.4").len(), 2);
    assert_eq!(cluster.ask(other, "READWRITE"), "OK");
    assert_eq!(named(&mut cluster, "FLAGS N").len(), 2);
    assert_eq!(cluster.ask(asker, "CLIENT IMPORT-SOURCE OFF"), "OK");
    let refused = cluster.ask(asker, "CLIENT IMPORT-SOURCE ON");
    assert!(refused.starts_with("-ERR CLIENT IMPORT-SOURCE ON is refused"), "{refused}");
    assert_eq!(cluster.ask(asker, "CLIENT KILL NOT-DB 0"), "1");
    assert!(cluster.is_closed(other));
}

#[test]
fn a_killed_client_is_closed_and_others_are_not() {
    let mut cluster = one_node();
    let (killer, victim, bystander) = (cluster.client(1), cluster.client(1), cluster.client(1));
    let id = cluster.ask(victim, "CLIENT ID");
    assert_eq!(cluster.ask(killer, &format!("CLIENT KILL ID {id}")), "1");
    assert!(cluster.is_closed(victim));
    assert_eq!(cluster.ask(killer, &format!("CLIENT KILL ID {id}")), "0");
    assert_eq!(cluster.ask(killer, "CLIENT KILL 127.0.0.1:1"), "-ERR No such client");
    assert_eq!(cluster.ask(bystander, "PING"), "PONG");

    assert_eq!(cluster.ask(killer, "CLIENT KILL TYPE normal"), "1", "the client that asks is spared");
    assert!(cluster.is_closed(bystander));
    assert_eq!(cluster.ask(killer, "CLIENT KILL TYPE normal SKIPME no"), "1");
    assert!(cluster.is_closed(killer), "and has its answer before it is closed");
}

#[test]
fn a_client_is_killed_with_a_write_under_way_and_its_place_is_used_again() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let (killer, victim) = (cluster.client(2), cluster.client(2));
    let id = cluster.ask(victim, "CLIENT ID");
    cluster.send(victim, "SET k v");
    assert_eq!(cluster.ask(killer, &format!("CLIENT KILL ID {id}")), "1");
    let next = cluster.client(2);
    cluster.turns(50);
    assert_eq!(cluster.arrived(next), None);
    assert_ne!(cluster.ask(next, "CLIENT ID"), id);
    assert_eq!(cluster.ask(next, "GET k"), "\"v\"");
}

/// A client that could end a line could forge the next one.
#[test]
fn client_input_never_ends_a_line() {
    let mut cluster = setup(3, &["prefix= acks=majority", "prefix=a\"\\b: acks=none"]).start();
    let client = cluster.client(1);
    let tails: [&[u8]; 7] = [b"\nx", b"\rx", b" x", b"\0", b"\x1b[2J", b"\x7f", "\u{2028}x".as_bytes()];
    for tail in tails {
        let word = [b"host", tail].concat();
        let requests: [&[&[u8]]; 7] = [
            &[b"CLUSTER", b"ADD", b"9", &word, b"1", b"2", b"3"],
            &[b"KEYSPACE", b"CREATE", &word, b"durability=os"],
            &[b"KEYSPACE", b"CREATE", b"k:", &[b"replication=", &word[..]].concat()],
            &[b"CLIENT", b"SETNAME", &word],
            &[b"CLIENT", b"SETINFO", b"LIB-NAME", &word],
            &[b"CLIENT", b"SETINFO", b"lib-ver", &word],
            &[b"HELLO", b"2", b"SETNAME", &word],
        ];
        for request in requests {
            cluster.send_words(client, request);
            assert_error(&cluster.reply(client), "ERR");
        }
    }
    cluster.send_words(client, &[b"KEYSPACE", b"CREATE", "x".repeat(257).as_bytes()]);
    let answer = cluster.reply(client);
    assert!(answer.contains("256 bytes at most, not 257"), "{answer}");

    assert_eq!(cluster.ask(client, "CLUSTER ADD 9 node-9.example.org 1 2 3"), "OK");
    let nodes = cluster.ask_for(client, "CLUSTER NODES").text();
    assert_eq!(nodes.lines().count(), 4, "{nodes}");
    for line in nodes.lines() {
        assert!(line.split(' ').count() >= 8, "{line}");
    }
    let mut metrics = String::new();
    cluster.node(1).metrics(&mut metrics);
    assert!(metrics.contains(r#"quorate_keyspace_keys{keyspace="a\"\\b:"} 0"#), "{metrics}");
    let clients = cluster.ask_for(client, "CLIENT LIST").text();
    assert!(clients.lines().all(|line| line.starts_with("id=")), "{clients}");
}

#[test]
fn settings_are_read_and_changed() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "CONFIG GET maxclients"), r#"["maxclients", "100"]"#);
    assert_eq!(cluster.ask(client, "CONFIG SET maxclients 2"), "OK");
    assert!(cluster.try_client(1).is_some());
    assert!(cluster.try_client(1).is_none(), "it takes effect at once");
    assert_eq!(cluster.ask(client, "CONFIG SET maxclients 10 timeout 7"), "OK");
    assert_eq!(cluster.ask(client, "CONFIG GET timeout"), r#"["timeout", "7"]"#);
    let answer = cluster.ask_for(client, "CONFIG GET *").elements();
    assert!(answer.len() > 40, "{}", answer.len());
    assert_error(&cluster.ask(client, "CONFIG SET nosuch 1"), "ERR");
    assert_error(&cluster.ask(client, "CONFIG SET maxclients many"), "ERR");
    assert_error(&cluster.ask(client, "CONFIG SET timeout 8 maxclients -1"), "ERR");
    assert_eq!(cluster.ask(client, "CONFIG GET timeout"), r#"["timeout", "7"]"#, "all or nothing");
    assert_eq!(cluster.ask(client, "CONFIG GET nosuch"), "[]");
    assert_eq!(cluster.ask(client, "CONFIG RESETSTAT"), "OK");
    assert_eq!(cluster.ask(client, "CONFIG SET proto-max-bulk-len 2mb"), "OK");
    assert_eq!(cluster.node(1).request_limits(client.id).bulk_bytes_max, 2 << 20);
}

#[test]
fn quit_in_a_pipeline_answers_earlier_requests_and_ignores_later_ones() {
    let mut cluster = setup(3, &["prefix= acks=majority"]).start();
    let client = cluster.client(2);
    for request in ["SET k v", "GET k", "QUIT", "SET k w", "PING"] {
        cluster.send(client, request);
    }
    assert!(!cluster.node(2).wants_input(client.id));
    let replies: Vec<String> = (0..3).map(|_| cluster.reply(client)).collect();
    assert_eq!(replies, ["OK", "\"v\"", "OK"]);
    assert!(cluster.is_closed(client));
    assert_eq!(cluster.arrived(client), None);
    let other = cluster.client(1);
    assert_eq!(cluster.ask(other, "GET k"), "\"v\"");
}

#[test]
fn an_unknown_command_leaves_the_connection_usable() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    assert_eq!(
        cluster.ask(client, "NOSUCH a b"),
        "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "
    );
    assert_eq!(cluster.ask(client, "CLIENT NOSUCH"), "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.");
    assert_eq!(cluster.ask(client, "SELECT 0"), "OK");
    assert_eq!(cluster.ask(client, "SELECT 99"), "-ERR DB index is out of range");
    assert_eq!(cluster.ask(client, "SELECT x"), "-ERR value is not an integer or out of range");
    assert_eq!(cluster.ask(client, "PING"), "PONG");
}

#[test]
fn a_command_that_fails_changes_nothing() {
    let mut cluster = setup(3, &["prefix= acks=all"]).start();
    for node in [1, 2] {
        let client = cluster.client(node);
        cluster.ask(client, "SET text abc");
        assert_eq!(cluster.ask(client, "INCR text"), "-ERR value is not an integer or out of range");
        assert_eq!(cluster.ask(client, "INCRBYFLOAT text 1"), "-ERR value is not a valid float");
        cluster.ask(client, "SET number 9223372036854775807");
        assert_eq!(cluster.ask(client, "INCR number"), "-ERR increment or decrement would overflow");
        assert_eq!(cluster.ask(client, "MGET text number"), r#"["abc", "9223372036854775807"]"#);
    }
}

#[test]
fn a_client_without_replies_still_gets_its_messages() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    assert_eq!(cluster.ask(client, "CLIENT REPLY ON"), "OK");
    assert_eq!(cluster.ask(client, "CLIENT REPLY maybe"), "-ERR syntax error");
    for silent in ["CLIENT REPLY SKIP", "SET k v"] {
        cluster.send(client, silent);
    }
    assert_eq!(cluster.ask(client, "GET k"), "\"v\"", "after the one that was skipped");
    for silent in ["CLIENT REPLY OFF", "SET k w", "GET k", "NOSUCH", "CLIENT REPLY SKIP", "GET k", "GET k"] {
        cluster.send(client, silent);
    }
    cluster.send(client, "SUBSCRIBE c");
    assert!(cluster.reply(client).contains("subscribe"));
    cluster.send(client, "UNSUBSCRIBE c");
    assert!(cluster.reply(client).contains("unsubscribe"));
    assert_eq!(cluster.ask(client, "CLIENT REPLY ON"), "OK");
    assert_eq!(cluster.ask(client, "GET k"), "\"w\"");
    cluster.send(client, "CLIENT REPLY OFF");
    assert_eq!(cluster.ask(client, "RESET"), "RESET", "RESET answers");
    assert_eq!(cluster.ask(client, "MULTI"), "OK");
    assert_eq!(cluster.ask(client, "CLIENT REPLY OFF"), "-ERR Command not allowed inside a transaction");
}

#[test]
fn an_error_counts_as_failed_and_a_refusal_as_rejected() {
    let mut cluster = one_node();
    let client = cluster.client(1);
    for request in ["SET k v", "GEOADD k 0 0 a", "GEOADD k x 0 a", "GEOADD", "GEOADD g 0 0 a"] {
        cluster.ask(client, request);
    }
    let statistics = cluster.ask(client, "INFO commandstats");
    let line = statistics.split("cmdstat_").find(|line| line.starts_with("geoadd")).expect("it was called");
    assert!(line.contains("calls=3,") && line.contains("rejected_calls=1,failed_calls=2"), "{line}");
}
