//! Connections to a cluster, plain or over TLS: the arguments that all commands share, and the one place that opens them.
//!
//! Reading order: this file (which nodes, as which user, and how), with `settings` (from flags, the environment and files), [`client`] (a connection; `refusal`: what it may answer) over [`stream`] and
//! [`tls`].

mod client;
mod refusal;
mod settings;
mod stream;
mod tls;

pub(crate) use client::Client;
pub(crate) use refusal::Refusal;
pub(crate) use stream::Stream;
pub(crate) use tls::{FOR_CLUSTERS, FOR_OLD_SERVERS, Tls, Trust};
pub(crate) use wire::resp::client::{Reply, put_request};

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cluster::control::ClusterMap;
use node::{NodeAddress, NodeId};
use server::Config;
use server::config::ClientCertificates;
use server::status::{Refused, text_of};
use wire::release::RELEASES;

use self::settings::{Addresses, Settings};

/// A node may wait for a new leader before it answers.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Which nodes to connect to, as which user, and how.
#[derive(Args)]
pub(crate) struct Connect {
    /// The address of a node's port for Redis clients; repeat it for several. The other nodes are found [default:
    /// 127.0.0.1:7000] [env: QUORATE_ADDR]
    #[arg(long, global = true, value_name = "HOST:PORT", value_delimiter = ',')]
    addr: Vec<String>,

    /// The user to log in as [default: default] [env: QUORATE_USER]
    #[arg(long, global = true, value_name = "NAME")]
    user: Option<String>,

    /// A file with that user's password [env: QUORATE_PASSWORD_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// A node's configuration file: its address, password and TLS settings are used where they are not given as flags
    /// [env: QUORATE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Use TLS; the address is that of a TLS port. Any option below, or a configuration with TLS, implies it [env:
    /// QUORATE_TLS]
    #[arg(long, global = true)]
    tls: bool,

    /// With TLS: the certificates of the authorities to trust, in PEM [default: the configuration's, or this
    /// machine's] [env: QUORATE_CACERT]
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// With TLS, if nodes require one: this client's certificate, in PEM [env: QUORATE_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The private key of that certificate, in PEM [env: QUORATE_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// What a command does. If only a node's configuration gives users, it logs in as `operator`, if the file has that.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It only looks: as the default user, where `operator` is refused. Each node may have another `operator`, or none.
    Looks,
    /// It may change the cluster.
    Changes,
}

impl Connect {
    /// What the flags say.
    fn given(&self) -> Settings {
        Settings {
            addr: Addresses::Several(self.addr.clone()),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            config: self.config.clone(),
            tls: (self.tls || self.cacert.is_some() || self.cert.is_some()).then_some(true),
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
        }
    }

    /// Returns the settings that were asked for, with the files read.
    ///
    /// # Errors
    /// A file cannot be read, or an address is invalid.
    pub(crate) fn resolve(&self, role: Role) -> Result<Cluster> {
        let settings = self.given().complete(|name| std::env::var_os(name))?;
        let config = settings.config.as_deref().map(Config::read).transpose()?;
        let mut addresses = settings.addr.list();
        let mut credentials = credentials(settings.password_file.as_deref())?;
        if let Some(user) = &settings.user {
            credentials.insert(0, user.clone());
        }
        let mut logins: Vec<_> = Some(credentials).filter(|words| !words.is_empty()).into_iter().collect();
        let implied = settings.cacert.is_some() || settings.cert.is_some();
        let mut is_tls = settings.tls.unwrap_or(implied);
        if let Some(config) = &config {
            if addresses.is_empty() {
                let (address, has_tls) = address_of(config, is_tls)?;
                addresses.push(address);
                is_tls |= has_tls;
            }
            if logins.is_empty() {
                logins = logins_of(config, role);
            }
        }
        if addresses.is_empty() {
            addresses.push("127.0.0.1:7000".to_owned());
        }
        for address in &addresses {
            let is_address = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            ensure!(is_address, "{address} is not an address: write HOST:PORT");
        }
        let given =
            Trust { authority: settings.cacert, own: settings.cert.zip(settings.key), ..Trust::default() };
        let tls = is_tls.then(|| Tls::new(&completed(given, config.as_ref()), &FOR_CLUSTERS)).transpose()?;
        Ok(Cluster { addresses, logins, taken: Arc::default(), tls })
    }
}

