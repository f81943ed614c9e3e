//! The operator: commands that change the cluster, sent to any node repeatedly until they are carried out.

use super::World;
use super::healing::Phase;
use crate::events::{Event, Place};
use crate::faults::{Leaders, MS, Mask, Order, SECOND};
use crate::host::Session;
use crate::operation::Reply;
use crate::promise::Space;
use crate::trace::id;
use cluster::control::CONTROL_GROUP;
use cluster::setting::Reads;
use node::Node;
use protocol::planted::{Fault, Planted};
use std::rc::Rc;
use wire::resp::ArgumentsBuffer;

/// The client number of the operator's sessions.
pub(super) const OPERATOR: u8 = u8::MAX;

/// A command that cannot be executed, such as the removal of a node that registers need, is given up after this many
/// refusals.
const REFUSALS_MAX: u32 = 5;

/// A command that is being given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) order: Order,
    refusals: u32,
    pub(super) is_over: bool,
}

/// The state of a keyspace that does not exist all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It always existed, or the operator was told that it does, or all nodes know of it by now. Nodes that do not know of it may
    /// be cut off, with their clients.
    There,
    /// It is not known that no node takes its keys for those of another keyspace.
    Absent,
    /// It is being dropped, or has been dropped.
    Dropped,
}

impl World {
    /// Begins to give a command.
    pub(super) fn give(&mut self, order: Order) {
        // While machines are lost, no further one is taken away. No keyspace is created then, either: without a
        // member whose memory vouches for it, a group begins only when all of its members have sent a message.
        let is_lost = |host: &crate::host::Host| host.is_lost || host.rotten.is_some();
        let needs_all = matches!(order, Order::Remove { .. } | Order::Create { .. });
        if needs_all && self.hosts.iter().any(is_lost) {
            return;
        }
        // What is only in memory must be elsewhere, too: another node may be about to stop because its disk fails.
        if let Order::Remove { node } = order
            && !self.may_crash(node, false)
        {
            return;
        }
        match order {
            Order::Drop { space } if self.is_judged(space.into()) => {
                self.presence[usize::from(space)] = Presence::Dropped;
                self.returned[usize::from(space)].told = self.now;
            }
            Order::Replace { node } => self.renew_disk(node),
            _ => {}
        }
        self.given.push(Given { order, refusals: 0, is_over: false });
        let index = self.given.len() as u16 - 1;
        self.queue.push(self.now, Event::Order { index });
    }

    /// Gives a machine an empty disk, and starts a process on it.
    fn renew_disk(&mut self, place: Place) {
        if self.hosts[usize::from(place)].is_alive() {
            self.crash(place, SECOND / 10, true);
        }
        let after_us = self.random.below(2 * SECOND);
        let host = self.host(place);
        host.disk.replace();
        (host.rotten, host.is_kept_down, host.is_damaged) = (None, false, true);
        (host.is_lost, host.is_refilling, host.was_durable) = (true, true, None);
        let incarnation = host.incarnation;
        self.queue.push(self.now + after_us, Event::Restart { node: place, incarnation });
    }

    /// Sends a command to some node, unless it has been carried out.
    pub(super) fn order(&mut self, index: u16) {
        let Given { order, is_over, .. } = self.given[usize::from(index)];
        if is_over || self.phase == Phase::Over {
            return;
        }
        if self.is_carried_out(order) {
            return self.end_order(index);
        }
        // Once everything has healed, only commands in progress are completed.
        let place = self.random.below(self.scenario.nodes.into()) as Place;
        if self.hosts[usize::from(place)].is_alive() {
            self.put_order(place, index);
        }
        let again_us = 100 * MS + self.random.below(SECOND);
        self.queue.push(self.now + again_us, Event::Order { index });
    }

    /// Whether the newest map has a keyspace.
    fn has(&self, space: u8) -> bool {
        self.map.keyspaces.contains_key(&self.scenario.spaces[usize::from(space)].keyspace.prefix)
    }

    fn is_carried_out(&self, order: Order) -> bool {
        let has = |space: u8| self.has(space);
        match order {
            Order::Create { space } => {
                let is_known = has(space) && !self.uses_at_once();
                is_known || self.presence[usize::from(space)] != Presence::Absent
            }
            Order::Drop { space } => {
                let is_answered = self.returned[usize::from(space)].is_answered;
                !has(space) && (!self.uses_at_once() || is_answered)
            }
            Order::Add { node } => self.map.nodes.contains_key(&id(node)),
            Order::Remove { node } => !self.map.nodes.contains_key(&id(node)),
            Order::Replace { node } => {
                let process = self.hosts[usize::from(node)].node();
                process.is_some_and(Node::is_admitted)
            }
            Order::HoldLevel => self.map.is_level_held,
            Order::LetLevelRise => self.map.version > 0 && !self.map.is_level_held,
            Order::Drain { node } => self.map.is_drained(id(node)),
            Order::EndDrain { node } => self.map.version > 0 && !self.map.is_drained(id(node)),
            Order::Change { .. } | Order::Lead { .. } => false,
        }
    }

