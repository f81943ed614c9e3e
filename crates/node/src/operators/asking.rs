//! `CLUSTER ASK`: gets information from another node that only that node has about itself. So a client that reaches
//! one node can ask all of them: it needs no connection to each, and its password stays with the node that it is
//! connected to.
//!
//! The client's node checks the client's rights. The other node answers its peer, which it trusts as it does for all
//! requests that peers forward. Only commands that change nothing can be asked.

use crate::connections;
use crate::context::Context;
use crate::messages::envelope::Envelope;
use crate::session::{ClientId, SessionReply, Standing};
use commands::{ClusterCommand, Handler, LatencyCommand, NodeCommand, NodeRequest, SlowlogCommand};
use kv::ReplyBuffer;
use kv::codec::{Malformed, Reader, Writer};
use protocol::{NodeId, Result as Outcome, Ticket};
use std::collections::BTreeMap;
use wire::resp::reply::element_end;
use wire::resp::{Arguments, ArgumentsBuffer};

/// How long a node has to answer.
const ANSWER_US: u64 = 2_000_000;

/// The longest answer of another node, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A peer with more bytes under way to it is not asked, and gets no answers.
const PEER_OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Questions of this node's clients to other nodes, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    open: BTreeMap<u64, Question>,
    last: u64,
}

#[derive(Debug)]
struct Question {
    client: ClientId,
    ticket: Ticket,
    to: NodeId,
    due_us: u64,
}

/// Finds the command that the arguments name, if another node may ask for it.
///
/// # Errors
/// The error for the client: there is no such command, or it cannot be asked in this way.
pub(crate) fn question(arguments: Arguments<'_>) -> Result<NodeRequest<'_>, String> {
    use ClusterCommand::Map;
    let found = commands::find(arguments).map_err(|error| error.to_string())?;
    match found.spec.handler {
        Handler::Node(
            command @ (NodeCommand::Report
            | NodeCommand::Events
            | NodeCommand::History
            | NodeCommand::LockList
            | NodeCommand::Info
            | NodeCommand::Cluster(Map)
            | NodeCommand::Slowlog(SlowlogCommand::Get | SlowlogCommand::Len)
            | NodeCommand::Latency(LatencyCommand::Histogram | LatencyCommand::Latest)),
        ) => Ok(NodeRequest { command, found, arguments }),
        _ => Err(format!(
            "ERR '{}' cannot be asked of another node: CLUSTER ASK takes CLUSTER REPORT, CLUSTER EVENTS, CLUSTER HISTORY, CLUSTER MAP, \
             LOCK.LIST, INFO, SLOWLOG or COMMANDLOG GET or LEN, LATENCY HISTOGRAM and LATENCY LATEST",
            found.spec.name
        )),
    }
}

impl Asking {
    /// Takes `CLUSTER ASK id command [argument …]`. Returns the command if this is the node to answer it.
    pub(crate) fn ask<'a>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        arguments: Arguments<'a>,
    ) -> Option<NodeRequest<'a>> {
        match self.send(cx, client, &arguments[2], arguments.skip(3)) {
            Ok(here) => here,
            Err(text) => {
                cx.answer(client, |replies| replies.error(&text));
                None
            }
        }
    }

    fn send<'a>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        node: &[u8],
        words: Arguments<'a>,
    ) -> Result<Option<NodeRequest<'a>>, String> {
        let id: Option<NodeId> = std::str::from_utf8(node).ok().and_then(|text| text.parse().ok());
        let id = id.ok_or("ERR the first argument of CLUSTER ASK is a node's number")?;
        let asked = question(words)?;
        let Some(session) = cx.clients.sessions.get(client) else { return Ok(None) };
        if session.standing() != Standing::Free
            && let Some(user) = session.user().cloned()
            && let Err(denial) = user.check(asked.found, words, session.database)
        {
            connections::refuse(cx, client, asked.found, words, denial);
            return Ok(None);
        }
        let own = cx.configuration.node;
        if id == own {
            return Ok(Some(asked));
        }
        if !cx.map.nodes.contains_key(&id) {
            return Err(format!("ERR there is no node {id}: CLUSTER MAP names those that there are"));
        }
        if !cx.peers.is_up(id) {
            return Err(format!("CLUSTERDOWN node {own} has no link to node {id}"));
        }
        let peer = &mut cx.peers[id];
        if peer.output_bytes() > PEER_OUTPUT_BYTES_MAX {
            return Err(format!("TRYAGAIN node {id} is behind with what it is sent; nothing was asked"));
        }
        self.last += 1;
        let mut encoded = Vec::new();
        words.iter().for_each(|word| encoded.put_bytes(word));
        peer.send(&Envelope::Asked { id: self.last, words: &encoded });
        let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(None) };
        let question = Question {
            client,
            ticket: session.begin(false),
            to: id,
            due_us: cx.now.monotonic_us + ANSWER_US,
        };
        self.open.insert(self.last, question);
        Ok(None)
    }

    /// Takes another node's answer. An answer that comes too late matches no question.
    ///
    /// # Errors
    /// [`Malformed`] when it is not one whole reply.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        id: u64,
        reply: &[u8],
    ) -> Result<(), Malformed> {
        if element_end(reply)? != reply.len() {
            return Err(Malformed("bytes behind an answer"));
        }
        if self.open.get(&id).is_some_and(|question| question.to == from) {
            self.end(cx, id, reply);
        }
        Ok(())
    }

    /// Ends the overdue questions.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        while let Some((id, question)) = self.open.first_key_value()
            && question.due_us <= cx.now.monotonic_us
        {
            let (id, to) = (*id, question.to);
            let mut reply = ReplyBuffer::new();
            reply
                .error(&format!("CLUSTERDOWN node {to} has not answered within {} s", ANSWER_US / 1_000_000));
            self.end(cx, id, reply.as_bytes());
        }
    }

    fn end(&mut self, cx: &mut Context, id: u64, reply: &[u8]) {
        let Some(Question { client, ticket, .. }) = self.open.remove(&id) else { return };
        cx.count_error(reply);
        let done = Outcome::Done { version: 0, offset: 0 };
        cx.complete_session(client, ticket.sequence, 0, done, SessionReply::Encoded(reply));
    }
}

/// The arguments of another node's question.
///
/// # Errors
/// [`Malformed`] when they are not what a node sends.
pub(crate) fn words(encoded: &[u8]) -> Result<ArgumentsBuffer, Malformed> {
    let (mut reader, mut words) = (Reader::new(encoded), ArgumentsBuffer::new());
    while !reader.is_empty() {
        words.push(reader.bytes()?);
    }
    match words.as_arguments().is_empty() {
        true => Err(Malformed("a question without words")),
        false => Ok(words),
    }
}

/// Sends a node the answer to its question, if there is still a link to it.
pub(crate) fn answer(cx: &mut Context, to: NodeId, id: u64, reply: &ReplyBuffer) {
    let mut instead = ReplyBuffer::new();
    let reply = match reply.len() > ANSWER_BYTES_MAX {
        true => {
            let own = cx.configuration.node;
            instead.error(&format!(
                "ERR the answer is longer than {ANSWER_BYTES_MAX} bytes: ask node {own} directly, or for less"
            ));
            &instead
        }
        false => reply,
    };
    let peer = &mut cx.peers[to];
    if peer.is_up() && peer.output_bytes() <= PEER_OUTPUT_BYTES_MAX {
        peer.send(&Envelope::Answered { id, reply: reply.as_bytes() });
    }
}
