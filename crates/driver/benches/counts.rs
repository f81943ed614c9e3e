//! What a command costs in instructions and in bytes allocated, from the bytes of its request to the bytes of its reply: driver and
//! node as they are shipped, in a world in memory. No time is measured, so nothing else on the machine changes a figure.
//!
//! `cargo bench -p quorate-driver --bench counts` compares with `counts.tsv` and fails beyond 2 percent more; with `-- --write` it
//! writes that file instead, and the commit says why. Callgrind (the package `valgrind`) does the counting: the program runs itself
//! under it, and only the turns of the measured node count. Where the instructions go shows
//! `QUORATE_COUNTS=SET valgrind --tool=callgrind --toggle-collect='*counted_turn*' PROGRAM`: then it only runs the kinds that begin so.

#![allow(clippy::disallowed_methods, clippy::expect_used, missing_docs)]

#[path = "../tests/kit/mod.rs"]
mod kit;

use driver::{Change, Clients, Counters, Driver, Event, Sizes, Turn, World};
use kit::{Clock, End, Wire};
use mimalloc::MiMalloc;
use node::{ClientId, ClientKind, Configuration, Keyspace, Line, Node, NodeAddress, NodeId, StorageSettings};
use protocol::Now;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use storage::simulated_values::SimulatedValues;
use storage::{DiskError, MemoryDisk, ValueResult, ValueWork, Work};
use wire::frame::{self, Next};

/// How much more a command may cost than the file says, in percent.
const MORE_PERCENT: f64 = 2.0;

/// Requests of a case, after as many that warm it up.
const REQUESTS: usize = 640;

const PIPELINES: [usize; 3] = [1, 16, 64];

/// Set in the process that runs under Callgrind, to the beginning of the names of the kinds that it runs.
const UNDER_CALLGRIND: &str = "QUORATE_COUNTS";

fn main() -> ExitCode {
    if let Ok(only) = std::env::var(UNDER_CALLGRIND) {
        run_cases(&only, |_, _| {});
        return ExitCode::SUCCESS;
    }
    match compare(std::env::args().any(|argument| argument == "--write")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("counts: {why}");
            ExitCode::FAILURE
        }
    }
}

// The cases.

type Words = Vec<String>;

