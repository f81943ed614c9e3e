//! The parts of the tests' clusters.

use cluster::{Keyspace, NodeAddress, Protocol};
use protocol::NodeId;
use protocol::leader_follower::{Acks, Durability};

pub(crate) fn address(id: NodeId) -> NodeAddress {
    NodeAddress {
        id,
        host: "localhost".into(),
        client_port: 7000 + id,
        http_port: 8000 + id,
        peer_port: 9000 + id,
    }
}

pub(crate) fn keyspace(prefix: &str, set: impl FnOnce(&mut Keyspace)) -> Keyspace {
    let mut keyspace = Keyspace { prefix: prefix.into(), leader: 0, ..Keyspace::default() };
    keyspace.replication = Protocol::LeaderFollower;
    set(&mut keyspace);
    keyspace
}

/// Returns one keyspace of each kind.
pub(crate) fn keyspaces() -> Vec<Keyspace> {
    vec![
        keyspace("", |it| it.shards = 3),
        keyspace("all:", |it| it.acks = Acks::All),
        keyspace("cache:", |it| it.acks = Acks::None),
        keyspace("count:", |it| (it.acks, it.durability) = (Acks::Count(1), Some(Durability::Fsync))),
        keyspace("abd:", |it| it.replication = Protocol::Abd),
        keyspace("lock:", |it| {
            (it.replication, it.durability) = (Protocol::Consensus, Some(Durability::Fsync))
        }),
    ]
}
