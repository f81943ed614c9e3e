//! `CLIENT TRACKING` and related commands.

use super::Following;
use crate::connections::client_with_number;
use crate::context::Context;
use crate::session::gates::Gate;
use crate::session::{ClientId, TrackingChoice, TrackingMode};
use commands::ClientCommand;
use kv::limits::KEY_BYTES_MAX;
use kv::{Reply, ReplyBuffer};
use std::collections::BTreeSet;
use wire::resp::Arguments;

/// The most prefixes of one client.
const PREFIXES_MAX: usize = 1000;

const SYNTAX: &str = "ERR syntax error";

/// The options of a `CLIENT TRACKING` request.
#[derive(Default)]
struct Wanted {
    redirect: Option<u64>,
    is_broadcast: bool,
    opts_in: bool,
    opts_out: bool,
    is_noloop: bool,
    prefixes: Vec<Vec<u8>>,
}

impl Wanted {
    fn parse(arguments: Arguments<'_>) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        let mut words = arguments.iter().skip(3);
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"redirect" => {
                    let number = words.next().ok_or(SYNTAX)?;
                    if wanted.redirect.is_some() {
                        return Err("ERR A client can only redirect to a single other client".into());
                    }
                    let number =
                        kv::number::parse_integer(number).and_then(|number| u64::try_from(number).ok());
                    wanted.redirect = Some(number.ok_or("ERR Invalid client ID")?);
                }
                b"prefix" => wanted.prefixes.push(words.next().ok_or(SYNTAX)?.to_vec()),
                b"bcast" => wanted.is_broadcast = true,
                b"optin" => wanted.opts_in = true,
                b"optout" => wanted.opts_out = true,
                b"noloop" => wanted.is_noloop = true,
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(wanted)
    }

