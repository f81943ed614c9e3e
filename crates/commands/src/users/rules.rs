//! A user's rules: read and printed as Redis 7 does, one modifier after the other.
//!
//! A user consists of a flag whether it may log in, its passwords, and selectors: what it may do with which keys and
//! channels. Modifiers outside brackets change the first selector, the root. A command is allowed if one selector allows
//! all of it.

use super::databases::{Databases, Wrong};
use crate::spec::Category;
use crate::{COMMAND_COUNT, Found, release_1};
use kv::glob::{PATTERN_BYTES_MAX, Pattern};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The longest name of a user, in bytes.
pub const USER_NAME_BYTES_MAX: usize = 128;

/// One bit for each command, and at least one more: see [`Selector::is_from_all`].
const WORDS: usize = COMMAND_COUNT / 64 + 1;
const HASH_BYTES: usize = 32;

/// A password as it is kept: its SHA-256, so that lines of Redis's ACL files mean the same here.
type PasswordHash = [u8; HASH_BYTES];

/// Hashes a password.
pub(crate) fn hash_of(password: &[u8]) -> PasswordHash {
    Sha256::digest(password).into()
}

/// The modifier that adds (`#`) or removes (`!`) a password by its hash.
pub fn hash_rule(sign: u8, password: &[u8]) -> Vec<u8> {
    let mut rule = vec![sign];
    hash_of(password).iter().for_each(|byte| rule.extend_from_slice(format!("{byte:02x}").as_bytes()));
    rule
}

/// Why a modifier is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// No command or category has this name.
    Unknown,
    /// It is no modifier.
    Syntax,
    /// A pattern of keys adds nothing to all keys.
    AfterAllKeys,
    /// A pattern of channels adds nothing to all channels.
    AfterAllChannels,
    /// It is no hash of a password.
    Hash,
    /// The user does not have the password that it removes.
    NoSuchPassword,
    /// A subcommand has no first argument of its own.
    FirstArgumentOfSubcommand,
    /// A pattern is longer than [`PATTERN_BYTES_MAX`].
    PatternTooLong,
    /// There is no database of this number.
    DatabaseOutOfRange,
}

impl From<Wrong> for RuleError {
    fn from(wrong: Wrong) -> RuleError {
        match wrong {
            Wrong::Syntax => RuleError::Syntax,
            Wrong::OutOfRange => RuleError::DatabaseOutOfRange,
        }
    }
}

impl RuleError {
    /// Redis's error text.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::Hash => {
                "The provided password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::PatternTooLong => "A pattern is longer than 1024 bytes",
            RuleError::DatabaseOutOfRange => "The provided database ID is out of range",
        }
    }
}

/// A pattern of keys or channels. Most patterns are a text and a star.
#[derive(Clone, Debug)]
enum Matcher {
    Exact,
    Prefix,
    Glob(Pattern),
}

/// A pattern, as it was given, and ready to be compared with.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) text: Vec<u8>,
    matcher: Matcher,
}

impl Named {
    fn new(text: &[u8]) -> Result<Named, RuleError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(RuleError::PatternTooLong);
        }
        let is_plain = |text: &[u8]| !text.iter().any(|byte| b"*?[]\\^".contains(byte));
        let matcher = match text.split_last() {
            _ if is_plain(text) => Matcher::Exact,
            Some((b'*', stem)) if is_plain(stem) => Matcher::Prefix,
            _ => Matcher::Glob(Pattern::new(text)),
        };
        Ok(Named { text: text.to_vec(), matcher })
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Exact => self.text == name,
            Matcher::Prefix => name.starts_with(&self.text[..self.text.len() - 1]),
            Matcher::Glob(pattern) => pattern.matches(name),
        }
    }

    /// Whether it is sure to match every name with this prefix.
    pub(super) fn covers_prefix(&self, prefix: &[u8]) -> bool {
        matches!(self.matcher, Matcher::Prefix) && prefix.starts_with(&self.text[..self.text.len() - 1])
    }
}

/// A pattern of keys, and what may be done with them.
#[derive(Clone, Debug)]
pub(super) struct KeyPattern {
    pub(super) named: Named,
    pub(super) reads: bool,
    pub(super) writes: bool,
}

