//! Whether a user may run a command with its arguments, on its keys and channels.

use super::databases::{self, Databases};
use super::log::Reason;
use super::rules::{KeyPattern, Selector, Table, User};
use crate::introspection::for_each_key;
use crate::listening::Listening;
use crate::release_1;
use crate::spec::{KeyFlag, KeyFlags};
use crate::{ChannelCommand, CommandSpec, Flag, Found, Handler, KeyspaceCommand, NodeCommand};
use wire::resp::Arguments;

/// The beginning of the error of a command in a script that the script's caller may not run.
pub const DENIED_IN_SCRIPT: &str = "NOPERM The user executing the script can't";

const SORT_BY: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const SORT_GET: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";

/// What a user lacks for a command. Of several selectors, the one whose check came furthest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// Permission for the database with this number.
    Database(u8),
    /// Permission for the command.
    Command,
    /// The key at this place, counted from the command's name.
    Key(usize),
    /// `SORT … BY` reads keys that no rule can be compared with.
    SortBy,
    /// So does `SORT … GET`.
    SortGet,
    /// The channel at this place.
    Channel(usize),
}

impl User {
    /// Checks a whole request of a client that has selected a database.
    ///
    /// # Errors
    /// What the user lacks.
    #[inline]
    pub fn check(&self, found: Found, arguments: Arguments<'_>, database: u8) -> Result<(), Denial> {
        // Even clients without a user may run these.
        if found.spec.flags.has(Flag::NoAuth) {
            return Ok(());
        }
        let mut lacks = Denial::Database(0);
        for selector in &self.selectors {
            match selector.check(found, arguments, database) {
                Ok(()) => return Ok(()),
                Err(denial) => lacks = lacks.max(denial),
            }
        }
        Err(lacks)
    }

    /// Whether it may run a command, whatever the arguments and the database.
    pub fn may_call(&self, number: usize) -> bool {
        self.selectors.iter().any(|selector| selector.allows(number))
    }

    /// Whether it may run a command in a database, whatever the arguments.
    pub fn may_call_in(&self, database: u8, number: usize) -> bool {
        self.selectors.iter().any(|selector| selector.allows(number) && selector.databases.has(database))
    }

    /// Whether some selector allows this command in a database, and allows it to read or write this key.
    pub fn may_call_on(&self, database: u8, number: usize, key: &[u8], writes: bool) -> bool {
        let access = match writes {
            true => KeyFlags::of(&[KeyFlag::Access, KeyFlag::Update]),
            false => KeyFlags::of(&[KeyFlag::Access]),
        };
        let may_use = |it: &Selector| it.all_keys || it.may_use(key, access);
        self.selectors.iter().any(|it| it.databases.has(database) && it.allows(number) && may_use(it))
    }

    /// Whether it may listen to a channel, or to the channels of a pattern.
    pub fn may_listen_to(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|it| it.all_channels || it.may_listen_to(channel, is_pattern))
    }
}

impl Selector {
    #[inline]
    fn check(&self, found: Found, arguments: Arguments<'_>, database: u8) -> Result<(), Denial> {
        let spec = found.spec;
        if self.databases != Databases::ALL
            && let Some(denied) = databases::needed(spec, arguments, database).beyond(self.databases)
        {
            return Err(Denial::Database(denied));
        }
        if !self.allows(found.number) && !self.allows_first(found.number, arguments) {
            return Err(Denial::Command);
        }
        if !self.all_keys {
            self.check_keys(spec, arguments)?;
        }
        if !self.all_channels
            && let Handler::Node(NodeCommand::Channel(command)) = spec.handler
        {
            self.check_channels(command, arguments)?;
        }
        Ok(())
    }

    fn allows_first(&self, number: usize, arguments: Arguments<'_>) -> bool {
        let (Some(known), Some(given)) = (self.first_arguments.get(&number), arguments.get(1)) else {
            return false;
        };
        known.iter().any(|known| known.eq_ignore_ascii_case(given))
    }

