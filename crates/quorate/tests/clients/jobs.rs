//! Job queues and brokers of other projects, unchanged, on a cluster with the default keyspace: the normal use of
//! each, and RQ, Celery and BullMQ while leaders are killed.
//!
//! A run under failures records which jobs were added and which have run, in files outside of the store, and is
//! judged by the promises of the queue itself. `QUORATE_QUEUE_JOBS` and `QUORATE_QUEUE_KILLS` make it longer.
//! Libraries for Node are found by `NODE_PATH`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::required::is_installed;
use crate::support::{Cluster, PATIENCE};
use crate::tools::{finish, python_with, tests};

fn jobs_folder() -> PathBuf {
    tests().join("jobs")
}

fn has_node_module(module: &str) -> bool {
    let what = format!("{module} (npm install, and NODE_PATH)");
    is_installed(&what, Command::new("node").args(["-e", &format!("require('{module}')")]))
}

/// A command of a program in the jobs' folder, with the ports of all nodes.
fn program(cluster: &Cluster, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    let ports: Vec<_> = (1..=3).map(|id| cluster.client_port(id).to_string()).collect();
    command.args(&words[1..]).current_dir(jobs_folder()).env("PORTS", ports.join(" "));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", jobs_folder()).stdin(Stdio::null());
    command
}

