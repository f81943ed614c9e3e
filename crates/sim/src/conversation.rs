//! Transactions as clients make them: the client watches and reads a key, then writes that key and a second one,
//! unless another client has written them since.
//!
//! A transaction takes several requests, each of which depends on the reply to the one before. The part of the client
//! that sends them runs beside its node; the client itself sends one request and gets one reply. Both keys count the
//! transactions that took effect, and change only together.

use crate::across::Across;
use crate::operation::{Operation, Reply};
use std::collections::VecDeque;
use wire::resp::ArgumentsBuffer;

/// The transaction in progress on a client's connection to its node. Requests that arrive during it wait, or are sent behind it.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    pub(crate) current: Option<Current>,
    /// What is sent already, and has its replies behind those of `current`.
    pub(crate) behind: VecDeque<Current>,
    pub(crate) later: VecDeque<Operation>,
}

/// A transaction in progress, or a request behind one.
#[derive(Debug)]
pub(crate) enum Current {
    Watching(Conversation),
    Across(Across),
    Single,
}

/// One transaction.
#[derive(Debug)]
pub(crate) struct Conversation {
    operation: Operation,
    stage: Stage,
    /// Whether the requests of this stage have been sent.
    is_sent: bool,
    /// Replies of this stage that have arrived.
    answers: usize,
}

/// A step of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `UNWATCH` and `WATCH`.
    Watch,
    /// `GET`.
    Read,
    /// Everything from `MULTI` to `EXEC`: sets the count to this.
    Write(i64),
}

/// How a conversation continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More replies of this stage are due.
    Wait,
    /// The next requests can be sent.
    Ask,
    /// The conversation is over: the client's reply.
    End(Reply),
}

impl Conversation {
    pub(crate) fn new(operation: Operation) -> Conversation {
        Conversation { operation, stage: Stage::Watch, is_sent: false, answers: 0 }
    }

    /// Returns the requests to send now; each is returned once.
    pub(crate) fn take_requests(&mut self, prefix: &str) -> Vec<ArgumentsBuffer> {
        if std::mem::replace(&mut self.is_sent, true) { Vec::new() } else { self.requests(prefix) }
    }

    fn requests(&self, prefix: &str) -> Vec<ArgumentsBuffer> {
        let mut key = Vec::new();
        self.operation.key.write(prefix, &mut key);
        // The hash tag puts it in the same shard as the first key.
        let twin = [prefix.as_bytes(), b"t{", &key, b"}"].concat();
        let words = |words: &[&[u8]]| {
            let mut request = ArgumentsBuffer::new();
            words.iter().for_each(|word| request.push(word));
            request
        };
        match self.stage {
            Stage::Watch => vec![words(&[b"UNWATCH"]), words(&[b"WATCH", &key, &twin])],
            Stage::Read => vec![words(&[b"GET", &key])],
            Stage::Write(count) => vec![
                words(&[b"MULTI"]),
                words(&[b"SET", &key, count.to_string().as_bytes()]),
                words(&[b"INCR", &twin]),
                words(&[b"GET", &key]),
                words(&[b"EXEC"]),
            ],
        }
    }

