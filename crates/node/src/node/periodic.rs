//! What a node does from time to time, each with when it is due next: turns do it, in this order, and the next turn begins
//! when something is due.

use super::Node;
use crate::connections::pause;
use crate::context::{peers, room};
use crate::maintenance::checkpoints;
use protocol::{Input, Result as Outcome};

/// A part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Replicas and components learn the time, and peers that are silent are judged. In a turn that begins late it comes
    /// after the input.
    Judge,
    /// Before the input.
    Begin,
    /// After the input, before replicas make their batches.
    Flush,
    /// Before the turn's records are written.
    Write,
    /// After that.
    End,
}

/// It is done whenever its phase comes, and no turn begins for it.
const NEVER: fn(&Node) -> u64 = |_| u64::MAX;

/// Calls `each` for everything that is done from time to time, with its phase and when it is due.
#[inline(always)]
fn each_periodic(mut each: impl FnMut(Phase, fn(&Node) -> u64, fn(&mut Node))) {
    use Phase::{Begin, End, Flush, Judge, Write};
    each(Judge, |node| node.cx.peers.wakeup_us(), |node| peers::tick(&mut node.cx));
    each(Judge, Node::next_group_tick_us, Node::tick_groups);
    each(Judge, |node| node.coding.wakeup_us(), |node| node.coding.tick(&mut node.cx));
    each(Judge, |node| node.cluster.wakeup_us(), |node| node.cluster.tick(&mut node.cx));

    each(Begin, |node| node.completing.wakeup_us(), |node| node.completing.tick(&mut node.cx));
    each(Begin, |node| node.at_once(node.cx.peers.any_has_due_requests()), Node::take_deferred);
    each(
        Begin,
        |node| node.at_once(node.channels.has_put_off()),
        |node| node.channels.deliver_put_off(&mut node.cx),
    );
    each(
        Begin,
        |node| node.at_once(node.long_reads.are_any()),
        |node| {
            if node.long_reads.are_any() {
                node.go_on_reading();
            }
        },
    );
    each(Begin, |node| node.cx.clients.pause.due_us(), |node| pause::tick(&mut node.cx));
    each(Begin, NEVER, |node| {
        if !node.held.is_empty() {
            node.take_held();
        }
    });
    each(
        Begin,
        |node| node.at_once(node.two_phase.has_released()),
        |node| {
            if node.two_phase.has_released() {
                node.take_released();
            }
        },
    );
    each(Begin, |node| node.cx.clients.delayed_until_us(), Node::send_delayed);
    each(
        Begin,
        |node| node.two_phase.wakeup_us(),
        |node| {
            if node.two_phase.wakeup_us() <= node.cx.now.monotonic_us {
                node.two_phase.tick(&mut node.cx);
            }
        },
    );
    each(
        Begin,
        |node| node.cluster.floors_wakeup_us(),
        |node| {
            if node.cluster.floors_wakeup_us() <= node.cx.now.monotonic_us {
                node.cluster.raise_floors(&mut node.cx);
            }
        },
    );
    each(Begin, |node| node.forwarding.next_due_us(), Node::retry_waiting);
    each(
        Begin,
        |node| node.waits.next_due_us(),
        |node| {
            if node.waits.next_due_us() <= node.cx.now.monotonic_us {
                node.waits.tick(&mut node.cx);
            }
        },
    );

    each(
        Flush,
        |node| node.at_once(node.two_phase.has_free(&node.cx)),
        |node| {
            if node.two_phase.has_free(&node.cx) {
                node.two_phase.begin_free(&mut node.cx);
                node.carry_out_calls();
            }
        },
    );
    each(Flush, NEVER, |node| node.coding.flush(&mut node.cx));
    each(Flush, |node| node.long.wakeup_us(), |node| node.long.flush(&mut node.cx));

    each(
        Write,
        |node| node.at_once(checkpoints::is_due(&node.cx, &node.values)),
        |node| checkpoints::tick(&mut node.cx, &mut node.cluster, &mut node.values),
    );
    each(Write, |node| node.values.wakeup_us(), |node| node.values.flush(&mut node.cx));

    each(End, |node| node.following.due_us(), |node| node.following.end_turn(&mut node.cx));
}

