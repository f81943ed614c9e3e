//! The resources that the process uses, as measured by the node's caller, and the rate of commands.

use crate::report::Certificate;
use protocol::Now;

/// The resources that the process uses. Bytes of memory, of the disk and of sockets, microseconds of
/// processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory that the system has given to the process.
    pub resident_bytes: u64,
    /// The most such memory so far.
    pub resident_bytes_peak: u64,
    /// Memory of the machine.
    pub machine_bytes: u64,
    /// Room on the disk with the node's folder, and its size; 0 where the system does not report it.
    pub disk_free_bytes: u64,
    /// See [`Usage::disk_free_bytes`].
    pub disk_bytes: u64,
    /// In how many seconds the disk is full if it goes on filling as it has in the last hour.
    pub disk_full_in_s: Option<u64>,
    /// The node's certificate. `None` without TLS.
    pub certificate: Option<Certificate>,
    /// Processor time in the program.
    pub user_us: u64,
    /// Processor time in the kernel.
    pub system_us: u64,
    /// Bytes from clients.
    pub client_input_bytes: u64,
    /// Bytes to clients.
    pub client_output_bytes: u64,
    /// Bytes from other nodes.
    pub peer_input_bytes: u64,
    /// Bytes to other nodes.
    pub peer_output_bytes: u64,
}

/// Commands per second, over the last whole second or so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    per_second: u64,
    since_us: u64,
    commands: u64,
}

impl Rate {
    /// Commands per second.
    pub fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Notes how many commands there were until now.
    pub fn update(&mut self, now: Now, commands: u64) {
        const INTERVAL_MS: u64 = 1000;
        let elapsed_ms = now.ms_since(self.since_us);
        if elapsed_ms >= INTERVAL_MS {
            self.per_second = commands.saturating_sub(self.commands) * 1000 / elapsed_ms;
            self.since_us = now.monotonic_us;
            self.commands = commands;
        }
    }
}
