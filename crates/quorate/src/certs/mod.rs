//! `quorate certs`: a cluster's own authority, and the certificates that it issues to nodes and clients.
//!
//! The folder is the authority: it holds the key, and anyone with the key can issue certificates. Nothing in it is
//! ever overwritten.

mod authority;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::output::say;

pub(crate) use self::authority::{AUTHORITY_FILE, AUTHORITY_KEY_FILE, Authority, Owner};

/// How many days certificates of nodes and clients are valid.
pub(crate) const DAYS: u32 = 730;

const EXAMPLES: &str = "\
Examples:
  quorate certs --dir certs --node 10.0.0.1,db1.example --node 10.0.0.2 --node 10.0.0.3
  quorate certs --dir certs --node 4=10.0.0.4            one more, by the same authority
  quorate certs --dir certs --client alice               a client's, if nodes ask clients for one

The authority's key stays in the folder: copy to each node only its own two files and authority.crt.";

/// Make certificates for TLS: a cluster's own authority, and certificates that it issues.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CertsArgs {
    /// The authority's folder; a new authority is made if there is none
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// A node's certificate, for the names and addresses by which clients reach it, separated by commas; repeat it for
    /// several nodes. The first is for node 1, and so on, unless a number is given
    #[arg(long = "node", value_name = "[ID=]HOSTS", value_parser = parse_node)]
    nodes: Vec<(Option<u16>, Vec<String>)>,

    /// A client's certificate, with the client's name; repeat it for several
    #[arg(long = "client", value_name = "NAME", value_parser = parse_client)]
    clients: Vec<String>,

    /// How long the certificates are valid
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

fn parse_node(text: &str) -> Result<(Option<u16>, Vec<String>)> {
    let (id, hosts) = match text.split_once('=') {
        Some((id, hosts)) => {
            (Some(id.parse().with_context(|| format!("{id} is no number of a node"))?), hosts)
        }
        None => (None, text),
    };
    let hosts: Vec<String> = hosts.split(',').map(|host| host.trim().to_owned()).collect();
    for host in &hosts {
        node::check_host(host).map_err(|why| anyhow::anyhow!("{host:?}: {why}"))?;
    }
    Ok((id, hosts))
}

/// Reads a client's name, which is part of the names of its files.
fn parse_client(name: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    ensure!(
        (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.'),
        "a client's name has 1 to 64 letters, digits, and - _ . @"
    );
    ensure!(!name.starts_with("node-"), "{name} would be a node's name: give the client another one");
    Ok(name.to_owned())
}

/// Makes the certificates and prints what to do with them.
///
/// # Errors
/// A sentence that says why it failed: a file exists already, for example. Then nothing has been issued.
pub(crate) fn run(args: &CertsArgs) -> Result<()> {
    let owners = owners(args)?;
    for file in owners.iter().flat_map(Owner::files) {
        let file = args.dir.join(file);
        ensure!(
            !file.exists(),
            "{} exists and is not overwritten: move it away first, and keep it until nodes and clients have the new one",
            file.display()
        );
    }
    let (authority, is_new) = Authority::open(&args.dir)?;
    let trusted = args.dir.join(AUTHORITY_FILE);
    if is_new {
        say(&format!("{}: the new authority, for nodes and clients to trust", trusted.display()));
        say(&format!(
            "{}: its key. Keep it where no node runs: whoever has it can make certificates",
            args.dir.join("authority.key").display()
        ));
    }
    for owner in &owners {
        let day = authority.issue(owner, args.days)?;
        let [certificate, key] = owner.files().map(|name| args.dir.join(name).display().to_string());
        let whose = match owner {
            Owner::Node { id, .. } => format!("node {id}, reached as {}", owner.all_hosts().join(", ")),
            Owner::Client { name } => format!("the client {name}"),
        };
        say(&format!("{certificate}, {key}: of {whose}, valid until {day}"));
    }
    if let Some(Owner::Node { id, hosts }) = owners.iter().find(|owner| matches!(owner, Owner::Node { .. })) {
        say(&format!(
            "in the quorate.toml of node {id}, with its files beside it (others likewise):\n\n  [tls]\n  client_port = 7443\n  \
             http_port = 8443\n  certificate = \"node-{id}.crt\"\n  key = \"node-{id}.key\"\n  authority = \
             \"{AUTHORITY_FILE}\"\n"
        ));
        say(&format!("then: redis-cli --tls --cacert {} -h {} -p 7443 ping", trusted.display(), hosts[0]));
    }
    if let Some(owner) = owners.iter().find(|owner| matches!(owner, Owner::Client { .. })) {
        let [certificate, key] = owner.files().map(|name| args.dir.join(name).display().to_string());
        say(&format!(
            "then: redis-cli --tls --cacert {} --cert {certificate} --key {key} -h HOST -p 7443 ping",
            trusted.display()
        ));
    }
    Ok(())
}

fn owners(args: &CertsArgs) -> Result<Vec<Owner>> {
    ensure!(!args.nodes.is_empty() || !args.clients.is_empty(), "give --node or --client");
    let nodes = args
        .nodes
        .iter()
        .zip(1..)
        .map(|((id, hosts), place)| Owner::Node { id: id.unwrap_or(place), hosts: hosts.clone() });
    let clients = args.clients.iter().map(|name| Owner::Client { name: name.clone() });
    let owners: Vec<Owner> = nodes.chain(clients).collect();
    for (place, owner) in owners.iter().enumerate() {
        if owners[..place].iter().any(|earlier| earlier.files() == owner.files()) {
            bail!("{} would be made twice", owner.files()[0]);
        }
        if let Owner::Node { id, .. } = owner {
            ensure!(
                (1..=server::config::NODES_MAX).contains(&usize::from(*id)),
                "nodes have numbers from 1 to {}, not {id}",
                server::config::NODES_MAX
            );
        }
    }
    Ok(owners)
}
