//! The three ports of a node, all bound before anything else happens.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use mio::net::TcpListener;

use crate::config::Config;
use crate::{files, holder};

pub(crate) struct Listeners {
    /// For the Redis protocol.
    pub(crate) clients: TcpListener,
    /// For the other nodes.
    pub(crate) peers: TcpListener,
    /// For HTTP. Not mio's kind: it goes to HTTP's own runtime.
    pub(crate) http: std::net::TcpListener,
}

impl Listeners {
    /// Binds all three.
    ///
    /// # Errors
    /// A sentence that names the port, the process that holds it and what to do.
    pub(crate) fn bind(config: &Config) -> Result<Listeners> {
        let own = config.own()?;
        let refusal = |error: io::Error, key: &str, port: u16| refusal(config, &error, key, port);
        let client_port = SocketAddr::new(config.bind, own.client_port);
        let clients =
            TcpListener::bind(client_port).map_err(|error| refusal(error, "client_port", own.client_port))?;
        let peer_port = SocketAddr::new(config.bind, own.peer_port);
        let peers =
            TcpListener::bind(peer_port).map_err(|error| refusal(error, "peer_port", own.peer_port))?;
        let http = std::net::TcpListener::bind(SocketAddr::new(config.bind, own.http_port))
            .map_err(|error| refusal(error, "http_port", own.http_port))?;
        http.set_nonblocking(true).context("cannot make the HTTP port non-blocking")?;
        Ok(Listeners { clients, peers, http })
    }
}

fn refusal(config: &Config, error: &io::Error, key: &str, port: u16) -> anyhow::Error {
    let what = format!("cannot listen on {}:{port}, the {key} of node {}", config.bind, config.node);
    if error.kind() != io::ErrorKind::AddrInUse {
        return anyhow::anyhow!("{what}: {error}");
    }
    if let Some(process) = files::running_process(&config.data) {
        return anyhow::anyhow!("{what}: this node already runs as process {process}");
    }
    let holder = holder::of_port(port).unwrap_or_else(|| "another program".into());
    let file = config.file.display();
    anyhow::anyhow!("{what}: {holder} holds the port; stop it, or choose another {key} in {file}")
}