/// Adds the trust settings of a node's configuration where they were not given.
fn completed(given: Trust, config: Option<&Config>) -> Trust {
    let Some(tls) = config.and_then(|config| config.tls.as_ref()) else { return given };
    // Nodes are clients of each other, so a node's certificate is also a client's.
    let shown = (tls.client_certificates != ClientCertificates::Off)
        .then(|| (tls.certificate.clone(), tls.key.clone()));
    Trust { authority: given.authority.or_else(|| tls.authority.clone()), own: given.own.or(shown), ..given }
}

/// Returns the address of a node's port for Redis clients, and whether it uses TLS: it does if the node has a TLS
/// port.
///
/// # Errors
/// TLS is wanted, and the node has no port for that.
fn address_of(config: &Config, wants_tls: bool) -> Result<(String, bool)> {
    let own = config.own()?;
    let file = config.file.display();
    match config.tls.as_ref().filter(|tls| tls.client_port != 0) {
        // Its certificate is for the name by which other machines reach it, unless only this machine can reach it.
        Some(tls) => {
            let bind = tls.bind.unwrap_or(config.bind).to_canonical();
            let host = if bind.is_loopback() { bind.to_string() } else { own.host.clone() };
            Ok((text_of(&host, tls.client_port), true))
        }
        None if wants_tls => bail!("{file} has no tls.client_port: give the address by --addr"),
        None => Ok((text_of(&own.host, own.client_port), false)),
    }
}

/// The arguments of AUTH with which a node's configuration authenticates: the first that are not refused count.
fn logins_of(config: &Config, role: Role) -> Vec<Vec<String>> {
    let operator =
        config.operator_password.iter().map(|password| vec!["operator".to_owned(), password.clone()]);
    let default = config.password.iter().map(|password| vec![password.clone()]);
    let most = if role == Role::Changes { 1 } else { 2 };
    operator.chain(default).take(most).collect()
}

/// The arguments of AUTH for the password in a file, if there is one.
fn credentials(password_file: Option<&Path>) -> Result<Vec<String>> {
    let Some(file) = password_file else { return Ok(Vec::new()) };
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(vec![text.trim_end().to_owned()])
}

/// A cluster, and how to connect to its nodes.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// The addresses to try first.
    pub(crate) addresses: Vec<String>,
    /// The arguments of AUTH: the next ones are for nodes that refuse those before. Without any, none is sent.
    logins: Vec<Vec<String>>,
    /// The place of the one that a node took last: a refusal counts as a failed login, so each is tried once.
    taken: Arc<AtomicUsize>,
    tls: Option<Tls>,
}

impl Cluster {
    /// The cluster that a node's configuration names, with the addresses of all nodes in it.
    ///
    /// # Errors
    /// A file for TLS cannot be read.
    pub(crate) fn of(config: &Config) -> Result<Cluster> {
        Cluster::of_those(config, |_| true)
    }

    /// The same without the configuration's own node, which need not run.
    ///
    /// # Errors
    /// A file for TLS cannot be read.
    pub(crate) fn of_others(config: &Config) -> Result<Cluster> {
        Cluster::of_those(config, |node| node != config.node)
    }

    fn of_those(config: &Config, is_meant: impl Fn(NodeId) -> bool) -> Result<Cluster> {
        let own = config.own()?;
        let settings = config.tls.as_ref().filter(|tls| tls.client_port != 0);
        let distance = settings.map_or(0, |tls| i32::from(tls.client_port) - i32::from(own.client_port));
        let trust = completed(Trust::default(), Some(config));
        let tls = settings.map(|_| Tls::new(&trust, &FOR_CLUSTERS)).transpose()?;
        let place = |node: &NodeAddress| {
            u16::try_from(i32::from(node.client_port) + distance).ok().map(|port| text_of(&node.host, port))
        };
        let addresses = config.nodes.iter().filter(|node| is_meant(node.id)).filter_map(place).collect();
        Ok(Cluster { addresses, logins: logins_of(config, Role::Changes), taken: Arc::default(), tls })
    }

