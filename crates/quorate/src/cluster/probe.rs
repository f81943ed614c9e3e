//! Whether a node serves commands: it answers a PING, and says that it is ready.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::settings::Ports;

const TIMEOUT: Duration = Duration::from_millis(500);

/// Most bytes read of an answer: its first line is enough.
const ANSWER_BYTES_MAX: usize = 64;

/// True when the node at these ports serves commands.
pub(super) fn is_ready(ports: Ports) -> bool {
    let health = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    begins_with(ports.client, b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n")
        && begins_with(ports.http, health, b"HTTP/1.1 200 ")
}

/// True when a port answers a request with something that begins so.
fn begins_with(port: u16, request: &[u8], expected: &[u8]) -> bool {
    let answer = || {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(request)?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let answer = &mut answer[..expected.len()];
        stream.read_exact(answer)?;
        std::io::Result::Ok(*answer == *expected)
    };
    answer().unwrap_or(false)
}
