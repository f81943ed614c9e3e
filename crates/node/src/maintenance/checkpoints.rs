//! Checkpoints of groups: which one is written, a piece in each turn.

use crate::context::Context;
use crate::groups::Group;
use crate::membership::Cluster;
use crate::values::Values;
use cluster::control::{CONTROL_GROUP, MAP_GROUP};
use protocol::Progress;

/// Begins a checkpoint when one is due, or continues the one under way.
pub(crate) fn tick(cx: &mut Context, cluster: &mut Cluster, values: &mut Values) {
    match cx.journal.checkpointing() {
        Some(id) if !is_written(cx, values, id) => {}
        Some(id) => advance(cx, cluster, values, id),
        None => begin(cx, cluster, values),
    }
}

/// Whether the checkpoint under way is written in the next turn.
pub(crate) fn is_due(cx: &Context, values: &Values) -> bool {
    cx.journal.checkpointing().is_some_and(|id| is_written(cx, values, id))
}

/// Whether nothing delays the checkpoint of this group, which is under way.
fn is_written(cx: &Context, values: &Values, id: u16) -> bool {
    !values.holds_checkpoint(id) && !cx.journal.is_pacing()
}

fn begin(cx: &mut Context, cluster: &mut Cluster, values: &mut Values) {
    let replicas = cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
    let state_bytes = || replicas.map(|replica| replica.memory_bytes() as u64).sum();
    let Some(id) = cx.journal.checkpoint_due(cx.now, state_bytes) else { return };
    let spills = values.keep_spilled(cx, id);
    let (begins, description) = match (id, cx.groups.get_mut(id)) {
        (CONTROL_GROUP, _) => (cluster.begin_checkpoint(), Vec::new()),
        (MAP_GROUP, _) => (true, cluster.positions_record().to_vec()),
        (_, Some(Group { keyspace, replica: Some(replica), .. })) => {
            (replica.begin_checkpoint(), keyspace.encode())
        }
        _ => (false, Vec::new()),
    };
    if begins && spills {
        values.begin_checkpoint(id);
    }
    if begins && !cx.journal.begin_checkpoint(id, &description) {
        abandon(cx, cluster, values, id);
    }
}

fn advance(cx: &mut Context, cluster: &mut Cluster, values: &mut Values, id: u16) {
    // What the replica kept for the checkpoint has to be freed when it ends.
    cx.groups.touch(id);
    let Context { journal, groups, .. } = cx;
    let goes_on = match (id, groups.get_mut(id).and_then(|group| group.replica.as_mut())) {
        (CONTROL_GROUP, _) => journal.advance_checkpoint(|bytes, out| cluster.checkpoint_record(bytes, out)),
        (MAP_GROUP, _) => journal.advance_checkpoint(|_, out| {
            out.extend_from_slice(cluster.map_record());
            Progress::Whole
        }),
        (_, Some(replica)) => journal.advance_checkpoint(|bytes, out| replica.checkpoint_record(bytes, out)),
        (_, None) => journal.advance_checkpoint(|_, _| Progress::Abandoned),
    };
    if !goes_on {
        abandon(cx, cluster, values, id);
    }
}

fn abandon(cx: &mut Context, cluster: &mut Cluster, values: &mut Values, id: u16) {
    values.abandon_checkpoint(id);
    cx.groups.touch(id);
    if id == CONTROL_GROUP {
        cluster.abandon_checkpoint();
    } else if let Some(replica) = cx.groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
        replica.abandon_checkpoint();
    }
}
