//! A running system: started, supervised, and stopped whatever happens.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Children, NodePlan, System, Usage};

/// How long a system may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A system is quiet when it used no more than the amounts below during this time.
const QUIET_FOR: Duration = Duration::from_millis(200);
const QUIET_CPU_S: f64 = 0.02;
const QUIET_DISK_BYTES: f64 = 65_536.0;

/// How long to wait for the system to become quiet.
const QUIET_WITHIN: Duration = Duration::from_secs(5);

/// How long nodes may take to stop before they are killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// How often their state is checked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How many times a start is tried: another program may take a port between its choice and its use.
const STARTS_MAX: usize = 3;

/// The processes of a system. Dropping it kills them.
pub struct Running<'a> {
    system: &'a dyn System,
    children: &'a Children,
    nodes: Vec<Node>,
}

struct Node {
    plan: NodePlan,
    child: Option<Child>,
    is_paused: bool,
}

impl<'a> Running<'a> {
    /// Starts a system in a folder, which is emptied, and waits until it serves.
    ///
    /// # Errors
    /// The system does not serve: the error has its nodes' last output.
    pub fn start(system: &'a dyn System, folder: &Path, children: &'a Children) -> Result<Running<'a>> {
        let mut failure = None;
        for _ in 0..STARTS_MAX {
            if folder.exists() {
                fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
            }
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            // Nodes run in their own folders.
            let folder = folder.canonicalize()?;
            let nodes = system.plan(&folder)?;
            let nodes = nodes.into_iter().map(|plan| Node { plan, child: None, is_paused: false }).collect();
            let mut running = Running { system, children, nodes };
            match running.start_all() {
                Ok(()) => return Ok(running),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| anyhow::anyhow!("it was not started")))
    }

    fn start_all(&mut self) -> Result<()> {
        for node in 0..self.nodes.len() {
            self.spawn(node)?;
        }
        self.wait_until_ready()?;
        self.wait_until_quiet();
        Ok(())
    }

    /// Waits, up to a limit, until the start has no more effects, such as files being created: no cost of the
    /// start may count for the first point.
    pub fn wait_until_quiet(&self) {
        let used = || {
            let processes = (0..self.nodes.len()).filter_map(|node| self.process(node));
            processes.filter_map(Usage::of).fold(Usage::default(), |sum, usage| Usage {
                cpu_s: sum.cpu_s + usage.cpu_s,
                disk_bytes: sum.disk_bytes + usage.disk_bytes,
            })
        };
        let by = Instant::now() + QUIET_WITHIN;
        let mut before = used();
        while Instant::now() < by {
            std::thread::sleep(QUIET_FOR);
            let now = used();
            let cpu_s = now.cpu_s - before.cpu_s;
            if cpu_s <= QUIET_CPU_S && now.disk_bytes - before.disk_bytes <= QUIET_DISK_BYTES {
                return;
            }
            before = now;
        }
    }

    /// Waits until all nodes serve and have found each other.
    ///
    /// # Errors
    /// They do not in time, or one has ended.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let plans: Vec<NodePlan> = self.nodes.iter().map(|node| node.plan.clone()).collect();
        let by = Instant::now() + READY_WITHIN;
        while !self.system.is_ready(&plans) {
            self.check_alive()?;
            if Instant::now() > by {
                bail!("it does not serve after {} s: {}", READY_WITHIN.as_secs(), last_line(&plans[0]));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Checks that every node still runs, except those that were killed.
    ///
    /// # Errors
    /// A node has ended by itself: the error has its last output.
    pub fn check_alive(&mut self) -> Result<()> {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let status = node.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = status {
                bail!("node {} has ended ({status}): {}", index + 1, last_line(&node.plan));
            }
        }
        Ok(())
    }

    fn spawn(&mut self, index: usize) -> Result<()> {
        let plan = &self.nodes[index].plan;
        let file = plan.folder.join("log");
        let log = File::options().create(true).append(true).open(&file);
        let log = log.with_context(|| format!("cannot open {}", file.display()))?;
        let errors = log.try_clone()?;
        let child = self.children.spawn(&plan.program, |command| {
            command.args(&plan.arguments).envs(plan.environment.iter().cloned()).current_dir(&plan.folder);
            command.stdin(Stdio::null()).stdout(log).stderr(errors);
        });
        let child = child.with_context(|| format!("cannot start {}", plan.program.display()))?;
        self.nodes[index].child = Some(child);
        Ok(())
    }

    /// The system that runs.
    pub fn system(&self) -> &'a dyn System {
        self.system
    }

    /// The list of its processes, also for whatever else a study starts.
    pub fn children(&self) -> &'a Children {
        self.children
    }

    /// The nodes, numbered from 0 here and everywhere in the lab's code.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodePlan> {
        self.nodes.iter().map(|node| &node.plan)
    }

    /// The addresses where the nodes speak the Redis protocol.
    pub fn resp(&self) -> Vec<SocketAddr> {
        self.nodes().filter_map(|node| node.resp).collect()
    }

    /// The addresses where the nodes speak HTTP.
    pub fn http(&self) -> Vec<SocketAddr> {
        self.nodes().filter_map(|node| node.http).collect()
    }

    /// A node's process number, unless it was killed.
    pub fn process(&self, node: usize) -> Option<u32> {
        self.nodes.get(node)?.child.as_ref().map(Child::id)
    }

    /// Kills a node, as `kill -9` does.
    pub fn kill(&mut self, node: usize) {
        let Some(child) = self.nodes.get_mut(node).and_then(|node| node.child.take()) else { return };
        self.set_paused(node, false);
        self.end(child);
    }

    /// Pauses a node.
    pub fn pause(&mut self, node: usize) {
        self.signal(node, Signal::STOP);
        self.set_paused(node, true);
    }

    /// Resumes a paused node.
    pub fn resume(&mut self, node: usize) {
        self.signal(node, Signal::CONT);
        self.set_paused(node, false);
    }

    /// Resumes all paused nodes.
    pub fn resume_all(&mut self) {
        for node in 0..self.nodes.len() {
            if self.is_paused(node) {
                self.resume(node);
            }
        }
    }

    /// Whether a node is paused.
    pub fn is_paused(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.is_paused)
    }

    fn set_paused(&mut self, node: usize, is_paused: bool) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.is_paused = is_paused;
        }
    }

    /// Restarts a node that was killed, with the content of its folder. Does not wait until it serves.
    ///
    /// # Errors
    /// Its process cannot be started.
    pub fn restart(&mut self, node: usize) -> Result<()> {
        if self.process(node).is_none() {
            self.spawn(node)?;
        }
        Ok(())
    }

    /// Stops all nodes in order; those that take too long are killed.
    pub fn stop(mut self) {
        for node in 0..self.nodes.len() {
            self.signal(node, Signal::TERM);
            self.signal(node, Signal::CONT);
        }
        let by = Instant::now() + STOP_WITHIN;
        let has_ended = |node: &mut Node| match &mut node.child {
            None => true,
            Some(child) => !matches!(child.try_wait(), Ok(None)),
        };
        while !self.nodes.iter_mut().all(has_ended) && Instant::now() < by {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        if let Some(process) = self.process(node).and_then(|process| Pid::from_raw(process as i32)) {
            // It may have ended by itself.
            let _ = kill_process(process, signal);
        }
    }

    fn end(&self, mut child: Child) {
        // The whole group: a node may have children of its own. A child that was waited for no longer has a
        // number.
        if !matches!(child.try_wait(), Ok(Some(_)))
            && let Some(group) = Pid::from_raw(child.id() as i32)
        {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
        }
        self.children.forget(child.id());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.kill(node);
        }
    }
}

/// The last line of a node's output: most likely why it ended.
fn last_line(plan: &NodePlan) -> String {
    let text = fs::read(plan.folder.join("log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
}
