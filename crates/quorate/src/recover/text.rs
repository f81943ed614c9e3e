//! The report of a recovery: for people, and as JSON.

use std::path::{Path, PathBuf};

use cluster::control::CONTROL_GROUP;
use cluster::recovery::{Fate, GroupReport, Plan, Survivor};
use node::{NodeId, Protocol};
use serde_json::{Value, json};
use server::recovery::StoppedNode;
use server::status::{quoted, words};

/// How many names of shards that are alike are shown.
const NAMES: usize = 8;

/// The report, line by line.
pub(super) fn lines(
    survivors: &[Survivor],
    plan: &Plan,
    nodes: &[StoppedNode],
    copies: &[PathBuf],
) -> Vec<String> {
    let (newest, version) = plan.newest;
    let mut lines = vec![format!("Folders that are left: {}", survivors.len())];
    for survivor in survivors {
        let control = match survivor.stands.get(&CONTROL_GROUP) {
            Some(stand) => format!(
                "of the control group {} entries in ballot {} of configuration {}",
                stand.rank[4], stand.rank[1], stand.rank[0]
            ),
            None => "nothing of the control group".to_owned(),
        };
        let is_newest = if survivor.node == newest { ", the newest" } else { "" };
        lines.push(format!("  node {}: map {}{is_newest}; {control}", survivor.node, survivor.map.version));
    }
    let before = survivors.iter().find(|survivor| survivor.node == newest).map(|survivor| &survivor.map);
    let address = |id: &NodeId| {
        let known = before.and_then(|map| map.nodes.get(id)).map(|node| &node.address);
        known.map_or_else(
            || format!("  node {id}"),
            |it| format!("  node {id} ({}:{})", it.host, it.client_port),
        )
    };
    lines.push(if plan.lost.is_empty() {
        "Lost, for good: no node".to_owned()
    } else {
        "Lost, for good:".to_owned()
    });
    lines.extend(plan.lost.iter().map(address));
    let (control, data): (Vec<&GroupReport>, Vec<&GroupReport>) =
        plan.groups.iter().partition(|report| report.group == CONTROL_GROUP);
    lines.push("The control group:".to_owned());
    lines.extend(control.into_iter().map(|report| format!("  {}", line(report))));
    lines.push(format!("Keyspaces, as of map {version}:"));
    lines.extend(folded(&data));
    for (node, copy) in nodes.iter().zip(copies) {
        lines.push(format!("Node {} is written. Its previous log: {}", node.node(), copy.display()));
    }
    lines
}

/// The lines of shards. What is alike, but for how many commands are held, is said once.
fn folded(reports: &[&GroupReport]) -> Vec<String> {
    struct Alike {
        text: String,
        names: Vec<String>,
        least: u64,
        most: u64,
    }
    const HELD: &str = " holds # ";
    let mut all: Vec<Alike> = Vec::new();
    for report in reports {
        let count = report.commands;
        let text = line(report).replace(&format!(" holds {count} "), HELD);
        match all.iter_mut().find(|alike| alike.text == text) {
            Some(alike) => {
                alike.names.push(name(report));
                (alike.least, alike.most) = (alike.least.min(count), alike.most.max(count));
            }
            None => all.push(Alike { text, names: vec![name(report)], least: count, most: count }),
        }
    }
    let shown = |Alike { text, names, least, most }: Alike| {
        let held =
            if least == most { format!(" holds {least} ") } else { format!(" holds {least} to {most} ") };
        let text = text.replace(HELD, &held);
        match names.as_slice() {
            [one] => format!("  {one} {text}"),
            several => {
                let all = if several.len() > NAMES + 1 { " (--json names all)" } else { "" };
                let names = words::some(several.iter().cloned(), NAMES);
                format!("  {} shards {text}: {names}{all}", several.len())
            }
        }
    };
    all.into_iter().map(shown).collect()
}

fn name(report: &GroupReport) -> String {
    let keyspace = if report.keyspace.is_empty() { "default" } else { &report.keyspace };
    format!("'{keyspace}' shard {}", report.shard)
}

/// The outcome for a group.
fn line(report: &GroupReport) -> String {
    let GroupReport { members, left, fate, loss, survives, .. } = report;
    let left = match left.is_empty() {
        true => "none is left".to_owned(),
        false => format!("{left:?} are left"),
    };
    let becomes = match fate {
        Fate::GoesOn => "goes on".to_owned(),
        Fate::Alone { node } => format!("goes on at node {node} alone, and gets other members by itself"),
        Fate::StandsStill => "stands still".to_owned(),
        Fate::Lost => "IS LOST".to_owned(),
    };
    let may = if *survives || matches!(fate, Fate::Lost) { "" } else { "may be lost: " };
    format!("of nodes {members:?} {left}: {becomes}; {may}{loss}")
}

