//! What the clusters of the tests are made of.

use node::{Keyspace, NodeAddress};
use protocol::NodeId;

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
    keyspace.replication = "leader-follower".into();
    set(&mut keyspace);
    keyspace
}

/// One keyspace of each sort.
pub(crate) fn keyspaces() -> Vec<Keyspace> {
    vec![
        keyspace("", |it| it.shards = 3),
        keyspace("all:", |it| it.acks = "all".into()),
        keyspace("cache:", |it| it.acks = "none".into()),
        keyspace("count:", |it| (it.acks, it.durability) = ("1".into(), "fsync".into())),
        keyspace("abd:", |it| it.replication = "abd".into()),
        keyspace("lock:", |it| (it.replication, it.durability) = ("consensus".into(), "fsync".into())),
    ]
}