/// A kind of request: its name, and the commands of request number 0, 1, 2 and so on.
type Kind = (&'static str, fn(usize) -> Vec<Words>);

const KINDS: [Kind; 10] = [
    ("SET", |at| words(&format!("SET key:{} 0123456789abcdef", at % 500))),
    ("GET", |at| words(&format!("GET key:{}", at % 500))),
    ("INCR", |at| words(&format!("INCR counter:{}", at % 500))),
    ("HSET", |at| words(&format!("HSET hash:{} field:{} 0123456789abcdef", at % 50, at % 10))),
    ("LPUSH", |at| words(&format!("LPUSH list:{} 0123456789abcdef", at % 50))),
    ("ZADD", |at| words(&format!("ZADD sorted:{} {} member:{}", at % 50, at * 7919 % 1000, at % 20))),
    ("XADD", |at| words(&format!("XADD stream:{} * field 0123456789abcdef", at % 50))),
    ("LRANGE-100", |_| words("LRANGE long 0 99")),
    ("EVAL", |at| {
        let (script, key) = ("return redis.call('incr', KEYS[1])", format!("counter:{}", at % 500));
        vec![["EVAL", script, "1", &key].map(str::to_owned).to_vec()]
    }),
    ("MULTI-4", |at| {
        let (key, list) = (at % 500, at % 50);
        let set = format!("SET key:{key} 0123456789abcdef");
        let queued = format!("MULTI\n{set}\nGET key:{key}\nINCR counter:{key}\nLPUSH list:{list} v\nEXEC");
        queued.lines().flat_map(words).collect()
    }),
];

fn words(line: &str) -> Vec<Words> {
    vec![line.split(' ').map(str::to_owned).collect()]
}

/// Runs every case whose name begins with `only`, and passes its name and the bytes that each request had allocated to `each`.
fn run_cases(only: &str, mut each: impl FnMut(String, u64)) {
    for nodes in [1, 3] {
        let mut cluster = Cluster::start(nodes);
        let client = cluster.client();
        // What is read is there.
        let long =
            (0..100).fold("RPUSH long".to_owned(), |line, at| format!("{line} 0123456789abcdef{at:03}"));
        cluster.ask(&client, &[words(&long)]);
        (0..500).for_each(|at| cluster.ask(&client, &[KINDS[0].1(at)]));
        for (name, request) in KINDS.into_iter().filter(|(name, _)| name.starts_with(only)) {
            for pipeline in PIPELINES {
                let mut take = |from: usize| {
                    for first in (from..from + REQUESTS).step_by(pipeline) {
                        let requests: Vec<_> = (first..first + pipeline).map(request).collect();
                        cluster.ask(&client, &requests);
                    }
                };
                take(0);
                end_of_part(); // What came before, and warming up, count for nothing.
                let before = ALLOCATED.load(Relaxed);
                take(REQUESTS);
                let allocated = (ALLOCATED.load(Relaxed) - before) / REQUESTS as u64;
                end_of_part();
                each(format!("{name}\t{nodes}\t{pipeline}"), allocated);
            }
        }
    }
}

/// Callgrind writes what it has counted each time this is called.
#[inline(never)]
fn end_of_part() {
    std::hint::black_box(());
}

// The file of counts.

/// Instructions and bytes of each case.
type Counts = BTreeMap<String, (f64, u64)>;

const HEAD: &str = "command\tnodes\tpipeline\tinstructions\tbytes allocated\n";

fn compare(writes: bool) -> Result<(), String> {
    let counts = count()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/counts.tsv");
    let file = path.display();
    if writes {
        let mut text = HEAD.to_owned();
        for (case, (instructions, bytes)) in &counts {
            let _ = writeln!(text, "{case}\t{instructions:.0}\t{bytes}");
        }
        return std::fs::write(&path, text).map_err(|error| format!("cannot write {file}: {error}"));
    }
    let known = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {file}: {error}; `-- --write` writes it"))?;
    let known = parse(&known).ok_or_else(|| format!("{file} is damaged; `-- --write` writes it anew"))?;
    if !known.keys().eq(counts.keys()) {
        return Err(format!("{file} has other cases than there are; `-- --write` writes it anew"));
    }
    let mut worse = Vec::new();
    let bound = 1.0 + MORE_PERCENT / 100.0;
    println!("command, nodes, pipeline     instructions: before, now, ratio       bytes: before, now");
    for ((case, (now, bytes)), (before, bytes_before)) in counts.iter().zip(known.values()) {
        let (case, ratio) = (case.replace('\t', " "), now / before);
        println!("{case:<24}{before:>14.0}{now:>12.0}{ratio:>12.3}{bytes_before:>12}{bytes:>10}");
        if ratio > bound {
            worse.push(format!("{case}: {now:.0} instructions, {ratio:.3} times {before:.0}"));
        }
        // Buffers that grow now and then are shared by all requests of a case.
        if *bytes as f64 > *bytes_before as f64 * bound + 8.0 {
            worse.push(format!("{case}: {bytes} bytes allocated, {bytes_before} before"));
        }
    }
    match worse.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "beyond {MORE_PERCENT} % more than {file} has:\n{}\nMake it cheaper; or write the file (`-- --write`), and say why in the \
             commit",
            worse.join("\n")
        )),
    }
}

fn parse(text: &str) -> Option<Counts> {
    let mut counts = Counts::new();
    for line in text.strip_prefix(HEAD)?.lines() {
        let (case, figures) = line.match_indices('\t').nth(2).map(|(at, _)| line.split_at(at))?;
        let (instructions, bytes) = figures[1..].split_once('\t')?;
        counts.insert(case.to_owned(), (instructions.parse().ok()?, bytes.parse().ok()?));
    }
    Some(counts)
}

/// Counts instructions under Callgrind, and bytes here.
fn count() -> Result<Counts, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("counts");
    let failed = |error: io::Error| format!("cannot use {}: {error}", folder.display());
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counted_turn*", "--dump-before=*end_of_part*"])
        .arg(format!("--callgrind-out-file={}", folder.join("out").display()))
        .arg(program)
        .env(UNDER_CALLGRIND, "")
        .stderr(Stdio::null())
        .status()
        .map_err(|error| {
            format!("cannot start valgrind, which counts: {error}; install the package `valgrind`")
        })?;
    if !status.success() {
        return Err(format!("the program ended with {status} under valgrind"));
    }
    let (mut counts, mut failure) = (Counts::new(), None);
    // Every second part counts.
    let mut part = 0;
    run_cases("", |case, bytes| {
        part += 2;
        match total(&folder.join(format!("out.{part}"))) {
            Ok(total) => drop(counts.insert(case, (total as f64 / REQUESTS as f64, bytes))),
            Err(why) => failure = Some(why),
        }
    });
    failure.map_or(Ok(counts), Err)
}

