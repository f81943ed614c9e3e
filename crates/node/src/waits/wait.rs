//! What a coordinator knows about its clients' waiting requests.

use super::CHECK_US;
use crate::context::Context;
use crate::session::{ClientId, Standing};
use commands::Found;
use kv::{Command, Hold, ListCommand, SortedCommand, StreamCommand, UnixMs, Version, WaiterId, Wish};
use protocol::{NodeId, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use wire::resp::ArgumentsBuffer;

/// The most requests that are remembered because they were removed without certainty.
const UNSETTLED_MAX: usize = 10_000;

/// The least pause. It is longer than a node sleeps when there is nothing to do.
const PAUSE_US: u64 = 150_000;

/// How often a request that may claim something asks for that, at most.
const CLAIM_US: u64 = 100_000;

/// Set in the numbers of requests over several groups.
pub(super) const SPREAD: u64 = 1 << 63;

/// What a group was asked for a wait, and has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether there is something to read: then the request need not wait.
    Read,
    /// To get the lock, or to be served.
    Ask,
    /// In which state the request is.
    Check,
    /// To stop waiting, or to return what it was served.
    Conclude,
    /// To stop waiting.
    Withdraw,
}

/// What a wait is kept for.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its client waits.
    Waiting(Waiting),
    /// The client no longer waits. The wait stays until it is certain that it holds nothing.
    Leaving(Leaving),
    /// The client has what it was served. The wait stays until no record can ask for it once more.
    Settling,
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// When the client's waiting time is over.
    pub(super) ends_us: u64,
    pub(super) progress: Progress,
    /// A grant was notified while an answer was awaited. If the answer is that the request waits, the grant may have
    /// come after that.
    pub(super) was_notified: bool,
    /// `CLIENT UNBLOCK … ERROR` ends the wait.
    pub(super) ends_with_error: bool,
    /// The latest error with the reason why the request is not queued, if any.
    pub(super) error: Vec<u8>,
}

/// How far a client's request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The request is not known to be queued.
    Asking,
    /// The request is queued.
    Queued,
    /// The request's time is over. Its client is answered when it is known whether it was served before that.
    Ending,
}

/// The withdrawal of a request whose client is gone.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// The request was granted the lock, or may have been, since its withdrawal was submitted.
    pub(super) again: bool,
    /// How often the withdrawal had no outcome, up to a limit.
    pub(super) failures: u32,
    /// The wait stays only because a record may ask for it once more, until this time.
    pub(super) lingers_until_us: Option<u64>,
}

/// What a request waits for.
#[derive(Clone, Debug)]
pub(super) enum Want {
    Lock {
        name: Box<[u8]>,
        owner: Box<[u8]>,
        hold: Hold,
    },
    Elements(KeptWish),
    /// Elements of which this node knows only that the request was served: its client may have what it has claimed. They
    /// are only given back.
    Served,
}

/// A command that waits, encoded.
#[derive(Clone, Debug)]
pub(crate) struct KeptWish(Box<[u8]>);

impl KeptWish {
    pub(super) fn new(wish: Wish<'_>) -> KeptWish {
        KeptWish(wish.bytes().into())
    }

    pub(crate) fn as_wish(&self) -> Wish<'_> {
        Wish::of(&self.0).expect("it was a wish when it was kept")
    }

    /// Whether the command only reads.
    pub(super) fn only_reads(&self) -> bool {
        !self.as_wish().command().is_write()
    }

    /// Whether the command reads what may exist already: after `$` nothing exists yet.
    fn may_be_there(&self) -> bool {
        match self.as_wish().command() {
            Command::OnStream(StreamCommand::Read { streams, .. }) => {
                streams.pairs().any(|(_, id)| id != b"$")
            }
            _ => false,
        }
    }
}

impl Want {
    /// A lock that only has to be given back: no client wants it.
    pub(super) fn without_client(name: &[u8]) -> Want {
        Want::Lock { name: name.into(), owner: Box::default(), hold: Hold::Lease(0) }
    }

    /// The request of a client that waits with this command: with its keys in their places, and nothing else that users' rules
    /// depend on.
    pub(super) fn request(&self, name: &str) -> ArgumentsBuffer {
        let mut request = ArgumentsBuffer::new();
        let mut push_all = |words: &[&[u8]]| words.iter().for_each(|word| request.push(word));
        push_all(&[name.as_bytes()]);
        let wish = match self {
            Want::Lock { name, .. } => {
                push_all(&[name]);
                return request;
            }
            Want::Served => return request,
            Want::Elements(wish) => wish,
        };
        let command = wish.as_wish().command();
        match command {
            Command::OnList(ListCommand::MultiPop { keys, .. })
            | Command::OnSorted(SortedCommand::MultiPop { keys, .. }) => {
                push_all(&[b"0", keys.len().to_string().as_bytes()]);
            }
            Command::OnStream(StreamCommand::Read { .. }) => push_all(&[b"STREAMS"]),
            Command::OnStream(_) => push_all(&[b"GROUP", b"", b"", b"STREAMS"]),
            _ => {}
        }
        let mut count = 0;
        command.for_each_key(|key| {
            push_all(&[key]);
            count += 1;
        });
        match command {
            // An id for each stream.
            Command::OnStream(_) => (0..count).for_each(|_| push_all(&[b""])),
            _ => push_all(&[b""]),
        }
        request
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        match self {
            Want::Lock { hold, .. } => Some(*hold),
            Want::Elements(_) | Want::Served => None,
        }
    }
}

