//! The requests of clients, how they are encoded, and what a reply to one means.

use kv::locks::SessionId;
use wire::resp::ArgumentsBuffer;

/// The number of lists of a keyspace whose elements clients wait for.
pub(crate) const QUEUES: u8 = 2;

/// The number of collections of each type in a keyspace, and of their members.
pub(crate) const COLLECTIONS: u8 = 2;
pub(crate) const MEMBERS: u32 = 4;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `PING`. The client's node answers it by itself.
    Ping,
    /// `GET`.
    Get,
    /// `EVAL` of a script that reads a key, which it declares or not: see [`Operation::computes`].
    GetByScript,
    /// `SET` of a value that no other operation ever sets.
    Set,
    /// `DEL`.
    Delete,
    /// `INCR`, on separate keys.
    Increment,
    /// `SET NX`.
    SetIfAbsent,
    /// `GETSET`.
    GetAndSet,
    /// `SET PX`, on separate keys.
    SetFleeting,
    /// `GET` of a key that expires.
    GetFleeting,
    /// A transaction with `WATCH`, on separate pairs of keys: see [`crate::conversation`].
    Transact,
    /// A transaction over several keyspaces and shards, on separate lists: see [`crate::across`].
    Across,
    /// Such a transaction that reads all of these lists.
    ReadAcross,
    /// `EVAL` of [`SCRIPT`], on counters.
    Script,
    /// `RPUSH` of a value that no other operation ever pushes, on separate keys.
    Push,
    /// `BLPOP` of these lists.
    Take,
    /// `BLPOP` of all of these lists, which are in several shards.
    TakeAny,
    /// `LPUSH` of such a value.
    PushFront,
    /// `LPOP`.
    PopFront,
    /// `RPOP`.
    PopBack,
    /// `LMOVE ... LEFT RIGHT` from a list to itself.
    Rotate,
    /// `SADD` of one of a few members, on separate keys.
    Add,
    /// `SREM`.
    Remove,
    /// `SISMEMBER`.
    Contains,
    /// `SPOP`.
    Draw,
    /// `ZADD` of one of a few members, on separate keys.
    SetScore,
    /// `ZINCRBY`.
    AddScore,
    /// `ZREM`.
    RemoveScored,
    /// `ZPOPMIN`.
    PopLowest,
    /// `BZPOPMIN`.
    TakeLowest,
    /// `XADD` of a value that no other operation ever adds, on separate keys.
    Append,
    /// `XGROUP CREATE` of a group that gets all entries. It is created once.
    CreateGroup,
    /// `XREADGROUP ... >` of one entry.
    Deliver,
    /// `XAUTOCLAIM` of the first pending entry.
    Claim,
    /// `XACK` of the first pending entry.
    Acknowledge,
    /// An operation on locks, drawn when it is sent: one of those below, or a read of a guarded key. See
    /// [`crate::locking`].
    Lock,
    /// `LOCK`, with or without `WAIT`.
    Acquire,
    /// `LOCK.RENEW`.
    Renew,
    /// `UNLOCK`.
    Release,
    /// `SET ... FENCE`, of a key that a lock guards.
    SetFenced,
    /// `LOCK.SESSION OPEN`, in the group of a lock.
    OpenSession,
    /// `LOCK.SESSION RENEW`.
    RenewSession,
    /// `LOCK.SESSION CLOSE`.
    CloseSession,
}

impl Kind {
    /// Whether it concerns a lock or a session, and not a key.
    pub(crate) fn is_of_locks(self) -> bool {
        use Kind::*;
        matches!(self, Acquire | Renew | Release | OpenSession | RenewSession | CloseSession)
    }

    /// The class of the keys of lists, sets, sorted sets and streams.
    pub(crate) fn collection(self) -> Option<u8> {
        use Kind::*;
        match self {
            Push | Take | TakeAny | PushFront | PopFront | PopBack | Rotate => Some(b'q'),
            Add | Remove | Contains | Draw => Some(b'm'),
            SetScore | AddScore | RemoveScored | PopLowest | TakeLowest => Some(b'z'),
            Append | CreateGroup | Deliver | Claim | Acknowledge => Some(b'x'),
            _ => None,
        }
    }

