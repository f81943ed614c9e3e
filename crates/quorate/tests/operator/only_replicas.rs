//! A keyspace whose only replica is on a disk that is lost.

use std::fs;

use super::served::run;
use super::started::Started;
use super::support::until;

#[test]
fn a_keyspace_whose_only_replica_is_lost_begins_again_as_status_says() {
    let started = Started::new(3, &["prefix=one: replication=consensus replicas=1 leader=3"]);
    assert_eq!(started.ask(1, "SET one:k v"), "+OK");
    started.kill(3);
    let (storage, file) =
        (started.cluster.node(3).join("storage"), started.cluster.node(3).join("quorate.log"));
    fs::remove_dir_all(storage).unwrap();
    fs::remove_file(file).unwrap();
    let status = || run(&started, 1, &["status"]);
    until("status says what to do", || {
        let (code, text) = status();
        code == 2
            && text.contains("quorate node replace 3 --accept-loss")
            && text.contains("quorate keyspace recover one:")
    });
    until("it is known to be dead", || run(&started, 1, &["node", "replace", "3", "--accept-loss"]).0 == 0);
    assert!(status().1.contains("start node 3 with an empty folder"), "{}", status().1);
    let (code, text) = run(&started, 1, &["keyspace", "recover", "one:", "--accept-loss"]);
    assert!(code == 1 && text.contains("ask one of [3]"), "{text}");

    let _node = started.spawn(3);
    until("its node says so", || {
        started.health(3).to_string().contains("quorate keyspace recover one: --accept-loss")
    });
    let health =
        |node: u16| started.try_http(node, "GET /health?keyspace=one: HTTP/1.1", "").unwrap_or_default();
    assert_eq!((health(1).0, health(3).0), (503, 503));
    let (code, text) = status();
    assert!(
        code == 2 && text.contains("the storage of its only replica was lost") && !text.contains("-> wait"),
        "{text}"
    );
    // Any node passes it on to the one that knows.
    let (code, text) = run(&started, 1, &["keyspace", "recover", "one:"]);
    assert!(code == 0 && text.contains("node [3] held its only replica"), "{text}");
    assert!(started.ask(1, "GET one:k").starts_with("-CLUSTERDOWN"), "nothing was changed");
    let (code, text) = run(&started, 1, &["keyspace", "recover", "one:", "--accept-loss"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(started.ask(1, "GET one:k"), "$-1");
    assert_eq!(started.ask(2, "SET one:k w"), "+OK");
    until("it is served", || health(1).0 == 200 && health(3).0 == 200);
    let (code, text) = run(&started, 1, &["keyspace", "recover", "one:", "--accept-loss"]);
    assert!(code == 0 && text.contains("nothing has to be given up"), "{text}");
    assert_eq!(started.ask(1, "GET one:k"), "$1", "what was written since is there");
}
