//! `redis.call` and `redis.pcall`: convert a script's words to a command on the table, and its reply to Lua's values.

use super::failure::{Limit, Raised};
use super::header::Header;
use super::meter::Meter;
use super::values::{self, Resp};
use commands::spec::Group;
use commands::users::{self, User};
use commands::{
    self, ChannelCommand, CommandError, CommandSpec, Context, Flag, Handler, NodeCommand, ParseFn,
    introspection,
};
use kv::codec::Reader;
use kv::command::EncodingLimits;
use kv::limits::{CHANNEL_BYTES_MAX, SCRIPT_PUBLISHED_BYTES_MAX, SCRIPT_REPLY_BYTES_MAX};
use kv::number::parse_integer;
use kv::table::{Access, ScriptRefusal};
use kv::{Command, Reply, ReplyBuffer};
use mlua::{Function, Lua, MultiValue, Scope, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::resp::{Arguments, ArgumentsBuffer};

/// The cost of a command besides its words, and of each word besides its bytes.
const COMMAND_COST: u64 = 80;
const WORD_COST: u64 = 15;

/// Bytes that one unit pays for when memory is moved, which is faster than looking at each byte.
const MOVED_BYTES_PER_UNIT: usize = 128;

/// The cost of each key of the table for `KEYS`: it is counted, compared with the pattern and sorted.
const LISTED_KEY_COST: usize = 20;

/// The cost of each key of the table that `SCAN` or `RANDOMKEY` visits.
const VISITED_KEY_COST: usize = 5;

/// `RANDOMKEY` visits at most so many keys.
const COUNTED_KEYS: usize = 4096;

const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";
const NO_ROOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const NO_WRITES: &str = "ERR Write commands are not allowed from read-only scripts.";

/// The functions with which a script runs commands.
pub(super) struct Calls {
    /// Raises a command's error.
    pub(super) call: Function,
    /// Returns a command's error.
    pub(super) pcall: Function,
    /// The version whose replies the script gets.
    pub(super) resp: Rc<Cell<Resp>>,
    /// The rights of the script's caller; `None`: it may do everything.
    pub(super) rights: Option<Rc<User>>,
}

impl Calls {
    pub(super) fn new<'scope, 'env, 't: 'env>(
        scope: &'scope Scope<'scope, 'env>,
        script: &'env kv::Script<'_>,
        access: &'env RefCell<&'env mut Access<'t>>,
        meter: &Rc<Meter>,
    ) -> mlua::Result<Calls> {
        let may_write =
            script.is_write() && !Header::of(script.text()).is_ok_and(|header| header.only_reads());
        let resp = Rc::new(Cell::new(Resp::Two));
        let rights = script.rights().map(|rights| Rc::new(users::user_of_record(rights)));
        let caller = Rc::new(Caller {
            access,
            meter: meter.clone(),
            value_bytes_max: usize::try_from(script.limits().value_bytes_max).unwrap_or(usize::MAX),
            may_write,
            resp: resp.clone(),
            rights: rights.clone(),
            buffers: RefCell::new(Buffers::new()),
        });
        let call = {
            let caller = caller.clone();
            move |lua: &Lua, words: MultiValue| caller.call(lua, &words)
        };
        let pcall = move |lua: &Lua, words: MultiValue| match caller.call(lua, &words) {
            Err(error) => match Raised::of(&error) {
                Some(Raised::Reply(_)) => Raised::to_lua(lua, &error),
                _ => Err(error),
            },
            done => done,
        };
        let (call, pcall) = (scope.create_function(call)?, scope.create_function(pcall)?);
        Ok(Calls { call, pcall, resp, rights })
    }
}

/// Takes the words of a command, and charges for them.
pub(super) fn take_words(words: &MultiValue, out: &mut ArgumentsBuffer, meter: &Meter) -> mlua::Result<()> {
    if words.is_empty() {
        return Err(Raised::reply("ERR Please specify at least one argument for this redis lib call"));
    }
    out.clear();
    let mut bytes = 0;
    for word in words {
        match word {
            Value::String(text) => {
                let text = text.as_bytes();
                bytes += text.len();
                // The same text can be passed many times, so the limit of Lua's memory does not bound the sum.
                meter.check_room(bytes)?;
                out.push(&text);
            }
            Value::Integer(number) => {
                out.push(values::number_text(*number as f64, values::ARGUMENT_DIGITS).as_bytes())
            }
            Value::Number(number) => {
                out.push(values::number_text(*number, values::ARGUMENT_DIGITS).as_bytes())
            }
            _ => {
                let error = "ERR Lua redis lib command arguments must be strings or integers";
                return Err(Raised::reply(error));
            }
        }
    }
    meter.charge(WORD_COST * words.len() as u64)?;
    meter.charge_bytes(bytes)
}

/// Executes the commands of one run of a script.
struct Caller<'env, 't> {
    access: &'env RefCell<&'env mut Access<'t>>,
    meter: Rc<Meter>,
    value_bytes_max: usize,
    may_write: bool,
    resp: Rc<Cell<Resp>>,
    rights: Option<Rc<User>>,
    buffers: RefCell<Buffers>,
}

/// Buffers that are reused for each command.
#[derive(Default)]
struct Buffers {
    words: ArgumentsBuffer,
    scratch: Vec<u8>,
    reply: ReplyBuffer,
    /// What the last command costs besides its words and its reply.
    cost: u64,
}

impl Buffers {
    fn new() -> Buffers {
        let mut buffers = Buffers::default();
        buffers.reply.bound_each(SCRIPT_REPLY_BYTES_MAX);
        buffers
    }
}

/// The bytes that a command moves or looks at, besides its words and its reply: what it costs by the rules of release 1.
fn moved_by(command: &Command<'_>, access: &Access<'_>) -> usize {
    match command {
        Command::Hash(_)
        | Command::OnList(_)
        | Command::OnSet(_)
        | Command::OnSorted(_)
        | Command::OnStream(_)
        | Command::OnBytes(_)
        | Command::Sort(_) => {
            let mut moved = access.walked_bytes(command);
            command.for_each_key(|key| moved = moved.saturating_add(access.held_bytes(key)));
            moved
        }
        Command::SetRange { key, offset, .. } => {
            access.held_bytes(key).max(usize::try_from(*offset).unwrap_or(usize::MAX))
        }
        Command::Append { key, .. } | Command::Copy { from: key, .. } | Command::Rename { from: key, .. } => {
            access.held_bytes(key)
        }
        // Each byte of the value goes into the digest or the dump, or is compared.
        Command::Digest { key }
        | Command::Dump { key }
        | Command::DeleteIf { key, .. }
        | Command::SetIf { key, .. } => access.held_bytes(key),
        // The former value is kept in case the run is undone, or is moved as a whole.
        command if command.is_write() => {
            let mut bytes = 0;
            command.for_each_key(|key| bytes += access.held_bytes(key));
            bytes
        }
        _ => 0,
    }
}

/// The text of the error of a command that a script may not use.
fn refused(refusal: ScriptRefusal<'_>, spec: &CommandSpec) -> String {
    let name = || spec.name.to_uppercase().replace('|', " ");
    match refusal {
        ScriptRefusal::Write => NO_WRITES.into(),
        ScriptRefusal::NoRoom | ScriptRefusal::TooMuch => NO_ROOM.into(),
        ScriptRefusal::Undeclared(key) => format!(
            "ERR Script attempted to access the key '{}', which is not among its KEYS, and in another keyspace or \
             shard",
            commands::printable(key)
        ),
        ScriptRefusal::NotInMemory(key) => format!(
            "ERR Script attempted to access the key '{}', which is not among its KEYS, and whose value is not in \
             memory",
            commands::printable(key)
        ),
        ScriptRefusal::LooksAround => format!(
            "{NOT_ALLOWED}: replicas may answer {} differently, so the script must not have written before, and must \
             not be a part of a transaction; call it in a script of its own",
            name()
        ),
        ScriptRefusal::HasLookedAround => format!(
            "{NOT_ALLOWED}: {} is a write, after a command that replicas may answer differently (SCAN, RANDOMKEY, \
             DBSIZE, MEMORY USAGE, OBJECT FREQ or IDLETIME); call that one in a script of its own",
            name()
        ),
        ScriptRefusal::NotInScripts => {
            format!("{NOT_ALLOWED}: {} concerns all keys, or is not answered alike by all replicas", name())
        }
    }
}

/// The cost of a command that visits keys of the table, if it does, as far as the run can pay for it: `left` is what it may
/// still cost.
fn visiting_cost(command: &Command<'_>, access: &Access<'_>, left: usize) -> Option<usize> {
    let steps = |pattern: &[u8]| 1 + pattern.len() / 64;
    match *command {
        Command::Keys { pattern } => {
            let cost = LISTED_KEY_COST * steps(pattern);
            Some(access.live_keys(left / cost + 1) * cost)
        }
        Command::Scan { count, pattern, .. } => {
            let visited = usize::try_from(count).unwrap_or(usize::MAX).min(access.all_keys());
            Some(visited.saturating_mul(VISITED_KEY_COST * steps(pattern.unwrap_or_default())))
        }
        // Among few keys it counts those that have not expired.
        Command::RandomKey { .. } => Some(access.all_keys().min(COUNTED_KEYS) * VISITED_KEY_COST),
        _ => None,
    }
}

impl<'t> Caller<'_, 't> {
    /// Runs one command. Raises the command's error.
    fn call(&self, lua: &Lua, words: &MultiValue) -> mlua::Result<Value> {
        let mut buffers = self.buffers.borrow_mut();
        let buffers = &mut *buffers;
        take_words(words, &mut buffers.words, &self.meter)?;
        self.meter.charge(COMMAND_COST)?;
        buffers.reply.clear();
        let done = self.carry_out(buffers);
        self.meter.charge(buffers.cost)?;
        done.map_err(Raised::reply)?;
        self.meter.charge_bytes(buffers.reply.len())?;
        if let Reply::Error(text) = Reply::first(buffers.reply.as_bytes()) {
            return Err(Raised::reply(text));
        }
        values::read(lua, &mut Reader::new(buffers.reply.as_bytes()), self.resp.get(), &self.meter)
    }

    /// Runs a command on keys. The last buffer is for what it costs.
    fn on_data(
        &self,
        parse: ParseFn,
        spec: &CommandSpec,
        words: Arguments<'_>,
        (scratch, reply, cost): (&mut Vec<u8>, &mut ReplyBuffer, &mut u64),
        access: &mut Access<'t>,
    ) -> Result<(), String> {
        // Only what is in the record may matter here, so these are its time, its limit and the defaults.
        let context = Context {
            now_ms: access.now(),
            value_bytes_max: self.value_bytes_max,
            stream_node_entries: 0,
            database: 0,
            level: if access.is_by_second_rules() { 2 } else { 1 },
            encodings: EncodingLimits::default(),
        };
        let command = match parse(words, scratch, &context) {
            Ok(command) => command,
            Err(error) => {
                let foreseen = error.foreseen(words, scratch);
                foreseen.filter(|_| access.is_by_second_rules()).ok_or_else(|| error.to_string())?
            }
        };
        let left = self.meter.left();
        let visits = visiting_cost(&command, access, left as usize).map(|cost| cost as u64);
        *cost = match visits {
            Some(cost) => cost,
            None if access.is_by_second_rules() => access.cost_of(&command),
            None => (moved_by(&command, access) / MOVED_BYTES_PER_UNIT) as u64,
        };
        if *cost > left && (visits.is_some() || access.is_by_second_rules()) {
            // The run cannot pay for it, and ends before the command begins.
            return Err(Limit::Cost(left).text());
        }
        self.apply(&command, spec, access, reply)
    }

    /// Has the table carry out a command.
    fn apply(
        &self,
        command: &Command<'_>,
        spec: &CommandSpec,
        access: &mut Access<'t>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), String> {
        access.call(command, reply).map_err(|refusal| {
            if refusal == ScriptRefusal::TooMuch {
                // The run is over, whatever the script does about it.
                self.meter.reach(Limit::Added);
            }
            refused(refusal, spec)
        })
    }

    fn carry_out(&self, buffers: &mut Buffers) -> Result<(), String> {
        let Buffers { words, scratch, reply, cost } = buffers;
        *cost = 0;
        let words = words.as_arguments();
        let found = commands::find(words).map_err(|error| match error {
            CommandError::WrongArity(_) => "ERR Wrong number of args calling Redis command from script",
            _ => "ERR Unknown Redis command called from script",
        })?;
        let spec = found.spec;
        // A command that waits elsewhere does not wait in a script. Nodes of release 1 refuse some of them.
        let by_second_rules = self.access.borrow().is_by_second_rules();
        let may_not_wait = spec.flags.has(Flag::Blocking) && by_second_rules;
        if let Handler::Node(NodeCommand::Wait | NodeCommand::WaitDurable) = spec.handler
            && by_second_rules
        {
            return wait(spec.handler, words, reply);
        }
        if spec.flags.has(Flag::NoScript) && !may_not_wait {
            return Err(NOT_ALLOWED.into());
        }
        if let Some(user) = &self.rights
            && let Err(denial) = user.check(found, words, 0)
        {
            return Err(denial.in_script(spec, words));
        }
        if spec.flags.has(Flag::Write) && !self.may_write {
            return Err(NO_WRITES.into());
        }
        let mut access = self.access.borrow_mut();
        if spec.group == Group::Stream && !may_not_wait && spec.wait.is_some_and(|wait| wait(words).is_some())
        {
            return Err(format!("ERR {} command is not allowed with BLOCK option from scripts", spec.name));
        }
        match spec.handler {
            Handler::Data(parse) => self.on_data(parse, spec, words, (scratch, reply, cost), &mut access),
            Handler::Node(NodeCommand::ObjectRefCount) if access.is_by_second_rules() => {
                let command = commands::reference_count(words, scratch).map_err(|error| error.to_string())?;
                self.apply(&command, spec, &mut access, reply)
            }
            Handler::Node(NodeCommand::Ping) => {
                match (words.get(1), words.get(2)) {
                    (_, Some(_)) => return Err(CommandError::WrongArity("ping").to_string()),
                    (Some(text), None) => reply.bulk(text),
                    (None, None) => reply.push(Reply::Status(b"PONG")),
                }
                Ok(())
            }
            Handler::Node(NodeCommand::Echo) => {
                reply.bulk(words.get(1).unwrap_or_default());
                Ok(())
            }
            Handler::Node(NodeCommand::Select) if words.get(1) == Some(b"0") => {
                reply.ok();
                Ok(())
            }
            // The message is sent with the script's reply. The number of receivers is not returned, since it differs between
            // replicas.
            Handler::Node(NodeCommand::Channel(ChannelCommand::Publish { is_sharded })) => {
                let word = |place: usize| words.get(place).unwrap_or_default();
                if word(1).len() > CHANNEL_BYTES_MAX {
                    return Err(CommandError::ChannelTooLong(word(1).len()).to_string());
                }
                match access.publish(is_sharded, word(1), word(2)) {
                    Ok(true) => reply.integer(0),
                    Ok(false) => {
                        let most = SCRIPT_PUBLISHED_BYTES_MAX;
                        return Err(format!("ERR a script may publish at most {most} bytes"));
                    }
                    Err(_) => return Err(NO_WRITES.into()),
                }
                Ok(())
            }
            Handler::Node(NodeCommand::DebugProtocol) => {
                introspection::example(words.get(2).unwrap_or_default(), reply);
                Ok(())
            }
            // The time of the record, which is the same on every replica.
            Handler::Node(NodeCommand::Time) => {
                let now = access.now();
                reply.array(2);
                reply.bulk((now / 1000).to_string().as_bytes());
                reply.bulk((now % 1000 * 1000).to_string().as_bytes());
                Ok(())
            }
            _ => Err(format!("{NOT_ALLOWED}: {} is not about keys", spec.name.to_uppercase())),
        }
    }
}

/// `WAIT` and `WAITAOF`, which do not wait in a script: of what it has written nothing is certain before it ends, so no
/// replica has it.
fn wait(handler: Handler, words: Arguments<'_>, reply: &mut ReplyBuffer) -> Result<(), String> {
    let mut numbers = words.iter().skip(1);
    if let Some(wrong) = numbers.find(|word| parse_integer(word).is_none_or(|number| number < 0)) {
        return Err(format!("ERR '{}' is no number, or below 0", commands::printable(wrong)));
    }
    if let Handler::Node(NodeCommand::WaitDurable) = handler {
        reply.array(2);
        reply.integer(0);
    }
    reply.integer(0);
    Ok(())
}
