//! Every command that a page or `--help` shows does what it is shown for, or [`ELSEWHERE`] says why it cannot be run here.
//!
//! A command runs as it is written, but for the ports, addresses and folders of this machine and what would take long
//! ([`Stage::here`]). Readers follow a page from its top, so commands run in the order of the pages, on few stages
//! ([`STAGES`]), each with a cluster.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::required::{is_installed, skip};
use crate::shown::{self, Shown};
use crate::support::free_ports;

/// The longest that a command may take. Most take some milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands that cannot be run here, by a part of each, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo test", "this test is a part of it"),
    ("cargo build", "the workspace has been built"),
    ("cargo bench", "a measurement, which takes minutes"),
    (
        "--example ",
        "an example or a measurement: the test `examples` of `clients` runs those for programmers",
    ),
    ("cargo install", "it takes minutes, and installs programs"),
    ("tools/release", "it builds a release, which takes minutes"),
    ("tools/count-instructions", "a measurement, which takes a minute"),
    ("apt-get ", "it changes the machine"),
    ("docker", "needs Docker"),
    ("compose ", "needs Docker"),
    ("helm ", "needs Kubernetes"),
    ("kubectl ", "needs Kubernetes"),
    ("s3://", "needs an object store: the test `s3` of `clients` has one"),
    ("AWS_", "needs an object store"),
    ("etcd://", "needs etcd"),
    ("&& go run", "needs another checker"),
    ("rediss://", "needs a Redis with TLS: the test `sealed` of `clients` has one"),
    ("umask 077", "needs Docker"),
    ("QUORATE_SECRET=", "needs Docker"),
    ("QUORATE_PASSWORD=", "needs Docker"),
    ("QUORATE_OPERATOR_PASSWORD=", "needs Docker"),
    ("END", "needs Docker"),
    ("redis-suite", "needs the source of Redis or Valkey"),
    ("lab run ", "takes minutes"),
    ("relay --measure", "takes minutes"),
    ("=quorate recover --accept-loss", "a flag's name, on a page that says what else is given"),
    ("quorate-lab run ", "takes minutes"),
    ("compare yesterday today", "needs the results of two days"),
    ("compare before after", "needs the results of two days"),
    ("compare results/", "needs the results of two days"),
    ("--from lab-results", "needs a study's results, which take minutes"),
    ("--from today", "needs a study's results, which take minutes"),
    ("--namespaces", "needs root"),
    ("node replace 3 --accept-loss", "needs a lost disk: the test `only_replicas` of `operator` has one"),
    ("keyspace recover ", "needs a lost disk: the test `only_replicas` of `operator` has one"),
    ("quarantine skip", "needs a record that crashes nodes: the test `quarantine` of `abuse` has one"),
    ("quarantine retry", "needs a record that crashes nodes: the test `quarantine` of `abuse` has one"),
    ("host() {", "needs Kubernetes"),
    ("$(host 0)", "needs Kubernetes"),
    ("/a/safe/place", "a place that the reader chooses"),
    ("maxmemory BASE", "a recipe, whose values depend on the measurement"),
    ("quorate man . &&", "it opens a reader"),
];

/// A cluster, and the commands that are for it.
struct Plan {
    /// Parts of the places, or of the commands, that belong to it. A command belongs to the first stage that wants it.
    wants: &'static [&'static str],
    /// How it is set up: the lines of a shell.
    setup: &'static [&'static str],
    /// Whether its commands start its cluster themselves, one after another.
    begins_empty: bool,
    /// The configuration of the node of the reader's machine.
    node: &'static str,
}

