//! `ACL`: users, what each may do, and what was refused; and how a change of the users affects open connections.

use crate::context::{Call, Confirmation, Context};
use crate::diagnostics::log::{Level, Line};
use crate::session::{ClientId, Listening, Session};
use cluster::control::{Change, Feature};
use commands::Text;
use commands::users::{self, DEFAULT, Denial, OPERATOR, Place, Reason, Step, USER_NAME_BYTES_MAX, User};
use commands::{AclCommand, CommandError, Found};
use kv::number::parse_integer;
use kv::{Reply, ReplyBuffer};
use std::rc::Rc;
use wire::resp::{Arguments, ArgumentsBuffer};

/// How many bits `ACL GENPASS` draws by default, and the most that it draws.
const DRAWN_BITS: i64 = 256;
const DRAWN_BITS_MAX: i64 = 4096;

/// How many entries `ACL LOG` returns by default.
const LOG_SHOWN: usize = 10;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file: users are in the cluster map, which every node keeps on its disk: there is no file to load or save. \
     ACL LIST prints them as lines of Redis's ACL files, and ACL SETUSER reads their rules";

const OPERATOR_IS_CONFIGURED: &str = "ERR the user 'operator' is made by each node's configuration file (operator_password) and cannot be changed here";

/// Executes a subcommand of `ACL`.
pub(crate) fn acl(cx: &mut Context, client: ClientId, command: AclCommand, arguments: Arguments<'_>) {
    let answered = match command {
        AclCommand::Cat => cat(cx, client, arguments),
        AclCommand::DelUser => delete(cx, client, arguments),
        AclCommand::DryRun => dry_run(cx, client, arguments),
        AclCommand::GenPass => draw(cx, client, arguments),
        AclCommand::GetUser => {
            get(cx, client, &arguments[2]);
            Ok(())
        }
        AclCommand::List => {
            let lines = cx.access.users().iter().map(|user| user.describe()).collect();
            answer_list(cx, client, lines);
            Ok(())
        }
        AclCommand::Load | AclCommand::Save => Err(NO_FILE.into()),
        AclCommand::Log => log(cx, client, arguments),
        AclCommand::SetUser => set(cx, client, arguments),
        AclCommand::Users => {
            let names = cx.access.users().iter().map(|user| user.name.clone()).collect();
            answer_list(cx, client, names);
            Ok(())
        }
        AclCommand::WhoAmI => {
            let session = cx.clients.sessions.get(client);
            let name = session.map_or(DEFAULT, Session::user_name).to_vec();
            cx.answer(client, |replies| replies.bulk(&name));
            Ok(())
        }
    };
    if let Err(error) = answered {
        cx.answer(client, |replies| replies.error(&error));
    }
}

fn answer_list(cx: &mut Context, client: ClientId, items: Vec<Vec<u8>>) {
    cx.answer(client, |replies| {
        replies.array(items.len());
        items.iter().for_each(|item| replies.bulk(item));
    });
}

fn cat(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let names: Vec<&str> = match (arguments.get(2), arguments.len()) {
        (None, _) => commands::spec::Category::ALL.iter().map(|category| category.name()).collect(),
        (Some(name), 3) => {
            let category = users::category_named(name);
            let category = category
                .ok_or_else(|| format!("ERR Unknown category '{}'", String::from_utf8_lossy(name)))?;
            users::commands_in(category).collect()
        }
        _ => return Err(unknown_or_wrong(arguments)),
    };
    cx.answer(client, |replies| {
        replies.array(names.len());
        names.iter().for_each(|name| replies.bulk(name.as_bytes()));
    });
    Ok(())
}

/// Redis's error for a subcommand of `ACL` with too many arguments.
fn unknown_or_wrong(arguments: Arguments<'_>) -> String {
    let subcommand = commands::printable(&arguments[1]);
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try ACL HELP.")
}

