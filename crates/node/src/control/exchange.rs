//! Exchanges of databases (`SWAPDB`): two keyspaces take each other's prefixes, at one moment for all nodes and clients.
//!
//! ```text
//!  map          begun                                  exchanged
//!   ------------|--------------------------------------|-------------------------->  time
//!  group 1      .      stopped |                       .    goes on |
//!  group 2      .           stopped |                  .         goes on |
//! ```
//!
//! Nodes learn of a map one after the other, and a command may be on its way for long. So a keyspace counts each
//! exchange twice: its count is odd from the map in which an exchange begins to the map in which it is made or given
//! up. A client's command carries the count by which it was routed. A group executes the command only if the group
//! has the same count and that count is even ([`kv::Command::Exchange`]). The leader of a group raises the group's
//! count to the map's. The exchange is made when all groups of both keyspaces have stopped. So:
//!
//! * a command that was routed by an older map takes effect before its group stops, and so before the exchange, or never;
//! * a command that is routed by the newer map takes effect after its group goes on, and so after the exchange.
//!
//! The moment of the exchange is the commit of that map. If a group cannot stop, the control leader gives the
//! exchange up after a while: the counts become even, and the prefixes stay.
//!
//! From then on both keyspaces give versions above all that either gave before, so that fencing tokens only grow, and
//! readers of changes notice that they have to start again.

use super::map::{ClusterMap, Exchange, GroupId, KeyspaceEntry};
use super::refusal::{Refusal, refuse};
use crate::keyspace::{Keyspace, database_named};
use kv::{SKIPPED_VERSIONS, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many exchanges that were made the map remembers. A node repeats a request for five seconds
/// (`Timing::answer_ms`), and each exchange takes 20 ms at least, for which leaders wait before they stop their
/// groups: that makes 250.
const REMEMBERED: usize = 256;

/// A step of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The exchange begins, unless it is made already: a request may be repeated.
    Begin {
        /// The prefixes of the two keyspaces.
        between: (String, String),
        /// The request's number, drawn at random.
        request: u64,
    },
    /// A group has stopped.
    Stopped {
        /// The group's number.
        group: GroupId,
        /// The group's count of exchanges.
        exchanges: u64,
        /// The highest version that it has given.
        version: Version,
    },
    /// A group has a higher count than the map, which was set back by a recovery (`quorate recover`).
    Ahead {
        /// The group's number.
        group: GroupId,
        /// The group's count of exchanges.
        exchanges: u64,
    },
    /// The exchange is given up: both keyspaces go on as they were.
    GiveUp,
}

impl ClusterMap {
    /// Whether a keyspace is being exchanged.
    pub fn is_exchanging(&self, prefix: &str) -> bool {
        self.exchange.as_ref().is_some_and(|it| it.between.0 == prefix || it.between.1 == prefix)
    }

    /// Whether a request for an exchange has to wait until another one is made, or given up.
    pub(super) fn must_wait_for_exchange(&self, step: &Step) -> bool {
        let Step::Begin { request, .. } = step else { return false };
        self.exchange.as_ref().is_some_and(|it| it.request != *request)
    }

    pub(super) fn step_exchange(&mut self, step: &Step) -> Result<(), Refusal> {
        match step {
            Step::Begin { between, request } => self.begin_exchange(between, *request),
            Step::Stopped { group, exchanges, version } => self.note_stopped(*group, *exchanges, *version),
            Step::Ahead { group, exchanges } => self.catch_up_with(*group, *exchanges),
            Step::GiveUp => {
                self.end_exchange(false, |_, _| {});
                Ok(())
            }
        }
    }

