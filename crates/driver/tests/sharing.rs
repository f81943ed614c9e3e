//! How clients share the turns of a node: one that asks for little waits little, whatever the others ask for.

#![allow(clippy::expect_used, missing_docs)]

mod kit;

use driver::{Change, Clients, Counters, Driver, Event, Sizes, Turn, World};
use kit::{Clock, End, Wire};
use node::{ClientId, ClientKind, Configuration, Keyspace, Line, Node, NodeAddress, StorageSettings};
use protocol::Now;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use storage::simulated_values::SimulatedValues;
use storage::{DiskError, MemoryDisk, ValueResult, ValueWork, Work};

/// The world around the only node of a cluster. Work beside the node is reported in the first turn after it has lasted its time.
struct Alone {
    now: Now,
    events: VecDeque<Event>,
    arriving: Vec<(ClientId, End)>,
    disk: MemoryDisk,
    values: SimulatedValues,
    /// When each is done, in microseconds.
    finished: VecDeque<(u64, Work, Result<(), DiskError>)>,
    /// How long work of the disk lasts, in microseconds.
    lasts_us: u64,
}

impl World for Alone {
    type Clock = Clock;
    type Disk = MemoryDisk;
    type Socket = End;

    fn clock(&self) -> Clock {
        Clock(self.now)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn has_more_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn brings_records(&self, _connection: usize) -> bool {
        false
    }

    fn read_peer(&mut self, _connection: usize, _turn: &mut Turn<'_, Clock>) -> bool {
        false
    }

    fn attend(&mut self, clients: &mut Clients<End>, turn: &mut Turn<'_, Clock>) {
        self.arriving.drain(..).for_each(|(id, end)| clients.add(id, end, turn));
    }

    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)> {
        let is_done = |done: &mut (u64, Work, Result<(), DiskError>)| done.0 <= self.now.monotonic_us;
        self.finished.pop_front_if(is_done).map(|(_, work, result)| (work, result))
    }

    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)> {
        None
    }

    fn write_to_peers(&mut self, _turn: &mut Turn<'_, Clock>) {}

    fn disk(&mut self) -> &mut MemoryDisk {
        &mut self.disk
    }

    fn begin_work(&mut self, work: Work) {
        let result = work.run(&mut self.disk);
        self.finished.push_back((self.now.monotonic_us + self.lasts_us, work, result));
    }

    fn begin_value_work(&mut self, work: ValueWork) {
        let _ = work.run(&mut self.values);
    }

    fn tell(&mut self, _client: ClientId, _turn: &mut Turn<'_, Clock>) {}

    fn usage(&mut self, _counters: &Counters) -> node::Usage {
        node::Usage::default()
    }

    fn log(&mut self, _line: &Line) {}

    fn wakeup_us(&self) -> u64 {
        u64::MAX
    }
}

/// A client that always sends the same request.
struct Client {
    id: ClientId,
    wire: Rc<RefCell<Wire>>,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// How many requests it has sent ahead of their replies.
    depth: usize,
    under_way: usize,
    answered: usize,
}

fn encoded(words: &[&str]) -> Vec<u8> {
    let head = format!("*{}\r\n", words.len());
    words.iter().fold(head, |all, word| format!("{all}${}\r\n{word}\r\n", word.len())).into_bytes()
}

struct Host {
    driver: Driver<End>,
    world: Alone,
    clients: Vec<Client>,
}

fn configuration() -> Configuration {
    let address =
        NodeAddress { id: 1, host: "127.0.0.1".into(), client_port: 7001, http_port: 8001, peer_port: 9001 };
    Configuration {
        node: 1,
        cluster: "shared".into(),
        nodes: vec![address],
        keyspaces: vec![Keyspace::parse("prefix= replication=consensus").expect("a keyspace")],
        value_bytes_max: 1 << 20,
        connections_max: 100,
        groups_max: 10,
        output_bytes_max: 1 << 30,
        memory_max: 0,
        command_timeout_ms: 60_000,
        long_command_bytes: node::LONG_COMMAND_BYTES,
        patience: 1,
        sweep_ms: 100,
        password: None,
        operator_password: None,
        default_changes_cluster: true,
        password_seed: [7; 32],
        enable_debug_command: Default::default(),
        masters: Default::default(),
        redis_version: None,
        life: 0,
        identity: 7,
        storage: StorageSettings::default(),
        seed: 7,
        table_seed: 8,
        releases: wire::release::RELEASES,
        traced_share: None,
        process: Default::default(),
        planted: Default::default(),
    }
}

impl Host {
    fn start() -> Host {
        let mut host = Host::open(configuration());
        for _ in 0..5000 {
            host.turn();
            if host.driver.node.health().ready && host.driver.node.map_version() > 0 {
                return host;
            }
        }
        panic!("the node serves");
    }

    /// A node that has not taken a turn yet.
    fn open(configuration: Configuration) -> Host {
        let now = Now { monotonic_us: 1_000_000, unix_ms: 1_700_000_000_000 };
        let (mut disk, mut values) = (MemoryDisk::new(), SimulatedValues::default());
        let node = Node::open_with(configuration, &mut disk, Some(&mut values), now).expect("it can be kept");
        let driver = Driver::new(node, Clients::new(1 << 30, 60_000), Sizes::default());
        let (events, arriving, finished) = (VecDeque::new(), Vec::new(), VecDeque::new());
        let world = Alone { now, events, arriving, disk, values, finished, lasts_us: 0 };
        Host { driver, world, clients: Vec::new() }
    }

    /// Connects a client that keeps `depth` requests under way.
    fn client(&mut self, request: &[&str], reply: &[u8], depth: usize) -> usize {
        let kind = ClientKind::Resp {
            address: "127.0.0.1:50000".into(),
            local_address: "127.0.0.1:7001".into(),
            fd: 3,
            tls: None,
        };
        let id = self.driver.node.connect(kind).expect("there is room");
        let wire = Rc::new(RefCell::new(Wire::default()));
        self.world.arriving.push((id, End(Rc::clone(&wire))));
        let (request, reply) = (encoded(request), reply.to_vec());
        self.turn(); // Its connection is accepted.
        self.clients.push(Client { id, wire, request, reply, depth, under_way: 0, answered: 0 });
        self.clients.len() - 1
    }

    /// Takes a turn, after every client has sent what it may.
    fn turn(&mut self) {
        self.world.now.monotonic_us += 1000;
        self.world.now.unix_ms += 1;
        for client in &mut self.clients {
            let mut wire = client.wire.borrow_mut();
            if client.under_way <= client.depth / 2 && client.under_way < client.depth {
                for _ in client.under_way..client.depth {
                    wire.sent.extend(&client.request);
                }
                client.under_way = client.depth;
                let change = Change { is_readable: true, ..Change::default() };
                self.world.events.push_back(Event::Client(client.id.index(), change));
            }
        }
        self.driver.turn(&mut self.world).expect("a disk that does not fail");
        for client in &mut self.clients {
            let mut wire = client.wire.borrow_mut();
            let count = wire.received.len() / client.reply.len();
            let received = String::from_utf8_lossy(&wire.received);
            let replies = client.reply.repeat(count + 1);
            assert!(replies.starts_with(&wire.received), "every reply is the same: {received}");
            wire.received.drain(..count * client.reply.len());
            client.answered += count;
            client.under_way -= count;
        }
    }

    /// Returns how many turns a client needs for each of `requests` requests, the most first.
    fn turns_for(&mut self, client: usize, requests: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        while taken.len() < requests {
            let before = self.clients[client].answered;
            let turns = (1..10_000).find(|_| {
                self.turn();
                self.clients[client].answered > before
            });
            taken.push(turns.expect("it is answered"));
        }
        taken.sort_unstable_by(|one, other| other.cmp(one));
        taken
    }
}

#[test]
fn a_client_that_asks_for_little_waits_little_beside_pipelines_of_scripts() {
    for pipelines in [1, 50] {
        let mut host = Host::start();
        let heavy: Vec<usize> =
            (0..pipelines).map(|_| host.client(&["EVAL", "return 1", "0"], b":1\r\n", 1000)).collect();
        (0..200).for_each(|_| host.turn());
        for (request, reply) in [(&["SET", "k", "v"][..], &b"+OK\r\n"[..]), (&["GET", "k"], b"$1\r\nv\r\n")] {
            let light = host.client(request, reply, 1);
            let turns = host.turns_for(light, 40);
            let (most, median) = (turns[0], turns[20]);
            // Each turn does some milliseconds of work; alone the client needs two or three.
            assert!(most <= 16 && median <= 10, "{request:?} beside {pipelines} pipelines: {turns:?}");
        }
        let before: Vec<usize> = heavy.iter().map(|client| host.clients[*client].answered).collect();
        (0..200).for_each(|_| host.turn());
        let done: Vec<usize> = heavy
            .iter()
            .zip(before)
            .map(|(client, before)| host.clients[*client].answered - before)
            .collect();
        let (least, most) = (done.iter().min().expect("one"), done.iter().max().expect("one"));
        assert!(*least > 0 && most / least <= 2, "they go on alike: {done:?}");
        assert!(done.iter().sum::<usize>() > 10_000, "turns are used: {done:?}");
    }
}

#[test]
fn a_client_that_asks_for_little_waits_little_beside_many_that_walk_through_all_keys() {
    let mut host = Host::start();
    let keys: Vec<String> = (0..5000).map(|number| format!("k{number}")).collect();
    let fill: Vec<&str> = ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key, "v"])).collect();
    let filling = host.client(&fill, b"+OK\r\n", 1);
    host.turns_for(filling, 1);
    host.clients[filling].depth = 0;
    let walking: Vec<usize> = (0..50).map(|_| host.client(&["KEYS", "nothing*"], b"*0\r\n", 10)).collect();
    (0..100).for_each(|_| host.turn());
    let light = host.client(&["SET", "k", "v"], b"+OK\r\n", 1);
    let turns = host.turns_for(light, 40);
    assert!(turns[0] <= 8 && turns[20] <= 5, "{turns:?}");
    assert!(walking.iter().all(|client| host.clients[*client].answered > 0), "all go on");
}

