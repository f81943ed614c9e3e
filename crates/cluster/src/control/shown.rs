//! The map as `CLUSTER MAP` shows it, and as tools read it back.
//!
//! Only of a leader-follower group does the map say who leads, and in which epoch. For any other group its `leader` is a
//! preference at most, and its `epoch` counts memberships; shown under these names, they would contradict `ROLE`, `/health`
//! and `quorate status`. So it is shown without a leader, with its `membership`, and, of consensus, with the `preferred` leader.

use super::level::Feature;
use super::map::{CONTROL_GROUP, ClusterMap, level_refusal};
use crate::setting::Protocol;
use serde_json::Value;
use wire::release::RELEASES;

impl ClusterMap {
    /// The map as JSON, for every client: without users' names and hashes of passwords, which are for operators only.
    pub fn shown(&self) -> Vec<u8> {
        let map = ClusterMap { users: Default::default(), ..self.clone() };
        // Programs of release 1 read it, too: they know no other form.
        if !self.has(Feature::Answers) {
            return map.encode();
        }
        let mut shown = serde_json::to_value(&map).unwrap_or_default();
        let groups = shown.get_mut("groups").and_then(Value::as_object_mut).into_iter().flatten();
        for (id, group) in groups {
            let id = id.parse().unwrap_or(CONTROL_GROUP);
            let is_led = self.protocol(id) == Protocol::LeaderFollower;
            if let Some(fields) = group.as_object_mut().filter(|_| !is_led) {
                fields.remove("leader");
                if self.protocol(id) == Protocol::Consensus && id != CONTROL_GROUP {
                    fields.insert("preferred".into(), self.preferred_leader(id).into());
                }
                let membership = fields.remove("epoch").unwrap_or_default();
                fields.insert("membership".into(), membership);
            }
        }
        shown.to_string().into_bytes()
    }

    /// Reads what [`ClusterMap::shown`] has written. The control group has its first member as the leader. A node without a map
    /// shows an empty one, of version 0.
    ///
    /// # Errors
    /// A sentence when the bytes are not a map, or the map is inconsistent.
    pub fn of_shown(bytes: &[u8]) -> Result<ClusterMap, String> {
        let unread = |error: serde_json::Error| level_refusal(bytes, RELEASES).unwrap_or(error.to_string());
        let mut map: ClusterMap = serde_json::from_slice(bytes).map_err(unread)?;
        let led: Vec<u16> =
            map.groups.keys().copied().filter(|id| map.protocol(*id) == Protocol::Consensus).collect();
        for id in led {
            if let Some(group) = map.groups.get_mut(&id).filter(|group| group.leader == 0) {
                let first = group.members.first().copied().unwrap_or(0);
                let preferred = std::mem::take(&mut group.preferred);
                group.leader = if preferred == 0 { first } else { preferred };
            }
        }
        if map.version > 0 {
            map.check()?;
        }
        Ok(map)
    }
}