    /// Whether it waits for an element.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Kind::Take | Kind::TakeAny | Kind::TakeLowest)
    }

    /// Whether it takes several requests, which the part of the client beside its node sends.
    pub(crate) fn is_conversation(self) -> bool {
        matches!(self, Kind::Transact | Kind::Across | Kind::ReadAcross)
    }

    /// Whether observers repeat it until no element is left.
    pub(crate) fn empties(self) -> bool {
        self.waits() || matches!(self, Kind::Draw | Kind::PopLowest | Kind::Deliver | Kind::Acknowledge)
    }
}

/// Adds one to a key, and writes to a hash values that would differ between replicas if scripts were not deterministic;
/// fields of the hash come and go. With an argument, a limit then cuts the script off, and none of its effects may
/// stay.
const SCRIPT: &str = "local sum = tonumber(redis.call('get', KEYS[1]) or 0) + 1\n\
    redis.call('set', KEYS[1], sum)\n\
    local seen = tostring({}) .. math.random(1000) .. redis.call('time')[2]\n\
    for name in pairs({one = 1, two = 2, three = 3, four = 4, [5] = 5}) do seen = seen .. name end\n\
    redis.call('hset', KEYS[2], 'seen', seen, 'at' .. sum % 7, sum)\n\
    redis.call('hincrby', KEYS[2], 'sum', sum)\n\
    redis.call('hdel', KEYS[2], 'at' .. sum % 3)\n\
    redis.call('pexpire', KEYS[2], 1000)\n\
    if ARGV[1] then string.rep('x', 1000000000) end\n\
    return sum";

/// Returns the value of a key that is declared, or is passed as an argument.
const READ: &str = "return redis.call('get', KEYS[1] or ARGV[1])";

/// Claims the first pending entry of a group, and returns its value.
const CLAIM: &str = "local claimed = redis.call('xautoclaim', KEYS[1], 'g', 'd', 0, '0-0', 'COUNT', 1)[2]\n\
    return #claimed > 0 and claimed[1][2][2]";

/// Acknowledges the first pending entry of a group, and returns its value.
const ACKNOWLEDGE: &str = "local pending = redis.call('xpending', KEYS[1], 'g', '-', '+', 1)\n\
    if #pending == 0 then return false end\n\
    redis.call('xack', KEYS[1], 'g', pending[1][1])\n\
    return redis.call('xrange', KEYS[1], pending[1][1], pending[1][1])[1][2][2]";

/// A key of a keyspace: kinds that must not mix have separate keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The keyspace's index in the scenario.
    pub(crate) space: u8,
    /// `k` for plain keys, `n` for counters, `e` for keys that expire, `p` for pairs, `l` for locks, `f` for guarded
    /// keys, `a` for lists of transactions over several keyspaces, `q` for lists, `m` for sets, `z` for sorted sets, `x` for streams.
    pub(crate) class: u8,
    pub(crate) number: u8,
}

impl Key {
    pub(crate) fn write(self, prefix: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(prefix.as_bytes());
        if self.class == b'f' && self.number == 0 {
            // The hash tag puts it in its lock's shard; the others may be in another one than theirs.
            out.extend_from_slice(b"f{");
            Key { class: b'l', ..self }.write(prefix, out);
            return out.push(b'}');
        }
        out.push(self.class);
        out.push(b'0' + self.number);
    }
}

/// The further parameters of requests about locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockTerms {
    /// The client that requests a lock, in one of its incarnations.
    pub(crate) owner: u32,
    pub(crate) token: u64,
    pub(crate) session: Option<SessionId>,
    /// How long the request waits for a lock.
    pub(crate) wait_ms: u16,
}

impl LockTerms {
    pub(crate) fn owner_name(&self) -> String {
        format!("c{}.{}", self.owner >> 16, self.owner as u16)
    }
}