#[test]
fn every_client_of_many_with_long_writes_is_answered_though_none_sends_more() {
    let mut host = Host::start();
    let members: Vec<String> = (0..5000).map(|number| format!("m{number}")).collect();
    let fill: Vec<&str> = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
    let filling = host.client(&fill, b":5000\r\n", 1);
    host.turns_for(filling, 1);
    host.clients[filling].depth = 0;
    let long = ["SUNIONSTORE", "copy", "s"];
    let clients: Vec<usize> = (0..20).map(|_| host.client(&long, b":5000\r\n", 0)).collect();
    // While the disk is slow, the requests of others are under way when one gets its last reply.
    host.world.lasts_us = 20_000;
    for client in &clients {
        // The second portion is not taken whole because of the first one, though the client's share of the turn is not used up.
        for depth in [5, 40] {
            host.clients[*client].depth = depth;
            host.turn();
        }
        host.clients[*client].depth = 0;
    }
    let is_over = (0..20_000).any(|_| {
        host.turn();
        host.clients.iter().all(|client| client.under_way == 0)
    });
    let left: Vec<usize> = host.clients.iter().map(|client| client.under_way).collect();
    assert!(is_over, "requests that are not taken: {left:?}");
}

/// Of such a keyspace, each of these commands is taken only when the one before it has its outcome.
#[test]
fn a_pipeline_that_waits_in_vain_is_refused_together() {
    let mut configuration = configuration();
    let mut others = [configuration.nodes[0].clone(), configuration.nodes[0].clone()];
    (others[0].id, others[1].id) = (2, 3);
    configuration.nodes.extend(others);
    configuration.keyspaces =
        vec![Keyspace::parse("prefix= replication=consensus storage=disk").expect("a keyspace")];
    configuration.command_timeout_ms = 5000;
    // The other nodes never come, so this one is never admitted.
    let mut host = Host::open(configuration);
    let error = b"-LOADING the control group has not admitted node 1 yet; nothing was done\r\n";
    let client = host.client(&["APPEND", "k", "v"], error, 5);
    let mut answered = Vec::new();
    for ms in 0..12_000 {
        // In the meantime the client sends as many again. Nothing is read from it then.
        if ms == 2000 {
            host.clients[client].depth = 10;
        }
        if ms == 3000 {
            host.clients[client].depth = 0;
        }
        let before = host.clients[client].answered;
        host.turn();
        (before..host.clients[client].answered).for_each(|_| answered.push(ms));
    }
    assert!(answered.len() == 10, "each has an answer: {answered:?}");
    let waited: Vec<usize> =
        answered.iter().enumerate().map(|(place, ms)| ms - if place < 5 { 0 } else { 2000 }).collect();
    assert!(waited.iter().all(|ms| (5000..5050).contains(ms)), "each waits for its own time: {waited:?}");
}

