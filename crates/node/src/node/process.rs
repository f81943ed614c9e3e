//! The process around a node: what it measures for the node and does for it between turns, and what the node reports
//! to it.

use super::Node;
use super::describe::{self, KeyspaceDescription};
use super::{facts, report};
use crate::context::{grants, memory};
use crate::diagnostics::log::Line;
use crate::operators::notes;
use info::Health;
use info::Usage;

impl Node {
    /// Whether memory should be measured again: a second has passed, or `traffic` (what the process has read and
    /// written in all) has grown so much that the last measurement is out of date.
    #[inline]
    pub fn wants_measurement(&self, traffic: u64) -> bool {
        self.cx.memory.wants_measurement(self.cx.now, traffic)
    }

    /// Takes a measurement, in bytes: the memory that the process takes now, how much of that the server holds for
    /// clients, and what the process has read and written in all. This decides whether commands that make data larger
    /// are refused, and whether clients are closed.
    pub fn measured(&mut self, resident: u64, inputs: u64, traffic: u64) {
        memory::take_measurement(&mut self.cx, resident, inputs, traffic);
        grants::after_measurement(&mut self.cx);
        memory::bound_histories(&mut self.cx);
        self.carry_out_calls();
    }

    /// Whether free memory that the process still holds should be returned to the system now. If so, counts it as done.
    pub fn releases_memory(&mut self) -> bool {
        let releases = self.cx.memory.wants_release(self.cx.now);
        if releases {
            self.cx.memory.release(self.cx.now);
        }
        releases
    }

    /// Whether there are values to cut in this turn, so that it is worth measuring how long [`Node::code_values`]
    /// takes.
    pub fn has_values_to_code(&self) -> bool {
        self.coding.has_values_to_code()
    }

    /// Cuts values and sends their fragments, as far as there is room; otherwise the end of the turn does it. A
    /// caller with a clock reports how long it took ([`Node::coding_took`]).
    pub fn code_values(&mut self) {
        self.coding.code_values(&mut self.cx);
        self.carry_out_calls();
    }

    /// Reports how long [`Node::code_values`] took, in microseconds.
    pub fn coding_took(&mut self, took_us: u64) {
        self.coding.coding_took(&self.cx, took_us);
    }

    /// Sets the resources that the process uses, for `INFO`.
    pub fn set_usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Whether there are lines to be logged.
    #[inline]
    pub fn has_log(&self) -> bool {
        !self.cx.log.is_empty()
    }

    /// Moves the lines to be logged into `lines`.
    pub fn take_log(&mut self, lines: &mut Vec<Line>) {
        self.recent.keep(self.cx.now.unix_ms, &self.cx.log);
        lines.append(&mut self.cx.log);
    }

    /// Logs which keys will be lost with this process, for a node that is about to stop.
    pub fn note_stop(&mut self) {
        notes::at_stop(&mut self.cx);
    }

    /// Returns the state of this node.
    pub fn health(&self) -> Health {
        report::health(self)
    }

    /// Appends the node's metrics in the text format of Prometheus.
    pub fn metrics(&self, out: &mut String) {
        facts::metrics(self, out);
    }

    /// Every keyspace of the newest map, by prefix.
    pub fn keyspaces(&self) -> Vec<KeyspaceDescription> {
        describe::keyspaces(self)
    }
}
