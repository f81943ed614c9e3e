//! Look-ahead in a pipeline.

use wire::resp::{Arguments, Limits, Progress, RequestParser};

/// Requests parsed before the one in front of them is executed, so that what they need can be fetched from
/// memory all at once: in a large table a command spends most of its time waiting for memory.
pub(crate) struct LookAhead {
    parsers: [RequestParser; LookAhead::REQUESTS],
    /// Where each request begins and ends.
    spans: [(usize, usize); LookAhead::REQUESTS],
}

impl LookAhead {
    /// Enough to overlap the waits, few enough that what was fetched is still in the cache when it is used.
    pub(crate) const REQUESTS: usize = 15;

    /// Creates a look-ahead that has parsed nothing.
    pub(crate) fn new() -> LookAhead {
        LookAhead { parsers: std::array::from_fn(|_| RequestParser::new()), spans: Default::default() }
    }

    /// Parses the complete requests at the start of `bytes`, and returns how many there are.
    pub(crate) fn parse(&mut self, bytes: &[u8], limits: &Limits) -> usize {
        let mut at = 0;
        for (count, (parser, span)) in self.parsers.iter_mut().zip(&mut self.spans).enumerate() {
            match parser.parse(&bytes[at..], limits) {
                Ok(Progress::Complete { consumed }) if at < bytes.len() => {
                    *span = (at, at + consumed);
                    at += consumed;
                }
                _ => {
                    // The rest of this request arrives later and goes to another parser.
                    *parser = RequestParser::new();
                    return count;
                }
            }
        }
        Self::REQUESTS
    }

    /// The arguments of the request at `index`.
    pub(crate) fn arguments<'a>(&'a self, index: usize, bytes: &'a [u8]) -> Arguments<'a> {
        self.parsers[index].arguments(&bytes[self.spans[index].0..])
    }

    /// The length of the request at `index`, in bytes.
    pub(crate) fn length(&self, index: usize) -> usize {
        self.spans[index].1 - self.spans[index].0
    }
}
