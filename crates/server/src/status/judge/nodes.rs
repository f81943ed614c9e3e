//! Nodes: their state, memory, disks, certificates and clocks.

use cluster::control::NodeState;
use node::NodeId;
use node::report::{Certificate, Disk};

use super::risks::{About, Risks};
use crate::status::advice;
use crate::status::answers::Answers;
use crate::status::standing::{Facts, Node};
use crate::status::words;

/// Memory for data is short above this percentage of the limit for data.
const MEMORY_PERCENT: u64 = 90;

/// A disk is short with less than this percentage free, unless the disk is so large that the next constant is
/// free.
const DISK_PERCENT: u64 = 5;

const DISK_PLENTY_BYTES: u64 = 32 << 30;

/// A disk is short with less than this free, however small the disk is: the log's reserve and a few of its
/// files.
const DISK_BYTES: u64 = 512 << 20;

/// A disk that is full within this time, at its present rate, is reported, in seconds.
const DISK_FILLS_S: u64 = 24 * 3600;

/// A certificate that expires within this time is reported, in seconds.
const CERTIFICATE_S: u64 = 14 * 24 * 3600;

pub(super) fn node(answers: &Answers, id: NodeId) -> Node {
    let answer = &answers.nodes[&id];
    let entry = answers.map.as_ref().and_then(|map| map.nodes.get(&id));
    let facts = answer.reported.as_ref().ok().map(|reported| {
        let report = reported.report.clone();
        Facts {
            version: report.health.version,
            release: report.health.release,
            ready: report.health.ready,
            admitted: report.admitted,
            uptime_s: report.uptime_s,
            map_version: reported.map.version,
            control_leader: report.health.control_leader,
            memory: report.memory,
            disk: report.disk,
            certificate: report.certificate,
            clock: report.clock,
            links: report.links,
            counters: report.counters,
        }
    });
    Node {
        node: id,
        address: answer.address.clone(),
        reached: facts.is_some(),
        alive: answers.is_alive(id),
        leaving: entry.is_some_and(|entry| entry.state == NodeState::Leaving),
        drained: entry.is_some_and(|entry| entry.is_drained),
        error: answer.reported.as_ref().err().map(|no_answer| no_answer.why.clone()),
        refused: answer.reported.as_ref().err().and_then(|no_answer| no_answer.refused),
        facts,
    }
}

