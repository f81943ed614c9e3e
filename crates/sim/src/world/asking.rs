//! Clients: they connect, send requests, get replies, give up and reconnect.

use super::World;
use super::healing::Phase;
use super::operator::{OPERATOR, Presence};
use crate::caching::Caching;
use crate::clients::{Client, Downstream, Upstream};
use crate::events::{Event, Place};
use crate::faults::{Class, MS};
use crate::job::Job;
use crate::locking::WAIT_MS_MAX;
use crate::operation::{COLLECTIONS, Key, Kind, Operation, QUEUES, Reply, Value};
use crate::reading::{News, Reading};
use crate::report::Broken;
use crate::trace::id;

/// How often clients check whether they have waited too long.
const SWEEP_US: u64 = 200 * MS;

impl World {
    /// Starts the clients' load.
    pub(super) fn begin_load(&mut self) {
        for client in 0..self.clients.len() as u8 {
            let after_us = self.random.below(100 * MS);
            self.wake_client(client, after_us);
        }
        self.queue.push(self.now + SWEEP_US, Event::Sweep);
    }

    pub(super) fn wake_client(&mut self, client: u8, after_us: u64) {
        let who = &mut self.clients[usize::from(client)];
        who.alarm += 1;
        let alarm = who.alarm;
        self.queue.push(self.now + after_us, Event::Client { client, alarm });
    }

    #[inline]
    pub(super) fn client_latency(&mut self, client: u8) -> u64 {
        let (least_us, jitter_us) = (self.scenario.latency_us, self.scenario.jitter_us);
        least_us + self.clients[usize::from(client)].random.below(jitter_us + 1)
    }

    /// Continues a client that has finished thinking, or has waited before a retry.
    pub(super) fn client_wakes(&mut self, client: u8, alarm: u32) {
        let who = &self.clients[usize::from(client)];
        if who.alarm != alarm || !who.open.is_empty() {
            return;
        }
        let is_to_end = who.is_observer() || who.job.is_some();
        let asks = is_to_end && !who.is_satisfied() || !who.is_observer() && self.phase == Phase::Faults;
        if !asks {
            return;
        }
        if !who.is_connected {
            self.connect_client(client);
        }
        // The connection of a client with a job begins with its requests.
        if self.clients[usize::from(client)].job.is_some() {
            return;
        }
        let who = &mut self.clients[usize::from(client)];
        let count = match self.scenario.pipeline {
            most if most > 1 && who.script.is_none() && who.caching.is_none() && who.reading.is_none() => {
                who.random.between(1, most)
            }
            _ => 1,
        };
        for _ in 0..count {
            let operation = match self.clients[usize::from(client)].script.as_ref().and_then(|s| s.front()) {
                Some(next) => *next,
                None => self.draw_operation(client),
            };
            self.ask(client, operation);
        }
    }

    fn connect_client(&mut self, client: u8) {
        let nodes = u64::from(self.scenario.nodes);
        let who = &mut self.clients[usize::from(client)];
        if !who.is_observer() {
            who.node = who.random.below(nodes) as Place;
        }
        who.connection += 1;
        who.is_connected = true;
        who.waiting_since = self.now;
        who.caching.iter_mut().for_each(Caching::connect);
        self.send_upstream(client, Upstream::Hello);
    }

