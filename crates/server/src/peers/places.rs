//! Who may wait at the peer port before it is proved whose connection it is.
//!
//! Anybody may connect, as often as the network carries it, and a peer must still get in at once. So connections are told
//! apart by what is known of them, and each kind takes places from its own kind only:
//!
//! * Who has sent a Hello that was made with the cluster's secret is a peer, or has recorded one. Of each node a few may
//!   wait for their Proof: a node makes two connections.
//! * Who has sent nothing yet, and comes from where a node of the map is or was last seen, has a place among those.
//! * All others are strangers. A few of one address may wait, and some more of all.
//!
//! Where there is no place the one goes that has waited longest of its kind: a peer sends its Hello as soon as it is
//! connected, so it is seldom that one, and dials again if it is.

use std::net::IpAddr;

use node::NodeId;

use super::Peers;
use super::connection::{Fault, Standing};
use crate::turn::Turn;

/// Most strangers at the same time, from where no peer is.
const STRANGERS_MAX: usize = 64;

/// Most of these from one address.
const STRANGERS_PER_ADDRESS_MAX: usize = 16;

/// Most that have not said Hello yet from an address of a peer.
const NEIGHBOURS_PER_ADDRESS_MAX: usize = 96;

/// Most connections for which one node has said Hello and not proved that it is there.
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

    /// A connection has said Hello as this node: an older one of those may have to go.
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

    /// Closes the stranger that has waited longest of those at such addresses, if there are so many.
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
            self.close(index, Fault::Refused("too many others wait there".into()), turn);
        }
    }
}
