//! Runs a study: every arm, every point, every repeat, and nothing twice.
//!
//! The sweep runs in rounds, one for each repeat. In a round every arm is started once and measured at all of its
//! points; the next round begins with the next arm. So changes on the machine during the sweep affect all arms
//! alike.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::harness::folder::{ArmNote, Folder, HISTORIES, NodeRow, Note, RunFile, Settings};
use crate::harness::progress::Line;
use crate::harness::results::Checked;
use crate::harness::steal::STEAL_PERCENT;
use crate::harness::{Arena, Arm, Judged, Machine, Plan, Point, Results, Row, Study, verify};
use crate::load::Progress;
use crate::load::steal::ProcessorTime;
use crate::report;
use crate::systems::{Children, NodePlan, NodeUsage, Running};

/// A study that is to be run.
pub struct Sweep<'a> {
    /// The study.
    pub study: &'a dyn Study,
    /// How much of it is run, and with what.
    pub plan: Plan,
    /// The folder for the results.
    pub folder: PathBuf,
    /// The processes that it starts.
    pub children: Children,
}

/// The result of a sweep.
#[derive(Debug)]
pub struct Outcome {
    /// Every row.
    pub results: Results,
    /// The judged claims.
    pub claims: Vec<Judged>,
    /// What is missing or wrong.
    pub notes: Vec<Note>,
    /// Whether histories should have been checked but none was recorded.
    pub has_checked_nothing: bool,
}

impl Outcome {
    /// Whether every arm that could be started was measured, and every checked answer is known to be right.
    pub fn is_sound(&self) -> bool {
        !self.has_checked_nothing
            && self.notes.iter().all(|note| ["skipped", "cold"].contains(&note.kind.as_str()))
    }
}

struct State {
    folder: Folder,
    run: RunFile,
    results: Results,
}

