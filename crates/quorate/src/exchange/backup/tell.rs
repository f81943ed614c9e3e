//! Tells the cluster which moments a backup shows, so that `quorate status` and metrics know how old the newest one is.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::super::source::Source;
use crate::connection::{Connect, Role};

/// When a newer backup is due, if the command line does not say: a day after this one, with some room for a late job.
const DUE: Duration = Duration::from_secs(26 * 3600);

/// How long after a backup the next one is due.
pub(super) fn due(given: Option<Duration>, every: Option<Duration>) -> Duration {
    given.unwrap_or_else(|| DUE.max(every.unwrap_or_default() * 2))
}

/// Tells the cluster the moment that a backup shows of each keyspace, by prefix; 0: it should have it, and has not.
///
/// # Errors
/// Why the cluster does not know it now. The backup is whole nevertheless.
pub(super) fn tell(connect: &Connect, saved: &BTreeMap<String, u64>, due: Duration) -> Result<()> {
    let mut words = vec![b"CLUSTER".to_vec(), b"BACKUP".to_vec(), due.as_millis().to_string().into_bytes()];
    for (prefix, at_ms) in saved {
        words.push(prefix.clone().into_bytes());
        words.push(at_ms.to_string().into_bytes());
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    Source::find(connect, Role::Changes)?.ask(&words)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_backup_is_due_in_a_day_or_after_two_intervals() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(due(None, None), hours(26));
        assert_eq!(due(None, Some(hours(1))), hours(26));
        assert_eq!(due(None, Some(hours(168))), hours(336));
        assert_eq!(due(Some(hours(2)), Some(hours(1))), hours(2));
    }
}