    fn draw_operation(&mut self, client: u8) -> Operation {
        let random = &mut self.clients[usize::from(client)].random;
        let spaces = &self.scenario.spaces;
        let mut index = random.below(spaces.len() as u64) as usize;
        let returned = Some(index).filter(|index| self.returned[*index].since.is_some());
        if self.presence[index] != Presence::There {
            index = 0;
        }
        if let Some(Reading { space, .. }) = self.clients[usize::from(client)].reading {
            let key = Key { space, class: b'k', number: 0 };
            return Operation::new(Kind::Ping, key, Value::default());
        }
        if let Client { caching: Some(caching), random, .. } = &mut self.clients[usize::from(client)] {
            return caching.draw(index, &spaces[index], random);
        }
        let random = &mut self.clients[usize::from(client)].random;
        if let Some(space) = returned {
            let kind = if random.percent(50) { Kind::Get } else { Kind::Set };
            let number = random.below(spaces[space].keys.max(1).into()) as u8;
            let key = Key { space: space as u8, class: b'k', number };
            return Operation::new(kind, key, self.next_value());
        }
        let kind = random.pick(&spaces[index].kinds);
        if kind == Kind::Lock {
            return self.draw_lock_operation(client, index as u8);
        }
        let class = match kind {
            Kind::Increment => b'n',
            Kind::SetFleeting | Kind::GetFleeting => b'e',
            Kind::Transact => b'p',
            Kind::Across | Kind::ReadAcross => b'a',
            _ => kind.collection().unwrap_or(b'k'),
        };
        let keys = match class {
            b'q' => QUEUES,
            b'm' | b'z' | b'x' => COLLECTIONS,
            _ => spaces[index].keys,
        };
        let key = Key { space: index as u8, class, number: random.below(keys.into()) as u8 };
        let most_ms = if kind.waits() { WAIT_MS_MAX } else { self.scenario.lifetime_ms_max.into() };
        let lifetime_ms = random.scaled(1, most_ms) as u16;
        let value = self.next_value();
        let is_script = kind == Kind::Increment
            && self.scenario.spaces[index].runs_scripts
            && value.number.is_multiple_of(2);
        let kind = if is_script { Kind::Script } else { kind };
        Operation { lifetime_ms, ..Operation::new(kind, key, value) }
    }

    fn draw_lock_operation(&mut self, client: u8, space: u8) -> Operation {
        let count = self.clients.len() as u64;
        let other = self.clients[usize::from(client)].random.below(count) as usize;
        let others = self.clients[other].locking.session;
        let Client { locking, random, .. } = &mut self.clients[usize::from(client)];
        let operation = locking.draw((client, space), others, random);
        match operation.kind {
            Kind::SetFenced => Operation { value: self.next_value(), ..operation },
            _ => operation,
        }
    }

    pub(super) fn next_value(&mut self) -> Value {
        self.values += 1;
        Value { number: self.values, padding: self.scenario.value_bytes }
    }

    fn ask(&mut self, client: u8, operation: Operation) {
        let who = &mut self.clients[usize::from(client)];
        let (node, connection) = (who.node, who.connection);
        let operation = self.record.begin(operation, (client, connection), node, self.now);
        if self.trace.is_on() {
            let prefix = &self.scenario.spaces[usize::from(operation.key.space)].keyspace.prefix;
            let (what, number) = (operation.describe(prefix), operation.number);
            self.trace
                .tell(self.now, format_args!("client {client} asks node {} #{number} {what}", id(node)));
        }
        if who.open.is_empty() {
            who.waiting_since = self.now;
        }
        who.open.push_back(operation);
        self.send_upstream(client, Upstream::Request(operation));
    }

    fn send_upstream(&mut self, client: u8, what: Upstream) {
        let latency_us = self.client_latency(client);
        let who = &mut self.clients[usize::from(client)];
        who.upstream_until = who.upstream_until.max(self.now + latency_us);
        who.upstream.push_back((who.node, who.connection, what));
        self.queue.push(who.upstream_until, Event::Upstream { client });
    }

    #[inline]
    pub(super) fn upstream(&mut self, client: u8) {
        let Some((node, connection, what)) = self.clients[usize::from(client)].upstream.pop_front() else {
            return;
        };
        if !self.hosts[usize::from(node)].is_alive() {
            return self.report_closed(client, connection, self.now);
        }
        match what {
            Upstream::Hello => self.hello(node, client, connection),
            Upstream::Request(operation) => self.request(node, client, connection, operation),
            Upstream::Goodbye => self.goodbye(node, client, connection),
        }
    }