/// What Callgrind counted in one part.
fn total(file: &Path) -> Result<u64, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.filter(|total| *total > 0).ok_or_else(|| format!("Callgrind has counted nothing in {shown}"))
}

// Bytes allocated.

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

/// The allocator of the shipped program. It counts.
struct Counting(MiMalloc);

#[global_allocator]
static ALLOCATOR: Counting = Counting(MiMalloc);

#[allow(unsafe_code)]
// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Relaxed);
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { self.0.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size.saturating_sub(layout.size()) as u64, Relaxed);
        unsafe { self.0.realloc(place, layout, size) }
    }
}

// The world.

/// The world around a node. Work beside the node is done at once, and reported in the next turn.
struct Around {
    now: Now,
    events: VecDeque<Event>,
    arriving: Vec<(ClientId, End)>,
    /// What has come from each peer.
    arrived: BTreeMap<NodeId, VecDeque<Vec<u8>>>,
    /// Bytes for each peer.
    written: BTreeMap<NodeId, Vec<u8>>,
    disk: MemoryDisk,
    values: SimulatedValues,
    finished: VecDeque<(Work, Result<(), DiskError>)>,
}

impl World for Around {
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
        true
    }

    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_, Clock>) -> bool {
        let from = connection as NodeId;
        while let Some(payload) = self.arrived.get_mut(&from).and_then(VecDeque::pop_front) {
            turn.node.peer_frame(from, &payload).expect("nodes speak one language");
        }
        false
    }

    fn attend(&mut self, clients: &mut Clients<End>, turn: &mut Turn<'_, Clock>) {
        self.arriving.drain(..).for_each(|(id, end)| clients.add(id, end, turn));
    }

    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)> {
        self.finished.pop_front()
    }

    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)> {
        None
    }

    fn write_to_peers(&mut self, turn: &mut Turn<'_, Clock>) {
        for (to, written) in &mut self.written {
            written.append(turn.node.peer_output(*to));
            written.append(turn.node.peer_urgent_output(*to));
        }
    }

    fn disk(&mut self) -> &mut MemoryDisk {
        &mut self.disk
    }

    fn begin_work(&mut self, work: Work) {
        let result = work.run(&mut self.disk);
        self.finished.push_back((work, result));
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

struct Host {
    driver: Driver<End>,
    around: Around,
}

impl Host {
    /// Takes a turn that counts.
    #[inline(never)]
    fn counted_turn(&mut self) {
        self.turn();
    }

    #[inline(always)]
    fn turn(&mut self) {
        self.driver.turn(&mut self.around).expect("a disk that does not fail");
    }
}

struct Client {
    id: ClientId,
    wire: Rc<RefCell<Wire>>,
}

/// Nodes. The first one leads, and its turns count.
struct Cluster {
    hosts: Vec<Host>,
}

const BEGIN: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_700_000_000_000 };

fn configuration(own: NodeId, nodes: u16) -> Configuration {
    let address = |id| NodeAddress {
        id,
        host: "127.0.0.1".into(),
        client_port: 7000 + id,
        http_port: 8000 + id,
        peer_port: 9000 + id,
    };
    Configuration {
        node: own,
        cluster: "counted".into(),
        nodes: (1..=nodes).map(address).collect(),
        keyspaces: vec![Keyspace::parse("prefix= replication=consensus leader=1").expect("a keyspace")],
        value_bytes_max: 1 << 20,
        connections_max: 100,
        groups_max: 10,
        output_bytes_max: 1 << 30,
        // As shipped, there is a bound, which nothing comes near.
        memory_max: 8 << 30,
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
        identity: 7 + u64::from(own),
        storage: StorageSettings::default(),
        seed: 7 + u64::from(own),
        table_seed: 8,
        releases: wire::release::RELEASES,
        traced_share: None,
        process: Default::default(),
        planted: Default::default(),
    }
}

