//! A cluster in memory: its nodes, the messages in flight between them, and a clock that only turns advance.

use crate::machine::{Beside, Machine, Process};
use crate::reading::Reply;
use driver::{Clients, Sizes};
use node::{
    ClientId, ClientKind, Configuration, Health, Keyspace, KeyspaceHealth, Node, NodeAddress, NodeId,
    StartError, StorageSettings,
};
use protocol::Now;
use protocol::planted::{Fault, Planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use storage::Disk;
use storage::simulated_values::SimulatedValues;
use wire::frame::{self, Next};
use wire::resp::ArgumentsBuffer;

/// The longest wait, in milliseconds; a test that waits longer fails.
const PATIENCE_MS: u64 = 20_000;

const START_UNIX_MS: u64 = 1_700_000_000_000;

/// A client and the node that it is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) node: NodeId,
    pub(crate) id: ClientId,
}

/// What a client has received.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    is_closed: bool,
    /// Whether it reads nothing of its output.
    does_not_read: bool,
}

impl Inbox {
    /// Takes the client's output from the node. A long reply arrives in several parts.
    pub(crate) fn take(&mut self, node: &mut Node, client: ClientId) {
        loop {
            let Some(output) = node.output(client) else {
                self.is_closed = true;
                return;
            };
            if self.does_not_read {
                return;
            }
            self.bytes.append(&mut output.bytes);
            if output.is_over() {
                node.disconnect(client);
            } else if output.is_written() {
                return;
            }
        }
    }
}

/// The configuration of a cluster.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) configuration: Configuration,
}

/// Three nodes with one keyspace and perhaps a planted fault, and the random numbers for a schedule.
pub(crate) fn seeded(keyspace: &str, seed: u64, fault: Option<Fault>) -> (Cluster, Draws) {
    let planted = fault.map(Planted::one).unwrap_or_default();
    let cluster = setup(3, &[keyspace]).with(|configuration| configuration.planted = planted).start();
    (cluster, Draws(seed * 0x9e37_79b9 + 1))
}

/// Random numbers from a seed.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Creates the setup of a cluster of `nodes`, with keyspaces as on the command line.
pub(crate) fn setup(nodes: u16, keyspaces: &[&str]) -> Setup {
    let address = |id| NodeAddress {
        id,
        host: "127.0.0.1".into(),
        client_port: 7000 + id,
        http_port: 8000 + id,
        peer_port: 9000 + id,
    };
    // Most tests are about leader-follower; the others name their protocol.
    let parse = |text: &&str| {
        let replication = if text.contains("replication=") { "" } else { " replication=leader-follower" };
        Keyspace::parse(&format!("{text}{replication}")).expect("a keyspace")
    };
    let mut keyspaces: Vec<Keyspace> = keyspaces.iter().map(parse).collect();
    if !keyspaces.iter().any(|keyspace| keyspace.prefix.is_empty()) {
        keyspaces.push(parse(&"prefix="));
    }
    Setup {
        configuration: Configuration {
            node: 0,
            cluster: "test".into(),
            nodes: (1..=nodes).map(address).collect(),
            keyspaces,
            value_bytes_max: 1 << 20,
            connections_max: 100,
            output_bytes_max: 8 << 20,
            memory_max: 0,
            command_timeout_ms: 5000,
            long_command_bytes: node::LONG_COMMAND_BYTES,
            patience: 1,
            groups_max: 1000,
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
            storage: StorageSettings { segment_bytes: 1 << 20, ..Default::default() },
            seed: 7,
            table_seed: 8,
            releases: wire::release::RELEASES,
            traced_share: None,
            process: Default::default(),
            planted: Default::default(),
        },
    }
}

