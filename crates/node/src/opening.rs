//! How a node comes up: its log is read, its replicas get back what they recorded, and are configured.

use crate::command::statistics::CommandStatistics;
use crate::configuration::Configuration;
use crate::groups::{Group, Groups};
use crate::journal::{Journal, Tail};
use crate::keyspace::{Router, arrange};
use crate::log::{Level, Line};
use crate::node::{Counters, Node};
use crate::parameters::Parameters;
use crate::peers::Peer;
use crate::replica::Replica;
use crate::slab::Slab;
use crate::usage::{Rate, Usage};
use kv::ReplyBuffer;
use kv::codec::Malformed;
use protocol::{Effects, Now};
use storage::{Disk, Identity, Options, StorageError};

/// Why a node cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be kept, as the sentence says.
    #[error("{0}")]
    Configuration(String),
    /// Its log cannot be read.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// Its log holds what is not understood.
    #[error("the log holds a record of group {group} that cannot be taken: {why}")]
    Record {
        /// Whose record it is.
        group: u16,
        /// What is wrong with it.
        why: String,
    },
}

impl Node {
    /// A node that has just started, with what its disk holds.
    ///
    /// # Errors
    /// [`StartError`]: a setting cannot be kept, or its log cannot be read.
    pub fn open<D: Disk>(
        mut configuration: Configuration,
        disk: &mut D,
        now: Now,
    ) -> Result<Node, StartError> {
        configuration.nodes.sort_by_key(|node| node.id);
        let count = configuration.nodes.len();
        let numbered = configuration.nodes.iter().zip(1..).all(|(node, id)| node.id == id);
        if !numbered || configuration.node == 0 || configuration.node as usize > count {
            let own = configuration.node;
            let text = format!("nodes must be numbered 1 to {count}, and this one ({own}) be among them");
            return Err(StartError::Configuration(text));
        }
        let keyspaces = std::mem::take(&mut configuration.keyspaces);
        configuration.keyspaces = arrange(keyspaces, count).map_err(StartError::Configuration)?;

        let opening = storage::open(disk, log_options(&configuration))?;
        configuration.identity = opening.identity().log;
        let mut groups = groups(&configuration).map_err(StartError::Configuration)?;
        let mut chunk = Vec::new();
        for mut snapshot in opening.snapshots() {
            while snapshot.read(disk, &mut chunk)? {
                replay(&mut groups, now, snapshot.group(), &chunk)?;
            }
        }
        let mut refused = Ok(());
        let (log, replayed) = opening.replay(disk, |entry| {
            if refused.is_ok() {
                refused = replay(&mut groups, now, entry.group, entry.bytes);
            }
        })?;
        refused?;

        let mut lines = Vec::new();
        if replayed.entries > 0 {
            let storage::Replayed { entries, bytes, .. } = replayed;
            let text = format!("{entries} records were read from {bytes} bytes of log");
            lines.push(Line { level: Level::Info, text });
        }
        if let Some(torn) = &replayed.torn {
            let text = format!("the end of the log was cut off, as a crash had left it: {torn:?}");
            lines.push(Line { level: Level::Warning, text });
        }
        let mut node = Node {
            parameters: Parameters::new(&configuration),
            statistics: CommandStatistics::new(),
            counters: Counters::default(),
            usage: Usage::default(),
            rate: Rate::default(),
            now,
            started: now,
            groups,
            journal: Journal::new(log, configuration.storage.checkpoint_bytes),
            router: Router::new(
                configuration
                    .keyspaces
                    .iter()
                    .zip(1..)
                    .map(|(space, id)| (space.prefix.clone().into(), vec![id])),
            ),
            sessions: Slab::default(),
            ready: Vec::new(),
            peers: (0..count).map(|_| Peer::default()).collect(),
            forwards: Slab::default(),
            forwards_checked_us: 0,
            gathers: Slab::default(),
            effects: Effects::default(),
            scratch: Vec::new(),
            replies: ReplyBuffer::new(),
            random: configuration.seed,
            sleep: None,
            log: lines,
            epoch_wanted: None,
            configuration,
        };
        node.configure_groups(|_| true);
        Ok(node)
    }
}

fn log_options(configuration: &Configuration) -> Options {
    // FNV-1a: this guards against mistakes.
    let cluster = configuration.cluster.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let identity = Identity { cluster, node: configuration.node, worker: 0, log: configuration.identity };
    let storage = &configuration.storage;
    Options { segment_bytes: storage.segment_bytes, planted: storage.planted, ..Options::new(identity) }
}

fn groups(configuration: &Configuration) -> Result<Groups, String> {
    let mut groups = Groups::default();
    let count = configuration.nodes.len();
    for (index, keyspace) in configuration.keyspaces.iter().enumerate() {
        let members = keyspace.members(count);
        let is_member = members.contains(&configuration.node);
        let replica = is_member.then(|| Replica::new(keyspace, index, configuration)).transpose()?;
        let group = Group {
            shard: 0,
            leader: keyspace.leader,
            tail: Tail::new(keyspace.durability()?),
            keyspace: keyspace.clone(),
            members,
            replica,
            leader_told: 0,
            refused_by: 0,
            next_tick_us: 0,
        };
        groups.insert(index as u16 + 1, group);
    }
    Ok(groups)
}

/// Gives a record of an earlier life to its replica.
fn replay(groups: &mut Groups, now: Now, id: u16, record: &[u8]) -> Result<(), StartError> {
    let replayed = match groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
        Some(replica) => replica.replay(now, record),
        None => Err(Malformed("no replica of that group is configured here")),
    };
    replayed.map_err(|why| StartError::Record { group: id, why: why.to_string() })
}
