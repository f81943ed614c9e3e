//! Users and what each may do, as in Redis's ACL. Plain data, which knows nothing of connections.
//!
//! The cluster map holds each user's rules as text. [`Users`] is the parsed form that a node keeps, which checks a command
//! by a few bits.

mod check;
mod databases;
mod log;
mod rules;

pub use check::{DENIED_IN_SCRIPT, Denial};
pub use databases::limits_databases;
pub use log::{ACL_LOG_ENTRIES_MAX, AclLog, Place, Reason};
use rules::hash_of;
pub use rules::{
    RuleError, Table, USER_NAME_BYTES_MAX, User, category_named, commands_in, has_space, hash_rule, merged,
};

use crate::text::Text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most users of a cluster.
const USERS_MAX: usize = 1024;

/// The most bytes of one user's rules.
const USER_RULES_BYTES_MAX: usize = 16 << 10;

/// The most bytes of all users' names and rules. The cluster map holds them, and each change writes and sends the whole map.
const USERS_BYTES_MAX: usize = 512 << 10;

/// The user of clients that do not name one.
pub const DEFAULT: &[u8] = b"default";

/// The user that a node's configuration creates (`operator_password`), which may do everything.
pub const OPERATOR: &[u8] = b"operator";

/// The users' rules as the cluster map holds them, by the users' names.
pub type Rules = BTreeMap<Text, Vec<Text>>;

/// A change of the users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Creates or changes a user.
    Set {
        /// Its name.
        name: Text,
        /// The rules of a new user before the change.
        base: Vec<Text>,
        /// Modifiers of `ACL SETUSER`, with passwords as their hashes.
        rules: Vec<Text>,
    },
    /// Removes users. Names that do not exist are ignored.
    Delete(Vec<Text>),
}

/// Changes the users.
///
/// # Errors
/// Redis's error text, or one that names a limit. The users may be changed in part: the caller drops them.
pub fn apply(known: &mut Rules, step: &Step) -> Result<(), String> {
    let (name, base, rules) = match step {
        Step::Delete(names) => {
            names.iter().for_each(|name| _ = known.remove(name));
            return Ok(());
        }
        Step::Set { name, base, rules } => (name, base, rules),
    };
    let before = known.get(name).unwrap_or(base);
    let mut user =
        user_of(&name.bytes(), before).ok_or("this user's rules are of another version of Quorate")?;
    let modifiers: Vec<Vec<u8>> = rules.iter().map(Text::bytes).collect();
    user.apply_all(modifiers.iter().map(Vec::as_slice))
        .map_err(|(modifier, error)| refusal(modifier, error))?;
    let rules: Vec<Text> = user.rules().iter().map(|rule| Text::new(rule)).collect();
    let bytes_of = |rules: &[Text]| rules.iter().map(|rule| rule.bytes().len() + 1).sum::<usize>();
    let bytes = bytes_of(&rules);
    if bytes > USER_RULES_BYTES_MAX {
        return Err(format!(
            "the rules of a user would take {bytes} bytes; at most {USER_RULES_BYTES_MAX} are allowed"
        ));
    }
    known.insert(name.clone(), rules);
    if known.len() > USERS_MAX {
        return Err(format!("a cluster can have {USERS_MAX} users at most"));
    }
    let all: usize = known.iter().map(|(name, rules)| name.bytes().len() + bytes_of(rules)).sum();
    if all > USERS_BYTES_MAX {
        return Err(format!(
            "all users together would take {all} bytes; at most {USERS_BYTES_MAX} are allowed"
        ));
    }
    Ok(())
}

/// Redis's error text for a refused modifier.
pub fn refusal(modifier: &[u8], error: RuleError) -> String {
    format!("Error in ACL SETUSER modifier '{}': {}", String::from_utf8_lossy(modifier), error.text())
}

/// The user with these rules; `None` if this release does not know some of them.
fn user_of(name: &[u8], rules: &[Text]) -> Option<User> {
    let mut user = User::new(name);
    let rules: Vec<Vec<u8>> = rules.iter().map(Text::bytes).collect();
    user.apply_all(rules.iter().map(Vec::as_slice)).ok()?;
    Some(user)
}

/// The settings in a node's configuration that concern users.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The default user's password, as long as the cluster map has no rules for that user.
    pub password: Option<String>,
    /// The password of the user `operator`; without it there is no such user.
    pub operator_password: Option<String>,
    /// Whether the default user may change the cluster, as long as the map has no rules for it.
    pub default_changes_cluster: bool,
}

