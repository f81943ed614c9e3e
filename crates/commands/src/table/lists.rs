//! The rows of the commands on lists.

use super::row::{
    LOOKS_AT, READ, READS, STORE, TAKES, UPDATES, counted_keys, data, key, keys_before_last, two_keys,
};
use crate::arguments::{wait_in_first, wait_in_last};
use crate::lists;
use crate::spec::Category::List;
use crate::spec::Flag::{Blocking, Fast, NoScript, Write};
use crate::spec::KeyFlag::{Delete, Insert, ReadWrite};
use crate::spec::{CommandSpec, Flags, Group, KeyFlags, ParseFn};

const ADDS: KeyFlags = KeyFlags::of(&[ReadWrite, Insert]);
const SHORTENS: KeyFlags = KeyFlags::of(&[ReadWrite, Delete]);

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[List])
}

const fn stores(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(STORE).keys(key(ADDS)).in_categories(&[List])
}

const fn takes(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(Flags::of(&[Write])).keys(key(SHORTENS)).in_categories(&[List])
}

/// The rows, in the order of the listing.
pub(super) const LISTS: [CommandSpec; 22] = [
    stores("lpush", -3, lists::lpush)
        .flags(STORE.with(&[Fast]))
        .docs(Group::List, "1.0.0", "O(N log L) for N elements and a list of L")
        .help("key element [element ...]", "Adds elements in front of a list and returns its length"),
    stores("rpush", -3, lists::rpush)
        .flags(STORE.with(&[Fast]))
        .docs(Group::List, "1.0.0", "O(N log L) for N elements and a list of L")
        .help("key element [element ...]", "Adds elements to the end of a list and returns its length"),
    stores("lpushx", -3, lists::lpushx)
        .flags(STORE.with(&[Fast]))
        .docs(Group::List, "2.2.0", "O(N log L) for N elements and a list of L")
        .help("key element [element ...]", "Adds elements in front of a list that exists"),
    stores("rpushx", -3, lists::rpushx)
        .flags(STORE.with(&[Fast]))
        .docs(Group::List, "2.2.0", "O(N log L) for N elements and a list of L")
        .help("key element [element ...]", "Adds elements to the end of a list that exists"),
    takes("lpop", -2, lists::lpop)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(TAKES))
        .docs(Group::List, "1.0.0", "O(N + log L) for N elements and a list of L")
        .help("key [count]", "Removes the first elements of a list and returns them"),
    takes("rpop", -2, lists::rpop)
        .flags(Flags::of(&[Write, Fast]))
        .keys(key(TAKES))
        .docs(Group::List, "1.0.0", "O(N + log L) for N elements and a list of L")
        .help("key [count]", "Removes the last elements of a list and returns them, the last one first"),
    takes("lmpop", -4, lists::lmpop)
        .flags(Flags::of(&[Write]))
        .keys(counted_keys(1, TAKES))
        .docs(Group::List, "7.0.0", "O(K + N + log L) for K keys, N elements and a list of L")
        .help(
            "numkeys key [key ...] LEFT|RIGHT [COUNT count]",
            "Removes elements of the first list that has any, and returns its key and them",
        ),
    reads("llen", 2, lists::llen)
        .flags(READ.with(&[Fast]))
        .keys(key(LOOKS_AT))
        .docs(Group::List, "1.0.0", "O(1)")
        .help("key", "Returns the length of a list"),
    reads("lindex", 3, lists::lindex)
        .docs(Group::List, "1.0.0", "O(log L) for a list of L elements")
        .help("key index", "Returns an element of a list by its index"),
    reads("lrange", 4, lists::lrange)
        .docs(Group::List, "1.0.0", "O(N + log L) for N elements and a list of L")
        .help("key start stop", "Returns the elements of a list from one index to another"),
    reads("lpos", -3, lists::lpos)
        .docs(Group::List, "6.0.6", "O(N) for N elements in the list; with MAXLEN for so many at most")
        .help(
            "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
            "Returns the indexes of elements of a list that are equal to one",
        ),
    stores("lset", 4, lists::lset)
        .keys(key(UPDATES))
        .docs(Group::List, "1.0.0", "O(log L) for a list of L elements")
        .help("key index element", "Replaces an element of a list"),
    stores("linsert", 5, lists::linsert)
        .docs(Group::List, "2.2.0", "O(N) for N elements in front of the pivot")
        .help("key BEFORE|AFTER pivot element", "Adds an element to a list before or after another one"),
    takes("lrem", 4, lists::lrem)
        .docs(Group::List, "1.0.0", "O(L + N log L) for N elements removed and a list of L")
        .help("key count element", "Removes elements of a list that are equal to one"),
    takes("ltrim", 4, lists::ltrim)
        .docs(Group::List, "1.0.0", "O(log L) for a list of L elements; memory is freed later")
        .help("key start stop", "Removes all elements of a list but those from one index to another"),
    stores("lmove", 5, lists::lmove)
        .keys(two_keys(TAKES, ADDS))
        .docs(Group::List, "6.2.0", "O(log L) for lists of L elements")
        .help(
            "source destination LEFT|RIGHT LEFT|RIGHT",
            "Moves an element from an end of a list to an end of another and returns it",
        ),
    stores("rpoplpush", 3, lists::rpoplpush)
        .keys(two_keys(TAKES, ADDS))
        .docs(Group::List, "1.2.0", "O(log L) for lists of L elements")
        .help("source destination", "Moves the last element of a list to the front of another; see LMOVE"),
    takes("blpop", -3, lists::blpop)
        .waits(wait_in_last)
        .flags(Flags::of(&[Write, NoScript, Blocking]))
        .keys(keys_before_last(TAKES))
        .docs(Group::List, "2.0.0", "O(K + log L) for K keys and a list of L")
        .help(
            "key [key ...] timeout",
            "Removes the first element of the first list that has any, and waits for one if none has",
        ),
    takes("brpop", -3, lists::brpop)
        .waits(wait_in_last)
        .flags(Flags::of(&[Write, NoScript, Blocking]))
        .keys(keys_before_last(TAKES))
        .docs(Group::List, "2.0.0", "O(K + log L) for K keys and a list of L")
        .help(
            "key [key ...] timeout",
            "Removes the last element of the first list that has any, and waits for one if none has",
        ),
    stores("blmove", 6, lists::blmove)
        .waits(wait_in_last)
        .flags(STORE.with(&[NoScript, Blocking]))
        .keys(two_keys(TAKES, ADDS))
        .docs(Group::List, "6.2.0", "O(log L) for lists of L elements")
        .help(
            "source destination LEFT|RIGHT LEFT|RIGHT timeout",
            "Moves an element from an end of a list to an end of another, and waits for it if there is none",
        ),
    takes("blmpop", -5, lists::blmpop)
        .waits(wait_in_first)
        .flags(Flags::of(&[Write, Blocking]))
        .keys(counted_keys(2, TAKES))
        .docs(Group::List, "7.0.0", "O(K + N + log L) for K keys, N elements and a list of L")
        .help(
            "timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]",
            "Removes elements of the first list that has any, and waits for some if none has",
        ),
    stores("brpoplpush", 4, lists::brpoplpush)
        .waits(wait_in_last)
        .flags(STORE.with(&[NoScript, Blocking]))
        .keys(two_keys(TAKES, ADDS))
        .docs(Group::List, "2.2.0", "O(log L) for lists of L elements")
        .help(
            "source destination timeout",
            "Moves the last element of a list to the front of another, and waits for it; see BLMOVE",
        ),
];
