//! The settings with which a cluster is made: from the command line at first, and later from its folder's marker.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use node::Keyspace;
use serde::{Deserialize, Serialize};
use server::status::quoted;

use super::ClusterArgs;
use super::nodes::{Node, Ports, Tls, certificates_of, folder_of};
use crate::certs::AUTHORITY_FILE;

pub(super) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const NODES: u16 = 3;
const CLIENT_PORT: u16 = 7000;
const HTTP_PORT: u16 = 8000;
const PEER_PORT: u16 = 9000;
const TLS_CLIENT_PORT: u16 = 7443;
const TLS_HTTP_PORT: u16 = 8443;

/// The settings with which a cluster was made. Kept in the folder's marker.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    nodes: u16,
    client_port: u16,
    http_port: u16,
    peer_port: u16,
    /// Ports with TLS, for Redis clients and for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_client_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_http_port: Option<u16>,
    #[serde(default, rename = "keyspace")]
    pub(super) keyspaces: Vec<Keyspace>,
}

impl Settings {
    /// Returns the command line's settings, for a new cluster.
    ///
    /// # Errors
    /// A keyspace is invalid, or the ports do not fit together.
    pub(super) fn new(args: &ClusterArgs) -> Result<Settings> {
        let settings = Settings {
            nodes: args.nodes.unwrap_or(NODES),
            client_port: args.client_port.unwrap_or(CLIENT_PORT),
            http_port: args.http_port.unwrap_or(HTTP_PORT),
            peer_port: args.peer_port.unwrap_or(PEER_PORT),
            tls_client_port: args.tls.then(|| args.tls_client_port.unwrap_or(TLS_CLIENT_PORT)),
            tls_http_port: args.tls.then(|| args.tls_http_port.unwrap_or(TLS_HTTP_PORT)),
            keyspaces: args.keyspaces.clone(),
        };
        for (index, keyspace) in settings.keyspaces.iter().enumerate() {
            keyspace.check(usize::from(settings.nodes)).map_err(anyhow::Error::msg)?;
            if settings.keyspaces[..index].iter().any(|earlier| earlier.prefix == keyspace.prefix) {
                bail!("--keyspace: the prefix '{}' is given twice", keyspace.prefix);
            }
        }
        let mut taken: Vec<(u16, String)> = Vec::new();
        for id in settings.ids() {
            for (name, base) in settings.bases() {
                let Some(port) = base.checked_add(id - 1) else {
                    bail!("--{name}-port {base}: node {id} would have a port above 65535");
                };
                let user = format!("the {name} port of node {id}");
                if let Some((_, other)) = taken.iter().find(|(number, _)| *number == port) {
                    bail!("port {port} would be {other} and {user}: choose bases further apart");
                }
                taken.push((port, user));
            }
        }
        Ok(settings)
    }

    fn bases(&self) -> impl Iterator<Item = (&'static str, u16)> + use<> {
        let plain = [("client", self.client_port), ("http", self.http_port), ("peer", self.peer_port)];
        let tls = [("tls-client", self.tls_client_port), ("tls-http", self.tls_http_port)];
        plain.into_iter().chain(tls.into_iter().filter_map(|(name, port)| Some((name, port?))))
    }

