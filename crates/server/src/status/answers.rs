//! The answers of a cluster's nodes, or the reasons for missing ones.

use std::collections::BTreeMap;
use std::time::Instant;

use node::NodeId;
use node::control::ClusterMap;

use super::report::Report;

/// What was learned from the nodes.
#[derive(Default)]
pub struct Answers {
    /// The newest map that any node has; none if no node was reached, or none has one yet.
    pub map: Option<ClusterMap>,
    /// The nodes of the map, by number, and those that were reached and are not in it.
    pub nodes: BTreeMap<NodeId, Answer>,
    /// Addresses that were given and could not be reached, and that are not known to be those of a node above.
    pub others: Vec<(String, String)>,
}

/// What was learned from one node.
pub struct Answer {
    /// Where clients reach it, as `HOST:PORT`.
    pub address: String,
    /// Its report, or why there is none.
    pub reported: Result<Reported, String>,
}

/// A node's answer.
#[derive(Clone)]
pub struct Reported {
    /// Its report.
    pub report: Report,
    /// The map that it has.
    pub map: ClusterMap,
    /// When the answer was requested.
    pub at: Instant,
}

impl Reported {
    /// Reads the answers to `CLUSTER MAP` and `CLUSTER REPORT`.
    ///
    /// # Errors
    /// A clause that says which cannot be read, and why.
    pub fn read(map: &[u8], report: &[u8], at: Instant) -> Result<Reported, String> {
        let map: ClusterMap =
            serde_json::from_slice(map).map_err(|error| format!("its map cannot be read: {error}"))?;
        if map.version > 0 {
            map.check().map_err(|error| format!("its map cannot be read: {error}"))?;
        }
        let report: Report =
            serde_json::from_slice(report).map_err(|error| format!("its report cannot be read: {error}"))?;
        Ok(Reported { report, map, at })
    }
}

impl Answers {
    /// Adds the answer of the node at an address, or the reason for its absence.
    pub fn take(&mut self, address: String, reported: Result<Reported, String>) {
        let reported = match reported {
            Ok(reported) => reported,
            Err(why) => return self.others.push((address, why)),
        };
        if let Some(known) = self.nodes.values().find_map(|answer| answer.reported.as_ref().ok())
            && known.report.cluster != reported.report.cluster
        {
            let (one, other) = (&reported.report.cluster, &known.report.cluster);
            let why = format!("it is a node of cluster '{one}', and others asked are of cluster '{other}'");
            return self.others.push((address, why));
        }
        if reported.map.version > self.map.as_ref().map_or(0, |map| map.version) {
            self.map = Some(reported.map.clone());
        }
        self.nodes.insert(reported.report.node, Answer { address, reported: Ok(reported) });
    }

    /// Finds out which nodes of the map did not answer. `places` has the addresses at which the map's nodes are
    /// asked.
    pub fn name_others(&mut self, places: &BTreeMap<NodeId, String>) {
        let mut silent: BTreeMap<String, String> = self.others.drain(..).collect();
        for (id, address) in places {
            let why = silent.remove(address);
            self.nodes.entry(*id).or_insert_with(|| {
                let why = why.unwrap_or_else(|| "it was not asked".to_owned());
                Answer { address: address.clone(), reported: Err(why) }
            });
        }
        self.others = silent.into_iter().collect();
    }

    /// The nodes that answered.
    pub fn reports(&self) -> impl Iterator<Item = (NodeId, &Reported)> {
        self.nodes.iter().filter_map(|(id, answer)| Some((*id, answer.reported.as_ref().ok()?)))
    }

    /// What a node has reported.
    pub fn report(&self, id: NodeId) -> Option<&Report> {
        self.nodes.get(&id)?.reported.as_ref().ok().map(|reported| &reported.report)
    }

    /// Whether a node takes part in the cluster, as far as the nodes that answered report it.
    pub fn is_alive(&self, id: NodeId) -> bool {
        match self.report(id) {
            Some(report) => report.admitted,
            None => self.reports().any(|(_, reported)| reported.report.reaches(id)),
        }
    }
}

/// An address as `HOST:PORT`.
pub fn text_of(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
