//! Commands by which groups take part in transactions over several of them. `docs/design/transactions.md` has the protocol,
//! and why it is right; [`crate::two_phase`] what a group keeps.

use super::declaration::{Names, Needs, Part, family};
use super::{Command, Wrapper};
use crate::UnixMs;
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::Coordinator;

/// Names a transaction over several groups. Never reused: each attempt gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The node that coordinates it, in one incarnation.
    pub coordinator: Coordinator,
    /// Its number among those of its coordinator, from 1.
    pub number: u64,
}

/// Numbers of the node, its incarnation and the transaction: `3-41-1207`.
impl std::fmt::Display for TransactionId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TransactionId { coordinator: Coordinator { node, life }, number } = self;
        write!(formatter, "{node}-{life}-{number}")
    }
}

impl TransactionId {
    /// Reads what its `Display` has written.
    pub fn parse(text: &str) -> Option<TransactionId> {
        let mut numbers = text.splitn(3, '-');
        let coordinator =
            Coordinator { node: numbers.next()?.parse().ok()?, life: numbers.next()?.parse().ok()? };
        Some(TransactionId { coordinator, number: numbers.next()?.parse().ok()? })
    }
}

/// Bytes of a group in an encoded [`Header`].
const GROUP_BYTES: usize = 3;

/// Most groups of a transaction.
pub const GROUPS_MAX: usize = 4096;

/// How old a transaction is: the older of two that are in each other's way goes first. An attempt has the age of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// When it began, in milliseconds since the Unix epoch, by the time that its nodes agree on.
    pub since: UnixMs,
    /// Its first attempt, by which those of one moment differ.
    pub first: TransactionId,
}

/// Most transactions that are not over, while later ones of their coordinator are.
pub const UNSETTLED_MAX: usize = 1000;

/// What every record of a transaction carries: its name, its age, its groups, and what its coordinator knows to be over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Encoded. Checked: the groups are in ascending order, and one of them decides; the unsettled numbers are in ascending order,
    /// and below the number of which they are exceptions.
    bytes: &'a [u8],
}

/// The fields of a [`Header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields<'a> {
    id: TransactionId,
    age: Age,
    below: u64,
    unsettled: &'a [u8],
    groups: &'a [u8],
}

impl std::fmt::Debug for Header<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (groups, unsettled): (Vec<_>, Vec<_>) = (self.groups().collect(), self.unsettled().collect());
        write!(
            formatter,
            "{:?} {:?} {groups:?} below {} but {unsettled:?}",
            self.id(),
            self.age(),
            self.below()
        )
    }
}

impl<'a> Header<'a> {
    /// A header, encoded in `scratch`, which is cleared first: the groups, each with whether its vote decides; and of all
    /// transactions of this coordinator with numbers smaller than `below`, those that are not over. `None` unless both are in
    /// ascending order and not too many, and one group decides.
    pub fn build(
        (id, age): (TransactionId, Age),
        (below, unsettled): (u64, impl IntoIterator<Item = u64>),
        groups: impl IntoIterator<Item = (u16, bool)>,
        scratch: &'a mut Vec<u8>,
    ) -> Option<Header<'a>> {
        let (mut numbers, mut places) = (Vec::new(), Vec::new());
        unsettled.into_iter().for_each(|number| numbers.put_u64(number));
        for (group, decides) in groups {
            places.put_u16(group);
            places.put_bool(decides);
        }
        scratch.clear();
        id.put(scratch);
        age.put(scratch);
        scratch.put_u64(below);
        scratch.put_bytes(&numbers);
        scratch.put_bytes(&places);
        Header::of(scratch).ok()
    }

    /// A header in the form that [`Header::bytes`] returns.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no header.
    pub fn of(bytes: &'a [u8]) -> Result<Header<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = Header { bytes };
        let Fields { below, unsettled, groups, .. } = Fields::take(&mut reader)?;
        let count = groups.len() / GROUP_BYTES;
        let are_whole = groups.len() == count * GROUP_BYTES && unsettled.len().is_multiple_of(8);
        let are_few = count <= GROUPS_MAX && unsettled.len() / 8 <= UNSETTLED_MAX;
        let (places, numbers) = (header.groups(), header.unsettled());
        let ascend = places.clone().is_sorted_by(|one, other| one.0 < other.0)
            && numbers.clone().is_sorted_by(|one, other| one < other);
        let fit = places.clone().count() == count && numbers.clone().all(|number| number < below);
        let one_decides = places.clone().any(|(_, decides)| decides);
        match reader.is_empty() && are_whole && are_few && ascend && fit && one_decides {
            true => Ok(header),
            false => Err(Malformed("a transaction whose groups or numbers cannot be")),
        }
    }

    fn fields(&self) -> Fields<'a> {
        Fields::take(&mut Reader::new(self.bytes)).expect("a header is checked before it is one")
    }

    /// The encoded header.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The transaction.
    pub fn id(&self) -> TransactionId {
        self.fields().id
    }

    /// Its age.
    pub fn age(&self) -> Age {
        self.fields().age
    }

    /// All transactions of this coordinator with smaller numbers are over in all of their groups, but for the unsettled ones.
    pub fn below(&self) -> u64 {
        self.fields().below
    }

    /// The transaction's groups in ascending order, each with whether its vote decides.
    pub fn groups(&self) -> impl Iterator<Item = (u16, bool)> + Clone + use<'a> {
        let mut reader = Reader::new(self.fields().groups);
        std::iter::from_fn(move || Some((reader.u16().ok()?, reader.bool().ok()?)))
    }

    /// The numbers below `below` of transactions that are not over, in ascending order.
    pub fn unsettled(&self) -> impl Iterator<Item = u64> + Clone + use<'a> {
        let mut reader = Reader::new(self.fields().unsettled);
        std::iter::from_fn(move || reader.u64().ok())
    }
}