/// `ACL SETUSER name [rule …]`.
fn set(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let name = &arguments[2];
    if users::has_space(name) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    if name.is_empty() || name.len() > USER_NAME_BYTES_MAX {
        return Err(format!("ERR a user's name has 1 to {USER_NAME_BYTES_MAX} bytes"));
    }
    if name == OPERATOR {
        return Err(OPERATOR_IS_CONFIGURED.into());
    }
    let rules = users::merged(arguments.iter().skip(3))?;
    // The control leader applies the rules to the map. Here they are only tried, so that an error names the words as given.
    let mut user = match cx.access.users().find(name) {
        Some(user) => User::clone(user),
        None => User::new(name),
    };
    let checked = user.apply_all(rules.iter().map(Vec::as_slice));
    checked.map_err(|(modifier, error)| format!("ERR {}", users::refusal(modifier, error)))?;
    if rules.iter().any(|rule| users::limits_databases(rule)) {
        let required = cx.map.require(Feature::DatabaseRights);
        required.map_err(|why| format!("{} {why}", why.code()))?;
    }
    let base = match name == DEFAULT {
        true => cx.access.users().configured().default_rules(),
        false => Vec::new(),
    };
    let hashed = |rule: &Vec<u8>| match rule.split_first() {
        Some((b'>', password)) => Text::new(&users::hash_rule(b'#', password)),
        Some((b'<', password)) => Text::new(&users::hash_rule(b'!', password)),
        _ => Text::new(rule),
    };
    let step = Step::Set {
        name: Text::new(name),
        base: base.iter().map(|rule| Text::new(rule)).collect(),
        rules: rules.iter().map(hashed).collect(),
    };
    let change = Box::new(Change::Users(step));
    cx.call(Call::Change { client: Some((client, Confirmation::Ok)), change });
    Ok(())
}

/// `ACL DELUSER name …`.
fn delete(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let mut names: Vec<&[u8]> = arguments.iter().skip(2).collect();
    if names.contains(&DEFAULT) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    if names.contains(&OPERATOR) {
        return Err(OPERATOR_IS_CONFIGURED.into());
    }
    names.sort_unstable();
    names.dedup();
    names.retain(|name| cx.access.users().find(name).is_some());
    if names.is_empty() {
        cx.answer(client, |replies| replies.integer(0));
        return Ok(());
    }
    let answer = Confirmation::Count(names.len());
    let step = Step::Delete(names.into_iter().map(Text::new).collect());
    cx.call(Call::Change { client: Some((client, answer)), change: Box::new(Change::Users(step)) });
    Ok(())
}

/// `ACL DRYRUN name command [argument …]`.
fn dry_run(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let name = &arguments[2];
    let user = cx.access.users().find(name).cloned();
    let user = user.ok_or_else(|| format!("ERR User '{}' not found", String::from_utf8_lossy(name)))?;
    let request = arguments.skip(3);
    let found = match commands::find(request) {
        Ok(found) => found,
        Err(error @ CommandError::WrongArity(_)) => return Err(error.to_string()),
        Err(_) => {
            return Err(format!("ERR Command '{}' not found", String::from_utf8_lossy(&request[0])));
        }
    };
    match user.check(found, request, cx.selected(client)) {
        Ok(()) => cx.answer(client, ReplyBuffer::ok),
        Err(denial) => {
            let text = denial.named(&user.name, found.spec, request);
            cx.answer(client, |replies| replies.bulk(text.as_bytes()));
        }
    }
    Ok(())
}

