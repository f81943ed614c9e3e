//! Records: those of the control group's replica, and one kind of the component's own.

use kv::codec::{Malformed, Reader, Writer};
use protocol::NodeId;
use std::collections::BTreeMap;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A record of the replica.
    Replica(&'a [u8]),
    /// This node takes part in the control group, whose members have these storages.
    Begun(BTreeMap<NodeId, u64>),
}

const REPLICA: u8 = 1;
const BEGUN: u8 = 2;

pub(super) fn put_replica(out: &mut Vec<u8>, record: &[u8]) {
    out.put_u8(REPLICA);
    out.extend_from_slice(record);
}

pub(super) fn put_begun(out: &mut Vec<u8>, identities: &BTreeMap<NodeId, u64>) {
    out.put_u8(BEGUN);
    for (node, identity) in identities {
        out.put_u16(*node);
        out.put_u64(*identity);
    }
}

impl<'a> Record<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            REPLICA => Ok(Record::Replica(reader.rest())),
            BEGUN => {
                let mut identities = BTreeMap::new();
                while !reader.is_empty() {
                    identities.insert(reader.u16()?, reader.u64()?);
                }
                Ok(Record::Begun(identities))
            }
            _ => Err(Malformed("unknown kind of control record")),
        }
    }
}