    fn begin_exchange(&mut self, between: &(String, String), request: u64) -> Result<(), Refusal> {
        let (one, other) = between;
        let entry =
            |prefix: &String| self.keyspaces.get(prefix).ok_or_else(|| Refusal::NoKeyspace(prefix.clone()));
        let (first, second) = (entry(one)?, entry(other)?);
        match &self.exchange {
            _ if self.exchanged.contains(&request) => return Ok(()),
            Some(under_way) if under_way.request == request => return Ok(()),
            Some(_) => refuse!("other databases are being exchanged at this moment; try again"),
            None if one == other => refuse!("a database cannot be exchanged with itself"),
            None => {}
        }
        for entry in [first, second] {
            self.check_exchange(&entry.keyspace)?;
        }
        for prefix in [one, other] {
            if let Some(entry) = self.keyspaces.get_mut(prefix) {
                entry.exchanges += 1;
            }
        }
        self.exchange = Some(Exchange { between: between.clone(), request, stopped: BTreeMap::new() });
        Ok(())
    }

    /// Whether a keyspace can hold another database.
    fn check_exchange(&self, keyspace: &Keyspace) -> Result<(), Refusal> {
        let name = keyspace.name();
        if !keyspace.has_leader() {
            refuse!("SWAPDB is for keyspaces with a leader, and '{name}' has registers");
        }
        if keyspace.coding().is_some() || keyspace.spills() {
            refuse!(
                "SWAPDB is for values that are whole and in memory, and '{name}' keeps large ones elsewhere"
            );
        }
        if database_named(keyspace.prefix.as_bytes()) > 0 {
            return Ok(());
        }
        let parts = self.keyspaces.keys().filter(|prefix| database_named(prefix.as_bytes()) == 0);
        let others: Vec<&str> = parts.map(String::as_str).filter(|prefix| !prefix.is_empty()).collect();
        match others.is_empty() && keyspace.prefix.is_empty() {
            true => Ok(()),
            false => refuse!(
                "SWAPDB is for databases of one keyspace each, and database 0 is divided: keyspaces '{}' are parts of it",
                others.join("', '")
            ),
        }
    }

    fn note_stopped(&mut self, id: GroupId, exchanges: u64, version: Version) -> Result<(), Refusal> {
        let prefix = self.groups.get(&id).ok_or(Refusal::NoGroup(id))?.keyspace.clone();
        let count = self.keyspaces.get(&prefix).map_or(0, |entry| entry.exchanges);
        let is_exchanging = self.is_exchanging(&prefix);
        let Some(exchange) = self.exchange.as_mut().filter(|_| is_exchanging && count == exchanges) else {
            return Ok(()); // The report came late.
        };
        exchange.stopped.entry(id).or_insert(version);
        let (one, other) = &exchange.between;
        let groups = [one, other].into_iter().filter_map(|prefix| self.keyspaces.get(prefix));
        let has_stopped = |id: &GroupId| exchange.stopped.contains_key(id);
        if groups.flat_map(|entry| &entry.groups).all(has_stopped) {
            let highest = exchange.stopped.values().max().copied().unwrap_or_default();
            // A multiple, so that replicas' checks of versions and offsets still hold.
            let floor = (highest / SKIPPED_VERSIONS + 1) * SKIPPED_VERSIONS;
            self.end_exchange(true, |first, second| {
                std::mem::swap(&mut first.keyspace.prefix, &mut second.keyspace.prefix);
                (first.floor, second.floor) = (floor, floor);
            });
        }
        Ok(())
    }

    /// Raises the count of a keyspace above that of one of its groups: otherwise the group would never execute a
    /// command again. An exchange that only the group knows was lost with the newest maps, and nothing that was
    /// routed by it may take effect.
    fn catch_up_with(&mut self, id: GroupId, exchanges: u64) -> Result<(), Refusal> {
        let prefix = self.groups.get(&id).ok_or(Refusal::NoGroup(id))?.keyspace.clone();
        let is_exchanging = self.is_exchanging(&prefix);
        if let Some(entry) = self.keyspaces.get_mut(&prefix)
            && entry.exchanges < exchanges
            && !is_exchanging
        {
            entry.exchanges = exchanges / 2 * 2 + 2;
        }
        Ok(())
    }