/// One operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    /// The value that it writes, if any, and the lifetime of a value that expires.
    pub(crate) value: Value,
    pub(crate) lifetime_ms: u16,
    pub(crate) lock: LockTerms,
    /// Its index in the history of the run.
    pub(crate) number: u32,
}

impl Operation {
    pub(crate) fn new(kind: Kind, key: Key, value: Value) -> Operation {
        Operation { kind, key, value, lifetime_ms: 0, lock: LockTerms::default(), number: 0 }
    }

    pub(crate) fn of_lock(kind: Kind, key: Key, lock: LockTerms) -> Operation {
        Operation { lock, ..Operation::new(kind, key, Value::default()) }
    }

    /// Writes the request to `arguments`.
    pub(crate) fn request(&self, prefix: &str, arguments: &mut ArgumentsBuffer) {
        arguments.clear();
        let name: &[u8] = match self.kind {
            Kind::Ping => return arguments.push(b"PING"),
            Kind::Get | Kind::GetFleeting => b"GET",
            Kind::Set | Kind::SetIfAbsent | Kind::SetFleeting => b"SET",
            Kind::Delete => b"DEL",
            Kind::Increment => b"INCR",
            Kind::GetAndSet => b"GETSET",
            Kind::Transact => b"TRANSACT",
            Kind::Across | Kind::ReadAcross => b"ACROSS",
            Kind::Push => b"RPUSH",
            Kind::Take | Kind::TakeAny => b"BLPOP",
            Kind::PushFront => b"LPUSH",
            Kind::PopFront => b"LPOP",
            Kind::PopBack => b"RPOP",
            Kind::Rotate => b"LMOVE",
            Kind::Add => b"SADD",
            Kind::Remove => b"SREM",
            Kind::Contains => b"SISMEMBER",
            Kind::Draw => b"SPOP",
            Kind::SetScore => b"ZADD",
            Kind::AddScore => b"ZINCRBY",
            Kind::RemoveScored => b"ZREM",
            Kind::PopLowest => b"ZPOPMIN",
            Kind::TakeLowest => b"BZPOPMIN",
            Kind::Append => b"XADD",
            Kind::CreateGroup | Kind::Deliver => return self.group_request(prefix, arguments),
            Kind::Script => return self.script_request(prefix, arguments),
            Kind::GetByScript => {
                arguments.push(b"EVAL");
                arguments.push(READ.as_bytes());
                arguments.push(if self.computes() { b"0" } else { b"1" });
                return arguments.push_with(|out| self.key.write(prefix, out));
            }
            Kind::Claim | Kind::Acknowledge => {
                arguments.push(b"EVAL");
                arguments.push(if self.kind == Kind::Claim { CLAIM } else { ACKNOWLEDGE }.as_bytes());
                arguments.push(b"1");
                return arguments.push_with(|out| self.key.write(prefix, out));
            }
            _ => return self.lock_request(prefix, arguments),
        };
        arguments.push(name);
        arguments.push_with(|out| self.key.write(prefix, out));
        if self.kind == Kind::Append {
            arguments.push(b"*");
            arguments.push(b"f");
        }
        use Kind::{Append, GetAndSet, Push, PushFront, Set, SetFleeting, SetIfAbsent};
        let stores = [Set, SetIfAbsent, SetFleeting, GetAndSet, Push, PushFront, Append];
        if stores.contains(&self.kind) {
            arguments.push_with(|out| self.value.write(out));
        }
        match self.kind {
            Kind::TakeAny => {
                let others = (0..QUEUES).filter(|number| *number != self.key.number);
                others.for_each(|number| {
                    arguments.push_with(|out| Key { number, ..self.key }.write(prefix, out));
                });
            }
            Kind::SetIfAbsent => arguments.push(b"NX"),
            Kind::Rotate => {
                arguments.push_with(|out| self.key.write(prefix, out));
                arguments.push(b"LEFT");
                arguments.push(b"RIGHT");
            }
            Kind::Add | Kind::Remove | Kind::Contains | Kind::RemoveScored => {
                arguments.push(self.member().to_string().as_bytes());
            }
            Kind::SetScore | Kind::AddScore => {
                arguments.push(self.score().to_string().as_bytes());
                arguments.push(self.member().to_string().as_bytes());
            }
            Kind::SetFleeting => {
                arguments.push(b"PX");
                arguments.push(self.lifetime_ms.to_string().as_bytes());
            }
            _ => {}
        }
        if self.kind.waits() {
            arguments.push(format!("{}", f64::from(self.lifetime_ms) / 1000.0).as_bytes());
        }
    }

