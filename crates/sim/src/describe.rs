//! A scenario in words, for reports.

use crate::faults::{Fault, MS, SECOND};
use crate::scenario::{NetworkFaults, Scenario};

impl Scenario {
    /// Describes the cluster and its environment in a few lines.
    pub(crate) fn describe(&self) -> Vec<String> {
        let spaces: Vec<String> = self.spaces.iter().map(|space| format!("\"{}\"", space.text)).collect();
        let NetworkFaults { loss, duplication, reordering, delay } = self.network_faults;
        let percent = |millionths: u32| f64::from(millionths) / 10_000.0;
        let mut lines = vec![
            format!(
                "{} nodes, {} clients (up to {} requests at once), {} s of faults, keyspaces {}",
                self.nodes,
                self.think_us.len(),
                self.pipeline,
                self.length_us / SECOND,
                spaces.join(", ")
            ),
            format!(
                "messages take {} to {} us; {}% are lost, {}% arrive twice, {}% overtake others, {}% take up \
                 to {} ms more",
                self.latency_us,
                self.latency_us + self.jitter_us,
                percent(loss),
                percent(duplication),
                percent(reordering),
                percent(delay),
                self.delay_us / MS
            ),
        ];
        if self.splits_writes {
            lines.push("messages of one write may arrive apart".to_owned());
        }
        if self.has_urgent_links {
            lines.push(format!(
                "nodes have a second connection for what is urgent; {}% hold up the first one for up to {} ms",
                percent(self.hold_ups),
                self.hold_up_us / MS
            ));
        }
        lines.push(format!(
            "commands have {} ms; replicas without a leader compare their keys every {} ms",
            self.command_timeout_ms, self.sweep_ms
        ));
        if !self.keepers.is_empty() {
            let broadcast = self.keepers.iter().filter(|(_, is_broadcast)| *is_broadcast).count();
            lines.push(format!(
                "{} further clients keep what they read, {broadcast} of them told of all keys",
                self.keepers.len()
            ));
        }
        if !self.readers.is_empty() {
            lines.push(format!("{} further clients read all changes of a keyspace", self.readers.len()));
        }
        if !self.backups.is_empty() {
            lines.push(format!(
                "backups are made of {} keyspaces, and restored into another cluster",
                self.backups.len()
            ));
        }
        if self.is_only_busy {
            lines.push("nothing goes wrong but that turns take long: no leader may change".into());
        }
        if self.has_old_programs {
            lines.push("nodes have the programs of two releases".into());
        }
        if self.long_command_bytes < node::LONG_COMMAND_BYTES {
            lines.push(format!(
                "writes and replies of more than {} bytes go in parts",
                self.long_command_bytes
            ));
        }
        for (number, fault) in self.faults.iter().enumerate() {
            if let Some(Fault { at, kind }) = fault {
                lines.push(format!("fault {number}, at {} ms: {kind}", at / MS));
            }
        }
        lines
    }
}