impl KeyPattern {
    fn print(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match (self.reads, self.writes) {
            // `~*` would forbid further patterns: the rules could not be read again.
            (true, true) if self.named.text == b"*" => b"%RW~",
            (true, true) => b"~",
            (true, false) => b"%R~",
            _ => b"%W~",
        });
        out.extend_from_slice(&self.named.text);
    }
}

/// Whose categories and keys of commands count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Those of this program.
    #[default]
    Present,
    /// Those of release 1: see `release_1`.
    Release1,
}

/// What a user may do with which keys and channels, in which databases.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    pub(super) table: Table,
    pub(super) commands: [u64; WORDS],
    /// Every command is allowed, including those that a later version adds.
    pub(super) all_commands: bool,
    /// What was allowed and forbidden, in Redis's words and order, after `+@all` or `-@all`.
    command_rules: Vec<String>,
    /// Commands that are allowed with these first arguments only.
    pub(super) first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Named>,
    pub(super) databases: Databases,
}

impl Selector {
    /// A selector that allows nothing.
    fn new(table: Table) -> Selector {
        Selector {
            table,
            commands: [0; WORDS],
            all_commands: false,
            command_rules: Vec::new(),
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
            databases: Databases::ALL,
        }
    }

    fn allow(&mut self, number: usize, is_allowed: bool) {
        let bit = 1 << (number % 64);
        match is_allowed {
            true => self.commands[number / 64] |= bit,
            false => self.commands[number / 64] &= !bit,
        }
        self.first_arguments.remove(&number);
    }

    /// Whether the command with this number is allowed, whatever its arguments.
    #[inline]
    pub(super) fn allows(&self, number: usize) -> bool {
        self.commands[number / 64] & 1 << (number % 64) != 0
    }

    /// Allows or forbids a command and its subcommands.
    fn change(&mut self, Found { spec, number }: Found, is_allowed: bool) {
        if !is_allowed {
            self.all_commands = false;
        }
        (number..=number + spec.subcommands.len()).for_each(|number| self.allow(number, is_allowed));
    }

    fn change_all(&mut self, is_allowed: bool) {
        self.commands = if is_allowed { [u64::MAX; WORDS] } else { [0; WORDS] };
        self.all_commands = is_allowed;
        self.command_rules.clear();
        self.first_arguments.clear();
    }

    /// Notes a rule, in place of earlier ones of the same command or category.
    fn note(&mut self, rule: &str, is_allowed: bool) {
        if is_allowed && self.all_commands {
            return; // It adds nothing.
        }
        let rule = rule.to_ascii_lowercase();
        self.command_rules.retain(|known| {
            let known = &known[1..];
            !(known == rule || known.strip_prefix(&rule).is_some_and(|rest| rest.starts_with('|')))
        });
        self.command_rules.push(format!("{}{rule}", if is_allowed { '+' } else { '-' }));
    }

