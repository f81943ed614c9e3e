//! The answers of a cluster's nodes, or the reasons for missing ones.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use cluster::control::ClusterMap;
use node::{KeyspaceHealth, NodeId, Report};

/// What was learned from the nodes.
#[derive(Default)]
pub struct Answers {
    /// The newest map that any node has; none if no node was reached, or none has one yet.
    pub map: Option<ClusterMap>,
    /// The nodes of the map, by number, and those that were reached and are not in it.
    pub nodes: BTreeMap<NodeId, Answer>,
    /// Addresses that were given and did not answer, and that are not known to be those of a node above.
    pub others: Vec<(String, NoAnswer)>,
}

/// Why an address has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// A clause, with the reason in full.
    pub why: String,
    /// Something there has answered, and refuses to say how it stands.
    pub refused: Option<Refused>,
}

/// What a client has to change before an address answers. This says nothing about the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A password is needed, and none was given.
    NeedsPassword,
    /// The password or the user is wrong.
    Password,
    /// The user lacks a right.
    Right,
    /// No TLS connection comes about: a certificate is not trusted, or one side does not speak TLS.
    Tls,
    /// What listens there is not a node's port for Redis clients.
    Protocol,
    /// The host has no address.
    Name,
    /// It is a node of another cluster than the others.
    Cluster,
}

impl Refused {
    /// What is wrong, as a sentence without its end.
    pub fn what(self) -> &'static str {
        match self {
            Refused::NeedsPassword => "a password is needed",
            Refused::Password => "the password is refused",
            Refused::Right => "this user may not see the state of the cluster",
            Refused::Tls => "no TLS connection comes about",
            Refused::Protocol => "the address is not that of a node's port for Redis clients",
            Refused::Name => "the host is not known",
            Refused::Cluster => "the addresses are of different clusters",
        }
    }

    /// What to do about it.
    pub fn action(self) -> &'static str {
        match self {
            Refused::NeedsPassword => {
                "name its file with --password-file, and the user with --user; or a node's own file with --config"
            }
            Refused::Password => {
                "give the right --user and --password-file; an operator can set another one: quorate user alter"
            }
            Refused::Right => {
                "use a user who may: quorate user create watcher --role monitor --draw-password (by an operator)"
            }
            Refused::Tls => {
                "give --cacert with the cluster's authority and the address of a TLS port, or leave out TLS for a plain port; renew \
                 a certificate that has expired: quorate certs"
            }
            Refused::Protocol => {
                "give the node's client_port with --addr (not http_port or peer_port); with TLS, tls.client_port and --tls"
            }
            Refused::Name => "check the spelling of the host, and the name service of this machine",
            Refused::Cluster => "give addresses of one cluster only",
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.why)
    }
}

impl From<String> for NoAnswer {
    fn from(why: String) -> NoAnswer {
        NoAnswer { why, refused: None }
    }
}

impl From<&str> for NoAnswer {
    fn from(why: &str) -> NoAnswer {
        why.to_owned().into()
    }
}

/// What was learned from one node.
pub struct Answer {
    /// Where clients reach it, as `HOST:PORT`.
    pub address: String,
    /// Its report, or why there is none.
    pub reported: Result<Reported, NoAnswer>,
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
        let map = ClusterMap::of_shown(map).map_err(|error| format!("its map cannot be read: {error}"))?;
        let report: Report =
            serde_json::from_slice(report).map_err(|error| format!("its report cannot be read: {error}"))?;
        Ok(Reported { report, map, at })
    }
}

impl Answers {
    /// Adds the answer of the node at an address, or the reason for its absence.
    pub fn take(&mut self, address: String, reported: Result<Reported, NoAnswer>) {
        let reported = match reported {
            Ok(reported) => reported,
            Err(why) => return self.others.push((address, why)),
        };
        if let Some(known) = self.nodes.values().find_map(|answer| answer.reported.as_ref().ok())
            && known.report.health.cluster != reported.report.health.cluster
        {
            let (one, other) = (&reported.report.health.cluster, &known.report.health.cluster);
            let why = format!("it is a node of cluster '{one}', and others asked are of cluster '{other}'");
            return self.others.push((address, NoAnswer { why, refused: Some(Refused::Cluster) }));
        }
        if reported.map.version > self.map.as_ref().map_or(0, |map| map.version) {
            self.map = Some(reported.map.clone());
        }
        self.nodes.insert(reported.report.health.node, Answer { address, reported: Ok(reported) });
    }

    /// Finds out which nodes of the map did not answer. `places` has the addresses at which the map's nodes are
    /// asked.
    pub fn name_others(&mut self, places: &BTreeMap<NodeId, String>) {
        let mut silent: BTreeMap<String, NoAnswer> = self.others.drain(..).collect();
        for (id, address) in places {
            let mut why = silent.remove(address);
            // It is the port of a node for clients, whatever it has answered.
            if let Some(why) = why.as_mut().filter(|why| why.refused == Some(Refused::Protocol)) {
                why.refused = None;
            }
            self.nodes.entry(*id).or_insert_with(|| {
                let why = why.unwrap_or_else(|| "it was not asked".into());
                Answer { address: address.clone(), reported: Err(why) }
            });
        }
        self.others = silent.into_iter().collect();
    }

    /// The nodes that answered.
    pub fn reports(&self) -> impl Iterator<Item = (NodeId, &Reported)> {
        self.nodes.iter().filter_map(|(id, answer)| Some((*id, answer.reported.as_ref().ok()?)))
    }

    /// The views of a shard of the nodes that answered.
    pub fn views(&self, prefix: &str, shard: u16) -> impl Iterator<Item = (NodeId, &KeyspaceHealth)> {
        self.reports().filter_map(move |(id, reported)| Some((id, reported.report.shard(prefix, shard)?)))
    }

    /// What a node has reported.
    pub fn report(&self, id: NodeId) -> Option<&Report> {
        self.nodes.get(&id)?.reported.as_ref().ok().map(|reported| &reported.report)
    }

    /// Whether a node's process runs, as far as the nodes that answered report it, or since it has refused to answer.
    pub fn runs(&self, id: NodeId) -> bool {
        let answer = self.nodes.get(&id).map(|answer| &answer.reported);
        match answer {
            Some(Ok(_)) => true,
            Some(Err(NoAnswer { refused: Some(_), .. })) => true,
            _ => self.reports().any(|(_, reported)| reported.report.reaches(id)),
        }
    }

    /// Whether the cluster waits for a node to start for the first time, or with other storage after it was replaced.
    pub fn is_new(&self, id: NodeId) -> bool {
        let node = self.map.as_ref().and_then(|map| map.nodes.get(&id));
        node.is_some_and(|node| node.start.identity == 0)
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
