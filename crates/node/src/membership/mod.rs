//! This node's part in the cluster: the control component with its records in the node's log, and the changes of the
//! map that clients and replicas of this node request.

pub(crate) mod clock;
mod floors;
pub(crate) mod handovers;

use crate::context::{Call, Confirmation, Context, peers, status};
use crate::diagnostics::log::{Level, Line};
use crate::disk::journal::{Released, Tail};
use crate::session::ClientId;
use cluster::control::{
    CONTROL_GROUP, Change, ChangeError, Control, Effects, Event, Group, GroupId, MAP_GROUP,
};
use cluster::keyspace::Keyspace;
use cluster::libraries::Step as LibrariesStep;
use cluster::words::one_line;
use commands::Text;
use commands::users::Step as UsersStep;
use floors::Floors;
use kv::codec::Malformed;
use protocol::leader_follower::Durability;
use protocol::vouch::Vouch;
use protocol::{ControlRequest, NodeId, Now, Progress, Recipient, Result as Outcome, Ticket};
use std::rc::Rc;

/// A client that waits for a change of the map.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    request: u64,
    ticket: Ticket,
    /// The version of the map that has the change, once that is known. The client is answered when this node has that
    /// version, too.
    version: Option<u64>,
    /// The keyspace that the change creates, or has go on: the client is answered when the keyspace serves, or has had some time
    /// to.
    creates: Option<String>,
    /// The groups that lose keys to it, from when on this node has its map.
    floors: Option<Floors>,
    /// Whether the change takes keys from other keyspaces.
    takes_keys: bool,
    /// The keyspace that the change drops, if this node knew of it.
    drops: Option<String>,
    answer: Confirmation,
    /// The text for the audit log once the change is made.
    audit: Option<String>,
    until_us: u64,
}

impl Wanted {
    /// The error when the change is in this node's map, and too few nodes have confirmed that they have it.
    fn not_noted(&self, cx: &Context) -> Option<String> {
        let name =
            |prefix: &str| if prefix.is_empty() { "default".into() } else { one_line(prefix).into_owned() };
        let is_there = |prefix: &&String| cx.map.keyspaces.contains_key(*prefix);
        if let Some(prefix) = self.creates.as_ref().filter(is_there).filter(|_| self.takes_keys) {
            return Some(format!(
                "UNKNOWN keyspace '{}' is made, but too few of the nodes that had its keys have taken note of it in time, and the \
                 others may still take writes of them: create the keyspace again, until that succeeds, before you use it",
                name(prefix)
            ));
        }
        let prefix = self.drops.as_ref().filter(|prefix| !is_there(prefix))?;
        Some(format!(
            "UNKNOWN keyspace '{}' is dropped, but too few of the nodes that held it have taken note of that in time, and the others \
             may still answer for its keys, of which nothing is kept: before you use these keys, start the nodes that are down, or have \
             them reach the control nodes",
            name(prefix)
        ))
    }
}

/// This node's part in the cluster.
pub(crate) struct Cluster {
    control: Control,
    /// Empty; `None` while its contents are settled. In a box, since it is handed on for each message.
    effects: Option<Box<Effects>>,
    /// The state of the control component's records in the log.
    tail: Tail,
    /// Whether the control component was given any input in this turn.
    is_due: bool,
    wakeup_us: u64,
    /// The newest record of the map, and of positions.
    map_record: Vec<u8>,
    positions_record: Vec<u8>,
    /// The state of both records in the log.
    map_tail: Tail,
    /// The number of the record of this start's admission.
    admission_record: u64,
    /// Whether this node was removed from the cluster.
    is_removed: bool,
    /// Clients that wait for changes of the map, and how many changes this node has requested so far.
    wanted: Vec<Wanted>,
    requests: u64,
    /// The requests that create databases, each with its database.
    creating: Vec<(u64, u8)>,
}