/// A client that asks for little has its answer before those who have used much get on: it waits for the request that is being
/// carried out when it asks, and no other.
#[test]
fn a_client_that_asks_for_little_is_answered_in_the_turn_in_which_it_asks() {
    for pipelines in [1, 20] {
        let mut host = Host::start();
        let members: Vec<String> = (0..20_000).map(|number| format!("m{number}")).collect();
        let fill: Vec<&str> = ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
        let filling = host.client(&fill, b":20000\r\n", 1);
        host.turns_for(filling, 1);
        host.clients[filling].depth = 0;
        let long = ["SINTERCARD", "2", "s", "s"];
        let heavy: Vec<usize> = (0..pipelines).map(|_| host.client(&long, b":20000\r\n", 20)).collect();
        (0..200).for_each(|_| host.turn());
        let light = host.client(&["GET", "k"], b"$-1\r\n", 1);
        let turns = host.turns_for(light, 40);
        assert_eq!(turns, [1; 40], "beside {pipelines} pipelines");
        let answered = |host: &Host| heavy.iter().map(|client| host.clients[*client].answered).sum::<usize>();
        let before = answered(&host);
        (0..100).for_each(|_| host.turn());
        assert!(answered(&host) >= before + 100, "each turn does something for them");
    }
}

/// A node where a read counts as long that takes a hundredth of what it usually may.
fn with_short_steps() -> Configuration {
    let usual = configuration();
    Configuration { long_command_bytes: usual.long_command_bytes / 100, ..usual }
}