    /// Ends the exchange: both keyspaces go on, after `change` was applied to the two.
    fn end_exchange(&mut self, is_made: bool, change: impl FnOnce(&mut KeyspaceEntry, &mut KeyspaceEntry)) {
        let Some(Exchange { between: (one, other), request, .. }) = self.exchange.take() else { return };
        if is_made {
            self.exchanged.push(request);
            let forgotten = self.exchanged.len().saturating_sub(REMEMBERED);
            self.exchanged.drain(..forgotten);
        }
        let (Some(mut first), Some(mut second)) =
            (self.keyspaces.remove(&one), self.keyspaces.remove(&other))
        else {
            unreachable!("a keyspace that is being exchanged is not dropped");
        };
        change(&mut first, &mut second);
        for mut entry in [first, second] {
            entry.exchanges += 1;
            for id in &entry.groups {
                if let Some(group) = self.groups.get_mut(id) {
                    group.keyspace.clone_from(&entry.keyspace.prefix);
                }
            }
            self.keyspaces.insert(entry.keyspace.prefix.clone(), entry);
        }
    }

    /// Checks that the counts are odd where an exchange has begun.
    pub(super) fn check_exchanges(&self) -> Result<(), String> {
        for (prefix, entry) in &self.keyspaces {
            if self.is_exchanging(prefix) == entry.exchanges.is_multiple_of(2) {
                return Err(format!("keyspace '{prefix}' counts {} steps of exchanges", entry.exchanges));
            }
            let keyspace = &entry.keyspace;
            let is_whole = keyspace.has_leader() && keyspace.coding().is_none() && !keyspace.spills();
            if entry.exchanges > 0 && !is_whole {
                return Err(format!("keyspace '{prefix}' was exchanged, and keeps values elsewhere"));
            }
        }
        let is_there = |prefix: &String| self.keyspaces.contains_key(prefix);
        match &self.exchange {
            Some(Exchange { between: (one, other), .. })
                if one == other || !is_there(one) || !is_there(other) =>
            {
                Err(format!("keyspaces '{one}' and '{other}' cannot be exchanged"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::super::level::Feature;
    use super::*;
    use crate::configuration::NodeAddress;
    use wire::release::RELEASES;

    fn map(keyspaces: &[&str]) -> ClusterMap {
        let node = |id| NodeAddress { id, host: "h".into(), client_port: id, http_port: id, peer_port: id };
        let keyspaces: Vec<Keyspace> =
            keyspaces.iter().map(|text| Keyspace::parse(text).expect("a keyspace")).collect();
        let mut map = ClusterMap::initial(&[node(1), node(2), node(3)], &keyspaces).expect("a map");
        map.level = RELEASES.newest;
        assert!(map.has(Feature::Exchanges));
        map
    }

    fn ask(one: &str, other: &str, request: u64) -> Change {
        Change::Exchange(Step::Begin { between: (one.into(), other.into()), request })
    }

    fn begin(map: &ClusterMap, one: &str, other: &str) -> Result<ClusterMap, Refusal> {
        map.apply(&ask(one, other, map.version))
    }

    fn stop(map: &ClusterMap, group: GroupId, exchanges: u64, version: Version) -> ClusterMap {
        let map =
            map.apply(&Change::Exchange(Step::Stopped { group, exchanges, version })).expect("a report");
        map.check().expect("a map");
        map
    }

    #[test]
    fn the_prefixes_change_when_all_groups_have_stopped() {
        let before = map(&["prefix=", "prefix=@1 shards=2 replication=leader-follower acks=1"]);
        let groups = |map: &ClusterMap, prefix: &str| map.keyspaces[prefix].groups.clone();
        assert_eq!((groups(&before, ""), groups(&before, "@1")), (vec![1], vec![2, 3]));
        let ask = ask("", "@1", 7);
        let begun = before.apply(&ask).expect("they can be exchanged");
        begun.check().expect("a map");
        assert_eq!(begun.apply(&ask).as_ref(), Ok(&begun), "asked again, it goes on");
        assert!(begin(&begun, "@1", "").is_err(), "it is another one");
        assert!(begun.apply(&Change::DropKeyspace("@1".into())).is_err());
        let two = stop(&stop(&begun, 3, 1, 7), 1, 1, 9);
        assert_eq!((groups(&two, ""), two.keyspaces[""].exchanges), (vec![1], 1));
        assert_eq!(stop(&two, 2, 0, 5), two, "a report of before counts for nothing");
        let made = stop(&two, 2, 1, SKIPPED_VERSIONS + 5);
        assert_eq!((groups(&made, ""), groups(&made, "@1")), (vec![2, 3], vec![1]));
        let entry = &made.keyspaces[""];
        assert_eq!((entry.exchanges, entry.floor), (2, 2 * SKIPPED_VERSIONS));
        assert_eq!(entry.keyspace.shards, 2, "its settings go with it");
        assert_eq!([&made.groups[&1].keyspace, &made.groups[&2].keyspace], ["@1", ""]);
        assert_eq!(made.apply(&ask).as_ref(), Ok(&made), "it is made");
        // And back again.
        let back = begin(&made, "", "@1").expect("they can be exchanged");
        let back = [1, 2, 3].into_iter().fold(back, |map, group| stop(&map, group, 3, 1));
        assert_eq!((groups(&back, ""), groups(&back, "@1")), (vec![1], vec![2, 3]));
        assert_eq!(back.apply(&ask).as_ref(), Ok(&back), "the first request is repeated late");
    }

    #[test]
    fn keyspaces_stay_as_they_were_after_an_exchange_is_given_up() {
        let before = map(&["prefix=@1", "prefix=@2"]);
        let begun = stop(&begin(&before, "@1", "@2").expect("they can be exchanged"), 2, 1, 5);
        let given_up = begun.apply(&Change::Exchange(Step::GiveUp)).expect("it is under way");
        given_up.check().expect("a map");
        for prefix in ["@1", "@2"] {
            let (before, after) = (&before.keyspaces[prefix], &given_up.keyspaces[prefix]);
            assert_eq!((&before.groups, after.exchanges, after.floor), (&after.groups, 2, 0));
        }
        assert_eq!(stop(&given_up, 3, 1, 5), given_up, "a report that comes late counts for nothing");
    }

    #[test]
    fn a_map_that_was_set_back_catches_up_with_its_groups() {
        let before = map(&["prefix=@1", "prefix=@2"]);
        let ahead = |exchanges| Change::Exchange(Step::Ahead { group: 2, exchanges });
        let raised = |map: &ClusterMap, exchanges| map.apply(&ahead(exchanges)).expect("a report");
        for (exchanges, then) in [(0, 0), (1, 2), (2, 4), (3, 4)] {
            let after = raised(&before, exchanges);
            after.check().expect("a map");
            assert_eq!((after.keyspaces["@1"].exchanges, after.keyspaces["@2"].exchanges), (then, 0));
        }
        let raised_once = raised(&before, 3);
        assert_eq!(raised(&raised_once, 3), raised_once, "it was reported twice");
        let begun = begin(&before, "@1", "@2").expect("they can be exchanged");
        assert_eq!(raised(&begun, 5), begun, "when the exchange is over, it is reported again");
    }

    #[test]
    fn an_impossible_exchange_is_refused_with_the_reason() {
        for (keyspaces, why) in [
            (&["prefix=@1 replication=abd"][..], "'@1' has registers"),
            (&["prefix=@1 storage=disk"], "'@1' keeps large ones elsewhere"),
            (&["prefix=@1", "prefix=cache:"], "keyspaces 'cache:' are parts of it"),
            (&[], "there is no keyspace '@1'"),
        ] {
            let refusal = begin(&map(keyspaces), "", "@1").expect_err("it is refused").to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