    fn check_keys(&self, spec: &CommandSpec, arguments: Arguments<'_>) -> Result<(), Denial> {
        let argument = |place| arguments.get(place).unwrap_or_default();
        let mut denied = None;
        let each = |place, access| {
            if denied.is_none() && !self.may_use(argument(place), access) {
                denied = Some(Denial::Key(place));
            }
        };
        let known = match self.table {
            Table::Present => for_each_key(spec, arguments, each),
            Table::Release1 => release_1::for_each_key(spec, arguments, each),
        };
        // If the arguments do not show which of them are keys, no key is known to be allowed.
        if denied.is_none() && known.is_err() {
            denied = Some(Denial::Key(0));
        }
        if let Some(denied) = denied {
            return Err(denied);
        }
        match (spec.name, spec.handler) {
            ("sort" | "sort_ro", _) if !self.may_read_all() => check_sort(arguments),
            // The whole keyspace is read.
            (
                _,
                Handler::Node(NodeCommand::Keyspace(
                    KeyspaceCommand::Watch | KeyspaceCommand::Changes | KeyspaceCommand::Copy,
                )),
            ) => match self.may_read_prefix(argument(2)) {
                true => Ok(()),
                false => Err(Denial::Key(2)),
            },
            (_, Handler::Node(NodeCommand::ReplicaSync)) if !self.may_read_all() => Err(Denial::Key(0)),
            _ => Ok(()),
        }
    }

    fn may_use(&self, key: &[u8], access: KeyFlags) -> bool {
        let reads = access.has(KeyFlag::Access);
        let writes = [KeyFlag::Insert, KeyFlag::Delete, KeyFlag::Update].iter().any(|flag| access.has(*flag));
        let fits = |pattern: &KeyPattern| {
            (pattern.reads || !reads) && (pattern.writes || !writes) && pattern.named.matches(key)
        };
        self.keys.iter().any(fits)
    }

    fn may_read_all(&self) -> bool {
        self.may_read_prefix(b"")
    }

    fn may_read_prefix(&self, prefix: &[u8]) -> bool {
        self.all_keys || self.keys.iter().any(|pattern| pattern.reads && pattern.named.covers_prefix(prefix))
    }

    fn check_channels(&self, command: ChannelCommand, arguments: Arguments<'_>) -> Result<(), Denial> {
        let (places, is_pattern) = match command {
            ChannelCommand::Subscribe(kind) => (1..arguments.len(), kind == Listening::Pattern),
            ChannelCommand::Publish { .. } => (1..2, false),
            _ => return Ok(()),
        };
        let mut places = places.into_iter();
        let denied =
            places.find(|place| !self.may_listen_to(arguments.get(*place).unwrap_or_default(), is_pattern));
        denied.map_or(Ok(()), |place| Err(Denial::Channel(place)))
    }

    /// A pattern must be allowed literally, since in general it is not known which channels it matches.
    fn may_listen_to(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.channels.iter().any(|known| match is_pattern {
            true => known.text == channel,
            false => known.matches(channel),
        })
    }
}

/// `BY` with a star and `GET` of anything but the element itself read other keys.
fn check_sort(arguments: Arguments<'_>) -> Result<(), Denial> {
    let behind = |word: &[u8], reads: &dyn Fn(&[u8]) -> bool| {
        let is_word = |place: usize| arguments.get(place).is_some_and(|it| it.eq_ignore_ascii_case(word));
        (2..arguments.len()).any(|place| is_word(place) && arguments.get(place + 1).is_some_and(reads))
    };
    if behind(b"BY", &|pattern| pattern.contains(&b'*')) {
        return Err(Denial::SortBy);
    }
    if behind(b"GET", &|pattern| pattern != b"#") {
        return Err(Denial::SortGet);
    }
    Ok(())
}