    /// Takes the next reply off `bytes`. `None`: it is incomplete, or no correct node sends it.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Option<Next> {
        self.answers += 1;
        match (self.stage, self.answers) {
            (Stage::Watch, 1) => (Reply::take(bytes)? == Reply::Ok).then_some(Next::Wait),
            (Stage::Watch, _) => match Reply::take(bytes)? {
                Reply::Ok => Some(self.enter(Stage::Read)),
                reply => Some(Next::End(reply)),
            },
            (Stage::Read, _) => Some(match Reply::take(bytes)? {
                Reply::Nil => self.enter(Stage::Write(1)),
                Reply::Integer(count) => self.enter(Stage::Write(count + 1)),
                reply => Next::End(reply),
            }),
            (Stage::Write(_), 1) => (Reply::take(bytes)? == Reply::Ok).then_some(Next::Wait),
            (Stage::Write(_), 2..=4) => {
                match bytes.strip_prefix(b"+QUEUED\r\n") {
                    Some(rest) => *bytes = rest,
                    // The command is not queued, and EXEC will refuse the others.
                    None if Reply::take(bytes)? == Reply::Refused("OOM") => {}
                    None => return None,
                }
                Some(Next::Wait)
            }
            (Stage::Write(count), _) => {
                let Some(mut elements) = bytes.strip_prefix(b"*3\r\n") else {
                    if let Some(rest) = bytes.strip_prefix(b"*-1\r\n") {
                        *bytes = rest;
                        return Some(Next::End(Reply::Refused("ABORTED")));
                    }
                    return Some(Next::End(Reply::take(bytes)?));
                };
                let replies = [(); 3].map(|()| Reply::take(&mut elements));
                *bytes = elements;
                let expected = [Reply::Ok, Reply::Integer(count), Reply::Integer(count)].map(Some);
                Some(Next::End(if replies == expected { Reply::Integer(count) } else { Reply::Torn }))
            }
        }
    }

    fn enter(&mut self, stage: Stage) -> Next {
        (self.stage, self.is_sent, self.answers) = (stage, false, 0);
        Next::Ask
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Key, Kind, Value};

    fn conversation() -> Conversation {
        let key = Key { space: 0, class: b'p', number: 3 };
        Conversation::new(Operation::new(Kind::Transact, key, Value::default()))
    }

    fn lines(conversation: &Conversation) -> Vec<String> {
        let text = |request: &ArgumentsBuffer| {
            let words: Vec<_> = request.as_arguments().iter().map(String::from_utf8_lossy).collect();
            words.join(" ")
        };
        conversation.requests("x:").iter().map(text).collect()
    }

    #[test]
    fn a_transaction_watches_reads_and_writes() {
        let mut conversation = conversation();
        assert_eq!(lines(&conversation), ["UNWATCH", "WATCH x:p3 x:t{x:p3}"]);
        let mut bytes = &b"+OK\r\n+OK\r\n"[..];
        assert_eq!(conversation.take(&mut bytes), Some(Next::Wait));
        assert_eq!(conversation.take(&mut bytes), Some(Next::Ask));
        assert_eq!(lines(&conversation), ["GET x:p3"]);
        assert_eq!(conversation.take(&mut &b"$1\r\n4\r\n"[..]), Some(Next::Ask));
        assert_eq!(lines(&conversation), ["MULTI", "SET x:p3 5", "INCR x:t{x:p3}", "GET x:p3", "EXEC"]);
        let mut bytes = &b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:5\r\n$1\r\n5\r\nrest"[..];
        for _ in 0..4 {
            assert_eq!(conversation.take(&mut bytes), Some(Next::Wait));
        }
        assert_eq!(conversation.take(&mut bytes), Some(Next::End(Reply::Integer(5))));
        assert_eq!(bytes, b"rest");
    }

    #[test]
    fn writes_that_find_no_room_are_not_queued_and_exec_refuses() {
        let mut conversation = Conversation { stage: Stage::Write(1), answers: 0, ..conversation() };
        let mut bytes = &b"+OK\r\n-OOM no room\r\n-OOM no room\r\n+QUEUED\r\n-EXECABORT because\r\n"[..];
        for _ in 0..4 {
            assert_eq!(conversation.take(&mut bytes), Some(Next::Wait));
        }
        assert_eq!(conversation.take(&mut bytes), Some(Next::End(Reply::Refused("EXECABORT"))));
    }

    #[test]
    fn an_abort_an_error_or_differing_keys_end_a_transaction() {
        let answers: [(&[u8], Reply); 4] = [
            (b"*-1\r\n", Reply::Refused("ABORTED")),
            (b"-UNKNOWN perhaps\r\n", Reply::Unknown),
            (b"-CLUSTERDOWN NOLEADER\r\n", Reply::Refused("CLUSTERDOWN")),
            (b"*3\r\n+OK\r\n:9\r\n$1\r\n1\r\n", Reply::Torn),
        ];
        for (mut bytes, expected) in answers {
            let mut conversation = Conversation { stage: Stage::Write(1), answers: 4, ..conversation() };
            assert_eq!(conversation.take(&mut bytes), Some(Next::End(expected)));
            assert!(bytes.is_empty());
        }
    }
}