    fn mode(&self, before: Option<&TrackingChoice>) -> Result<TrackingMode, &'static str> {
        if !self.prefixes.is_empty() && !self.is_broadcast {
            return Err("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if before.is_some_and(|before| (before.mode == TrackingMode::Prefixes) != self.is_broadcast) {
            return Err(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                        re-enabling it with a different mode.",
            );
        }
        if self.is_broadcast && (self.opts_in || self.opts_out) {
            return Err("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        let mode = match (self.is_broadcast, self.opts_in, self.opts_out) {
            (_, true, true) => return Err("ERR You can't specify both OPTIN mode and OPTOUT mode"),
            (true, ..) => TrackingMode::Prefixes,
            (_, true, _) => TrackingMode::OptIn,
            (_, _, true) => TrackingMode::OptOut,
            _ => TrackingMode::Reads,
        };
        let switches = |before: &TrackingChoice| {
            matches!(
                (before.mode, mode),
                (TrackingMode::OptIn, TrackingMode::OptOut) | (TrackingMode::OptOut, TrackingMode::OptIn)
            )
        };
        if before.is_some_and(switches) {
            return Err(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                        re-enabling it with a different mode.",
            );
        }
        Ok(mode)
    }

    /// The client's prefixes, `has`, with those of this request. None may begin with another one.
    fn prefixes(mut self, has: &BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>, String> {
        if self.prefixes.is_empty() && has.is_empty() && self.is_broadcast {
            self.prefixes.push(Vec::new());
        }
        if self.prefixes.len() + has.len() > PREFIXES_MAX
            || self.prefixes.iter().any(|it| it.len() > KEY_BYTES_MAX)
        {
            return Err(format!(
                "ERR a client tracks at most {PREFIXES_MAX} prefixes, no longer than a key may be"
            ));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        for (number, prefix) in self.prefixes.iter().enumerate() {
            let (one, rest) = (text(prefix), "Prefixes for a single client must not overlap.");
            if let Some(other) = has.iter().find(|other| overlap(prefix, other)) {
                return Err(format!(
                    "ERR Prefix '{one}' overlaps with an existing prefix '{}'. {rest}",
                    text(other)
                ));
            }
            if let Some(other) = self.prefixes[number + 1..].iter().find(|other| overlap(prefix, other)) {
                return Err(format!(
                    "ERR Prefix '{one}' overlaps with another provided prefix '{}'. {rest}",
                    text(other)
                ));
            }
        }
        Ok(self.prefixes.into_iter().chain(has.iter().cloned()).collect())
    }
}

impl Following {
    /// Executes a command about client-side caching.
    ///
    /// # Panics
    /// If it is any other command.
    pub(crate) fn command(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: ClientCommand,
        arguments: Arguments<'_>,
    ) {
        match command {
            ClientCommand::Tracking => self.track(cx, client, arguments),
            ClientCommand::TrackingInfo => info(cx, client),
            ClientCommand::Caching => choose_caching(cx, client, &arguments[2]),
            ClientCommand::GetRedir => answer_redirection(cx, client),
            _ => unreachable!("{command:?} is none of tracking"),
        }
    }

    /// `CLIENT TRACKING`.
    fn track(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let outcome = match arguments[2].to_ascii_lowercase().as_slice() {
            b"on" => self.begin(cx, client, arguments),
            b"off" => Wanted::parse(arguments).map(|_| self.end(cx, client)),
            _ => Err(SYNTAX.to_owned()),
        };
        self.follow(cx);
        cx.answer(client, |replies| match outcome {
            Ok(()) => replies.ok(),
            Err(error) => replies.error(&error),
        });
    }

    fn begin(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) -> Result<(), String> {
        let wanted = Wanted::parse(arguments)?;
        let redirect = match wanted.redirect {
            Some(number) => {
                let to = client_with_number(cx, number);
                Some((number, to.ok_or("ERR The client ID you want redirect to does not exist")?))
            }
            None => None,
        };
        let Some(session) = cx.clients.sessions.get_mut(client) else { return Ok(()) };
        let before = session.tracking.as_deref();
        let (mode, is_noloop) = (wanted.mode(before)?, wanted.is_noloop);
        let has = before.map(|before| before.prefixes.clone()).unwrap_or_default();
        let prefixes = wanted.prefixes(&has)?;
        let last_read = before.and_then(|before| before.last_read);
        let choice =
            TrackingChoice { mode, redirect, is_noloop, prefixes, last_read, ..TrackingChoice::default() };
        session.tracking = Some(Box::new(choice));
        self.tracking.begin(client, session);
        cx.gates.set(Gate::Tracking, true);
        Ok(())
    }

    /// Ends a client's tracking.
    pub(crate) fn end(&mut self, cx: &mut Context, client: ClientId) {
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.tracking = None;
        }
        self.tracking.end(client);
        cx.gates.set(Gate::Tracking, self.tracking.is_on());
    }

    /// Ends everything that a client follows, when it is reset or disconnected.
    pub(crate) fn end_all(&mut self, cx: &mut Context, client: ClientId) {
        self.end(cx, client);
        self.readers.end(cx, client);
        self.replicas.end(cx, client);
        self.follow(cx);
    }

    /// Ends the effect of `CLIENT CACHING` once the request after it was taken, except in a transaction.
    pub(crate) fn end_request(cx: &mut Context, client: ClientId) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let is_gathering = session.is_gathering();
        let Some(choice) = &mut session.tracking else { return };
        if !std::mem::take(&mut choice.caching_is_new) && !is_gathering {
            choice.caching = None;
        }
    }
}

/// `CLIENT CACHING`.
fn choose_caching(cx: &mut Context, client: ClientId, word: &[u8]) {
    let choice = cx.clients.sessions.get_mut(client).and_then(|session| session.tracking.as_mut());
    let mode = choice.as_ref().map(|choice| choice.mode);
    let is_yes = word.eq_ignore_ascii_case(b"yes");
    let error = match mode {
        Some(TrackingMode::OptIn) if is_yes => None,
        Some(TrackingMode::OptOut) if word.eq_ignore_ascii_case(b"no") => None,
        Some(TrackingMode::OptIn) if word.eq_ignore_ascii_case(b"no") => {
            Some("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        Some(TrackingMode::OptOut) if is_yes => {
            Some("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        Some(TrackingMode::OptIn | TrackingMode::OptOut) => Some(SYNTAX),
        _ => Some(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ),
    };
    if let (None, Some(choice)) = (error, choice) {
        (choice.caching, choice.caching_is_new) = (Some(is_yes), true);
    }
    cx.answer(client, |replies| match error {
        None => replies.ok(),
        Some(error) => replies.error(error),
    });
}

/// `CLIENT TRACKINGINFO`.
fn info(cx: &mut Context, client: ClientId) {
    let choice = cx.clients.sessions.get(client).and_then(|session| session.tracking.as_deref());
    let mut flags = Vec::new();
    match choice {
        None => flags.push("off"),
        Some(choice) => {
            flags.push("on");
            for (holds, flag) in [
                (choice.mode == TrackingMode::Prefixes, "bcast"),
                (choice.mode == TrackingMode::OptIn, "optin"),
                (choice.caching == Some(true), "caching-yes"),
                (choice.mode == TrackingMode::OptOut, "optout"),
                (choice.caching == Some(false), "caching-no"),
                (choice.is_noloop, "noloop"),
                (choice.is_broken, "broken_redirect"),
            ] {
                flags.extend(holds.then_some(flag));
            }
        }
    }
    let (redirect, prefixes) =
        (redirection(choice), choice.map(|choice| choice.prefixes.clone()).unwrap_or_default());
    cx.answer(client, |replies| {
        replies.map(3);
        replies.bulk(b"flags");
        replies.push(Reply::Set(flags.len() as u32));
        flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
        replies.bulk(b"redirect");
        replies.integer(redirect);
        replies.bulk(b"prefixes");
        replies.array(prefixes.len());
        prefixes.iter().for_each(|prefix| replies.bulk(prefix));
    });
}

/// `CLIENT GETREDIR`.
fn answer_redirection(cx: &mut Context, client: ClientId) {
    let number = redirection(cx.clients.sessions.get(client).and_then(|session| session.tracking.as_deref()));
    cx.answer(client, |replies: &mut ReplyBuffer| replies.integer(number));
}

/// The number of the client to which invalidations are redirected; 0: not redirected; -1: no tracking.
fn redirection(choice: Option<&TrackingChoice>) -> i64 {
    choice.map_or(-1, |choice| choice.redirect.map_or(0, |(number, _)| number as i64))
}