    #[inline]
    pub(super) fn downstream(&mut self, client: u8) {
        let who = &mut self.clients[usize::from(client)];
        let Some((connection, what)) = who.downstream.pop_front() else { return };
        if !who.is_connected || who.connection != connection {
            return; // It has given up.
        }
        let reply = match what {
            Downstream::Reply(reply) => reply,
            Downstream::Invalid(key) => return self.drop_kept(client, key.as_deref()),
            Downstream::News(news) => return self.take_news(client, news),
            Downstream::OfJob(reply) => return self.learn_on_job(client, reply),
        };
        let Some(operation) = who.open.pop_front() else {
            let words = format!("client {client} gets an answer to something that it did not ask");
            return self.fail(Broken::Language, words);
        };
        self.record.end(&operation, self.now, reply);
        if reply == Reply::Refused("OOM") {
            self.counts.add(Class::OutOfMemory);
        }
        who.last_reply = Some(reply);
        who.locking.learn(&operation, reply);
        if let Some(caching) = &mut who.caching {
            let start = self.record.entries[operation.number as usize].start;
            caching.learn(operation, reply, who.node, start);
        }
        who.waiting_since = self.now;
        self.trace.note(u64::from(operation.number) << 8 | u64::from(client));
        self.trace.tell(self.now, format_args!("client {client} gets #{} {reply}", operation.number));
        if reply == Reply::Torn {
            let words = format!(
                "client {client} learns from node {} that keys differ which only change together",
                id(who.node)
            );
            return self.fail(Broken::Safety, words);
        }
        if reply == Reply::Wrong {
            let words = format!("client {client} gets something from {} that is not an answer", id(who.node));
            return self.fail(Broken::Language, words);
        }
        // A client that reads changes goes from node to node.
        if who.reading.is_some() && who.random.percent(20) {
            self.send_upstream(client, Upstream::Goodbye);
            return self.give_up(client);
        }
        let pause_us = match &mut who.script {
            // An observer takes all elements.
            Some(_) if operation.kind.empties() && reply.is_done() && reply != Reply::Nil => 0,
            // There is no room, and no request will make any.
            Some(script) if reply == Reply::Refused("OOM") => {
                script.pop_front();
                0
            }
            // A lock must be granted in the end, so no other reply to an acquisition counts.
            Some(script) if reply.is_done() && (operation.kind != Kind::Acquire || reply != Reply::Nil) => {
                script.pop_front();
                0
            }
            // With random pauses: clients that do not wait for locks would otherwise obstruct each other forever.
            Some(_) => 20 * MS + who.random.below(300 * MS),
            None => who.random.below(2 * who.think_us + 1),
        };
        if who.open.is_empty() {
            self.wake_client(client, pause_us);
        }
    }

    /// Makes a client find that its connection is closed.
    pub(super) fn report_closed(&mut self, client: u8, connection: u32, at: u64) {
        if client == OPERATOR {
            return; // The operator repeats its command anyway.
        }
        let latency_us = self.client_latency(client);
        self.queue.push(at + latency_us, Event::Closed { client, connection });
    }

    pub(super) fn connection_closed(&mut self, client: u8, connection: u32) {
        let who = &mut self.clients[usize::from(client)];
        if who.is_connected && who.connection == connection {
            self.trace.tell(self.now, format_args!("client {client} finds its connection closed"));
            self.give_up(client);
        }
    }

    /// Makes a client drop a key that it keeps, or all, and records what it has kept beyond the bound.
    pub(super) fn drop_kept(&mut self, client: u8, key: Option<&[u8]>) {
        let spaces = &self.scenario.spaces;
        let who = &mut self.clients[usize::from(client)];
        let Some(caching) = &mut who.caching else { return };
        let name = String::from_utf8_lossy(key.unwrap_or(b"all"));
        self.trace.note(key.map_or(0, kv::digest::digest_of) ^ u64::from(client));
        self.trace.tell(self.now, format_args!("client {client} drops {name}"));
        for outlasted in caching.drop(key, |space| &spaces[usize::from(space)].keyspace.prefix) {
            self.record.outlast(outlasted, (client, who.connection), self.now);
        }
    }