impl Configured {
    /// The rules of the default user, as long as the cluster map has none for it.
    pub fn default_rules(&self) -> Vec<Vec<u8>> {
        let mut user = User::new(DEFAULT);
        let password = match &self.password {
            Some(password) => format!(">{password}").into_bytes(),
            None => b"nopass".to_vec(),
        };
        let rules = [&b"on"[..], &password, b"~*", b"&*", b"+@all"];
        let limits = (!self.default_changes_cluster).then_some(&b"-@cluster"[..]);
        let made = user.apply_all(rules.into_iter().chain(limits));
        assert!(made.is_ok(), "these rules are ours");
        user.rules()
    }
}

/// The users that a node knows.
#[derive(Debug)]
pub struct Users {
    configured: Configured,
    /// The rules in the map that was followed last.
    rules: Rules,
    /// Whether this node has an agreed map.
    knows_map: bool,
    /// All users, by name.
    all: BTreeMap<Vec<u8>, Rc<User>>,
    default: Rc<User>,
}

impl Users {
    /// The users of a node that knows no map yet.
    pub fn new(configured: Configured) -> Users {
        let default = Rc::new(User::new(DEFAULT));
        let mut users =
            Users { configured, rules: Rules::new(), knows_map: false, all: BTreeMap::new(), default };
        let mut set = |name: &[u8], rules: &[Vec<u8>]| {
            let mut user = User::new(name);
            let made = user.apply_all(rules.iter().map(Vec::as_slice));
            assert!(made.is_ok(), "these rules are ours");
            users.all.insert(name.to_vec(), Rc::new(user));
        };
        set(DEFAULT, &users.configured.default_rules());
        if let Some(password) = &users.configured.operator_password {
            let rules =
                ["on", &format!(">{password}"), "~*", "&*", "+@all"].map(|rule| rule.as_bytes().to_vec());
            set(OPERATOR, &rules);
        }
        users.default = Rc::clone(&users.all[DEFAULT]);
        users
    }

    /// Follows the users of an agreed map. Returns whether any user has changed.
    pub fn follow(&mut self, rules: &Rules) -> bool {
        self.knows_map = true;
        if *rules == self.rules {
            return false;
        }
        let names =
            self.rules.keys().chain(rules.keys()).filter(|name| self.rules.get(name) != rules.get(name));
        let changed: Vec<Text> = names.cloned().collect();
        for text in changed {
            let name = text.bytes();
            if name == OPERATOR {
                continue; // No node makes such a change.
            }
            let user = match rules.get(&text) {
                // A user whose rules are of a later release may do nothing here.
                Some(rules) => Some(user_of(&name, rules).unwrap_or_else(|| User::new(&name))),
                None if name == DEFAULT => {
                    let mut user = User::new(DEFAULT);
                    let rules = self.configured.default_rules();
                    let made = user.apply_all(rules.iter().map(Vec::as_slice));
                    assert!(made.is_ok(), "these rules are ours");
                    Some(user)
                }
                None => None,
            };
            match user {
                Some(user) => drop(self.all.insert(name, Rc::new(user))),
                None => drop(self.all.remove(&name)),
            }
        }
        self.rules.clone_from(rules);
        self.default = Rc::clone(&self.all[DEFAULT]);
        true
    }

    /// The settings in this node's configuration.
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// Whether the cluster map has rules for the default user, so that the configured password has no effect.
    pub fn default_is_in_map(&self) -> bool {
        self.rules.contains_key(&Text::new(DEFAULT))
    }

    /// Whether this node has an agreed map: without one it knows none of the cluster's users.
    pub fn knows_map(&self) -> bool {
        self.knows_map
    }

    /// The user of clients that do not name one.
    pub fn default_user(&self) -> &Rc<User> {
        &self.default
    }

    /// The user of a client that has not authenticated; `None` if it must authenticate.
    pub fn at_first(&self) -> Option<Rc<User>> {
        self.default.is_open().then(|| Rc::clone(&self.default))
    }

    /// The user with this name.
    pub fn find(&self, name: &[u8]) -> Option<&Rc<User>> {
        self.all.get(name)
    }

