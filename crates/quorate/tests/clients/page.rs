//! The page for people, in a real browser: headless Chromium, driven by Playwright (`page.js`). Chromium is
//! `/usr/bin/chromium`, or the path in `QUORATE_CHROMIUM`; the module for Node is found by `NODE_PATH`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::required::is_installed;
use crate::support::{Cluster, ask, until};
use crate::tools::tests;

fn has_browser() -> bool {
    let chromium = std::env::var("QUORATE_CHROMIUM").unwrap_or("/usr/bin/chromium".into());
    is_installed("Chromium (package chromium)", Command::new(chromium).arg("--version"))
        && is_installed(
            "playwright-core (npm install, and NODE_PATH)",
            Command::new("node").args(["-e", "require('playwright-core')"]),
        )
}

fn start(phase: &str, port: u16) -> Child {
    let mut command = Command::new("node");
    command.current_dir(tests()).args(["page.js", phase, &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Uses the page of a node. A browser is slow on a busy machine, so each wait in `page.js` has a timeout.
fn look(phase: &str, cluster: &Cluster, id: u16) {
    let output = start(phase, cluster.http_port(id)).wait_with_output().unwrap();
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.ends_with("ok\n"), "{phase}: {printed}{error}");
}

#[test]
fn people_see_and_change_a_cluster_in_a_browser() {
    if !has_browser() {
        return;
    }
    let mut cluster = Cluster::start(3, &["prefix=cart: replication=leader-follower acks=majority"]);
    let mut client = cluster.client(2);
    for line in
        ["CONFIG SET slowlog-log-slower-than 0", "SET slow:key v", "CONFIG SET slowlog-log-slower-than -1"]
    {
        assert_eq!(ask(&mut client, line), "OK");
    }
    assert!(ask(&mut client, "LOCK job ann PX 3600000").parse::<u64>().is_ok());
    let mut waiting = cluster.client(3);
    waiting.set_read_timeout(None).unwrap();
    let waits = std::thread::spawn(move || {
        let mut lock = redis::cmd("LOCK");
        // Its node is killed in this test, or the test ends.
        let _ = lock.arg(&["job", "bob", "PX", "1000", "WAIT", "3600000"]).query::<u64>(&mut waiting);
    });
    until("somebody waits for the lock", || ask(&mut client, "LOCK.INFO job").contains("\"waiters\", 1"));
    for phase in ["operator", "actions", "foreign", "looks"] {
        look(phase, &cluster, 1);
    }

    let leader = cluster.leader();
    let other = leader % 3 + 1;
    cluster.kill(leader);
    look("down", &cluster, other);
    let mut watching = start("gone", cluster.http_port(other));
    let mut output = BufReader::new(watching.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "seen\n");
    cluster.kill(other);
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ok\n", "{:?}", watching.wait_with_output().unwrap());
    watching.wait().unwrap();
    drop(cluster);
    waits.join().unwrap();
}

#[test]
fn the_page_offers_a_user_what_the_user_may_do() {
    if !has_browser() {
        return;
    }
    let cluster = Cluster::start(3, &["prefix=cart: replication=leader-follower acks=majority"]);
    let mut client = cluster.client(1);
    let rules = "~* &* +@read +cluster|map +cluster|report +cluster|ask +keyspace|list +keyspace|get";
    assert_eq!(ask(&mut client, &format!("ACL SETUSER reader on >of-the-reader {rules}")), "OK");
    assert_eq!(ask(&mut client, "SET read:key the-value"), "OK");
    assert_eq!(ask(&mut client, "ACL SETUSER default resetpass >secret"), "OK");
    look("users", &cluster, 2);
}
