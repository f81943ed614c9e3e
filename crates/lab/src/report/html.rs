//! `report.html`: one self-contained page.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::short;
use crate::harness::{
    Arm, ArmNote, Judged, Listing, Machine, Results, RunFile, Steal, Study, Table, Verdict,
};

/// The content of the page.
pub(super) struct Contents<'a> {
    pub(super) study: &'a dyn Study,
    pub(super) arms: &'a [Arm],
    pub(super) results: &'a Results,
    pub(super) run: &'a RunFile,
    pub(super) machine: &'a Machine,
    pub(super) claims: &'a [Judged],
    pub(super) figures: &'a [Shown],
    pub(super) listings: &'a [Listing],
}

/// A figure as the page shows it.
pub(super) struct Shown {
    pub(super) title: String,
    /// The corresponding figure of the paper; empty if there is none.
    pub(super) paper: &'static str,
    pub(super) svg: String,
}

pub(super) const STYLE: &str = include_str!("style.css");

pub(super) fn page(contents: &Contents<'_>) -> String {
    let study = contents.study;
    let paper = study.paper();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (study.name()) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (study.title()) }
                p.lead {
                    @if let Some(paper) = paper {
                        "A reproduction of " cite { (paper.title) } " (" (paper.authors) "), which measured on "
                        (paper.setting) ". "
                        @if let Some(code) = paper.code { "Files and lines of its code refer to " (code) ". " }
                    }
                    "Varied: " (study.varies()) "."
                }
                (claims(contents.claims, paper.is_some(), &disturbance(contents), &contents.run.arms))
                (soundness(contents))
                h2 { "Figures" }
                p.hint { "Lines, bars and dots are medians of " (contents.run.settings.repeats) " repeats; shades and thin lines reach from the least to the greatest. A cross at the upper edge: in one repeat at least it did not happen while it was waited for, or the point failed." }
                @for figure in contents.figures {
                    figure {
                        (PreEscaped(&figure.svg))
                        figcaption { (figure.title) "." @if !figure.paper.is_empty() { " The paper's " (figure.paper) "." } }
                    }
                }
                h2 { "Tables" }
                @for listing in contents.listings { (list(listing)) }
                @for table in study.tables() { (table_of(contents, &table)) }
                (systems(contents))
                @if !study.remarks().is_empty() {
                    h2 { (if paper.is_some() { "How this differs from the paper's runs" } else { "How it was measured" }) }
                    ul { @for remark in study.remarks() { li { (remark) } } }
                }
                (circumstances(contents))
            }
        }
    };
    markup.into_string()
}

/// Whether the machine was disturbed, in a sentence.
fn disturbance(contents: &Contents<'_>) -> String {
    let steal = Steal::of(contents.results);
    let disturbed = steal.filter(|steal| steal.disturbed > 0).map(|steal| {
        format!("its host took its processors away at {} of {} points", steal.disturbed, steal.points)
    });
    let busy = contents.machine.is_busy().then(|| "it was busy with other work before".to_owned());
    let parts: Vec<String> = disturbed.into_iter().chain(busy).collect();
    match (parts.is_empty(), steal) {
        (false, _) => format!("The machine was disturbed: {} (see Soundness)", parts.join(", and ")),
        (true, Some(_)) => "The machine was not disturbed, as far as it shows".to_owned(),
        (true, None) => "Whether the machine was disturbed is not known".to_owned(),
    }
}

/// Where an acknowledged write is, in each of the systems that a claim is about. `None` if it names none.
fn durability(about: &[String], arms: &BTreeMap<String, ArmNote>) -> Option<String> {
    let one = |arm: &String| arms.get(arm).map(|note| format!("{arm}: {}", note.durability));
    let parts: Vec<String> = about.iter().filter_map(one).collect();
    (!parts.is_empty()).then(|| format!("Durability: {}", parts.join("; ")))
}

fn claims(
    claims: &[Judged],
    is_of_paper: bool,
    disturbance: &str,
    arms: &BTreeMap<String, ArmNote>,
) -> Markup {
    let heads = if is_of_paper { ["The study claims", "Its figure"] } else { ["Claim", "Asked"] };
    html! {
        h2 { "Claims" }
        p { strong { (verdict_counts(claims)) } ". " (disturbance) "." }
        table.claims {
            thead { tr { @for head in heads { th { (head) } } th { "Measured here" } th { "Verdict" } th { "Why" } } }
            tbody {
                @for judged in claims {
                    @let verdict = judged.judgement.verdict;
                    tr {
                        td { (judged.claim) @if let Some(durability) = durability(&judged.about, arms) { br; small { (durability) } } }
                        td { (judged.paper) }
                        td { (judged.judgement.ours) }
                        td { span.verdict.(class(verdict)) { (verdict.words()) } }
                        td { (judged.judgement.why) }
                    }
                }
            }
        }
    }
}

