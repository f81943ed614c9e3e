//! Checks of scripts, here with random bytes and in `fuzz/` with those that a fuzzer finds: see `main.rs`.

use kv::limits::SCRIPT_COST_LEAST;
use kv::{Command, ReplyBuffer, Script, ScriptLimits, Table};

/// The reply of one script, and the data that it has left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The encoded reply.
    pub(crate) reply: Vec<u8>,
    /// The value of the key that it was given.
    pub(crate) value: Vec<u8>,
}

/// Runs a text as a script, on a separate table.
pub(crate) fn run(text: &[u8], cost_max: u32, interpreter: &'static dyn kv::Interpreter) -> Outcome {
    let mut table = Table::new(1);
    table.set_interpreter(interpreter);
    let (mut scratch, mut out) = (Vec::new(), ReplyBuffer::new());
    let inputs = [&b"k"[..], b"12", b"an argument"];
    let limits = ScriptLimits { value_bytes_max: 1 << 20, cost_max };
    let script =
        Script::build(&mut scratch, text, inputs, 1, limits, true).expect("the key is among the inputs");
    table.apply(&Command::Script(script), 1, 1_700_000_000_123, &mut out);
    let mut value = ReplyBuffer::new();
    table.read(&Command::Get { key: b"k" }, 1_700_000_000_123, &mut value);
    Outcome { reply: out.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
}

/// Runs the bytes as they are, and a program made from them: neither may end the process, and two runs must give the same
/// result.
pub(crate) fn script(bytes: &[u8]) {
    for text in [bytes.to_vec(), program(bytes).into_bytes()] {
        let first = run(&text, SCRIPT_COST_LEAST, &scripts::LUA);
        assert!(!first.reply.is_empty(), "a script has a reply");
        let again = run(&text, SCRIPT_COST_LEAST, &scripts::LUA);
        assert!(first == again, "two runs differ: {}", String::from_utf8_lossy(&text));
    }
}

/// Makes a program from parts of scripts, which the bytes choose.
pub(crate) fn program(bytes: &[u8]) -> String {
    let mut choice = Choice { bytes, text: String::new() };
    choice.text.push_str(
        "local a, b, n, s, t, u = 7, 'b', 2.5, ('ab'):rep(40), {3, 1, 2, x = 'y'}, {}\nlocal f = function(...) return ... end\n",
    );
    while !choice.bytes.is_empty() && choice.text.len() < 4000 {
        choice.text.push_str("pcall(function(...)\n");
        choice.statement(4);
        choice.text.push_str("end, 1, 'two', {})\n");
    }
    choice.text.push_str("return {a, b, n, s, t, u}\n");
    choice.text
}

struct Choice<'b> {
    bytes: &'b [u8],
    text: String,
}

const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "3",
    "50",
    "1000",
    "1e5",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4294967296",
    "1e300",
    "-1e300",
    "0/0",
    "1/0",
    "0.1",
];

const TEXTS: [&str; 17] = [
    "''",
    "'x'",
    "'a\\0b'",
    "'%d %s %q %5.2f'",
    "'(a*)b?'",
    "'[^x]+'",
    "'%f[%w]%w+'",
    "'%b()'",
    "'.-b'",
    "'[{\"a\":[1,null]}]'",
    "'0x10'",
    "' 12 '",
    "'!4>bI3<sc0'",
    "'!i16dfx'",
    "'\\147\\1\\130\\161k\\192\\3\\202xyzw\\163end'",
    "KEYS[1]",
    "ARGV[2]",
];

