//! What an operator should do, as lines to copy: the commands of `quorate`, with everything filled in that the reports have.

use cluster::control::{CONTROL_GROUP, FatalRecord, GroupId};
use cluster::words::quoted;
use node::NodeId;

use super::answers::Answers;
use super::words;

/// Starts a node. Its file is on its own machine.
const START: &str = "quorate server --config FILE on its machine";

/// Of a group's members, those whose processes do not run, and how many of them it needs for a majority.
pub(super) struct Stopped {
    nodes: Vec<NodeId>,
    /// Those of them that the cluster waits for, with empty folders.
    new: Vec<NodeId>,
    missing: usize,
}

impl Stopped {
    pub(super) fn of(answers: &Answers, members: &[NodeId]) -> Stopped {
        let nodes: Vec<NodeId> = members.iter().copied().filter(|id| !answers.runs(*id)).collect();
        let majority = members.len() / 2 + 1;
        let new = nodes.iter().copied().filter(|id| answers.is_new(*id)).collect();
        Stopped { missing: majority.saturating_sub(members.len() - nodes.len()), nodes, new }
    }

    /// Whether the others are too few to agree on anything, and so to take in a replaced node.
    pub(super) fn lacks_majority(&self) -> bool {
        self.missing > 0
    }

    /// Such as `nodes 1, 2 are down`.
    pub(super) fn clause(&self) -> String {
        let verb = if self.nodes.len() == 1 { "is" } else { "are" };
        format!("{} {verb} down", words::nodes(&self.nodes))
    }

    /// What brings a majority back: a start if that is possible at all, else a recovery.
    pub(super) fn start_or_recover(&self) -> String {
        let Stopped { nodes, missing, .. } = self;
        let (which, lost) = match (nodes.as_slice(), missing) {
            ([one], _) => (format!("node {one}"), "its disk is lost"),
            ([one, other], 1) => (format!("node {one} or {other}: one is enough"), "both disks are lost"),
            ([one, other], _) => (format!("nodes {one} and {other}"), "one of their disks is lost"),
            (all, 1) => (format!("one of {}", words::nodes(all)), "all their disks are lost"),
            (all, missing) if *missing == all.len() => (words::nodes(all), "one of their disks is lost"),
            (all, missing) => (
                format!("{missing} of {}", words::nodes(all)),
                "so many of their disks are lost that this is impossible",
            ),
        };
        format!(
            "start {which} ({START}). Only if {lost}: docs/guide/recover.md, which goes on with what is left (quorate recover)"
        )
    }

    /// Starts what is down, or replaces it: enough others are left for that.
    pub(super) fn start_or_replace(&self) -> String {
        match self.nodes.as_slice() {
            all if !all.is_empty() && self.new.len() == all.len() => start_empty(all),
            [] => "wait until its replicas have caught up; see the lag of each".to_owned(),
            [one] => start_or_replace(*one),
            several => {
                let old = several.iter().filter(|id| !self.new.contains(id));
                let lines: Vec<String> = old.map(|id| replace(*id)).collect();
                format!(
                    "start {} ({START}); of those whose disk is lost: {}",
                    words::nodes(several),
                    lines.join(", ")
                )
            }
        }
    }
}

/// Whether the control group has lost its majority: then nothing can be changed, and no node replaced.
pub(super) fn lacks_majority(answers: &Answers) -> bool {
    let group = answers.map.as_ref().and_then(|map| map.groups.get(&CONTROL_GROUP));
    group.is_some_and(|group| Stopped::of(answers, &group.members).lacks_majority())
}

/// Starts a node, or lets it return without its disk.
pub(super) fn start_or_replace(node: NodeId) -> String {
    format!(
        "start node {node} ({START}); if its disk is lost, start it with an empty folder: {}",
        replace(node)
    )
}

/// Starts nodes that the cluster waits for: they were added or replaced.
pub(super) fn start_empty(nodes: &[NodeId]) -> String {
    let folder = if nodes.len() == 1 { "an empty folder" } else { "empty folders" };
    format!("start {} with {folder} ({START})", words::nodes(nodes))
}

/// Starts a node.
pub(super) fn start(node: NodeId) -> String {
    format!("start node {node} ({START})")
}

/// Lets a node return as a new member.
pub(super) fn replace(node: NodeId) -> String {
    format!("quorate node replace {node}")
}

/// Changes a setting of a keyspace.
pub(super) fn alter(prefix: &str, setting: &str) -> String {
    format!("quorate keyspace alter {} {setting}", quoted(prefix))
}

/// What can be done about the records that stop a group. `quorate quarantine list` has no more than this.
pub(super) fn quarantine(group: GroupId, record: Option<FatalRecord>) -> String {
    let look = "quorate quarantine list shows which nodes have stopped".to_owned();
    let retry = format!("quorate quarantine retry {group}");
    match record {
        Some(FatalRecord { offset, .. }) => format!(
            "{look}; then try again: {retry}, or leave the record out on all replicas: quorate quarantine skip {group} {offset}"
        ),
        None => format!("{look}; then try again: {retry}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(nodes: &[NodeId], missing: usize) -> String {
        Stopped { nodes: nodes.to_vec(), new: Vec::new(), missing }.start_or_recover()
    }

    #[test]
    fn a_majority_comes_back_by_a_start_and_only_then_by_a_recovery() {
        assert!(
            stopped(&[1, 2], 1).starts_with("start node 1 or 2: one is enough ("),
            "{}",
            stopped(&[1, 2], 1)
        );
        assert!(stopped(&[1, 2], 1).contains("Only if both disks are lost: docs/guide/recover.md"));
        assert!(stopped(&[1, 2], 2).starts_with("start nodes 1 and 2 ("));
        assert!(stopped(&[1, 2, 3], 1).starts_with("start one of nodes 1, 2, 3 ("));
        assert!(stopped(&[1, 2, 3, 4], 2).starts_with("start 2 of nodes 1, 2, 3, 4 ("));
        assert!(stopped(&[2], 1).starts_with("start node 2 ("));
        // A replacement is ordered by the majority that is not there.
        for (nodes, missing) in [(&[1, 2][..], 1), (&[1, 2, 3], 1), (&[2], 1)] {
            assert!(!stopped(nodes, missing).contains("replace"), "{}", stopped(nodes, missing));
        }
    }

    #[test]
    fn lines_can_be_copied_into_a_shell() {
        assert_eq!(alter("", "memory_max=2gb"), "quorate keyspace alter '' memory_max=2gb");
        assert_eq!(alter("it's {a}:", "acks=all"), r"quorate keyspace alter 'it'\''s {a}:' acks=all");
        let record = Some(FatalRecord { offset: 1045, time: 1 });
        assert!(quarantine(7, record).contains("quorate quarantine skip 7 1045"));
    }
}
