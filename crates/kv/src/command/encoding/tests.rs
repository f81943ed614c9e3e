//! Commands are decoded as they were encoded, and a peer cannot smuggle in forbidden ones.

use super::*;
use crate::Coordinator;
use crate::command::growth::LITTLE_GROWTH_BYTES;
use crate::command::{
    AddOptions, Age, Aggregate, BitOperation, Bounded, By, BytesCommand, CommonAnswer, Comparison, Draft,
    Fenced, HashCommand, HashPart, Header, Hold, List, ListCommand, LockCommand, Padded, QueueCommand,
    RangePart, References, ScriptOptions, SetCommand, SetOperation, Share, Sizes, SortCommand, SortedCommand,
    Step, StreamCommand, Supplied, TransactionId, Trim, TwoPhaseCommand, WaiterId, Watched, WhenFull, Wish,
    Wrapper, script,
};
use std::num::NonZeroU64;

const GET: u8 = 1;
const LOCK_READ: u8 = 18;
const HASH_READ: u8 = 20;
const TRANSACTION: u8 = 82;
const READING_TRANSACTION: u8 = 17;
const FENCED: u8 = 84;
const QUEUE: u8 = 106;
const BOUNDED: u8 = 114;

const LIMITS: script::ScriptLimits = script::ScriptLimits { value_bytes_max: 9, cost_max: 7 };

/// What commands contain that has to be built elsewhere.
struct Parts<'a> {
    list: List<'a>,
    pairs: List<'a>,
    drafts: &'a [Draft; 2],
    fenced: Fenced<'a>,
    scripts: [script::Script<'a>; 6],
    supplied: Supplied<'a>,
    wish: Wish<'a>,
    header: Header<'a>,
    share: Share<'a>,
}