    /// All users, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rc<User>> {
        self.all.values()
    }

    /// The user with this name, if it exists and this password is right.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<&Rc<User>> {
        // Hashed whether or not there is such a user, so that the time taken does not reveal which names exist.
        let hash = hash_of(password);
        self.find(name).filter(|user| user.accepts(&hash))
    }

    /// The user of a client that sends a token and no name: the default user if it accepts the token as its password, else
    /// the only other user that has this password.
    pub fn log_in_by_token(&self, token: &[u8]) -> Option<&Rc<User>> {
        let hash = hash_of(token);
        if self.default.accepts(&hash) {
            return Some(&self.default);
        }
        let mut fitting = self.iter().filter(|user| user.is_on() && user.has_password(&hash));
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The user for a certificate with this common name. The caller must have checked the certificate.
    pub fn by_certificate(&self, common_name: &str) -> Option<&Rc<User>> {
        self.find(common_name.as_bytes()).filter(|user| user.is_on())
    }
}

/// The line of a record behind which there are rules that [`Table::Present`] reads. Release 1 writes none.
const PRESENT_TABLE: &[u8] = b"table 2";

/// What a user may do in a database as one text, which a record can carry: [`user_of_record`] reads it.
pub fn recorded(user: &User, table: Table, database: u8) -> Vec<u8> {
    let mut text = user.name.clone();
    if table == Table::Present {
        text.push(b'\n');
        text.extend_from_slice(PRESENT_TABLE);
    }
    for rule in user.rules_in(database) {
        // Password hashes are of no use in a record, and records are kept.
        if !rule.starts_with(b"#") {
            text.push(b'\n');
            text.extend_from_slice(&rule);
        }
    }
    text
}

