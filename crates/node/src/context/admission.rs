//! Whether the control group lets this node take part, and until when its lease lasts.

/// What the control group has last decided about this node.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    is_admitted: bool,
    /// When the node was admitted, in microseconds of the monotonic clock.
    since_us: u64,
    /// When this node's lease ends, in microseconds of the monotonic clock. Until then the control group appoints no other
    /// leader in place of this node, unless its replica has resigned, and does not acknowledge a change of functions that
    /// this node's map lacks.
    lease_until_us: u64,
    /// Why the control group does not admit this node, if it gave a reason.
    refusal: Option<String>,
}

impl Admission {
    /// Whether the control group has admitted this node.
    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// When it did, in microseconds of the monotonic clock.
    pub(crate) fn since_us(&self) -> u64 {
        self.since_us
    }

    /// Why the control group does not admit this node, if it gave a reason.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Why the node does not take part, while it does not.
    pub(crate) fn explanation(&self) -> &str {
        self.refusal().unwrap_or("the control group has not admitted this node yet")
    }

    /// Whether the node has a lease.
    pub(crate) fn has_lease(&self, now_us: u64) -> bool {
        now_us < self.lease_until_us
    }

    /// The control group has admitted this node.
    pub(crate) fn begin(&mut self, now_us: u64) {
        if !self.is_admitted {
            (self.is_admitted, self.since_us) = (true, now_us);
        }
    }

    /// The control group refuses this node.
    pub(crate) fn end(&mut self, refusal: Option<&str>) {
        (self.is_admitted, self.refusal) = (false, refusal.map(str::to_owned));
    }

    /// The control group has given this node a lease.
    pub(crate) fn extend_lease(&mut self, until_us: u64) {
        self.lease_until_us = until_us;
    }
}