    /// Passes a push about changes to a client. If the client has come too late, it continues at another node.
    fn take_news(&mut self, client: u8, news: News) {
        self.trace.tell(self.now, format_args!("client {client} gets {news:?}"));
        let who = &mut self.clients[usize::from(client)];
        let Some(reading) = &mut who.reading else { return };
        let digest = match &news {
            News::Change(version, digest) => kv::digest::digest_of(version.as_bytes()) ^ digest,
            News::Position(word) | News::Ended(word) => kv::digest::digest_of(word.as_bytes()),
        };
        self.trace.note(digest ^ u64::from(client));
        let has_ended = matches!(news, News::Ended(_));
        if let Err(words) = reading.learn(news) {
            return self.fail(Broken::Language, words);
        }
        if has_ended {
            self.send_upstream(client, Upstream::Goodbye);
            self.give_up(client);
        }
    }

    /// Passes a reply to a client that makes or restores a backup.
    fn learn_on_job(&mut self, client: u8, reply: wire::resp::client::Reply) {
        let shown = || format!("{reply:?}").chars().take(200).collect::<String>();
        self.trace.tell(self.now, format_args!("client {client} gets {}", shown()));
        self.trace.note(kv::digest::digest_of(format!("{reply:?}").as_bytes()) ^ u64::from(client));
        let who = &mut self.clients[usize::from(client)];
        who.waiting_since = self.now;
        let Some(job) = &mut who.job else { return };
        let (node, mut is_done) = (id(who.node), false);
        match job.learn(reply) {
            Ok(is_last) => is_done = is_last,
            Err(words) => {
                let words = format!("client {client} gets a backup from node {node}: {words}");
                self.fail(Broken::Safety, words);
            }
        }
        if !is_done {
            return;
        }
        let who = &mut self.clients[usize::from(client)];
        who.is_connected = false;
        let mut pause_us = who.random.below(100 * MS);
        if let Some(Job::Backup(backup)) = &mut who.job
            && backup.goal.is_none()
        {
            backup.wants_copy |= who.random.percent(10);
            pause_us = who.random.below(2 * who.think_us + 1);
        }
        self.send_upstream(client, Upstream::Goodbye);
        self.wake_client(client, pause_us);
    }

    /// Makes clients that make or restore a backup, and have waited too long, ask another node.
    pub(super) fn sweep_jobs(&mut self) {
        const PATIENCE_US: u64 = 8_000 * MS;
        for client in 0..self.clients.len() as u8 {
            let who = &self.clients[usize::from(client)];
            if who.job.is_some() && who.is_connected && self.now - who.waiting_since > PATIENCE_US {
                self.send_upstream(client, Upstream::Goodbye);
                self.give_up(client);
            }
        }
    }

    /// Makes a client leave its connection. It does not learn the outcomes of its open requests.
    fn give_up(&mut self, client: u8) {
        let who = &mut self.clients[usize::from(client)];
        who.is_connected = false;
        who.open.clear();
        who.job.iter_mut().for_each(Job::lose);
        self.drop_kept(client, None);
        let who = &mut self.clients[usize::from(client)];
        let pause_us = 10 * MS + who.random.below(100 * MS);
        self.wake_client(client, pause_us);
    }

    /// Closes the connections of clients that have waited too long for a reply.
    pub(super) fn sweep(&mut self) {
        self.look_at_map();
        self.sweep_jobs();
        if self.phase != Phase::Faults {
            return;
        }
        if let Some(patience_us) = self.scenario.patience_us {
            for client in 0..self.clients.len() as u8 {
                let who = &self.clients[usize::from(client)];
                if !who.open.is_empty() && self.now - who.waiting_since > patience_us {
                    self.counts.add(Class::ImpatientClient);
                    self.trace.tell(self.now, format_args!("client {client} gives up"));
                    self.send_upstream(client, Upstream::Goodbye);
                    self.give_up(client);
                }
            }
        }
        self.queue.push(self.now + SWEEP_US, Event::Sweep);
    }
}
