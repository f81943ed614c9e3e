//! The node processes: started together, watched, stopped together.

use std::fs::OpenOptions;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use super::nodes::Node;

/// How long nodes may take to stop before they are killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How often to check whether they have stopped.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Children {
    nodes: Vec<Started>,
}

struct Started {
    id: u16,
    child: Child,
    status: Option<ExitStatus>,
}

impl Children {
    /// Starts every node.
    ///
    /// # Errors
    /// A process cannot be started; those already started are stopped.
    pub(super) fn start(nodes: &[Node]) -> Result<Children> {
        let mut children = Children { nodes: Vec::new() };
        for node in nodes {
            match spawn(node) {
                Ok(child) => children.nodes.push(Started { id: node.id, child, status: None }),
                Err(error) => {
                    children.kill();
                    return Err(error).with_context(|| format!("cannot start node {}", node.id));
                }
            }
        }
        Ok(children)
    }

    pub(super) fn process(&self, id: u16) -> Option<u32> {
        self.nodes.iter().find(|node| node.id == id).map(|node| node.child.id())
    }

    pub(super) fn have_ended(&self) -> bool {
        self.nodes.iter().all(|node| node.status.is_some())
    }

    /// Returns the nodes that have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<u16> {
        let mut ended = Vec::new();
        for node in self.nodes.iter_mut().filter(|node| node.status.is_none()) {
            if let Ok(Some(status)) = node.child.try_wait() {
                node.status = Some(status);
                ended.push(node.id);
            }
        }
        ended
    }

    /// How a node's process ended.
    pub(super) fn fate(&self, id: u16) -> String {
        let status = self.nodes.iter().find(|node| node.id == id).and_then(|node| node.status);
        match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("exit code {code}"),
            Some((_, Some(signal))) => format!("killed by signal {signal}"),
            _ => String::from("unknown"),
        }
    }

    /// Asks every node to stop and waits until all have stopped. Kills nodes that take too long, and all of
    /// them on a second request to stop.
    pub(super) fn stop(&mut self, signals: &mut Signals) {
        for node in self.nodes.iter().filter(|node| node.status.is_none()) {
            ask_to_stop(node.child.id());
        }
        let by = Instant::now() + STOP_WITHIN;
        while self.nodes.iter().any(|node| node.status.is_none()) {
            if Instant::now() > by || signals.pending().any(|signal| signal != SIGCHLD) {
                return self.kill();
            }
            self.ended();
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn kill(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.status.is_none()) {
            let _ = node.child.kill();
            node.status = node.child.wait().ok();
        }
    }
}

/// Stops nodes of this cluster that are not children of this process.
pub(super) fn stop_strays(running: impl Fn() -> Vec<u32>) {
    let strays = running();
    strays.iter().for_each(|process| ask_to_stop(*process));
    let by = Instant::now() + STOP_WITHIN;
    while running().iter().any(|process| strays.contains(process)) && Instant::now() < by {
        std::thread::sleep(LOOK_EVERY);
    }
}

fn ask_to_stop(process: u32) {
    if let Some(process) = Pid::from_raw(process as i32) {
        // The process may have ended. A suspended process handles no signal until it continues.
        let _ = kill_process(process, Signal::TERM);
        let _ = kill_process(process, Signal::CONT);
    }
}

fn spawn(node: &Node) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = node.log();
    let log_file = OpenOptions::new().create(true).append(true).open(&log);
    let log_file = log_file.with_context(|| format!("cannot open {}", log.display()))?;
    let mut command = Command::new(program);
    command.arg("server").arg("--config").arg(node.configuration());
    command.arg("--log-file").arg(&log);
    command.arg("--stop-with").arg(std::process::id().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
    // A process group of its own: Ctrl-C reaches the nodes once, through this process.
    command.process_group(0);
    Ok(command.spawn()?)
}