impl Denial {
    /// The reply of `ACL DRYRUN`: Redis's text, which names what is denied.
    pub fn named(self, user: &[u8], spec: &CommandSpec, arguments: Arguments<'_>) -> String {
        let user = String::from_utf8_lossy(user);
        let denied =
            |place: usize| String::from_utf8_lossy(arguments.get(place).unwrap_or_default()).into_owned();
        match self {
            Denial::Database(number) => format!("User {user} has no permissions to access database {number}"),
            Denial::Command => format!("User {user} has no permissions to run the '{}' command", spec.name),
            Denial::Key(place) => {
                format!("User {user} has no permissions to access the '{}' key", denied(place))
            }
            Denial::Channel(place) => {
                format!("User {user} has no permissions to access the '{}' channel", denied(place))
            }
            Denial::SortBy => SORT_BY.trim_start_matches("ERR ").into(),
            Denial::SortGet => SORT_GET.trim_start_matches("ERR ").into(),
        }
    }

    /// The error that a script gets, with what is denied after the last colon: see [`Denial::of_script`].
    pub fn in_script(self, spec: &CommandSpec, arguments: Arguments<'_>) -> String {
        let (what, denied): (&str, &[u8]) = match self {
            // A script's record has what its caller may do in the script's database.
            Denial::Database(_) | Denial::Command => ("run this command or subcommand", spec.name.as_bytes()),
            Denial::Key(place) => (
                "access at least one of the keys mentioned in the command arguments",
                arguments.get(place).unwrap_or_default(),
            ),
            Denial::SortBy => ("read the keys that BY names", b"BY"),
            Denial::SortGet => ("read the keys that GET names", b"GET"),
            Denial::Channel(place) => {
                ("publish to the channel mentioned in the command", arguments.get(place).unwrap_or_default())
            }
        };
        format!("{DENIED_IN_SCRIPT} {what}: '{}'", crate::printable(denied))
    }

    /// The reason and the object of an error of [`Denial::in_script`].
    pub fn of_script(error: &str) -> (Reason, &str) {
        let denied = error.split_once(": '").and_then(|(_, rest)| rest.split_once('\''));
        let object = denied.map_or("", |(denied, _)| denied);
        let reason = if error.contains("run this command") {
            Reason::Command
        } else if error.contains("publish to the channel") {
            Reason::Channel
        } else {
            Reason::Key
        };
        (reason, object)
    }

