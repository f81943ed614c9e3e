//! Free ports of this machine.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

/// The range that is searched, below the ports that systems commonly use for outgoing connections.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// How many ports may be tried before giving up.
const TRIES_MAX: usize = 2_000;

/// Returns `count` ports without a listener, chosen at random to avoid those of another lab on this machine.
///
/// # Errors
/// There are not enough free ports.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    // They are held open until all are found, so that none is found twice.
    let mut found: Vec<(u16, TcpListener)> = Vec::new();
    for _ in 0..TRIES_MAX {
        if found.len() == count {
            break;
        }
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        let port = PORTS.start + u16::from_le_bytes(random) % (PORTS.end - PORTS.start);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            found.push((port, listener));
        }
    }
    if found.len() < count {
        bail!("cannot find {count} free ports from {} to {}", PORTS.start, PORTS.end);
    }
    Ok(found.into_iter().map(|(port, _)| port).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_distinct_and_can_be_bound() {
        let ports = free_ports(20).unwrap();
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 20);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }
}
