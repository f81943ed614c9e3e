//! A small study from end to end: processes are started, driven and stopped, and a folder is written.
//!
//! The system under test is this very program: run with a port in its environment, it is a server.

// A panic is how a test fails; the lint knows that of test functions, but not of their helpers.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, unused_imports, reason = "what the tests of the load generator need")]
mod mock;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::harness::{
    Arena, Arm, Claim, Fault, Figure, Figures, Judgement, Measure, Paper, Parameter, Plan, Point, Scale,
    Shape, Study, Table, Verdict, load_measures,
};
use lab::load::{Mix, Options, Stop};
use lab::report::Colour;
use lab::systems::{Children, Missing, NodePlan, System, ask, free_ports};
use lab::{Outcome, Sweep};
use mock::{Behaviour, start_at};

const PORT: &str = "LAB_TEST_PORT";

/// Not a test, but the process that the others start: without a port in the environment it does nothing.
#[test]
#[ignore = "it is the server that the other tests start"]
fn serve() {
    if let Some(port) = std::env::var(PORT).ok().and_then(|port| port.parse().ok()) {
        let _mock = start_at(port, Behaviour::Sound);
        loop {
            std::thread::park();
        }
    }
}

/// Two such servers that know nothing of each other.
struct Servers {
    is_installed: bool,
}

/// Every address that a server was started at, by any test.
static STARTED: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

impl System for Servers {
    fn name(&self) -> String {
        "Servers".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let missing = Missing { what: "there are no servers".to_owned(), install: "get servers".to_owned() };
        if self.is_installed { Ok("1.2.3".to_owned()) } else { Err(missing) }
    }

    fn acknowledges(&self) -> String {
        "it is asked".to_owned()
    }

    fn durability(&self) -> String {
        "nothing".to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let plan = |port: u16| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            STARTED.lock().unwrap().push(address);
            let folder = folder.join(port.to_string());
            fs::create_dir_all(&folder)?;
            Ok(NodePlan {
                program: std::env::current_exe()?,
                arguments: ["--exact", "serve", "--ignored"].map(str::to_owned).to_vec(),
                environment: vec![(PORT.to_owned(), port.to_string())],
                folder,
                resp: Some(address),
                http: None,
            })
        };
        free_ports(2)?.into_iter().map(plan).collect()
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        nodes.iter().filter_map(|node| node.resp).all(|address| ask(address, &["PING"]).is_ok())
    }

    fn peer_bytes_sent(&self, _node: &NodePlan) -> Option<u64> {
        Some(1)
    }
}

/// What a study does at its points.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    Measures,
    FailsAt(&'static str),
    Panics,
    Kills,
    /// A node that gets no requests ends by itself.
    LosesANode,
    /// It lets a node stand still for longer than the load takes.
    PausesForTooLong,
}

struct Tiny {
    conduct: Conduct,
    measured: AtomicU32,
}

fn tiny(conduct: Conduct) -> Tiny {
    Tiny { conduct, measured: AtomicU32::new(0) }
}

impl Study for Tiny {
    fn name(&self) -> &'static str {
        "tiny"
    }

    fn title(&self) -> &'static str {
        "Whether a server answers"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper { title: "On answering", authors: "N. N.", setting: "paper", code: None })
    }

    fn varies(&self) -> &'static str {
        "clients"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![Parameter { name: "clients", title: "Clients" }]
    }

    fn measures(&self) -> Vec<Measure> {
        load_measures()
    }

    fn arms(&self, _plan: &Plan) -> Vec<Arm> {
        let arm = |name: &str, is_installed| Arm {
            name: name.to_owned(),
            colour: Colour::OTHER,
            system: Some(Box::new(Servers { is_installed })),
            differs: String::new(),
            points: ["1", "2"].map(|clients| Point::new().with("clients", clients)).to_vec(),
        };
        vec![arm("Servers", true), arm("Absent", false)]
    }

    fn measure(&self, _arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        // Programs that a study starts elsewhere find it, too.
        ensure!(arena.folder().is_absolute(), "{} is relative", arena.folder().display());
        let addresses = arena.system()?.resp();
        match self.conduct {
            Conduct::FailsAt(clients) if clients == point.get("clients") => bail!("it is not to be"),
            Conduct::Panics => panic!("a slip in a study"),
            Conduct::LosesANode => {
                let process = arena.system()?.process(1).context("it runs")?;
                // Once: its number may be another process's afterwards.
                if point.get("clients") == "1" {
                    Command::new("kill").args(["-9", &process.to_string()]).status()?;
                }
            }
            Conduct::PausesForTooLong => drop(ask(addresses[1], &["PING"]).context("it stands still")?),
            _ => {}
        }
        self.measured.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            addresses: addresses[..1].to_vec(),
            connections: point.number("clients")?,
            mix: Mix { get: 1, set: 1, ..Mix::default() },
            keys: 10,
            key_prefix: arena.new_keys(),
            warmup: Duration::ZERO,
            stop: Stop::Duration(Duration::from_millis(if self.conduct == Conduct::Kills {
                400
            } else {
                60
            })),
            ..Options::default()
        };
        let faults: &[(Duration, Fault)] = match self.conduct {
            Conduct::Kills => {
                &[(Duration::from_millis(50), Fault::Kill(0)), (Duration::from_millis(60), Fault::Restart(0))]
            }
            Conduct::PausesForTooLong => {
                &[(Duration::ZERO, Fault::Pause(1)), (Duration::from_secs(9), Fault::Resume(1))]
            }
            _ => &[],
        };
        let driven = arena.drive_with_faults(&options, faults)?;
        assert_eq!(driven.usage.len(), 2, "what each node used is reported");
        Ok(driven.figures())
    }

    fn claims(&self) -> Vec<Claim> {
        let judge = |results: &lab::harness::Results| match results.arm("Servers").median("per_s") {
            None => Judgement::not_measured("nothing was measured"),
            Some(per_s) => Judgement::holds_if(per_s > 0.0, "it does", "It answered <fast>."),
        };
        vec![Claim::new("A server answers", "1 op/s", judge)]
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            file: "answers".to_owned(),
            title: "Answers".to_owned(),
            paper: "figure 1",
            shape: Shape::Lines,
            x: "clients",
            y: "per_s",
            only: Vec::new(),
            arms: Vec::new(),
            logarithmic: (false, false),
        }]
    }

    fn tables(&self) -> Vec<Table> {
        let (title, measures) = ("Answers".to_owned(), vec!["per_s", "p95_ms"]);
        vec![Table { title, paper: "", only: Vec::new(), arms: Vec::new(), measures }]
    }
}