/// How many claims got each verdict, for people.
pub(super) fn verdict_counts(claims: &[Judged]) -> String {
    const ALL: [Verdict; 6] = [
        Verdict::Holds,
        Verdict::DoesNotHold,
        Verdict::RestsOnFault,
        Verdict::NotReproduced,
        Verdict::Undecided,
        Verdict::NotMeasured,
    ];
    let count = |verdict| claims.iter().filter(|judged| judged.judgement.verdict == verdict).count();
    let parts = ALL.map(|verdict| (count(verdict), verdict));
    let words = parts.iter().filter(|(count, _)| *count > 0).map(|(count, verdict)| match (count, verdict) {
        (1, Verdict::Holds) => "1 holds".to_owned(),
        (count, Verdict::Holds) => format!("{count} hold"),
        (1, verdict) => format!("1 {}", verdict.words()),
        (count, Verdict::DoesNotHold) => format!("{count} do not hold"),
        (count, Verdict::RestsOnFault) => format!("{count} rest on a fault of the study's measurement"),
        (count, verdict) => format!("{count} {}", verdict.words()),
    });
    format!("Of {} claims: {}", claims.len(), words.collect::<Vec<_>>().join(", "))
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNotHold => "fails",
        Verdict::RestsOnFault => "fault",
        Verdict::NotReproduced => "fails",
        Verdict::Undecided | Verdict::NotMeasured => "none",
    }
}

/// Whether answers were right, and what was not measured.
fn soundness(contents: &Contents<'_>) -> Markup {
    let (operations, wrong) = contents.results.checked();
    let histories = contents.results.rows().iter().filter(|row| row.checked.is_some()).count();
    html! {
        h2 { "Soundness" }
        @if contents.run.settings.verify {
            @if operations == 0 {
                p { strong.bad { "Nothing was checked" } ": no history was recorded, though it was asked for." }
            } @else {
            p {
                (short(operations as f64)) " operations of " (histories) " histories were recorded in the measured runs themselves and checked: "
                @if wrong.is_empty() { strong { "all are linearizable" } } @else { strong.bad { (wrong.len()) " are not known to be" } }
                "."
            }
            }
        } @else {
            p { "Histories were not recorded: run it with " code { "--verify" } " to have them checked." }
        }
        p { "Every value that was read was compared with what could have been written; keys were written before they were read; failures count neither as throughput nor in latencies." }
        @if contents.machine.is_busy() {
            p { strong.bad { "The machine was busy with other work before the sweep began" } " (" (contents.machine.load_before) " threads wanted to run, on " (contents.machine.processors) " processors): expect wide spreads, and compare only what was measured side by side." }
        }
        @if let Some(warning) = Steal::of(contents.results).and_then(|steal| steal.warning()) {
            p { strong.bad { "The machine did not always run" } ": " (warning) " (" code { "steal_percent" } " in " code { "raw.csv" } ")." }
        }
        @if !contents.run.notes.is_empty() {
            table {
                thead { tr { th { "Not measured, or wrong" } th { "Where" } th { "What" } th { "Why" } } }
                tbody {
                    @for note in &contents.run.notes {
                        tr { td { (note.arm) } td { (note.point) } td { span.verdict.(if ["skipped", "cold"].contains(&note.kind.as_str()) { "none" } else { "fails" }) { (note.kind) } } td { (note.text) } }
                    }
                }
            }
        }
    }
}