fn every_command<'a>(parts: Parts<'a>) -> Vec<Command<'a>> {
    let Parts { list, pairs, drafts, fenced, scripts, supplied, wish, header, share } = parts;
    use Command::*;
    let (key, value) = (&b"key"[..], &b"value\0\r\n"[..]);
    let set = |expiry, condition, answer| Set { key, value, expiry, condition, answer };
    let set_if = |comparison, answer| SetIf { key, value, expiry: Expiry::Keep, comparison, answer };
    let restore = |deadline, replaces, used| Restore {
        key,
        payload: value,
        deadline,
        options: RestoreOptions { replaces, used },
    };
    let id = ValueId { coordinator: Coordinator { node: 3, life: 7 }, counter: u64::MAX };
    let waiter = WaiterId { node: 3, life: u64::MAX, number: NonZeroU64::MIN };
    let locks = [
        LockCommand::Describe { name: key },
        LockCommand::Check { name: key, waiter },
        LockCommand::Acquire { name: key, owner: value, hold: Hold::Lease(7), waiter: Some(waiter) },
        LockCommand::Acquire { name: key, owner: b"", hold: Hold::Session(9), waiter: None },
        LockCommand::Renew { name: key, token: 1, lease_ms: 2 },
        LockCommand::Release { name: key, token: u64::MAX },
        LockCommand::Withdraw { name: key, waiter },
        LockCommand::DropWaiters { node: 1, spared: Padded(Some(4)) },
        LockCommand::DropWaiters { node: 1, spared: Padded(None) },
        LockCommand::Expire { name: key, token: 1, number: 2 },
        LockCommand::OpenSession { key, group: 5, lease_ms: 6 },
        LockCommand::RenewSession { key, session: 7 },
        LockCommand::CloseSession { key, session: 7 },
        LockCommand::ExpireSession { session: 7, number: 8 },
    ];
    let mut commands = vec![
        Get { key },
        Fetch { key },
        MultiGet { keys: list },
        Exists { keys: list },
        Type { key },
        Length { key },
        GetRange { key, start: -3, end: i64::MAX },
        TimeToLive { key, unit: ExpiryUnit::UnixSeconds },
        Keys { pattern: b"*" },
        Scan { position: 7, count: 10, pattern: Some(b"a*"), kind: None, group: 1, next: 3 },
        RandomKey { draw: 9 },
        Size {},
        Encoding { key, limits: EncodingLimits { hash_fields: 7, ..EncodingLimits::default() } },
        MemoryUsage { key },
        set(Expiry::Clear, Condition::Always, SetAnswer::Status),
        set(Expiry::Keep, Condition::IfPresent, SetAnswer::Before),
        set(Expiry::Set(Deadline::In(5)), Condition::IfAbsent, SetAnswer::Integer),
        set(Expiry::Set(Deadline::At(-5)), Condition::Always, SetAnswer::Status),
        GetDelete { key },
        GetExpire { key, expiry: Expiry::Clear },
        MultiSet { pairs, if_absent: true },
        MultiSetExpire { pairs, expiry: Expiry::Set(Deadline::In(5)), condition: Condition::IfPresent },
        Delete { keys: list },
        Append { key, value, bytes_max: 10 },
        SetRange { key, offset: 4, value },
        IncrementBy { key, delta: i64::MIN },
        IncrementByFloat { key, delta: b"1.5" },
        IncrementWithin {
            key,
            step: Step::Whole { by: -1, least: i64::MIN, most: 7 },
            saturates: true,
            expiry: Expiry::Keep,
            if_without: false,
        },
        IncrementWithin {
            key,
            step: Step::Decimal { by: b"1.5", least: -0.5, most: f64::MAX },
            saturates: false,
            expiry: Expiry::Set(Deadline::At(5)),
            if_without: true,
        },
        Expire { key, deadline: Deadline::In(1), condition: ExpireCondition::IfSomeAndEarlier },
        Persist { key },
        Rename { from: key, to: value, if_absent: false },
        Copy { from: key, to: value, replace: true },
        Clear {},
        Purge { until: 1 },
        Evict { key, version: 7 },
        SkipVersions { by: u64::MAX },
        RaiseFloor { version: u64::MAX },
        Used { key, usage: Usage::Idle },
        Used { key, usage: Usage::Frequency },
        Replicate { key, value, version: 8 },
        Digest { key },
        Dump { key },
        restore(Some(Deadline::At(5)), true, None),
        restore(None, false, None),
        restore(None, true, Some(FormerUse::Idle(u32::MAX))),
        restore(None, false, Some(FormerUse::Frequency(9))),
        Watch { keys: list },
        Recent { from: u64::MAX, bytes_max: 7 },
        NewestToken { name: key, seen: u64::MAX },
        set_if(Comparison::Equal(value), SetAnswer::Status),
        set_if(Comparison::NotEqual(b""), SetAnswer::Before),
        set_if(Comparison::DigestEqual(u64::MAX), SetAnswer::Status),
        DeleteIf { key, comparison: Comparison::DigestNotEqual(1) },
        DeleteIf { key, comparison: Comparison::NoDigest },
        Transaction(drafts[0].transaction()),
        Transaction(drafts[1].transaction()),
        Fenced(fenced),
        Script(scripts[0]),
        Script(scripts[1]),
        Script(scripts[2]),
        Script(scripts[3]),
        Script(scripts[4]),
        Script(scripts[5]),
        Supplied(supplied),
        LongPart { id, offset: 3, length: u32::MAX, bytes: value },
        LongEnd { id, watched_in: Padded(Some(u64::MAX)) },
        LongEnd { id, watched_in: Padded(None) },
    ];
    commands.extend(locks.map(Lock));
    let queues = [
        QueueCommand::Check { waiter },
        QueueCommand::Await { waiter, keys: list, for_entries: true, since: u64::MAX },
        QueueCommand::Leave { waiter, keys: list },
        QueueCommand::Ask { waiter, wish },
        QueueCommand::Conclude { waiter },
        QueueCommand::Withdraw { waiter, only_unclaimed: true },
        QueueCommand::Settle { node: 3, life: u64::MAX, numbers: &[1, 0, 0, 0, 0, 0, 0, 0] },
    ];
    commands.extend(queues.map(Queue));
    let two_phase = [
        TwoPhaseCommand::Ask { id: header.id() },
        TwoPhaseCommand::Prepare { header, is_alone: true, share },
        TwoPhaseCommand::Lock { header, is_alone: true, share },
        TwoPhaseCommand::PrepareLocked { header, share },
        TwoPhaseCommand::Resolve { header },
        TwoPhaseCommand::Commit { header },
        TwoPhaseCommand::Abort { header },
        TwoPhaseCommand::Forget { coordinator: header.id().coordinator, numbers: &[7, 0, 0, 0, 0, 0, 0, 0] },
    ];
    commands.extend(two_phase.map(TwoPhase));
    let field = &b"field"[..];
    let hashes = [
        HashCommand::Get { key, field },
        HashCommand::MultiGet { key, fields: list },
        HashCommand::All { key, part: HashPart::Both },
        HashCommand::Length { key },
        HashCommand::Exists { key, field },
        HashCommand::ValueLength { key, field },
        HashCommand::Scan { key, position: 7, count: 10, pattern: Some(b"a*"), with_values: true },
        HashCommand::Scan { key, position: 7, count: 10, pattern: None, with_values: false },
        HashCommand::Random { key, count: None, with_values: false },
        HashCommand::Random { key, count: Some(-7), with_values: true },
        HashCommand::TimeToLive { key, fields: list, unit: ExpiryUnit::UnixSeconds },
        HashCommand::Set { key, pairs, counts: true },
        HashCommand::SetIfAbsent { key, field, value },
        HashCommand::Delete { key, fields: list },
        HashCommand::IncrementBy { key, field, delta: -1 },
        HashCommand::IncrementByFloat { key, field, delta: b"0.5" },
        HashCommand::Expire {
            key,
            fields: list,
            deadline: Deadline::In(-7),
            condition: ExpireCondition::IfLater,
        },
        HashCommand::Persist { key, fields: list },
        HashCommand::GetExpire { key, fields: list, expiry: Expiry::Clear },
        HashCommand::SetExpire {
            key,
            pairs,
            expiry: Expiry::Set(Deadline::At(7)),
            condition: FieldsCondition { key: Condition::IfPresent, fields: Condition::IfAbsent },
        },
        HashCommand::GetDelete { key, fields: list },
    ];
    commands.extend(hashes.map(Hash));
    let bytes = [
        BytesCommand::GetBit { key, offset: u64::MAX },
        BytesCommand::CountBits { key, start: -1, end: i64::MIN, in_bits: true },
        BytesCommand::FindBit { key, bit: true, start: 1, end: Some(-1), in_bits: false },
        BytesCommand::ReadFields { key, operations: list },
        BytesCommand::Estimate { keys: list },
        BytesCommand::Common { first: key, second: value, answer: CommonAnswer::Ranges, least: 7 },
        BytesCommand::SetBit { key, offset: 7, bit: false },
        BytesCommand::Combine { operation: BitOperation::Not, to: key, keys: list },
        BytesCommand::ChangeFields { key, operations: list },
        BytesCommand::Count { key, elements: list },
        BytesCommand::Merge { to: key, keys: list },
    ];
    commands.extend(bytes.map(OnBytes));
    commands.push(Sort(SortCommand::Read { key, options: value }));
    commands.push(Sort(SortCommand::Store { key, to: value, options: b"" }));
    let places = [
        SortedCommand::Distance { key, from: b"a", to: b"b", unit_m: 0.3048 },
        SortedCommand::Hashes { key, members: list },
        SortedCommand::Places { key, members: list },
        SortedCommand::Find { key, query: value },
        SortedCommand::StoreFound { to: key, from: value, query: b"" },
    ];
    commands.extend(places.map(OnSorted));
    let lists = [
        ListCommand::Length { key },
        ListCommand::Index { key, rank: -1 },
        ListCommand::Range { key, start: i64::MIN, end: 7 },
        ListCommand::Position { key, element: value, skip: -1, count: Some(7), compared_max: u64::MAX },
        ListCommand::Position { key, element: value, skip: -1, count: None, compared_max: 0 },
        ListCommand::Push { key, elements: list, at_front: true, if_present: false },
        ListCommand::Pop { key, at_front: false, count: None },
        ListCommand::Pop { key, at_front: true, count: Some(3) },
        ListCommand::Set { key, rank: 1, element: value },
        ListCommand::Insert { key, is_before: true, pivot: b"", element: value },
        ListCommand::Remove { key, count: -1, element: value },
        ListCommand::Trim { key, start: 1, end: -1 },
        ListCommand::Move { from: key, to: value, from_front: true, to_front: false },
        ListCommand::MultiPop { keys: list, at_front: true, count: 9 },
        ListCommand::PopAny { keys: list, at_front: true },
    ];
    commands.extend(lists.map(OnList));
    let operation = SetOperation::Difference;
    let sets = [
        SetCommand::Length { key },
        SetCommand::Contains { key, member: value },
        SetCommand::ContainsEach { key, members: list },
        SetCommand::All { key },
        SetCommand::Random { key, count: None },
        SetCommand::Random { key, count: Some(i64::MIN) },
        SetCommand::Scan { key, position: 7, count: 10, pattern: Some(b"a*") },
        SetCommand::Combine { operation, keys: list },
        SetCommand::CountCommon { keys: list, limit: 9 },
        SetCommand::Add { key, members: list },
        SetCommand::Remove { key, members: list },
        SetCommand::Move { from: key, to: b"other", member: value },
        SetCommand::Pop { key, count: Some(4) },
        SetCommand::Store { operation, to: key, keys: list },
    ];
    commands.extend(sets.map(OnSet));
    let (by, aggregate, options) =
        (By::Member, Aggregate::Least, AddOptions { only_old: true, ..Default::default() });
    let sorted = [
        SortedCommand::Length { key },
        SortedCommand::Score { key, member: value },
        SortedCommand::Scores { key, members: list },
        SortedCommand::Rank { key, member: value, is_reverse: true },
        SortedCommand::RankWithScore { key, member: value, is_reverse: false },
        SortedCommand::Count { key, by: By::Score, ends: pairs },
        SortedCommand::Range {
            key,
            by,
            ends: pairs,
            is_reverse: true,
            skip: 1,
            count: u32::MAX,
            with_scores: true,
        },
        SortedCommand::Random { key, count: Some(-3), with_scores: true },
        SortedCommand::Scan { key, position: 7, count: 10, pattern: None },
        SortedCommand::ScanMembers { key, position: 7, count: 10, pattern: Some(b"*") },
        SortedCommand::Combine { operation, inputs: list, is_weighted: false, aggregate, with_scores: true },
        SortedCommand::CountCommon { keys: list, limit: 9 },
        SortedCommand::Add { key, pairs, options, counts_changes: true },
        SortedCommand::Increment { key, delta: b"1.5", member: value, options },
        SortedCommand::Remove { key, members: list },
        SortedCommand::RemoveRange { key, by: By::Rank, ends: pairs },
        SortedCommand::Pop { key, is_highest: true, count: Some(4) },
        SortedCommand::MultiPop { keys: list, is_highest: false, count: 4 },
        SortedCommand::PopAny { keys: list, is_highest: true },
        SortedCommand::Store { to: key, operation, inputs: pairs, is_weighted: true, aggregate },
        SortedCommand::StoreRange {
            to: key,
            from: value,
            by,
            ends: pairs,
            is_reverse: false,
            skip: 0,
            count: 7,
        },
    ];
    commands.extend(sorted.map(OnSorted));
    let (group, consumer) = (&b"group"[..], &b"consumer"[..]);
    let references = References::Respect;
    let trim = Trim { by_id: true, is_approximate: true, limit: 7, node_entries: 100, references };
    let streams = [
        StreamCommand::Length { key },
        StreamCommand::Range { key, ends: pairs, is_reverse: true, count: Some(3) },
        StreamCommand::Read { streams: pairs, count: 4 },
        StreamCommand::Pending { key, group },
        StreamCommand::PendingRange { key, words: list, min_idle_ms: 5, count: 6 },
        StreamCommand::Info { key },
        StreamCommand::InfoFull { key, count: 0 },
        StreamCommand::InfoGroups { key },
        StreamCommand::InfoConsumers { key, group },
        StreamCommand::Add { key, words: list, trim: Some(trim), if_present: true },
        StreamCommand::Delete { key, ids: list },
        StreamCommand::Trim { key, threshold: b"9", trim },
        StreamCommand::SetId { key, ids: list, added: Some(7) },
        StreamCommand::CreateGroup { key, group, id: b"$", entries_read: -1, makes_stream: true },
        StreamCommand::SetGroup { key, group, id: b"0", entries_read: 3 },
        StreamCommand::DestroyGroup { key, group },
        StreamCommand::CreateConsumer { key, group, consumer },
        StreamCommand::DeleteConsumer { key, group, consumer },
        StreamCommand::ReadGroup { group, consumer, streams: pairs, count: 3, acknowledges: true },
        StreamCommand::Acknowledge { key, group, ids: list },
        StreamCommand::Claim {
            key,
            words: list,
            min_idle_ms: 1,
            delivered_ms: -2,
            deliveries: 3,
            is_idle: true,
            is_forced: false,
            only_ids: true,
        },
        StreamCommand::ClaimRange { key, words: list, min_idle_ms: 1, count: 100, only_ids: true },
        StreamCommand::Describe { key },
        StreamCommand::DescribeFull { key, count: 9 },
        StreamCommand::DescribeConsumers { key, group },
        StreamCommand::DescribeGroups { key },
        StreamCommand::DeleteWith { key, ids: list, references },
        StreamCommand::AcknowledgeAndDelete { key, group, ids: list, references: References::Remove },
        StreamCommand::Consume {
            group,
            consumer,
            streams: pairs,
            count: 3,
            acknowledges: false,
            claim_ms: 5,
        },
        StreamCommand::Release { key, group, ids: list, deliveries: i64::MAX, is_forced: true },
        StreamCommand::AddOnce { key, words: list, trim: None, if_present: false },
        StreamCommand::Remember { key, duration_s: Some(60), most: None },
        StreamCommand::Record { key, producer: b"p", name: b"n", id: b"5-1" },
    ];
    commands.extend(streams.map(OnStream));
    commands
}

