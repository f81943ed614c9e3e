//! Why a command was not executed: the texts that clients see, without the leading `-`.

use kv::glob::PATTERN_BYTES_MAX;
use kv::limits::{CHANNEL_BYTES_MAX, KEY_BYTES_MAX};
use kv::locks::{LEASE_MS_MAX, LOCK_NAME_BYTES_MAX, OWNER_BYTES_MAX};
use wire::resp::Arguments;

use super::Later;

/// A command that was refused before anything was done. Its text is Redis's own where Redis has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No command has this name.
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    UnknownCommand {
        /// The name as sent, cut and made printable.
        name: String,
        /// The first arguments, each in quotes and followed by a space.
        arguments: String,
    },
    /// The container has no such subcommand.
    #[error("ERR unknown subcommand '{given}'. Try {} HELP.", .container.to_ascii_uppercase())]
    UnknownSubcommand {
        /// The container's name, such as `config`.
        container: &'static str,
        /// The subcommand's name as sent.
        given: String,
    },
    /// An error of an argument that is read after the keys were looked at.
    #[error("{}", .0.error)]
    Later(Box<Later>),
    /// Too few or too many arguments for the command of this full name, such as `config|get`.
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    /// `RESTORE` with a negative time to live.
    #[error("ERR Invalid TTL value, must be >= 0")]
    NegativeTtl,
    /// `RESTORE … IDLETIME` with a negative time.
    #[error("ERR Invalid IDLETIME value, must be >= 0")]
    InvalidIdleTime,
    /// `RESTORE … FREQ` with an invalid number.
    #[error("ERR Invalid FREQ value, must be >= 0 and <= 255")]
    InvalidFrequency,
    /// An option that is unknown, incomplete, or contradicts another one.
    #[error("ERR syntax error")]
    Syntax,
    /// Not a decimal 64-bit integer.
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    /// An integer that does not fit into 32 bits where it must.
    #[error("ERR value is out of range, value must between -2147483648 and 2147483647")]
    NotAnInteger32,
    /// A count of elements that is negative or not a number.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    /// A number that must be positive, such as a number of keys.
    #[error("ERR {0} should be greater than 0")]
    NotGreaterThanZero(&'static str),
    /// `SINTERCARD` with more keys than arguments.
    #[error("ERR Number of keys can't be greater than number of args")]
    TooManyKeys,
    /// A count of members whose negation does not exist.
    #[error("ERR value is out of range, value must between -{max} and {max}", max = i64::MAX)]
    CountOutOfRange,
    /// `ZADD` with `NX` and `XX`.
    #[error("ERR XX and NX options at the same time are not compatible")]
    AddXxWithNx,
    /// `ZADD` with more than one of `GT`, `LT` and `NX`.
    #[error("ERR GT, LT, and/or NX options at the same time are not compatible")]
    AddGtWithLtOrNx,
    /// `ZADD … INCR` with several members.
    #[error("ERR INCR option supports a single increment-element pair")]
    SeveralIncrements,
    /// An invalid end of a range of scores.
    #[error("ERR min or max is not a float")]
    NotAScoreRange,
    /// An invalid end of a range of members.
    #[error("ERR min or max not valid string range item")]
    NotAMemberRange,
    /// `ZRANGE` by ranks with `LIMIT`.
    #[error("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")]
    LimitByRank,
    /// `ZRANGE … BYLEX WITHSCORES`.
    #[error("ERR syntax error, WITHSCORES not supported in combination with BYLEX")]
    ScoresByMember,
    /// No keys for a command on several sorted sets.
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    NoInputKey(&'static str),
    /// A weight that is not a number.
    #[error("ERR weight value is not a float")]
    NotAWeight,
    /// A count whose double cannot be counted.
    #[error("ERR value is out of range")]
    OutOfRange,
    /// What is wrong with a command on streams, in one sentence.
    #[error("{0}")]
    OfStream(&'static str),
    /// `XREAD` with an option of `XREADGROUP`.
    #[error("ERR The {0} option is only supported by XREADGROUP. You called XREAD instead.")]
    OnlyOfGroups(&'static str),
    /// `XCLAIM` with an option that it does not have.
    #[error("ERR Unrecognized XCLAIM option '{0}'")]
    UnknownClaimOption(String),
    /// A subcommand with arguments that it does not take.
    #[error("ERR unknown subcommand or wrong number of arguments for '{given}'. Try {container} HELP.")]
    MisusedSubcommand {
        /// The container's name, such as `XINFO`.
        container: &'static str,
        /// The subcommand's name as sent.
        given: String,
    },
    /// A name of a group or a consumer longer than a key.
    #[error(
        "ERR the name of a group, consumer, producer or entry is {0} bytes long; at most {KEY_BYTES_MAX} are allowed"
    )]
    GroupNameTooLong(usize),
    /// An option whose argument must not be negative.
    #[error("ERR {0} can't be negative")]
    Negative(&'static str),
    /// `LPOS … RANK 0`.
    #[error(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from \
         the end of the list"
    )]
    RankZero,
    /// `LPOS … RANK` of the least integer, which has no positive counterpart.
    #[error("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807")]
    RankOutOfRange,
    /// `COMMAND GETKEYS` of a command whose number of keys is wrong.
    #[error("ERR Invalid arguments specified for command")]
    GetKeysWrongCount,
    /// A time to wait that is not a number.
    #[error("ERR timeout is not a float or out of range")]
    TimeoutNotAFloat,
    /// A time to wait that is below zero.
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    /// A time to wait beyond what can be measured.
    #[error("ERR timeout is out of range")]
    TimeoutOutOfRange,
    /// `MSETEX` with a number of keys that is none.
    #[error("ERR invalid numkeys value")]
    InvalidKeyCount,
    /// `MSETEX` with fewer pairs than it says.
    #[error("ERR wrong number of key-value pairs")]
    WrongPairCount,
    /// `INCREX` of something that is not a whole number: the increment, or a bound.
    #[error("ERR {0} is not an integer or out of range")]
    OptionNotAnInteger(&'static str),
    /// `INCREX` of something that is not a decimal number: the increment, or a bound.
    #[error("ERR {0} is not a valid float")]
    OptionNotAFloat(&'static str),
    /// `INCREX` by infinity.
    #[error("ERR BYFLOAT increment cannot be Infinity")]
    InfiniteIncrement,
    /// `INCREX` with bounds between which there is nothing.
    #[error("ERR LBOUND can't be greater than UBOUND")]
    BoundsCrossed,
    /// `INCREX` with `ENX` alone.
    #[error("ERR ENX flag requires an expiration (EX, PX, EXAT or PXAT)")]
    ConditionWithoutExpiry,
    /// Not a decimal number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// `DECRBY` of the one integer that has no negation.
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    /// `INCRBYFLOAT` by infinity.
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    /// `HINCRBYFLOAT` by infinity.
    #[error("ERR value is NaN or Infinity")]
    NotFiniteValue,
    /// An expiry that is not positive where it must be, or beyond what 64 bits of milliseconds hold.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpireTime(&'static str),
    /// A negative expiry of fields.
    #[error("ERR invalid expire time, must be >= 0")]
    NegativeExpireTime,
    /// What is wrong with a command on fields of a hash, in one sentence.
    #[error("{0}")]
    OfFields(&'static str),
    /// A word among the options of a command on fields.
    #[error("ERR unknown argument: {0}")]
    UnknownArgument(String),
    /// `EXPIRE … NX` together with another condition.
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ExpireNxWithOther,
    /// `EXPIRE … GT LT`.
    #[error("ERR GT and LT options at the same time are not compatible")]
    ExpireGtWithLt,
    /// `EXPIRE` with an option that it does not have.
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
    /// `SETRANGE` at a negative position.
    #[error("ERR offset is out of range")]
    OffsetOutOfRange,
    /// `SETRANGE` beyond the longest value.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// The offset of a bit that is not a number, or beyond the longest value.
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    /// `SETBIT` to something else than 0 or 1.
    #[error("ERR bit is not an integer or out of range")]
    NotABit,
    /// `BITPOS` of something else than 0 or 1.
    #[error("ERR The bit argument must be 1 or 0.")]
    NotZeroOrOne,
    /// `BITOP NOT` of several keys.
    #[error("ERR BITOP NOT must be called with a single source key.")]
    NotOfSeveral,
    /// A `BITOP` that compares the first string with others.
    #[error("ERR BITOP {0} must be called with at least two source keys.")]
    OfOne(&'static str),
    /// What nodes of earlier releases do not know.
    #[error(
        "ERR this needs level {0} of the cluster: upgrade all of its nodes first (quorate status shows the level)"
    )]
    NeedsLevel(u32),
    /// `BITFIELD` with an invalid type of field.
    #[error(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
    )]
    NotAFieldType,
    /// `BITFIELD … OVERFLOW` with an unknown word.
    #[error("ERR Invalid OVERFLOW type specified")]
    NotAnOverflow,
    /// `BITFIELD_RO` with a write.
    #[error("ERR BITFIELD_RO only supports the GET subcommand")]
    OnlyGet,
    /// `LCS … LEN IDX`.
    #[error("ERR If you want both the length and indexes, please just use IDX.")]
    LengthAndRanges,
    /// A longitude or latitude that is out of range.
    #[error("ERR invalid longitude,latitude pair {0}")]
    NotAPlace(String),
    /// An unknown unit of length.
    #[error("ERR unsupported unit provided. please use M, KM, FT, MI")]
    NotALengthUnit,
    /// A length that is not a number.
    #[error("ERR need numeric {0}")]
    NeedsNumeric(&'static str),
    /// A negative length.
    #[error("ERR {0} cannot be negative")]
    NegativeLength(&'static str),
    /// A `COUNT` that is not positive.
    #[error("ERR COUNT must be > 0")]
    CountNotPositive,
    /// `ANY` without `COUNT`.
    #[error("ERR the ANY argument requires COUNT argument")]
    AnyWithoutCount,
    /// A search without exactly one centre.
    #[error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {0}")]
    NoCentre(String),
    /// A search without exactly one area.
    #[error("ERR exactly one of BYRADIUS and BYBOX can be specified for {0}")]
    NoShape(String),
    /// A polygon whose number of corners is none.
    #[error("ERR invalid number of vertices")]
    InvalidCornerCount,
    /// A polygon with too few corners, or fewer than it says.
    #[error("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices")]
    TooFewCorners,
    /// A search that stores its result, with an option about what to return.
    #[error("ERR {0} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")]
    StoreWithOptions(&'static str),
    /// `COPY` of a key onto itself.
    #[error("ERR source and destination objects are the same")]
    SameKey,
    /// A number that no database can have.
    #[error("ERR DB index is out of range")]
    NoSuchDatabase,
    /// `COPY` to a database that the client has not selected, which is no command of one group.
    #[error("ERR COPY makes no copies in other databases here: each is a group of its own")]
    OtherDatabase {
        /// The database's number.
        number: u8,
        /// Whether the copy replaces an existing key.
        replaces: bool,
    },
    /// `SCAN` with an invalid cursor.
    #[error("ERR invalid cursor")]
    InvalidCursor,
    /// `CLUSTERSCAN … SLOT`.
    #[error(
        "ERR CLUSTERSCAN SLOT is refused: keys are in no order of slots, so each scan of one would look at all keys. Scan without it: \
         any node returns the keys of all slots"
    )]
    ScanOfSlot,
    /// `COMMAND GETKEYS` of a command that does not exist.
    #[error("ERR Invalid command specified")]
    GetKeysUnknownCommand,
    /// `COMMAND GETKEYS` of a command that takes no keys.
    #[error("ERR The command has no key arguments")]
    GetKeysWithoutKeys,
    /// `COMMAND GETKEYS` of a command with too few or too many arguments.
    #[error("ERR Invalid number of arguments specified for command")]
    GetKeysWrongArity,
    /// An invalid digest in a comparison.
    #[error("ERR must be exactly 16 hexadecimal characters")]
    NotADigest,
    /// `DELEX` with an unknown condition.
    #[error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")]
    NotAComparison,
    /// A pattern longer than [`PATTERN_BYTES_MAX`].
    #[error("ERR the pattern is {0} bytes long; at most {PATTERN_BYTES_MAX} are allowed")]
    PatternTooLong(usize),
    /// A channel's name longer than [`CHANNEL_BYTES_MAX`].
    #[error("ERR the name of a channel is {0} bytes long; at most {CHANNEL_BYTES_MAX} are allowed")]
    ChannelTooLong(usize),
    /// A lock's name longer than [`LOCK_NAME_BYTES_MAX`].
    #[error("ERR the name of a lock is {0} bytes long; at most {LOCK_NAME_BYTES_MAX} are allowed")]
    LockNameTooLong(usize),
    /// A lock's owner with an empty name, or with one longer than [`OWNER_BYTES_MAX`].
    #[error("ERR the owner of a lock has a name of 1 to {OWNER_BYTES_MAX} bytes, not {0}")]
    LockOwner(usize),
    /// A lease of zero, or of more than a day.
    #[error("ERR invalid lease in '{0}' command: from 1 to {LEASE_MS_MAX} milliseconds")]
    LockLease(&'static str),
    /// A negative wait, or one of more than a day.
    #[error("ERR invalid WAIT in 'lock' command: from 0 to {LEASE_MS_MAX} milliseconds")]
    LockWait,
    /// A number that cannot be a fencing token.
    #[error("ERR a fencing token is a positive integer")]
    NotAToken,
    /// An id that `LOCK.SESSION OPEN` never returns.
    #[error("ERR that is not the id of a session")]
    NotASession,
    /// A key longer than [`KEY_BYTES_MAX`].
    #[error("ERR key is {0} bytes long; at most {KEY_BYTES_MAX} are allowed")]
    KeyTooLong(usize),
    /// A value longer than configured.
    #[error("ERR value is {bytes} bytes long; at most {most} are allowed")]
    ValueTooLong {
        /// The value's length in bytes.
        bytes: usize,
        /// The longest allowed length in bytes.
        most: usize,
    },
}

/// How many bytes of a client's input are repeated in an error, as in Redis.
const ECHOED_BYTES_MAX: usize = 128;

/// Makes a client's input suitable for an error line: cut, on one line, and valid text.
pub fn printable(sent: &[u8]) -> String {
    echo(sent, ECHOED_BYTES_MAX)
}

fn echo(sent: &[u8], bytes_max: usize) -> String {
    // Redis prints with C's %s, which ends at a zero byte.
    let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
    let sent = &sent[..sent.len().min(bytes_max)];
    String::from_utf8_lossy(sent).replace(['\r', '\n'], " ")
}

impl CommandError {
    #[cold]
    pub(super) fn unknown_command(request: Arguments<'_>) -> CommandError {
        let mut arguments = String::new();
        for argument in request.iter().skip(1) {
            let Some(left @ 1..) = ECHOED_BYTES_MAX.checked_sub(arguments.len()) else {
                break;
            };
            arguments += &format!("'{}' ", echo(argument, left));
        }
        CommandError::UnknownCommand { name: printable(&request[0]), arguments }
    }

    #[cold]
    pub(super) fn unknown_subcommand(container: &'static str, given: &[u8]) -> CommandError {
        CommandError::UnknownSubcommand { container, given: printable(given) }
    }
}