    /// Whether its nodes have ports with TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.tls_client_port.is_some()
    }

    /// The ids of the nodes that it was made with.
    pub(super) fn ids(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.nodes
    }

    /// The nodes to create. Their ports fit: [`Settings::new`] has checked them.
    pub(super) fn nodes(&self, folder: &Path) -> Vec<Node> {
        let node = |id: u16| {
            let of = |base: u16| base.saturating_add(id - 1);
            let ports =
                Ports { client: of(self.client_port), http: of(self.http_port), peer: of(self.peer_port) };
            let tls = self.tls_client_port.zip(self.tls_http_port).map(|(client, http)| Tls {
                client: of(client),
                http: of(http),
                bind: HOST,
                authority: Some(certificates_of(folder).join(AUTHORITY_FILE)),
                wants_certificates: false,
            });
            Node { id, folder: folder_of(folder, id), bind: HOST, ports, password: None, tls }
        };
        self.ids().map(node).collect()
    }

    /// Compares the settings with which the cluster was made with those on the command line. Settings that are not
    /// given are not compared.
    ///
    /// # Errors
    /// They differ: a text that says how, with the commands to type instead.
    pub(super) fn check_given(&self, args: &ClusterArgs, nodes: &[Node]) -> Result<()> {
        let mut differences = Vec::new();
        let mut compare = |name: &str, made: u16, given: Option<u16>| {
            if let Some(given) = given.filter(|given| *given != made) {
                differences.push(format!("{name} is {made} there, not {given}"));
            }
        };
        compare("--nodes", self.nodes, args.nodes);
        compare("--client-port", self.client_port, args.client_port);
        compare("--http-port", self.http_port, args.http_port);
        compare("--peer-port", self.peer_port, args.peer_port);
        compare("--tls-client-port", self.tls_client_port.unwrap_or_default(), args.tls_client_port);
        compare("--tls-http-port", self.tls_http_port.unwrap_or_default(), args.tls_http_port);
        if args.tls && !self.has_tls() {
            differences.push("it has no TLS there (see `quorate certs`)".to_owned());
        }
        let mut commands = Vec::new();
        for given in &args.keyspaces {
            let made = self.keyspaces.iter().find(|made| made.prefix == given.prefix);
            if made == Some(given) {
                continue;
            }
            differences.push(match made {
                Some(made) => format!(
                    "--keyspace {} is ({}) there, not ({})",
                    given.name(),
                    words(made)?,
                    words(given)?
                ),
                None => format!("--keyspace {} is not there", given.name()),
            });
            if let Some(first) = nodes.first() {
                let what = match made {
                    Some(made) => format!("set {}", changed_words(made, given)?),
                    None if given.prefix.is_empty() => {
                        format!("set {}", changed_words(&Keyspace::default(), given)?)
                    }
                    None => format!("create {}", quoted_words(given)?),
                };
                commands.push(format!("{} keyspace {what}", first.redis_cli()));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let folder = quoted(&args.dir.to_string_lossy());
        let mut text = format!(
            "{} holds a cluster that was made with other settings: {}. Start it as it is:\n  quorate cluster --dir {folder}",
            args.dir.display(),
            differences.join(", ")
        );
        if !commands.is_empty() {
            let _ = write!(text, "\nTo change its keyspaces while it runs:\n  {}", commands.join("\n  "));
        }
        if let (Some(given), Some(first)) = (args.nodes.filter(|given| *given > self.nodes), nodes.first()) {
            text.push_str("\nTo add nodes while it runs:");
            let like = quoted(&first.configuration().to_string_lossy());
            for id in self.nodes + 1..=given {
                let target = quoted(&folder_of(&args.dir, id).to_string_lossy());
                let _ = write!(text, "\n  quorate join --like {like} --dir {target}");
            }
        }
        text.push_str("\nA cluster with other settings needs another folder.");
        bail!(text)
    }
}

/// Returns a keyspace's settings that differ from the defaults, with its prefix first, as `--keyspace` takes them.
fn settings_of(keyspace: &Keyspace) -> Result<Vec<(String, String)>> {
    let usual = toml::Table::try_from(Keyspace::default()).context("a keyspace cannot be written")?;
    let own = toml::Table::try_from(keyspace).context("a keyspace cannot be written")?;
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    let differs = |(name, value): &(&String, &toml::Value)| usual.get(*name) != Some(*value);
    let others = own.iter().filter(|(name, _)| *name != "prefix").filter(differs);
    let prefix = std::iter::once(("prefix".to_owned(), keyspace.prefix.clone()));
    Ok(prefix.chain(others.map(|(name, value)| (name.clone(), text(value)))).collect())
}

fn words(keyspace: &Keyspace) -> Result<String> {
    let settings = settings_of(keyspace)?;
    Ok(settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
}

/// Returns the prefix and the settings, each quoted for a shell.
fn quoted_words(keyspace: &Keyspace) -> Result<String> {
    let settings = settings_of(keyspace)?;
    let word = |(name, value): &(String, String)| match name.as_str() {
        "prefix" => quoted(value),
        _ => quoted(&format!("{name}={value}")),
    };
    Ok(settings.iter().map(word).collect::<Vec<_>>().join(" "))
}

/// Returns the prefix and the settings in which `given` differs from `made`.
fn changed_words(made: &Keyspace, given: &Keyspace) -> Result<String> {
    let table = |keyspace: &Keyspace| toml::Table::try_from(keyspace).context("a keyspace cannot be written");
    let (made, own) = (table(made)?, table(given)?);
    let changed = own.iter().filter(|(name, value)| made.get(*name) != Some(*value));
    let text = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    let changed = changed.map(|(name, value)| quoted(&format!("{name}={}", text(value))));
    Ok(std::iter::once(quoted(&given.prefix)).chain(changed).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, expected) in
            [("data/x", "data/x"), ("a b", "'a b'"), ("", "''"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
        {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_keyspace_is_written_as_the_words_that_make_it() {
        let text = "prefix=cache: replication=leader-follower acks=1 shards=4";
        let keyspace = Keyspace::parse(text).unwrap();
        let again = words(&keyspace).unwrap();
        assert_eq!(Keyspace::parse(&again).unwrap(), keyspace, "{again}");
        assert_eq!(quoted_words(&keyspace).unwrap(), "cache: acks=1 replication=leader-follower shards=4");
        let other = Keyspace::parse("prefix=cache: replication=leader-follower acks=all shards=4").unwrap();
        assert_eq!(changed_words(&keyspace, &other).unwrap(), "cache: acks=all");
    }
}
