//! A system whose nodes read a clock that the lab can set, while the machine's own clock is unaffected.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System};

/// Where Debian's package, other distributions' and libfaketime's own installation put the library.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
];

/// The file in a node's folder that holds the offset of its clock.
const OFFSET: &str = "clock-offset";

/// Another system, whose programs get the time from the C library, with libfaketime in between. It has no effect on
/// programs that ask the kernel directly, such as those in Go.
pub struct FakedClock {
    inner: Box<dyn System>,
}

impl FakedClock {
    /// Puts libfaketime in front of a system's programs. Their clocks are right until they are set.
    pub fn new(inner: Box<dyn System>) -> FakedClock {
        FakedClock { inner }
    }

    /// Sets a node's clock ahead of the machine's, or behind it, at once.
    ///
    /// # Errors
    /// The file with the offset cannot be written.
    pub fn set(node: &NodePlan, seconds: i64) -> Result<()> {
        let (file, new) = (node.folder.join(OFFSET), node.folder.join("clock-offset-new"));
        fs::write(&new, format!("{seconds:+}\n"))
            .with_context(|| format!("cannot write {}", new.display()))?;
        // Replaced atomically: the node may read it at any moment.
        fs::rename(&new, &file).with_context(|| format!("cannot write {}", file.display()))
    }
}

fn library() -> Option<PathBuf> {
    LIBRARIES.iter().map(PathBuf::from).find(|library| library.is_file())
}

fn missing() -> Missing {
    Missing {
        what: "there is no libfaketime, without which a server's clock cannot jump alone".to_owned(),
        install: "apt-get install faketime".to_owned(),
    }
}

impl System for FakedClock {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn version(&self) -> Result<String, Missing> {
        library().ok_or_else(missing)?;
        self.inner.version()
    }

    fn acknowledges(&self) -> String {
        self.inner.acknowledges()
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let library = library().ok_or_else(|| anyhow::anyhow!("{}", missing()))?;
        let mut plans = self.inner.plan(folder)?;
        for plan in &mut plans {
            FakedClock::set(plan, 0)?;
            let file = plan.folder.join(OFFSET);
            for (name, value) in [
                // The C library is loaded before other allocators: jemalloc asks for the time before libfaketime can
                // answer.
                ("LD_PRELOAD", format!("{}:libc.so.6", library.display())),
                ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
                // The file is read at every request for the time.
                ("FAKETIME_NO_CACHE", "1".to_owned()),
                // Only the wall clock jumps, as with a wrong time server; the variable has two names, by version.
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
                ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ] {
                plan.environment.push((name.to_owned(), value));
            }
        }
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        self.inner.is_ready(nodes)
    }

    fn client_address(&self, node: &NodePlan) -> Option<SocketAddr> {
        self.inner.client_address(node)
    }

    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        self.inner.leader(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::{Children, Redlock, Running, ask};

    #[test]
    fn a_servers_clock_jumps_ahead_and_back_and_the_others_do_not() {
        let system = FakedClock::new(Box::new(Redlock::new(2)));
        if let Err(missing) = system.version() {
            eprintln!("skipped: {missing}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let children = Children::new(None);
        let running = Running::start(&system, folder.path(), &children).unwrap();
        let nodes: Vec<NodePlan> = running.nodes().cloned().collect();
        let seconds = |node: &NodePlan| -> i64 {
            let info = ask(node.resp.unwrap(), &["INFO", "server"]).unwrap();
            let us = info.lines().find_map(|line| line.strip_prefix("server_time_usec:")).unwrap();
            us.trim().parse::<i64>().unwrap() / 1_000_000
        };
        for offset in [60, -60, 0] {
            FakedClock::set(&nodes[0], offset).unwrap();
            // The server reports the time of its last round.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let apart = seconds(&nodes[0]) - seconds(&nodes[1]);
            assert!((apart - offset).abs() <= 2, "{apart} s where {offset} s were set");
        }
    }
}
