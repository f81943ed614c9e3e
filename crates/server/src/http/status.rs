//! `GET /status`: the state of the whole cluster, as `quorate status --json` shows it. This node asks the others over its
//! links, so the client need not reach each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use kv::Reply;
use node::NodeId;

use super::answer::{Answer, Refusal, unexpected};
use super::routes::Routes;
use crate::status::standing::Risk;
use crate::status::{ASK_AGAIN_AFTER, Answers, NoAnswer, Reported, judge, text_of};

impl Routes {
    /// Handles a request for the state of the cluster.
    pub(super) async fn status(self: &Arc<Self>) -> Result<Answer, Refusal> {
        let mut standing = judge(&self.gather().await?);
        if standing.risks.iter().any(Risk::may_pass) {
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
            standing = judge(&self.gather().await?);
        }
        let standing = serde_json::to_value(standing).map_err(|_| unexpected())?;
        Ok(Answer::json(StatusCode::OK, &standing))
    }

    async fn gather(self: &Arc<Self>) -> Result<Answers, Refusal> {
        let at = Instant::now();
        let map = self.text(&["CLUSTER", "MAP"]).await?;
        let report = self.text(&["CLUSTER", "REPORT"]).await?;
        let own = Reported::read(&map, &report, at).map_err(|_| unexpected())?;
        let known = own.map.nodes.values().map(|node| &node.address);
        let addresses: BTreeMap<NodeId, String> =
            known.map(|node| (node.id, text_of(&node.host, node.client_port))).collect();
        let is_own = |id: NodeId| id == own.report.health.node;
        let asked: Vec<_> = addresses
            .iter()
            .filter(|(id, _)| !is_own(**id))
            .map(|(id, address)| {
                let (routes, id) = (Arc::clone(self), *id);
                (address.clone(), tokio::spawn(async move { routes.ask_node(id).await }))
            })
            .collect();
        let mut answers = Answers::default();
        let address = addresses.get(&own.report.health.node).cloned();
        answers.take(address.unwrap_or_else(|| "this node".to_owned()), Ok(own));
        for (address, reported) in asked {
            let reported = reported.await.unwrap_or_else(|_| Err("this node is stopping".to_owned()));
            answers.take(address, reported.map_err(NoAnswer::from));
        }
        answers.name_others(&addresses);
        Ok(answers)
    }

    async fn ask_node(&self, id: NodeId) -> Result<Reported, String> {
        let (at, id) = (Instant::now(), id.to_string());
        let text = async |what: &str| match self.text(&["CLUSTER", "ASK", &id, "CLUSTER", what]).await {
            Ok(text) => Ok(text),
            Err(refusal) => Err(refusal.words().1.to_owned()),
        };
        Reported::read(&text("MAP").await?, &text("REPORT").await?, at)
    }

    /// Runs a command that is answered by a text.
    async fn text(&self, words: &[&str]) -> Result<Vec<u8>, Refusal> {
        let reply = self.command(words.iter().map(|word| word.as_bytes()).collect()).await?;
        match Reply::first(&reply) {
            Reply::Text(text) | Reply::Bulk(text) => Ok(text.to_vec()),
            _ => Err(unexpected()),
        }
    }
}
