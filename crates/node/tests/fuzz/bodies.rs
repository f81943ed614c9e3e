//! What must hold for anything that clients and peers send to a node. Property tests draw the input at random; the fuzz
//! targets, which include this file, search for it.

use cluster::control::ClusterMap;
use node::{ClientId, ClientKind, Configuration, Keyspace, Node, NodeAddress, StorageSettings};
use protocol::Now;
use storage::MemoryDisk;
use storage::simulated_values::SimulatedValues;
use wire::release::RELEASES;
use wire::resp::ArgumentsBuffer;

/// A keyspace of each protocol, small enough to be created for each input.
const KEYSPACES: [&str; 5] = [
    "prefix= replication=leader-follower",
    "prefix=c: replication=consensus",
    "prefix=f: replication=leader-follower durability=fsync storage=disk",
    "prefix=a: replication=abd",
    "prefix=b: replication=blocking durability=os",
];

const START_UNIX_MS: u64 = 1_700_000_000_000;

/// A single node as a cluster, and its disk.
pub(crate) struct Host {
    pub(crate) node: Node,
    disk: MemoryDisk,
    values: SimulatedValues,
    now: Now,
}

impl Host {
    /// Starts a node that serves.
    pub(crate) fn start() -> Host {
        let address = NodeAddress {
            id: 1,
            host: "127.0.0.1".into(),
            client_port: 7001,
            http_port: 8001,
            peer_port: 9001,
        };
        let configuration = Configuration {
            node: 1,
            cluster: "fuzzed".into(),
            nodes: vec![address],
            keyspaces: KEYSPACES.map(|text| Keyspace::parse(text).expect("a keyspace")).to_vec(),
            value_bytes_max: 1 << 16,
            connections_max: 10,
            groups_max: 300,
            output_bytes_max: 8 << 20,
            memory_max: 0,
            command_timeout_ms: 5000,
            long_command_bytes: 4096,
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
            storage: StorageSettings {
                segment_bytes: 1 << 16,
                checkpoint_bytes: 1 << 16,
                ..Default::default()
            },
            seed: 7,
            table_seed: 8,
            releases: RELEASES,
            traced_share: None,
            process: Default::default(),
            planted: Default::default(),
        };
        let now = Now { monotonic_us: 1_000_000, unix_ms: START_UNIX_MS };
        let (mut disk, mut values) = (MemoryDisk::new(), SimulatedValues::default());
        let node = Node::open_with(configuration, &mut disk, Some(&mut values), now);
        let mut host = Host { node: node.expect("it can be kept"), disk, values, now };
        let turns = (0..2000).find(|_| {
            host.turn();
            host.node.health().ready && host.node.map_version() > 0
        });
        assert!(turns.is_some(), "the node serves");
        host
    }

    pub(crate) fn turn(&mut self) {
        self.now.monotonic_us += 5000;
        self.now.unix_ms += 5;
        self.node.begin_turn(self.now);
        self.end_turn();
    }

    fn end_turn(&mut self) {
        self.node.flush();
        self.node.end_turn(&mut self.disk);
        let mut work = Vec::new();
        self.node.take_work(&mut work);
        for work in work {
            let result = work.run(&mut self.disk);
            self.node.work_finished(work, result);
        }
        let mut work = Vec::new();
        self.node.take_value_work(&mut work);
        for work in work {
            let result = work.run(&mut self.values);
            self.node.value_work_finished(work, result);
        }
        let mut lines = Vec::new();
        self.node.take_log(&mut lines);
        for line in lines {
            assert!(
                !line.text.chars().any(char::is_control),
                "a line of the log is one line: {:?}",
                line.text
            );
        }
    }

    fn connect(&mut self) -> Option<ClientId> {
        let (address, local_address) = ("127.0.0.1:50000".to_string(), "127.0.0.1:7001".to_string());
        self.node.connect(ClientKind::Resp { address, local_address, fd: 9, tls: None })
    }

    fn request(&mut self, client: ClientId, words: &[&[u8]]) {
        let request: ArgumentsBuffer = words.iter().copied().collect();
        self.node.request(client, request.as_arguments());
    }

    /// Takes a client's output, if it is still connected.
    pub(crate) fn take_output(&mut self, client: ClientId) -> Option<Vec<u8>> {
        let output = self.node.output(client)?;
        Some(std::mem::take(&mut output.bytes))
    }

    /// Checks that an operator's views exist, whatever has happened.
    pub(crate) fn look(&mut self) {
        let mut metrics = String::new();
        self.node.metrics(&mut metrics);
        assert!(metrics.contains("quorate_keyspace_ready") && !metrics.contains('\r'));
        let health = self.node.health();
        assert!(!health.cluster.is_empty());
    }
}

/// Bytes that choose what to do next; zeros when they are used up.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl<'a> Choices<'a> {
    pub(crate) fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.0.is_empty()
    }
}