    fn end_order(&mut self, index: u16) {
        let given = &mut self.given[usize::from(index)];
        given.is_over = true;
        let order = given.order;
        self.counts.add(order.class());
        self.trace.tell(self.now, format_args!("done: {order}"));
        match order {
            Order::Add { node } => {
                let host = self.host(node);
                host.is_absent = false;
                let incarnation = host.incarnation;
                self.restart(node, incarnation);
            }
            Order::Replace { node } => {
                let host = self.host(node);
                host.is_lost = false;
                // No node has received a message from this one yet.
                self.hosts.iter_mut().for_each(|host| host.received[usize::from(node)] = 0);
            }
            _ => {}
        }
    }

    /// Returns the words of a command.
    fn words(&self, order: Order) -> Vec<String> {
        let prefix = |space: u8| self.scenario.spaces[usize::from(space)].keyspace.prefix.clone();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match order {
            Order::Create { space } => {
                let settings = self.scenario.spaces[usize::from(space)].text.split(' ').skip(1);
                let settings = settings.map(str::to_owned);
                [words("KEYSPACE CREATE"), vec![prefix(space)]].concat().into_iter().chain(settings).collect()
            }
            Order::Change { space } => {
                let setting = self.scenario.spaces[usize::from(space)].change.clone();
                [words("KEYSPACE SET"), vec![prefix(space), setting]].concat()
            }
            Order::Drop { space } => [words("KEYSPACE DROP"), vec![prefix(space)]].concat(),
            Order::Add { node } => {
                let address = &self.addresses[usize::from(node)];
                let ports = format!("{} {} {}", address.client_port, address.http_port, address.peer_port);
                words(&format!("CLUSTER ADD {} {} {ports}", address.id, address.host))
            }
            Order::Remove { node } => words(&format!("CLUSTER REMOVE {} FORCE", id(node))),
            Order::Replace { node } => {
                // What was lost in a recovery stays lost: the operator has accepted that.
                let accepted = if self.recovered_at.is_some() { " ACCEPTLOSS" } else { "" };
                words(&format!("CLUSTER REPLACE {}{accepted}", id(node)))
            }
            Order::Lead { space, node } => {
                [words("CLUSTER LEAD"), vec![prefix(space), id(node).to_string()]].concat()
            }
            Order::Drain { node } => words(&format!("CLUSTER DRAIN {}", id(node))),
            Order::EndDrain { node } => words(&format!("CLUSTER DRAIN {} END", id(node))),
            Order::HoldLevel => words("CLUSTER LEVEL HOLD"),
            Order::LetLevelRise => words("CLUSTER LEVEL RISE"),
        }
    }

    /// Delivers a command to a node, over a separate connection.
    fn put_order(&mut self, place: Place, index: u16) {
        let mut arguments = ArgumentsBuffer::new();
        let words = self.words(self.given[usize::from(index)].order);
        words.iter().for_each(|word| arguments.push(word.as_bytes()));
        self.trace.tell(self.now, format_args!("the operator at node {}: {}", id(place), words.join(" ")));
        let now = self.now;
        let host = self.host(place);
        host.sessions.push(Session::new(OPERATOR, index.into(), usize::MAX));
        host.has_visitors = true;
        host.put_request(now, host.sessions.len() - 1, arguments.as_arguments());
    }

    /// Handles a node's reply to a command.
    pub(super) fn order_answered(&mut self, index: u32, reply: Reply) {
        let index = index as u16;
        let given = &mut self.given[usize::from(index)];
        if given.is_over {
            return;
        }
        let order = given.order;
        match (&reply, order) {
            (Reply::Ok, Order::Create { space }) => self.created(usize::from(space)),
            (Reply::Ok, Order::Drop { space }) => self.dropped(usize::from(space)),
            // It was dropped, and the answer is lost.
            (Reply::Refused(_), Order::Drop { space }) if !self.has(space) => return self.end_order(index),
            _ => {}
        }
        let given = &mut self.given[usize::from(index)];
        match (reply, order) {
            // Other commands are complete when the map says so.
            (Reply::Ok, Order::Change { .. } | Order::Lead { .. }) => self.end_order(index),
            // A lost disk has to be replaced at some time.
            (Reply::Refused(_), Order::Replace { .. }) | (Reply::Ok | Reply::Unknown, _) => {}
            (_, order) => {
                given.refusals += 1;
                given.is_over = given.refusals >= REFUSALS_MAX;
                if given.is_over
                    && let Order::Drop { space } = order
                {
                    self.trace.tell(self.now, format_args!("keyspace {space} stays"));
                }
            }
        }
    }

