//! The replies of a session, in the order of its requests.

use super::{Pending, Session};
use crate::diagnostics::slow::keep_arguments;
use crate::session::window::PENDING_MAX;
use kv::{Reply, ReplyBuffer, SharedBytes, Version};
use protocol::Ticket;
use wire::resp::Arguments;
use wire::resp::reply::{Protocol, write_reply};

/// From this much work on, in nanoseconds as estimated, a request is worth a reading of the clock when it is
/// done.
const LONG_NS: u64 = 100_000;

/// A reply, as the node hands it to a session.
#[derive(Debug)]
pub(crate) enum SessionReply<'a> {
    /// In `kv`'s encoding.
    Encoded(&'a [u8]),
    /// In the same encoding, and so long that it is not copied as a whole.
    Long(SharedBytes),
    /// A byte string.
    Value(SharedBytes),
}

impl SessionReply<'_> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            SessionReply::Encoded(encoded) => encoded.len(),
            SessionReply::Long(bytes) | SessionReply::Value(bytes) => bytes.len(),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, SessionReply::Encoded(encoded) if ReplyBuffer::is_error(encoded))
    }

    /// Whether it confirms a subscription, and so is like a message.
    fn is_push(&self) -> bool {
        matches!(self, SessionReply::Encoded(encoded) if matches!(Reply::first(encoded), Reply::Push(_)))
    }
}

/// Which requests get their replies (`CLIENT REPLY`). What the client did not request, such as messages, is
/// always sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    All,
    /// All but that of the request that begins next.
    AllButNext,
    None,
}

/// The place of one request's reply among those of the session. One is made for each request, so it is
/// written field by field, and read in the same way: a copy of what was just written in parts would wait for
/// those writes.
#[derive(Debug)]
pub(super) struct Slot {
    /// The reply, while it waits for an earlier one.
    pub(super) kept: Option<Box<KeptReply>>,
    /// The reply is the version written instead of `OK`.
    pub(super) wants_version: bool,
    /// The client does not want the reply.
    pub(super) is_silent: bool,
    /// The number of the request's command.
    pub(super) command: Option<usize>,
    pub(super) begun_us: u64,
    /// The size of the request.
    pub(super) bytes: usize,
    /// The work that the request takes, if that is long, in nanoseconds.
    pub(super) work_ns: u64,
    /// How many bytes of `asked` are the request's arguments; 0: they are not kept.
    pub(super) asked_bytes: u32,
}

impl Slot {
    /// Whether the request has no outcome yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.kept.is_none()
    }
}

/// A reply that waits for an earlier one: see [`SessionReply`].
#[derive(Debug)]
pub(super) enum KeptReply {
    Encoded(Vec<u8>),
    Long(SharedBytes),
    Value(SharedBytes),
}

