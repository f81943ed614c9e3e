//! Which connections may wait at the peer port before their identity is proved.
//!
//! Anyone may connect, as often as the network allows, and a peer must still be accepted at once. So connections are
//! classified by what is known of them, and each class has places of its own:
//!
//! * A connection whose Hello was made with the cluster's secret comes from a peer, or from someone who has recorded a
//!   Hello. A few per node may wait for their Proof: a node makes two connections.
//! * A connection that has sent nothing yet, from the address of a node in the map or from an address where a node was
//!   last seen, has a place among those from that address.
//! * All others are strangers. A few from one address may wait, and some more in total.
//!
//! When no place of a class is free, the connection of that class that has waited longest is closed. A peer sends its
//! Hello as soon as it is connected, so this is seldom a peer, and if it is, it dials again.

use std::net::IpAddr;

use node::NodeId;

use super::Peers;
use super::connection::{Fault, Standing};
use crate::turn::Turn;

/// The maximum number of strangers at the same time from addresses without a peer.
const STRANGERS_MAX: usize = 64;

/// The maximum number of them from one address.
const STRANGERS_PER_ADDRESS_MAX: usize = 16;

/// The maximum number of connections without a Hello from an address of a peer.
const NEIGHBOURS_PER_ADDRESS_MAX: usize = 96;

/// The maximum number of connections that have sent Hello as one node and have not proved it yet.
const CLAIMS_PER_NODE_MAX: usize = 8;

impl Peers {
    /// Makes room for a connection from this address.
    pub(super) fn make_room(&mut self, from: IpAddr, turn: &mut Turn<'_>) {
        let from = from.to_canonical();
        if self.is_of_a_peer(from) {
            return self.keep_newest(NEIGHBOURS_PER_ADDRESS_MAX, turn, |_, address| address == from);
        }
        self.keep_newest(STRANGERS_PER_ADDRESS_MAX, turn, |_, address| address == from);
        self.keep_newest(STRANGERS_MAX, turn, |peers, address| !peers.is_of_a_peer(address));
    }

    /// Makes room for a connection that has sent Hello as this node: an older one may have to be closed.
    pub(super) fn make_room_for_claim(&mut self, node: NodeId, newest: usize, turn: &mut Turn<'_>) {
        let claims = self.connections.iter().enumerate().filter_map(|(index, slot)| {
            let connection = slot.as_ref().filter(|it| it.standing() == Standing::Claimed(node))?;
            Some((connection.deadline_us, index))
        });
        let claims: Vec<_> = claims.collect();
        if claims.len() > CLAIMS_PER_NODE_MAX
            && let Some((_, oldest)) = claims.into_iter().filter(|(_, index)| *index != newest).min()
        {
            self.close(oldest, Fault::Refused(format!("node {node} has said Hello too often")), turn);
        }
    }

    fn is_of_a_peer(&self, address: IpAddr) -> bool {
        self.peers.iter().any(|peer| peer.comes_from == Some(address))
    }

    /// Closes the stranger that has waited longest among those whose addresses count, if there are `count_max` of
    /// them.
    fn keep_newest(
        &mut self,
        count_max: usize,
        turn: &mut Turn<'_>,
        counts: impl Fn(&Peers, IpAddr) -> bool,
    ) {
        let (mut count, mut oldest) = (0, None);
        for (index, slot) in self.connections.iter().enumerate() {
            let Some(connection) = slot.as_ref().filter(|it| it.standing() == Standing::Stranger) else {
                continue;
            };
            if counts(self, connection.address.ip().to_canonical()) {
                count += 1;
                let waits = (connection.deadline_us, index);
                oldest = Some(oldest.map_or(waits, |oldest: (u64, usize)| oldest.min(waits)));
            }
        }
        if count >= count_max
            && let Some((_, index)) = oldest
        {
            self.close(index, Fault::Refused("too many connections wait there".into()), turn);
        }
    }
}
