//! `quorate user`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::roles::UserRole;
use super::{Manage, Node, Reply, text};

const EXAMPLES: &str = "\
Examples:
  quorate user list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate user list
  quorate user create watcher --role monitor --draw-password       for status, top, the page and metrics; sees no data
  quorate user create saver --role backup --draw-password          for backup and export
  quorate user create ann --role operator --set-password password.txt
  quorate user create shop --role application --draw-password '~shop:*' '&shop:*'
  quorate user create report --set-password password.txt '~*' +@read
  quorate user alter shop -@scripting
  quorate user drop shop

The rules are those of Redis's ACL SETUSER; put those with ~, * and & into quotation marks.";

/// Make, change, drop and list users.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UserArgs {
    #[command(flatten)]
    manage: Manage,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the users, with their rules
    List,
    /// Make a user, who may log in at once
    Create {
        /// The user's name
        name: String,
        #[command(flatten)]
        password: Password,
        /// What the user is for: the rules for that, which replace all existing ones, and to which RULE adds
        #[arg(long, value_enum)]
        role: Option<UserRole>,
        /// What the user may do
        #[arg(value_name = "RULE", allow_hyphen_values = true)]
        rules: Vec<String>,
    },
    /// Change a user's rules or password
    Alter {
        /// The user's name
        name: String,
        #[command(flatten)]
        password: Password,
        /// What the user is for: the rules for that, which replace all existing ones, and to which RULE adds
        #[arg(long, value_enum)]
        role: Option<UserRole>,
        /// What to change
        #[arg(value_name = "RULE", allow_hyphen_values = true)]
        rules: Vec<String>,
    },
    /// Remove a user, and close the user's connections
    Drop {
        /// The user's name
        name: String,
    },
}

/// The user's password. It is in a file or drawn, and never on the command line, which other users can read.
#[derive(Args)]
#[group(multiple = false)]
struct Password {
    /// A file with the user's password, which replaces all existing ones
    #[arg(long, value_name = "FILE")]
    set_password: Option<PathBuf>,

    /// Draw a password, which replaces all existing ones, and print it this once
    #[arg(long)]
    draw_password: bool,
}

impl Password {
    /// The rules that set it, and the password itself if it was drawn.
    fn rules(&self, node: &mut Node) -> Result<(Vec<String>, Option<String>)> {
        if let Some(file) = &self.set_password {
            return Ok((vec!["resetpass".to_owned(), format!(">{}", read(file)?)], None));
        }
        if !self.draw_password {
            return Ok((Vec::new(), None));
        }
        let drawn = node.ask(&["ACL", "GENPASS"])?;
        let drawn =
            drawn.bytes().and_then(|bytes| String::from_utf8(bytes).ok()).context("no password was drawn")?;
        Ok((vec!["resetpass".to_owned(), format!(">{drawn}")], Some(drawn)))
    }
}

fn read(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let password = text.trim_end_matches(['\n', '\r']);
    ensure!(!password.is_empty(), "{} is empty: a password has at least one letter", file.display());
    Ok(password.to_owned())
}

pub(super) fn run(args: &UserArgs) -> Result<()> {
    let manage = &args.manage;
    match &args.verb {
        Verb::List => list(manage),
        Verb::Create { name, password, role, rules } => {
            let rules = &all_rules(*role, rules)?;
            let mut node = manage.open()?;
            ensure!(
                !exists(&mut node, name)?,
                "there is a user '{name}' already: quorate user alter changes it"
            );
            let (first, drawn) = password.rules(&mut node)?;
            let says_how = !first.is_empty()
                || rules.iter().any(|rule| rule.starts_with(['>', '#']) || rule == "nopass");
            ensure!(
                says_how,
                "how does '{name}' log in? Give --draw-password, --set-password FILE, or the rule nopass"
            );
            set(&mut node, name, [vec!["on".to_owned()], first, rules.clone()].concat())?;
            report(manage, name, "created", drawn)
        }
        Verb::Alter { name, password, role, rules } => {
            let rules = &all_rules(*role, rules)?;
            let mut node = manage.open()?;
            ensure!(exists(&mut node, name)?, "there is no user '{name}': quorate user create makes one");
            let (first, drawn) = password.rules(&mut node)?;
            ensure!(!first.is_empty() || !rules.is_empty(), "nothing to change: name rules, or a password");
            set(&mut node, name, [first, rules.clone()].concat())?;
            report(manage, name, "altered", drawn)
        }
        Verb::Drop { name } => {
            let reply = manage.open()?.ask(&["ACL", "DELUSER", name])?;
            ensure!(reply != Reply::Integer(0), "there is no user '{name}'");
            manage.done(
                &format!("user '{name}' is dropped"),
                &[("user", json!(name)), ("dropped", json!(true))],
            )
        }
    }
}

