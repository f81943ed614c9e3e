//! Which group a command is for, and which node receives the requests for a group.

use crate::context::{Context, room};
use crate::groups::Group;
use crate::session::ClientId;
use cluster::keyspace::Database;
use cluster::setting::Protocol;
use kv::codec::Reader;
use kv::{Command, ValueId};
use protocol::NodeId;

/// The error for keys of several groups, which cannot be handled in one step.
pub(crate) const CROSSSLOT: &str =
    "CROSSSLOT Keys in request don't hash to the same slot (they are in several keyspaces)";

/// A client's command on its way to its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) group: u16,
    pub(crate) command: Command<'a>,
    /// Whether the answer must carry the version that it reflects.
    pub(crate) wants_version: bool,
    /// Whether only a replica whose answer cannot be stale may answer.
    pub(crate) is_fresh: bool,
}

impl<'a> Sent<'a> {
    pub(crate) fn new(group: u16, command: Command<'a>) -> Sent<'a> {
        Sent { group, command, wants_version: false, is_fresh: false }
    }
}

/// The error for a command that was given to its group by an old map, here or at the node that forwarded it.
pub(crate) const MOVED: &str = "TRYAGAIN MOVED the keyspaces have changed, and another one has this key now; nothing was done, try again";

/// How the error begins, whatever the release of the node that it comes from.
pub(crate) const MOVED_CODE: &str = "TRYAGAIN MOVED ";

impl Context {
    /// What the arguments of a client's command are parsed with.
    #[inline]
    pub(crate) fn parsed_with(&self, database: u8) -> commands::Context {
        commands::Context {
            now_ms: self.now.unix_ms,
            value_bytes_max: self.parameters.value_bytes_max(),
            stream_node_entries: self.parameters.stream_node_entries(),
            database,
            level: self.map.level.into(),
            encodings: self.parameters.encodings(),
        }
    }

    /// Draws a number that cannot be guessed without the seed; the same in every run with the same seed.
    pub(crate) fn draw(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The number of the database that a client has selected.
    #[inline]
    pub(crate) fn selected(&self, client: ClientId) -> u8 {
        self.clients.sessions.get(client).map_or(0, |session| session.database)
    }

    /// The database that a client has selected.
    #[inline]
    pub(crate) fn database_of(&self, client: ClientId) -> &Database {
        self.groups.router().database(self.selected(client))
    }

    /// The group of all keys of a client's command; `None` if they are, or may be, in several groups.
    #[inline]
    pub(crate) fn group_of(&self, client: ClientId, command: &Command<'_>) -> Option<u16> {
        self.group_in(self.database_of(client), command)
    }

    /// Whether this node's map has a command's keys in a group. True of a command without keys, and of one whose keys are in
    /// several groups. The command may have been given to the group by another map: a keyspace that was created since then
    /// may have its keys, and they would not be found in the group later.
    ///
    /// The end of a long command has no keys: they are in the parts. A replica that has not gathered all of these cannot tell.
    pub(crate) fn belongs(&self, group: u16, command: &Command<'_>) -> bool {
        let Command::LongEnd { id, .. } = command else { return self.is_in(group, command) };
        self.gathered(group, *id).is_none_or(|command| self.is_in(group, &command))
    }

    /// A long command, if this node's replica of the group has gathered all of its parts.
    pub(crate) fn gathered(&self, group: u16, id: ValueId) -> Option<Command<'_>> {
        let replica = self.groups.get(group)?.replica.as_ref()?;
        Command::decode(&mut Reader::new(replica.table().long_command(id)?)).ok()
    }

    fn is_in(&self, group: u16, command: &Command<'_>) -> bool {
        let number = self.groups.get(group).map_or(0, |group| group.keyspace.database());
        let found = self.group_in(self.groups.router().database(number), command.unbounded(&mut None));
        found.is_none_or(|found| found == group)
    }

    /// The group of all keys of a command on a database; `None` if they are, or may be, in several groups.
    #[inline]
    pub(crate) fn group_in(&self, database: &Database, command: &Command<'_>) -> Option<u16> {
        if let [only] = self.groups.ids() {
            return Some(*only);
        }
        let mut found: Option<u16> = None;
        let mut agree = true;
        command.for_each_key(|key| {
            let group = database.group_of(key);
            agree &= *found.get_or_insert(group) == group;
        });
        let looks_up = |command: &Command<'_>| match command {
            Command::Sort(sort) => sort.patterns().all(|it| database.group_of_pattern(it) == found),
            // Between MULTI and EXEC keyspaces may be created or dropped.
            Command::Script(script) if script.has_extent() => {
                script.keys().next().is_some_and(|key| database.extent_of(key).eq(script.extent()))
            }
            _ => true,
        };
        agree &= match command {
            Command::Transaction(transaction) => transaction.commands().all(|command| looks_up(&command)),
            command => looks_up(command),
        };
        found.filter(|_| agree)
    }

    /// The node to ask for a group that has no replica here: its leader. If none is known, a replica whose link is
    /// up, the next one in a ring, so that different nodes ask different replicas. This node, if the group was dropped and its members
    /// are unknown.
    pub(crate) fn coordinator_of(&self, group: u16) -> NodeId {
        let Group { keyspace, members, leader, reported_leader, refused_by, .. } = &self.groups[group];
        // When this node stands aside, others take over its leaderships; it may not know that yet.
        let is_taken_over = *leader == self.configuration.node && room::stands_aside(self, group);
        if keyspace.replication == Protocol::LeaderFollower && !is_taken_over {
            return *leader;
        }
        let leader = *reported_leader;
        if self.peers.is_up(leader) && !self.peers[leader].is_silent(self.now, self.configuration.patience) {
            return leader;
        }
        // A node that has lost its disk never knows the leader. So a node that refused is skipped until the others
        // were asked.
        let behind = if *refused_by == 0 { self.configuration.node } else { *refused_by };
        let ring = members.iter().filter(|member| **member > behind).chain(members).copied();
        let is_leaving = |member: &NodeId| self.peers.get(*member).is_some_and(|peer| peer.is_leaving());
        let serves =
            |member: &NodeId| self.map.quarantine.stands(group, *member).is_none() && !is_leaving(member);
        let mut reached = ring.filter(|member| self.peers.is_up(*member) && serves(member)).peekable();
        let first = reached.peek().copied();
        let patience = self.configuration.patience;
        let mut answering =
            reached.filter(|member| !self.peers[*member].is_silent(self.now, patience)).peekable();
        let silent = answering.peek().copied();
        // A machine that lost power leaves its link up for a while.
        let with_room = answering.find(|member| !self.peers[*member].is_short());
        with_room.or(silent).or(first).or(members.first().copied()).unwrap_or(self.configuration.node)
    }

    pub(crate) fn no_leader_known(&self, group: u16) -> String {
        let name = self.groups[group].keyspace.name();
        format!("CLUSTERDOWN NOLEADER no leader of keyspace '{name}' is known; nothing was done, try again")
    }
}
