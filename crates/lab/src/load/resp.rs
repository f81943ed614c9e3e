//! The Redis protocol: encodes requests, and reads one reply from the front of a buffer.
//!
//! The buffer may end anywhere, also within a reply: then nothing is consumed and the scan starts again when
//! more bytes have arrived. That costs no more than reading a short line again, because a bulk string is
//! skipped by its length. Arrays are the replies of custom commands; what is in them is skipped. The types of RESP3 are
//! refused: the generator asks for none.

use super::custom::Custom;
use super::options::{Login, Options, Wait};
use super::outcome::{Expected, Operation};
use super::random::Random;
use super::reply::{Malformed, Reply};
use super::template::{Template, append_number};
use super::value::Values;

/// The longest line (status, error, number) that is accepted.
const LINE_BYTES_MAX: usize = 4096;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The templates of requests.
pub(crate) struct Requests {
    get: Template,
    set: Template,
    incr: Template,
    /// The bytes after a SET's value: the line end, and WAIT if one follows each SET.
    set_tail: Vec<u8>,
    /// The bytes after a batch with SETs: WAIT if one follows the batch.
    batch_tail: Vec<u8>,
    /// A key's name alone, for custom commands.
    name: Template,
    custom: Option<Custom>,
    custom_load: Option<Custom>,
    keys: u64,
    custom_seed: u64,
}

impl Requests {
    pub(crate) fn new(options: &Options) -> Self {
        let digits = options.key_digits();
        let template = |command: &str, prefix: &str| {
            let head = format!("{command}${}\r\n{prefix}", prefix.len() + digits);
            Template::new(&head, digits, "\r\n")
        };
        let prefix = options.key_prefix.as_str();
        let wait = options.wait.map_or(Vec::new(), |Wait { replicas, timeout_ms }| {
            command(&["WAIT", &replicas.to_string(), &timeout_ms.to_string()])
        });
        let (each, batch_tail) = if options.wait_once { (Vec::new(), wait) } else { (wait, Vec::new()) };
        Self {
            get: template("*2\r\n$3\r\nGET\r\n", prefix),
            set: template("*3\r\n$3\r\nSET\r\n", prefix),
            incr: template("*2\r\n$4\r\nINCR\r\n", &format!("{prefix}counter:")),
            set_tail: [&b"\r\n"[..], &each].concat(),
            batch_tail,
            name: Template::new(prefix, digits, ""),
            custom: options.custom.clone(),
            custom_load: options.custom_load.clone(),
            keys: options.keys,
            custom_seed: Random::new(options.seed).next(),
        }
    }

    /// Appends what follows the requests of a batch that has a SET.
    pub(crate) fn end_batch(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.batch_tail);
    }

    /// Appends a request, of those that load keys or of the others.
    pub(crate) fn append(&self, asked: Expected, (values, is_loading): (&Values, bool), out: &mut Vec<u8>) {
        let Expected { operation, key, sequence } = asked;
        match operation {
            Operation::Get => self.get.append(key, out),
            Operation::Set => {
                self.set.append(key, out);
                out.push(b'$');
                append_number(values.size_of(key, sequence), out);
                out.extend_from_slice(b"\r\n");
                values.write(key, sequence, out);
                out.extend_from_slice(&self.set_tail);
            }
            Operation::Incr => self.incr.append(key, out),
            Operation::Ping => out.extend_from_slice(PING),
            Operation::Custom => {
                let custom = if is_loading { &self.custom_load } else { &self.custom };
                let custom = custom.as_ref().expect("options that ask for a custom command have one");
                custom.append(
                    asked,
                    (self.keys, self.custom_seed, values),
                    |key, out| self.name.append(key, out),
                    out,
                );
            }
        }
    }
}

/// The greeting of a new connection, and its number of replies.
pub(crate) fn greeting(login: Option<&Login>) -> (Vec<u8>, usize) {
    let mut greeting = match login {
        None => Vec::new(),
        Some(Login { user: None, password }) => command(&["AUTH", password]),
        Some(Login { user: Some(user), password }) => command(&["AUTH", user, password]),
    };
    greeting.extend_from_slice(PING);
    (greeting, 1 + usize::from(login.is_some()))
}

/// A command as RESP.
fn command(arguments: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        out.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    out.into_bytes()
}