impl Sweep<'_> {
    /// Runs the rest of the sweep and writes the report.
    ///
    /// # Errors
    /// The folder belongs to another sweep, or cannot be written. A system that does not start and a point that
    /// cannot be measured are no errors: the report shows them.
    pub fn run(&self) -> Result<Outcome> {
        let study = self.study;
        let parameters = study.parameters();
        let repeats = study.repeats(&self.plan);
        let settings = Settings {
            study: study.name().to_owned(),
            scale: self.plan.scale,
            verify: self.plan.verify,
            repeats,
            program: program_id(&self.plan.quorate)?,
        };
        let (folder, run, results) = Folder::open(&self.folder, &settings, parameters.len())?;
        let results = results.unwrap_or_else(|| {
            let parameters: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
            let measures = study.measures();
            let measures = measures.iter().map(|measure| measure.name).chain([STEAL_PERCENT]);
            Results::new(&parameters, &measures.collect::<Vec<&str>>())
        });
        let mut state = State { folder, run, results };
        // Inspected before anything is started: how busy the machine was with other work.
        let machine = Machine::look();
        state.folder.write_json("machine.json", &machine)?;
        state.folder.write_json("run.json", &state.run)?;

        let arms = study.arms(&self.plan);
        let points: usize = arms.iter().map(|arm| arm.points.len()).sum();
        let line = Line::new(points * repeats as usize, state.results.rows().len());
        let mut is_skipped = vec![false; arms.len()];
        for repeat in 1..=repeats {
            if repeat > 1 {
                // Gives a reader who does not wait for all rounds of a long sweep a report of those that are done.
                report::write(study, &arms, &state.folder, &state.results, &state.run, &machine)?;
            }
            line.round(repeat, repeats);
            for turn in 0..arms.len() {
                let index = (turn + repeat as usize - 1) % arms.len();
                if !is_skipped[index] {
                    is_skipped[index] = !self.run_arm(&mut state, &arms[index], repeat, &line)?;
                }
            }
        }
        line.finish();
        let claims = report::write(study, &arms, &state.folder, &state.results, &state.run, &machine)?;
        let has_checked_nothing = self.plan.verify && state.results.checked().0 == 0;
        Ok(Outcome { results: state.results, claims, notes: state.run.notes, has_checked_nothing })
    }

    /// Measures the rest of an arm's points in one round. Returns false when its system is not installed: it is not
    /// tried again.
    fn run_arm(&self, state: &mut State, arm: &Arm, repeat: u32, line: &Line) -> Result<bool> {
        let parameters = self.study.parameters();
        let is_left = |point: &&Point| !state.results.has(&arm.name, &point.key(&parameters), repeat);
        let left: Vec<&Point> = arm.points.iter().filter(is_left).collect();
        if left.is_empty() {
            return Ok(true);
        }
        let mut note = ArmNote { differs: arm.differs.clone(), ..ArmNote::default() };
        if let Some(system) = &arm.system {
            match system.version() {
                Ok(version) => note.version = version,
                Err(missing) => {
                    line.say(&format!("{}: skipped, {missing}", arm.name));
                    state.note(arm, "", "skipped", missing.to_string())?;
                    line.leave_out(arm.points.len() * self.study.repeats(&self.plan) as usize);
                    return Ok(false);
                }
            }
            note.system = system.name();
            note.acknowledges = system.acknowledges();
            note.durability = system.durability();
        }
        line.arm(&arm.name, left.len());
        // Processes of a study may run in their own folder.
        let work = std::path::absolute(state.folder.path().join("work"))?;
        let running = match &arm.system {
            None => None,
            Some(system) => match Running::start(system.as_ref(), &work, &self.children) {
                Ok(running) => Some(running),
                Err(error) => {
                    line.say(&format!("{}: failed to start: {error:#}", arm.name));
                    state.note(arm, "", "failed", format!("it did not start: {error:#}"))?;
                    return Ok(true);
                }
            },
        };
        if let Some(running) = &running {
            note.network = match running.system().relay() {
                Some(_) => "the lab's relay between nodes, loopback to clients",
                None => "loopback",
            }
            .to_owned();
            note.commands = running.nodes().map(NodePlan::command).collect();
        } else {
            std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        }
        state.run.arms.insert(arm.name.clone(), note);
        let show = |progress: &Progress| line.show(progress);
        let mut arena = Arena::new(running, &work, repeat, self.plan.scale, self.plan.verify, &show);
        for point in left {
            line.point(&arm.name, &point.words());
            let before = ProcessorTime::look();
            let measured = self.study.measure(arm, point, &mut arena);
            let steal_percent = ProcessorTime::look().and_then(|now| now.steal_percent_since(before?));
            // Regardless of the result: figures of a system that has lost a node by itself do not count.
            match measured.and_then(|figures| arena.check_alive().map(|()| figures)) {
                Ok(figures) => {
                    let (nodes, checked) = arena.take_notes()?;
                    let figures =
                        figures.into_iter().chain(steal_percent.map(|percent| (STEAL_PERCENT, percent)));
                    let figures = figures.map(|(name, value)| (name.to_owned(), value)).collect();
                    let key = point.key(&parameters);
                    let row = Row { arm: arm.name.clone(), point: key, repeat, figures, checked: None };
                    // A signal kills the nodes. What was measured while they died must not become a row.
                    self.children.undisturbed(|| state.keep(row, nodes, checked))?;
                    if let Some(why) = arena.take_cold() {
                        line.say(&format!("{}, {}: {why}", arm.name, point.words()));
                        state.note(arm, &point.words(), "cold", why)?;
                    }
                    line.done();
                }
                Err(error) => {
                    let (_, checked) = arena.take_notes()?; // They belong to no later point.
                    for file in checked.into_iter().flat_map(|checked| checked.files) {
                        fs::remove_file(&file)
                            .with_context(|| format!("cannot remove {}", file.display()))?;
                    }
                    line.say(&format!("{}, {}: failed: {error:#}", arm.name, point.words()));
                    state.note(arm, &point.words(), "failed", format!("{error:#}"))?;
                }
            }
        }
        arena.stop();
        // The nodes' files are of interest only if something went wrong.
        if state.run.notes.iter().any(|note| note.arm == arm.name && note.kind != "cold") {
            let kept = format!("work-{}-{repeat}", file_word(&arm.name));
            let _ = std::fs::rename(&work, state.folder.file(&kept));
        } else {
            let _ = std::fs::remove_dir_all(&work);
        }
        Ok(true)
    }
}