fn sweep(study: &Tiny, folder: &Path, verify: bool) -> Result<Outcome> {
    let plan = Plan { scale: Scale::Quick, verify, quorate: std::env::current_exe()? };
    Sweep { study, plan, folder: folder.to_owned(), children: Children::default() }.run()
}

/// Whether a server that was started for this folder still listens. Its node's folder is named by its port.
fn is_anybody_left(ports: &[u16]) -> bool {
    ports.iter().any(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

fn ports_started_since(before: usize) -> Vec<u16> {
    STARTED.lock().unwrap()[before..].iter().map(SocketAddr::port).collect()
}

#[test]
fn a_folder_may_be_a_relative_path() {
    let folder = tempfile::tempdir().unwrap();
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let relative = Path::new(&up).join(folder.path().strip_prefix("/").unwrap());
    let outcome = sweep(&tiny(Conduct::Measures), &relative, false).unwrap();
    assert!(outcome.notes.iter().all(|note| note.kind == "skipped"), "{:?}", outcome.notes);
    assert!(!outcome.results.rows().is_empty());
}

#[test]
fn a_study_leaves_a_folder_and_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let study = tiny(Conduct::Measures);
    let outcome = sweep(&study, folder.path(), true).unwrap();

    assert_eq!(outcome.results.rows().len(), 4, "two points, each twice");
    for row in outcome.results.rows() {
        assert!(row.figures["success"] > 0.0 && row.figures["failure"] == 0.0, "{row:?}");
        let checked = row.checked.as_ref().unwrap();
        assert!(checked.verdict == "ok" && checked.operations as f64 >= row.figures["success"], "{row:?}");
    }
    assert_eq!(outcome.claims[0].judgement.verdict, Verdict::Holds);
    assert!(outcome.is_sound(), "a system that is not installed is no failure: {:?}", outcome.notes);
    assert_eq!(outcome.notes.len(), 1);
    assert_eq!(outcome.notes[0].text, "there are no servers; install it with: get servers");

    for file in ["raw.csv", "summary.csv", "nodes.csv", "machine.json", "run.json", "answers.svg"] {
        assert!(fs::metadata(folder.path().join(file)).unwrap().len() > 0, "{file}");
    }
    assert!(fs::read(folder.path().join("answers.png")).unwrap().starts_with(b"\x89PNG"));
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    for text in ["A server answers", "holds", "It answered &lt;fast&gt;.", "get servers", "<svg", "1.2.3"] {
        assert!(page.contains(text), "{text} is not in the report");
    }
    assert!(!folder.path().join("work").exists(), "what the nodes left is removed");
}

#[test]
fn an_interrupted_sweep_continues_with_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let first = tiny(Conduct::FailsAt("2"));
    let outcome = sweep(&first, folder.path(), false).unwrap();
    assert!(!outcome.is_sound());
    assert_eq!(outcome.results.rows().len(), 2);
    let failures =
        outcome.notes.iter().filter(|note| note.kind == "failed" && note.text == "it is not to be");
    assert_eq!(failures.count(), 2);

    let second = tiny(Conduct::Measures);
    let again = sweep(&second, folder.path(), false).unwrap();
    assert_eq!(second.measured.load(Ordering::Relaxed), 2, "what is there is not measured again");
    assert_eq!(again.results.rows()[..2], outcome.results.rows()[..]);
    assert!(again.is_sound(), "{:?}", again.notes);

    let third = tiny(Conduct::Measures);
    sweep(&third, folder.path(), false).unwrap();
    assert_eq!(third.measured.load(Ordering::Relaxed), 0);
}

