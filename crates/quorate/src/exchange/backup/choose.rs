//! Chooses the backup of each keyspace that shows a moment.

use anyhow::{Context as _, Result, bail};

use super::manifest::{Keyspace, Manifest, named};
use super::moment;
use server::status::words;

/// What to restore.
#[derive(Debug)]
pub(super) struct Plan<'m> {
    /// The backup that users and functions are taken from.
    pub(super) base: &'m Manifest,
    pub(super) keyspaces: Vec<Chosen<'m>>,
}

/// A keyspace to be restored.
#[derive(Debug)]
pub(super) struct Chosen<'m> {
    pub(super) keyspace: &'m Keyspace,
    /// Changes later than this are left out, in milliseconds since the Unix epoch.
    pub(super) until_ms: u64,
    /// The state that it will show, in words.
    pub(super) shows: String,
}

/// The moments that a keyspace of a backup can be restored to, in words.
pub(super) fn reach(keyspace: &Keyspace) -> String {
    let (copied, reached) = (copied_ms(keyspace), reached_ms(keyspace));
    match (keyspace.shards.iter().any(|shard| shard.is_walked()), keyspace.keeps_changes()) {
        (true, _) => format!("its keys were read one by one until {}", moment::text(copied)),
        (false, false) => format!("as it was at {}", moment::text(copied)),
        (false, true) => format!("at any time from {} to {}", moment::text(copied), moment::text(reached)),
    }
}

/// When the last shard was copied.
fn copied_ms(keyspace: &Keyspace) -> u64 {
    keyspace.shards.iter().map(|shard| shard.time_ms).max().unwrap_or_default()
}

/// The time up to which changes of all shards are present.
pub(super) fn reached_ms(keyspace: &Keyspace) -> u64 {
    keyspace.shards.iter().map(|shard| shard.reached_ms()).min().unwrap_or_default()
}

/// The keyspaces of which a backup shows nothing newer than a time, in words. They may be in it as an earlier one had them.
pub(super) fn older_than(backup: &Manifest, since_ms: u64) -> Vec<String> {
    let old = backup.keyspaces.iter().filter(|keyspace| reached_ms(keyspace) < since_ms);
    let old =
        old.map(|it| (&it.prefix, format!("{} since {}", named(&it.prefix), moment::text(reached_ms(it)))));
    let never = backup.missing.keys().filter(|prefix| backup.keyspace(prefix).is_none());
    let mut all: Vec<_> = old.chain(never.map(|it| (it, format!("{} never", named(it))))).collect();
    all.sort_by_cached_key(|(prefix, _)| words::natural(prefix));
    all.into_iter().map(|(_, line)| line).collect()
}

/// Everything in the newest of these backups.
///
/// # Errors
/// There is none.
pub(super) fn newest(backups: &[Manifest]) -> Result<Plan<'_>> {
    let base = backups.last().context("there is no backup")?;
    let chosen = base.keyspaces.iter().map(|keyspace| Chosen {
        keyspace,
        until_ms: u64::MAX,
        shows: match keyspace.keeps_changes() && keyspace.shards.iter().any(|shard| !shard.changes.is_empty())
        {
            true => format!("as it was at {}", moment::text(reached_ms(keyspace))),
            false => reach(&Keyspace { settings: Default::default(), ..keyspace.clone() }),
        },
    });
    Ok(Plan { base, keyspaces: chosen.collect() })
}

/// What shows a moment: for a keyspace that keeps its changes, the copy before the moment with the changes up to it; for any
/// other, the newest copy before it.
///
/// # Errors
/// A sentence that says which moments can be shown.
pub(super) fn at(backups: &[Manifest], until_ms: u64) -> Result<Plan<'_>> {
    let base = backups.iter().rfind(|backup| backup.begun_ms <= until_ms);
    let Some(base) = base else {
        let first = backups.first().context("there is no backup")?;
        bail!("the oldest backup was begun later: at {}", moment::text(first.begun_ms));
    };
    let mut chosen = Vec::new();
    for prefix in prefixes(backups) {
        let copies: Vec<&Keyspace> = backups.iter().filter_map(|backup| backup.keyspace(&prefix)).collect();
        let before = || copies.iter().copied().filter(|it| copied_ms(it) <= until_ms);
        let Some(newest) = before().next_back() else { continue };
        if !newest.keeps_changes() {
            chosen.push(Chosen { keyspace: newest, until_ms, shows: reach(newest) });
            continue;
        }
        let Some(keyspace) = before().find(|it| reached_ms(it) >= until_ms) else {
            let name = newest.name();
            let later = copies.iter().map(|it| copied_ms(it)).find(|copied| *copied > until_ms);
            let or =
                later.map(|later| format!(", or one from {} on", moment::text(later))).unwrap_or_default();
            bail!(
                "what changed in keyspace '{name}' up to {} is in no backup: choose a time up to {}{or}",
                moment::text(until_ms),
                moment::text(reached_ms(newest))
            );
        };
        chosen.push(Chosen { keyspace, until_ms, shows: format!("as it was at {}", moment::text(until_ms)) });
    }
    Ok(Plan { base, keyspaces: chosen })
}