impl State {
    /// Stores a row, with the results of checking its histories.
    fn keep(&mut self, mut row: Row, nodes: Vec<NodeUsage>, checked: Option<verify::Checked>) -> Result<()> {
        if let Some(checked) = checked {
            let wrong = checked.wrong.as_ref().map(|(file, _)| file);
            let name = history_name(&row.arm, &row.point, row.repeat);
            let mut kept = Vec::new();
            for file in &checked.files {
                // A single history gets the row's name.
                let name = match checked.files.len() {
                    1 => format!("{name}.jsonl.gz"),
                    _ => format!("{name}-{}.jsonl.gz", kept.len() + 1),
                };
                if self.folder.keep_history(file, &name, wrong == Some(file))? {
                    kept.push((file, format!("{HISTORIES}/{name}")));
                }
            }
            if let Some((file, words)) = &checked.wrong {
                let name = kept.iter().find(|(kept, _)| *kept == file).map_or("", |(_, name)| name);
                let (arm, point) = (row.arm.clone(), row.point.join(", "));
                let text = format!("see {name}: {words}");
                self.run.notes.push(Note { arm, point, kind: checked.verdict.to_owned(), text });
            }
            let names: Vec<&str> = kept.iter().map(|(_, name)| name.as_str()).collect();
            row.checked = Some(Checked {
                operations: checked.operations,
                verdict: checked.verdict.to_owned(),
                history: names.join(" "),
            });
        }
        let node_row = NodeRow { arm: row.arm.clone(), point: row.point.clone(), repeat: row.repeat, nodes };
        self.results.push(row);
        self.folder.write_json("run.json", &self.run)?;
        if !node_row.nodes.is_empty() {
            self.folder.append_nodes(self.results.parameters(), &node_row)?;
        }
        // The rows are written last: a point that is in them is done.
        self.folder.write("raw.csv", |output| self.results.write_raw(output))
    }

    fn note(&mut self, arm: &Arm, point: &str, kind: &str, text: String) -> Result<()> {
        let (arm, point, kind) = (arm.name.clone(), point.to_owned(), kind.to_owned());
        self.run.notes.push(Note { arm, point, kind, text });
        self.folder.write_json("run.json", &self.run)
    }
}

/// The file name of a row's history, without extension.
fn history_name(arm: &str, point: &[String], repeat: u32) -> String {
    let words = [arm].into_iter().chain(point.iter().map(String::as_str)).map(file_word);
    words.chain([repeat.to_string()]).collect::<Vec<String>>().join("-")
}

/// Makes words usable in a file name.
fn file_word(words: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let parts = words.split(|c: char| !is_plain(c)).filter(|part| !part.is_empty());
    parts.collect::<Vec<&str>>().join("-")
}

/// The version, and a checksum of the measured program.
fn program_id(program: &Path) -> Result<String> {
    let mut file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
    Ok(format!("{} ({:08x})", env!("CARGO_PKG_VERSION"), hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::harness::Scale;

    #[test]
    fn a_history_is_named_after_its_row_as_files_are() {
        let point = ["GET 50/50, \"hot\"".to_owned(), "0.5".to_owned()];
        assert_eq!(history_name("Redis, WAIT 1", &point, 2), "Redis-WAIT-1-GET-50-50-hot-0.5-2");
    }

    #[test]
    fn no_two_rows_of_a_study_have_files_of_one_name() {
        let plan = Plan { scale: Scale::Full, verify: true, quorate: PathBuf::from("quorate") };
        for study in crate::studies::ALL {
            let (parameters, mut names) = (study.parameters(), BTreeSet::new());
            for arm in study.arms(&plan) {
                for point in &arm.points {
                    let name = history_name(&arm.name, &point.key(&parameters), 1);
                    assert!(name.len() < 200, "{name}");
                    assert!(names.insert(name.to_ascii_lowercase()), "{}: {name}", study.name());
                }
            }
        }
    }
}