const STAGES: &[Plan] = &[
    Plan { wants: &["=README.md"], setup: &[], begins_empty: true, node: HERE },
    Plan { wants: &["docs/guide/start.md"], setup: &[], begins_empty: true, node: HERE },
    Plan {
        wants: &["quorate recover"],
        setup: &[
            "quorate cluster --nodes 5 --dir data",
            "kill $(cat data/node-*/quorate.pid); while ls data/*/quorate.pid; do sleep 0.05; done; cp -a data first",
        ],
        begins_empty: false,
        node: "data/node-3/quorate.toml",
    },
    Plan {
        wants: &["--tls", "--cacert", "--certs", "certs", "docs/guide/secure.md"],
        setup: &[
            "quorate cluster --nodes 3 --dir data --tls",
            USERS,
            "quorate cluster --dir try --nodes 1 --client-port 7900 --tls",
            "cat data/certs/authority.crt try/certs/authority.crt > authority.crt",
            "quorate certs --dir data/certs --client alice && cp data/certs/client-alice.* .",
            "ln -s data/node-1 node-1 && redis-cli -p 7000 set k v",
        ],
        begins_empty: false,
        node: HERE,
    },
    Plan {
        wants: &[""],
        setup: &[
            "quorate cluster --nodes 3 --dir data",
            "quorate cluster --dir try --nodes 1 --client-port 7900",
            USERS,
            "redis-cli -p 7900 acl setuser ada on '>pw' '~*' '&*' +@all",
            HISTORY,
            "quorate keyspace create cart: replication=leader-follower acks=majority",
            "redis-cli -p 7000 set k v",
        ],
        begins_empty: false,
        node: HERE,
    },
];

const HERE: &str = "data/node-1/quorate.toml";

/// Passwords that pages name, and users who have them.
const USERS: &str = "for name in password operator ada.txt password.txt; do echo pw > $name; done; for name in ada; do \
                     redis-cli -p 7000 acl setuser $name on '>pw' '~*' '&*' +@all; done";

const HISTORY: &str = r#"echo '{"client":1,"operation":"set","key":"cart:17","value":"v","start":10,"end":20,"outcome":"ok"}' > history.jsonl
    gzip -k history.jsonl; mkdir -p lab-results/locks-quick/history; cp history.jsonl.gz lab-results/locks-quick/history/"#;

/// What a page assumes before a command, by a part of the command.
const BEFORE: &[(&str, &str)] = &[
    ("quorate certs --dir certs --client", "rm -f certs/client-alice.*"),
    ("redis://", "redis-cli -p 7000 flushall"),
    (
        "=quorate node add 4 10.0.0.4 7000 8000 9000",
        "quorate keyspace drop profile: --yes; quorate node remove 4 --force; true",
    ),
    ("--keyspace cart:", "quorate keyspace create cart: --if-not-exists"),
    (
        "quorate restore --from /backup/shop --addr 10.0.0.7:7000 --keyspace cart:",
        "quorate backup --to /backup/shop",
    ),
    ("accept-loss", "rm -rf data && cp -a first data"),
    (
        "--with node-4.json",
        "rm -f node-4.json; quorate recover --config data/node-4/quorate.toml --save node-4.json",
    ),
    ("quorate certs --dir certs --node", "rm -rf certs"),
    ("--certs certs", "rm -rf node-4 certs; cp -r data/certs certs"),
    ("import dump.rdb", "quorate export dump.rdb --force"),
    ("import dump.rdb --addr", "redis-cli -p 7000 flushall"),
    ("export dump.rdb", "rm -f dump.rdb"),
    ("import appendonlydir", APPEND_ONLY_FILES),
    ("127.0.0.1:6379 --rounds", REDIS),
    ("--vs 127.0.0.1:6379", REDIS),
    ("redis://", REDIS),
    ("quorate restore --from /backup/shop --addr", "redis-cli -p 7900 flushall"),
    ("LOCK.RENEW", "redis-cli -p 7000 LOCK {job:7}:lock me PX 10000 > token"),
    ("lock get job:7", "redis-cli -p 7000 LOCK job:7 me PX 100000 > token"),
    ("=quorate node replace 3", LOSE_NODE_3),
    ("=quorate node replace 3", "quorate server --config data/node-3/quorate.toml"),
    ("=quorate cluster --dir data", "rm -rf data/node-4"),
    ("quorate server --config data/node-1", STOP_NODE_1),
    ("quorate server --config node.toml", LONE_NODE),
    ("join --like quorate.toml", "cp data/node-1/quorate.toml ."),
    ("join --config quorate.toml", "cp data/node-1/quorate.toml ."),
    ("keyspace create cache:", "quorate keyspace drop cache: --yes || true"),
    ("KEYSPACE CREATE cache:", "quorate keyspace drop cache: --yes || true"),
    ("keyspace create cart:", "quorate keyspace drop cart: --yes || true"),
    ("user create", "for name in watcher saver ann shop report; do quorate user drop $name; done; true"),
    ("user alter shop", "redis-cli -p 7000 acl setuser shop on '>pw'"),
];

