//! Asks all nodes of a cluster, at the same time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use node::NodeAddress;
use server::status::{Answers, Said, text_of};

use crate::exchange;

/// How long a node may be silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

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
    let mut answers = Answers::default();
    for (address, said) in ask_all(addresses.to_vec(), credentials) {
        answers.take(address, said);
    }
    answers
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
    Said::read(map, report, at).map_err(anyhow::Error::msg)
}