    /// Connects to one of its nodes, which may be silent for no longer than `within`.
    ///
    /// # Errors
    /// It cannot be reached, is not trusted, or refuses this client.
    pub(crate) fn connect(&self, address: &str, within: Duration) -> Result<Client> {
        let tls = self.tls.as_ref();
        let taken = self.taken.load(Ordering::Relaxed);
        let login = |place: usize| self.logins.get(place).map_or(&[][..], Vec::as_slice);
        let mut outcome = Client::connect(address, login(taken), tls, within);
        for other in (0..self.logins.len()).filter(|place| *place != taken) {
            let is_refused = |error: &anyhow::Error| {
                error.downcast_ref::<Refusal>().is_some_and(|it| it.refused == Refused::Password)
            };
            if outcome.as_ref().is_err_and(is_refused)
                && let Ok(client) = Client::connect(address, login(other), tls, within)
            {
                self.taken.store(other, Ordering::Relaxed);
                outcome = Ok(client);
            }
        }
        match outcome {
            Err(error)
                if error.downcast_ref::<Refusal>().is_some_and(|it| it.refused == Refused::NeedsPassword) =>
            {
                let text = format!(
                    "{address}: it wants a password: name its file with --password-file, and the user with --user"
                );
                Err(Refusal::new(Refused::NeedsPassword, text).into())
            }
            outcome => outcome,
        }
    }