/// The prefixes of all keyspaces, sorted.
fn prefixes(backups: &[Manifest]) -> Vec<String> {
    let all = backups.iter().flat_map(|backup| &backup.keyspaces).map(|keyspace| keyspace.prefix.clone());
    all.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::manifest::ChangeFile;
    use super::super::manifest::tests::example;
    use super::*;

    /// A backup that was begun at a time, of keyspaces that were each copied at a time and have changes up to another
    /// time, if that is later.
    fn backup(begun_ms: u64, keyspaces: &[(&str, bool, u64, u64)]) -> Manifest {
        let mut manifest = Manifest { begun_ms, name: moment::name(begun_ms), ..example() };
        let shard = manifest.keyspaces.remove(0).shards.remove(0);
        for (prefix, keeps, copied, reached) in keyspaces {
            let changes = match reached > copied {
                true => vec![ChangeFile { until_ms: *reached, ..shard.changes[0].clone() }],
                false => Vec::new(),
            };
            let shard = super::super::manifest::Shard { time_ms: *copied, changes, ..shard.clone() };
            let settings = [("changes_bytes".to_owned(), if *keeps { "64" } else { "0" }.to_owned())].into();
            manifest.keyspaces.push(Keyspace { prefix: (*prefix).into(), settings, shards: vec![shard] });
        }
        manifest
    }

    #[test]
    fn a_keyspace_that_was_not_saved_is_old_in_a_new_backup() {
        let keyspaces = [("", true, 1000, 5000), ("cache:", false, 4000, 4000), ("r:", false, 1000, 1000)];
        let mut newest = backup(5000, &keyspaces);
        newest.missing = ["r:", "s:"].map(|prefix| (prefix.to_owned(), "it is not served".to_owned())).into();
        let never = "keyspace 's:' never".to_owned();
        assert_eq!(older_than(&newest, 1000), std::slice::from_ref(&never));
        let old = "keyspace 'r:' since 1970-01-01T00:00:01.000Z".to_owned();
        assert_eq!(older_than(&newest, 4000), [old, never]);
        assert_eq!(older_than(&newest, 5001).len(), 4);
    }

    #[test]
    fn each_keyspace_is_restored_from_the_backup_that_shows_the_moment() {
        let backups = [
            backup(1000, &[("", true, 1000, 1000), ("cache:", false, 1010, 1010)]),
            backup(2000, &[("", true, 1000, 2000), ("cache:", false, 2010, 2010)]),
            // Copied again, since the changes were not kept.
            backup(
                3000,
                &[("", true, 3000, 3000), ("cache:", false, 3010, 3010), ("new:", true, 3020, 3020)],
            ),
            backup(
                4000,
                &[("", true, 3000, 4000), ("cache:", false, 4010, 4010), ("new:", true, 3020, 4000)],
            ),
        ];
        let chosen = |until_ms| -> Result<Vec<(String, u64, u64)>, String> {
            let plan = at(&backups, until_ms).map_err(|error| error.to_string())?;
            let of = |it: &Chosen<'_>| {
                (it.keyspace.prefix.clone(), copied_ms(it.keyspace), reached_ms(it.keyspace))
            };
            Ok(plan.keyspaces.iter().map(of).collect())
        };
        let is = |prefix: &str, copied, reached| (prefix.to_owned(), copied, reached);
        assert_eq!(chosen(1500), Ok(vec![is("", 1000, 2000), is("cache:", 1010, 1010)]));
        assert_eq!(chosen(2000), Ok(vec![is("", 1000, 2000), is("cache:", 1010, 1010)]));
        assert_eq!(
            chosen(3500),
            Ok(vec![is("", 3000, 4000), is("cache:", 3010, 3010), is("new:", 3020, 4000)])
        );
        let why = chosen(2500).unwrap_err();
        assert!(
            why.contains("up to 1970-01-01T00:00:02.000Z, or one from 1970-01-01T00:00:03.000Z on"),
            "{why}"
        );
        let why = chosen(4001).unwrap_err();
        assert!(why.contains("choose a time up to 1970-01-01T00:00:04.000Z"), "{why}");
        assert!(chosen(999).unwrap_err().contains("the oldest backup"));
        assert_eq!(newest(&backups).unwrap().keyspaces.len(), 3);
    }
}