const REDIS: &str = "redis-server --port 6379 --save ''";

const APPEND_ONLY_FILES: &str = "rm -rf aof appendonlydir; mkdir aof; redis-server --port 6380 --dir aof --appendonly yes & \
    until redis-cli -p 6380 set from:redis v; do sleep 0.05; done; redis-cli -p 6380 shutdown; wait; mv aof/appendonlydir . && \
    redis-cli -p 7000 del from:redis";

const STOP_NODE_1: &str =
    "pid=$(cat data/node-1/quorate.pid) && kill $pid && while kill -0 $pid; do sleep 0.05; done; true";

/// Node 4 has just been removed: a leader that is lost before its group has settled takes acknowledged writes with it.
const LOSE_NODE_3: &str = "until ! redis-cli -p 7000 cluster map | grep -q '\"settled\":false'; do sleep 0.05; done; \
    kill -9 $(cat data/node-3/quorate.pid) && mv data/node-3 lost && mkdir data/node-3 && \
    cp lost/quorate.toml data/node-3/";

const LONE_NODE: &str = r#"printf 'node = 1\ncluster = "one"\nsecret = "0123456789abcdef0123"\n[[nodes]]\nid = 1\nhost = "127.0.0.1"
client_port = 7100\nhttp_port = 8100\npeer_port = 9100\n' > node.toml"#;

/// Commands that run until they are stopped, by their beginnings, and what they print when they have begun.
const STAYS: &[(&str, &str)] = &[
    ("quorate cluster ", "\nready"),
    ("quorate server ", " started, process "),
    ("QUORATE_LOG=debug quorate server ", " started, process "),
    ("redis-server ", "Ready to accept connections"),
    ("curl -N ", "event: "),
    ("quorate lab relay --route", ""),
    ("quorate-lab relay --route", ""),
    ("quorate-lab relay --seed", ""),
];

/// Commands that are refused for a moment, as the pages say: they are repeated.
const PATIENT: &[&str] =
    &["quorate node remove 4", "quorate node replace 3", "quorate node add 4 10.0.0.4 7000 8000 9000"];

/// Parts of commands that run until they are stopped, and are stopped when they have printed this: nothing needs them.
const STAYS_WITH: &[(&str, &str)] = &[(" --every ", "copied"), ("quorate top", "cluster ")];

/// What stands for addresses, files and programs of the pages, and for what would take long.
const HERE_IT_IS: &[(&str, &str)] = &[
    ("cargo run --release -p quorate-lab -- ", "quorate-lab "),
    ("cargo run --release -- ", "quorate "),
    ("target/release/", ""),
    // Another cluster, which is made for a trial.
    ("10.0.1.1:7000", "127.0.0.1:7900"),
    ("10.0.1.1:7443", "127.0.0.1:7903"),
    ("10.0.0.7", "127.0.0.1"),
    ("10.0.0.3:", "127.0.0.1:"),
    ("a.example:", "127.0.0.1:"),
    ("b.example:", "127.0.0.1:"),
    ("db1.example:", "127.0.0.1:"),
    ("-h db1.example", "-h 127.0.0.1"),
    ("/backup", "backup"),
    ("/tmp/try", "try"),
    ("/usr/share/bash-completion/completions/", ""),
    ("/usr/local/share/man/man1", "."),
    ("\"${fpath[1]}/_quorate\"", "_quorate"),
    ("~/.config/fish/completions/", ""),
    ("2026-11-26T21:59:00Z", "$(date -u +%FT%T.%3NZ)"),
    ("redis-cli ", "redis-cli -e "),
    (" --askpass", " --user ada --pass pw"),
    (" --user operator", " --user ada"),
    ("--dir data --host", "--dir joined --host"),
    ("--token 1045", "--token $(cat token)"),
    ("node lead 17 3", "node lead 1 3"),
    ("--count 10 ", "--count 2 "),
    ("127.0.0.1:23500", "127.0.0.1:6379"),
    ("127.0.0.1:23100", "127.0.0.1:7000"),
    // It follows the Redis until Enter is pressed.
    ("quorate import redis://", "(sleep 1; echo) | quorate import redis://"),
    ("--duration 10s", "--duration 100ms"),
    ("--duration 5s", "--duration 100ms"),
    ("--minutes 10", "--runs 1"),
    ("--minutes 1", "--runs 1"),
    ("1000000", "1000"),
];