impl Node {
    /// Does what belongs to a phase of a turn.
    #[inline]
    pub(super) fn run(&mut self, phase: Phase) {
        each_periodic(|other, _, tick| {
            if other == phase {
                tick(self);
            }
        });
    }

    /// When something is due.
    #[inline]
    pub(super) fn find_wakeup_us(&self) -> u64 {
        let now_us = self.cx.now.monotonic_us;
        if self.cx.journal.has_unwritten() {
            return now_us;
        }
        const IDLE_US: u64 = 100_000;
        const LEAVING_US: u64 = 2_000;
        let mut due_us = now_us + if self.handovers.is_leaving() { LEAVING_US } else { IDLE_US };
        each_periodic(|_, next_us, _| due_us = due_us.min(next_us(self)));
        due_us
    }

    #[inline]
    fn at_once(&self, is_due: bool) -> u64 {
        if is_due { self.cx.now.monotonic_us } else { u64::MAX }
    }

    #[inline]
    fn next_group_tick_us(&self) -> u64 {
        self.cx.groups.active().map(|group| group.next_tick_us).fold(u64::MAX, u64::min)
    }

    #[inline]
    fn tick_groups(&mut self) {
        let now = self.cx.now;
        self.for_each_active(|node, id| {
            if node.cx.groups[id].next_tick_us <= now.monotonic_us {
                node.step(id, Input::Tick);
                let group = &mut node.cx.groups[id];
                group.next_tick_us =
                    group.replica.as_ref().map_or(u64::MAX, |replica| replica.wakeup_us(now));
            }
        });
    }

    /// Takes the requests of peers that were put off.
    #[inline]
    fn take_deferred(&mut self) {
        for id in self.cx.peers.ids() {
            if self.cx.peers[id].has_due_requests() {
                // Each peer has its own share of the turn, and this node's clients have theirs.
                self.cx.work.begin_requests();
                let deferred = self.cx.peers[id].take_deferred();
                let outcome = self.forwarded_requests(id, &deferred);
                debug_assert_eq!(outcome, Ok(()), "they were read whole when they were put off");
            }
        }
        self.cx.work.begin_requests();
    }

    /// Gives clients the answers that were delayed.
    #[inline]
    fn send_delayed(&mut self) {
        while let Some((ticket, reply)) = self.cx.clients.take_delayed(self.cx.now.monotonic_us) {
            self.complete(ticket, 0, Outcome::Done { version: 0, offset: 0 }, &reply);
        }
    }

    /// Does what is due several times a second.
    #[inline]
    pub(super) fn check(&mut self) {
        let now = self.cx.now;
        const CHECK_MS: u64 = 100;
        if now.ms_since(self.checked_us) < CHECK_MS {
            if self.handovers.is_leaving() {
                self.handovers.tick(&mut self.cx, &mut self.cluster);
            }
            return;
        }
        self.checked_us = now.monotonic_us;
        self.rate.update(now, self.cx.counters.commands);
        self.forwarding.tick(&mut self.cx);
        self.channels.tick(&mut self.cx);
        self.asking.tick(&mut self.cx);
        self.recent.tick(&self.cx);
        let control_leader = self.cluster.control().leader(now);
        self.history.tick(&self.cx, self.usage.resident_bytes, control_leader);
        self.forwarding.watch_silent_peers(&mut self.cx);
        self.forget_dismissed();
        if self.following.tracking.is_on() {
            self.following.tracking.tick(&mut self.cx);
        }
        self.waits.drop_waiters_of_old_incarnations(&mut self.cx);
        if self.cx.spans.is_on() {
            self.cx.spans.tick(now);
        }
        self.coding.look_for_fragments(&mut self.cx);
        let coding = &self.coding;
        self.cluster.report_members(&mut self.cx, |cx, group, node, epoch| {
            coding.has_its_fragments(cx, group, node, epoch)
        });
        self.clock.tick(&mut self.cx);
        self.quarantine.tick(&mut self.cx);
        room::tick(&mut self.cx, self.values.is_full());
        self.handovers.tick(&mut self.cx, &mut self.cluster);
    }
}