    /// The whole error for a client that is this user.
    pub fn error(self, user: &[u8], spec: &CommandSpec) -> String {
        match self {
            Denial::Database(number) => format!("NOPERM No permissions to access database {number}"),
            Denial::Command => {
                let user = String::from_utf8_lossy(user);
                format!("NOPERM User {user} has no permissions to run the '{}' command", spec.name)
            }
            Denial::Key(_) => "NOPERM No permissions to access a key".into(),
            Denial::Channel(_) => "NOPERM No permissions to access a channel".into(),
            Denial::SortBy => SORT_BY.into(),
            Denial::SortGet => SORT_GET.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::merged;
    use super::*;
    use wire::resp::ArgumentsBuffer;

    fn checked(rules: &str, request: &str) -> Result<(), Denial> {
        let mut user = User::new(b"u");
        let modifiers = merged(rules.split(' ').map(str::as_bytes)).unwrap();
        user.apply_all(modifiers.iter().map(Vec::as_slice)).unwrap();
        let words: ArgumentsBuffer = request.split(' ').map(str::as_bytes).collect();
        user.check(crate::named(words.as_arguments()).unwrap(), words.as_arguments(), 0)
    }

    #[test]
    fn commands_subcommands_and_first_arguments() {
        let denied = Err(Denial::Command);
        for (rules, request, expected) in [
            ("+get ~*", "GET a", Ok(())),
            ("+get ~*", "SET a b", denied),
            ("+@all -config", "CONFIG GET x", denied),
            ("+@all -config +config|get", "CONFIG GET x", Ok(())),
            ("+@all -config +config|get", "CONFIG SET x y", denied),
            ("+config", "CONFIG SET x y", Ok(())),
            ("+config|get", "CONFIG", denied),
            ("+select|0", "SELECT 0", Ok(())),
            ("+select|0", "SELECT 1", denied),
            ("+select|0 -select", "SELECT 0", denied),
            ("+@read ~*", "GET a", Ok(())),
            ("+@read ~*", "SET a b", denied),
            ("+@all -@cluster", "KEYSPACE CREATE a", denied),
            ("+@all -@cluster", "KEYSPACE LIST", Ok(())),
            ("+@all -@cluster", "CLUSTER REMOVE 1", denied),
            ("+@all -@cluster", "ACL SETUSER a", denied),
            ("+@all -@cluster", "ACL WHOAMI", Ok(())),
            ("-@all", "AUTH a b", Ok(())),
            ("-@all", "QUIT", Ok(())),
            ("-@all", "PING", denied),
        ] {
            assert_eq!(checked(rules, request), expected, "{rules}: {request}");
        }
    }

    #[test]
    fn keys_are_compared_with_patterns_for_reading_and_writing() {
        let denied = |place| Err(Denial::Key(place));
        for (rules, request, expected) in [
            ("~a* +@all", "GET ab", Ok(())),
            ("~a* +@all", "GET b", denied(1)),
            ("~a* +@all", "MGET ab b ac", denied(2)),
            ("%R~a +@all", "GET a", Ok(())),
            ("%R~a +@all", "SET a 1", denied(1)),
            ("%W~a +@all", "SET a 1", Ok(())),
            ("%W~a +@all", "SET a 1 GET", denied(1)),
            // A user without the right to read learns no value, not even by guessing; the right to read alone is enough for reads.
            ("%W~* +@all", "GEORADIUS g 13 38 200 km WITHCOORD", denied(1)),
            ("%W~* +@all", "GEORADIUSBYMEMBER g m 200 km", denied(1)),
            ("%R~* +@all", "GEORADIUS g 13 38 200 km", Ok(())),
            ("%R~* +@all", "GEORADIUSBYMEMBER g STORE 200 km", Ok(())),
            ("%R~g %W~d +@all", "GEORADIUS g 13 38 200 km STORE d STOREDIST e", denied(9)),
            ("%R~g %W~d +@all", "GEORADIUSBYMEMBER g m 200 km STOREDIST d", Ok(())),
            ("%R~* +@all", "GEORADIUSBYMEMBER g m 200 km STOREDIST d", denied(6)),
            ("%W~* +@all", "XCLAIM s g c 0 1-1", denied(1)),
            ("%W~* +@all", "XAUTOCLAIM s g c 0 0", denied(1)),
            ("%W~* +@all", "XACK s g 1-1", Ok(())),
            ("%R~* +@all", "XACK s g 1-1", denied(1)),
            ("%W~* +@all", "PFCOUNT p", denied(1)),
            ("%R~* +@all", "PFCOUNT p", Ok(())),
            ("%W~* +@all", "PFMERGE p", denied(1)),
            ("%W~* +@all", "DELIFEQ k guess", denied(1)),
            ("%W~* +@all", "DELEX k", Ok(())),
            ("%W~* +@all", "DELEX k IFEQ guess", denied(1)),
            ("%W~* +@all", "DELEX k ifdne 0123456789abcdef", denied(1)),
            ("%R~* +@all", "DELEX k IFEQ guess", denied(1)),
            ("%W~* +@all", "SET k v IFEQ guess", denied(1)),
            ("%W~* +@all", "SET k v IFNE guess", denied(1)),
            ("%W~* +@all", "SET k v IFDEQ 0123456789abcdef", denied(1)),
            ("%W~* +@all", "SET k v NX", Ok(())),
            ("%W~* +@all", "ZADD z 1 m", Ok(())),
            ("%W~* +@all", "ZADD z INCR 1 m", denied(1)),
            ("%W~* +@all", "ZADD z GT 1 m", Ok(())),
            ("%W~* +@all", "ZADD z GT CH 1 m", denied(1)),
            ("%W~* +@all", "BITFIELD b SET u8 0 1", denied(1)),
            ("%R~* +@all", "XREADGROUP GROUP g c STREAMS s >", Ok(())),
            ("+@read ~*", "EVAL_RO s 0", Err(Denial::Command)),
            ("+@read ~*", "EVALSHA_RO s 0", Err(Denial::Command)),
            ("+@read ~*", "FCALL_RO f 0", Err(Denial::Command)),
            ("+@scripting ~*", "FCALL_RO f 0", Ok(())),
            ("%W~a +@all", "EVAL_RO s 1 a", denied(3)),
            ("%W~a +@all", "STRLEN a", Ok(())),
            ("%W~a %R~b +@all", "COPY b a", Ok(())),
            ("%W~a %R~b +@all", "COPY a b", denied(1)),
            ("%R~[ab]? +@all", "GET bx", Ok(())),
            ("~a +@all", "EVAL s 1 b", denied(3)),
            ("~a +@all", "EVAL s 1 a b", Ok(())),
            // These are not scripts, and run nothing.
            ("~a +@all", "EVAL s x a", Ok(())),
            ("~a +@all", "EVAL s 3 a", Ok(())),
            ("%R~a +@all", "EVAL_RO s 1 a", Ok(())),
            ("%R~a +@all", "BITFIELD a GET u4 0", Ok(())),
            ("%R~a +@all", "BITFIELD a OVERFLOW SAT GET u4 0 GET u4 1", Ok(())),
            ("%R~a +@all", "BITFIELD a", Ok(())),
            ("%R~a +@all", "BITFIELD a GET u4 0 SET u4 0 1", denied(1)),
            ("%R~a +@all", "BITFIELD a l2 s3 p2", denied(1)),
            ("%R~a +@all", "BITFIELD a GET u4", denied(1)),
            ("~a +@all", "XREAD STREAMS a b 0 0", denied(3)),
            ("~a +@all", "ZUNIONSTORE a 1 b", denied(3)),
            ("~a +@all", "LMPOP 1 b LEFT", denied(2)),
            ("~a +@all", "LMPOP x b LEFT", denied(0)),
            ("~a ~LIMIT +@all", "SORT a STORE secret BY store LIMIT 0 1", denied(3)),
            ("~a +@all", "SORT a BY x_*", Err(Denial::SortBy)),
            ("~a +@all", "SORT a BY nosort GET #", Ok(())),
            ("~a +@all", "SORT a GET x_*", Err(Denial::SortGet)),
            ("%R~* +@all", "SORT a GET x_*", Ok(())),
            ("~a +@all", "LOCK b me PX 10", denied(1)),
            ("~a +@all", "LOCK.SESSION OPEN b PX 10", denied(2)),
            ("~a +@all", "SET a 1 FENCE lock 7", denied(4)),
            ("~a ~lock +@all", "SET a 1 FENCE lock 7", Ok(())),
            ("~a +@all", "KEYS *", Ok(())),
            ("~a +@all", "SCAN 0", Ok(())),
            ("~a* +@all", "KEYSPACE WATCH b:", denied(2)),
            ("~a* +@all", "KEYSPACE WATCH ab:", Ok(())),
            ("%W~a* +@all", "KEYSPACE WATCH ab:", denied(2)),
            ("~a* +@all", "PSYNC ? -1", denied(0)),
            ("%R~* +@all", "PSYNC ? -1", Ok(())),
        ] {
            assert_eq!(checked(rules, request), expected, "{rules}: {request}");
        }
    }

    /// Replicas of release 1 run the same records, so all replicas read their callers' rights as those do.
    #[test]
    fn the_rights_of_a_script_that_release_1_has_ordered_are_read_as_there() {
        let checked = |record: &str, request: &str| {
            let user = super::super::user_of_record(record.as_bytes());
            let words: ArgumentsBuffer = request.split(' ').map(str::as_bytes).collect();
            user.check(crate::named(words.as_arguments()).unwrap(), words.as_arguments(), 0)
        };
        let (writes, reads) = ("%W~*\n+@all", "%R~*\n+@all\n-@admin");
        let denied = |place| Err(Denial::Key(place));
        for (rules, request, first, present) in [
            (writes, "GEORADIUS g 13 38 200 km", Ok(()), denied(1)),
            (reads, "GEORADIUS g 13 38 200 km", denied(1), Ok(())),
            (reads, "SORT l STOREDIST x", denied(3), Ok(())),
            (writes, "XACK s g 1-1", denied(1), Ok(())),
            (writes, "XCLAIM s g c 0 1-1", Ok(()), denied(1)),
            (writes, "ZADD z INCR 1 m", Ok(()), denied(1)),
            (writes, "PFMERGE p", Ok(()), denied(1)),
            (writes, "DELIFEQ k v", Ok(()), denied(1)),
            (writes, "DELEX k IFEQ v", Ok(()), denied(1)),
            (writes, "DELEX k IFEQ GET", denied(1), denied(1)),
            (writes, "SET k v IFEQ v", Ok(()), denied(1)),
            (writes, "SET k FENCE v", denied(3), Ok(())),
            (writes, "SET k v", Ok(()), Ok(())),
            (reads, "LASTSAVE", Ok(()), Err(Denial::Command)),
        ] {
            assert_eq!(checked(&format!("u\n{rules}"), request), first, "release 1, {rules}: {request}");
            assert_eq!(checked(&format!("u\ntable 2\n{rules}"), request), present, "{rules}: {request}");
        }
        assert_eq!(checked("u\ntable 3\n+@all\n~*", "GET k"), Err(Denial::Command));
    }

    #[test]
    fn channels_are_compared_with_patterns() {
        let denied = |place| Err(Denial::Channel(place));
        for (rules, request, expected) in [
            ("&a* +@all", "PUBLISH ab x", Ok(())),
            ("&a* +@all", "PUBLISH b x", denied(1)),
            ("&a* +@all", "SPUBLISH b x", denied(1)),
            ("&a* +@all", "SUBSCRIBE a b", denied(2)),
            ("&a* +@all", "SSUBSCRIBE b", denied(1)),
            ("&a* +@all", "PSUBSCRIBE ab", denied(1)),
            ("&a* +@all", "PSUBSCRIBE a*", Ok(())),
            ("+@all", "UNSUBSCRIBE x", Ok(())),
            ("&* +@all", "PSUBSCRIBE *", Ok(())),
        ] {
            assert_eq!(checked(rules, request), expected, "{rules}: {request}");
        }
    }

    #[test]
    fn errors_are_those_of_redis_and_name_what_is_denied() {
        let words: ArgumentsBuffer = [&b"GET"[..], b"k'1"].into_iter().collect();
        let words = words.as_arguments();
        let get = crate::find(words).unwrap().spec;
        assert_eq!(
            Denial::Command.error(b"u", get),
            "NOPERM User u has no permissions to run the 'get' command"
        );
        assert_eq!(Denial::Key(1).error(b"u", get), "NOPERM No permissions to access a key");
        assert_eq!(
            Denial::SortBy.error(b"u", get),
            "ERR BY option of SORT denied due to insufficient ACL permissions."
        );
        assert_eq!(
            Denial::Key(1).named(b"u", get, words),
            "User u has no permissions to access the 'k'1' key"
        );
        let error = Denial::Command.in_script(get, words);
        assert_eq!(error, "NOPERM The user executing the script can't run this command or subcommand: 'get'");
        assert_eq!(Denial::of_script(&error), (Reason::Command, "get"));
        let error = Denial::Channel(1).in_script(get, words);
        assert_eq!(Denial::of_script(&error).0, Reason::Channel);
        assert_eq!(Denial::of_script(&Denial::SortBy.in_script(get, words)), (Reason::Key, "BY"));
    }

    #[test]
    fn one_selector_has_to_allow_all_of_a_command() {
        let rules = "+get ~a (+set ~b) (+publish &c)";
        assert_eq!(checked(rules, "GET a"), Ok(()));
        assert_eq!(checked(rules, "SET b 1"), Ok(()));
        assert_eq!(checked(rules, "SET a 1"), Err(Denial::Key(1)));
        assert_eq!(checked(rules, "DEL a"), Err(Denial::Command));
        assert_eq!(checked(rules, "PUBLISH d x"), Err(Denial::Channel(1)));
    }
}
