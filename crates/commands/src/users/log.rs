//! `ACL LOG`: what this node has refused, with the client and the reason.

use std::collections::VecDeque;

/// The most entries that may be kept (`acllog-max-len`).
pub const ACL_LOG_ENTRIES_MAX: usize = 10_000;

/// Equal refusals within this time are one entry.
const ALIKE_MS: u64 = 60_000;

/// The most bytes of a name that are kept, since clients choose names.
const KEPT_NAME_BYTES: usize = 256;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The rules do not allow the command.
    Command,
    /// They do not allow it on a key.
    Key,
    /// They do not allow the channel.
    Channel,
    /// They do not allow the database.
    Database,
    /// A login failed.
    Auth,
}

impl Reason {
    /// The word of `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Database => "database",
            Reason::Auth => "auth",
        }
    }
}

/// Where something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a request of its own.
    TopLevel,
    /// In a transaction.
    Transaction,
    /// In a script.
    Script,
}

impl Place {
    /// The word of `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Place::TopLevel => "toplevel",
            Place::Transaction => "multi",
            Place::Script => "lua",
        }
    }
}

/// Something that was refused, once or several times.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How often.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// Where.
    pub place: Place,
    /// The command, key or channel; of a failed login, the command that was given.
    pub object: Vec<u8>,
    /// The user, or the name that was given.
    pub user: Vec<u8>,
    /// The latest client, as `CLIENT LIST` describes it.
    pub client: String,
    /// The number of the entry.
    pub number: u64,
    /// When it was refused for the first time.
    pub created_ms: u64,
    /// When it was refused the last time.
    pub updated_ms: u64,
}

/// The newest refusals, the latest first.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<Entry>,
    next: u64,
}

impl AclLog {
    /// Notes a refusal, and keeps at most `entries_max` entries.
    pub fn note(
        &mut self,
        (reason, place): (Reason, Place),
        (user, object): (&[u8], &[u8]),
        client: String,
        now_ms: u64,
        entries_max: usize,
    ) {
        let kept = |name: &[u8]| name[..name.len().min(KEPT_NAME_BYTES)].to_vec();
        let (user, object) = (kept(user), kept(object));
        let is_alike = |entry: &Entry| {
            (entry.reason, entry.place) == (reason, place)
                && entry.object == object
                && entry.user == user
                && now_ms.saturating_sub(entry.created_ms) <= ALIKE_MS
        };
        let alike = self.entries.iter().position(is_alike).and_then(|place| self.entries.remove(place));
        let entry = match alike {
            Some(entry) => Entry { count: entry.count + 1, client, updated_ms: now_ms, ..entry },
            None => {
                let number = self.next;
                self.next += 1;
                let (created_ms, updated_ms) = (now_ms, now_ms);
                Entry { count: 1, reason, place, object, user, client, number, created_ms, updated_ms }
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(entries_max);
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The latest entries, at most `count`.
    pub fn latest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &mut AclLog, user: &str, object: &str, now_ms: u64) {
        let kind = (Reason::Key, Place::TopLevel);
        log.note(kind, (user.as_bytes(), object.as_bytes()), String::new(), now_ms, 3);
    }

    #[test]
    fn alike_refusals_are_one_entry_and_entries_are_bounded() {
        let mut log = AclLog::default();
        note(&mut log, "u", "a", 0);
        note(&mut log, "u", "b", 1);
        note(&mut log, "u", "a", 2);
        let seen: Vec<(u64, &[u8])> = log.latest(10).map(|entry| (entry.count, &*entry.object)).collect();
        assert_eq!(seen, [(2, &b"a"[..]), (1, b"b")]);
        note(&mut log, "u", "a", ALIKE_MS + 1);
        note(&mut log, "v", "a", ALIKE_MS + 1);
        assert_eq!(log.latest(10).len(), 3);
        assert_eq!(log.latest(1).next().unwrap().user, b"v");
        note(&mut log, "w", &"x".repeat(1000), 0);
        assert_eq!(log.latest(1).next().unwrap().object.len(), KEPT_NAME_BYTES);
        log.clear();
        assert_eq!(log.latest(10).len(), 0);
    }
}
