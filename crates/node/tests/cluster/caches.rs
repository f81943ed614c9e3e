//! Client-side caching under random faults: what a client caches is never older than a write that was acknowledged
//! [`BOUND_MS`] ago. If a rule of tracking is left out, it is.

use crate::support::{Client, Cluster, seeded};
use protocol::planted::Fault;
use std::collections::{BTreeMap, VecDeque};

/// The second after which a replica without progress counts as stale, and the interval at which that is checked.
const BOUND_MS: u64 = 1_000 + 300;

const KEYS: u64 = 4;

/// How a key is read.
#[derive(Clone, Copy)]
enum How {
    Get,
    Declared,
    Computed,
}

/// A client that caches what it reads, by the rules.
struct Reader {
    client: Client,
    /// The requests without a reply; `None`: its reply is of no interest.
    asked: VecDeque<Option<String>>,
    kept: BTreeMap<String, u64>,
}

impl Reader {
    fn new(cluster: &mut Cluster, node: u16) -> Reader {
        let client = cluster.client(node);
        let mut reader = Reader { client, asked: VecDeque::new(), kept: BTreeMap::new() };
        for request in ["HELLO 3", "CLIENT TRACKING ON"] {
            cluster.send(client, request);
            reader.asked.push_back(None);
        }
        reader
    }

    fn ask(&mut self, cluster: &mut Cluster, key: String, behind_a_wait: bool, how: How) {
        if behind_a_wait {
            cluster.send(self.client, "WAIT 5 100");
            self.asked.push_back(None);
        }
        let request = match how {
            How::Get => format!("GET {key}"),
            How::Declared => format!("EVAL return(redis.call('get',KEYS[1])) 1 {key}"),
            // Only the script knows which key it reads.
            How::Computed => format!("EVAL return(redis.call('get','k'..ARGV[1])) 0 {}", &key[1..]),
        };
        cluster.send(self.client, &request);
        self.asked.push_back(Some(key));
    }

    fn read(&mut self, cluster: &mut Cluster) {
        while let Some(text) = cluster.arrived(self.client) {
            if let Some(keys) = text.strip_prefix("[\"invalidate\", ") {
                match keys.strip_suffix("]]").and_then(|keys| keys.strip_prefix('[')) {
                    Some(keys) => {
                        keys.split(", ").for_each(|key| _ = self.kept.remove(key.trim_matches('"')))
                    }
                    None => self.kept.clear(),
                }
                continue;
            }
            if let Some(Some(key)) = self.asked.pop_front() {
                match text.trim_matches('"').parse() {
                    Ok(value) => _ = self.kept.insert(key, value),
                    Err(_) => _ = self.kept.remove(&key),
                }
            }
        }
    }
}

/// The acknowledged writes of a key, each with the time at which the acknowledgement arrived; and those without a certain
/// outcome.
#[derive(Default)]
struct Written {
    acknowledged: Vec<(u64, u64)>,
    doubtful: Vec<u64>,
}

/// Runs a random schedule. Returns what a client has cached for too long, if anything.
fn run(keyspace: &str, by_scripts: bool, seed: u64, fault: Option<Fault>) -> Option<String> {
    let (mut cluster, mut draws) = seeded(keyspace, seed, fault);
    let mut readers: Vec<Reader> = [1, 2, 3].map(|node| Reader::new(&mut cluster, node)).into();
    let writer = cluster.client(1);
    let (mut writing, mut next) = (None, 1_u64);
    let mut written: BTreeMap<String, Written> = BTreeMap::new();
    let (mut apart, mut heals_at) = (None, 0);
    let mut passed_ms = 0;
    while passed_ms < 12_000 {
        if writing.is_none() && draws.below(50) == 0 {
            let key = format!("k{}", draws.below(KEYS));
            match draws.below(200) {
                0 => cluster.send(writer, &format!("SET {key} {next} PX 50")),
                _ => cluster.send(writer, &format!("SET {key} {next}")),
            }
            writing = Some((key, next));
            next += 1;
        }
        let reader = draws.below(3) as usize;
        // So seldom that cached values are not soon replaced by another read.
        if draws.below(70) == 0 && readers[reader].asked.len() < 4 {
            let (key, waits) = (format!("k{}", draws.below(KEYS)), draws.below(4) == 0);
            let how =
                if by_scripts { [How::Declared, How::Computed][draws.below(2) as usize] } else { How::Get };
            readers[reader].ask(&mut cluster, key, waits, how);
        }
        match apart {
            // The leader stays connected to the writer, and to one of the others.
            None if draws.below(400) == 0 => {
                let node = 2 + draws.below(2) as u16;
                match draws.below(2) {
                    0 => cluster.break_link(1, node),
                    _ => cluster.cut_off(node),
                }
                (apart, heals_at) = (Some(node), passed_ms + 200 + draws.below(3000));
            }
            Some(node) if passed_ms >= heals_at => {
                cluster.reconnect(node);
                apart = None;
            }
            _ => {}
        }
        passed_ms += cluster.time(Cluster::turn);
        if let Some((key, value)) = &writing
            && let Some(reply) = cluster.arrived(writer)
        {
            let written = written.entry(key.clone()).or_default();
            match reply.as_str() {
                "OK" => written.acknowledged.push((*value, passed_ms)),
                _ => written.doubtful.push(*value),
            }
            writing = None;
        }
        for reader in &mut readers {
            reader.read(&mut cluster);
            for (key, kept) in &reader.kept {
                let Some(Written { acknowledged, doubtful }) = written.get(key) else { continue };
                let old = acknowledged.iter().rfind(|(_, at_ms)| at_ms + BOUND_MS < passed_ms);
                if let Some((value, at_ms)) = old
                    && kept < value
                    && !doubtful.contains(kept)
                {
                    return Some(format!(
                        "seed {seed}, {passed_ms} ms: {key} is kept as {kept}, and {value} was acknowledged at {at_ms} ms"
                    ));
                }
            }
        }
    }
    None
}

#[test]
fn cached_values_are_never_older_than_the_bound() {
    for keyspace in ["prefix= acks=majority", "prefix= replication=consensus"] {
        for seed in 1..=15 {
            assert_eq!(run(keyspace, false, seed, None), None, "{keyspace}");
            assert_eq!(run(keyspace, true, seed, None), None, "{keyspace}, by scripts");
        }
    }
}

#[test]
fn a_rule_that_is_left_out_is_found() {
    for (fault, by_scripts) in [Fault::InvalidatedBeforeReply, Fault::CachesOutliveLink]
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let keyspace = "prefix= replication=consensus";
        let found = (1..=20).any(|seed| run(keyspace, by_scripts, seed, Some(fault)).is_some());
        assert!(found, "{fault:?} makes no difference, by scripts: {by_scripts}");
    }
}
