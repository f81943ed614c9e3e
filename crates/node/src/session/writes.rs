//! The groups that a client has written to, and what it has seen of each.

use super::Session;
use kv::Version;

impl Session {
    /// The client's newest acknowledged write in a group; 0 if there is none.
    #[inline]
    pub(crate) fn seen(&self, group: u16) -> Version {
        match self.written.as_slice() {
            [] => 0,
            written => written.binary_search_by_key(&group, |(id, _)| *id).map_or(0, |at| written[at].1),
        }
    }

    /// Notes that a write of this client was acknowledged.
    #[inline]
    pub(crate) fn saw(&mut self, group: u16, offset: Version) {
        let seen = self.place_of(group);
        *seen = (*seen).max(offset);
    }

    /// Notes that this client writes to a group.
    #[inline]
    pub(crate) fn wrote(&mut self, group: u16) {
        self.place_of(group);
    }

    #[inline]
    fn place_of(&mut self, group: u16) -> &mut Version {
        // Most clients write to one group.
        let at = match self.written[..] {
            [(only, _)] if only == group => 0,
            _ => self.place_among_groups(group),
        };
        &mut self.written[at].1
    }

    fn place_among_groups(&mut self, group: u16) -> usize {
        match self.written.binary_search_by_key(&group, |(id, _)| *id) {
            Ok(at) => at,
            Err(at) => {
                self.written.insert(at, (group, 0));
                at
            }
        }
    }

    /// The groups that this client has written to.
    pub(crate) fn written(&self) -> impl Iterator<Item = u16> {
        self.written.iter().map(|(group, _)| *group)
    }
}
