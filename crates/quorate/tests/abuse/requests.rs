//! Requests that announce more than they send.

use std::io::Write;

use crate::bounded::{Cluster, rounds};
use crate::support::connect;

/// Memory is allocated for what has arrived, not for what is announced.
#[test]
fn announced_requests_that_never_arrive_take_no_memory() {
    let mut cluster = Cluster::start(3, "");
    let mut clients = Vec::new();
    for number in 0..rounds(300, 3000) {
        let mut stream = connect(cluster.client_port(number as u16 % 3 + 1));
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67000000\r\n").unwrap();
        stream.write_all(&[b'v'; 10_000]).unwrap();
        clients.push(stream);
    }
    cluster.assert_serves();
}