/// Refuses flags among the rules: rules may begin with one hyphen, so all that follows the first one is read as rules.
fn has_no_flag(rules: &[String]) -> Result<()> {
    match rules.iter().find(|rule| rule.starts_with("--")) {
        Some(flag) => bail!("{flag} is not a rule: flags go before the rules"),
        None => Ok(()),
    }
}

/// The rules of a role, and those that were given beside it.
fn all_rules(role: Option<UserRole>, rules: &[String]) -> Result<Vec<String>> {
    has_no_flag(rules)?;
    let Some(role) = role else { return Ok(rules.to_vec()) };
    let names_keys = |rule: &String| rule.starts_with(['~', '%', '(']) || rule == "allkeys";
    ensure!(
        !role.needs_keys() || rules.iter().any(names_keys),
        "which keys may it use? Name them after the role, as '~shop:*' '&shop:*' (in quotation marks)"
    );
    Ok([role.rules(), rules.to_vec()].concat())
}

fn exists(node: &mut Node, name: &str) -> Result<bool> {
    Ok(node.ask(&["ACL", "GETUSER", name])? != Reply::Null)
}

fn set(node: &mut Node, name: &str, rules: Vec<String>) -> Result<()> {
    let words: Vec<&str> =
        ["ACL", "SETUSER", name].into_iter().chain(rules.iter().map(String::as_str)).collect();
    node.ask(&words).map(|_| ())
}

fn report(manage: &Manage, name: &str, done: &str, drawn: Option<String>) -> Result<()> {
    let line = match &drawn {
        Some(password) => format!("user '{name}' is {done}, with the password {password}"),
        None => format!("user '{name}' is {done}"),
    };
    let mut fields = vec![("user", json!(name)), (done, json!(true))];
    fields.extend(drawn.map(|password| ("password", json!(password))));
    manage.done(&line, &fields)
}

/// A line of `ACL LIST`. Hashes of passwords are counted and not shown: with a hash, passwords could be guessed
/// offline.
struct Listed {
    name: String,
    is_on: bool,
    passwords: usize,
    needs_none: bool,
    rules: Vec<String>,
}

impl Listed {
    fn parse(line: &str) -> Result<Listed> {
        let mut words = line.split_whitespace();
        let (Some("user"), Some(name)) = (words.next(), words.next()) else {
            bail!("the node lists what is no user: {line}");
        };
        let mut listed = Listed {
            name: name.to_owned(),
            is_on: false,
            passwords: 0,
            needs_none: false,
            rules: Vec::new(),
        };
        for word in words {
            match word {
                "on" => listed.is_on = true,
                "off" | "sanitize-payload" | "resetchannels" => {}
                "nopass" => listed.needs_none = true,
                hash if hash.starts_with('#') => listed.passwords += 1,
                rule => listed.rules.push(rule.to_owned()),
            }
        }
        Ok(listed)
    }

    fn json(&self) -> Value {
        json!({ "user": self.name, "on": self.is_on, "passwords": self.passwords, "nopass": self.needs_none, "rules": self.rules })
    }

    fn row(&self) -> Vec<String> {
        let password = match (self.needs_none, self.passwords) {
            (true, _) => "not needed".to_owned(),
            (false, 0) => "none: cannot log in".to_owned(),
            (false, 1) => "set".to_owned(),
            (false, count) => format!("{count} set"),
        };
        let on = if self.is_on { "on" } else { "off" };
        vec![self.name.clone(), on.to_owned(), password, self.rules.join(" ")]
    }
}

fn list(manage: &Manage) -> Result<()> {
    let Reply::Array(lines) = manage.open()?.ask(&["ACL", "LIST"])? else { bail!("the node lists no users") };
    let users: Vec<Listed> =
        lines.into_iter().map(|line| Listed::parse(&text(&super::json(line)))).collect::<Result<_>>()?;
    let rows = users.iter().map(Listed::row).collect();
    let json = users.iter().map(Listed::json).collect();
    manage.rows(&["user", "state", "password", "rules"], rows, &json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_passwords_are_not_shown() {
        let line = "user shop on #0123 #4567 ~shop:* resetchannels &shop:* -@all +@read";
        let listed = Listed::parse(line).unwrap();
        assert_eq!(listed.row(), ["shop", "on", "2 set", "~shop:* &shop:* -@all +@read"]);
        assert!(!listed.json().to_string().contains("0123"));
        assert_eq!(Listed::parse("user a off nopass +@all").unwrap().row()[1..3], ["off", "not needed"]);
        assert!(Listed::parse("nothing").is_err());
    }
}