    /// Applies one modifier.
    fn apply(&mut self, modifier: &[u8]) -> Result<(), RuleError> {
        match &*modifier.to_ascii_lowercase() {
            b"allkeys" | b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.change_all(true),
            b"nocommands" | b"-@all" => self.change_all(false),
            _ if self.databases.apply(modifier)? => {}
            _ => match modifier.split_first() {
                Some((b'~', pattern)) => self.add_keys(pattern, true, true)?,
                Some((b'%', rest)) => {
                    let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(RuleError::Syntax)?;
                    let (flags, pattern) = (&rest[..tilde], &rest[tilde + 1..]);
                    let has = |flag: u8| flags.iter().any(|given| given.eq_ignore_ascii_case(&flag));
                    let is_known = |flag: &u8| matches!(flag.to_ascii_uppercase(), b'R' | b'W');
                    if flags.is_empty() || !flags.iter().all(is_known) {
                        return Err(RuleError::Syntax);
                    }
                    self.add_keys(pattern, has(b'R'), has(b'W'))?;
                }
                Some((b'&', channel)) => {
                    if self.all_channels {
                        return Err(RuleError::AfterAllChannels);
                    }
                    if has_space(channel) {
                        return Err(RuleError::Syntax);
                    }
                    if !self.channels.iter().any(|known| known.text == channel) {
                        self.channels.push(Named::new(channel)?);
                    }
                }
                Some((sign @ (b'+' | b'-'), rule)) => self.change_by(rule, *sign == b'+')?,
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    fn add_keys(&mut self, pattern: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        if let Some(known) = self.keys.iter_mut().find(|known| known.named.text == pattern) {
            known.reads |= reads;
            known.writes |= writes;
            return Ok(());
        }
        self.keys.push(KeyPattern { named: Named::new(pattern)?, reads, writes });
        Ok(())
    }

    /// `+get`, `-config|set`, `+select|0`, `-@admin` and similar modifiers.
    fn change_by(&mut self, rule: &[u8], is_allowed: bool) -> Result<(), RuleError> {
        let rule = std::str::from_utf8(rule).map_err(|_| RuleError::Unknown)?;
        if has_space(rule.as_bytes()) {
            return Err(RuleError::Syntax);
        }
        if let Some(category) = rule.strip_prefix('@') {
            let category = category_named(category.as_bytes()).ok_or(RuleError::Unknown)?;
            for (number, spec) in crate::all().enumerate() {
                let categories = match self.table {
                    Table::Present => spec.categories(),
                    Table::Release1 => release_1::categories(spec),
                };
                if categories.has(category) {
                    self.change(Found { spec, number }, is_allowed);
                }
            }
            self.note(rule, is_allowed);
            return Ok(());
        }
        if let Some(found) = crate::found_by_full_name(rule.as_bytes()) {
            self.change(found, is_allowed);
            self.note(rule, is_allowed);
            return Ok(());
        }
        let (name, first) = rule.rsplit_once('|').filter(|_| is_allowed).ok_or(RuleError::Unknown)?;
        let Found { spec, number } = crate::found_by_full_name(name.as_bytes()).ok_or(RuleError::Unknown)?;
        if name.contains('|') {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if first.is_empty() {
            return Err(RuleError::Syntax);
        }
        if !spec.subcommands.is_empty() {
            return Err(RuleError::Unknown);
        }
        let known = self.first_arguments.entry(number).or_default();
        if !known.iter().any(|known| known.eq_ignore_ascii_case(first.as_bytes())) {
            known.push(first.as_bytes().to_vec());
        }
        self.note(rule, true);
        Ok(())
    }

    /// The rules about commands, as `ACL GETUSER` shows them.
    pub(super) fn commands_text(&self) -> String {
        // Only `+@all` sets all bits; later rules may have cleared some of them.
        let is_from_all = self.is_from_all();
        let start = if is_from_all { "+@all" } else { "-@all" };
        let mut text = String::from(start);
        for rule in &self.command_rules {
            text.push(' ');
            text.push_str(rule);
        }
        text
    }

    /// Whether its rules about commands begin with `+@all`, so that commands that a later version adds are allowed.
    fn is_from_all(&self) -> bool {
        // Bits beyond the last command belong to no command: only `+@all` and `-@all` set and clear them.
        const SPARE: usize = WORDS * 64 - 1;
        const { assert!(SPARE >= COMMAND_COUNT) };
        self.commands[SPARE / 64] & 1 << (SPARE % 64) != 0
    }

    /// The patterns of keys, as `ACL GETUSER` shows them.
    pub(super) fn keys_text(&self) -> Vec<u8> {
        joined(self.key_rules())
    }

    /// The patterns of channels, as `ACL GETUSER` shows them.
    pub(super) fn channels_text(&self) -> Vec<u8> {
        joined(self.channel_rules())
    }

    fn key_rules(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let print = |pattern: &KeyPattern| {
            let mut out = Vec::new();
            pattern.print(&mut out);
            out
        };
        self.keys.iter().map(print).collect()
    }

    fn channel_rules(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        self.channels.iter().map(|channel| [b"&", &*channel.text].concat()).collect()
    }

    fn rules(&self) -> Vec<Vec<u8>> {
        let mut rules = self.key_rules();
        if !self.all_channels {
            rules.push(b"resetchannels".to_vec());
        }
        rules.extend(self.channel_rules());
        if self.databases != Databases::ALL {
            rules.push(self.databases.rule().into_bytes());
        }
        rules.extend(self.commands_text().split(' ').map(|rule| rule.as_bytes().to_vec()));
        rules
    }

    /// Whether it allows everything.
    fn is_free(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.databases == Databases::ALL
    }
}

fn joined(rules: Vec<Vec<u8>>) -> Vec<u8> {
    rules.join(&b' ')
}

/// Finds a category by its name, ignoring case.
pub fn category_named(name: &[u8]) -> Option<Category> {
    Category::ALL.iter().copied().find(|category| name.eq_ignore_ascii_case(category.name().as_bytes()))
}

/// Whether a text has bytes that Redis does not allow in names and patterns, since its files consist of lines and words.
pub fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name.
    pub name: Vec<u8>,
    is_on: bool,
    needs_no_password: bool,
    /// Redis's flag about `RESTORE`, which has no effect here: payloads are always checked.
    skips_sanitizing: bool,
    passwords: Vec<PasswordHash>,
    /// The root comes first.
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// A user that may do nothing, and cannot log in.
    pub fn new(name: &[u8]) -> User {
        User::new_by(name, Table::Present)
    }

    /// The same, by a table.
    pub(crate) fn new_by(name: &[u8], table: Table) -> User {
        User {
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(table)],
        }
    }

    /// Applies modifiers, each of which may be a whole selector in brackets.
    ///
    /// # Errors
    /// The refused modifier, and why. The user may be changed in part.
    pub fn apply_all<'m>(
        &mut self,
        modifiers: impl IntoIterator<Item = &'m [u8]>,
    ) -> Result<(), (&'m [u8], RuleError)> {
        modifiers.into_iter().try_for_each(|modifier| self.apply(modifier).map_err(|error| (modifier, error)))
    }

    fn apply(&mut self, modifier: &[u8]) -> Result<(), RuleError> {
        match &*modifier.to_ascii_lowercase() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"skip-sanitize-payload" => self.skips_sanitizing = true,
            b"sanitize-payload" => self.skips_sanitizing = false,
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = User::new_by(&self.name, self.selectors[0].table),
            _ => match modifier.split_first() {
                Some((b'>', password)) => self.add_password(hash_of(password)),
                Some((b'#', hash)) => self.add_password(parse_hash(hash)?),
                Some((b'<', password)) => self.remove_password(hash_of(password))?,
                Some((b'!', hash)) => self.remove_password(parse_hash(hash)?)?,
                Some((b'(', _)) => {
                    let inside = modifier[1..].strip_suffix(b")").ok_or(RuleError::Syntax)?;
                    let mut selector = Selector::new(self.selectors[0].table);
                    let words = inside.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
                    words.into_iter().try_for_each(|word| selector.apply(word))?;
                    self.selectors.push(selector);
                }
                _ => self.selectors[0].apply(modifier)?,
            },
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.needs_no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Whether a client with this password may log in as this user.
    pub fn accepts(&self, password: &PasswordHash) -> bool {
        self.is_on && (self.needs_no_password || self.has_password(password))
    }

    /// Whether this is one of its passwords.
    pub fn has_password(&self, password: &PasswordHash) -> bool {
        self.passwords.contains(password)
    }

    /// Whether it may log in at all.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether any client may log in as this user, with any password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether it accepts any password.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether it may do everything, so that nothing has to be checked.
    pub fn is_free(&self) -> bool {
        self.selectors.iter().any(Selector::is_free)
    }

    /// Its flags, in Redis's words and order.
    pub fn flags(&self) -> Vec<&'static str> {
        let sanitizing = self.skips_sanitizing.then_some("skip-sanitize-payload");
        let on = if self.is_on { "on" } else { "off" };
        let no_password = self.needs_no_password.then_some("nopass");
        [Some(on), no_password, sanitizing].into_iter().flatten().collect()
    }

    /// The hashes of its passwords, in hexadecimal digits.
    pub fn hashes(&self) -> Vec<String> {
        let hex = |hash: &PasswordHash| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        self.passwords.iter().map(hex).collect()
    }

    /// Its rules: the modifiers that turn a new user into this one. Each selector but the root is one modifier.
    pub fn rules(&self) -> Vec<Vec<u8>> {
        let mut rules: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        rules.extend(self.hashes().iter().map(|hash| format!("#{hash}").into_bytes()));
        rules.extend(self.selectors[0].rules());
        let bracketed = |selector: &Selector| [b"(", &*joined(selector.rules()), b")"].concat();
        rules.extend(self.selectors.iter().skip(1).map(bracketed));
        rules
    }

    /// Its rules as they are in a database: the modifiers that turn a new user into one that may do in all databases what this one
    /// may do there.
    pub(super) fn rules_in(&self, database: u8) -> Vec<Vec<u8>> {
        let reduced = |selector: &Selector| match selector.databases.has(database) {
            true => Selector { databases: Databases::ALL, ..selector.clone() },
            false => Selector::new(selector.table),
        };
        let selectors = self.selectors.iter().enumerate();
        // The root stays, if only as one that allows nothing.
        let selectors = selectors.filter(|(place, it)| *place == 0 || it.databases.has(database));
        User { selectors: selectors.map(|(_, selector)| reduced(selector)).collect(), ..self.clone() }.rules()
    }

    /// One line of `ACL LIST`.
    pub fn describe(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &*joined(self.rules())].concat()
    }