impl<'a> Fields<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Fields<'a>, Malformed> {
        let (id, age, below) = (TransactionId::take(reader)?, Age::take(reader)?, reader.u64()?);
        Ok(Fields { id, age, below, unsettled: reader.bytes()?, groups: reader.bytes()? })
    }
}

impl TransactionId {
    /// Its encoding, as in the reply to [`TwoPhaseCommand::Prepare`].
    pub fn encoded(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// The transaction that is encoded so.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<TransactionId, Malformed> {
        let mut reader = Reader::new(bytes);
        let id = TransactionId::take(&mut reader)?;
        if reader.is_empty() { Ok(id) } else { Err(Malformed("bytes behind the name of a transaction")) }
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        Part::put(self.coordinator, out);
        out.put_u64(self.number);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<TransactionId, Malformed> {
        let coordinator = <Coordinator as Part>::take(reader)?;
        Ok(TransactionId { coordinator, number: reader.u64()? })
    }
}

impl<'a> Part<'a> for TransactionId {
    fn put(self, out: &mut Vec<u8>) {
        TransactionId::put(self, out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        TransactionId::take(reader)
    }
}

impl<'a> Part<'a> for Header<'a> {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bytes(self.bytes);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let bytes = reader.bytes()?;
        if reader.is_checked() { Ok(Header { bytes }) } else { Header::of(bytes) }
    }
}

impl Age {
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.since);
        self.first.put(out);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Age, Malformed> {
        Ok(Age { since: reader.u64()?, first: TransactionId::take(reader)? })
    }
}

/// What one group does of a transaction: a command, or several in a [`super::Transaction`], with all their keys in this group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Share<'a> {
    /// The encoded command. Checked: it can be decoded, and it can be shared.
    bytes: &'a [u8],
}

impl std::fmt::Debug for Share<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.command().fmt(formatter)
    }
}

impl<'a> Share<'a> {
    /// A share, encoded in `scratch`, which is cleared first. `None` for a command that cannot be one: each of its commands
    /// has to name all the keys that it uses, and to stand behind no fence.
    pub fn build(command: &Command<'_>, scratch: &'a mut Vec<u8>) -> Option<Share<'a>> {
        scratch.clear();
        command.encode(scratch);
        Share::of(scratch).ok().filter(|share| !share.is_on_all_keys())
    }

    /// A share in the form that [`Share::bytes`] returns.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a command that can be shared.
    pub fn of(bytes: &'a [u8]) -> Result<Share<'a>, Malformed> {
        const NO_SHARE: Malformed = Malformed("a command that cannot be a share of a transaction");
        // Check the tag first, so that untrusted bytes cannot nest commands without end.
        if !Wrapper::Share.can_contain(bytes) {
            return Err(NO_SHARE);
        }
        let mut reader = Reader::new(bytes);
        let command = Command::decode(&mut reader)?;
        let can_be_shared = match command {
            Command::Transaction(transaction) => {
                (!transaction.is_empty() || transaction.is_watching())
                    && transaction.commands().all(|it| it.can_be_shared())
            }
            // It stands for all keys: see [`Share::is_on_all_keys`].
            Command::Size {} => true,
            command => Wrapper::Transaction.can_contain(bytes) && command.can_be_shared(),
        };
        match reader.is_empty() && can_be_shared {
            true => Ok(Share { bytes }),
            false => Err(NO_SHARE),
        }
    }

    /// A share that was one before: it is not checked once more.
    pub fn of_checked(bytes: &'a [u8]) -> Share<'a> {
        Share { bytes }
    }

    /// The share that locks all keys of its group, whether they exist or not, and reads how many there are.
    pub fn of_all_keys(scratch: &'a mut Vec<u8>) -> Share<'a> {
        scratch.clear();
        Command::Size {}.encode(scratch);
        Share::of(scratch).expect("it is a share")
    }

    /// Whether it locks all keys of its group.
    pub fn is_on_all_keys(&self) -> bool {
        Share::are_on_all_keys(self.bytes)
    }

    /// Whether these bytes of a share are those of [`Share::of_all_keys`].
    pub(crate) fn are_on_all_keys(bytes: &[u8]) -> bool {
        // A share that names keys is longer.
        bytes.len() == 1 && matches!(Command::decode(&mut Reader::new(bytes)), Ok(Command::Size {}))
    }

    /// The encoded command.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The command.
    pub fn command(&self) -> Command<'a> {
        Command::decode(&mut Reader::of_checked(self.bytes)).expect("a share is checked before it is one")
    }
}

impl Command<'_> {
    /// Whether the command can be a share, or a part of one: it names every key that it uses, and nothing that is not locked decides
    /// what it does. A fence does.
    pub fn can_be_shared(&self) -> bool {
        self.names_all_it_uses() && !matches!(self, Command::Fenced(_))
    }

    /// Whether the command names every key that it uses, and the lock of its fence.
    pub fn names_all_it_uses(&self) -> bool {
        let mut names_keys = false;
        self.for_each_key(|_| names_keys = true);
        let looks_elsewhere = match self {
            Command::Script(script) => script.has_extent(),
            Command::Sort(sort) => sort.patterns().next().is_some(),
            _ => false,
        };
        names_keys && !looks_elsewhere
    }
}