/// `ACL GENPASS [bits]`.
fn draw(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let bits = match (arguments.get(2), arguments.len()) {
        (None, _) => DRAWN_BITS,
        (Some(bits), 3) => parse_integer(bits).ok_or("ERR value is not an integer or out of range")?,
        _ => return Err(unknown_or_wrong(arguments)),
    };
    if !(1..=DRAWN_BITS_MAX).contains(&bits) {
        return Err(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {DRAWN_BITS_MAX}"
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut password = String::new();
    while password.len() < digits {
        let drawn = cx.access.draw_password(&cx.configuration.password_seed);
        drawn.for_each(|byte| password.push_str(&format!("{byte:02x}")));
    }
    password.truncate(digits);
    cx.answer(client, |replies| replies.bulk(password.as_bytes()));
    Ok(())
}

/// `ACL GETUSER name`.
fn get(cx: &mut Context, client: ClientId, name: &[u8]) {
    let Some(user) = cx.access.users().find(name).cloned() else {
        return cx.answer(client, ReplyBuffer::null);
    };
    cx.answer(client, |replies| {
        // Redis has no rights to databases, and its clients may expect only its own fields.
        let fields = |of: &[Vec<u8>; 4]| if of[3] == b"alldbs" { 3 } else { 4 };
        let permissions = |replies: &mut ReplyBuffer, of: &[Vec<u8>; 4]| {
            for (field, text) in ["commands", "keys", "channels", "databases"].iter().zip(of).take(fields(of))
            {
                replies.bulk(field.as_bytes());
                replies.bulk(text);
            }
        };
        let mut selectors = user.permissions();
        let first = selectors.next().unwrap_or_default();
        replies.map(3 + fields(&first));
        replies.bulk(b"flags");
        let flags = user.flags();
        replies.push(Reply::Set(flags.len() as u32));
        flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
        replies.bulk(b"passwords");
        let hashes = user.hashes();
        replies.array(hashes.len());
        hashes.iter().for_each(|hash| replies.bulk(hash.as_bytes()));
        permissions(replies, &first);
        replies.bulk(b"selectors");
        replies.array(selectors.len());
        for selector in selectors {
            replies.map(fields(&selector));
            permissions(replies, &selector);
        }
    });
}

/// `ACL LOG [count | RESET]`.
fn log(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
    let count = match (arguments.get(2), arguments.len()) {
        (None, _) => LOG_SHOWN,
        (Some(word), 3) if word.eq_ignore_ascii_case(b"RESET") => {
            cx.access.log().clear();
            cx.answer(client, ReplyBuffer::ok);
            return Ok(());
        }
        (Some(count), 3) => {
            let count = parse_integer(count).ok_or("ERR value is not an integer or out of range")?;
            usize::try_from(count).unwrap_or(0)
        }
        _ => return Err(unknown_or_wrong(arguments)),
    };
    let mut out = ReplyBuffer::new();
    let entries = cx.access.log().latest(count);
    out.array(entries.len());
    for entry in entries {
        let age_seconds = cx.now.unix_ms.saturating_sub(entry.created_ms) as f64 / 1000.0;
        out.map(10);
        out.bulk(b"count");
        out.integer(entry.count as i64);
        for (field, text) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.place.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            out.bulk(field.as_bytes());
            out.bulk(text);
        }
        out.bulk(b"age-seconds");
        out.push(Reply::Double(age_seconds));
        out.bulk(b"client-info");
        out.bulk(entry.client.trim_end().as_bytes());
        for (field, number) in [
            ("entry-id", entry.number),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ] {
            out.bulk(field.as_bytes());
            out.integer(number as i64);
        }
    }
    cx.answer(client, |replies| replies.extend_encoded(out.as_bytes()));
    Ok(())
}

/// Notes in `ACL LOG` that something was refused.
pub(crate) fn note(
    cx: &mut Context,
    client: ClientId,
    kind: (Reason, Place),
    (user, object): (&[u8], &[u8]),
    arguments: Arguments<'_>,
) {
    let mut described = String::new();
    super::describe(cx, client, client, arguments, &mut described);
    let denied = match kind.0 {
        Reason::Command => Some(0),
        Reason::Key => Some(1),
        Reason::Channel => Some(2),
        Reason::Database => Some(3),
        Reason::Auth => None,
    };
    if let Some(what) = denied {
        cx.counters.denied[what] += 1;
    }
    let entries_max = cx.parameters.acl_log_entries();
    cx.access.log().note(kind, (user, object), described, cx.now.unix_ms, entries_max);
}

/// The error if a client may not change settings of the default keyspace by `CONFIG SET`.
pub(super) fn refuses_cluster_change(cx: &Context, client: ClientId) -> Option<String> {
    let user = cx.clients.sessions.get(client)?.user()?;
    let found = commands::found_by_full_name(b"keyspace|set")?;
    let name = String::from_utf8_lossy(&user.name);
    (!user.may_call(found.number)).then(|| {
        format!(
            "NOPERM this changes the default keyspace in the whole cluster, and user {name} has no permissions to run \
             the 'keyspace|set' command"
        )
    })
}

/// Refuses a request that the client's user may not make, and notes that.
#[cold]
pub(crate) fn refuse(
    cx: &mut Context,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
    denial: Denial,
) {
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    session.set_command(Some(found.number));
    let place = if session.is_gathering() { Place::Transaction } else { Place::TopLevel };
    session.break_transaction();
    let Some(user) = session.user().cloned() else { return };
    note_denial(cx, client, (&user, place), found, arguments, denial);
    if let Some(session) = cx.clients.sessions.get_mut(client) {
        session.set_command(None);
    }
    cx.clients.statistics.rejected(found.number);
    let mut error = denial.error(&user.name, found.spec);
    if denial == Denial::Command
        && user.name == DEFAULT
        && !cx.access.users().default_is_in_map()
        && found.spec.categories().has(commands::spec::Category::Cluster)
    {
        error += ": in a cluster beyond loopback the default user does not change the cluster. Be the user 'operator' \
                  (operator_password in the node's configuration file), or allow it there with default_user = \"all\"";
    }
    cx.answer(client, |replies| replies.error(&error));
}

/// The error for a client that waits with this request, if its user may no longer make it. Notes that.
pub(crate) fn denies(
    cx: &mut Context,
    client: ClientId,
    found: Found,
    arguments: Arguments<'_>,
) -> Option<String> {
    let session = cx.clients.sessions.get(client)?;
    let user = session.user().cloned()?;
    let denial = user.check(found, arguments, session.database).err()?;
    note_denial(cx, client, (&user, Place::TopLevel), found, arguments, denial);
    cx.clients.statistics.rejected(found.number);
    Some(denial.error(&user.name, found.spec))
}

/// Notes a denial in `ACL LOG`.
pub(crate) fn note_denial(
    cx: &mut Context,
    client: ClientId,
    (user, place): (&User, Place),
    found: Found,
    arguments: Arguments<'_>,
    denial: Denial,
) {
    let argument = |place: usize| arguments.get(place).unwrap_or_default();
    let number;
    let (reason, object) = match denial {
        Denial::Database(denied) => {
            number = denied.to_string();
            // The client's own database is not named in the request.
            let is_named = arguments.iter().skip(1).any(|argument| argument == number.as_bytes());
            (Reason::Database, if is_named { number.as_bytes() } else { found.spec.name.as_bytes() })
        }
        Denial::Command => (Reason::Command, found.spec.name.as_bytes()),
        Denial::Key(place) => (Reason::Key, argument(place)),
        Denial::SortBy | Denial::SortGet => (Reason::Key, argument(1)),
        Denial::Channel(place) => (Reason::Channel, argument(place)),
    };
    note(cx, client, (reason, place), (&user.name, object), arguments);
}

/// Notes in `ACL LOG` that a script was refused a command. Only the script's error is known here: it ran at the group's
/// replicas.
pub(crate) fn note_denied_script(cx: &mut Context, client: ClientId, error: &[u8]) {
    let Some(user) = cx.clients.sessions.get(client).and_then(|session| session.user().cloned()) else {
        return;
    };
    let error = String::from_utf8_lossy(error);
    let (reason, object) = Denial::of_script(&error);
    let none = ArgumentsBuffer::new();
    note(cx, client, (reason, Place::Script), (&user.name, object.as_bytes()), none.as_arguments());
}

/// Follows the users of a new map. Changes apply to open connections at once, and those of removed users are closed. Returns
/// whether there were changes.
pub(crate) fn follow_users(cx: &mut Context) -> bool {
    let map = Rc::clone(&cx.map);
    let was_configured = !cx.access.users().default_is_in_map();
    if map.version == 0 || !cx.access.users_mut().follow(&map.users) {
        return false;
    }
    if was_configured
        && cx.access.users().default_is_in_map()
        && cx.access.users().configured().password.is_some()
    {
        let text = "the cluster's users have a default user of their own (ACL SETUSER default): `password` of this node's \
                    configuration file has no effect";
        cx.log.push(Line { level: Level::Info, text: text.into() });
    }
    let monitors = std::mem::take(&mut cx.clients.monitors);
    let mut closed = Vec::new();
    for session in cx.clients.sessions.iter_mut() {
        let id = session.id();
        let Some(user) = session.user() else { continue };
        match cx.access.users().find(&user.name) {
            Some(now) if Rc::ptr_eq(now, user) => {}
            Some(now) => {
                let now = Rc::clone(now);
                if !may_go_on(session, &now, monitors.contains(&id)) {
                    closed.push(id);
                }
                session.become_user(Some(now));
            }
            None => closed.push(id),
        }
    }
    cx.clients.monitors = monitors;
    closed.into_iter().for_each(|client| close(cx, client));
    true
}

/// Closes a client's connection. Requests under way still get their replies, such as the one by which it has removed its own
/// user. A client that waits or is held is closed at once.
fn close(cx: &mut Context, client: ClientId) {
    let Some(session) = cx.clients.sessions.get(client) else { return };
    match session.wait.is_some() || session.is_held_back() || session.is_internal() {
        true => cx.kill(client),
        false => cx.clients.close_after_replies(client),
    }
}

/// Whether the user may still get everything that the client is sent without further requests: monitored requests, changes,
/// messages.
fn may_go_on(session: &Session, user: &User, is_monitor: bool) -> bool {
    if user.is_free() {
        return true;
    }
    let may = |words: &[&[u8]]| {
        let request: ArgumentsBuffer = words.iter().copied().collect();
        let found = commands::find(request.as_arguments());
        found.is_ok_and(|found| user.check(found, request.as_arguments(), session.database).is_ok())
    };
    let may_listen = |kind: Listening| {
        let subscriptions = session.subscriptions.iter().flat_map(|it| it.of(kind));
        subscriptions.into_iter().all(|channel| user.may_listen_to(channel, kind == Listening::Pattern))
    };
    (!is_monitor || may(&[b"MONITOR"]))
        // The keyspaces of its readers are not checked: a client that may read them connects again.
        && (session.readers == 0 || may(&[b"KEYSPACE", b"WATCH", b""]))
        && (!session.replica.is_one || may(&[b"PSYNC", b"?", b"-1"]))
        && [Listening::Channel, Listening::Pattern, Listening::Shard].into_iter().all(may_listen)
}