/// One request that waits.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) group: u16,
    pub(super) want: Want,
    pub(super) stage: Stage,
    pub(super) question: Option<Question>,
    /// A record that asks for the request may still take effect: its outcome is not known.
    pub(super) is_uncertain: bool,
    /// The request is known to have been queued.
    pub(super) was_queued: bool,
    /// When the wait is handled next in any case; also in `Waits::due`.
    pub(super) due_us: u64,
}

impl Wait {
    /// The request of a client that waits until `ends_us`.
    pub(super) fn new(ticket: Ticket, group: u16, want: Want, ends_us: u64) -> Wait {
        let progress = Progress::Asking;
        let (was_notified, ends_with_error, error) = (false, false, Vec::new());
        let waiting = Waiting { ticket, ends_us, progress, was_notified, ends_with_error, error };
        Wait { stage: Stage::Waiting(waiting), ..Wait::leaving(group, want) }
    }

    /// A request that only has to be withdrawn.
    pub(super) fn leaving(group: u16, want: Want) -> Wait {
        let stage = Stage::Leaving(Leaving::default());
        let (is_uncertain, was_queued) = (false, false);
        Wait { group, want, stage, question: None, is_uncertain, was_queued, due_us: u64::MAX }
    }

    /// The client, while it waits.
    pub(super) fn waiting(&self) -> Option<&Waiting> {
        match &self.stage {
            Stage::Waiting(waiting) => Some(waiting),
            Stage::Leaving(_) | Stage::Settling => None,
        }
    }

    pub(super) fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        match &mut self.stage {
            Stage::Waiting(waiting) => Some(waiting),
            Stage::Leaving(_) | Stage::Settling => None,
        }
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        self.waiting().map(|waiting| waiting.progress)
    }

    /// Whether no record that asks for the request has taken effect, or may still do so.
    pub(super) fn is_new(&self) -> bool {
        self.progress() == Some(Progress::Asking) && !self.is_uncertain && !self.was_queued
    }

    /// Whether the request waits for something that it only reads.
    pub(super) fn only_reads(&self) -> bool {
        matches!(&self.want, Want::Elements(wish) if wish.only_reads())
    }

    /// What the group is asked first. A read needs no record, if there is something.
    ///
    /// `$` means the last entry at the time of the record that makes the request wait. So that record must not be
    /// later than necessary: entries that are added before it are not seen.
    pub(super) fn first_question(&self) -> Question {
        match &self.want {
            Want::Elements(wish) if wish.may_be_there() => Question::Read,
            _ => Question::Ask,
        }
    }

    /// For how long what the request may claim must have been pending, if it may claim anything.
    pub(super) fn claims_after_us(&self) -> Option<u64> {
        match &self.want {
            Want::Elements(wish) => wish.as_wish().claims_after().map(|ms| ms.saturating_mul(1000)),
            Want::Lock { .. } | Want::Served => None,
        }
    }

    /// How long after the request was queued it is looked at again, if nothing seems to be lost.
    pub(super) fn check_us(&self) -> u64 {
        self.claims_after_us().map_or(CHECK_US, |after_us| after_us.clamp(CLAIM_US, CHECK_US))
    }

    pub(super) fn is_for_elements(&self) -> bool {
        matches!(self.want, Want::Elements(_) | Want::Served)
    }

    fn lingers(&self) -> bool {
        match &self.stage {
            Stage::Waiting(_) => false,
            Stage::Leaving(leaving) => leaving.lingers_until_us.is_some(),
            Stage::Settling => true,
        }
    }
}

