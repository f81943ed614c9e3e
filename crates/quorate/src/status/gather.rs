//! Asks all nodes of a cluster, at the same time.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use node::NodeId;
use server::status::{Answers, NoAnswer, Reported};

use crate::connection::{Cluster, Refusal, Reply};

/// How long a node may be silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A node's answer, and where this client reaches the nodes in its map.
struct NodeAnswer {
    reported: Reported,
    places: BTreeMap<NodeId, String>,
}

/// Asks the nodes at the cluster's addresses, and then all others that these know.
pub(super) fn gather(cluster: &Cluster) -> Answers {
    let (mut answers, places) = ask_first(cluster);
    let unknown = |(id, place): &(&NodeId, &String)| {
        !answers.nodes.contains_key(*id) && !answers.others.iter().any(|(other, _)| other == *place)
    };
    let missing: Vec<String> = places.iter().filter(unknown).map(|(_, place)| place.clone()).collect();
    for (address, heard) in ask_all(&missing, cluster) {
        answers.take(address, heard.map(|heard| heard.reported));
    }
    answers.name_others(&places);
    answers
}

/// Asks the nodes at the cluster's addresses only.
pub(super) fn gather_only(cluster: &Cluster) -> Answers {
    ask_first(cluster).0
}

fn ask_first(cluster: &Cluster) -> (Answers, BTreeMap<NodeId, String>) {
    let (mut answers, mut known) = (Answers::default(), (0, BTreeMap::new()));
    for (address, heard) in ask_all(&cluster.addresses, cluster) {
        if let Ok(NodeAnswer { reported, places }) = &heard
            && reported.map.version > known.0
        {
            known = (reported.map.version, places.clone());
        }
        answers.take(address, heard.map(|heard| heard.reported));
    }
    (answers, known.1)
}

fn ask_all(addresses: &[String], cluster: &Cluster) -> Vec<(String, Result<NodeAnswer, NoAnswer>)> {
    let asked = |address: &String| {
        ask(address, cluster).map_err(|error| NoAnswer {
            why: format!("{error:#}"),
            refused: error.downcast_ref::<Refusal>().map(|refusal| refusal.refused),
        })
    };
    thread::scope(|scope| {
        let threads: Vec<_> = addresses.iter().map(|address| scope.spawn(move || asked(address))).collect();
        let heard = threads.into_iter().map(|thread| thread.join().expect("asking a node does not panic"));
        heard.zip(addresses).map(|(heard, address)| (address.clone(), heard)).collect()
    })
}

fn ask(address: &str, cluster: &Cluster) -> Result<NodeAnswer> {
    let at = Instant::now();
    let mut client = cluster.connect(address, ANSWER_WITHIN)?;
    let mut text = |words: &[&[u8]]| match client.ask(words)? {
        Reply::Error(error) => Err(Refusal::or_failure(&error, error.clone())),
        reply => reply.bytes().context("its answer is not text"),
    };
    let (map, report) = (text(&[b"CLUSTER", b"MAP"])?, text(&[b"CLUSTER", b"REPORT"])?);
    let reported = Reported::read(&map, &report, at).map_err(anyhow::Error::msg)?;
    let places = cluster.places(&mut client, &reported.map)?;
    Ok(NodeAnswer { reported, places })
}