impl<'a> Part<'a> for Share<'a> {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bytes(self.bytes);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let bytes = reader.bytes()?;
        if reader.is_checked() { Ok(Share { bytes }) } else { Share::of(bytes) }
    }

    fn bytes(self) -> usize {
        self.bytes.len()
    }
}

impl<'a> Names<'a> for Share<'a> {
    fn visit(self, visit: &mut impl FnMut(&'a [u8])) {
        self.command().for_each_key(visit as &mut dyn FnMut(&'a [u8]));
    }
}

impl<'a> TwoPhaseCommand<'a> {
    /// The share whose keys it locks, or has locked.
    pub fn share(&self) -> Option<Share<'a>> {
        use TwoPhaseCommand::{Lock, Prepare, PrepareLocked};
        match *self {
            Prepare { share, .. } | Lock { share, .. } | PrepareLocked { share, .. } => Some(share),
            _ => None,
        }
    }
}

family! {
    /// A command by which a group takes part in a transaction over several groups.
    TwoPhaseCommand needs(Needs::Order) {
        // Reads.
        /// What the group knows of a transaction: a word of [`crate::two_phase::Vote`].
        Ask = 1 "this command" Reads { id: TransactionId } keys();

        // Writes.
        /// Votes: locks the keys of the share, and keeps it to be carried out. Returns `PREPARED` and the reply that the share
        /// will give; or why the group will never prepare the transaction. `is_alone`: no other group was asked, so that the
        /// transaction, which holds nothing, may wait for its keys at the leader.
        Prepare = 64 "EXEC" (share.command().declared_effect()) {
            header: Header<'a>, is_alone: bool, share: Share<'a>,
        } keys(share) walks(true) lists(true) adds(Unforeseen);
        /// Asks for the group's vote: if it has not prepared the transaction yet, it never will.
        Resolve = 65 "this command" Frees { header: Header<'a> } keys();
        /// All deciding groups have prepared the transaction: carries out the share, and unlocks its keys.
        Commit = 66 "EXEC" Frees { header: Header<'a> } keys() adds(More);
        /// A deciding group will never prepare the transaction: drops the share, and unlocks its keys.
        Abort = 67 "this command" Frees { header: Header<'a> } keys();
        /// These transactions of a coordinator that has ended are over in all of their groups: each number has eight bytes. Nothing
        /// of that coordinator is prepared any more.
        Forget = 68 "this command" Frees { coordinator: Coordinator, numbers: &'a [u8] } keys();
        /// Locks the keys of the share, which only reads, and returns `LOCKED`, the time, and the share's reply; or why the group
        /// will never prepare the transaction. No vote: the group may still give up alone. `is_alone` as in `Prepare`.
        Lock = 69 "EXEC" Changes {
            header: Header<'a>, is_alone: bool, share: Share<'a>,
        } keys(share) walks(true) lists(true) adds(More);
        /// Votes as `Prepare` does, if the group still holds the keys that it has locked by `Lock`, among them those of the share,
        /// and if no command of the share fails.
        PrepareLocked = 70 "EXEC" (share.command().declared_effect()) {
            header: Header<'a>, share: Share<'a>,
        } keys(share) walks(true) lists(true) adds(Unforeseen);
    }
}
