//! A relay between one node and the others, which can hold back what goes one way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One way through the relay.
#[derive(Clone, Default)]
struct Way(Arc<AtomicBool>);

/// Stands between a node and whoever dials it. Both directions are open at first.
pub(crate) struct Relay {
    from_node: Way,
    to_node: Way,
}

impl Relay {
    /// Listens at `front` for what is meant for `behind`. `None`: this machine has no such address.
    pub(crate) fn start(front: SocketAddr, behind: SocketAddr) -> Option<Relay> {
        let listener = TcpListener::bind(front).ok()?;
        let (from_node, to_node) = (Way::default(), Way::default());
        let ways = (from_node.clone(), to_node.clone());
        std::thread::spawn(move || {
            for outer in listener.incoming().flatten() {
                let Ok(inner) = TcpStream::connect(behind) else { continue };
                carry(&outer, &inner, &ways.1);
                carry(&inner, &outer, &ways.0);
            }
        });
        Some(Relay { from_node, to_node })
    }

    /// Holds back what the node says: it hears the others and they do not hear it.
    pub(crate) fn mute(&self, holds: bool) {
        self.from_node.0.store(holds, Ordering::Relaxed);
    }

    /// Holds back what is said to the node: the others hear it and it does not hear them.
    pub(crate) fn deafen(&self, holds: bool) {
        self.to_node.0.store(holds, Ordering::Relaxed);
    }
}

/// Where a node is reached through a relay: another address of this machine's own.
pub(crate) const FRONT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Carries bytes one way until either side ends. What is held back arrives later, as TCP would send it again.
fn carry(from: &TcpStream, to: &TcpStream, way: &Way) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let (Ok(mut from), Ok(mut to), way) = (from.try_clone(), to.try_clone(), way.clone()) else { return };
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            while way.0.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}
