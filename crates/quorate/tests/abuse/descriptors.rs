//! File descriptors: more connections than the system allows a process.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bounded::{Cluster, rounds};
use crate::support::{request, until};

/// Idle connections on all ports of a node take all the descriptors that they may, and the log can still create
/// files.
#[test]
fn connections_never_take_the_descriptors_of_the_log() {
    let count = rounds(512, 4096);
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
            1 => cluster.peer_port(1),
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
    let value = vec![b'v'; 50_000];
    for index in 0..100 {
        client.send(request(&[b"SET", format!("k{}", index % 10).as_bytes(), &value]));
        assert_eq!(client.line(), "+OK");
    }
    cluster.assert_alive();
    drop(idle);
    cluster.assert_serves();
}