/// Reads the reply at the front of `input` and returns it with its length; `None` when it is incomplete.
pub(crate) fn scan(input: &[u8], bulk_bytes_max: usize) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let Some(&kind) = input.first() else {
        return Ok(None);
    };
    if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'_' | b'*') {
        return Err(Malformed);
    }
    let Some(line) = first_line(input)? else {
        return Ok(None);
    };
    let body = &line[1..line.len() - 2];
    let reply = match kind {
        b'+' => Reply::Status(body),
        b'-' => Reply::Error(body),
        b':' => Reply::Integer(parse_integer(body).ok_or(Malformed)?),
        b'_' if body.is_empty() => Reply::Null,
        b'$' | b'*' if body == b"-1" => Reply::Null,
        b'*' => return scan_array(input, line.len(), parse_integer(body), bulk_bytes_max),
        b'$' => return scan_bulk(input, line.len(), parse_integer(body), bulk_bytes_max),
        _ => return Err(Malformed),
    };
    Ok(Some((reply, line.len())))
}

fn scan_bulk(
    input: &[u8],
    start: usize,
    length: Option<i64>,
    bulk_bytes_max: usize,
) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let length = length.and_then(|length| usize::try_from(length).ok()).ok_or(Malformed)?;
    if length > bulk_bytes_max {
        return Err(Malformed);
    }
    let end = start + length;
    match input.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((Reply::Bulk(&input[start..end]), end + 2))),
        Some(_) => Err(Malformed),
    }
}

/// Skips the items of an array, whatever they are.
fn scan_array(
    input: &[u8],
    start: usize,
    items: Option<i64>,
    bulk_bytes_max: usize,
) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let count = |items: Option<i64>| items.and_then(|items| usize::try_from(items).ok()).ok_or(Malformed);
    let (mut end, mut left) = (start, count(items)?);
    while left > 0 {
        let Some(rest) = input.get(end..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
        left -= 1;
        // An array within is a line, and its items follow as if they were ours: that needs no recursion.
        if rest[0] == b'*' && !rest.starts_with(b"*-1\r\n") {
            let Some(line) = first_line(rest)? else { return Ok(None) };
            left = left.checked_add(count(parse_integer(&line[1..line.len() - 2]))?).ok_or(Malformed)?;
            end += line.len();
        } else {
            let Some((_, bytes)) = scan(rest, bulk_bytes_max)? else { return Ok(None) };
            end += bytes;
        }
    }
    Ok(Some((Reply::Array, end)))
}

/// The first line with its type byte and its line end.
fn first_line(input: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    match window.iter().position(|&byte| byte == b'\n') {
        Some(end) if end >= 2 && window[end - 1] == b'\r' => Ok(Some(&window[..=end])),
        Some(_) => Err(Malformed),
        None if window.len() == LINE_BYTES_MAX => Err(Malformed),
        None => Ok(None),
    }
}

