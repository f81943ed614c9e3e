//! The effects of replicas' steps that are not settled yet.

use protocol::Effects;

/// Where replicas leave the effects of their steps, until these are settled.
///
/// Settling effects may lead to another step, whose effects are settled before the first settling is over. So the
/// effects that are being settled are taken out, and an empty buffer takes their place. Boxes are swapped, since this
/// happens for each request.
pub(super) struct Unsettled {
    effects: Box<Effects>,
    spare: Option<Box<Effects>>,
    bounds: Bounds,
}

/// Limits of the replies in effects, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// A longer value is lent, not copied.
    pub(super) copied_max: usize,
    /// A read that takes longer, as estimated in nanoseconds, is carried out over several turns.
    pub(super) read_ns_max: u64,
    /// One reply.
    pub(super) reply_max: usize,
    /// All replies of a step.
    pub(super) replies_max: usize,
}

impl Bounds {
    fn make(self) -> Box<Effects> {
        let mut effects = Box::<Effects>::default();
        effects.replies.lend_from(self.copied_max);
        effects.replies.read_in_parts(self.read_ns_max);
        effects.replies.bound(self.replies_max);
        effects.replies.bound_each(self.reply_max);
        effects
    }
}

impl Unsettled {
    pub(super) fn new(bounds: Bounds) -> Unsettled {
        Unsettled { effects: bounds.make(), spare: Some(bounds.make()), bounds }
    }

    /// The effects that are not settled yet.
    #[inline]
    pub(super) fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Takes the effects out to settle them. Call [`Unsettled::put_back`] afterwards.
    #[inline]
    pub(super) fn take(&mut self) -> Box<Effects> {
        let fresh = self.spare.take().unwrap_or_else(|| self.bounds.make());
        std::mem::replace(&mut self.effects, fresh)
    }

    /// Takes back effects that are settled. Both they and those that took their place are empty by now.
    #[inline]
    pub(super) fn put_back(&mut self, mut settled: Box<Effects>) {
        settled.clear();
        let other = std::mem::replace(&mut self.effects, settled);
        assert!(other.is_empty(), "what a step leaves is settled before the next one");
        self.spare = Some(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_have_bounds_however_deep_settling_goes() {
        let mut unsettled =
            Unsettled::new(Bounds { copied_max: 10, read_ns_max: 15, reply_max: 20, replies_max: 30 });
        let taken: Vec<Box<Effects>> = (0..4).map(|_| unsettled.take()).collect();
        assert_eq!(unsettled.effects().replies.reply_bytes_max(), 20);
        for settled in taken.into_iter().rev() {
            unsettled.put_back(settled);
            assert_eq!(unsettled.effects().replies.reply_bytes_max(), 20);
        }
    }
}