#[test]
fn a_sweep_continues_only_with_the_same_settings() {
    let folder = tempfile::tempdir().unwrap();
    sweep(&tiny(Conduct::Measures), folder.path(), false).unwrap();
    let refusal = format!("{:#}", sweep(&tiny(Conduct::Measures), folder.path(), true).unwrap_err());
    assert!(refusal.contains("other settings: checking is no --verify there, not --verify"), "{refusal}");
}

#[test]
fn a_panic_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let before = STARTED.lock().unwrap().len();
    let study = tiny(Conduct::Panics);
    let result = catch_unwind(AssertUnwindSafe(|| sweep(&study, folder.path(), false)));
    assert!(result.is_err());
    // Other tests start servers at the same time; those of this one are named by the folders they ran in.
    let ours = |port: &u16| folder.path().join("work").join(port.to_string()).exists();
    let ports: Vec<u16> = ports_started_since(before).into_iter().filter(ours).collect();
    assert_eq!(ports.len(), 2);
    assert!(!is_anybody_left(&ports));
}

#[test]
fn a_node_is_killed_and_started_again_while_a_load_runs() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = sweep(&tiny(Conduct::Kills), folder.path(), false).unwrap();
    for row in outcome.results.rows() {
        assert!(row.figures["unknown"] > 0.0, "operations in flight were lost: {row:?}");
        assert!(row.figures["success"] > 0.0, "{row:?}");
    }
}

/// Why points have failed, none of which was measured.
fn failures(conduct: Conduct) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let outcome = sweep(&tiny(conduct), folder.path(), false).unwrap();
    assert!(outcome.results.rows().is_empty());
    outcome.notes.into_iter().filter(|note| note.kind == "failed").map(|note| note.text).collect()
}

#[test]
fn nothing_is_measured_where_a_node_ended_by_itself() {
    let failures = failures(Conduct::LosesANode);
    assert_eq!(failures.len(), 4);
    assert!(failures.iter().all(|why| why.contains("node 2 has ended (signal: 9")), "{failures:?}");
}

#[test]
fn a_fault_that_comes_too_late_fails_the_point_and_leaves_no_node_paused() {
    let failures = failures(Conduct::PausesForTooLong);
    assert_eq!(failures, ["the load ended before Resume(1) at 9000 ms"; 4]);
}

#[test]
fn two_results_are_compared_side_by_side() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let study: &'static Tiny = Box::leak(Box::new(tiny(Conduct::Measures)));
    for folder in &folders {
        sweep(study, folder.path(), false).unwrap();
    }
    let find = |name: &str| (name == "tiny").then_some(study as &dyn Study);
    let paths = [folders[0].path(), folders[1].path()];
    let comparison = lab::report::compare(paths, &["per_s".to_owned()], false, find).unwrap();
    let json = comparison.to_json();
    let lines = json["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 2, "one measure at two points");
    let [a, b] = ["a", "b"].map(|side| lines[0][side]["median"].as_f64().unwrap());
    assert_eq!(lines[0]["ratio"].as_f64(), Some(b / a));
    assert!(comparison.to_string().contains("Servers, 1"), "{comparison}");
    assert!(comparison.to_html().contains("side by side"));

    let missing = lab::report::compare([paths[0], Path::new("/nowhere")], &[], false, find).err().unwrap();
    assert!(format!("{missing:#}").contains("/nowhere is not the result of a study"), "{missing:#}");
}

#[test]
fn a_run_that_recorded_histories_is_not_compared_with_one_that_did_not_unless_asked_for() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let study: &'static Tiny = Box::leak(Box::new(tiny(Conduct::Measures)));
    for (folder, verify) in folders.iter().zip([false, true]) {
        sweep(study, folder.path(), verify).unwrap();
    }
    let find = |name: &str| (name == "tiny").then_some(study as &dyn Study);
    let compare = |mixed| lab::report::compare([folders[0].path(), folders[1].path()], &[], mixed, find);
    let refusal = format!("{:#}", compare(false).err().unwrap());
    assert!(refusal.contains("did not record histories") && refusal.contains("--mixed"), "{refusal}");
    let comparison = compare(true).unwrap().to_string();
    assert!(comparison.contains("one side recorded histories"), "{comparison}");
    // Two repeats on a side support no mark, whatever they are.
    assert!(comparison.contains("none where a side has fewer than 3 repeats"), "{comparison}");
}