impl Host {
    fn serving(configuration: Configuration) -> Host {
        let mut host = Host::open(configuration);
        let serves = |host: &Host| host.driver.node.health().ready && host.driver.node.map_version() > 0;
        let is_ready = (0..5000).any(|_| {
            host.turn();
            serves(&host)
        });
        assert!(is_ready, "the node serves");
        host
    }

    /// Has a client send a request once. Returns after how many turns it is answered.
    fn once(&mut self, request: &[&str], reply: &[u8]) -> usize {
        let client = self.client(request, reply, 1);
        self.clients[client].depth = 1;
        let turns = self.turns_for(client, 1)[0];
        self.clients[client].depth = 0;
        turns
    }

    /// Fills a list, and returns its elements and what `LRANGE` answers.
    fn fill(&mut self, count: usize) -> Vec<u8> {
        let elements: Vec<String> = (0..count).map(|number| format!("element{number}")).collect();
        let fill: Vec<&str> = ["RPUSH", "l"].into_iter().chain(elements.iter().map(String::as_str)).collect();
        self.once(&fill, format!(":{count}\r\n").as_bytes());
        encoded(&fill[2..])
    }
}

/// A long read gets a little time in each turn, so clients that ask for little do not wait for it.
#[test]
fn a_client_that_asks_for_little_is_answered_in_the_turn_in_which_it_asks_beside_long_reads() {
    for readers in [1, 5] {
        let mut host = Host::serving(with_short_steps());
        let all = host.fill(10_000);
        let range = ["LRANGE", "l", "0", "-1"];
        assert!(host.once(&range, &all) > 5, "it takes several turns");
        let readers: Vec<usize> = (0..readers).map(|_| host.client(&range, &all, 3)).collect();
        (0..20).for_each(|_| host.turn());
        let before: Vec<usize> = readers.iter().map(|reader| host.clients[*reader].answered).collect();
        for (request, reply, most) in
            [(&["GET", "k"][..], &b"$-1\r\n"[..], 1), (&["SET", "other", "v"], b"+OK\r\n", 4)]
        {
            let light = host.client(request, reply, 1);
            let turns = host.turns_for(light, 100);
            assert!(turns[0] <= most, "{request:?} beside {} reads: {turns:?}", readers.len());
            host.clients[light].depth = 0;
        }
        (0..200).for_each(|_| host.turn());
        let after = readers.iter().map(|reader| host.clients[*reader].answered);
        assert!(after.zip(before).all(|(after, before)| after > before + 2), "all of them go on");
    }
}

/// A reader with a request behind its read, which is taken when the read has its reply.
#[test]
fn a_long_read_shows_its_beginning_and_what_its_client_asks_next_shows_what_came_in_the_meantime() {
    let mut host = Host::serving(with_short_steps());
    let mut all = host.fill(10_000);
    let mut both = encoded(&["LRANGE", "l", "0", "-1"]);
    both.extend(encoded(&["LLEN", "l"]));
    all.extend(b":10002\r\n");
    let reader = host.client(&[], &all, 0);
    host.clients[reader].request = both;
    host.clients[reader].depth = 1;
    host.turn();
    host.once(&["RPUSH", "l", "one", "more"], b":10002\r\n");
    assert_eq!(host.clients[reader].answered, 0, "the read is under way");
    assert_eq!(host.turns_for(reader, 1).len(), 1);
}

#[test]
fn a_long_read_ends_with_its_client() {
    let mut host = Host::serving(with_short_steps());
    let all = host.fill(10_000);
    let reader = host.client(&["LRANGE", "l", "0", "-1"], &all, 1);
    (0..3).for_each(|_| host.turn());
    let now_us = host.world.now.monotonic_us;
    assert!(host.driver.next_turn_us(&host.world) <= now_us, "the read goes on at once");
    let reader = host.clients.remove(reader);
    host.driver.node.disconnect(reader.id);
    (0..3).for_each(|_| host.turn());
    let now_us = host.world.now.monotonic_us;
    assert!(host.driver.next_turn_us(&host.world) > now_us, "nothing is left to do");
    host.driver.check_invariants();
}