/// One transaction that only reads, and one that writes if a key is unchanged.
fn drafts() -> [Draft; 2] {
    let (mut reads, mut writes) = (Draft::default(), Draft::default());
    assert!(reads.push(&Command::Get { key: b"k" }));
    writes.watch(9, Watched { key: b"w", version: 0, floor: 7 });
    assert!(writes.push(&Command::Get { key: b"k" }) && writes.push(&Command::Persist { key: b"k" }));
    [reads, writes]
}

/// A table in which everything is large.
struct Large;

impl Sizes for Large {
    fn content_bytes(&self, _: &[u8]) -> u64 {
        1 << 30
    }

    fn string_bytes(&self, _: &[u8]) -> u64 {
        1 << 30
    }

    fn items(&self, _: &[u8]) -> u64 {
        1 << 30
    }

    fn range(&self, _: &[u8], _: By, _: List<'_>, _: RangePart) -> (u64, u64) {
        (1 << 30, 1 << 30)
    }

    fn long_growth_bytes(&self, _: ValueId) -> u64 {
        1 << 30
    }
}

/// Of such a command no more is asked before it is ordered.
fn a_command_that_grows_little_does_so_in_any_table(command: &Command<'_>) {
    if command.grows_little() {
        assert!(!command.grows_with_the_table(), "{command:?}");
        assert!(command.growth_bytes(&Large) <= LITTLE_GROWTH_BYTES, "{command:?}");
    }
}

