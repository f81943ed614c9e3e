//! Asks all nodes of a cluster, at the same time.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use node::control::ClusterMap;
use node::{NodeAddress, NodeId};

use super::report::Report;
use crate::exchange;

/// How long a node may be silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What was learned from the nodes.
pub(super) struct Answers {
    /// The newest map that any node has; none if no node was reached, or none has one yet.
    pub(super) map: Option<ClusterMap>,
    /// The nodes of the map, by number, and those that were reached and are not in it.
    pub(super) nodes: BTreeMap<NodeId, Answer>,
    /// Addresses that were given and could not be asked, and that are not known to be those of a node above.
    pub(super) others: Vec<(String, String)>,
}

/// What was learned from one node.
pub(super) struct Answer {
    pub(super) address: String,
    /// Its report, or why there is none.
    pub(super) said: Result<Said, String>,
}

/// What a node has said.
#[derive(Clone)]
pub(super) struct Said {
    pub(super) report: Report,
    pub(super) map: ClusterMap,
    /// When it was asked.
    pub(super) at: Instant,
}

/// Asks the nodes at these addresses, and then all others of which these know.
pub(super) fn gather(addresses: &[String], credentials: &[String]) -> Answers {
    let mut answers = gather_only(addresses, credentials);
    let Some(map) = &answers.map else { return answers };
    let unknown = |known: &&NodeAddress| {
        let at = text_of(known);
        !answers.nodes.contains_key(&known.id) && !answers.others.iter().any(|(other, _)| *other == at)
    };
    let missing = map.nodes.values().map(|node| &node.address).filter(unknown).map(text_of).collect();
    for (address, said) in ask_all(missing, credentials) {
        answers.take(address, said);
    }
    answers.name_others();
    answers
}

/// Asks the nodes at these addresses, and no others.
pub(super) fn gather_only(addresses: &[String], credentials: &[String]) -> Answers {
    let mut answers = Answers { map: None, nodes: BTreeMap::new(), others: Vec::new() };
    for (address, said) in ask_all(addresses.to_vec(), credentials) {
        answers.take(address, said);
    }
    answers
}

impl Answers {
    fn take(&mut self, address: String, said: Result<Said, String>) {
        let said = match said {
            Ok(said) => said,
            Err(why) => return self.others.push((address, why)),
        };
        if let Some(known) = self.nodes.values().find_map(|answer| answer.said.as_ref().ok())
            && known.report.cluster != said.report.cluster
        {
            let (one, other) = (&said.report.cluster, &known.report.cluster);
            let why = format!("it is a node of cluster '{one}', and others asked are of cluster '{other}'");
            return self.others.push((address, why));
        }
        if said.map.version > self.map.as_ref().map_or(0, |map| map.version) {
            self.map = Some(said.map.clone());
        }
        self.nodes.insert(said.report.node, Answer { address, said: Ok(said) });
    }

    /// Finds out which nodes did not answer.
    fn name_others(&mut self) {
        let Some(map) = &self.map else { return };
        let mut silent: BTreeMap<String, String> = self.others.drain(..).collect();
        for known in map.nodes.values().map(|node| &node.address) {
            let address = text_of(known);
            let why = silent.remove(&address);
            self.nodes.entry(known.id).or_insert_with(|| {
                let why = why.unwrap_or_else(|| "it was not asked".to_owned());
                Answer { address, said: Err(why) }
            });
        }
        self.others = silent.into_iter().collect();
    }

    /// The nodes that answered.
    pub(super) fn reports(&self) -> impl Iterator<Item = (NodeId, &Said)> {
        self.nodes.iter().filter_map(|(id, answer)| Some((*id, answer.said.as_ref().ok()?)))
    }

    /// What a node has reported.
    pub(super) fn report(&self, id: NodeId) -> Option<&Report> {
        self.nodes.get(&id)?.said.as_ref().ok().map(|said| &said.report)
    }

    /// Whether a node takes part in the cluster, as far as anybody says who was reached.
    pub(super) fn is_alive(&self, id: NodeId) -> bool {
        match self.report(id) {
            Some(report) => report.admitted,
            None => self.reports().any(|(_, said)| said.report.reaches(id)),
        }
    }
}

/// Where clients reach a node.
pub(super) fn text_of(address: &NodeAddress) -> String {
    let NodeAddress { host, client_port, .. } = address;
    match host.contains(':') {
        true => format!("[{host}]:{client_port}"),
        false => format!("{host}:{client_port}"),
    }
}

fn ask_all(addresses: Vec<String>, credentials: &[String]) -> Vec<(String, Result<Said, String>)> {
    let asked = |address: &String| ask(address, credentials).map_err(|error| format!("{error:#}"));
    thread::scope(|scope| {
        let threads: Vec<_> = addresses.iter().map(|address| scope.spawn(move || asked(address))).collect();
        let said = threads.into_iter().map(|thread| thread.join().expect("asking a node does not panic"));
        said.zip(&addresses).map(|(said, address)| (address.clone(), said)).collect()
    })
}

fn ask(address: &str, credentials: &[String]) -> Result<Said> {
    let at = Instant::now();
    let questions: [&[&[u8]]; 2] = [&[b"CLUSTER", b"MAP"], &[b"CLUSTER", b"REPORT"]];
    let texts = match exchange::ask(address, credentials, ANSWER_WITHIN, &questions) {
        Err(error) if format!("{error:#}").contains("NOAUTH") => {
            bail!("it wants a password: name its file with --password-file");
        }
        texts => texts?,
    };
    let [map, report] = texts.as_slice() else { bail!("it has not answered all questions") };
    let map: ClusterMap = serde_json::from_slice(map).context("its map cannot be read")?;
    if map.version > 0 {
        map.check().map_err(anyhow::Error::msg).context("its map cannot be read")?;
    }
    let report: Report = serde_json::from_slice(report).context("its report cannot be read")?;
    Ok(Said { report, map, at })
}
