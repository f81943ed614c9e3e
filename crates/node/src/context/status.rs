//! The state of groups, as far as this node knows.

use super::Context;
use cluster::configuration::Masters;
use cluster::control::FatalRecord;
use protocol::NodeId;
use protocol::status::Status;

/// Why no replica answers requests to a group, if a quarantined record is the reason.
pub(crate) fn quarantined(cx: &Context, id: u16) -> Option<String> {
    let group = cx.groups.get(id)?;
    // While the map does not show that this replica is stopped, no other one can have taken over.
    let is_unknown = cx.map.quarantine.stands(id, cx.configuration.node).is_none();
    let held = group.holds.filter(|_| is_unknown);
    let FatalRecord { offset, .. } = cx.map.stopped_before(id).or(held)?;
    let name = group.keyspace.name();
    Some(format!(
        "QUARANTINED keyspace '{name}' stands still before record {offset} of group {id}, which has ended its nodes; nothing was \
         done; see CLUSTER QUARANTINE LIST"
    ))
}

/// The state of a group here; without a replica, whether its leader can be reached.
pub(crate) fn group_status(cx: &Context, id: u16) -> Status {
    let group = &cx.groups[id];
    if let Some(explanation) = quarantined(cx, id) {
        let status = group.replica.as_ref().map(|replica| replica.summary(cx.now)).unwrap_or_default();
        return Status { role: "quarantined", ready: false, writable: false, explanation, ..status };
    }
    if let Some(replica) = &group.replica {
        return replica.summary(cx.now);
    }
    if group.members.contains(&cx.configuration.node) {
        let explanation = match cx.admission.refusal() {
            Some(why) => why.to_owned(),
            None if cx.admission.is_admitted() => "its replica here is being replaced".into(),
            None => cx.admission.explanation().to_owned(),
        };
        return Status { role: "none", explanation, ..Status::default() };
    }
    let coordinator = cx.coordinator_of(id);
    if let Some(alone) = cx.map.waits_alone(id) {
        let explanation = format!(
            "its only replica, on node {alone}, does not take part: see what node {alone} says of it, or start that node"
        );
        return Status { role: "none", explanation, ..Status::default() };
    }
    let ready = cx.peers.is_up(coordinator);
    let (leader, explanation) = match (group.keyspace.has_leader(), ready) {
        (true, true) => (coordinator, String::new()),
        (true, false) => (coordinator, format!("node {coordinator}, its leader, cannot be reached")),
        (false, true) => (0, String::new()),
        (false, false) => (0, "none of its replicas can be reached".into()),
    };
    Status { role: "none", leader, ready, explanation, ..Status::default() }
}

/// The node that serves a group, as far as this node knows.
pub(crate) fn leader_of(cx: &Context, id: u16) -> NodeId {
    let Some(group) = cx.groups.get(id) else { return 0 };
    let known = group.replica.as_ref().map_or(0, |replica| replica.summary(cx.now).leader);
    let candidates = [known, group.reported_leader, group.leader];
    let first = group.members.first().copied().unwrap_or(0);
    candidates.into_iter().find(|leader| *leader != 0).unwrap_or(first)
}

/// Whether this node calls itself a master: it leads the default keyspace, that has no leader, or every node that serves it
/// is to be called one.
pub(crate) fn is_master(cx: &Context) -> bool {
    let default = cx.groups.iter().find(|(_, group)| group.keyspace.prefix.is_empty());
    default.is_some_and(|(id, group)| {
        let status = group_status(cx, id);
        !group.keyspace.has_leader()
            || matches!(status.role, "leader" | "recovering")
            || (cx.configuration.masters == Masters::All && status.ready)
    })
}