impl KeptReply {
    pub(super) fn len(&self) -> usize {
        match self {
            KeptReply::Encoded(encoded) => encoded.len(),
            KeptReply::Long(bytes) | KeptReply::Value(bytes) => bytes.len(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<KeptReply>()
            + match self {
                KeptReply::Encoded(encoded) => encoded.capacity(),
                KeptReply::Long(shared) | KeptReply::Value(shared) => shared.share_bytes(),
            }
    }
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The number of its command; `None` for requests that no client has sent.
    pub(crate) command: Option<usize>,
    /// When it was read, in microseconds of the monotonic clock.
    pub(crate) at_us: u64,
    /// Its own work takes long.
    pub(crate) is_long: bool,
    /// The size of the request.
    pub(crate) bytes: usize,
}

impl Session {
    /// Chooses which requests get their replies from now on. Returns whether this one gets one.
    pub(crate) fn choose_replies(&mut self, replies: Replies) -> bool {
        let skips_nothing = (replies, self.replies) == (Replies::AllButNext, Replies::None);
        self.replies = if skips_nothing { Replies::None } else { replies };
        replies == Replies::All
    }

    /// Makes a place for the reply of a request that begins now.
    #[inline]
    pub(crate) fn begin(&mut self, wants_version: bool) -> Ticket {
        let ticket = Ticket { client: self.id.to_bits(), sequence: self.first + self.slots.len() as u64 };
        let bytes = std::mem::take(&mut self.request_bytes);
        let work_ns = std::mem::take(&mut self.request_ns);
        self.waiting_bytes += bytes;
        self.waiting_ns += work_ns;
        let (command, begun_us) = (self.last_command, self.active_us);
        let is_silent = self.replies != Replies::All;
        if self.replies == Replies::AllButNext {
            self.replies = Replies::All;
        }
        let (kept, asked_bytes) = (None, 0);
        self.slots.push_back(Slot {
            kept,
            wants_version,
            is_silent,
            command,
            begun_us,
            bytes,
            work_ns,
            asked_bytes,
        });
        ticket
    }

    /// A request is carried out over several turns from now on: its work keeps nobody waiting, and no more requests are taken
    /// before it has its reply.
    pub(crate) fn begin_long_read(&mut self, sequence: u64) {
        self.close_gate_now();
        if let Some(slot) =
            sequence.checked_sub(self.first).and_then(|place| self.slots.get_mut(place as usize))
        {
            self.waiting_ns -= std::mem::take(&mut slot.work_ns);
        }
    }

    /// Bytes that the client's reads under way have taken so far.
    pub(crate) fn reading_bytes(&self) -> usize {
        self.reading_bytes
    }

    /// Counts the bytes that a read under way has taken, in place of those that it had taken before.
    pub(crate) fn note_reading(&mut self, before: usize, bytes: usize) {
        self.reading_bytes = self.reading_bytes - before + bytes;
    }

    /// Whether earlier requests have no outcome yet.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether this request is the only one without a reply.
    pub(crate) fn waits_only_for(&self, sequence: u64) -> bool {
        self.slots.len() == 1 && self.first == sequence
    }

    /// Whether a request that has begun before this one has no reply yet.
    pub(crate) fn has_earlier(&self, sequence: u64) -> bool {
        self.first < sequence
    }

    /// Whether requests have begun after this one.
    pub(crate) fn has_later(&self, sequence: u64) -> bool {
        self.first + self.slots.len() as u64 > sequence + 1
    }

    /// A request that waits for its reply.
    #[inline]
    pub(crate) fn begun(&self, sequence: u64) -> Option<Begun> {
        let slot = self.slots.get(sequence.checked_sub(self.first)? as usize)?;
        let Slot { command, begun_us, work_ns, bytes, .. } = *slot;
        Some(Begun { command, at_us: begun_us, is_long: work_ns >= LONG_NS, bytes })
    }

    /// Takes the reply of a request: writes it if it is the next in order, else keeps it until it is. Returns
    /// the number of the command.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        sequence: u64,
        version: Option<Version>,
        reply: SessionReply<'_>,
    ) -> Option<usize> {
        self.window = PENDING_MAX.min(self.window + 1);
        self.reply_bytes = reply.len().max(self.reply_bytes - self.reply_bytes / 64);
        let place = (sequence - self.first) as usize;
        let slot = &self.slots[place];
        assert!(slot.is_waiting(), "a request has one outcome");
        let command = slot.command;
        self.waiting_bytes -= slot.bytes;
        self.waiting_ns -= slot.work_ns;
        match reply {
            SessionReply::Encoded(encoded) if place == 0 && !slot.wants_version && !slot.is_silent => {
                self.pop_slot();
                self.write(encoded);
            }
            reply => self.complete_specially(place, version, reply),
        }
        while self.slots.front().is_some_and(|slot| !slot.is_waiting())
            && let Some(Some(reply)) = self.pop_slot()
        {
            self.kept_bytes -= reply.len();
            match *reply {
                KeptReply::Encoded(encoded) => self.write(&encoded),
                KeptReply::Long(encoded) => self.write_long(&encoded),
                KeptReply::Value(value) => self.output.push_value(value),
            }
        }
        self.output.close = self.closing && self.slots.is_empty();
        command
    }

    /// Takes the reply of the request at a place that is not the next one, or a reply that is not written
    /// unchanged.
    fn complete_specially(&mut self, place: usize, version: Option<Version>, reply: SessionReply<'_>) {
        let slot = &mut self.slots[place];
        let mut integer;
        let is_written = match &reply {
            SessionReply::Encoded(encoded) => slot.wants_version && Reply::first(encoded) == Reply::Ok,
            SessionReply::Long(_) | SessionReply::Value(_) => false,
        };
        let reply = match version {
            Some(version) if is_written => {
                integer = ReplyBuffer::new();
                integer.integer(version as i64);
                SessionReply::Encoded(integer.as_bytes())
            }
            _ if slot.is_silent && !reply.is_push() => SessionReply::Encoded(&[]),
            _ => reply,
        };
        if place > 0 {
            self.kept_bytes += reply.len();
            slot.kept = Some(Box::new(match reply {
                SessionReply::Encoded(encoded) => KeptReply::Encoded(encoded.to_vec()),
                SessionReply::Long(encoded) => KeptReply::Long(encoded),
                SessionReply::Value(value) => KeptReply::Value(value),
            }));
            return;
        }
        self.pop_slot();
        match reply {
            SessionReply::Encoded(encoded) => self.write(encoded),
            SessionReply::Long(encoded) => self.write_long(&encoded),
            SessionReply::Value(value) => self.output.push_value(value),
        }
    }

    /// Removes the first slot, and what is kept for it. Returns its reply if that waited; `None`: there is no
    /// slot.
    #[inline]
    fn pop_slot(&mut self) -> Option<Option<Box<KeptReply>>> {
        let Slot { kept, asked_bytes, .. } = self.slots.pop_front()?;
        self.first += 1;
        if asked_bytes > 0 {
            self.asked.remove(asked_bytes as usize);
        }
        Some(kept)
    }

    /// Whether the request that began last waits for its reply, and its arguments are not kept yet.
    #[inline]
    pub(crate) fn lacks_arguments(&self) -> bool {
        self.slots.back().is_some_and(|slot| slot.is_waiting() && slot.asked_bytes == 0)
    }

    /// Keeps the arguments of the request that was taken last, if it waits for its outcome.
    #[inline]
    pub(crate) fn keep_arguments(
        &mut self,
        arguments: Arguments<'_>,
        is_secret: Option<&dyn Fn(usize) -> bool>,
    ) {
        if self.lacks_arguments()
            && let Some(slot) = self.slots.back_mut()
        {
            slot.asked_bytes = self.asked.push(|out| keep_arguments(arguments, is_secret, out)) as u32;
        }
    }

    /// The arguments of a request that waits for its reply; empty if they were not kept.
    pub(crate) fn asked(&self, sequence: u64) -> Vec<u8> {
        let Some(place) = sequence.checked_sub(self.first) else { return Vec::new() };
        let before: usize =
            self.slots.iter().take(place as usize).map(|slot| slot.asked_bytes as usize).sum();
        let bytes = self.slots.get(place as usize).map_or(0, |slot| slot.asked_bytes as usize);
        self.asked.part(before, bytes).to_vec()
    }

    /// Notes how the reply is made from the outcome of the request that begins next.
    pub(crate) fn expect(&mut self, pending: Pending) {
        self.versions_awaited += usize::from(matches!(pending, Pending::Watch { .. }));
        self.pending.push_back((self.first + self.slots.len() as u64, pending));
    }

    /// Notes how the reply of a request, for which another group is asked, is made from that group's outcome.
    pub(crate) fn expect_again(&mut self, sequence: u64, pending: Pending) {
        self.versions_awaited += usize::from(matches!(pending, Pending::Watch { .. }));
        let place = self.pending.partition_point(|(expected, _)| *expected < sequence);
        self.pending.insert(place, (sequence, pending));
    }

    /// Takes out how the reply is made from the outcome of a request; `None`: the outcome has the reply.
    #[inline]
    pub(crate) fn take_pending(&mut self, sequence: u64) -> Option<Pending> {
        if self.pending.is_empty() {
            return None;
        }
        let place = self.pending.iter().position(|(expected, _)| *expected == sequence)?;
        let (_, pending) = self.pending.remove(place)?;
        self.versions_awaited -= usize::from(matches!(pending, Pending::Watch { .. }));
        Some(pending)
    }

    /// Whether the reply of any request has to be made from its outcome.
    #[inline]
    pub(crate) fn has_any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the reply of a request has to be made from its outcome.
    pub(crate) fn has_pending(&self, sequence: u64) -> bool {
        self.pending.iter().any(|(expected, _)| *expected == sequence)
    }

    /// Whether the versions of watched keys have not arrived yet.
    #[inline]
    pub(crate) fn is_awaiting_versions(&self) -> bool {
        self.versions_awaited > 0
    }

    /// Holds channel messages until the request that begins next is confirmed.
    pub(crate) fn hold_messages(&mut self) {
        self.messages_held_until = self.first + self.slots.len() as u64 + 1;
    }

    /// Writes a message that the client did not request, as early as possible: in RESP3 between any two
    /// replies, but after the confirmation of its subscription; in RESP2, where it would be taken for a
    /// reply, after all outstanding replies.
    pub(crate) fn push(&mut self, encoded: &[u8]) {
        let may_overtake = self.protocol == Protocol::Resp3 && self.first >= self.messages_held_until;
        if self.slots.is_empty() || may_overtake {
            return self.write(encoded);
        }
        self.messages += 1;
        self.slots.push_back(Slot {
            kept: Some(Box::new(KeptReply::Encoded(encoded.to_vec()))),
            wants_version: false,
            is_silent: false,
            command: None,
            begun_us: self.active_us,
            bytes: 0,
            work_ns: 0,
            asked_bytes: 0,
        });
        self.kept_bytes += encoded.len();
    }

    #[inline(always)]
    fn write(&mut self, encoded: &[u8]) {
        if self.is_internal() {
            self.output.bytes.extend_from_slice(encoded);
        } else {
            write_reply(encoded, self.protocol, self.output.end())
                .expect("the node wrote this reply, or checked it when a peer sent it");
        }
    }

    /// Writes a long reply, which is translated as the client takes it.
    fn write_long(&mut self, reply: &SharedBytes) {
        if self.is_internal() {
            return self.write(reply);
        }
        self.output.push_encoded(reply.clone(), self.protocol);
    }

    /// Bytes of the replies that this session holds.
    #[inline(always)]
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.len() + self.kept_bytes
    }

