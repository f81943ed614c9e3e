//! The rows of the commands on streams.

use super::row::{
    self, CHANGES, READ, READS, STORE, TAKES, UPDATES, container, data, help_of, key, second_key,
};
use crate::spec::Category::Stream;
use crate::spec::Flag::{Blocking, Fast, Write};
use crate::spec::KeyFlag::{Delete, Insert, ReadWrite, Update};
use crate::spec::{CommandSpec, Flags, Group, KeyFlags, ParseFn};
use crate::streams;

const ADDS: KeyFlags = KeyFlags::of(&[ReadWrite, Insert]);
const REMOVES_OF: KeyFlags = KeyFlags::of(&[ReadWrite, Delete]);

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[Stream])
}

const fn changes(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(Flags::of(&[Write, Fast])).keys(key(CHANGES)).in_categories(&[Stream])
}

const fn on_group(name: &'static str, arity: i16, access: KeyFlags, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(Flags::of(&[Write])).keys(second_key(access)).in_categories(&[Stream])
}

const fn facts(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(second_key(READS)).in_categories(&[Stream])
}

static XGROUP: [CommandSpec; 6] = [
    on_group("xgroup|create", -5, ADDS, streams::create_group)
        .flags(STORE)
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries and groups")
        .help(
            "key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]",
            "Begins a group, which reads the entries behind an id",
        ),
    on_group("xgroup|setid", -5, UPDATES, streams::set_group)
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries and groups")
        .help("key group id|$ [ENTRIESREAD entries-read]", "Sets up to which id a group has read"),
    on_group("xgroup|destroy", 4, REMOVES_OF, streams::destroy_group)
        .docs(Group::Stream, "5.0.0", "O(log N) for N pending entries; freeing them goes on afterwards")
        .help("key group", "Removes a group with its consumers and pending entries"),
    on_group("xgroup|createconsumer", 5, ADDS, streams::create_consumer)
        .flags(STORE)
        .docs(Group::Stream, "6.2.0", "O(log N) for N entries and groups")
        .help("key group consumer", "Adds a consumer to a group"),
    on_group("xgroup|delconsumer", 5, REMOVES_OF, streams::delete_consumer)
        .docs(Group::Stream, "5.0.0", "O(M log N) for M pending entries of the consumer")
        .help("key group consumer", "Removes a consumer, and returns how many entries were pending for it"),
    help_of("xgroup|help").in_categories(&[Stream]).docs(Group::Stream, "5.0.0", "O(1)"),
];

static XINFO: [CommandSpec; 4] = [
    facts("xinfo|consumers", 4, streams::consumer_facts)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(N log M) for N consumers and M pending entries")
        .help("key group", "Returns the consumers of a group"),
    facts("xinfo|groups", 3, streams::group_facts)
        .docs(Group::Stream, "5.0.0", "O(N log M) for N groups and M pending entries")
        .help("key", "Returns the groups of a stream"),
    facts("xinfo|stream", -3, streams::stream_facts)
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries; with FULL O(M log N) for M that are returned")
        .help("key [FULL [COUNT count]]", "Returns what a stream consists of"),
    help_of("xinfo|help").in_categories(&[Stream]).docs(Group::Stream, "5.0.0", "O(1)"),
];

