//! Rights to databases, as in Valkey: `db=0,1`, `alldbs` and `resetdbs`.

use crate::spec::{Category, CommandSpec};
use crate::{DATABASES, Handler, KeyspaceCommand, NodeCommand, ServerCommand};
use kv::number::parse_integer;
use wire::resp::Arguments;

/// Why a modifier is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is no list of numbers.
    Syntax,
    /// There is no such database.
    OutOfRange,
}

/// A set of databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Databases(u16);

impl Databases {
    const NONE: Databases = Databases(0);
    pub(super) const ALL: Databases = Databases(u16::MAX);

    fn of(number: u8) -> Databases {
        assert!(number < DATABASES && DATABASES == 16, "each has a bit");
        Databases(1 << number)
    }

    fn and(self, other: Databases) -> Databases {
        Databases(self.0 | other.0)
    }

    pub(super) fn has(self, number: u8) -> bool {
        self.0 & Databases::of(number).0 != 0
    }

    /// The first that this set has and `allowed` has not.
    pub(super) fn beyond(self, allowed: Databases) -> Option<u8> {
        (0..DATABASES).find(|number| self.has(*number) && !allowed.has(*number))
    }

    /// Applies a modifier if it is one of databases.
    pub(super) fn apply(&mut self, modifier: &[u8]) -> Result<bool, Wrong> {
        *self = match &*modifier.to_ascii_lowercase() {
            b"alldbs" => Databases::ALL,
            b"resetdbs" => Databases::NONE,
            modifier => match modifier.strip_prefix(b"db=") {
                Some(list) => Databases::parse(list)?,
                None => return Ok(false),
            },
        };
        Ok(true)
    }

    fn parse(list: &[u8]) -> Result<Databases, Wrong> {
        list.split(|byte| *byte == b',').try_fold(Databases::NONE, |databases, number| {
            let is_number = number.iter().skip(usize::from(number.starts_with(b"-"))).all(u8::is_ascii_digit);
            if number.is_empty() || number == b"-" || !is_number {
                return Err(Wrong::Syntax);
            }
            let number = parse_integer(number).and_then(|number| u8::try_from(number).ok());
            let number = number.filter(|number| *number < DATABASES).ok_or(Wrong::OutOfRange)?;
            Ok(databases.and(Databases::of(number)))
        })
    }

