//! Lineages: which history of its cluster a node belongs to.
//!
//! A cluster that has lost a majority of its control nodes is recovered by an operator: the surviving nodes continue
//! without the lost ones (`quorate recover`). From then on there are two histories of one cluster: the recovered one, and
//! the one that the lost nodes would continue if they returned. A node of one history must never take part in the other:
//! the lost nodes might still be a majority, and remember promises that no other node keeps. So nodes name their lineage
//! in the handshake, and nodes of different lineages do not talk to each other.

use std::fmt;

use kv::codec::{Malformed, Reader, Writer};
use serde::{Deserialize, Serialize};

/// A history of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// How many times the cluster was recovered in this history.
    pub recoveries: u32,
    /// Distinguishes different recoveries of one cluster: a digest of the state that survived. 0 in a cluster that was
    /// never recovered.
    pub mark: u64,
}

impl Lineage {
    /// Whether the cluster was never recovered.
    pub fn is_original(&self) -> bool {
        *self == Lineage::default()
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_original() {
            true => formatter.write_str("from before any recovery"),
            false => write!(formatter, "of recovery {} ({:016x})", self.recoveries, self.mark),
        }
    }
}

/// Whether two nodes may talk to each other. A node without a map has no history yet, and may talk to any node.
pub fn meets(one: Option<Lineage>, other: Option<Lineage>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    }
}

/// Whether a node was left behind by a recovery that another one took part in.
pub fn is_left_behind(own: Option<Lineage>, other: Option<Lineage>) -> bool {
    matches!((own, other), (Some(own), Some(other)) if own.recoveries < other.recoveries)
}

/// Appends the lineage of a node; `None` if it has no map yet.
pub(crate) fn put(out: &mut Vec<u8>, lineage: Option<Lineage>) {
    let Lineage { recoveries, mark } = lineage.unwrap_or_default();
    out.put_bool(lineage.is_some());
    out.put_u32(recoveries);
    out.put_u64(mark);
}

/// Reads the output of [`put`]. A build older than recoveries sends nothing: it belongs to a cluster that was never
/// recovered, and could not read the map of a recovered one.
pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Option<Lineage>, Malformed> {
    if reader.is_empty() {
        return Ok(Some(Lineage::default()));
    }
    let has_map = reader.bool()?;
    let lineage = Lineage { recoveries: reader.u32()?, mark: reader.u64()? };
    Ok(has_map.then_some(lineage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_lineage_may_talk_and_a_new_node_may_talk_to_any() {
        let lineage = |recoveries, mark| Some(Lineage { recoveries, mark });
        assert!(meets(lineage(1, 7), lineage(1, 7)) && meets(None, lineage(1, 7)) && meets(None, None));
        assert!(!meets(lineage(0, 0), lineage(1, 7)) && !meets(lineage(1, 6), lineage(1, 7)));
        assert!(
            is_left_behind(lineage(0, 0), lineage(1, 7)) && !is_left_behind(lineage(1, 7), lineage(0, 0))
        );
        assert!(!is_left_behind(lineage(1, 6), lineage(1, 7)), "it is unknown which one is right");
        assert!(!is_left_behind(None, lineage(1, 7)));
    }

    #[test]
    fn a_build_without_a_lineage_belongs_to_a_cluster_that_was_never_recovered() {
        assert_eq!(take(&mut Reader::new(&[])), Ok(Some(Lineage::default())));
        for lineage in [None, Some(Lineage { recoveries: 2, mark: 77 })] {
            let mut bytes = Vec::new();
            put(&mut bytes, lineage);
            assert_eq!(take(&mut Reader::new(&bytes)), Ok(lineage));
        }
    }
}