/// Words that commands know, and similar ones.
const WORDS: [&str; 148] = [
    "ADD",
    "REMOVE",
    "REPLACE",
    "ACCEPTLOSS",
    "MAP",
    "REPORT",
    "INFO",
    "NODES",
    "SLOTS",
    "SHARDS",
    "MYID",
    "KEYSLOT",
    "HELP",
    "CREATE",
    "DROP",
    "GET",
    "SET",
    "LIST",
    "RECOVER",
    "prefix=x:",
    "replication=abd",
    "replication=blocking",
    "replication=consensus",
    "replication=leader-follower",
    "acks=all",
    "acks=none",
    "acks=1",
    "shards=3",
    "shards=256",
    "replicas=1",
    "durability=fsync",
    "durability=none",
    "reads=any",
    "lease=off",
    "retry=none",
    "coding=2",
    "coding=adaptive",
    "storage=disk",
    "backlog_bytes=1",
    "leader=1",
    "shards=",
    "=",
    "replication=",
    "x:",
    "c:",
    "a:",
    "b:",
    "f:",
    "",
    "ID",
    "SETNAME",
    "GETNAME",
    "KILL",
    "PAUSE",
    "UNPAUSE",
    "REPLY",
    "ON",
    "OFF",
    "SKIP",
    "TRACKING",
    "NO-EVICT",
    "NO-TOUCH",
    "SETINFO",
    "LIB-NAME",
    "LIB-VER",
    "ADDR",
    "LADDR",
    "TYPE",
    "normal",
    "USER",
    "SKIPME",
    "yes",
    "no",
    "RESETSTAT",
    "REWRITE",
    "maxmemory",
    "*",
    "proto-max-bulk-len",
    "timeout",
    "ACQUIRE",
    "RELEASE",
    "RENEW",
    "SESSION",
    "WAIT",
    "TTL",
    "PX",
    "EX",
    "PXAT",
    "EXAT",
    "NX",
    "XX",
    "KEEPTTL",
    "OPEN",
    "CLOSE",
    "MATCH",
    "COUNT",
    "NOVALUES",
    "LOAD",
    "EXISTS",
    "FLUSH",
    "ASYNC",
    "SYNC",
    "CHANNELS",
    "NUMSUB",
    "NUMPAT",
    "SHARDCHANNELS",
    "AUTH",
    "3",
    "2",
    "PING",
    "0",
    "1",
    "-1",
    "7",
    "9001",
    "65536",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "1e400",
    "nan",
    "0x10",
    "127.0.0.1",
    "host",
    "k",
    "c:k",
    "a:k",
    "b:k",
    "f:k",
    "c:h",
    "{c:}x",
    "v",
    "[a-z]*",
    "h?llo",
    "FIELDS",
    "return redis.call('GET', KEYS[1])",
    "return redis.pcall('CLUSTER', 'INFO')",
    "DOCS",
    "COUNT",
    "GETKEYS",
    "GETKEYSANDFLAGS",
    "FILTERBY",
    "MODULE",
    "ACLCAT",
    "PATTERN",
    "everything",
    "server",
    "memory",
];

/// Sends a client's commands, each with arbitrary words, to a node, which must not panic and must reply in RESP.
pub(crate) fn commands(data: &[u8]) {
    let mut choices = Choices(data);
    let mut host = Host::start();
    let Some(asking) = host.connect() else { unreachable!("there is room") };
    let names = names(&mut host, asking);
    let mut clients = vec![asking];
    const COMMANDS_MAX: usize = 64;
    for _ in 0..COMMANDS_MAX {
        if choices.is_used_up() {
            break;
        }
        let kind = choices.byte();
        if kind == 0
            && let Some(client) = host.connect()
        {
            clients.push(client);
        }
        let client = clients[kind % clients.len()];
        // Operators' commands are only some of all commands, but half of those that are tried.
        const OPERATORS: [&str; 8] =
            ["CLUSTER", "KEYSPACE", "CLIENT", "CONFIG", "LOCK", "COMMAND", "SCRIPT", "QUORATE.PUT"];
        let choice = choices.byte();
        let name = match choice < 128 {
            true => OPERATORS[choice % OPERATORS.len()].as_bytes(),
            false => names[(choice + 128 * choices.byte()) % names.len()].as_bytes(),
        };
        let mut words = vec![name];
        for _ in 0..choices.byte() % 8 {
            let word = choices.byte();
            words.push(match WORDS.get(word) {
                Some(word) => word.as_bytes(),
                None => {
                    let count = choices.byte() % 16;
                    choices.bytes(count)
                }
            });
        }
        host.request(client, &words);
        if kind % 4 == 0 {
            host.turn();
        }
        clients.retain(|client| {
            let output = host.take_output(*client);
            output.iter().for_each(|output| assert_resp(output, &words));
            output.is_some()
        });
        if clients.is_empty() {
            let Some(client) = host.connect() else { break };
            clients.push(client);
        }
    }
    (0..20).for_each(|_| host.turn());
    host.look();
    for client in clients {
        if let Some(output) = host.take_output(client) {
            assert_resp(&output, &[]);
        }
    }
}

