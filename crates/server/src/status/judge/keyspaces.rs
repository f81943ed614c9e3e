//! Keyspaces: the sums of their shards, their bounds and backups.

use std::collections::BTreeMap;

use cluster::control::{ClusterMap, KeyspaceEntry, Saved};
use node::Setting as _;
use node::report::GroupFigures;

use super::add;
use super::risks::Risks;
use super::shards::{shard, shard_risks};
use crate::status::advice;
use crate::status::answers::Answers;
use crate::status::standing::{Backup, Control, Keyspace};
use crate::status::words;

/// A keyspace with a bound and without eviction is nearly full above this percentage.
const KEYSPACE_PERCENT: u64 = 90;

/// For how long it is reported that a keyspace has begun again, empty, in seconds. Nothing can be undone, and
/// an operator who looks once a day sees it.
const BEGAN_EMPTY_S: u64 = 24 * 3600;

pub(super) fn keyspace(
    answers: &Answers,
    map: &ClusterMap,
    (prefix, entry): (&str, &KeyspaceEntry),
    control: &Control,
    risks: &mut Risks,
) -> Keyspace {
    let settings = &entry.keyspace;
    let mut keyspace = Keyspace {
        prefix: prefix.to_owned(),
        replication: settings.replication.text().to_string(),
        acks: settings.acks.text().to_string(),
        durability: settings.durability().text().to_string(),
        reads: settings.reads.text().to_string(),
        memory_max: settings.memory_max,
        backup: entry.saved.and_then(|saved| backup(answers, saved)),
        ..Keyspace::default()
    };
    let (mut fullest, mut latency, mut began_empty_ms) = (0, BTreeMap::new(), 0);
    for id in &entry.groups {
        let Some(group) = map.groups.get(id) else { continue };
        let shard = shard(answers, settings.replication, &keyspace, (*id, group), control);
        let figures =
            || answers.reports().filter_map(|(_, reported)| reported.report.figures(prefix, group.shard));
        let most = |figure: fn(&GroupFigures) -> u64| figures().map(figure).max().unwrap_or(0);
        let sum = |figure: fn(&GroupFigures) -> u64| figures().map(figure).sum::<u64>();
        keyspace.keys += most(|group| group.keys);
        keyspace.memory += most(|group| group.memory);
        keyspace.evicted += most(|group| group.evicted);
        keyspace.lookups += sum(|group| group.lookups);
        keyspace.unknown_writes += sum(|group| group.unknown_writes);
        keyspace.lost_writes += sum(|group| group.lost_writes);
        keyspace.locks += most(|group| group.locks);
        keyspace.lock_waiters += most(|group| group.lock_waiters);
        began_empty_ms = began_empty_ms.max(most(|group| group.began_empty_ms));
        figures().for_each(|figures| add(&mut latency, &figures.latency));
        fullest = fullest
            .max(most(|group| group.memory.saturating_mul(100).checked_div(group.memory_max).unwrap_or(0)));
        if settings.replication.has_leader() {
            let views = answers.views(prefix, group.shard);
            keyspace.records += views.map(|(_, view)| view.offset).max().unwrap_or(0);
        }
        let name = match entry.groups.len() {
            1 => format!("keyspace '{}'", keyspace.name()),
            _ => format!("keyspace '{}', shard {}", keyspace.name(), shard.shard),
        };
        shard_risks(answers, map, &keyspace, group, (&name, &shard), risks);
        keyspace.shards.push(shard);
    }
    keyspace.latency = latency.into_iter().collect();
    let most = keyspace.shards.iter().map(|shard| shard.members.len()).max().unwrap_or(0);
    keyspace.promise = words::promise(&keyspace, most);
    backup_risk(&keyspace, risks);
    began_empty_risk(answers, &keyspace, began_empty_ms, risks);
    if settings.eviction.text().to_string() == "none" && fullest >= KEYSPACE_PERCENT {
        let bound = words::bytes(settings.memory_max);
        let name = format!("keyspace '{}'", keyspace.name());
        let raise = advice::alter(prefix, &format!("memory_max={}mb", (settings.memory_max >> 19).max(1)));
        risks.about(&name).at_risk(
            "keyspace-full",
            format!(
                "{name} has taken {fullest} % of its bound of {bound} in a shard: at 100 % writes are \
                 refused with OOM"
            ),
            format!("delete keys, or raise the bound: {raise}, or let keys be evicted (eviction=lru)"),
        );
    }
    keyspace
}

/// The time that the nodes agree on.
fn now_ms(answers: &Answers) -> Option<u64> {
    answers.reports().map(|(_, reported)| reported.report.time_ms).max().filter(|ms| *ms > 0)
}

/// How old the newest backup of a keyspace is.
fn backup(answers: &Answers, saved: Saved) -> Option<Backup> {
    let now_ms = now_ms(answers)?;
    let age_s = (saved.at_ms > 0).then(|| now_ms.saturating_sub(saved.at_ms) / 1000);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    Some(Backup { age_s, due_in_s: signed(saved.due_ms).saturating_sub(signed(now_ms)).div_euclid(1000) })
}

fn backup_risk(keyspace: &Keyspace, risks: &mut Risks) {
    let Some(backup) = keyspace.backup.as_ref().filter(|backup| backup.due_in_s < 0) else { return };
    let name = format!("keyspace '{}'", keyspace.name());
    let what = match backup.age_s {
        Some(age_s) => format!(
            "the newest backup of {name} shows it as it was {} ago; a newer one is due",
            words::duration(age_s)
        ),
        None => format!("no backup holds {name}: it could not be read when the others were saved"),
    };
    risks.about(name).at_risk(
        "backup-old",
        what,
        "look at what should have made it (its log, its exit code), and make one: quorate backup --to PLACE",
    );
}

/// All members of a keyspace in memory were restarted: what it held is gone. `at_ms` is 0 if that has not
/// happened.
fn began_empty_risk(answers: &Answers, keyspace: &Keyspace, at_ms: u64, risks: &mut Risks) {
    let ago_s = now_ms(answers).filter(|_| at_ms > 0).map(|now_ms| now_ms.saturating_sub(at_ms) / 1000);
    let Some(ago_s) = ago_s.filter(|ago_s| *ago_s < BEGAN_EMPTY_S) else { return };
    let name = format!("keyspace '{}'", keyspace.name());
    risks.about(&name).at_risk(
        "began-empty",
        format!(
            "{name} began again, empty, {} ago, after all nodes that held it were restarted: it is kept in \
             memory only (durability = none), and what was acknowledged before is lost",
            words::duration(ago_s)
        ),
        "restore its backup, if there is one (quorate restore), or have its users fill it again. A keyspace \
         with durability = os or fsync keeps its keys. This is shown for a day",
    );
}
