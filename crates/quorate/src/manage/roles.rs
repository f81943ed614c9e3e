//! Roles of users: what each of this program's tools, and what an application needs, as rules of Redis's ACL.

use clap::ValueEnum;

/// What a user is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum UserRole {
    /// Sees how the cluster stands, and no data: status, top, the page, metrics, `keyspace list`, `node list`, `lock list`
    Monitor,
    /// Reads everything, and changes nothing: backup (of which it tells the cluster), export, and all that a monitor does
    Backup,
    /// May do everything: changes keyspaces, nodes and users, imports, restores
    Operator,
    /// Reads and writes the keys that the rules after it name, as '~shop:*', and changes nothing of the cluster
    Application,
}

/// Clients say hello and name themselves as any user.
const MONITOR: &[&str] = &[
    "+ping",
    "+hello",
    "+client|setname",
    "+client|setinfo",
    "+info",
    "+cluster|map",
    "+cluster|report",
    "+cluster|ask",
    "+cluster|nodes",
    "+cluster|events",
    "+cluster|history",
    "+keyspace|list",
    "+keyspace|get",
    "+slowlog|get",
    "+slowlog|len",
    "+commandlog|get",
    "+commandlog|len",
    "+latency|histogram",
    "+latency|latest",
    "+lock.list",
];

const BACKUP: &[&str] = &[
    "%R~*",
    "+select",
    "+time",
    "+acl|list",
    "+function|dump",
    "+cluster|backup",
    "+keyspace|copy",
    "+keyspace|changes",
    "+scan",
    "+dbsize",
    "+dump",
    "+get",
    "+pexpiretime",
];

impl UserRole {
    /// The rules that give a user this role and nothing else.
    pub(super) fn rules(self) -> Vec<String> {
        let rules = match self {
            UserRole::Monitor => MONITOR.to_vec(),
            UserRole::Backup => [MONITOR, BACKUP].concat(),
            UserRole::Operator => vec!["~*", "&*", "+@all"],
            UserRole::Application => vec!["+@all", "-@cluster", "-@dangerous", "-function"],
        };
        ["resetkeys", "resetchannels", "nocommands"].into_iter().chain(rules).map(str::to_owned).collect()
    }

    /// Whether the rules beside it have to name keys.
    pub(super) fn needs_keys(self) -> bool {
        self == UserRole::Application
    }
}
