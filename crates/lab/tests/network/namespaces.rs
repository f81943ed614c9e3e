//! The kernel's own means, where this machine allows them. Elsewhere the tests say why they were skipped.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lab::network::{Bandwidth, Gate, Interface, Namespaces};

use super::required::skip_without_rights;
use super::world::{end, is_silent, pattern, receive, send};

fn namespaces() -> Option<Namespaces> {
    match Namespaces::start(2) {
        Ok(network) => Some(network),
        Err(error) => {
            skip_without_rights(format_args!(
                "no network namespaces here, which need CAP_SYS_ADMIN and the packages iproute2 and nftables: {error}"
            ));
            None
        }
    }
}

/// Node 1's end and node 2's of a connection that node 1 has dialled.
fn connect(network: &Namespaces) -> (TcpStream, TcpStream) {
    std::thread::scope(|scope| {
        let listen = || {
            network.enter(2).unwrap();
            TcpListener::bind((network.peer_address(2), 0)).unwrap()
        };
        let listener = scope.spawn(listen).join().unwrap();
        let address = listener.local_addr().unwrap();
        let dial = move || {
            network.enter(1).unwrap();
            TcpStream::connect(address).unwrap()
        };
        let one = scope.spawn(dial).join().unwrap();
        (one, listener.accept().unwrap().0)
    })
}

#[test]
fn nodes_reach_each_other_as_fast_as_they_may_and_links_are_cut() {
    let Some(mut network) = namespaces() else { return };
    network.set_interface(1, Interface { up: Some(Bandwidth::megabits(20)), down: None }).unwrap();
    let (mut one, two) = connect(&network);
    let data = pattern(1_250_000);
    let start = Instant::now();
    let sending = send(&one, data.clone());
    assert_eq!(receive(&two, data.len()), data);
    // The bucket holds a little.
    assert!(start.elapsed() > Duration::from_millis(450));
    sending.join().unwrap();

    network.set_gate(1, 2, Gate::Drop).unwrap();
    one.write_all(b"there").unwrap();
    assert!(is_silent(&two));
    network.set_gate(1, 2, Gate::Open).unwrap();
    assert_eq!(receive(&two, 5), b"there");

    network.set_gate(1, 2, Gate::Reject).unwrap();
    one.write_all(b"there").unwrap();
    assert_eq!(end(&one), Some(ErrorKind::ConnectionReset));
}