    /// Connects to the first address that accepts a connection. Also returns that address.
    ///
    /// # Errors
    /// No address does: a sentence with the reason for each.
    pub(crate) fn open(&self, within: Duration) -> Result<(String, Client)> {
        let mut failed = Vec::new();
        for address in &self.addresses {
            match self.connect(address, within) {
                Ok(client) => return Ok((address.clone(), client)),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        bail!("no node can be reached: {}", failed.join("; "))
    }

    /// Where this client reaches the nodes of a map. The map has their plain ports. For TLS, the ports are those that the
    /// node behind `client` reports in CLUSTER NODES.
    ///
    /// # Errors
    /// The node does not report them.
    pub(crate) fn places(&self, client: &mut Client, map: &ClusterMap) -> Result<BTreeMap<NodeId, String>> {
        let ports = match self.tls {
            Some(_) => ports(client)?,
            None => BTreeMap::new(),
        };
        let place = |node: &NodeAddress| {
            let port = ports.get(&node.id).copied().unwrap_or(node.client_port);
            (node.id, text_of(&node.host, port))
        };
        Ok(map.nodes.values().map(|node| place(&node.address)).collect())
    }

    /// The same addresses, followed by those of the other nodes of a map.
    ///
    /// # Errors
    /// See [`Cluster::places`].
    pub(crate) fn with_others(&self, client: &mut Client, map: &ClusterMap) -> Result<Cluster> {
        let places = self.places(client, map)?;
        let others = places.into_values().filter(|place| !self.addresses.contains(place));
        let addresses = self.addresses.iter().cloned().chain(others).collect();
        Ok(Cluster { addresses, ..self.clone() })
    }
}

/// The map that a node has.
///
/// # Errors
/// It does not answer, or has none yet.
pub(crate) fn map_of(client: &mut Client) -> Result<ClusterMap> {
    let text = match client.ask(&[b"CLUSTER", b"MAP"])? {
        Reply::Error(error) => bail!("the cluster does not return its map: {error}"),
        reply => reply.bytes().context("the cluster's map is not understood")?,
    };
    let unknown = "the cluster's map is not understood";
    let map = ClusterMap::of_shown(&text).map_err(anyhow::Error::msg).context(unknown)?;
    ensure!(
        map.version > 0,
        "the cluster has not begun yet, or the node is cut off from it: see quorate status"
    );
    if let Some(why) = RELEASES.refusal(map.level) {
        bail!("{unknown}: {why}");
    }
    Ok(map)
}

/// The ports at which a client connected like this one reaches each node.
fn ports(client: &mut Client) -> Result<BTreeMap<NodeId, u16>> {
    let nodes = match client.ask(&[b"CLUSTER", b"NODES"])? {
        Reply::Error(error) => {
            let text = format!("it does not say where the other nodes are: {error}");
            return Err(Refusal::or_failure(&error, text));
        }
        reply => reply.bytes().context("the answer to CLUSTER NODES is not text")?,
    };
    // `0123456789abcdef000000000000000000000002 10.0.0.2:7443@9000 …`: a node's name ends with its number.
    let port_in = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let id = NodeId::from_str_radix(name.get(16..)?, 16).ok()?;
        let (place, _) = rest.split_once('@')?;
        let (_, port) = place.rsplit_once(':')?;
        Some((id, port.parse().ok()?))
    };
    let nodes = String::from_utf8_lossy(&nodes);
    nodes
        .lines()
        .map(|line| port_in(line).with_context(|| format!("CLUSTER NODES has the line {line:?}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn config(tls: &str) -> Config {
        let text = format!(
            "node = 1\ncluster = \"c\"\nsecret = \"0123456789abcdef0123456789abcdef\"\npassword = \"p\"\noperator_password = \
             \"o\"\nbind = \"0.0.0.0\"\n{tls}\n[[nodes]]\nid = 1\nhost = \"db1.example\"\nclient_port = 7000\nhttp_port = \
             8000\npeer_port = 9000\n"
        );
        Config::parse(&text).unwrap()
    }

    /// A node that refuses `operator` counts failed logins: one is enough, for however many connections.
    #[test]
    fn a_login_that_was_refused_is_not_tried_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let failed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failed);
        // It ends with the test's process.
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut reader = BufReader::new(socket.unwrap());
                let (mut line, mut is_operator) = (String::new(), false);
                // Each word of a request has a line of its own, after one with its length.
                while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                    let word = std::mem::take(&mut line);
                    is_operator |= word.trim() == "operator";
                    let reply = match word.trim() {
                        "o" if is_operator => {
                            count.fetch_add(1, Ordering::Relaxed);
                            "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                        }
                        "p" => "+OK\r\n",
                        "PING" => "+PONG\r\n",
                        _ => continue,
                    };
                    reader.get_mut().write_all(reply.as_bytes()).unwrap();
                }
            }
        });
        let logins = logins_of(&config(""), Role::Looks);
        let cluster = Cluster { addresses: vec![address], logins, taken: Arc::default(), tls: None };
        let again = cluster.clone();
        for cluster in [&cluster, &again, &cluster] {
            cluster.open(Duration::from_secs(10)).expect("the default user may");
        }
        assert_eq!(failed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_configuration_gives_the_address_and_tls_settings() {
        let tls = |more: &str| config(&format!("[tls]\ncertificate = \"c\"\nkey = \"k\"\n{more}"));
        let plain = config("");
        assert_eq!(address_of(&plain, false).unwrap(), ("db1.example:7000".to_owned(), false));
        assert!(address_of(&plain, true).is_err());
        let sealed = tls("client_port = 7443");
        assert_eq!(address_of(&sealed, false).unwrap(), ("db1.example:7443".to_owned(), true));
        let local = tls("client_port = 7443\nbind = \"127.0.0.1\"");
        assert_eq!(address_of(&local, false).unwrap(), ("127.0.0.1:7443".to_owned(), true));
        assert!(!address_of(&tls("http_port = 8443"), false).unwrap().1, "clients have no TLS");

        assert_eq!(logins_of(&plain, Role::Looks), [vec!["operator", "o"], vec!["p"]]);
        assert_eq!(logins_of(&plain, Role::Changes), [["operator", "o"]]);
        let asks = tls("client_port = 7443\nauthority = \"a\"\nclient_certificates = \"required\"");
        let trust = completed(Trust::default(), Some(&asks));
        assert_eq!(trust.authority, Some("a".into()));
        assert_eq!(trust.own, Some(("c".into(), "k".into())));
        assert!(completed(Trust::default(), Some(&sealed)).own.is_none(), "no node asks for a certificate");
    }
}