    /// The member of a set that it concerns.
    pub(crate) fn member(&self) -> u32 {
        self.value.number % MEMBERS
    }

    /// The score that it sets or adds.
    pub(crate) fn score(&self) -> i64 {
        i64::from(self.value.number / MEMBERS % 7) - 2
    }

    fn group_request(&self, prefix: &str, arguments: &mut ArgumentsBuffer) {
        let before: &[&[u8]] = match self.kind {
            Kind::CreateGroup => &[b"XGROUP", b"CREATE"],
            _ => &[b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"STREAMS"],
        };
        before.iter().for_each(|word| arguments.push(word));
        arguments.push_with(|out| self.key.write(prefix, out));
        let after: &[&[u8]] = match self.kind {
            Kind::CreateGroup => &[b"g", b"0", b"MKSTREAM"],
            _ => &[b">"],
        };
        after.iter().for_each(|word| arguments.push(word));
    }

    fn lock_request(&self, prefix: &str, arguments: &mut ArgumentsBuffer) {
        let LockTerms { token, session, wait_ms, .. } = self.lock;
        let names: &[&[u8]] = match self.kind {
            Kind::Acquire => &[b"LOCK"],
            Kind::Renew => &[b"LOCK.RENEW"],
            Kind::Release => &[b"UNLOCK"],
            Kind::OpenSession => &[b"LOCK.SESSION", b"OPEN"],
            Kind::RenewSession => &[b"LOCK.SESSION", b"RENEW"],
            Kind::CloseSession => &[b"LOCK.SESSION", b"CLOSE"],
            _ => &[b"SET"],
        };
        names.iter().for_each(|name| arguments.push(name));
        let key = if self.kind == Kind::SetFenced { guarded(self.key) } else { self.key };
        arguments.push_with(|out| key.write(prefix, out));
        let lease = |arguments: &mut ArgumentsBuffer| {
            arguments.push(b"PX");
            arguments.push(self.lifetime_ms.to_string().as_bytes());
        };
        match (self.kind, session) {
            (Kind::Acquire, session) => {
                arguments.push(self.lock.owner_name().as_bytes());
                match session {
                    Some(session) => {
                        arguments.push(b"SESSION");
                        arguments.push(session.to_string().as_bytes());
                    }
                    None => lease(arguments),
                }
                if wait_ms > 0 {
                    arguments.push(b"WAIT");
                    arguments.push(wait_ms.to_string().as_bytes());
                }
            }
            (Kind::Renew, _) => {
                arguments.push(token.to_string().as_bytes());
                lease(arguments);
            }
            (Kind::Release, _) => arguments.push(token.to_string().as_bytes()),
            (Kind::OpenSession, _) => lease(arguments),
            (Kind::RenewSession | Kind::CloseSession, Some(session)) => {
                arguments.push(session.to_string().as_bytes());
            }
            _ => {
                arguments.push_with(|out| self.value.write(out));
                arguments.push(b"FENCE");
                arguments.push_with(|out| self.key.write(prefix, out));
                arguments.push(token.to_string().as_bytes());
            }
        }
    }

    fn script_request(&self, prefix: &str, arguments: &mut ArgumentsBuffer) {
        arguments.push(b"EVAL");
        arguments.push(SCRIPT.as_bytes());
        arguments.push(b"2");
        arguments.push_with(|out| self.key.write(prefix, out));
        // The hash tag puts it in the same shard.
        arguments.push_with(|out| {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(b"s{");
            self.key.write(prefix, out);
            out.push(b'}');
        });
        if self.is_cut_off() {
            arguments.push(b"stop");
        }
    }