impl Setup {
    /// Applies a change to every configuration.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Configuration)) -> Setup {
        change(&mut self.configuration);
        self
    }

    fn open(
        &self,
        id: NodeId,
        run: u64,
        now: Now,
        Beside { disk, values, .. }: &mut Beside,
    ) -> Result<Process, StartError> {
        let mut configuration = self.configuration.clone();
        configuration.node = id;
        configuration.seed += u64::from(id) + 100 * run;
        configuration.identity += u64::from(id) + 100 * run;
        let node = Node::open_with(configuration, disk, Some(values), now)?;
        Ok(Process::new(node, Clients::new(0, 0), Sizes::default()))
    }

    /// Starts the cluster and waits until it serves everywhere.
    pub(crate) fn start(self) -> Cluster {
        let mut cluster = self.start_cold();
        cluster.settle();
        cluster
    }

    /// Starts the cluster; nothing has happened yet.
    pub(crate) fn start_cold(self) -> Cluster {
        let now = Now { monotonic_us: 1_000_000, unix_ms: START_UNIX_MS };
        let ids = 1..=self.configuration.nodes.len() as NodeId;
        let mut beside: BTreeMap<NodeId, Beside> = ids.clone().map(|id| (id, Beside::default())).collect();
        let open = |(id, beside): (&NodeId, &mut Beside)| {
            (*id, self.open(*id, 1, now, beside).expect("a configuration that can be kept"))
        };
        let mut cluster = Cluster {
            nodes: beside.iter_mut().map(open).collect(),
            beside,
            epochs: ids.clone().map(|id| (id, 1)).collect(),
            setup: self,
            now,
            clocks_ahead_ms: BTreeMap::new(),
            links: BTreeSet::new(),
            paused: BTreeSet::new(),
            on_the_way: BTreeMap::new(),
            slow: BTreeMap::new(),
            urgent: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            recorded: None,
            damaging: BTreeSet::new(),
        };
        for a in ids.clone() {
            ids.clone().filter(|b| a < *b).for_each(|b| cluster.mend_link(a, b));
        }
        cluster
    }
}

/// Nodes, the links between them, their clients, and the time.
pub(crate) struct Cluster {
    setup: Setup,
    /// The running nodes.
    nodes: BTreeMap<NodeId, Process>,
    /// The nodes' disks, and the work done there.
    beside: BTreeMap<NodeId, Beside>,
    /// The epoch of each node's last start.
    epochs: BTreeMap<NodeId, u64>,
    pub(crate) now: Now,
    /// How many milliseconds wall clocks are ahead.
    clocks_ahead_ms: BTreeMap<NodeId, i64>,
    /// Pairs of linked nodes, the lower one first.
    links: BTreeSet<(NodeId, NodeId)>,
    paused: BTreeSet<NodeId>,
    /// Payloads of frames in flight, by sender and receiver.
    on_the_way: BTreeMap<(NodeId, NodeId), VecDeque<Vec<u8>>>,
    /// Slow links, by sender and receiver: bytes per turn, and the bytes of the next frame that have arrived.
    slow: BTreeMap<(NodeId, NodeId), (usize, usize)>,
    /// Frames that do not wait on slow links.
    urgent: BTreeMap<(NodeId, NodeId), VecDeque<Vec<u8>>>,
    inboxes: BTreeMap<Client, Inbox>,
    /// Every frame delivered since recording began, with its sender and receiver.
    recorded: Option<Vec<(NodeId, NodeId, Vec<u8>)>>,
    /// Nodes whose long frames arrive with a flipped bit.
    damaging: BTreeSet<NodeId>,
}

/// The least length of a frame that [`Cluster::damage_frames_of`] damages, in bytes: while little is written, only pieces
/// of values are that long.
const LONG_FRAME_BYTES: usize = 500;

impl Cluster {
    // Time.