    /// What it may do with which keys and channels, in which databases: the texts of its commands, keys, channels and databases, the
    /// root's first.
    pub fn permissions(&self) -> impl ExactSizeIterator<Item = [Vec<u8>; 4]> {
        self.selectors.iter().map(|selector| {
            let (commands, databases) = (selector.commands_text(), selector.databases.rule());
            [commands.into_bytes(), selector.keys_text(), selector.channels_text(), databases.into_bytes()]
        })
    }
}

fn parse_hash(hex: &[u8]) -> Result<PasswordHash, RuleError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(RuleError::Hash),
    };
    if hex.len() != 2 * HASH_BYTES {
        return Err(RuleError::Hash);
    }
    let mut hash = [0; HASH_BYTES];
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(hash)
}

/// Joins the words of each selector, which a client may have sent as several arguments, into one modifier.
///
/// # Errors
/// Redis's error text for a bracket that is never closed.
pub fn merged<'m>(arguments: impl Iterator<Item = &'m [u8]>) -> Result<Vec<Vec<u8>>, String> {
    let mut merged: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for argument in arguments {
        let whole = match open.take() {
            Some(begun) => [&*begun, b" ", argument].concat(),
            None => argument.to_vec(),
        };
        match whole.starts_with(b"(") && !whole.ends_with(b")") {
            true => open = Some(whole),
            false => merged.push(whole),
        }
    }
    match open {
        None => Ok(merged),
        Some(begun) => {
            let first = begun.split(|byte| *byte == b' ').next().unwrap_or_default();
            let first = crate::printable(first);
            Err(format!("ERR Unmatched parenthesis in acl selector starting at '{first}'."))
        }
    }
}