impl Cluster {
    /// The control component after it has read its log, and the newest records of the map and of positions there.
    pub(crate) fn new(control: Control, map_record: Vec<u8>, positions_record: Vec<u8>) -> Cluster {
        Cluster {
            control,
            effects: None,
            tail: Tail::new(Durability::Fsync),
            is_due: true,
            wakeup_us: 0,
            map_record,
            positions_record,
            map_tail: Tail::new(Durability::Fsync),
            admission_record: u64::MAX,
            is_removed: false,
            wanted: Vec::new(),
            requests: 0,
            creating: Vec::new(),
        }
    }

    /// The control component.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Begins a checkpoint of the control group; false if there is nothing to write.
    pub(crate) fn begin_checkpoint(&mut self) -> bool {
        self.control.begin_checkpoint()
    }

    /// Writes the next record of the control group's checkpoint.
    pub(crate) fn checkpoint_record(&mut self, bytes: usize, out: &mut Vec<u8>) -> Progress {
        self.control.checkpoint_record(bytes, out)
    }

    /// Gives up the control group's checkpoint.
    pub(crate) fn abandon_checkpoint(&mut self) {
        self.control.abandon_checkpoint();
    }

    /// When the control component wants its next tick, in microseconds of the monotonic clock.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.wakeup_us
    }

    /// Whether this node was removed from the cluster while this process ran.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// The newest record of the map.
    pub(crate) fn map_record(&self) -> &[u8] {
        &self.map_record
    }

    /// The newest record of positions.
    pub(crate) fn positions_record(&self) -> &[u8] {
        &self.positions_record
    }

    /// Begins to take part in the control group's work.
    pub(crate) fn start(&mut self, cx: &mut Context) {
        let mut effects = self.effects.take().unwrap_or_default();
        self.control.start(cx.now, cx.journal.durable(), &mut effects);
        self.settle(cx, effects);
    }

    /// Gives an input to the control component, which then ends its turn with this one.
    fn input(&mut self, cx: &mut Context, input: impl FnOnce(&mut Control, Now, &mut Effects)) {
        let mut effects = self.effects.take().unwrap_or_default();
        input(&mut self.control, cx.now, &mut effects);
        self.is_due = true;
        self.settle(cx, effects);
    }

    /// Runs what is due in the control component.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        if self.wakeup_us <= cx.now.monotonic_us {
            self.input(cx, |control, now, effects| control.tick(now, effects));
        }
    }

    /// Takes a message of the control group.
    ///
    /// # Errors
    /// [`Malformed`] when it is not such a message.
    pub(crate) fn message(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        message: &[u8],
    ) -> Result<(), Malformed> {
        let mut read = Ok(());
        self.input(cx, |control, now, effects| read = control.message(now, from, message, effects));
        read
    }

    /// Another node has proved that the cluster was recovered without this one.
    pub(crate) fn left_behind(&mut self, cx: &mut Context, why: &str) {
        self.input(cx, |control, _, effects| control.left_behind(why, effects));
    }

    /// A link came up or broke. Messages that were held for the peer are useless now.
    pub(crate) fn link(&mut self, cx: &mut Context, id: NodeId, up: bool) {
        self.tail.drop_held(id);
        self.input(cx, |control, now, effects| control.link(now, id, up, effects));
    }

    /// Another node vouches for itself: it is alive and busy.
    pub(crate) fn vouched(&mut self, id: NodeId, vouch: Vouch) {
        self.control.vouched(id, vouch);
    }

    /// Has the control group led by another node, if this node leads it. Returns whether that is under way.
    pub(crate) fn hand_over(&mut self, cx: &mut Context, to: NodeId) -> bool {
        let mut is_under_way = false;
        self.input(cx, |control, now, _| is_under_way = control.hand_over(now, to));
        is_under_way
    }

    /// Records may have become durable: sends the messages that waited for them.
    pub(crate) fn notify_durable(&mut self, cx: &mut Context) {
        if let Some(record) = cx.journal.news(&mut self.tail) {
            while let Some(Released { to, bytes, .. }) = self.tail.release() {
                peers::send(cx, CONTROL_GROUP, to, [&bytes, &[]]);
            }
            self.input(cx, |control, now, effects| control.durable(now, record, effects));
        }
        cx.journal.news(&mut self.map_tail);
    }

    /// Ends the control component's turn, if it took part in this one.
    pub(crate) fn flush(&mut self, cx: &mut Context) {
        if std::mem::take(&mut self.is_due) {
            let mut effects = self.effects.take().unwrap_or_default();
            if cx.admission.is_admitted() && self.map_tail.may_leave(self.admission_record) {
                self.control.log_is_durable(cx.journal.durable());
            }
            self.control.flush(cx.now, &mut effects);
            self.settle(cx, effects);
            self.wakeup_us = self.control.wakeup_us(cx.now);
        }
    }

    /// Carries out the effects that the control component has left.
    fn settle(&mut self, cx: &mut Context, mut effects: Box<Effects>) {
        // First, since the end of the log in this record is from before this start had appended anything.
        if let Some(record) = effects.positions_record.take() {
            self.positions_record = effects.bytes[record].to_vec();
            cx.journal.append(MAP_GROUP, &mut self.map_tail, [&self.positions_record, &[]]);
            if effects.is_admitted {
                self.admission_record = self.map_tail.recorded();
            }
        }
        for record in effects.records.drain(..) {
            cx.journal.append(CONTROL_GROUP, &mut self.tail, [&effects.bytes[record], &[]]);
        }
        for message in effects.messages.drain(..) {
            let parts = message.bytes.parts(&effects.bytes);
            if self.tail.may_leave(message.after_record) {
                peers::send(cx, CONTROL_GROUP, message.to, parts);
            } else {
                self.tail.hold(message.after_record, message.to, Recipient::Replica, parts);
            }
        }
        if let Some(record) = effects.map_record.take() {
            self.map_record = effects.bytes[record].to_vec();
            cx.journal.append(MAP_GROUP, &mut self.map_tail, [&self.map_record, &[]]);
        }
        let map = effects.map.take();
        let is_admitted = std::mem::take(&mut effects.is_admitted);
        let lease = effects.lease_until_us.take();
        for answer in effects.answers.drain(..) {
            self.answered(cx, answer.request, answer.result);
        }
        for event in effects.events.drain(..) {
            cx.log.push(describe(&event));
        }
        for event in effects.trace.drain(..) {
            cx.log.extend(crate::diagnostics::log::describe("control", &event));
        }
        let is_refused = effects.refused.is_some();
        self.is_removed |= effects.is_removed;
        effects.clear();
        self.effects = Some(effects);
        if is_admitted {
            cx.admission.begin(cx.now.monotonic_us);
        }
        if is_refused {
            // Another start of this node was admitted, or it lost its storage: it must not take part in anything.
            cx.admission.end(self.control.refusal());
            cx.call(Call::RetireAll);
        }
        if map.is_some() || is_admitted {
            cx.call(Call::FollowMap(map.unwrap_or_else(|| Rc::clone(self.control.map()))));
        }
        if let Some(until_us) = lease {
            cx.admission.extend_lease(until_us);
            cx.call(Call::ExtendLease { until_us });
        }
    }

    // Changes.

    /// Requests a change from the control group.
    pub(crate) fn change(&mut self, cx: &mut Context, change: &Change) {
        self.requests += 1;
        let request = self.requests;
        self.input(cx, |control, now, effects| control.change(now, request, change, effects));
    }

    /// Requests the keyspace of a database from the control group.
    pub(crate) fn create_database(&mut self, cx: &mut Context, number: u8, keyspace: Keyspace) {
        self.creating.push((self.requests + 1, number));
        self.change(cx, &Change::CreateKeyspace(keyspace));
    }

    /// Requests a change from the control group that a leader's replica needs.
    pub(crate) fn request(&mut self, cx: &mut Context, group: u16, request: ControlRequest) {
        let change = match request {
            ControlRequest::InSync { epoch, in_sync } => {
                let revision = cx.map.groups.get(&group).map_or(0, |entry| entry.revision);
                Change::InSync { group, epoch, revision, in_sync }
            }
            ControlRequest::Resign { epoch, to } => Change::Resign { group, epoch, to },
        };
        self.change(cx, &change);
    }

    /// Reports to the control group which nodes take part in a new membership of the consensus groups that this node
    /// leads, and the leader-follower groups in which it has taken over. `has_fragments` returns whether a node has
    /// its fragments in a group, in an epoch.
    pub(crate) fn report_members(
        &mut self,
        cx: &mut Context,
        has_fragments: impl Fn(&Context, u16, NodeId, u64) -> bool,
    ) {
        let map = Rc::clone(&cx.map);
        let is_whole = |group: &Group| group.settled && group.in_sync.len() == group.members.len();
        let is_reported = |id: GroupId, group: &Group| is_whole(group) && !map.awaits_takeover(id);
        for (id, entry) in
            map.groups.iter().filter(|(id, group)| **id != CONTROL_GROUP && !is_reported(**id, group))
        {
            let replica = cx.groups.get(*id).and_then(|group| group.replica.as_ref());
            if map.awaits_takeover(*id) && replica.is_some_and(|replica| replica.has_taken_over(entry.epoch))
            {
                let in_sync = entry.in_sync.clone();
                self.request(cx, *id, ControlRequest::InSync { epoch: entry.epoch, in_sync });
                continue;
            }
            let voters = replica.and_then(|replica| replica.voters_of(cx.now, entry.epoch));
            let Some(mut in_sync) = voters else { continue };
            in_sync.retain(|node| entry.members.contains(node) && has_fragments(cx, *id, *node, entry.epoch));
            if entry.in_sync != in_sync && (!entry.settled || in_sync.len() > entry.in_sync.len()) {
                self.request(cx, *id, ControlRequest::InSync { epoch: entry.epoch, in_sync });
            }
        }
    }

    /// Requests a change from the control group that a client wants.
    pub(crate) fn change_for(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        answer: Confirmation,
        change: &Change,
    ) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        // The client's next request sees the change.
        session.close_gate();
        let ticket = session.begin(false);
        let creates = match change {
            Change::CreateKeyspace(keyspace) => Some(keyspace.prefix.clone()),
            // One of consensus begins again.
            Change::RecoverKeyspace { prefix, .. } => Some(prefix.clone()),
            _ => None,
        };
        let takes_keys = matches!(change, Change::CreateKeyspace(_));
        let drops = match change {
            Change::DropKeyspace(prefix) => Some(prefix).filter(|it| cx.map.keyspaces.contains_key(*it)),
            _ => None,
        };
        let drops = drops.cloned();
        let audit = audited(change).map(|what| format!("{} {what}", cx.who(client)));
        const SERVES_MS: u64 = 2000;
        let until_us = cx.now.monotonic_us + SERVES_MS * 1000;
        // The answer may come before the request returns.
        let request = self.requests + 1;
        self.wanted.push(Wanted {
            request,
            ticket,
            version: None,
            creates,
            floors: None,
            takes_keys,
            drops,
            answer,
            audit,
            until_us,
        });
        self.change(cx, change);
    }

    fn answered(&mut self, cx: &mut Context, request: u64, result: Result<u64, ChangeError>) {
        if let Some(at) = self.creating.iter().position(|(creating, _)| *creating == request) {
            let (_, number) = self.creating.remove(at);
            if let Err(why) = result {
                cx.call(Call::DatabaseRefused { number, why });
            }
            return;
        }
        let Some(at) = self.wanted.iter().position(|wanted| wanted.request == request) else { return };
        match result {
            Ok(version) => {
                let wanted = &mut self.wanted[at];
                wanted.version = Some(version);
                cx.log.extend(wanted.audit.take().map(|text| Line { level: Level::Audit, text }));
            }
            Err(error) => {
                let wanted = self.wanted.remove(at);
                let text = match &error {
                    ChangeError::Unknown { .. } => wanted.not_noted(cx),
                    ChangeError::Refused { .. } => None,
                };
                let text = text.unwrap_or_else(|| error.to_string());
                cx.complete_with_error(wanted.ticket, 0, error.outcome(), &text);
            }
        }
    }

    /// When floors of groups have to be asked for.
    pub(crate) fn floors_wakeup_us(&self) -> u64 {
        self.wanted.iter().flat_map(|wanted| &wanted.floors).map(Floors::wakeup_us).min().unwrap_or(u64::MAX)
    }

    /// A group has answered the request that it raise its floor.
    pub(crate) fn floor_answered(&mut self, cx: &Context, sequence: u64, result: Outcome, reply: &[u8]) {
        let (request, group) = Floors::named(sequence);
        let wanted = self.wanted.iter_mut().find(|wanted| wanted.request == request);
        if let Some(floors) = wanted.and_then(|wanted| wanted.floors.as_mut()) {
            floors.answered(cx.now.monotonic_us, group, result, reply);
        }
    }

    /// Has groups that lose keys to a new keyspace raise their floors.
    pub(crate) fn raise_floors(&mut self, cx: &mut Context) {
        let mut failed = Vec::new();
        for wanted in &mut self.wanted {
            if let Some(floors) = &mut wanted.floors
                && let Err(error) = floors.ask(cx, wanted.request)
            {
                failed.push((wanted.request, error));
            }
        }
        for (request, error) in failed {
            self.wanted.extract_if(.., |wanted| wanted.request == request).for_each(|wanted| {
                cx.complete_with_error(wanted.ticket, 0, Outcome::Unknown, &error);
            });
        }
    }

    /// Answers the clients whose changes are in this node's map.
    pub(crate) fn end_wanted(&mut self, cx: &mut Context) {
        for wanted in &mut self.wanted {
            let is_known = wanted.version.is_some_and(|version| version <= cx.map.version);
            if let Some(prefix) = wanted.creates.as_ref().filter(|_| is_known && wanted.takes_keys) {
                wanted.floors.get_or_insert_with(|| Floors::of(cx, prefix));
            }
        }
        while let Some(at) = self.wanted.iter().position(|wanted| self.is_done(cx, wanted)) {
            let Wanted { ticket, answer, .. } = self.wanted.remove(at);
            let mut replies = kv::ReplyBuffer::new();
            match answer {
                Confirmation::Name(name) => replies.bulk(name.as_bytes()),
                Confirmation::Count(count) => replies.integer(count as i64),
                Confirmation::Ok => replies.ok(),
            }
            cx.complete_with(ticket, 0, Outcome::Done { version: 0, offset: 0 }, replies);
        }
    }

    fn is_done(&self, cx: &Context, wanted: &Wanted) -> bool {
        let Wanted { version, creates, floors, takes_keys, until_us, .. } = wanted;
        let are_raised = !takes_keys || floors.as_ref().is_some_and(Floors::are_raised);
        are_raised
            && version.is_some_and(|version| version <= cx.map.version)
            && (cx.now.monotonic_us >= *until_us
                || creates.as_ref().is_none_or(|prefix| self.serves(cx, prefix)))
    }

    /// Whether all shards of a keyspace can be served from here.
    fn serves(&self, cx: &Context, prefix: &str) -> bool {
        let groups = cx.map.keyspaces.get(prefix).map(|entry| entry.groups.as_slice()).unwrap_or_default();
        groups.iter().all(|id| cx.groups.get(*id).is_some() && status::group_status(cx, *id).ready)
    }
}