    /// Whether it is a script that reads a key without having declared it.
    fn computes(&self) -> bool {
        self.value.number == 1
    }

    /// Whether it is a script that hits a limit.
    fn is_cut_off(&self) -> bool {
        self.value.number.is_multiple_of(8)
    }

    /// Describes the request as a readable line.
    pub(crate) fn describe(&self, prefix: &str) -> String {
        let does = match self.kind {
            Kind::Script if self.is_cut_off() => Some("adds one and is cut off"),
            Kind::Script => Some("adds one"),
            Kind::GetByScript if self.computes() => Some("reads an undeclared key"),
            Kind::GetByScript => Some("reads"),
            Kind::Claim => Some("claims the first pending entry"),
            Kind::Acknowledge => Some("acknowledges the first pending entry"),
            _ => None,
        };
        if let Some(does) = does {
            let mut key = Vec::new();
            self.key.write(prefix, &mut key);
            return format!("EVAL ({does}) {}", String::from_utf8_lossy(&key));
        }
        let mut arguments = ArgumentsBuffer::new();
        self.request(prefix, &mut arguments);
        let words = arguments.as_arguments();
        let word = |bytes: &[u8]| match bytes.iter().position(|byte| *byte == b'.') {
            // Only values are long.
            Some(_) if bytes[0] != b'v' => String::from_utf8_lossy(bytes).into_owned(),
            Some(dot) if bytes.len() > dot + 1 => {
                format!("{}(+{} bytes)", String::from_utf8_lossy(&bytes[..dot]), bytes.len() - dot)
            }
            Some(dot) => String::from_utf8_lossy(&bytes[..dot]).into_owned(),
            None => String::from_utf8_lossy(bytes).into_owned(),
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// A written value: a number that no other write of the run has, followed by the scenario's number of further bytes,
/// which are derived from the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    pub(crate) number: u32,
    pub(crate) padding: u16,
}

impl Value {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.push(b'v');
        write_decimal(self.number, out);
        out.push(b'.');
        let first = self.number as u8;
        out.extend((0..self.padding).map(|place| b'a' + (first.wrapping_add(place as u8)) % 26));
    }

    fn read(bytes: &[u8]) -> Option<Value> {
        let dot = bytes.iter().position(|byte| *byte == b'.')?;
        let number = read_decimal(bytes.get(1..dot)?)?;
        let value = Value { number: u32::try_from(number).ok()?, padding: (bytes.len() - dot - 1) as u16 };
        let mut written = Vec::with_capacity(bytes.len());
        value.write(&mut written);
        (written == bytes).then_some(value)
    }
}

fn write_decimal(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

fn read_decimal(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_entry_id(text: &[u8]) -> bool {
    let mut numbers =
        text.split(|byte| *byte == b'-').map(|part| std::str::from_utf8(part).ok()?.parse::<u64>().ok());
    matches!((numbers.next(), numbers.next(), numbers.next()), (Some(Some(_)), Some(Some(_)), None))
}

/// A reply as the client understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Ok,
    Nil,
    Integer(i64),
    Value(Value),
    Session(SessionId),
    /// A member of a sorted set, and its score.
    Scored(u32, i64),
    /// An error that means that nothing happened.
    Refused(&'static str),
    /// An error that means that the request may have been executed.
    Unknown,
    /// Keys that only change together differ.
    Torn,
    /// A reply that no correct node sends.
    Wrong,
}

/// The first words of errors that mean a refusal. Every code that a node may send to a simulated client is here; any
/// other is a failure.
const REFUSALS: [&str; 15] = [
    "OOM",
    "EXECABORT",
    "NOREPLICAS",
    "NOSPACE",
    "DAMAGED",
    "LOCKED",
    "LOADING",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY",
    "NOSESSION",
    "FENCED",
    "CROSSSLOT",
    "NOGROUP",
    "ERR",
];
const UNKNOWN: &str = "UNKNOWN";

impl Reply {
    /// Takes the first reply off `bytes`. `None`: it is incomplete.
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Reply> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let line = bytes[..end].strip_suffix(b"\r")?;
        let (kind, text) = line.split_first()?;
        let rest = &bytes[end + 1..];
        let reply = match kind {
            b'+' if matches!(text, b"OK" | b"PONG") => Reply::Ok,
            b':' => read_decimal(text).map_or(Reply::Wrong, Reply::Integer),
            b'$' if text == b"-1" => Reply::Nil,
            b'_' => Reply::Nil,
            b'$' => {
                let length = usize::try_from(read_decimal(text)?).ok()?;
                let body = rest.get(..length)?;
                *bytes = rest.get(length + 2..)?;
                return Some(match (Value::read(body), SessionId::parse(body)) {
                    (Some(value), _) => Reply::Value(value),
                    (None, Some(session)) => Reply::Session(session),
                    // The id of an entry is not checked.
                    (None, None) if is_entry_id(body) => Reply::Ok,
                    (None, None) => read_decimal(body).map_or(Reply::Wrong, Reply::Integer),
                });
            }
            b'*' if matches!(text, b"-1" | b"0") => Reply::Nil,
            b'*' if text == b"1" => return Reply::take_delivered(bytes),
            b'*' if matches!(text, b"2" | b"3") => return Reply::take_taken(bytes),
            b'-' => Reply::error(text),
            _ => Reply::Wrong,
        };
        *bytes = rest;
        Some(reply)
    }

    /// Takes the streams of a reply to `XREADGROUP` off `bytes`: the value of one entry, at the end.
    fn take_delivered(bytes: &mut &[u8]) -> Option<Reply> {
        let length = Reply::length(bytes)?;
        let (reply, rest) = bytes.split_at(length);
        *bytes = rest;
        let last = reply.iter().rposition(|byte| *byte == b'$')?;
        Reply::take(&mut &reply[last..])
    }

    /// Takes a list's key and an element of it off `bytes`, or a member and its score, perhaps with their key in front.
    fn take_taken(bytes: &mut &[u8]) -> Option<Reply> {
        let length = Reply::length(bytes)?;
        let (reply, rest) = bytes.split_at(length);
        *bytes = rest;
        let mut head = reply.iter().position(|byte| *byte == b'\n')? + 1;
        if reply.starts_with(b"*3") {
            head += Reply::length(reply.get(head..)?)?;
        }
        let key = Reply::length(reply.get(head..)?)?;
        let first = Reply::take(&mut reply.get(head..)?)?;
        Some(match (first, Reply::take(&mut reply.get(head + key..)?)?) {
            (Reply::Integer(member), Reply::Integer(score)) => {
                u32::try_from(member).map_or(Reply::Wrong, |member| Reply::Scored(member, score))
            }
            (_, taken) => taken,
        })
    }

    /// Returns the length of the first reply in `bytes`, whatever it is. `None`: it is incomplete.
    pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let count =
            || read_decimal(bytes[1..end].strip_suffix(b"\r")?).and_then(|count| usize::try_from(count).ok());
        let mut length = end + 1;
        match bytes[0] {
            b'$' => length += count().map_or(0, |count| count + 2),
            mark @ (b'*' | b'>' | b'~' | b'%') => {
                let each = if mark == b'%' { 2 } else { 1 };
                for _ in 0..each * count().unwrap_or(0) {
                    length += Reply::length(bytes.get(length..)?)?;
                }
            }
            _ => {}
        }
        (length <= bytes.len()).then_some(length)
    }

    /// Takes an invalidation off `bytes`: the keys that it names, none for all keys. `None`: this is something else.
    pub(crate) fn take_invalidation<'b>(bytes: &mut &'b [u8]) -> Option<Vec<&'b [u8]>> {
        let length = Reply::length(bytes)?;
        let (message, rest) = bytes.split_at(length);
        *bytes = rest;
        let mut left = message.strip_prefix(b">2\r\n$10\r\ninvalidate\r\n")?;
        let mut keys = Vec::new();
        if let Some(named) = left.strip_prefix(b"*") {
            left = &named[named.iter().position(|byte| *byte == b'\n')? + 1..];
            while !left.is_empty() {
                let (key, others) = left.split_at(Reply::length(left)?);
                let head = key.iter().position(|byte| *byte == b'\n')? + 1;
                keys.push(&key[head..key.len() - 2]);
                left = others;
            }
        }
        Some(keys)
    }

    fn error(text: &[u8]) -> Reply {
        let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        if code == UNKNOWN.as_bytes() {
            return Reply::Unknown;
        }
        if code == b"BUSYGROUP" {
            return Reply::Ok; // The group exists.
        }
        let refusal = REFUSALS.iter().find(|refusal| refusal.as_bytes() == code);
        refusal.map_or(Reply::Wrong, |refusal| Reply::Refused(refusal))
    }

    /// Whether the request was executed.
    pub(crate) fn is_done(self) -> bool {
        use Reply::{Integer, Nil, Ok, Scored, Session, Value};
        matches!(self, Ok | Nil | Integer(_) | Value(_) | Session(_) | Scored(..))
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Ok => formatter.write_str("OK"),
            Reply::Nil => formatter.write_str("nothing"),
            Reply::Integer(number) => write!(formatter, "{number}"),
            Reply::Value(value) => write!(formatter, "v{}", value.number),
            Reply::Session(session) => write!(formatter, "session {session}"),
            Reply::Scored(member, score) => write!(formatter, "{member} with {score}"),
            Reply::Refused(code) => write!(formatter, "refused ({code})"),
            Reply::Unknown => formatter.write_str("unknown"),
            Reply::Torn => formatter.write_str("that keys differ which only change together"),
            Reply::Wrong => formatter.write_str("something that is not an answer"),
        }
    }
}