/// A request of a client that waits at keys of several groups.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) client: ClientId,
    pub(super) database: u8,
    pub(super) ticket: Ticket,
    pub(super) wish: KeptWish,
    /// When it began to wait, by the clock that the nodes agree on.
    pub(super) since: UnixMs,
    pub(super) ends_us: u64,
    /// The groups, by the cluster map of this version.
    pub(super) groups: BTreeMap<u16, Place>,
    pub(super) map_version: u64,
    /// A transaction is under way.
    pub(super) is_trying: bool,
    /// The client has left while it was: what it takes goes back.
    pub(super) is_gone: bool,
    /// It was looked at whether its groups take part in transactions.
    pub(super) is_admitted: bool,
    /// A transaction has begun before.
    pub(super) is_again: bool,
    /// A transaction has looked, and found nothing.
    pub(super) has_looked: bool,
    /// There may be something that no transaction has seen.
    pub(super) is_woken: bool,
    /// Nothing is tried, and no group is asked, before this.
    pub(super) not_before_us: u64,
    /// The client gets this error instead of null.
    pub(super) instead: Option<Vec<u8>>,
    /// The latest error of what is tried again.
    pub(super) error: Vec<u8>,
    pub(super) due_us: u64,
}

/// What is known of a group in which a request waits.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) keys: Vec<Box<[u8]>>,
    /// An answer is awaited.
    pub(super) is_asked: bool,
    /// Its leader has noted the client, and has not woken it since.
    pub(super) is_noted: bool,
    /// The marks of its keys, encoded, when its leader noted the client last.
    pub(super) marks: Option<Vec<u8>>,
}

/// Whether a request waits at keys of several groups.
pub(super) fn is_spread(number: u64) -> bool {
    number & SPREAD > 0
}

/// All waits, by their numbers.
#[derive(Debug)]
pub(crate) struct Waits {
    node: NodeId,
    life: u64,
    last: u64,
    by_number: BTreeMap<u64, Wait>,
    /// The requests that wait at keys of several groups, by their numbers.
    pub(super) spreads: BTreeMap<u64, Spread>,
    /// When each wait is handled next, with its number.
    pub(super) due: BTreeSet<(u64, u64)>,
    /// Numbers of this incarnation that were removed although a record may still grant them the lock, each with the
    /// token that its client got. For all other numbers that are not in `by_number`, the client got the answer, or it
    /// is certain that they hold nothing.
    unsettled: BTreeMap<u64, Option<Version>>,
    /// Requests that are to be settled, by their groups, and when.
    pub(super) to_settle: BTreeMap<u16, Vec<u64>>,
    pub(super) settle_us: u64,
    /// Requests whose settlement was submitted, by the number of the settlement.
    pub(super) settling: BTreeMap<u64, (u16, Vec<u64>)>,
    /// How long this node's latest pause was, and until when that matters.
    pause_us: u64,
    doubts_until_us: u64,
}

