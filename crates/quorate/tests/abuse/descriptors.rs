//! File descriptors: more connections than the system allows a process.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bounded::{Cluster, rounds};
use crate::support::{configuration, free_ports, http, request, until};

/// Idle connections on all ports of a node take all the descriptors that they may, and the log can still create
/// files.
#[test]
fn connections_never_take_the_descriptors_of_the_log() {
    idle_connections_leave_room(rounds(512, 4096));
}

/// As few as a node may have.
#[test]
fn a_node_with_few_descriptors_serves_and_reports_its_health() {
    idle_connections_leave_room(128);
}

#[test]
fn a_start_with_too_few_descriptors_is_refused_with_the_number_that_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("quorate.toml"), configuration(free_ports(3), 1, "", "")).unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -n 64 && exec \"$0\" server --config quorate.toml",
        env!("CARGO_BIN_EXE_quorate"),
    ]);
    let ended = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert!(!ended.status.success() && said.contains("needs at least 128"), "{said}");
}

fn idle_connections_leave_room(count: usize) {
    let present = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: present.maximum, maximum: present.maximum };
    setrlimit(Resource::Nofile, wanted).unwrap();
    // Small segments, so that many are created.
    let storage = "[storage]\nsegment_bytes = 65536\ncheckpoint_bytes = 262144\n";
    let mut cluster = Cluster::start_limited(3, storage, Some(count as u32));
    until("it is logged at the start", || cluster.log(1).contains("connections_max is"));
    let mut client = cluster.client(1);
    let mut idle = Vec::new();
    let mut refused = 0;
    for number in 0..2 * count {
        let port = match number % 8 {
            0 => cluster.http_port(1),
            // With few descriptors, strangers at the peers' port may take all that are kept for others.
            1 if count >= 256 => cluster.peer_port(1),
            _ => cluster.client_port(1),
        };
        let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        idle.push(stream);
    }
    for stream in &mut idle {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut answer = [0; 40];
        let read = stream.read(&mut answer).unwrap_or(0);
        refused += usize::from(answer[..read].starts_with(b"-ERR max number of clients reached"));
    }
    assert!(refused > 0, "all were accepted");
    assert!(http(cluster.http_port(1), "GET /health HTTP/1.1", "").0 == 200, "{}", cluster.log(1));
    let value = vec![b'v'; 50_000];
    for index in 0..100 {
        client.send(request(&[b"SET", format!("k{}", index % 10).as_bytes(), &value]));
        assert_eq!(client.line(), "+OK");
    }
    cluster.assert_alive();
    drop(idle);
    cluster.assert_serves();
}