/// The user of [`recorded`]. A user whose rules this release does not know may do nothing.
pub fn user_of_record(text: &[u8]) -> User {
    let mut lines = text.split(|byte| *byte == b'\n').peekable();
    let name = lines.next().unwrap_or_default();
    let table = match lines.next_if_eq(&PRESENT_TABLE) {
        Some(_) => Table::Present,
        None => Table::Release1,
    };
    let mut user = User::new_by(name, table);
    match user.apply_all(lines) {
        Ok(()) => user,
        Err(_) => User::new(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &str) -> Vec<Text> {
        words.split(' ').filter(|word| !word.is_empty()).map(|word| Text::new(word.as_bytes())).collect()
    }

    fn set(known: &mut Rules, name: &str, rules: &str) -> Result<(), String> {
        let mut next = known.clone();
        let step = Step::Set { name: Text::new(name.as_bytes()), base: vec![], rules: texts(rules) };
        apply(&mut next, &step)?;
        *known = next;
        Ok(())
    }

    #[test]
    fn rules_add_up_and_users_are_removed() {
        let mut known = Rules::new();
        assert_eq!(set(&mut known, "a", "on >x ~k* +get"), Ok(()));
        assert_eq!(set(&mut known, "a", "-get +set"), Ok(()));
        let refused = set(&mut known, "a", "+nosuch");
        let expected = "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL";
        assert_eq!(refused, Err(expected.into()));
        let mut users = Users::new(Configured::default());
        assert!(users.follow(&known) && !users.follow(&known));
        let user = users.log_in(b"a", b"x").expect("it is known").clone();
        assert!(user.describe().ends_with(b" ~k* resetchannels -@all -get +set"));
        assert!(users.log_in(b"a", b"y").is_none() && users.log_in(b"b", b"x").is_none());
        apply(&mut known, &Step::Delete(texts("a b"))).unwrap();
        assert!(users.follow(&known) && users.find(b"a").is_none());
    }

    #[test]
    fn only_changed_users_are_parsed_again() {
        let mut known = Rules::new();
        set(&mut known, "a", "on").unwrap();
        set(&mut known, "b", "on").unwrap();
        let mut users = Users::new(Configured::default());
        users.follow(&known);
        let before = Rc::clone(users.find(b"a").unwrap());
        set(&mut known, "b", "off").unwrap();
        users.follow(&known);
        assert!(Rc::ptr_eq(&before, users.find(b"a").unwrap()));
        assert!(!users.find(b"b").unwrap().is_on());
    }

    #[test]
    fn the_default_user_is_the_configured_one_until_the_map_has_rules_for_it() {
        let configured = Configured { password: Some("p".into()), ..Configured::default() };
        let base: Vec<Text> = configured.default_rules().iter().map(|rule| Text::new(rule)).collect();
        let mut users = Users::new(configured);
        assert!(users.log_in(DEFAULT, b"p").is_some() && users.log_in(DEFAULT, b"q").is_none());
        assert!(!users.default_user().is_free(), "it may not change the cluster");
        let mut known = Rules::new();
        let step = Step::Set { name: Text::new(DEFAULT), base, rules: texts(">q -flushall") };
        apply(&mut known, &step).unwrap();
        users.follow(&known);
        assert!(users.default_is_in_map());
        assert!(users.log_in(DEFAULT, b"p").is_some() && users.log_in(DEFAULT, b"q").is_some());
        assert!(users.default_user().describe().ends_with(b"~* &* +@all -@cluster -flushall"));
        users.follow(&Rules::new());
        assert!(users.log_in(DEFAULT, b"q").is_none() && users.log_in(DEFAULT, b"p").is_some());
    }

    #[test]
    fn the_operator_is_configured_and_may_do_everything() {
        let configured = Configured { operator_password: Some("o".into()), ..Configured::default() };
        let users = Users::new(configured);
        assert!(users.log_in(OPERATOR, b"o").unwrap().is_free());
        assert!(Users::new(Configured::default()).find(OPERATOR).is_none());
        assert!(
            Users::new(Configured { default_changes_cluster: true, ..Configured::default() })
                .default_user()
                .is_free()
        );
    }

    #[test]
    fn a_token_stands_for_the_only_user_that_has_it() {
        let mut known = Rules::new();
        set(&mut known, "a", "on >x >y").unwrap();
        set(&mut known, "b", "on >y >z").unwrap();
        set(&mut known, "c", "off >w").unwrap();
        set(&mut known, "d", "on nopass").unwrap();
        let mut users = Users::new(Configured { password: Some("p".into()), ..Configured::default() });
        users.follow(&known);
        let named = |token: &[u8]| users.log_in_by_token(token).map(|user| user.name.clone());
        assert_eq!(named(b"p").as_deref(), Some(DEFAULT));
        assert_eq!(named(b"x").as_deref(), Some(&b"a"[..]));
        assert_eq!(named(b"z").as_deref(), Some(&b"b"[..]));
        assert_eq!((named(b"y"), named(b"w"), named(b"")), (None, None, None));
    }

    #[test]
    fn users_are_bounded() {
        let mut known = Rules::new();
        let long =
            (0..20).map(|number| format!("~{number}{}", "x".repeat(900))).collect::<Vec<_>>().join(" ");
        assert!(set(&mut known, "a", &long).unwrap_err().contains("at most 16384 are allowed"));
        let half =
            (0..15).map(|number| format!("~{number}{}", "x".repeat(900))).collect::<Vec<_>>().join(" ");
        let refused = (0..100).find_map(|number| set(&mut known, &format!("u{number}"), &half).err());
        assert!(refused.unwrap().starts_with("all users together would take"));
        let mut known = Rules::new();
        let refused = (0..=USERS_MAX).find_map(|number| set(&mut known, &format!("u{number}"), "on").err());
        assert_eq!(refused, Some("a cluster can have 1024 users at most".into()));
    }

    #[test]
    fn a_record_carries_all_rules_but_passwords() {
        let mut user = User::new(b"u");
        let rules = [&b"on"[..], b">secret", b"~a b"];
        user.apply_all(rules[..2].iter().copied()).unwrap();
        user.apply_all([&b"~a*"[..], b"+get", b"(%R~x +set)"]).unwrap();
        for table in [Table::Present, Table::Release1] {
            let text = recorded(&user, table, 0);
            let read = user_of_record(&text);
            assert_eq!(recorded(&read, table, 0), text);
            assert!(read.hashes().is_empty() && read.permissions().len() == 2);
        }
        assert!(user_of_record(b"u\n+@all\n+nosuch").permissions().all(|it| it[0] == b"-@all"));
    }

    #[test]
    fn a_certificate_stands_for_the_user_of_its_name() {
        let mut known = Rules::new();
        set(&mut known, "a", "on").unwrap();
        set(&mut known, "b", "off").unwrap();
        let mut users = Users::new(Configured::default());
        users.follow(&known);
        assert!(users.by_certificate("a").is_some());
        assert!(users.by_certificate("b").is_none() && users.by_certificate("c").is_none());
    }
}