#[test]
fn every_command_survives_encoding_and_truncation_is_malformed() {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let list = List::build(&mut first, [&b"a"[..], b"", b"ccc"]);
    let pairs = List::build(&mut second, [&b"k"[..], b"v", b"l", b"w"]);
    let set = Command::SetIf {
        key: b"k",
        value: b"v",
        expiry: Expiry::Keep,
        comparison: Comparison::Equal(b"w"),
        answer: SetAnswer::Before,
    };
    let mut third = Vec::new();
    let fenced = Fenced::build(b"lock", 7, &set, &mut third).expect("a SET can be fenced");
    let (mut fourth, mut fifth, mut ninth, mut tenth) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut eleventh, mut twelfth) = (Vec::new(), Vec::new());
    let extent = [&b"k"[..], b"kk:"];
    let inputs = [&b"k"[..], b"l", b"argument"];
    let scripts = [
        script::Script::build(&mut fourth, b"return 1", inputs, 2, LIMITS, true).unwrap(),
        script::Script::build(&mut fifth, b"", [], 0, LIMITS, false).unwrap(),
        script::Script::build_in(&mut ninth, b"return 1", inputs, 2, extent, LIMITS, true).unwrap(),
        script::Script::build_in(&mut tenth, b"", [], 0, [&b""[..]], LIMITS, false).unwrap(),
        script::Script::build(&mut eleventh, b"return 1", inputs, 2, LIMITS, true).unwrap().with_options(
            ScriptOptions {
                tells_reads: true,
                when_full: WhenFull::Runs,
                is_in_full: true,
                has_rights: true,
                by_second_rules: true,
            },
        ),
        script::Script::build_in(&mut twelfth, b"", [], 0, [&b""[..]], LIMITS, false)
            .unwrap()
            .with_options(ScriptOptions { when_full: WhenFull::Refused, ..ScriptOptions::default() }),
    ];
    assert!(scripts[2].arguments().eq([b"argument"]) && scripts[2].extent().eq(extent));
    let (mut sixth, mut seventh) = (Vec::new(), Vec::new());
    let reference = Reference::spilled(7, 1, 1, crate::digest::digest_of(b"v"));
    Command::GetDelete { key: b"k" }.encode(&mut sixth);
    let supplied = Supplied::build([(&b"k"[..], reference, &b"v"[..])], &sixth, &mut seventh);
    let supplied = supplied.expect("a GETDEL can be supplied");
    let mut eighth = Vec::new();
    let waits = Command::OnList(ListCommand::PopAny { keys: list, at_front: true });
    let wish = Wish::build(&waits, &mut eighth).expect("a BLPOP waits");
    let (mut fifteenth, mut sixteenth) = (Vec::new(), Vec::new());
    let bounded = [
        Bounded::build(7, &Command::GetDelete { key: b"k" }, &mut fifteenth).expect("it is a write"),
        Bounded::build(u64::MAX, &Command::Clear {}, &mut sixteenth).expect("it is a write"),
    ];
    let (mut nineteenth, mut twentieth) = (Vec::new(), Vec::new());
    let transaction = TransactionId { coordinator: Coordinator { node: 3, life: 7 }, number: u64::MAX };
    let groups = [(1, false), (u16::MAX, true)];
    let age = Age { since: 7, first: transaction };
    let header = Header::build((transaction, age), (7, [3, 5]), groups, &mut nineteenth);
    let share = Share::build(&Command::Persist { key: b"k" }, &mut twentieth);
    let (header, share) = header.zip(share).expect("a transaction that can be");
    let drafts = &drafts();
    let parts = Parts { list, pairs, drafts, fenced, scripts, supplied, wish, header, share };
    let commands = every_command(parts);
    for command in commands.into_iter().chain(bounded.map(Command::Bounded)) {
        a_command_that_grows_little_does_so_in_any_table(&command);
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        // Else untrusted bytes could nest without end. A script contains no encoded commands.
        if command.consists_of_others() && !matches!(command, Command::Script(_)) {
            assert!(!Wrapper::Transaction.can_contain(&bytes), "{command:?} needs `within`");
        }
        let mut reader = Reader::new(&bytes);
        assert_eq!(Command::decode(&mut reader), Ok(command));
        assert!(reader.is_empty(), "{command:?} left bytes behind");
        for end in 0..bytes.len() {
            assert!(Command::decode(&mut Reader::new(&bytes[..end])).is_err(), "{command:?} cut at {end}");
        }
    }
}