/// The number of ports between the kinds.
const STRIDE: u16 = 8;

/// A shell's way to the programs, and the places that stand for those of the pages.
struct Stage {
    folder: TempDir,
    programs: PathBuf,
    /// The first port of the cluster, for clients; those for HTTP, peers and TLS follow.
    base: u16,
    /// The configuration of the node of this machine.
    node: &'static str,
    /// What stays, with the command that has started it.
    running: Vec<(String, Running)>,
}

/// A process that runs until it is stopped, with all that it has started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        // A cluster stops its nodes, which have groups of their own.
        let _ = kill_process_group(group, Signal::TERM);
        let by = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Stage {
    fn new(node: &'static str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let quorate = Path::new(env!("CARGO_BIN_EXE_quorate"));
        let lab = quorate.with_file_name("quorate-lab");
        assert!(lab.exists(), "{} is not there: cargo test --workspace builds it", lab.display());
        symlink(quorate, programs.join("quorate")).unwrap();
        symlink(lab, programs.join("quorate-lab")).unwrap();
        Stage { folder, programs, base: free_ports(8 * STRIDE), node, running: Vec::new() }
    }

    /// The command for this machine.
    fn here(&self, text: &str) -> String {
        let mut text = text.trim_end_matches('&').trim_end().to_owned();
        let own = [("/etc/quorate/quorate.toml", self.node), ("/etc/quorate.toml", self.node)];
        for (shown, real) in HERE_IT_IS.iter().chain(&own) {
            text = text.replace(shown, real);
        }
        if !text.contains("--user ") {
            text = text.replace("--password-file", "--user ada --password-file");
        }
        let word = text.split(' ').next().unwrap_or_default();
        if word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'.') {
            let words = text
                .split(' ')
                .map(|word| if word == "token" { "$(cat token)".into() } else { quoted(word) });
            text = format!("redis-cli -e -p 7000 {}", words.collect::<Vec<_>>().join(" "));
        }
        if text.starts_with("redis-server") && !text.contains("--port") {
            text += " --port 6379";
        }
        self.with_ports(&self.with_flags(text))
    }

    /// Adds the flags that keep a measurement short, and give a cluster the ports of this stage.
    fn with_flags(&self, mut text: String) -> String {
        if text.starts_with("quorate bench") || text.starts_with("quorate-lab bench") {
            if !text.contains("--addr") {
                text += " --addr 127.0.0.1:7000";
            }
            for (flag, value) in [("--duration", "100ms"), ("--warmup", "0s"), ("--keys", "1000")] {
                let is_counted = text.contains("--count") && flag != "--keys";
                if !text.contains(flag) && !is_counted {
                    text += &format!(" {flag} {value}");
                }
            }
        }
        if text.starts_with("quorate cluster") && text != "quorate cluster --dir data" {
            let is_trial = text.contains("--client-port");
            let of = |kind: u16| if is_trial { 7900 + kind } else { self.base + kind * STRIDE };
            let names: &[&str] = match text.contains("--tls") {
                true => &["client", "http", "peer", "tls-client", "tls-http"],
                false => &["client", "http", "peer"],
            };
            for (name, kind) in names.iter().zip(0..) {
                if !text.contains(&format!("--{name}-port")) {
                    text += &format!(" --{name}-port {}", of(kind));
                }
            }
        }
        text
    }

    /// A cluster beside the one of the stage: at other ports, in another folder.
    fn elsewhere(&self, command: &str) -> String {
        let base = free_ports(5 * STRIDE);
        let kinds =
            ["--client-port ", "--http-port ", "--peer-port ", "--tls-client-port ", "--tls-http-port "];
        let mut words: Vec<String> = command
            .replace("--dir data", &format!("--dir data-{base}"))
            .split(' ')
            .map(str::to_owned)
            .collect();
        for place in 1..words.len() {
            if let Some(kind) = kinds.iter().position(|kind| kind.trim_end() == words[place - 1]) {
                words[place] = (base + kind as u16 * STRIDE).to_string();
            }
        }
        words.join(" ")
    }

    /// Puts this stage's ports in the place of those of the pages.
    fn with_ports(&self, text: &str) -> String {
        let of = |kind: u16, number: u16| self.base + kind * STRIDE + number;
        let real = |number: u16| match number {
            7000..=7007 => Some(of(0, number - 7000)),
            8000..=8007 => Some(of(1, number - 8000)),
            9000..=9007 => Some(of(2, number - 9000)),
            7443..=7446 => Some(of(3, number - 7443)),
            8443..=8446 => Some(of(4, number - 8443)),
            7900..=7907 => Some(of(5, number - 7900)),
            6379 | 6380 => Some(of(6, number - 6379)),
            7100 | 8100 | 9100 => Some(of(7, (number - 7100) / 1000)),
            9102 | 9112 | 9113 | 9123 => {
                Some(of(6, 2 + [9102, 9112, 9113, 9123].partition_point(|it| *it < number) as u16))
            }
            6390 => Some(of(6, 6)),
            _ => None,
        };
        let mut out = String::new();
        for part in text.split_inclusive(|letter: char| !letter.is_ascii_digit()) {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            match part[..digits].parse().ok().and_then(real) {
                Some(port) if digits == 4 => out += &format!("{port}{}", &part[digits..]),
                _ => out += part,
            }
        }
        out
    }

    /// Starts a command with a shell. Its output goes to a file.
    fn start(&self, command: &str) -> (Running, PathBuf) {
        let output = tempfile::Builder::new().prefix("output").tempfile_in(self.folder.path()).unwrap();
        let (file, output) = output.keep().unwrap();
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-c", command]).current_dir(self.folder.path()).process_group(0).stdin(Stdio::null());
        shell.env("PATH", path).env("HOME", self.folder.path());
        shell.env("QUORATE_ADDR", self.with_ports("127.0.0.1:7000"));
        shell.stdout(file.try_clone().unwrap()).stderr(file);
        (Running(shell.spawn().unwrap()), output)
    }

    /// Does what is assumed before a command, and runs it.
    ///
    /// # Errors
    /// What ran, and what it printed.
    fn perform(&mut self, shown: &str, begins_empty: bool) -> Result<(), String> {
        let mut real = self.here(shown);
        if real.starts_with("quorate cluster") {
            let is_trial = |text: &str| text.contains("--dir try") || text.contains("/tmp/try");
            if is_trial(&real) {
                self.running.retain(|(text, _)| !is_trial(text));
            } else if begins_empty || shown == "quorate cluster --dir data" {
                self.running.retain(|(text, _)| is_trial(text));
            } else {
                real = self.elsewhere(&real);
            }
        }
        for (_, before) in BEFORE.iter().filter(|(part, _)| names(part, shown)) {
            let (code, output) = self.run(before, &self.here(before));
            if code != 0 {
                return Err(format!("before it, {before}: {code}: {output}"));
            }
        }
        let by = Instant::now() + PATIENCE;
        loop {
            let (code, output) = self.run(shown, &real);
            // A cluster that is at risk was described all the same.
            let describes = real.starts_with("quorate status") || real.starts_with("quorate top");
            if code == 0 || describes && code == 1 {
                return Ok(());
            }
            if let Some(name) =
                ["curl", "jq"].iter().find(|name| output.contains(&format!("{name}: command not found")))
            {
                skip(format_args!("{name} is not installed: {shown}"));
                return Ok(());
            }
            if !PATIENT.contains(&shown) || Instant::now() > by {
                let lines: Vec<&str> = output.lines().take(6).collect();
                return Err(format!("{real}: exit code {code}\n    {}", lines.join("\n    ")));
            }
        }
    }

    /// Runs a command to its end, or until it has begun what it does until it is stopped. Returns its exit code, and its output.
    fn run(&mut self, shown: &str, command: &str) -> (i32, String) {
        let stays = STAYS.iter().find(|(begin, _)| command.starts_with(begin));
        let ends = STAYS_WITH.iter().find(|(part, _)| command.contains(part) && !command.contains("--count"));
        if command.starts_with("redis-server") {
            self.running.retain(|(text, _)| !text.starts_with("redis-server"));
        }
        let (mut running, output) = self.start(command);
        let said = || String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
        let by = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), said());
            }
            if stays.is_some_and(|(_, begun)| said().contains(begun)) {
                self.running.push((shown.to_owned(), running));
                return (0, said());
            }
            if ends.is_some_and(|(_, begun)| said().contains(begun)) {
                return (0, said());
            }
            if Instant::now() > by {
                return (-2, said());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// All commands that can be run here.
fn runnable() -> Vec<Shown> {
    let mut all = shown::all(Path::new(env!("CARGO_BIN_EXE_quorate")));
    all.retain(|it| !ELSEWHERE.iter().any(|(part, _)| names(part, &it.text)));
    all
}

/// The number of the stage that a command belongs to.
fn stage_of(shown: &Shown) -> usize {
    let is_wanted = |part: &str| names(part, &shown.place) || names(part, &shown.text);
    STAGES
        .iter()
        .position(|plan| plan.wants.iter().any(|part| is_wanted(part)))
        .expect("the last one wants all")
}

/// Whether Redis's programs are installed.
#[track_caller]
fn has_redis() -> bool {
    let has = |(name, package): (&str, &str)| {
        is_installed(&format!("{name} (package {package})"), Command::new(name).arg("--version"))
    };
    [("redis-cli", "redis-tools"), ("redis-server", "redis-server")].into_iter().all(has)
}

/// Runs a stage's commands, and what is assumed before each.
fn play(number: usize) {
    if !has_redis() {
        return;
    }
    let plan = &STAGES[number];
    let mut stage = Stage::new(plan.node);
    for line in plan.setup {
        let (code, output) = stage.run(line, &stage.here(line));
        assert_eq!(code, 0, "{line}: {output}");
    }
    let (mut done, mut failed) = (HashSet::new(), Vec::new());
    for it in runnable().into_iter().filter(|it| stage_of(it) == number) {
        if done.insert(it.text.clone())
            && let Err(why) = stage.perform(&it.text, plan.begins_empty)
        {
            failed.push(format!("{}: {}\n    {why}", it.place, it.text));
        }
    }
    assert!(!done.is_empty(), "the stage has no command");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_commands_of_the_readme_work() {
    play(0);
}

#[test]
fn the_first_steps_work() {
    play(1);
}

#[test]
fn the_commands_of_recovery_work() {
    play(2);
}

#[test]
fn the_commands_for_tls_work() {
    play(3);
}

#[test]
fn all_other_commands_work() {
    play(4);
}

#[test]
fn every_exception_is_for_a_command_that_is_shown() {
    let all = shown::all(Path::new(env!("CARGO_BIN_EXE_quorate")));
    assert!(all.len() > 300, "{} commands were found", all.len());
    let parts = ELSEWHERE.iter().chain(BEFORE).map(|(part, _)| *part).chain(PATIENT.iter().copied());
    let idle: Vec<&str> = parts.filter(|part| !all.iter().any(|it| names(part, &it.text))).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn a_command_that_fails_is_reported() {
    let mut stage = Stage::new(HERE);
    for wrong in
        ["quorate keyspace create cache: acks=none", "quorate cluster --nodes 3", "redis-cli -p 7000 ping"]
    {
        let why = stage.perform(wrong, true).expect_err(wrong);
        assert!(why.contains(wrong.split(' ').next().unwrap()), "{wrong}: {why}");
    }
    assert_eq!(stage.perform("quorate --version", true), Ok(()));
}

/// Whether a command has this part, or is all of it, with an equals sign before it.
fn names(part: &str, text: &str) -> bool {
    part.strip_prefix('=').map_or(text.contains(part), |whole| text == whole)
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