/// The names of the commands in a category, subcommands included.
pub fn commands_in(category: Category) -> impl Iterator<Item = &'static str> {
    crate::all().filter(move |spec| spec.categories().has(category)).map(|spec| spec.name)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A user with these rules.
    pub(in crate::users) fn user(rules: &str) -> User {
        let mut user = User::new(b"u");
        let modifiers = merged(rules.split(' ').map(str::as_bytes)).unwrap();
        user.apply_all(modifiers.iter().map(Vec::as_slice)).unwrap();
        user
    }

    fn refused(rules: &str) -> RuleError {
        let mut user = User::new(b"u");
        user.apply_all(rules.split(' ').map(str::as_bytes)).unwrap_err().1
    }

    fn printed(rules: &str) -> String {
        String::from_utf8(user(rules).describe()).unwrap()
    }

    #[test]
    fn rules_are_printed_as_redis_prints_them() {
        for (rules, expected) in [
            ("off", "user u off resetchannels -@all"),
            ("on nopass ~* &* +@all", "user u on nopass ~* &* +@all"),
            ("on allkeys allchannels allcommands", "user u on ~* &* +@all"),
            (
                "on ~a* %R~b %W~c &x -@all +GET +set",
                "user u on ~a* %R~b %W~c resetchannels &x -@all +get +set",
            ),
            ("on %rw~a %R~b %W~b", "user u on ~a ~b resetchannels -@all"),
            ("on %R~* %R~q* %W~*", "user u on %RW~* %R~q* resetchannels -@all"),
            ("on +@all -config", "user u on resetchannels +@all -config"),
            ("on +config|get +config -@admin", "user u on resetchannels -@all +config -@admin"),
            ("on +@all +client|id", "user u on resetchannels +@all"),
            ("on +get -get +get", "user u on resetchannels -@all +get"),
            ("on +select|0 +select|1", "user u on resetchannels -@all +select|0 +select|1"),
            (
                "on (~a +get) (%R~b &c +@read)",
                "user u on resetchannels -@all (~a resetchannels -@all +get) (%R~b resetchannels &c -@all +@read)",
            ),
            ("on (~a) clearselectors reset", "user u off resetchannels -@all"),
        ] {
            assert_eq!(printed(rules), expected, "{rules}");
            // The cluster map holds a user's rules as they are printed.
            let again = expected.strip_prefix("user u ").expect("a name");
            assert_eq!(printed(again), expected, "{rules}");
        }
        let hash = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        let with_password = printed("on >alice");
        assert_eq!(with_password, format!("user u on #{hash} resetchannels -@all"));
        assert_eq!(printed(&format!("on #{hash}")), with_password);
        assert_eq!(printed(&format!("on >alice !{hash}")), "user u on resetchannels -@all");
    }

    #[test]
    fn printed_rules_make_the_same_user() {
        for rules in [
            "on nopass ~* &* +@all -@dangerous +info",
            "off >p >q skip-sanitize-payload ~a %R~b &c* -@all +@read -get +select|0 (~x +set) (&y +@pubsub)",
        ] {
            let first = user(rules);
            let mut again = User::new(b"u");
            again.apply_all(first.rules().iter().map(Vec::as_slice)).unwrap();
            assert_eq!(again.describe(), first.describe());
            for number in 0..COMMAND_COUNT {
                let allows =
                    |user: &User| user.selectors.iter().map(|it| it.allows(number)).collect::<Vec<_>>();
                assert_eq!(allows(&again), allows(&first), "{number}");
            }
        }
    }

    #[test]
    fn invalid_modifiers_are_refused_with_redis_errors() {
        for (rules, expected) in [
            ("hello", RuleError::Syntax),
            ("+nosuch", RuleError::Unknown),
            ("+@nosuch", RuleError::Unknown),
            ("-select|0", RuleError::Unknown),
            ("+config|nosuch", RuleError::Unknown),
            ("+config|get|x", RuleError::FirstArgumentOfSubcommand),
            ("+select|", RuleError::Syntax),
            ("~* ~a", RuleError::AfterAllKeys),
            ("&* &a", RuleError::AfterAllChannels),
            ("%~a", RuleError::Syntax),
            ("%x~a", RuleError::Syntax),
            ("%R", RuleError::Syntax),
            ("~a\tb", RuleError::Syntax),
            ("#abc", RuleError::Hash),
            ("<nosuch", RuleError::NoSuchPassword),
            ("(~a", RuleError::Syntax),
            ("(on)", RuleError::Syntax),
        ] {
            assert_eq!(refused(rules), expected, "{rules}");
        }
        let long = format!("~{}", "x".repeat(PATTERN_BYTES_MAX + 1));
        assert_eq!(refused(&long), RuleError::PatternTooLong);
        let open = merged([&b"on"[..], b"(~a", b"+get"].into_iter());
        assert_eq!(open, Err("ERR Unmatched parenthesis in acl selector starting at '(~a'.".into()));
    }

    #[test]
    fn a_user_accepts_its_passwords_while_it_is_on() {
        let known = user("on >a >b");
        assert!(
            known.accepts(&hash_of(b"a")) && known.accepts(&hash_of(b"b")) && !known.accepts(&hash_of(b"c"))
        );
        assert!(!user("off >a").accepts(&hash_of(b"a")));
        assert!(user("on nopass").accepts(&hash_of(b"anything")));
        assert!(!user("on nopass resetpass").accepts(&hash_of(b"anything")));
        assert!(!user("on nopass >a").accepts(&hash_of(b"b")));
    }

    #[test]
    fn a_user_is_free_only_if_it_may_do_everything() {
        assert!(user("~* &* +@all").is_free());
        assert!(user("-@all (~* &* +@all)").is_free());
        for rules in ["~* &* +@all -get", "~* +@all", "&* +@all", "~* &* +@read", "~* &* +@all -@cluster"] {
            assert!(!user(rules).is_free(), "{rules}");
        }
    }
}
