//! The rows of the commands on the bytes of strings: bits, sketches, `LCS`.

use super::row::{READ, READS, REPLACES, STORE, data, key, key_and_others, keys, range};
use crate::bytes;
use crate::spec::Category::{Bitmap, HyperLogLog, String as StringCategory};
use crate::spec::Flag::Fast;
use crate::spec::KeyFlag::{Access, Insert, ReadWrite, Update, Variable};
use crate::spec::{CommandSpec, Group, KeyFlags, KeySpecs, ParseFn};

const CHANGES_BITS: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Update]);
const COUNTS: KeyFlags = KeyFlags::of(&[ReadWrite, Insert]);
const COMBINED: KeySpecs = KeySpecs::of(&[range(2, 0, REPLACES), range(3, -1, READS)]);
/// Redis keeps the estimate of a sketch in its value, so it writes to what it counts. That needs no right to write.
const ESTIMATES: KeyFlags = KeyFlags::of(&[ReadWrite, Access]);
const MERGES: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Insert]);

const fn reads(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(READ).keys(key(READS)).in_categories(&[Bitmap])
}

const fn stores(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    data(name, arity, parse).flags(STORE).keys(key(CHANGES_BITS)).in_categories(&[Bitmap])
}

/// The rows, in the order of the listing.
pub(super) const BYTES: [CommandSpec; 11] = [
    stores("setbit", 4, bytes::setbit)
        .docs(Group::Bitmap, "2.2.0", "O(1)")
        .help("key offset value", "Sets a bit of a string and returns what it was"),
    reads("getbit", 3, bytes::getbit)
        .flags(READ.with(&[Fast]))
        .docs(Group::Bitmap, "2.2.0", "O(1)")
        .help("key offset", "Returns a bit of a string"),
    reads("bitcount", -2, bytes::bitcount)
        .docs(Group::Bitmap, "2.6.0", "O(N) for N bytes")
        .help("key [start end [BYTE|BIT]]", "Returns how many bits of a string are set"),
    reads("bitpos", -3, bytes::bitpos)
        .docs(Group::Bitmap, "2.8.7", "O(N) for N bytes")
        .help("key bit [start [end [BYTE|BIT]]]", "Returns where the first bit with this value is"),
    stores("bitop", -4, bytes::bitop)
        .keys(COMBINED)
        .docs(Group::Bitmap, "2.6.0", "O(N) for N bytes in all strings")
        .help("AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE destkey key [key ...]", "Stores several strings made one, bit by bit"),
    stores("bitfield", -2, bytes::bitfield)
        .keys(key(CHANGES_BITS.with(&[Variable])))
        .docs(Group::Bitmap, "3.2.0", "O(N) for N operations")
        .help(
            "key [GET encoding offset|[OVERFLOW WRAP|SAT|FAIL] SET encoding offset value|INCRBY encoding offset increment] ...",
            "Reads and changes numbers of some bits in a string",
        ),
    reads("bitfield_ro", -2, bytes::bitfield_ro)
        .flags(READ.with(&[Fast]))
        .docs(Group::Bitmap, "6.0.0", "O(N) for N operations")
        .help("key [GET encoding offset] ...", "Reads numbers of some bits in a string"),
    stores("pfadd", -2, bytes::pfadd)
        .flags(STORE.with(&[Fast]))
        .keys(key(COUNTS))
        .in_categories(&[HyperLogLog])
        .docs(Group::HyperLogLog, "2.8.9", "O(N) for N elements")
        .help("key [element [element ...]]", "Counts elements in a sketch, each of them once"),
    reads("pfcount", -2, bytes::pfcount)
        .keys(keys(ESTIMATES))
        .in_categories(&[HyperLogLog])
        .docs(Group::HyperLogLog, "2.8.9", "O(N) for N keys")
        .help("key [key ...]", "Estimates how many different elements sketches have counted together"),
    stores("pfmerge", -2, bytes::pfmerge)
        .keys(key_and_others(MERGES, READS))
        .in_categories(&[HyperLogLog])
        .docs(Group::HyperLogLog, "2.8.9", "O(N) for N keys")
        .help("destkey [sourcekey [sourcekey ...]]", "Makes one sketch of several"),
    reads("lcs", -3, bytes::lcs)
        .keys(KeySpecs::of(&[range(1, 1, READS)]))
        .in_categories(&[StringCategory])
        .docs(Group::String, "7.0.0", "O(N*M) for strings of N and M bytes")
        .help(
            "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
            "Returns the longest common subsequence of two strings",
        ),
];