impl Key {
    /// Whether it is written under the fence of a lock.
    pub(crate) fn is_guarded(self) -> bool {
        self.class == b'f'
    }
}

/// Returns the key that a lock guards.
pub(crate) fn guarded(lock: Key) -> Key {
    Key { class: b'f', ..lock }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(mut bytes: &[u8]) -> (Option<Reply>, usize) {
        let reply = Reply::take(&mut bytes);
        (reply, bytes.len())
    }

    #[test]
    fn a_value_reads_back_and_a_changed_one_does_not() {
        let value = Value { number: 4_294_967_295, padding: 40 };
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        assert_eq!(Value::read(&bytes), Some(value));
        bytes[20] ^= 1;
        assert_eq!(Value::read(&bytes), None);
    }

    #[test]
    fn replies_are_taken_one_by_one() {
        assert_eq!(take(b"+OK\r\n:7\r\n"), (Some(Reply::Ok), 4));
        assert_eq!(take(b":-7\r\n"), (Some(Reply::Integer(-7)), 0));
        assert_eq!(take(b"$-1\r\n"), (Some(Reply::Nil), 0));
        let taken = b"*2\r\n$2\r\nq1\r\n$3\r\nv7.\r\n";
        assert_eq!(take(taken), (Some(Reply::Value(Value { number: 7, padding: 0 })), 0));
        assert_eq!(take(&taken[..20]), (None, 20));
        assert_eq!(take(b"*-1\r\n"), (Some(Reply::Nil), 0));
        assert_eq!(take(b"*2\r\n$1\r\n3\r\n$2\r\n-4\r\n"), (Some(Reply::Scored(3, -4)), 0));
        let with_key = b"*3\r\n$2\r\nz0\r\n$1\r\n3\r\n$2\r\n-4\r\n";
        assert_eq!(take(with_key), (Some(Reply::Scored(3, -4)), 0));
        let delivered = b"*1\r\n*2\r\n$2\r\nx1\r\n*1\r\n*2\r\n$3\r\n5-0\r\n*2\r\n$1\r\nf\r\n$3\r\nv7.\r\n";
        assert_eq!(take(delivered), (Some(Reply::Value(Value { number: 7, padding: 0 })), 0));
        assert_eq!(take(&delivered[..40]), (None, 40));
        assert_eq!(take(b"$3\r\nv7.\r\n"), (Some(Reply::Value(Value { number: 7, padding: 0 })), 0));
        assert_eq!(take(b"$2\r\n12\r\n"), (Some(Reply::Integer(12)), 0), "a counter is a string");
        assert_eq!(take(b"$3\r\nv7"), (None, 6));
        assert_eq!(take(b"-CLUSTERDOWN NOQUORUM too few\r\n"), (Some(Reply::Refused("CLUSTERDOWN")), 0));
        assert_eq!(take(b"-UNKNOWN perhaps\r\n"), (Some(Reply::Unknown), 0));
        assert_eq!(take(b"-WHATEVER\r\n"), (Some(Reply::Wrong), 0));
        assert_eq!(take(b"_\r\n"), (Some(Reply::Nil), 0));
    }

    #[test]
    fn an_invalidation_names_keys_or_stands_for_all() {
        let keys = |mut bytes: &'static [u8]| (Reply::take_invalidation(&mut bytes), bytes.len());
        let two = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$2\r\nk1\r\n$2\r\nk2\r\n+OK\r\n";
        assert_eq!(keys(two), (Some(vec![&b"k1"[..], b"k2"]), 5));
        assert_eq!(keys(b">2\r\n$10\r\ninvalidate\r\n_\r\n"), (Some(Vec::new()), 0));
        assert_eq!(keys(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n").0, None);
        assert_eq!(Reply::length(b"%1\r\n$1\r\na\r\n:1\r\nrest"), Some(15));
    }

    #[test]
    fn a_request_is_what_a_redis_client_would_send() {
        let key = Key { space: 0, class: b'e', number: 3 };
        let value = Value { number: 12, padding: 2 };
        let operation = Operation { lifetime_ms: 250, ..Operation::new(Kind::SetFleeting, key, value) };
        let mut arguments = ArgumentsBuffer::new();
        operation.request("p:", &mut arguments);
        let words: Vec<&[u8]> = arguments.as_arguments().iter().collect();
        assert_eq!(words, [&b"SET"[..], b"p:e3", b"v12.mn", b"PX", b"250"]);
        assert_eq!(operation.describe("p:"), "SET p:e3 v12(+3 bytes) PX 250");
    }

    #[test]
    fn lock_requests_are_as_documented() {
        let key = Key { space: 0, class: b'l', number: 2 };
        let session = SessionId { group: 1, number: 77 };
        let terms = LockTerms { owner: 3 << 16 | 4, token: 9, session: Some(session), wait_ms: 50 };
        let line_on = |key, kind, lock| {
            let operation = Operation { lifetime_ms: 250, ..Operation::of_lock(kind, key, lock) };
            operation.describe("p:")
        };
        let line = |kind, lock| line_on(key, kind, lock);
        assert_eq!(line(Kind::Acquire, terms), "LOCK p:l2 c3.4 SESSION 1-77 WAIT 50");
        let plain = LockTerms { session: None, wait_ms: 0, ..terms };
        assert_eq!(line(Kind::Acquire, plain), "LOCK p:l2 c3.4 PX 250");
        assert_eq!(line(Kind::Renew, terms), "LOCK.RENEW p:l2 9 PX 250");
        assert_eq!(line(Kind::Release, terms), "UNLOCK p:l2 9");
        assert_eq!(line(Kind::SetFenced, terms), "SET p:f2 v0 FENCE p:l2 9");
        let in_its_shard = line_on(Key { number: 0, ..key }, Kind::SetFenced, terms);
        assert_eq!(in_its_shard, "SET p:f{p:l0} v0 FENCE p:l0 9");
        assert_eq!(line(Kind::OpenSession, terms), "LOCK.SESSION OPEN p:l2 PX 250");
        assert_eq!(line(Kind::CloseSession, terms), "LOCK.SESSION CLOSE p:l2 1-77");
        assert_eq!(take(b"$4\r\n1-77\r\n"), (Some(Reply::Session(session)), 0));
    }
}