impl Cluster {
    /// Starts nodes, and waits until the first one leads.
    fn start(nodes: u16) -> Cluster {
        let host = |id: NodeId| {
            let (mut disk, mut values) = (MemoryDisk::new(), SimulatedValues::default());
            let mut node = Node::open_with(configuration(id, nodes), &mut disk, Some(&mut values), BEGIN)
                .expect("a configuration that can be kept");
            let peers = || (1..=nodes).filter(move |peer| *peer != id);
            peers().for_each(|peer| node.peer_link(peer, Some(wire::release::RELEASES.newest)));
            let around = Around {
                now: BEGIN,
                events: VecDeque::new(),
                arriving: Vec::new(),
                arrived: peers().map(|peer| (peer, VecDeque::new())).collect(),
                written: peers().map(|peer| (peer, Vec::new())).collect(),
                disk,
                values,
                finished: VecDeque::new(),
            };
            Host { driver: Driver::new(node, Clients::new(1 << 30, 60_000), Sizes::default()), around }
        };
        let mut cluster = Cluster { hosts: (1..=nodes).map(host).collect() };
        for _ in 0..200_000 {
            cluster.turn();
            let health = cluster.hosts[0].driver.node.health();
            if health.ready && health.keyspaces.iter().all(|keyspace| keyspace.leader == 1 && keyspace.ready)
            {
                return cluster;
            }
        }
        panic!("the first node leads");
    }

    /// One turn of each node, which takes a tenth of a millisecond.
    fn turn(&mut self) {
        for (place, host) in self.hosts.iter_mut().enumerate() {
            let now = &mut host.around.now;
            now.monotonic_us += 100;
            now.unix_ms = BEGIN.unix_ms + (now.monotonic_us - BEGIN.monotonic_us) / 1000;
            match place {
                0 => host.counted_turn(),
                _ => host.turn(),
            }
        }
        for place in 0..self.hosts.len() {
            let from = place as NodeId + 1;
            let written: Vec<(NodeId, Vec<u8>)> = (self.hosts[place].around.written.iter_mut())
                .map(|(to, bytes)| (*to, std::mem::take(bytes)))
                .filter(|(_, bytes)| !bytes.is_empty())
                .collect();
            for (to, bytes) in written {
                self.hosts[usize::from(to) - 1].receive(from, &bytes);
            }
        }
    }

    fn client(&mut self) -> Client {
        let kind = ClientKind::Resp {
            address: "127.0.0.1:50000".into(),
            local_address: "127.0.0.1:7001".into(),
            fd: 3,
            tls: None,
        };
        let id = self.hosts[0].driver.node.connect(kind).expect("there is room");
        let wire = Rc::new(RefCell::new(Wire::default()));
        self.hosts[0].around.arriving.push((id, End(Rc::clone(&wire))));
        self.turn(); // Its connection is accepted.
        Client { id, wire }
    }

    /// Sends requests at once, each of one or several commands, and waits until all of them are answered.
    fn ask(&mut self, client: &Client, requests: &[Vec<Words>]) {
        let (mut sent, mut owed) = (String::new(), 0);
        for command in requests.iter().flatten() {
            owed += 1;
            let _ = write!(sent, "*{}\r\n", command.len());
            for word in command {
                let _ = write!(sent, "${}\r\n{word}\r\n", word.len());
            }
        }
        client.wire.borrow_mut().sent.extend(sent.as_bytes());
        let change = Change { is_readable: true, ..Change::default() };
        self.hosts[0].around.events.push_back(Event::Client(client.id.index(), change));
        for _ in 0..1000 {
            self.turn();
            let received = &mut client.wire.borrow_mut().received;
            let mut taken = 0;
            while let Some(length) = reply_length(&received[taken..]) {
                let reply = String::from_utf8_lossy(&received[taken..taken + length]);
                assert!(!reply.starts_with('-'), "{reply}");
                taken += length;
                owed -= 1;
            }
            received.drain(..taken);
            if owed == 0 {
                return;
            }
        }
        panic!("the node answers");
    }
}

/// The length of the first whole reply.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..head - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => match usize::try_from(number()?) {
            Ok(length) => Some(head + length + 2).filter(|end| *end <= bytes.len()),
            Err(_) => Some(head), // There is no value.
        },
        b'*' => (0..number()?.max(0)).try_fold(head, |end, _| Some(end + reply_length(&bytes[end..])?)),
        _ => Some(head),
    }
}

impl Host {
    /// Takes what a peer has written.
    fn receive(&mut self, from: NodeId, bytes: &[u8]) {
        let bytes_max = self.driver.node.peer_payload_bytes_max();
        let mut rest = bytes;
        while let Ok(Next::Frame { payload, consumed }) = frame::next(rest, bytes_max) {
            self.around.arrived.entry(from).or_default().push_back(payload.to_vec());
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty(), "a node sends whole frames");
        self.around.events.push_back(Event::Peer(from.into()));
    }
}