/// Expressions; each `$` is replaced by another one.
const EXPRESSIONS: [&str; 76] = [
    "a",
    "b",
    "n",
    "s",
    "t",
    "u",
    "f",
    "...",
    "($ + $)",
    "($ - $)",
    "($ * $)",
    "($ / $)",
    "($ % $)",
    "($ ^ $)",
    "(-$)",
    "(not $)",
    "(#$)",
    "($ .. $)",
    "($ == $)",
    "($ < $)",
    "($ <= $)",
    "($ and $)",
    "($ or $)",
    "{$, $, [$] = $}",
    "{$}",
    "t[$]",
    "u[$]",
    "(s):sub($, $)",
    "(s):rep($)",
    "('x'):rep($ % 3000)",
    "string.find($, $)",
    "string.match($, $, $)",
    "(string.gsub($, $, $))",
    "string.format($, $, $)",
    "string.byte($, $, $)",
    "string.char($, $)",
    "(s):upper()",
    "(s):reverse()",
    "table.concat(t, $, $, $)",
    "unpack(t, $, $)",
    "select($, $, $)",
    "tostring($)",
    "tonumber($, $)",
    "tonumber($)",
    "type($)",
    "next(t, $)",
    "rawget(t, $)",
    "rawequal($, $)",
    "setmetatable(u, {__index = $, __newindex = $, __call = $, __lt = $, __eq = $})",
    "getmetatable($)",
    "cjson.encode($)",
    "cjson.decode($)",
    "{cjson.encode_sparse_array($, $, $)}",
    "cjson.encode_invalid_numbers($)",
    "cjson.encode_max_depth($)",
    "cmsgpack.pack($, $)",
    "cmsgpack.unpack(cmsgpack.pack($))",
    "cmsgpack.unpack($)",
    "cmsgpack.unpack_limit($, $, $)",
    "struct.pack($, $, $)",
    "{struct.unpack($, $, $)}",
    "struct.size($)",
    "redis.setresp($)",
    "{map = $}",
    "bit.bxor($, $)",
    "bit.tohex($, $)",
    "bit.lshift($, $)",
    "math.floor($)",
    "math.max($, $)",
    "math.random($, $)",
    "redis.sha1hex($)",
    "redis.pcall('set', KEYS[1], $)",
    "redis.pcall('append', KEYS[1], $)",
    "redis.pcall($, KEYS[1], $, $)",
    "f($, $)",
    "pcall(f, $)",
];

/// Statements; each `$` is replaced by an expression, each `#` by statements.
const STATEMENTS: [&str; 25] = [
    "a = $",
    "b = $",
    "n = $",
    "s = $",
    "t = $",
    "u = $",
    "t[$] = $",
    "u[$], t[$] = $, $",
    "f = function(a, ...) # return $ end",
    "for i = 1, 30 do # end",
    "for i = $, $, $ do # end",
    "while $ do # end",
    "repeat # until $",
    "if $ then # else # end",
    "for k, v in pairs($) do # t[k] = nil end",
    "for k, v in ipairs(t) do # end",
    "for w in (s):gmatch($) do # end",
    "local a, b = $ # f($, a)",
    "do # end",
    "table.insert(t, $, $)",
    "table.remove(t, $)",
    "table.sort(t, $)",
    "table.sort(t)",
    "error($)",
    "return $",
];

impl Choice<'_> {
    /// Returns a number below `below`; 0 at the end of the bytes.
    fn draw(&mut self, below: usize) -> usize {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                usize::from(*first) % below
            }
            None => 0,
        }
    }

    fn fill(&mut self, template: &str, depth: usize) {
        for letter in template.chars() {
            match letter {
                '$' => self.expression(depth),
                '#' if template != "(#$)" => self.statement(depth),
                letter => self.text.push(letter),
            }
        }
    }

    fn statement(&mut self, depth: usize) {
        if depth == 0 || self.text.len() > 8000 {
            return self.text.push_str(" a = n ");
        }
        let chosen = STATEMENTS[self.draw(STATEMENTS.len())];
        // A statement that ends a block must be the last one in it.
        let is_last = chosen.starts_with("return");
        self.text.push_str(if is_last { " do " } else { " " });
        self.fill(chosen, depth - 1);
        self.text.push_str(if is_last { " end\n" } else { "\n" });
        if self.draw(3) == 0 && !self.bytes.is_empty() {
            self.statement(depth - 1);
        }
    }

    fn expression(&mut self, depth: usize) {
        if depth == 0 || self.text.len() > 8000 {
            let number = self.draw(NUMBERS.len() + TEXTS.len());
            let chosen = NUMBERS.iter().chain(&TEXTS).nth(number).expect("there are so many");
            return self.text.push_str(chosen);
        }
        let chosen = EXPRESSIONS[self.draw(EXPRESSIONS.len())];
        self.fill(chosen, depth - 1);
    }
}
