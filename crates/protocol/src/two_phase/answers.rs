//! What a group answers to a record of a transaction.

use crate::contract::Result as Outcome;
use kv::codec::Reader;
use kv::two_phase::Vote;
use kv::{Reply, TransactionId, UnixMs};

/// A group's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<'r> {
    /// It has prepared the transaction; with the encoded reply that its share will give, if it was asked to prepare it.
    Prepared(Option<&'r [u8]>),
    /// It has locked the keys, at this time, with the encoded reply of the share that reads.
    Locked(UnixMs, &'r [u8]),
    /// It votes against the transaction: this other one is in the way.
    InTheWay(TransactionId),
    /// It votes against the transaction: a watched key has changed.
    Changed,
    /// It votes against the transaction: a command of the share fails, with this encoded error.
    Failed(&'r [u8]),
    /// Another vote, or one that was cast before.
    Vote(Vote),
    /// The record was not applied, and never will be.
    NotOrdered(&'r [u8]),
    /// The record may be applied, or may have been.
    Unknown,
}

impl<'r> Answer<'r> {
    /// The answer in the outcome of a record.
    pub(super) fn of(result: Outcome, reply: &'r [u8]) -> Answer<'r> {
        match result {
            Outcome::Done { .. } => Answer::in_reply(reply).unwrap_or(Answer::NotOrdered(reply)),
            // A redirect that comes to a coordinator could not be followed.
            Outcome::Refused | Outcome::Redirect { .. } => Answer::NotOrdered(reply),
            Outcome::Unknown => Answer::Unknown,
        }
    }

    /// `None` for an error: the record was refused, and has not changed the group's vote.
    fn in_reply(reply: &'r [u8]) -> Option<Answer<'r>> {
        let vote = |word: &[u8]| Vote::ALL.into_iter().find(|vote| vote.word().as_bytes() == word);
        let mut elements = Reader::new(reply);
        let count = match Reply::decode(&mut elements) {
            Ok(Reply::Array(count)) => count,
            // To `Ask`.
            Ok(Reply::Status(word)) => return Some(Answer::Vote(vote(word)?)),
            _ => return None,
        };
        let Ok(Reply::Status(word)) = Reply::decode(&mut elements) else { return None };
        let vote = vote(word)?;
        let rest = elements.rest();
        Some(match (vote, count) {
            (Vote::Locked, 3) => match Reply::decode(&mut elements) {
                Ok(Reply::Integer(time)) => {
                    Answer::Locked(UnixMs::try_from(time).unwrap_or(0), elements.rest())
                }
                _ => return None,
            },
            (Vote::Prepared, 2) => Answer::Prepared(Some(rest)),
            (Vote::Prepared, _) => Answer::Prepared(None),
            (Vote::Refused, 2) => match Reply::first(rest) {
                Reply::Bulk(id) => Answer::InTheWay(TransactionId::decode(id).ok()?),
                Reply::Error(_) => Answer::Failed(rest),
                _ => Answer::Changed,
            },
            (vote, _) => Answer::Vote(vote),
        })
    }
}