impl Waits {
    /// `life` must be different at each start of the node.
    pub(crate) fn new(node: NodeId, life: u64) -> Waits {
        Waits {
            node,
            life,
            last: 0,
            by_number: BTreeMap::new(),
            spreads: BTreeMap::new(),
            due: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            to_settle: BTreeMap::new(),
            settle_us: u64::MAX,
            settling: BTreeMap::new(),
            pause_us: 0,
            doubts_until_us: 0,
        }
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// Notes how much time has passed since the turn before. The process, or the machine, may have been stopped.
    pub(crate) fn note_pause(&mut self, now_us: u64, since_us: u64) {
        let pause_us = now_us.saturating_sub(since_us);
        let is_longer = pause_us > PAUSE_US && pause_us >= self.pause_us;
        if is_longer || now_us >= self.doubts_until_us {
            self.pause_us = pause_us;
            // Messages that arrived during the pause may take some turns to be read.
            self.doubts_until_us = now_us.saturating_add(pause_us);
        }
    }

    /// Whether a grant with this hold may have arrived long ago, and been unread until this node continued.
    pub(super) fn is_doubtful(&self, hold: Hold, now_us: u64) -> bool {
        const SHARE: u64 = 4;
        match hold {
            _ if now_us >= self.doubts_until_us || self.pause_us <= PAUSE_US => false,
            Hold::Lease(ms) => self.pause_us.saturating_mul(SHARE) >= ms.saturating_mul(1000),
            Hold::Session(_) => true,
        }
    }

    pub(super) fn waiter(&self, number: u64) -> Option<WaiterId> {
        NonZeroU64::new(number).map(|number| WaiterId { node: self.node, life: self.life, number })
    }

    pub(super) fn add(&mut self, wait: Wait) -> u64 {
        let number = self.next_number();
        self.put(number, wait);
        number
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn put(&mut self, number: u64, wait: Wait) {
        self.by_number.insert(number, wait);
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Wait> {
        self.by_number.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Wait> {
        let wait = self.by_number.remove(&number)?;
        self.due.remove(&(wait.due_us, number));
        Some(wait)
    }

    /// A client that waits, by the number of its wait.
    pub(super) fn waiting_mut(&mut self, number: u64) -> Option<&mut Waiting> {
        self.get_mut(number)?.waiting_mut()
    }

    /// Handles the wait at `due_us`, and not at the time that was set before.
    pub(super) fn look_at(&mut self, number: u64, due_us: u64) {
        let Some(wait) = self.by_number.get_mut(&number) else { return };
        self.due.remove(&(wait.due_us, number));
        wait.due_us = due_us;
        self.due.insert((due_us, number));
    }

    pub(super) fn take_due(&mut self, now_us: u64) -> Option<u64> {
        self.due.first().filter(|(due_us, _)| *due_us <= now_us)?;
        self.due.pop_first().map(|(_, number)| number)
    }

    /// When the next wait is due.
    pub(crate) fn next_due_us(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(due_us, _)| *due_us).min(self.settle_us)
    }

    /// Remembers a number that is removed, and may still be granted the lock, or be granted it once more. `granted`
    /// is the token that its client got, if any.
    pub(super) fn remember_unsettled(&mut self, number: u64, granted: Option<Version>) {
        self.unsettled.insert(number, granted);
        if self.unsettled.len() > UNSETTLED_MAX {
            // The oldest is forgotten: a grant that comes this late ends by its lease.
            self.unsettled.pop_first();
        }
    }

    /// Whether a grant is one that no client has got or ever will get, and that may still stand. Tokens grow, and a grant
    /// ends before the lock is granted again: with a token below the one that the client got it is over.
    pub(super) fn is_unwanted_grant(&self, number: u64, token: Version) -> bool {
        self.unsettled.get(&number).is_some_and(|granted| granted.is_none_or(|granted| token > granted))
    }

    pub(super) fn numbers(&self, which: impl Fn(&Wait) -> bool) -> Vec<u64> {
        self.by_number.iter().filter(|(_, wait)| which(wait)).map(|(number, _)| *number).collect()
    }

    /// What clients wait for whose users may not do everything.
    pub(crate) fn of_limited_users(&self, cx: &Context) -> Vec<(u64, ClientId, Found, ArgumentsBuffer)> {
        let limited = self.by_number.iter().filter_map(|(number, wait)| {
            let ticket = wait.waiting()?.ticket;
            let client = ClientId::from_bits(ticket.client);
            let session = cx.clients.sessions.get(client)?;
            let command = session.begun(ticket.sequence)?.command?;
            let spec = commands::by_number(command).filter(|_| session.standing() == Standing::Limited)?;
            Some((*number, client, Found { spec, number: command }, wait.want.request(spec.name)))
        });
        limited.chain(self.spreads_of_limited_users(cx)).collect()
    }

    /// How many clients wait for locks, and how many for elements.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let waiting = self.by_number.values().filter(|wait| wait.waiting().is_some());
        waiting.fold((0, self.waiting_over_groups()), |(locks, elements), wait| match wait.want {
            Want::Lock { .. } => (locks + 1, elements),
            Want::Elements(_) | Want::Served => (locks, elements + 1),
        })
    }

    /// At how many keys clients wait for elements, and at how many of these one reads for a consumer group: it stops waiting when
    /// the key is gone.
    pub(crate) fn awaited_keys(&self) -> (usize, usize) {
        let (mut all, mut consumed) = (BTreeSet::new(), BTreeSet::new());
        for wait in self.by_number.values().filter(|wait| wait.waiting().is_some()) {
            let Want::Elements(wish) = &wait.want else { continue };
            let command = wish.as_wish().command();
            let is_consumer = matches!(
                command,
                Command::OnStream(StreamCommand::Consume { .. } | StreamCommand::ReadGroup { .. })
            );
            command.for_each_key(|key| {
                all.insert((wait.group, key));
                if is_consumer {
                    consumed.insert((wait.group, key));
                }
            });
        }
        self.add_awaited_keys(&mut all, &mut consumed);
        (all.len(), consumed.len())
    }

    /// Whether no client waits, and nothing is to be withdrawn or settled now.
    pub(crate) fn is_empty(&self) -> bool {
        self.spreads.is_empty()
            && self.by_number.values().all(Wait::lingers)
            && self.to_settle.is_empty()
            && self.settling.is_empty()
    }

    /// Whether a request for elements stays only because a record may ask for it once more: the group may still queue
    /// it, and then it is withdrawn.
    pub(crate) fn lingers(&self, waiter: WaiterId) -> bool {
        let wait = self.by_number.get(&waiter.number.get());
        waiter.life == self.life && wait.is_some_and(|wait| wait.lingers() && wait.is_for_elements())
    }

    /// The state of a request, for a message to developers.
    pub(crate) fn progress_of(&self, waiter: WaiterId) -> String {
        match self.by_number.get(&waiter.number.get()) {
            _ if waiter.life != self.life => "of an incarnation that is over".to_owned(),
            None => "not known".to_owned(),
            Some(wait) => format!("{wait:?}"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}