fn parse_integer(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for &digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        // Accumulated with its sign, because the smallest number has no positive counterpart.
        value = value.checked_mul(10)?.checked_add(if negative { -digit } else { digit })?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::Random;
    use crate::load::value::Sizes;

    const BULK_BYTES_MAX: usize = 1024;

    fn request(operation: Operation, change: impl FnOnce(&mut Options)) -> String {
        let mut options = Options { value_bytes: Sizes::fixed(32), ..Options::default() };
        change(&mut options);
        let mut out = Vec::new();
        let asked = Expected { operation, key: 42, sequence: 7 };
        Requests::new(&options).append(asked, (&Values::new(options.value_bytes), false), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_well_formed() {
        assert_eq!(request(Operation::Get, |_| {}), "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n");
        assert_eq!(
            request(Operation::Incr, |_| {}),
            "*2\r\n$4\r\nINCR\r\n$24\r\nkey:counter:000000000042\r\n"
        );
        assert_eq!(request(Operation::Ping, |_| {}), "*1\r\n$4\r\nPING\r\n");
        assert_eq!(
            request(Operation::Set, |options| options.key_bytes = Some(10)),
            "*3\r\n$3\r\nSET\r\n$10\r\nkey:000042\r\n$32\r\n000000000000002a0000000000000007\r\n"
        );
        let with_wait = request(Operation::Set, |options| {
            options.wait = Some(Wait { replicas: 2, timeout_ms: 100 });
        });
        let wait = "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n100\r\n";
        assert!(with_wait.ends_with(&format!("7\r\n{wait}")), "{with_wait}");

        let wait_once = |options: &mut Options| {
            options.wait = Some(Wait { replicas: 2, timeout_ms: 100 });
            options.wait_once = true;
        };
        assert!(request(Operation::Set, wait_once).ends_with("7\r\n"));
        let (mut options, mut out) = (Options::default(), Vec::new());
        wait_once(&mut options);
        Requests::new(&options).end_batch(&mut out);
        assert_eq!(out, wait.as_bytes());
    }

    #[test]
    fn a_password_comes_before_the_first_ping() {
        let mut login = Login { user: None, password: "word".to_owned() };
        let (greeting_of_default, replies) = greeting(Some(&login));
        assert_eq!(greeting_of_default, b"*2\r\n$4\r\nAUTH\r\n$4\r\nword\r\n*1\r\n$4\r\nPING\r\n");
        login.user = Some("ada".to_owned());
        let of_user = b"*3\r\n$4\r\nAUTH\r\n$3\r\nada\r\n$4\r\nword\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(greeting(Some(&login)), (of_user.to_vec(), 2));
        assert_eq!(replies, 2);
    }

    fn whole(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
        scan(input, BULK_BYTES_MAX)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(whole(b"+OK\r\n"), Ok(Some((Reply::Status(b"OK"), 5))));
        assert_eq!(whole(b"-ERR no\r\n:1\r\n"), Ok(Some((Reply::Error(b"ERR no"), 9))));
        assert_eq!(whole(b":-42\r\n"), Ok(Some((Reply::Integer(-42), 6))));
        assert_eq!(whole(b":-9223372036854775808\r\n"), Ok(Some((Reply::Integer(i64::MIN), 23))));
        assert_eq!(whole(b"$3\r\na\r\n\r\n"), Ok(Some((Reply::Bulk(b"a\r\n"), 9))));
        assert_eq!(whole(b"$0\r\n\r\n"), Ok(Some((Reply::Bulk(b""), 6))));
        assert_eq!(whole(b"$-1\r\n"), Ok(Some((Reply::Null, 5))));
        assert_eq!(whole(b"_\r\n"), Ok(Some((Reply::Null, 3))));
        assert_eq!(whole(b"*-1\r\n"), Ok(Some((Reply::Null, 5))));
        assert_eq!(whole(b"*0\r\n:1\r\n"), Ok(Some((Reply::Array, 4))));
        let nested = b"*3\r\n*2\r\n$1\r\na\r\n*-1\r\n*0\r\n-ERR no\r\n";
        assert_eq!(whole(nested), Ok(Some((Reply::Array, nested.len()))));
    }

    #[test]
    fn the_rest_of_a_reply_cut_anywhere_is_awaited() {
        for reply in [
            &b"+OK\r\n"[..],
            b"-ERR x\r\n",
            b":12\r\n",
            b"$5\r\nhello\r\n",
            b"$-1\r\n",
            b"_\r\n",
            b"*2\r\n*1\r\n:1\r\n+a\r\n",
        ] {
            for cut in 0..reply.len() {
                assert_eq!(whole(&reply[..cut]), Ok(None), "{:?}", &reply[..cut]);
            }
        }
    }

    #[test]
    fn garbage_is_refused() {
        for input in [
            &b"HTTP/1.1 400\r\n"[..],
            b"*1\r\nx1\r\n",
            b"*-2\r\n",
            b"*x\r\n",
            b"+OK\n",
            b"\n",
            b":\r\n",
            b":-\r\n",
            b":1x\r\n",
            b":9223372036854775808\r\n",
            b"$-2\r\n",
            b"$1025\r\n",
            b"$99999999999999999999\r\n",
            b"$1\r\nabc",
            b"_x\r\n",
        ] {
            assert_eq!(whole(input), Err(Malformed), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_limit() {
        let mut line = vec![b'x'; LINE_BYTES_MAX];
        line[0] = b'-';
        assert_eq!(whole(&line[..LINE_BYTES_MAX - 1]), Ok(None));
        assert_eq!(whole(&line), Err(Malformed));
    }

    #[test]
    fn random_bytes_never_panic_and_never_read_past_the_end() {
        let alphabet = b"+-:$_\r\n0123456789x";
        let mut random = Random::new(7);
        for _ in 0..100_000 {
            let length = random.below(24);
            let input: Vec<u8> =
                (0..length).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect();
            if let Ok(Some((_, consumed))) = whole(&input) {
                assert!(consumed > 0 && consumed <= input.len());
            }
        }
    }
}