    /// A keyspace was made. Its keys are used from now on.
    fn created(&mut self, space: usize) {
        if self.uses_at_once() && self.presence[space] == Presence::Absent {
            self.presence[space] = Presence::There;
        }
    }

    /// A keyspace was dropped. Its keys are used from now on as those of the first one, if that forgets nothing. Members of a
    /// dropped group that may answer with what is stale may do so for longer.
    fn dropped(&mut self, space: usize) {
        let [former, dropped] = [0, space].map(|index| &self.scenario.spaces[index]);
        // An order to make it that was repeated may still be on its way, and make it again.
        let is_judged = former.keeps_all() && !dropped.reads_any && !dropped.is_created;
        if self.uses_at_once() && is_judged && !self.returned[space].is_answered {
            self.returned[space].since = Some(self.now);
        }
        self.returned[space].is_answered = true;
    }

    /// Whether a keyspace is used as soon as the operator was told that it is made, and not only when all nodes know of it. Its keys
    /// must be those of groups that refuse what older maps have routed to them: replicas whose answers may be stale do not.
    fn uses_at_once(&self) -> bool {
        // The seeds known to find other planted faults were found without this.
        let planted = self.scenario.planted;
        let finds = Fault::OF_FLOORS.into_iter().any(|fault| planted.has(fault));
        let former = &self.scenario.spaces[0];
        (finds || planted == Planted::default()) && former.keyspace.reads == Reads::Linearizable
    }

    /// Checks which keyspaces all nodes know of, and which nodes have left the cluster.
    pub(super) fn look_at_map(&mut self) {
        for index in 0..self.scenario.spaces.len() {
            let prefix = &self.scenario.spaces[index].keyspace.prefix;
            let knows = |node: &Node| node.cluster_map().keyspaces.contains_key(prefix);
            let is_known = self.hosts.iter().all(|host| match host.node() {
                Some(node) => knows(node),
                None => host.is_gone(),
            });
            if self.presence[index] == Presence::Absent && is_known {
                self.presence[index] = Presence::There;
            }
        }
        let map = Rc::clone(&self.map);
        for place in self.places().filter(|_| map.version > 0) {
            let was_notified =
                self.given.iter().any(|given| matches!(given.order, Order::Remove { node } if node == place));
            let is_out = !map.nodes.contains_key(&id(place));
            if was_notified && is_out && !self.hosts[usize::from(place)].is_absent {
                self.host(place).is_absent = true;
                if self.hosts[usize::from(place)].is_alive() {
                    self.crash(place, 0, true);
                }
                // The node never restarts to close the connections of clients that did not notice its death.
                self.notify_clients_of(place);
            }
        }
    }

    /// Returns the first command that the operator still waits for.
    pub(super) fn open_order(&self) -> Option<Order> {
        let given = self.given.iter().find(|given| !given.is_over)?;
        Some(given.order)
    }

    /// Returns the current leaders.
    pub(super) fn leaders(&self, leaders: Leaders) -> Mask {
        let mut mask = 0;
        for host in &self.hosts {
            let Some(node) = host.node() else { continue };
            if leaders.control && node.leads_control() {
                mask |= 1 << host.place;
            }
            let groups: Vec<u16> =
                self.map.groups.keys().copied().filter(|group| *group != CONTROL_GROUP).collect();
            let group =
                leaders.group.and_then(|number| groups.get(usize::from(number) % groups.len().max(1)));
            let leads =
                group.and_then(|group| node.group_health(*group)).is_some_and(|it| it.role == "leader");
            if leads {
                mask |= 1 << host.place;
            }
        }
        mask
    }

    /// Whether clients send requests to a keyspace.
    pub(super) fn is_in_use(&self, space: usize) -> bool {
        self.presence[space] == Presence::There
    }

    /// Whether the replies about a keyspace are checked.
    pub(crate) fn is_judged(&self, space: usize) -> bool {
        self.presence[space] != Presence::Dropped
    }
}

/// Returns the state of each keyspace at the beginning.
pub(super) fn presence(spaces: &[Space]) -> Vec<Presence> {
    spaces.iter().map(|it| if it.is_created { Presence::Absent } else { Presence::There }).collect()
}