pub(super) fn node_risks(answers: &Answers, node: &Node, risks: &mut Risks) {
    let id = node.node;
    let mut about = risks.about(format!("node {id}"));
    let Some(facts) = &node.facts else {
        let (address, error) = (&node.address, node.error.as_deref().unwrap_or_default());
        return match (node.alive, node.refused) {
            (_, Some(refused)) => about.at_risk(
                "unreachable-from-here",
                format!("node {id} ({address}) refuses to be asked: {error}"),
                refused.action(),
            ),
            (true, None) => about.at_risk(
                "unreachable-from-here",
                format!(
                    "node {id} ({address}) cannot be queried from here: {error}; other nodes have a link to \
                     it"
                ),
                "look at the network between here and it, at its password and its number of clients",
            ),
            (false, None) => about.at_risk(
                "node-down",
                format!("node {id} ({address}) cannot be reached: {error}"),
                match advice::lacks_majority(answers) {
                    true => advice::start(id),
                    false if answers.is_new(id) => advice::start_empty(&[id]),
                    false => advice::start_or_replace(id),
                },
            ),
        };
    };
    if !facts.admitted {
        let refusal = answers.report(id).and_then(|report| report.refusal.clone());
        let (what, action) = match refusal {
            Some(why) => (
                format!("node {id} may not take part: {why}"),
                format!(
                    "do what the sentence says; if its disk is lost, or its folder was left out of a \
                     recovery, start it with an empty folder: {}",
                    advice::replace(id)
                ),
            ),
            None => (
                format!("node {id} has not been admitted by the control group yet"),
                "if it does not pass within seconds, its log says why: no majority of the control nodes, \
                 another secret, an expired certificate"
                    .to_owned(),
            ),
        };
        about.at_risk("not-admitted", what, action);
    }
    if node.leaving {
        about.note(
            "leaving",
            format!("node {id} is leaving the cluster: its replicas move to other nodes"),
            "wait; its process ends by itself",
        );
    }
    if node.drained {
        about.note(
            "drained",
            format!("node {id} is drained: it leads nothing that another node can lead"),
            format!("when its maintenance is over: quorate node drain {id} --end"),
        );
    }
    let down: Vec<NodeId> = facts.links.iter().filter(|link| !link.up).map(|link| link.node).collect();
    let cut_off: Vec<NodeId> = down.into_iter().filter(|other| answers.report(*other).is_some()).collect();
    if !cut_off.is_empty() {
        about.at_risk(
            "link-down",
            format!("node {id} has no link to {}, though they answer", words::nodes(&cut_off)),
            "look at the network and the firewall between their peer ports, and at both logs",
        );
    }
    let memory = &facts.memory;
    if memory.full {
        about.at_risk(
            "memory-full",
            format!("node {id} has no memory left for data: writes that need some are refused with OOM"),
            "delete keys, bound keyspaces (memory_max, eviction), or raise limits.memory_max",
        );
    } else if memory.data_max > 0 && memory.data > memory.data_max / 100 * MEMORY_PERCENT {
        let (data, max) = (words::bytes(memory.data), words::bytes(memory.data_max));
        about.at_risk(
            "memory-short",
            format!("node {id} is short of memory: data takes {data} of {max}"),
            "delete keys, bound keyspaces (memory_max, eviction), or raise limits.memory_max",
        );
    }
    let disk = &facts.disk;
    let (free, size) = (words::bytes(disk.free), words::bytes(disk.size));
    if disk.full {
        about.at_risk(
            "disk-full",
            format!("node {id} has no room on its disk but the reserve ({free} of {size} free)"),
            "free room on that disk, or delete keys; it goes on by itself",
        );
    } else if is_short(disk.free, disk.size) {
        about.at_risk(
            "disk-short",
            format!("node {id} is short of disk: {free} of {size} free"),
            "free room on that disk before it is full",
        );
    } else if let Some(seconds) = disk.full_in_s.filter(|seconds| *seconds < DISK_FILLS_S) {
        let time = words::duration(seconds);
        about.at_risk(
            "disk-fills",
            format!(
                "node {id}: its disk is full in {time}, if it fills as in the last hour: {free} of {size} free"
            ),
            "free room on that disk or enlarge it before then; find what grows: quorate top, quorate \
             keyspace list",
        );
    }
    if let Some(certificate) = &facts.certificate {
        certificate_risks(node, certificate, &mut about);
    }
    if disk.damaged > 0 {
        let Disk { damaged, repaired, .. } = disk;
        about.at_risk(
            "disk-damages",
            format!(
                "node {id}: its disk has damaged {damaged} of its values since its start; {repaired} were \
                 fetched from other replicas"
            ),
            format!("replace the disk, then the node: {}; its log names the values", advice::replace(id)),
        );
    }
    if facts.clock.off {
        about.at_risk(
            "clock-off",
            format!("node {id}: its machine's clock is {} ms off", facts.clock.ahead_ms),
            "have the machine's clock set (NTP); keys are safe until then",
        );
    }
}

/// Whether a node's certificate has to be replaced.
fn certificate_risks(node: &Node, certificate: &Certificate, about: &mut About<'_>) {
    let id = node.node;
    let host = node.address.rsplit_once(':').map_or(node.address.as_str(), |(host, _)| host);
    let make = format!(
        "quorate certs --dir DIR --node {id}={}, with DIR of the cluster's authority, the old files moved \
         out of it, and all names of the old one; put the new files in the place of the old ones: they are \
         read without a restart",
        host.trim_start_matches('[').trim_end_matches(']')
    );
    if certificate.unusable {
        let what =
            "cannot be used: it goes on with those that it has read, and does not start again with these";
        let action = format!("its log says why; {make}");
        about.at_risk("certificate-unusable", format!("node {id}: its changed files for TLS {what}"), action);
    }
    match u64::try_from(certificate.left_s) {
        Ok(seconds) if seconds >= CERTIFICATE_S => {}
        Ok(seconds) => about.at_risk(
            "certificate-expires",
            format!("node {id}: its certificate expires in {}", words::duration(seconds)),
            make,
        ),
        Err(_) => about.at_risk(
            "certificate-expires",
            format!(
                "node {id}: its certificate has expired: clients that check it and other nodes open no new \
                 connections"
            ),
            make,
        ),
    }
}

/// Whether a disk is short of room. A disk of unknown size is not.
fn is_short(free: u64, size: u64) -> bool {
    let share = (size / 100 * DISK_PERCENT).min(DISK_PLENTY_BYTES);
    size > 0 && free < share.max(DISK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_short_by_share_or_by_size() {
        assert!(!is_short(0, 0));
        assert!(is_short(400 << 20, 2 << 30));
        assert!(!is_short(600 << 20, 2 << 30));
        assert!(is_short(4 << 30, 100 << 30));
        assert!(!is_short(40 << 30, 2 << 40));
    }
}
