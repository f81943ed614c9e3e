//! The client processes: Python programs, like the paper's clients.
//!
//! They are started with a job, report when they are connected, and wait for the time to begin. All times are on the
//! machine's monotonic clock, which they share with the lab.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::systems::{Children, Missing, PythonEnvironment};

/// The program's files.
const FILES: [(&str, &str); 7] = [
    ("worker.py", include_str!("../../../lock-clients/worker.py")),
    ("recipe.py", include_str!("../../../lock-clients/recipe.py")),
    ("recipe_consul.py", include_str!("../../../lock-clients/recipe_consul.py")),
    ("recipe_etcd.py", include_str!("../../../lock-clients/recipe_etcd.py")),
    ("recipe_quorate.py", include_str!("../../../lock-clients/recipe_quorate.py")),
    ("recipe_redis.py", include_str!("../../../lock-clients/recipe_redis.py")),
    ("recipe_zookeeper.py", include_str!("../../../lock-clients/recipe_zookeeper.py")),
];
const REQUIREMENTS: &str = include_str!("../../../lock-clients/requirements.txt");

/// The program's folder, inside the nodes' folder.
const CLIENTS: &str = "clients";

/// How long a process may take until all its contenders are connected.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long the answer to a holder's order may take beyond the order itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The libraries of all recipes, and the program that uses them.
#[derive(Clone, Debug)]
pub struct LockClients {
    environment: PythonEnvironment,
}

impl LockClients {
    /// Creates the clients, with their virtual environment in the user's cache folder.
    pub fn new() -> LockClients {
        LockClients { environment: PythonEnvironment::new("lock-clients", REQUIREMENTS) }
    }

    /// The versions of the libraries.
    ///
    /// # Errors
    /// They are not installed: how to install them.
    pub fn version(&self) -> Result<String, Missing> {
        let names = ["etcd3", "grpcio", "kazoo", "consul-lock", "redlock-py", "redis"];
        let script = format!(
            "import platform, etcd3, grpc, kazoo, consul, redlock, redis\nfrom importlib.metadata import version\n\
             print('Python ' + platform.python_version(), *(f'{{name}} {{version(name)}}' for name in {names:?}), \
             sep=', ')"
        );
        let install = "quorate lab run locks --with-lock-clients";
        self.environment.ask(["-c", &script], "the clients of the locks study are not installed", install)
    }

    /// Installs what is missing. Reports each step to `say`.
    ///
    /// # Errors
    /// There is no Python with `venv`, or the packages are not available.
    pub fn install(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        if self.version().is_ok() {
            return Ok(());
        }
        self.environment.install("the libraries of etcd, ZooKeeper, Consul and Redis", say)
    }
}

impl Default for LockClients {
    fn default() -> Self {
        LockClients::new()
    }
}

/// The job of a process, in the format of `worker.py`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Job {
    pub(super) recipe: &'static str,
    pub(super) lock_nodes: Vec<String>,
    pub(super) resource_nodes: Vec<String>,
    pub(super) ttl_ms: u64,
    /// The contenders' numbers, and the names of their locks.
    pub(super) contenders: Vec<(u64, String)>,
    pub(super) hold_ms: f64,
    pub(super) think_ms: f64,
    pub(super) seconds: f64,
    pub(super) rows: PathBuf,
}

/// A process of clients. Dropping it kills it.
pub(super) struct Worker<'a> {
    children: &'a Children,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
}

/// A holder's answer to an order.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    /// Whether the order was done, or the write accepted; `None` for an error.
    pub(super) ok: Option<bool>,
    /// The error, if any.
    pub(super) error: Option<String>,
    /// When the order was over.
    pub(super) at: u64,
}

impl Answer {
    /// Returns when the order was done.
    ///
    /// # Errors
    /// The order was not done.
    pub(super) fn done(self) -> Result<u64> {
        match (self.ok, self.error) {
            (Some(true), _) => Ok(self.at),
            (_, error) => bail!(error.unwrap_or_else(|| "it was refused".to_owned())),
        }
    }
}

/// The last output of the first process of clients in a folder.
pub(super) fn last_words(folder: &Path) -> String {
    last_line(&log_of(folder, 0))
}

fn log_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(CLIENTS).join(format!("log-{number}"))
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it left no word").to_owned()
}

/// The current time in nanoseconds, on the clock that all processes share.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl<'a> Worker<'a> {
    /// Starts a process with a job in a folder; `mode` is `load` or `holder`.
    pub(super) fn start(
        children: &'a Children,
        folder: &Path,
        mode: &str,
        number: usize,
        job: &Job,
    ) -> Result<Worker<'a>> {
        let program = folder.join(CLIENTS);
        fs::create_dir_all(&program).with_context(|| format!("cannot make {}", program.display()))?;
        for (name, text) in FILES {
            let file = program.join(name);
            // A running process may be reading it at this moment.
            if fs::read_to_string(&file).is_ok_and(|present| present == text) {
                continue;
            }
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let log = log_of(folder, number);
        let errors = File::options().create(true).append(true).open(&log);
        let errors = errors.with_context(|| format!("cannot open {}", log.display()))?;
        let python = LockClients::new().environment.python();
        let job = serde_json::to_string(job)?;
        let child = children.spawn(&python, |command| {
            command.arg("worker.py").args([mode, &job]).current_dir(&program);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        });
        let mut child = child.with_context(|| format!("cannot start {}", python.display()))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("a process of clients has no pipes")?;
        let (sender, lines) = channel();
        std::thread::Builder::new().name("clients".to_owned()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(Worker { children, child, input, lines, log })
    }

    /// Waits until all its contenders are connected.
    pub(super) fn wait_until_ready(&self) -> Result<()> {
        let line = self.line(READY_WITHIN)?;
        if line != "ready" {
            bail!("a process of clients says '{line}' instead of being ready");
        }
        Ok(())
    }

    /// The next line of its output.
    pub(super) fn line(&self, within: Duration) -> Result<String> {
        match self.lines.recv_timeout(within) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("a process of clients says nothing for {} s", within.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a process of clients has ended: {}", last_line(&self.log))
            }
        }
    }

    /// Sends it a line.
    pub(super) fn send(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").context("a process of clients has ended")
    }

    /// Sends a holder an order, without waiting for its answer.
    pub(super) fn order(&mut self, order: &serde_json::Value) -> Result<()> {
        self.send(&order.to_string())
    }

    /// A holder's answer to the oldest unanswered order.
    pub(super) fn answer(&self, within: Duration) -> Result<Answer> {
        let line = self.line(within + ANSWER_WITHIN)?;
        serde_json::from_str(&line).with_context(|| format!("'{line}' is not an answer"))
    }

    /// Sends a holder an order and waits for the answer.
    pub(super) fn ask(&mut self, order: &serde_json::Value) -> Result<Answer> {
        self.order(order)?;
        self.answer(Duration::ZERO)
    }

    /// Pauses the process.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the process.
    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended by itself.
            let _ = kill_process(process, signal);
        }
    }

    /// Kills the process, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            && let Some(group) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
        self.children.forget(self.child.id());
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