/// Returns the names of all commands.
fn names(host: &mut Host, client: ClientId) -> Vec<String> {
    host.request(client, &[b"COMMAND", b"LIST"]);
    host.turn();
    let output = host.take_output(client).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let names: Vec<String> = text
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty())
        .map(String::from)
        .collect();
    assert!(names.len() > 50, "the commands are listed: {text}");
    names
}

/// Asserts that the bytes are complete replies, one after the other.
fn assert_resp(bytes: &[u8], words: &[&[u8]]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let after = resp(rest);
        let Some(after) = after else {
            let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            panic!("{shown:?} is answered by what is no RESP: {}", rest.escape_ascii());
        };
        rest = after;
    }
}

/// Returns what follows the first reply; `None` if that is incomplete or invalid.
fn resp(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, mut rest) = (std::str::from_utf8(&bytes[1..end]).ok(), &bytes[end + 2..]);
    let number = || line?.parse::<i64>().ok();
    match bytes.first()? {
        b'+' | b'-' => Some(rest).filter(|_| !bytes[1..end].contains(&b'\n')),
        b':' | b'(' => number().map(|_| rest),
        b'_' => Some(rest).filter(|_| end == 1),
        b'#' => Some(rest).filter(|_| matches!(line, Some("t" | "f"))),
        b',' => Some(rest).filter(|_| line.is_some_and(|text| text.parse::<f64>().is_ok())),
        b'$' | b'=' | b'!' => {
            let Ok(count) = usize::try_from(number()?) else {
                return Some(rest).filter(|_| line == Some("-1"));
            };
            let (_, behind) = rest.split_at_checked(count)?;
            behind.strip_prefix(b"\r\n")
        }
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let Ok(count) = usize::try_from(number()?) else {
                return Some(rest).filter(|_| line == Some("-1"));
            };
            for _ in 0..count * if *kind == b'%' { 2 } else { 1 } {
                rest = resp(rest)?;
            }
            Some(rest)
        }
        _ => None,
    }
}

/// The first bytes of an envelope with a message of the control group, and those of such a message with a map in it.
const TO_CONTROL: [u8; 3] = [1, 0, 0];
const MAP: u8 = 3;

/// Gives a node bytes as a cluster map from a peer, or as whole messages with one. An accepted map must be valid, and the
/// node must go on.
pub(crate) fn map(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let mut host = Host::start();
    let Some(client) = host.connect() else { unreachable!("there is room") };
    host.request(client, &[b"CLUSTER", b"ADD", b"2", b"127.0.0.1", b"7002", b"8002", b"9002"]);
    (0..10).for_each(|_| host.turn());
    assert_eq!(host.take_output(client).as_deref(), Some(&b"+OK\r\n"[..]));
    host.node.peer_link(2, Some(RELEASES.newest));
    let mut base: ClusterMap = (**host.node.cluster_map()).clone();
    base.version += 1;
    let frame = match kind % 4 {
        // The bytes as the whole frame.
        0 => data.to_vec(),
        1 => [&TO_CONTROL[..], data].concat(),
        2 => frame_with_map(data),
        // A nearly valid map.
        _ => {
            let mut bytes = base.encode();
            let mut choices = Choices(data);
            while !choices.is_used_up() && !bytes.is_empty() {
                let at = (choices.byte() << 8 | choices.byte()) % bytes.len();
                let (removed, length) = (choices.byte() % 8, choices.byte() % 8);
                let end = (at + removed).min(bytes.len());
                bytes.splice(at..end, choices.bytes(length).iter().copied());
            }
            if let Ok(map) = ClusterMap::decode(&bytes, RELEASES) {
                let again = map.encode();
                assert_eq!(ClusterMap::decode(&again, RELEASES).as_ref(), Ok(&map));
                assert_eq!(map.check(), Ok(()));
            }
            frame_with_map(&bytes)
        }
    };
    // A malformed frame closes the link, and has no other effect.
    if host.node.peer_frame(2, &frame).is_err() {
        host.node.peer_link(2, None);
    }
    for _ in 0..20 {
        host.turn();
        host.node.peer_output(2).clear();
        host.node.peer_urgent_output(2).clear();
    }
    for key in [&b"k"[..], b"c:k", b"a:k", b"b:k", b"f:k"] {
        host.request(client, &[b"SET", key, b"v"]);
        host.request(client, &[b"GET", key]);
    }
    host.request(client, &[b"CLUSTER", b"SLOTS"]);
    host.request(client, &[b"CLUSTER", b"NODES"]);
    (0..20).for_each(|_| host.turn());
    if let Some(output) = host.take_output(client) {
        assert_resp(&output, &[]);
    }
    host.look();
}

fn frame_with_map(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u32;
    [&TO_CONTROL[..], &[MAP], &length.to_le_bytes(), bytes].concat()
}