    /// Takes no further requests, and closes the connection once the replies so far are written.
    pub(crate) fn close_after_replies(&mut self) {
        self.closing = true;
        self.output.close = self.slots.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::output::OUTPUT_CHUNK_BYTES;
    use crate::session::{ClientId, ClientKind};

    /// Reads all output like a client. Returns it, and the most that was ever available to the client at
    /// once.
    fn read_all(session: &mut Session) -> (Vec<u8>, usize) {
        let (mut read, mut most) = (Vec::new(), 0);
        loop {
            let output = session.output.filled();
            most = most.max(output.bytes.len());
            read.append(&mut output.bytes);
            if output.is_written() {
                return (read, most);
            }
        }
    }

    /// The same for a client whose socket takes `at_a_time` bytes at a time, and large values without a copy.
    fn read_in_parts(session: &mut Session, at_a_time: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while !session.output.is_written() {
            let (bytes, behind) = session.output.parts();
            let of_bytes = at_a_time.min(bytes.len());
            read.extend(bytes.drain(..of_bytes));
            let rest = behind.unwrap_or_default().concat();
            let of_rest = (at_a_time - of_bytes).min(rest.len());
            read.extend_from_slice(&rest[..of_rest]);
            session.output.written_behind(of_rest);
        }
        read
    }

    #[test]
    fn a_large_value_is_written_piece_by_piece_in_its_place_among_the_replies() {
        let mut session = Session::new(ClientId::from_bits(0), ClientKind::Internal, None, 0);
        session.kind =
            ClientKind::Resp { address: String::new(), local_address: String::new(), fd: 0, tls: None };
        let mut ok = ReplyBuffer::default();
        ok.ok();
        let value = SharedBytes::from(vec![b'v'; 3 * OUTPUT_CHUNK_BYTES + 5]);
        let answer = |session: &mut Session, first: u64| {
            for _ in 0..5 {
                session.begin(false);
            }
            // The second and the fourth reply are large; a reply that is complete before its turn waits for
            // it.
            for sequence in [1, 0, 2, 4, 3] {
                let reply = match sequence {
                    1 | 3 => SessionReply::Value(value.clone()),
                    _ => SessionReply::Encoded(ok.as_bytes()),
                };
                session.complete(first + sequence, None, reply);
            }
        };
        let bulk = [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat();
        let expected = [b"+OK\r\n", &bulk[..], b"+OK\r\n", &bulk[..], b"+OK\r\n"].concat();
        for (times, at_a_time) in (0..).zip([1000, OUTPUT_CHUNK_BYTES - 1, OUTPUT_CHUNK_BYTES, usize::MAX]) {
            answer(&mut session, 5 * times);
            assert!(read_in_parts(&mut session, at_a_time) == expected, "{at_a_time} bytes at a time");
        }
        answer(&mut session, 20);
        assert!(!session.wants_input(), "replies wait to be read");
        session.close_after_replies();
        assert!(!session.output.is_over());
        let (read, most) = read_all(&mut session);
        assert!(read == expected);
        assert!(most <= 2 * OUTPUT_CHUNK_BYTES, "{most} bytes at once");
        assert!(session.output.is_over() && session.output_bytes() == 0);
    }

    #[test]
    fn a_long_reply_is_written_as_any_other_and_large_values_in_it_stay_where_they_are() {
        let mut reply = ReplyBuffer::default();
        let large = [vec![b'a'; OUTPUT_CHUNK_BYTES], vec![b'b'; 2 * OUTPUT_CHUNK_BYTES]];
        reply.map(2);
        reply.bulk(b"field");
        reply.bulk(&large[0]);
        reply.array(3);
        reply.null();
        reply.bulk(&large[1]);
        reply.integer(7);
        reply.ok();
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            for is_kept in [false, true] {
                let mut session = Session::new(ClientId::from_bits(0), ClientKind::Internal, None, 0);
                session.kind = ClientKind::Resp {
                    address: String::new(),
                    local_address: String::new(),
                    fd: 0,
                    tls: None,
                };
                session.protocol = protocol;
                let mut expected = Vec::new();
                write_reply(reply.as_bytes(), protocol, &mut expected).expect("a whole reply");
                let long = SharedBytes::from(reply.as_bytes().to_vec());
                let mut ok = ReplyBuffer::default();
                ok.ok();
                let ok = || SessionReply::Encoded(ok.as_bytes());
                (0..3).for_each(|_| _ = session.begin(false));
                let places = if is_kept { [1, 2, 0] } else { [0, 1, 2] };
                for place in places {
                    let is_long = place == 1;
                    session.complete(
                        place,
                        None,
                        if is_long { SessionReply::Long(long.clone()) } else { ok() },
                    );
                }
                assert!(session.output.bytes.len() < 100, "{} bytes were copied", session.output.bytes.len());
                let (read, most) = read_all(&mut session);
                assert!(read == [b"+OK\r\n", &expected[..], b"+OK\r\n"].concat(), "{protocol:?}");
                assert!(most <= 2 * OUTPUT_CHUNK_BYTES, "{most} bytes at once");
                assert_eq!(session.output_bytes(), 0);
            }
        }
    }
}