/// The rows, in the order of the listing.
pub(super) const STREAMS: [CommandSpec; 20] = [
    changes("xadd", -5, streams::xadd)
        .flags(STORE.with(&[Fast]))
        .keys(key(UPDATES))
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries")
        .help(
            "key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMP producer name|IDMPAUTO producer] \
             [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]",
            "Adds an entry to a stream and returns its id",
        ),
    reads("xlen", 2, streams::xlen)
        .flags(READ.with(&[Fast]))
        .keys(key(row::LOOKS_AT))
        .docs(Group::Stream, "5.0.0", "O(log N) for N groups and pending entries")
        .help("key", "Returns how many entries a stream has"),
    reads("xrange", -4, streams::xrange)
        .docs(Group::Stream, "5.0.0", "O(log N + M) for N entries, M of which are returned")
        .help("key start end [COUNT count]", "Returns the entries of a range of ids"),
    reads("xrevrange", -4, streams::xrevrange)
        .docs(Group::Stream, "5.0.0", "O(log N + M) for N entries, M of which are returned")
        .help("key end start [COUNT count]", "Returns the entries of a range of ids, the last one first"),
    data("xread", -4, streams::xread)
        .waits(streams::wait)
        .flags(READ.with(&[Blocking]))
        .keys(row::streams(READS, 1))
        .in_categories(&[Stream])
        .docs(Group::Stream, "5.0.0", "O(log N + M) for each stream of N entries, M of which are returned")
        .help(
            "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            "Returns the entries of several streams behind an id of each",
        ),
    changes("xdel", -3, streams::xdel)
        .keys(key(REMOVES_OF))
        .docs(Group::Stream, "5.0.0", "O(M log N) for M ids and N entries")
        .help("key id [id ...]", "Removes entries of a stream and returns how many there were"),
    changes("xdelex", -5, streams::xdelex)
        .keys(key(REMOVES_OF))
        .docs(Group::Stream, "8.2.0", "O(M G log N) for M ids, G groups and N entries; with KEEPREF O(M log N)")
        .help(
            "key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Removes entries of a stream with regard to its groups, and returns what became of each",
        ),
    changes("xtrim", -4, streams::xtrim)
        .flags(Flags::of(&[Write]))
        .keys(key(REMOVES_OF))
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries; freeing them goes on afterwards")
        .help(
            "key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]",
            "Removes the first entries of a stream that are too many or too old, and returns how many",
        ),
    changes("xsetid", -3, streams::xsetid)
        .flags(STORE.with(&[Fast]))
        .keys(key(UPDATES))
        .docs(Group::Stream, "5.0.0", "O(log N) for N entries")
        .help(
            "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
            "Sets the id behind which a stream goes on",
        ),
    container("xgroup", &XGROUP)
        .docs(Group::Stream, "5.0.0", "Depends on the subcommand")
        .help("", "Holds commands about groups of consumers"),
    container("xinfo", &XINFO)
        .docs(Group::Stream, "5.0.0", "Depends on the subcommand")
        .help("", "Holds commands that describe streams"),
    data("xreadgroup", -7, streams::xreadgroup)
        .waits(streams::wait)
        .flags(Flags::of(&[Write, Blocking]))
        .keys(row::streams(READS, 4))
        .in_categories(&[Stream])
        .docs(Group::Stream, "5.0.0", "O(M log N) for M entries that are returned, and N entries of a stream")
        .help(
            "GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] \
             id [id ...]",
            "Returns entries that a group has not read yet, which become pending, or those pending for a consumer",
        ),
    changes("xack", -4, streams::xack)
        .keys(key(UPDATES))
        .docs(Group::Stream, "5.0.0", "O(M log N) for M ids and N pending entries")
        .help("key group id [id ...]", "Makes entries not pending any more and returns how many were"),
    changes("xackdel", -6, streams::xackdel)
        .keys(key(KeyFlags::of(&[ReadWrite, Update, Delete])))
        .docs(Group::Stream, "8.2.0", "O(M G log N) for M ids, G groups and N entries; with KEEPREF O(M log N)")
        .help(
            "key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Makes entries not pending any more, removes them, and returns what became of each",
        ),
    changes("xnack", -7, streams::xnack)
        .keys(key(UPDATES))
        .docs(Group::Stream, "8.8.0", "O(M log N) for M ids and N pending entries")
        .help(
            "key group SILENT|FAIL|FATAL IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
            "Gives pending entries back, for other consumers to claim, and returns how many were pending",
        ),
    changes("xcfgset", -2, streams::xcfgset)
        .keys(key(UPDATES))
        .docs(Group::Stream, "8.6.0", "O(log N) for N names of entries; freeing them goes on afterwards")
        .help(
            "key [IDMP-DURATION seconds] [IDMP-MAXSIZE count]",
            "Sets for how long, and how many of each producer, names of sent entries are remembered",
        ),
    changes("xidmprecord", 5, streams::xidmprecord)
        .keys(key(UPDATES))
        .docs(Group::Stream, "8.6.0", "O(log N) for N names of entries")
        .help(
            "key producer name id",
            "Remembers that a producer has sent an entry under a name, as XADD with IDMP does",
        ),
    reads("xpending", -3, streams::xpending)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(M log N) for M entries or consumers that are returned, N pending entries")
        .help(
            "key group [[IDLE min-idle-time] start end count [consumer]]",
            "Returns what is pending in a group",
        ),
    changes("xclaim", -6, streams::xclaim)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(M log N) for M ids and N pending entries")
        .help(
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] \
             [FORCE] [JUSTID] [LASTID last-id]",
            "Makes pending entries those of another consumer",
        ),
    changes("xautoclaim", -6, streams::xautoclaim)
        .keys(key(TAKES))
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "6.2.0", "O(M log N) for a count of M and N pending entries")
        .help(
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Makes the next pending entries those of another consumer, and returns where to go on",
        ),
];