fn table_of(contents: &Contents<'_>, table: &Table) -> Markup {
    let measures = contents.study.measures();
    let label = |name: &str| {
        let measure = measures.iter().find(|measure| measure.name == name);
        measure.map_or(name.to_owned(), |measure| measure.label())
    };
    let parameters = contents.study.parameters();
    let is_free = |name: &str| !table.only.iter().any(|(fixed, _)| *fixed == name);
    let columns: Vec<usize> =
        (0..parameters.len()).filter(|index| is_free(parameters[*index].name)).collect();
    let is_shown = |arm: &&Arm| table.arms.is_empty() || table.arms.contains(&arm.name);
    let durability = |arm: &str| contents.run.arms.get(arm).map_or("", |note| note.durability.as_str());
    let mut rows: Vec<(&str, Vec<String>, Vec<String>)> = Vec::new();
    for arm in contents.arms.iter().filter(is_shown) {
        let selection = contents.results.arm(&arm.name).only(&table.only);
        let mut seen: Vec<&[String]> = Vec::new();
        for row in selection.rows() {
            if seen.contains(&row.point.as_slice()) {
                continue;
            }
            seen.push(&row.point);
            let mut same = selection.clone();
            for (index, value) in row.point.iter().enumerate() {
                same = same.with(parameters[index].name, value);
            }
            let figures: Vec<Option<f64>> =
                table.measures.iter().map(|measure| same.median(measure)).collect();
            // Points of another table.
            if figures.iter().all(Option::is_none) {
                continue;
            }
            let is_event =
                |name: &str| measures.iter().any(|measure| measure.name == name && measure.is_event);
            let words = |(name, figure): (&&str, Option<f64>)| match figure {
                Some(figure) => short(figure),
                None if is_event(name) => "never".to_owned(),
                None => "–".to_owned(),
            };
            let point = columns.iter().map(|column| row.point[*column].clone()).collect();
            rows.push((&arm.name, point, table.measures.iter().zip(figures).map(words).collect()));
        }
    }
    html! {
        @if !rows.is_empty() {
            details open[rows.len() <= 40] {
                summary { (table.title) @if !table.paper.is_empty() { " (the paper's " (table.paper) ")" } }
                table.figures {
                    thead { tr {
                        th { "System" }
                        th { "Durability" }
                        @for column in &columns { th { (parameters[*column].title) } }
                        @for measure in &table.measures { th.number { (label(measure)) } }
                    } }
                    tbody { @for (arm, point, figures) in &rows { tr {
                        td { (arm) }
                        td { (durability(arm)) }
                        @for value in point { td { (value) } }
                        @for figure in figures { td.number { (figure) } }
                    } } }
                }
            }
        }
    }
}

fn list(listing: &Listing) -> Markup {
    html! {
        details open[listing.rows.len() <= 40] {
            summary { (listing.title) @if !listing.paper.is_empty() { " (the paper's " (listing.paper) ")" } }
            table.figures {
                thead { tr { @for (column, title) in listing.head.iter().enumerate() { th.number[column > 0] { (title) } } } }
                tbody { @for row in &listing.rows { tr {
                    @for (column, text) in row.iter().enumerate() { td.number[column > 0] { (text) } }
                } } }
            }
        }
    }
}

fn systems(contents: &Contents<'_>) -> Markup {
    let run = contents.run;
    html! {
        h2 { "Systems" }
        table {
            thead { tr { th { "Arm" } th { "System" } th { "A write is acknowledged when" } th { "Durability" } th { "Network" } th { "Differs from the others in" } } }
            tbody { @for arm in contents.arms { @if let Some(note) = run.arms.get(&arm.name) { tr {
                td { span.dot style={ "background:" (arm.colour.css()) } {} (arm.name) }
                td { (note.system) " " (note.version) }
                td { (note.acknowledges) }
                td { (note.durability) }
                td { (note.network) }
                td { (note.differs) }
            } } } }
        }
        details {
            summary { "How each was started" }
            @for arm in contents.arms { @if let Some(note) = run.arms.get(&arm.name) {
                h3 { (arm.name) }
                @for command in &note.commands { pre { (command) } }
            } }
        }
    }
}

fn circumstances(contents: &Contents<'_>) -> Markup {
    let (run, machine) = (contents.run, contents.machine);
    let gib = machine.memory_bytes as f64 / (1u64 << 30) as f64;
    html! {
        h2 { "Machine and command" }
        table {
            tbody {
                tr { th { "Command" } td { code { (run.command) } } }
                tr { th { "Begun" } td { (run.begun) } }
                tr { th { "Quorate" } td { (run.settings.program) } }
                tr { th { "Processor" } td { (machine.processor) ", " (machine.processors) " processors" } }
                tr { th { "Memory" } td { (format!("{gib:.1}")) " GiB" } }
                tr { th { "System" } td { (machine.system) } }
                tr { th { "Threads that wanted to run before" } td { (machine.load_before) } }
                @if let Some(steal) = Steal::of(contents.results) {
                    tr { th { "Processor time that its host took" } td { (format!("{:.1} % of what was wanted while a point was measured (median), at most {:.0} %", steal.median_percent, steal.worst_percent)) } }
                }
                tr { th { "Network" } td { "within this machine, for each arm as listed under Systems; nodes and load generator share its processors" } }
                tr { th { "All figures" } td { code { "raw.csv" } ", " code { "summary.csv" } ", " code { "nodes.csv" } } }
            }
        }
    }
}