/// NaN equals nothing, so a command that had it would not even be equal to itself.
#[test]
fn a_command_with_nan_is_malformed() {
    let at = |unit_m| SortedCommand::Distance { key: b"k", from: b"a", to: b"b", unit_m };
    let (mut bytes, needle) = (Vec::new(), 0.3048_f64.to_le_bytes());
    Command::OnSorted(at(0.3048)).encode(&mut bytes);
    let start = bytes.windows(8).position(|bytes| bytes == needle).expect("the unit is in the record");
    for (number, is_read) in [(f64::INFINITY, true), (f64::NAN, false), (-f64::NAN, false)] {
        bytes[start..start + 8].copy_from_slice(&number.to_le_bytes());
        assert_eq!(Command::decode(&mut Reader::new(&bytes)).is_ok(), is_read, "{number}");
    }
}

#[test]
fn commands_of_the_cluster_cannot_be_in_a_transaction() {
    let [reads, writes] = drafts();
    let mut draft = Draft::default();
    for command in [
        Command::Transaction(reads.transaction()),
        Command::Transaction(writes.transaction()),
        Command::Purge { until: 9 },
        Command::Evict { key: b"k", version: 9 },
        Command::Replicate { key: b"k", value: b"v", version: 9 },
        Command::Lock(LockCommand::Release { name: b"l", token: 1 }),
        Command::Lock(LockCommand::Describe { name: b"l" }),
    ] {
        assert!(!draft.push(&command), "{command:?}");
    }
    assert!(draft.is_empty() && draft.bytes() == 0);
    // Nor can a peer smuggle one in.
    let mut inner = Vec::new();
    Command::Transaction(writes.transaction()).encode(&mut inner);
    let mut bytes = vec![TRANSACTION];
    bytes.put_u64(0);
    bytes.put_u32(0);
    bytes.put_bytes(b"");
    bytes.put_u32(1);
    bytes.put_bytes(&inner);
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn only_a_write_without_a_bound_can_get_one() {
    let (mut scratch, mut other) = (Vec::new(), Vec::new());
    assert!(Bounded::build(1, &Command::Get { key: b"k" }, &mut scratch).is_none());
    let bounded = Command::Bounded(Bounded::build(1, &Command::Clear {}, &mut scratch).expect("a write"));
    assert!(Bounded::build(1, &bounded, &mut other).is_none());
    assert_eq!(bounded.unbounded(&mut None), &Command::Clear {});
    // Nor can a peer nest bounds without end, or give one to a read.
    for inner in [&[BOUNDED][..], &[GET, 0, 0, 0, 0]] {
        let mut bytes = vec![BOUNDED];
        bytes.put_u64(1);
        bytes.put_bytes(inner);
        assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
    }
    assert!(!Draft::default().push(&bounded));
}

#[test]
fn only_a_set_can_be_fenced() {
    let mut scratch = Vec::new();
    assert!(Fenced::build(b"l", 1, &Command::Clear {}, &mut scratch).is_none());
    // Nor can a peer nest fences without end.
    let mut bytes = vec![FENCED];
    bytes.put_bytes(b"l");
    bytes.put_u64(1);
    bytes.put_bytes(&[FENCED]);
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn only_commands_that_can_wait_are_wishes() {
    let (mut scratch, mut list) = (Vec::new(), Vec::new());
    let keys = List::build(&mut list, [&b"k"[..]]);
    let pop = ListCommand::Pop { key: b"k", at_front: true, count: None };
    assert!(Wish::build(&Command::OnList(pop), &mut scratch).is_none());
    assert!(Wish::build(&Command::Delete { keys }, &mut scratch).is_none());
    let long = vec![b'k'; crate::command::WISH_BYTES_MAX];
    let moves = ListCommand::Move { from: &long, to: b"k", from_front: true, to_front: true };
    assert!(Wish::build(&Command::OnList(moves), &mut scratch).is_none());
    // Nor can a peer nest requests without end.
    let mut bytes = vec![QUEUE, 64];
    WaiterId { node: 1, life: 1, number: NonZeroU64::MIN }.put(&mut bytes);
    bytes.put_bytes(&[QUEUE]);
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn a_write_on_locks_cannot_pass_for_a_read() {
    let mut bytes = Vec::new();
    Command::Lock(LockCommand::Release { name: b"l", token: 1 }).encode(&mut bytes);
    bytes[0] = LOCK_READ;
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn a_change_of_a_hash_cannot_pass_for_a_read() {
    let mut bytes = Vec::new();
    let mut scratch = Vec::new();
    let fields = List::build(&mut scratch, [&b"f"[..]]);
    Command::Hash(HashCommand::Delete { key: b"k", fields }).encode(&mut bytes);
    bytes[0] = HASH_READ;
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn a_transaction_that_writes_cannot_pass_for_a_read() {
    let mut bytes = Vec::new();
    Command::Transaction(drafts()[1].transaction()).encode(&mut bytes);
    bytes[0] = READING_TRANSACTION;
    assert!(Command::decode(&mut Reader::new(&bytes)).is_err());
}
