//! Backups, and another cluster into which they are restored: see [`crate::job`].

use super::World;
use super::operator::Presence;
use crate::clients::Client;
use crate::events::Place;
use crate::faults::{Class, SECOND};
use crate::host::Host;
use crate::job::{Backup, Job, Restore};
use crate::random::Random;
use crate::report::Broken;
use crate::scenario::stream;
use crate::trace::id;
use contents::sum::sum;
use kv::Version;
use node::Node;
use std::collections::BTreeMap;

impl World {
    /// Records what a node's replicas hold of the keyspaces that are backed up, if their version is new.
    pub(super) fn note_held(&mut self, node: &mut Node) {
        for (_, space) in &self.scenario.backups {
            let prefix = &self.scenario.spaces[usize::from(*space)].keyspace.prefix;
            let Some(version) = node.version_held(prefix) else { continue };
            if self.held.contains_key(&(*space, version)) {
                continue;
            }
            let Some(keys) = node.keys_held(prefix) else { continue };
            match sum(&keys[..], 0) {
                Ok(sum) => _ = self.held.insert((*space, version), sum),
                Err(why) => {
                    let words = format!("version {version} of keyspace '{prefix}' cannot be read: {why:#}");
                    return self.fail(Broken::Language, words);
                }
            }
        }
    }

    /// Makes clients with backups read up to what replicas hold now.
    pub(super) fn finish_backups(&mut self) {
        for client in 0..self.clients.len() as u8 {
            let Some(Job::Backup(Backup { space, .. })) = self.clients[usize::from(client)].job else {
                continue;
            };
            if self.presence[usize::from(space)] != Presence::There {
                continue;
            }
            let prefix = &self.scenario.spaces[usize::from(space)].keyspace.prefix;
            let nodes = self.hosts.iter().filter_map(Host::node);
            let goal = nodes.filter_map(|node| node.version_held(prefix)).max();
            if let Some(Job::Backup(backup)) = &mut self.clients[usize::from(client)].job {
                backup.goal = goal;
            }
            self.wake_client(client, 0);
        }
    }

    fn backups(&self) -> impl Iterator<Item = &Backup> {
        self.clients.iter().filter_map(|client| match &client.job {
            // Where acknowledged writes may be forgotten, versions may be used twice.
            Some(Job::Backup(backup)) if self.is_backed_up(usize::from(backup.space)) => Some(backup),
            _ => None,
        })
    }

    fn is_backed_up(&self, space: usize) -> bool {
        self.is_judged(space) && !self.forgot[space]
    }

    /// Compares all backups with what replicas have held at each version.
    pub(super) fn compare_backups(&mut self) {
        let compare = |backup: &Backup| -> Result<u64, String> {
            let space = backup.space;
            let held = self.held.range((space, 0)..=(space, Version::MAX));
            let held: BTreeMap<Version, u64> = held.map(|((_, version), sum)| (*version, *sum)).collect();
            let name = self.scenario.spaces[usize::from(space)].keyspace.name();
            backup.compare(&held).map_err(|why| format!("a backup of keyspace '{name}': {why}"))
        };
        let compared: Result<u64, String> = self.backups().map(compare).sum();
        match compared {
            Ok(compared) => (0..compared).for_each(|_| self.counts.add(Class::BackupCompared)),
            Err(words) => self.fail(Broken::Safety, words),
        }
    }

    /// Returns the cluster into which the backups are restored, each as of a moment that the seed chooses. `None` if there are
    /// no suitable backups, or if one cannot be read, which fails the run.
    pub(crate) fn restored(&mut self, traced: bool) -> Option<World> {
        let restore = match self.restore() {
            Ok(restore) => restore?,
            Err(words) => {
                self.fail(Broken::Safety, format!("a backup cannot be restored: {words}"));
                return None;
            }
        };
        let scenario = self.scenario.of_restore();
        let client = Client::restore(Random::new(scenario.seed, stream::CLIENTS), restore);
        let mut world = World::new(scenario, traced);
        world.clients.push(client);
        Some(world)
    }

    fn restore(&self) -> Result<Option<Restore>, String> {
        // Keys that were written after their keyspace was dropped are in the default keyspace. The other cluster has all
        // keyspaces, so they would not be restored to where they were.
        let prefixes = self.scenario.spaces.iter().map(|space| &space.keyspace.prefix);
        if prefixes.into_iter().any(|prefix| !self.map.keyspaces.contains_key(prefix)) {
            return Ok(None);
        }
        let mut random = Random::new(self.scenario.seed, stream::RESTORED);
        let mut files = Vec::new();
        for backup in self.backups() {
            let space = &self.scenario.spaces[usize::from(backup.space)];
            // A keyspace with a bound may have no room for all of it.
            if space.keyspace.memory_max > 0 {
                continue;
            }
            let percent = random.pick(&[100, 100, 50, 0]);
            files.extend(backup.at(percent)?.map(|file| (backup.space, file)));
        }
        if files.is_empty() {
            return Ok(None);
        }
        let empties = !self.scenario.spaces.iter().any(|space| space.protocol.has_registers());
        Restore::new(files, empties).map(Some)
    }

    /// Checks that each replica holds what was restored, except for what has expired.
    pub(super) fn check_restored(&mut self) {
        let restores = self.clients.iter().filter_map(|client| match &client.job {
            Some(Job::Restore(restore)) if !restore.may_be_emptied => Some(restore.files.clone()),
            _ => None,
        });
        let files: Vec<(u8, Vec<u8>)> = restores.flatten().collect();
        if files.is_empty() {
            return;
        }
        let now = self.now;
        let clocks = self.hosts.iter().map(|host| host.clock.read(now).unix_ms);
        let expired_ms = clocks.max().unwrap_or_default() + SECOND / 1000;
        for (space, file) in files {
            let prefix = self.scenario.spaces[usize::from(space)].keyspace.prefix.clone();
            let expected = sum(&file[..], expired_ms).expect("it was read when the restore began");
            let mut compared = 0;
            for place in 0..self.scenario.nodes {
                let Some(process) = &mut self.hosts[usize::from(place as Place)].process else { continue };
                let Some(keys) = process.node.keys_held(&prefix) else { continue };
                compared += 1;
                if !sum(&keys[..], expired_ms).is_ok_and(|held| held == expected) {
                    let words = format!("node {} does not hold what was restored of '{prefix}'", id(place));
                    return self.fail(Broken::Safety, words);
                }
            }
            if compared == 0 {
                let words = format!("no node has a replica of '{prefix}', which was restored");
                return self.fail(Broken::Liveness, words);
            }
        }
        self.counts.add(Class::Restored);
    }
}