/// An operator's change, as a text for the audit log. It has neither passwords nor their hashes.
fn audited(change: &Change) -> Option<String> {
    let named =
        |prefix: &str| format!("keyspace '{}'", one_line(if prefix.is_empty() { "default" } else { prefix }));
    let text = |text: &Text| one_line(&String::from_utf8_lossy(&text.bytes())).into_owned();
    Some(match change {
        Change::CreateKeyspace(keyspace) => format!("has made {}", named(&keyspace.prefix)),
        Change::DropKeyspace(prefix) => format!("has dropped {} and all its keys", named(prefix)),
        Change::SetKeyspace { prefix, settings } => {
            let settings = settings.iter().map(|(name, value)| format!("{name} = {value}"));
            let settings = settings.collect::<Vec<_>>().join(", ");
            format!("has set {} of {}", one_line(&settings), named(prefix))
        }
        Change::RecoverKeyspace { prefix, .. } => {
            format!("has given up what is lost of {}", named(prefix))
        }
        Change::AddNode(address) => {
            format!("has added node {} at {}:{}", address.id, address.host, address.client_port)
        }
        Change::RemoveNode { id, force } => {
            format!("has removed node {id}{}", if *force { " by force" } else { "" })
        }
        Change::ReplaceNode { id, accept_loss } => {
            format!("has replaced node {id}{}", if *accept_loss { ", accepting loss" } else { "" })
        }
        Change::PreferLeader { groups, node } => {
            let groups: Vec<String> = groups.iter().map(GroupId::to_string).collect();
            format!("has node {node} lead groups {}", groups.join(", "))
        }
        Change::DrainNode { id, is_drained: true } => format!("has drained node {id}: it leads nothing"),
        Change::DrainNode { id, is_drained: false } => format!("allows node {id} to lead again"),
        Change::Quarantine { group, step } => {
            format!("has changed the quarantine of group {group}: {step:?}")
        }
        Change::Libraries(LibrariesStep::Delete(name)) => {
            format!("has removed the library '{}'", one_line(name))
        }
        Change::Libraries(LibrariesStep::Add { libraries, policy }) => {
            let names: Vec<&str> = libraries.keys().map(String::as_str).collect();
            format!("has loaded the libraries [{}] ({policy:?})", one_line(&names.join(", ")))
        }
        Change::Users(UsersStep::Delete(names)) => {
            let names: Vec<String> = names.iter().map(text).collect();
            format!("has removed the users [{}]", names.join(", "))
        }
        Change::Users(UsersStep::Set { name, rules, .. }) => {
            let shown = |rule: &Text| match rule.bytes().first() {
                Some(b'#') => "a new password".to_string(),
                Some(b'!') => "a password less".to_string(),
                _ => text(rule),
            };
            let rules: Vec<String> = rules.iter().map(shown).collect();
            format!("has set the user '{}': {}", text(name), rules.join(" "))
        }
        Change::HoldLevel(true) => "holds the cluster's level where it is".into(),
        Change::HoldLevel(false) => "lets the cluster's level rise".into(),
        Change::Saved(saved) if saved.is_empty() => "has the cluster forget its backups".into(),
        Change::Saved(saved) => {
            let names: Vec<String> = saved.keys().map(|prefix| named(prefix)).collect();
            format!("has reported a backup of {}", names.join(", "))
        }
        Change::NodeStarted { .. }
        | Change::RaiseLevel(_)
        | Change::InSync { .. }
        | Change::AppointLeaders(_)
        | Change::Resign { .. }
        | Change::MoveMember { .. } => return None,
    })
}

fn describe(event: &Event) -> Line {
    let (level, text) = match event {
        Event::Leads => (Level::Info, "this node leads the control group".to_string()),
        Event::LeadsNoMore => (Level::Info, "this node leads the control group no more".to_string()),
        Event::Appointed { group, leader, instead_of } => {
            (Level::Warning, format!("group {group} is led by node {leader} instead of node {instead_of}"))
        }
        Event::Admitted => (Level::Info, "the control group has admitted this node".to_string()),
        Event::Refused { why } => (Level::Error, format!("this node may not take part: {why}")),
        Event::Removed { map_version } => (
            Level::Warning,
            format!(
                "this node was removed from the cluster: the cluster has no node of this number in its map {map_version}. \
                 The process ends; quorate node add admits a node of this number again"
            ),
        ),
        Event::LevelRaised { from, to } => (
            Level::Info,
            format!(
                "the cluster has risen from level {from} to level {to}: all of its nodes have programs of release {to} or \
                 later, and none can go back to an earlier one"
            ),
        ),
        Event::WaitsFor { nodes } => {
            (Level::Info, format!("a new cluster begins when nodes {nodes:?} have started, too"))
        }
    };
    Line { level, text }
}