    /// Executes one turn of every running node. Messages sent in this turn arrive in the next one.
    pub(crate) fn turn(&mut self) {
        self.now.monotonic_us += 1000;
        self.now.unix_ms += 1;
        let running: Vec<NodeId> =
            self.nodes.keys().copied().filter(|id| !self.paused.contains(id)).collect();
        let mut written = Vec::new();
        for id in running {
            let peers = self.peers_of(id);
            let arrived: BTreeMap<_, _> =
                peers.iter().map(|from| (*from, self.arriving(*from, id))).collect();
            let ahead_ms = self.clocks_ahead_ms.get(&id).copied().unwrap_or(0);
            let unix_ms = self.now.unix_ms.saturating_add_signed(ahead_ms);
            let events = arrived.iter().filter(|(_, frames)| !frames.is_empty()).map(|(from, _)| *from);
            let mut machine = Machine {
                own: id,
                now: Now { unix_ms, ..self.now },
                beside: self.beside.get_mut(&id).expect("every node has a disk"),
                events: events.collect(),
                arrived,
                read: Vec::new(),
                peers: &peers,
                written: Vec::new(),
                inboxes: &mut self.inboxes,
                resident_bytes: 0,
            };
            self.nodes.get_mut(&id).expect("it runs").turn(&mut machine).expect("a disk that does not fail");
            let Machine { read, written: sent, arrived, .. } = machine;
            for (from, mut unread) in arrived {
                let way = self.on_the_way.entry((from, id)).or_default();
                unread.append(way);
                *way = unread;
            }
            if let Some(recorded) = &mut self.recorded {
                recorded.extend(read.into_iter().map(|(from, payload)| (from, id, payload)));
            }
            written.extend(sent.into_iter().map(|(to, bytes)| (id, to, bytes)));
        }
        for (from, to, [usual, urgent]) in written {
            let bytes_max = self.node(from).peer_payload_bytes_max();
            for (bytes, ways) in [(usual, &mut self.on_the_way), (urgent, &mut self.urgent)] {
                let way = ways.entry((from, to)).or_default();
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    match frame::next(rest, bytes_max) {
                        Ok(Next::Frame { payload, consumed }) => {
                            way.push_back(payload.to_vec());
                            rest = &rest[consumed..];
                        }
                        other => panic!("node {from} sends no whole frame: {other:?}"),
                    }
                }
            }
        }
    }

    /// Takes what arrives in this turn from one node at another.
    fn arriving(&mut self, from: NodeId, to: NodeId) -> VecDeque<Vec<u8>> {
        let way = self.on_the_way.entry((from, to)).or_default();
        let mut arriving = self.urgent.get_mut(&(from, to)).map(std::mem::take).unwrap_or_default();
        match self.slow.get_mut(&(from, to)) {
            None => arriving.append(way),
            Some((bytes_per_turn, arrived)) => {
                *arrived += *bytes_per_turn;
                while let Some(frame) = way.pop_front_if(|frame| frame.len() <= *arrived) {
                    *arrived -= frame.len();
                    arriving.push_back(frame);
                }
                // Unused bandwidth is not saved up.
                if way.is_empty() {
                    *arrived = 0;
                }
            }
        }
        if self.damaging.contains(&from) {
            for payload in arriving.iter_mut().filter(|payload| payload.len() >= LONG_FRAME_BYTES) {
                *payload.last_mut().expect("it is long") ^= 1;
            }
        }
        arriving
    }

    /// Flips a bit in every long frame of a node from now on. The frames have valid checksums, as if the node's memory were
    /// faulty.
    pub(crate) fn damage_frames_of(&mut self, id: NodeId) {
        self.damaging.insert(id);
    }

    /// Takes a node's output for its clients between turns.
    fn collect_replies(&mut self, id: NodeId) {
        let Some(Process { node, .. }) = self.nodes.get_mut(&id) else { return };
        let mut ready = Vec::new();
        node.ready_clients(&mut ready);
        for (client, inbox) in self.inboxes.iter_mut().filter(|(client, _)| client.node == id) {
            inbox.take(node, client.id);
        }
    }

    /// Sets a node's wall clock ahead of the right time.
    pub(crate) fn set_clock(&mut self, id: NodeId, ahead_ms: i64) {
        self.clocks_ahead_ms.insert(id, ahead_ms);
    }

    /// Runs turns until a condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Cluster) -> bool) {
        let by_us = self.now.monotonic_us + PATIENCE_MS * 1000;
        while !holds(self) {
            assert!(self.now.monotonic_us < by_us, "waited in vain: {what}");
            self.turn();
        }
    }

    pub(crate) fn turns(&mut self, count: u64) {
        (0..count).for_each(|_| self.turn());
    }

    /// Returns in how many of `count` turns a node wants the next turn at once. If it does in all of them, the node is never
    /// idle.
    pub(crate) fn restless_turns(&mut self, id: NodeId, count: u64) -> u64 {
        let mut restless = 0;
        for _ in 0..count {
            self.turn();
            restless += u64::from(self.nodes[&id].node.next_wakeup_us() <= self.now.monotonic_us);
        }
        restless
    }

    /// Returns how many milliseconds something takes.
    pub(crate) fn time(&mut self, run: impl FnOnce(&mut Cluster)) -> u64 {
        let before_us = self.now.monotonic_us;
        run(self);
        (self.now.monotonic_us - before_us) / 1000
    }

    /// Runs turns until every keyspace is served, with all of its replicas in step and nothing left to send to them.
    pub(crate) fn settle(&mut self) {
        self.until("the cluster settles", |cluster| {
            let ids: Vec<NodeId> = cluster.nodes.keys().copied().collect();
            ids.into_iter().all(|id| {
                let health = cluster.health(id);
                health.keyspaces.iter().all(|keyspace| {
                    // Without a leader, every replica accepts writes.
                    let leads = keyspace.leader == id || keyspace.role == "replica";
                    let reached = keyspace
                        .followers
                        .iter()
                        .all(|follower| follower.state == "streaming" && follower.lag == 0);
                    keyspace.ready && keyspace.lag == 0 && reached && keyspace.writable == leads
                })
            })
        });
    }

    // Nodes and links.

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes.get_mut(&id).expect("the node runs").node
    }

    pub(crate) fn health(&self, id: NodeId) -> Health {
        self.nodes[&id].node.health()
    }

    /// Returns the state of a keyspace on a node. `default` is the one without a prefix.
    pub(crate) fn keyspace(&self, id: NodeId, name: &str) -> KeyspaceHealth {
        let prefix = if name == "default" { "" } else { name };
        let mut keyspaces = self.health(id).keyspaces.into_iter();
        keyspaces.find(|keyspace| keyspace.prefix == prefix).expect("the keyspace is there")
    }

    fn peers_of(&self, id: NodeId) -> Vec<NodeId> {
        self.setup.configuration.nodes.iter().map(|address| address.id).filter(|peer| *peer != id).collect()
    }

    /// Breaks the link between two nodes, which both notice. Messages in flight on it are lost.
    pub(crate) fn break_link(&mut self, a: NodeId, b: NodeId) {
        if self.links.remove(&(a.min(b), a.max(b))) {
            for (from, to) in [(a, b), (b, a)] {
                self.on_the_way.remove(&(from, to));
                self.urgent.remove(&(from, to));
                if let Some(Process { node, .. }) = self.nodes.get_mut(&from) {
                    node.peer_link(to, None);
                }
                self.collect_replies(from);
            }
        }
    }

    pub(crate) fn mend_link(&mut self, a: NodeId, b: NodeId) {
        if self.links.insert((a.min(b), a.max(b))) {
            for (from, to) in [(a, b), (b, a)] {
                if let Some(Process { node, .. }) = self.nodes.get_mut(&from) {
                    node.peer_link(to, Some(wire::release::RELEASES.newest));
                }
            }
        }
    }

    /// Breaks every link of a node.
    pub(crate) fn cut_off(&mut self, id: NodeId) {
        self.peers_of(id).into_iter().for_each(|peer| self.break_link(id, peer));
    }

    /// Restores every link of a node to others that run.
    pub(crate) fn reconnect(&mut self, id: NodeId) {
        let running: Vec<NodeId> =
            self.peers_of(id).into_iter().filter(|peer| self.nodes.contains_key(peer)).collect();
        running.into_iter().for_each(|peer| self.mend_link(id, peer));
    }

    /// Limits how many bytes a link carries in a turn, in each direction; `None` removes the limit. Urgent messages have a
    /// second link.
    pub(crate) fn set_bandwidth(&mut self, a: NodeId, b: NodeId, bytes_per_turn: Option<usize>) {
        for (from, to) in [(a, b), (b, a)] {
            match bytes_per_turn {
                Some(bytes) => self.slow.insert((from, to), (bytes, 0)),
                None => self.slow.remove(&(from, to)),
            };
            self.node(from).peer_urgent_link(to, bytes_per_turn.is_some());
        }
    }

    /// Takes the frames in flight from one node to another that `is_taken` selects: they do not arrive.
    pub(crate) fn take_from_way(
        &mut self,
        from: NodeId,
        to: NodeId,
        is_taken: impl Fn(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        let way = self.on_the_way.entry((from, to)).or_default();
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(way).into_iter().partition(|frame| is_taken(frame));
        *way = left;
        Vec::from(taken)
    }

    /// Returns the number of bytes in flight from one node to another.
    pub(crate) fn waiting_bytes(&self, from: NodeId, to: NodeId) -> usize {
        self.on_the_way.get(&(from, to)).into_iter().flatten().map(Vec::len).sum()
    }

    /// Pauses a node: it takes no turns, and what is sent to it waits.
    pub(crate) fn pause(&mut self, id: NodeId) {
        self.paused.insert(id);
    }

    pub(crate) fn go_on(&mut self, id: NodeId) {
        self.paused.remove(&id);
    }

    /// Kills a node's process; its memory and its clients' connections are lost.
    pub(crate) fn kill(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        self.beside.get_mut(&id).expect("every node has a disk").forget();
        self.cut_off(id);
        self.paused.remove(&id);
        for (_, inbox) in self.inboxes.iter_mut().filter(|(client, _)| client.node == id) {
            inbox.is_closed = true;
        }
    }

    /// Restarts a dead node, without memory and with a new epoch.
    pub(crate) fn restart(&mut self, id: NodeId) {
        let epoch = self.epochs[&id] + 1;
        self.restart_in_epoch(id, epoch);
    }

    /// Returns the size of the files on a node's disk, in bytes.
    pub(crate) fn log_bytes(&mut self, id: NodeId) -> u64 {
        let disk = &mut self.beside.get_mut(&id).expect("every node has a disk").disk;
        let files = disk.list().expect("a disk in memory");
        files.iter().map(|file| disk.length(file).expect("it is there")).sum()
    }

    /// Gives a dead node a new, empty disk.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        self.beside.insert(id, Beside::default());
    }

    /// Makes a node's disk full from now on, or removes the limit.
    pub(crate) fn set_disk_full(&mut self, id: NodeId, is_full: bool) {
        self.beside.get_mut(&id).expect("every node has a disk").disk.set_full(is_full);
    }

    pub(crate) fn restart_in_epoch(&mut self, id: NodeId, epoch: u64) {
        assert!(!self.nodes.contains_key(&id), "node {id} still runs");
        self.inboxes.retain(|client, _| client.node != id);
        self.epochs.insert(id, epoch);
        if let Err(why) = self.try_restart(id) {
            panic!("node {id} does not start: {why}");
        }
        self.reconnect(id);
    }

    /// Tries to restart a dead node.
    pub(crate) fn try_restart(&mut self, id: NodeId) -> Result<(), StartError> {
        let beside = self.beside.get_mut(&id).expect("every node has a disk");
        self.nodes.insert(id, self.setup.open(id, self.epochs[&id], self.now, beside)?);
        Ok(())
    }

    /// Returns the storage of a node's large values.
    pub(crate) fn values(&mut self, id: NodeId) -> &mut SimulatedValues {
        &mut self.beside.get_mut(&id).expect("every node has a store").values
    }

    /// Records every frame that arrives from now on.
    pub(crate) fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// Returns the recorded frames: sender, receiver, payload.
    pub(crate) fn recorded(&mut self) -> Vec<(NodeId, NodeId, Vec<u8>)> {
        self.recorded.take().unwrap_or_default()
    }

    // Clients.

    /// Connects a client.
    pub(crate) fn client(&mut self, node: NodeId) -> Client {
        self.try_client(node).expect("there is room for another client")
    }

    pub(crate) fn try_client(&mut self, node: NodeId) -> Option<Client> {
        let number = self.inboxes.len();
        let kind = ClientKind::Resp {
            address: format!("127.0.0.1:{}", 50_000 + number),
            local_address: format!("127.0.0.1:{}", 7000 + node),
            fd: number as i32,
            tls: None,
        };
        let id = self.node(node).connect(kind)?;
        let client = Client { node, id };
        self.inboxes.insert(client, Inbox::default());
        Some(client)
    }

    /// Closes the client's connection.
    pub(crate) fn close(&mut self, client: Client) {
        self.node(client.node).disconnect(client.id);
        self.inboxes.remove(&client);
    }

    /// From now on the client reads nothing.
    pub(crate) fn stop_reading(&mut self, client: Client) {
        self.inbox(client).does_not_read = true;
    }

    /// Sends a request, written as words.
    pub(crate) fn send(&mut self, client: Client, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send_words(client, &words);
    }

    pub(crate) fn send_words(&mut self, client: Client, words: &[&[u8]]) {
        let request: ArgumentsBuffer = words.iter().copied().collect();
        self.node(client.node).request(client.id, request.as_arguments());
        self.collect_replies(client.node);
    }

    /// Returns the client's next reply if it has arrived.
    pub(crate) fn arrived(&mut self, client: Client) -> Option<String> {
        Reply::take(&mut self.inbox(client).bytes).map(|reply| reply.to_string())
    }

    /// Waits for the client's next reply, and returns it.
    pub(crate) fn reply(&mut self, client: Client) -> String {
        self.read(client).to_string()
    }

    fn read(&mut self, client: Client) -> Reply {
        let mut reply = None;
        self.until("a reply", |cluster| {
            let inbox = cluster.inbox(client);
            reply = Reply::take(&mut inbox.bytes);
            assert!(reply.is_some() || !inbox.is_closed, "the connection ends without the reply");
            reply.is_some()
        });
        reply.expect("it is there")
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, client: Client, line: &str) -> String {
        self.ask_for(client, line).to_string()
    }

    pub(crate) fn ask_for(&mut self, client: Client, line: &str) -> Reply {
        self.send(client, line);
        self.read(client)
    }

    /// Sends requests without waiting in between, and waits for all their replies.
    pub(crate) fn pipeline(&mut self, client: Client, lines: &[&str]) -> Vec<String> {
        lines.iter().for_each(|line| self.send(client, line));
        lines.iter().map(|_| self.reply(client)).collect()
    }

    /// Whether the node has closed the client's connection.
    pub(crate) fn is_closed(&mut self, client: Client) -> bool {
        self.inbox(client).is_closed
    }

    fn inbox(&mut self, client: Client) -> &mut Inbox {
        self.inboxes.get_mut(&client).expect("the client is connected")
    }

    // Contents.

    /// Returns every key with its value and deadline, as a node reports them. The keyspaces must have `reads=any`
    /// where the node does not lead.
    pub(crate) fn contents(&mut self, id: NodeId) -> BTreeMap<String, (String, String)> {
        let client = self.client(id);
        let keys = self.ask_for(client, "KEYS *").elements();
        let mut contents = BTreeMap::new();
        for key in keys.into_iter().map(Reply::text) {
            let value = self.ask(client, &format!("GET {key}"));
            let deadline = self.ask(client, &format!("PEXPIRETIME {key}"));
            contents.insert(key, (value, deadline));
        }
        contents
    }
}

/// Plays a script: each line is a request, an arrow and the expected reply.
#[track_caller]
pub(crate) fn play(cluster: &mut Cluster, client: Client, script: &str) {
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (request, expected) = line.split_once("->").expect("an arrow");
        assert_eq!(cluster.ask(client, request.trim()), expected.trim(), "{line}");
    }
}

/// Asserts that a reply is an error with this code. A code of Quorate's own may follow one of Redis's codes, which is
/// skipped.
#[track_caller]
pub(crate) fn assert_error(reply: &str, code: &str) {
    let mut words = reply.strip_prefix('-').unwrap_or_default().split(' ');
    let is_behind = |word: &&str| !["CLUSTERDOWN", "TRYAGAIN"].contains(word);
    assert_eq!(words.find(is_behind), Some(code), "{reply}");
}