    /// The modifier that makes this set.
    pub(super) fn rule(self) -> String {
        match self {
            Databases::ALL => "alldbs".into(),
            Databases::NONE => "resetdbs".into(),
            _ => {
                let numbers = (0..DATABASES).filter(|number| self.has(*number));
                format!("db={}", numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Whether a user's rule, which may be a whole selector, limits databases. Level 1 knows no such rule.
pub fn limits_databases(rule: &[u8]) -> bool {
    let words = rule.split(|byte| matches!(byte, b' ' | b'(' | b')'));
    let mut words = words.map(<[u8]>::to_ascii_lowercase);
    words.any(|word| word.starts_with(b"db=") || word == b"resetdbs" || word == b"alldbs")
}

/// The database of the keyspace with this prefix.
fn of_keyspace(prefix: &[u8]) -> Databases {
    let number =
        prefix.strip_prefix(b"@").and_then(parse_integer).and_then(|number| u8::try_from(number).ok());
    Databases::of(number.filter(|number| *number < DATABASES).unwrap_or(0))
}

/// The databases that a request of a client uses which has selected one.
pub(super) fn needed(spec: &CommandSpec, arguments: Arguments<'_>, selected: u8) -> Databases {
    // A number that is none is refused by the command itself.
    let named = |place: usize| {
        let number =
            arguments.get(place).and_then(parse_integer).and_then(|number| u8::try_from(number).ok());
        number.filter(|number| *number < DATABASES).map_or(Databases::NONE, Databases::of)
    };
    let categories = spec.categories();
    let has_data = [Category::Keyspace, Category::Read, Category::Write];
    let uses_own = spec.keys.iter().len() > 0 || has_data.iter().any(|category| categories.has(*category));
    let own = if uses_own { Databases::of(selected) } else { Databases::NONE };
    match (spec.name, spec.handler) {
        (_, Handler::Node(NodeCommand::Select)) => named(1),
        (_, Handler::Node(NodeCommand::Server(ServerCommand::SwapDatabases))) => named(1).and(named(2)),
        (_, Handler::Node(NodeCommand::Move)) => own.and(named(2)),
        ("copy", _) => {
            let is_option =
                |place: &usize| arguments.get(*place).is_some_and(|it| it.eq_ignore_ascii_case(b"DB"));
            let options = (3..arguments.len()).filter(is_option);
            options.fold(own, |needed, place| needed.and(named(place + 1)))
        }
        ("flushall", _) | (_, Handler::Node(NodeCommand::ReplicaSync)) => Databases::ALL,
        (_, Handler::Node(NodeCommand::Keyspace(command))) => match command {
            KeyspaceCommand::List | KeyspaceCommand::Get => Databases::NONE,
            _ => of_keyspace(arguments.get(2).unwrap_or_default()),
        },
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::user;
    use super::super::rules::{RuleError, User};
    use super::super::{Denial, Table, recorded, user_of_record};
    use super::*;
    use wire::resp::ArgumentsBuffer;

    fn checked(user: &User, selected: u8, request: &str) -> Result<(), Denial> {
        let words: ArgumentsBuffer = request.split(' ').map(str::as_bytes).collect();
        user.check(crate::named(words.as_arguments()).unwrap(), words.as_arguments(), selected)
    }

    #[test]
    fn rules_are_read_and_printed_as_in_valkey() {
        for (rules, printed) in [
            ("on ~* &* +@all", "user u on ~* &* +@all"),
            ("on ~* &* +@all db=0 alldbs", "user u on ~* &* +@all"),
            ("on ~* &* +@all DB=3,1,1", "user u on ~* &* db=1,3 +@all"),
            ("on +get db=0 db=2", "user u on resetchannels db=2 -@all +get"),
            (
                "on resetdbs (db=15 +get)",
                "user u on resetchannels resetdbs -@all (resetchannels db=15 -@all +get)",
            ),
        ] {
            assert_eq!(String::from_utf8(user(rules).describe()).unwrap(), printed);
            let again = printed.strip_prefix("user u ").expect("a name");
            assert_eq!(String::from_utf8(user(again).describe()).unwrap(), printed);
        }
        for (rule, error) in [
            ("db=-1", RuleError::DatabaseOutOfRange),
            ("db=16", RuleError::DatabaseOutOfRange),
            ("db=12345678987654321012345", RuleError::DatabaseOutOfRange),
            ("db=abc", RuleError::Syntax),
            ("db=", RuleError::Syntax),
            ("db=0,,1", RuleError::Syntax),
            ("db=0,", RuleError::Syntax),
        ] {
            assert_eq!(User::new(b"u").apply_all([rule.as_bytes()]).unwrap_err().1, error, "{rule}");
        }
        assert!(!user("~* &* +@all db=0").is_free() && user("~* &* +@all alldbs").is_free());
        assert!(limits_databases(b"(~a resetchannels db=1 +get)") && !limits_databases(b"~db=1"));
    }

    #[test]
    fn a_command_needs_the_right_to_each_database_that_it_uses() {
        let known = user("~* &* +@all db=0,1");
        let denied = |number| Err(Denial::Database(number));
        for (selected, request, expected) in [
            (0, "GET a", Ok(())),
            (2, "GET a", denied(2)),
            (2, "DBSIZE", denied(2)),
            (2, "EVAL s 0", denied(2)),
            (2, "PING", Ok(())),
            (2, "SELECT 1", Ok(())),
            (0, "SELECT 2", denied(2)),
            (0, "SELECT x", Ok(())),
            (0, "MOVE k 1", Ok(())),
            (0, "MOVE k 2", denied(2)),
            (2, "MOVE k 1", denied(2)),
            (0, "COPY a b DB 1 DB 2 REPLACE", denied(2)),
            (3, "COPY a b DB 1", denied(3)),
            (0, "COPY a b DB 1", Ok(())),
            (0, "FLUSHALL", denied(2)),
            (0, "FLUSHDB", Ok(())),
            (0, "PSYNC ? -1", denied(2)),
            (0, "KEYSPACE COPY @3 0", denied(3)),
            (2, "KEYSPACE WATCH a:", Ok(())),
            (2, "KEYSPACE LIST", Ok(())),
        ] {
            assert_eq!(checked(&known, selected, request), expected, "{selected}: {request}");
        }
    }

    #[test]
    fn of_several_selectors_one_must_allow_all_and_the_denial_is_that_which_came_furthest() {
        let known = user("(db=0,1 +@write +select ~write*) (db=1,2 +@read +select ~read*)");
        for (selected, request, expected) in [
            (0, "SET write a", Ok(())),
            (0, "GET read", Err(Denial::Command)),
            (1, "GET read", Ok(())),
            (1, "SET read a", Err(Denial::Key(1))),
            (2, "SET write a", Err(Denial::Command)),
            (0, "SELECT 3", Err(Denial::Command)),
        ] {
            assert_eq!(checked(&known, selected, request), expected, "{selected}: {request}");
        }
    }

    /// A script stays in one database, so its record has only what its caller may do there.
    #[test]
    fn a_record_has_the_rights_of_one_database() {
        let known = user("~* +get db=1 (db=0,2 ~* +set)");
        for (database, get, set) in [(0, false, true), (1, true, false), (2, false, true), (3, false, false)]
        {
            let text = recorded(&known, Table::Present, database);
            assert!(!limits_databases(&text), "{}", String::from_utf8_lossy(&text));
            let read = user_of_record(&text);
            let may = |request| checked(&read, 9, request).is_ok();
            assert_eq!((may("GET k"), may("SET k v")), (get, set), "{database}");
        }
    }
}