/// Uses a library in the normal way: jobs are added at one node, processed at another, and read at the third.
fn use_library(words: &[&str]) {
    let cluster = Cluster::start(3, &[]);
    let mut command = program(&cluster, words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(command.spawn().unwrap(), words[2]);
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {printed}{error}");
}

macro_rules! libraries {
    ($($test:ident: $language:ident, $library:literal, $module:literal, $package:literal;)*) => {
        $(#[test]
        fn $test() {
            libraries!(@ $language, $library, $module, $package);
        })*
    };
    (@ python, $library:literal, $module:literal, $package:literal) => {
        if let Some(python) = python_with($module, $package) {
            use_library(&[&python, "libraries.py", $library]);
        }
    };
    (@ node, $library:literal, $module:literal, $package:literal) => {
        if has_node_module($module) {
            use_library(&["node", "libraries.js", $library]);
        }
    };
}

libraries! {
    rq_works_unchanged: python, "rq", "rq", "rq";
    celery_works_unchanged: python, "celery", "celery", "celery";
    huey_works_unchanged: python, "huey", "huey", "huey";
    arq_works_unchanged: python, "arq", "arq", "arq";
    dramatiq_works_unchanged: python, "dramatiq", "dramatiq", "dramatiq";
    python_redis_lock_works_unchanged: python, "redis_lock", "redis_lock", "python-redis-lock";
    channels_redis_works_unchanged: python, "channels_redis", "channels_redis", "channels_redis";
    limits_works_unchanged: python, "limits", "limits", "limits";
    bullmq_works_unchanged: node, "bullmq", "bullmq", "bullmq";
    bee_queue_works_unchanged: node, "bee-queue", "bee-queue", "bee-queue";
    bottleneck_works_unchanged: node, "bottleneck", "bottleneck", "bottleneck";
    the_streams_adapter_of_socket_io_works_unchanged: node, "socket.io", "@socket.io/redis-streams-adapter", "";
}

/// The programs of one queue, each a command to which a port is added.
struct Programs {
    name: &'static str,
    /// Adds jobs: a first number and how many.
    add: Vec<String>,
    /// Processes jobs until it is killed.
    work: Vec<String>,
    /// Prints where jobs are, as JSON.
    left: Vec<String>,
    /// Whether there is nothing more to wait for.
    is_done: fn(left: &Value) -> bool,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The jobs of a run.
struct Ran {
    /// How often each ran.
    times: BTreeMap<u64, u64>,
    /// The jobs whose addition had an unknown outcome at first, and was tried again.
    unsure: Vec<u64>,
    left: Value,
    work_log: Vec<String>,
}

/// A process and all that it has started, which end with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_raw(self.0.id() as i32).unwrap(), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A run under failures.
struct Run<'a> {
    programs: &'a Programs,
    cluster: Cluster,
    folder: TempDir,
    jobs: u64,
    /// One for each node.
    workers: RefCell<Vec<Group>>,
    /// The number of restarted workers.
    restarts: Cell<u64>,
}

impl Run<'_> {
    fn command(&self, words: &[String], id: u16) -> Command {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = program(&self.cluster, &words);
        let port = self.cluster.client_port(id).to_string();
        command.env("PORT", &port).env("ADDED", self.file("added")).env("RAN", self.file("ran"));
        if !words.contains(&"worker") {
            command.arg(port);
        }
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, mut command: Command, name: &str) -> Group {
        let log = File::options().create(true).append(true).open(self.file(name)).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        Group(command.spawn().unwrap())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn times(&self) -> BTreeMap<u64, u64> {
        let mut times = BTreeMap::new();
        self.lines("ran").iter().for_each(|line| *times.entry(line.parse().unwrap()).or_default() += 1);
        times
    }

    fn start_worker(&self, id: u16) -> Group {
        self.start(self.command(&self.programs.work, id), "work.log")
    }

    /// Restarts workers that have ended, as a supervisor does: some libraries exit when a connection is lost.
    fn supervise(&self) {
        for (id, worker) in (1..).zip(self.workers.borrow_mut().iter_mut()) {
            if worker.0.try_wait().unwrap().is_some() {
                self.restarts.set(self.restarts.get() + 1);
                *worker = self.start_worker(id);
            }
        }
    }

    /// Waits until a condition holds, as long as jobs run. Prints the last lines of the programs' output if they do
    /// not.
    fn while_jobs_run(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let (mut ran, mut by) = (0, Instant::now() + PATIENCE);
        while !holds() {
            self.supervise();
            let now_ran = self.lines("ran").len();
            if now_ran > ran {
                (ran, by) = (now_ran, Instant::now() + PATIENCE);
            }
            if Instant::now() > by {
                for name in ["add.log", "work.log"] {
                    let lines = self.lines(name);
                    eprintln!("{name}:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
                }
                panic!("{}: no job runs, after {ran}: {what}", self.programs.name);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the queue reports as left. On a busy machine a group may have no leader for a moment, and then the
    /// program fails.
    fn left(&self, id: u16) -> Value {
        const TRIES: u32 = 20;
        for attempt in 1.. {
            let mut command = self.command(&self.programs.left, id);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let output = finish(command.spawn().unwrap(), "what is left");
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(attempt < TRIES && error.contains("NOLEADER"), "{error}");
            thread::sleep(Duration::from_secs(1));
        }
        unreachable!("the last attempt ends the test")
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is {text}")))
}

/// Adds and processes jobs through all three nodes, while one leader after the other is killed and restarted.
fn run_while_leaders_die(programs: &Programs) -> Ran {
    let (jobs, kills) = (number("QUORATE_QUEUE_JOBS", 300), number("QUORATE_QUEUE_KILLS", 3));
    let folder = tempfile::tempdir().unwrap();
    let (workers, restarts) = (RefCell::default(), Cell::new(0));
    let mut run = Run { programs, cluster: Cluster::start(3, &[]), folder, jobs, workers, restarts };
    for name in ["added", "ran"] {
        File::create(run.file(name)).unwrap();
    }
    let begun = Instant::now();
    run.workers.replace((1..=3).map(|id| run.start_worker(id)).collect());
    let share = |id: u64| (id - 1) * run.jobs / 3..id * run.jobs / 3;
    let mut adders: Vec<_> = (1..=3)
        .map(|id| {
            let numbers = share(id);
            let mut command = run.command(&programs.add, id as u16);
            command.args([numbers.start.to_string(), (numbers.end - numbers.start).to_string()]);
            run.start(command, "add.log")
        })
        .collect();
    for kill in 1..=kills {
        run.while_jobs_run("for the next kill", || run.times().len() as u64 >= kill * jobs / (kills + 1));
        let leader = run.cluster.leader();
        run.cluster.kill(leader);
        thread::sleep(Duration::from_millis(500));
        run.cluster.restart(leader);
        run.cluster.wait_until_ready(leader);
    }
    for adder in &mut adders {
        run.while_jobs_run("all are added", || adder.0.try_wait().unwrap().is_some());
        assert!(adder.0.wait().unwrap().success(), "{}", run.lines("add.log").join("\n"));
    }
    let added = run.lines("added");
    assert_eq!(added.len() as u64, jobs, "each is added once");
    let unsure = added.iter().filter_map(|line| line.strip_suffix(" unsure")).map(|it| it.parse().unwrap());
    let unsure: Vec<u64> = unsure.collect();
    let mut left = Value::Null;
    run.while_jobs_run("nothing is left", || {
        left = run.left(1);
        (programs.is_done)(&left)
    });
    let times = run.times();
    let again = times.values().filter(|times| **times > 1).count();
    println!(
        "{}: {jobs} jobs, {kills} leaders killed, {:.0} s; {} workers started again; {} additions were uncertain; {} jobs never ran, \
         {again} ran again",
        programs.name,
        begun.elapsed().as_secs_f64(),
        run.restarts.get(),
        unsure.len(),
        jobs - times.len() as u64,
    );
    Ran { times, unsure, left, work_log: run.lines("work.log") }
}

/// RQ takes a job out of its queue before it runs it, and never runs it again by itself: a job whose worker or connection
/// is lost in between fails, and is found among the failed jobs. See "Reliability" and `IntermediateQueue` in its
/// documentation: a job that was taken and not started is failed by maintenance after a minute.
#[test]
fn rq_loses_no_job_while_leaders_die() {
    let Some(python) = python_with("rq", "rq") else { return };
    let program = |what| words(&[&python, "rq_run.py", what]);
    let programs = Programs {
        name: "RQ",
        add: program("add"),
        work: program("work"),
        left: program("left"),
        is_done: |left| left["queued"].as_array().unwrap().is_empty(),
    };
    let ran = run_while_leaders_die(&programs);
    let named = |place: &str| -> Vec<u64> {
        let names = ran.left[place].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().split(':').next().unwrap().parse().unwrap()).collect()
    };
    let visible = [named("failed"), named("taken"), named("started")].concat();
    println!("RQ: {} are failed, or taken by a worker that is gone", visible.len());
    let jobs = number("QUORATE_QUEUE_JOBS", 300);
    for job in 0..jobs {
        match ran.times.get(&job) {
            None => assert!(visible.contains(&job), "job {job} is lost"),
            Some(1) => {}
            Some(times) => assert!(ran.unsure.contains(&job), "job {job} ran {times} times"),
        }
    }
}

/// Celery with `task_acks_late`: a message is acknowledged when its task has run, and delivered again if it was not
/// acknowledged within the visibility timeout ("Caveats" of its page on Redis). So each task runs at least once, except
/// for one gap: a worker takes a message by BRPOP, and only then notes it as unacknowledged. A message whose BRPOP was not
/// answered because the connection broke is lost (<https://github.com/celery/kombu/pull/1733>): at most one each time.
#[test]
fn celery_loses_no_job_while_leaders_die() {
    let Some(python) = python_with("celery", "celery") else { return };
    let programs = Programs {
        name: "Celery",
        add: words(&[&python, "celery_run.py", "add"]),
        work: words(&[&python, "-m", "celery", "-A", "celery_run", "worker", "--concurrency", "2"]),
        left: words(&[&python, "celery_run.py", "left"]),
        is_done: |left| left["queued"] == 0 && left["unacknowledged"] == 0,
    };
    let ran = run_while_leaders_die(&programs);
    let jobs = number("QUORATE_QUEUE_JOBS", 300);
    let lost: Vec<u64> = (0..jobs).filter(|job| !ran.times.contains_key(job)).collect();
    let is_broken = |line: &&String| line.contains("Connection to broker lost");
    let broken = ran.work_log.iter().filter(is_broken).count();
    println!("Celery: the workers' connections broke {broken} times; lost: {lost:?}");
    assert!(lost.len() <= broken, "lost: {lost:?}");
}

/// BullMQ runs a job again when the worker that has it does not renew its lock ("Stalled jobs" of its guide): at least
/// once, and never more often than it was started, which the job counts.
#[test]
fn bullmq_loses_no_job_while_leaders_die() {
    if !has_node_module("bullmq") {
        return;
    }
    let program = |what| words(&["node", "bullmq_run.js", what]);
    let programs = Programs {
        name: "BullMQ",
        add: program("add"),
        work: program("work"),
        left: program("left"),
        is_done: |left| ["wait", "active", "delayed"].iter().all(|place| left[*place] == 0),
    };
    let ran = run_while_leaders_die(&programs);
    assert_eq!(ran.left["failed"], 0);
    for job in 0..number("QUORATE_QUEUE_JOBS", 300) {
        let times = ran.times.get(&job).copied().unwrap_or(0);
        let begun = ran.left["started"][job.to_string()].as_u64().unwrap_or(0);
        assert!((1..=begun).contains(&times), "job {job} ran {times} times, and was begun {begun} times");
    }
}
