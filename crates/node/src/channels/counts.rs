//! `PUBSUB NUMSUB` and related commands: how many clients of all nodes listen to a channel.
//!
//! A node does not know the listeners of other nodes, so it asks them. A node that does not answer counts as one without
//! listeners: no message would reach them.

use super::{Channels, PEER_OUTPUT_BYTES_MAX};
use crate::context::Context;
use crate::messages::envelope::Envelope;
use crate::session::{ClientId, Listening, SessionReply};
use kv::ReplyBuffer;
use kv::codec::{Malformed, Reader, Writer};
use protocol::{NodeId, Result as Outcome, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// The most channels that one request counts.
pub(super) const COUNTED_CHANNELS_MAX: usize = 1000;

/// How long a node has to answer.
const ANSWER_US: u64 = 1_000_000;

/// Questions of this node's clients to other nodes, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<u64, Question>,
    last: u64,
}

#[derive(Debug)]
struct Question {
    client: ClientId,
    ticket: Ticket,
    /// The channels, each with the number of listeners counted so far.
    counts: Vec<(Vec<u8>, u64)>,
    unanswered: BTreeSet<NodeId>,
    due_us: u64,
}

impl Channels {
    /// Replies to a client with the number of listeners of each channel on all nodes; within a transaction, which does not
    /// wait, with that of this node.
    pub(super) fn count<'a>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        how: Listening,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        let counts: Vec<_> = names.map(|name| (name.to_vec(), self.listeners_here(how, name))).collect();
        let mut encoded = Vec::new();
        counts.iter().for_each(|(name, _)| encoded.put_bytes(name));
        let (id, is_sharded) = (self.questions.last + 1, how == Listening::Shard);
        let envelope = Envelope::ListenersAsked { id, is_sharded, names: &encoded };
        let mut unanswered = BTreeSet::new();
        if !counts.is_empty() && !cx.clients.is_capturing() {
            for (node, peer) in cx.peers.up_mut() {
                if peer.output_bytes() <= PEER_OUTPUT_BYTES_MAX {
                    peer.send(&envelope);
                    unanswered.insert(node);
                }
            }
        }
        if unanswered.is_empty() {
            return cx.answer(client, |replies| write_counts(&counts, replies));
        }
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let (ticket, due_us) = (session.begin(false), cx.now.monotonic_us + ANSWER_US);
        self.questions.last = id;
        self.questions.open.insert(id, Question { client, ticket, counts, unanswered, due_us });
    }

    fn listeners_here(&self, how: Listening, name: &[u8]) -> u64 {
        self.of(how).get(name).map_or(0, |listeners| listeners.clients.len() as u64)
    }

    /// Answers another node's question.
    ///
    /// # Errors
    /// [`Malformed`] if the names are not encoded as a node encodes them.
    pub(crate) fn listeners_asked(
        &self,
        cx: &mut Context,
        from: NodeId,
        (id, is_sharded): (u64, bool),
        names: &[u8],
    ) -> Result<(), Malformed> {
        let how = if is_sharded { Listening::Shard } else { Listening::Channel };
        let (mut names, mut counts) = (Reader::new(names), Vec::new());
        while !names.is_empty() {
            counts.put_u64(self.listeners_here(how, names.bytes()?));
        }
        let peer = &mut cx.peers[from];
        if peer.is_up() && peer.output_bytes() <= PEER_OUTPUT_BYTES_MAX {
            peer.send(&Envelope::Listeners { id, counts: &counts });
        }
        Ok(())
    }

    /// Takes another node's answer. A late or repeated answer belongs to no question and is ignored.
    ///
    /// # Errors
    /// [`Malformed`] if there is not one count for each channel.
    pub(crate) fn listeners_answered(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        id: u64,
        counts: &[u8],
    ) -> Result<(), Malformed> {
        let Some(question) = self.questions.open.get_mut(&id) else { return Ok(()) };
        if !question.unanswered.remove(&from) {
            return Ok(());
        }
        let mut counts = Reader::new(counts);
        for (_, count) in &mut question.counts {
            *count = count.saturating_add(counts.u64()?);
        }
        if !counts.is_empty() {
            return Err(Malformed("more counts than channels"));
        }
        if question.unanswered.is_empty() {
            self.end_question(cx, id);
        }
        Ok(())
    }

    /// Ends the questions that have waited long enough.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        while let Some((id, question)) = self.questions.open.first_key_value()
            && question.due_us <= cx.now.monotonic_us
        {
            self.end_question(cx, *id);
        }
    }

    fn end_question(&mut self, cx: &mut Context, id: u64) {
        let Some(Question { client, ticket, counts, .. }) = self.questions.open.remove(&id) else { return };
        let mut replies = ReplyBuffer::new();
        write_counts(&counts, &mut replies);
        let done = Outcome::Done { version: 0, offset: 0 };
        cx.complete_session(client, ticket.sequence, 0, done, SessionReply::Encoded(replies.as_bytes()));
    }
}

fn write_counts(counts: &[(Vec<u8>, u64)], replies: &mut ReplyBuffer) {
    replies.array(2 * counts.len());
    for (name, count) in counts {
        replies.bulk(name);
        replies.integer(i64::try_from(*count).unwrap_or(i64::MAX));
    }
}