/// What to do next.
pub(super) fn steps(is_done: bool, nodes: &[StoppedNode], plan: &Plan) -> Vec<String> {
    let mut steps = Vec::new();
    if plan.is_needless() {
        steps.push("enough of every group is left: start these nodes, and do not recover".to_owned());
        return steps;
    }
    let has_control = plan.groups.iter().any(|report| report.group == CONTROL_GROUP && report.survives);
    if !is_done && has_control {
        steps.push(
            "a majority of the control nodes is left: start these nodes and replace the lost ones while they serve, unless \
             a keyspace above has lost its majority for good"
                .to_owned(),
        );
    }
    if !is_done {
        steps.push(
            "start every node that can be started; a folder that is left out counts as lost".to_owned(),
        );
        steps.push("make sure that the lost nodes cannot start, and clients do not reach them".to_owned());
        steps.push("the same command with --accept-loss, on every machine that has a folder left".to_owned());
    }
    let start = |node: &StoppedNode| format!("quorate server --config {}", shown(node.config_file()));
    steps.extend(nodes.iter().map(start));
    // Without it a command would ask the node at the default address, which may be a lost one.
    let at = nodes.first().map_or(String::new(), |node| format!(" --config {}", shown(node.config_file())));
    for lost in &plan.lost {
        steps.push(format!(
            "quorate node replace {lost} --accept-loss{at}   then start its machine with an empty folder, or: quorate node \
             remove {lost} --force{at}"
        ));
    }
    let mut named: Vec<(&str, Fate, bool)> = Vec::new();
    for report in plan.groups.iter().filter(|report| report.group != CONTROL_GROUP) {
        let is_alone = report.members.len() == 1 && plan.map.protocol(report.group) == Protocol::Consensus;
        let name = (report.keyspace.as_str(), report.fate, is_alone);
        if !named.contains(&name) {
            named.push(name);
        }
    }
    for (keyspace, fate, is_alone) in named {
        match fate {
            Fate::Lost if is_alone => steps.push(format!(
                "quorate keyspace recover '{keyspace}' --accept-loss{at}   when the replaced node runs with an empty folder: it \
                 begins again, empty; then restore its backup (quorate restore)"
            )),
            Fate::StandsStill => steps.push(format!(
                "quorate keyspace recover '{keyspace}' --accept-loss{at}   when the replaced nodes run with empty folders"
            )),
            Fate::Lost if keyspace.is_empty() => steps.push(
                "the default keyspace cannot be dropped: restore a backup into a new cluster (quorate restore)".to_owned(),
            ),
            Fate::Lost => steps.push(format!(
                "quorate keyspace drop '{keyspace}' --yes{at}   then make it again, and restore its backup (quorate restore)"
            )),
            Fate::GoesOn | Fate::Alone { .. } => {}
        }
    }
    steps
}

fn shown(file: &Path) -> String {
    quoted(&file.display().to_string())
}

/// The report as JSON.
pub(super) fn json(survivors: &[Survivor], plan: &Plan, copies: &[PathBuf], steps: &[String]) -> Value {
    let (newest, version) = plan.newest;
    let left = survivors.iter().map(|survivor| {
        let control = survivor.stands.get(&CONTROL_GROUP).map(|stand| {
            json!({
                "configuration": stand.rank[0],
                "ballot": stand.rank[1],
                "entries": stand.rank[4],
                "has_vote": stand.is_whole,
            })
        });
        json!({ "node": survivor.node, "map_version": survivor.map.version, "control": control })
    });
    json!({
        "left": left.collect::<Vec<_>>(),
        "newest_map": { "node": newest, "version": version },
        "lost": plan.lost,
        "needed": !plan.is_needless(),
        "recovery": { "number": plan.lineage.recoveries, "mark": format!("{:016x}", plan.lineage.mark) },
        "groups": plan.groups,
        "copies": copies.iter().map(|copy| copy.display().to_string()).collect::<Vec<_>>(),
        "next": steps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_are_alike_are_told_together() {
        let report = |group: u16, commands: u64, members: &[NodeId]| GroupReport {
            group,
            keyspace: format!("app{group}:"),
            shard: 0,
            members: members.to_vec(),
            left: vec![3],
            survives: false,
            commands,
            fate: Fate::Alone { node: 3 },
            loss: format!("the latest writes; node 3 holds {commands} commands"),
        };
        let reports: Vec<GroupReport> =
            (1..=12).map(|group| report(group, u64::from(group) * 10, &[1, 2, 3])).collect();
        let other = report(13, 7, &[3, 4, 5]);
        let lines = folded(&reports.iter().chain([&other]).collect::<Vec<_>>());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("  12 shards of nodes [1, 2, 3] [3] are left: goes on at node 3 alone"));
        assert!(
            lines[0].contains("holds 10 to 120 commands: 'app1:' shard 0, ") && lines[0].contains("--json")
        );
        assert!(lines[1].starts_with("  'app13:' shard 0 of nodes") && lines[1].contains("holds 7 commands"));
    }
}
