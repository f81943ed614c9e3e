//! The ports of a node, all bound before anything else starts.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use mio::net::TcpListener;

use crate::config::{Config, TlsSettings};
use crate::{files, holder};

pub(crate) struct Listeners {
    /// For the Redis protocol, unless its port speaks TLS only.
    pub(crate) clients: Option<TcpListener>,
    /// For the other nodes.
    pub(crate) peers: TcpListener,
    /// For HTTP, unless its port speaks TLS only. Not mio's type: it is passed to HTTP's own runtime.
    pub(crate) http: Option<std::net::TcpListener>,
    /// For the Redis protocol and for HTTP over TLS. They are passed to runtimes too.
    pub(crate) tls_clients: Option<std::net::TcpListener>,
    pub(crate) tls_http: Option<std::net::TcpListener>,
}

impl Listeners {
    /// Binds all of them.
    ///
    /// # Errors
    /// A sentence that names the port, the process that holds it and what to do.
    pub(crate) fn bind(config: &Config) -> Result<Listeners> {
        let own = config.own()?;
        let for_worker = |port: u16, key: &str| {
            let address = SocketAddr::new(config.bind, port);
            TcpListener::bind(address).map_err(|error| refusal(config, &error, key, address))
        };
        let for_runtime = |address: SocketAddr, key: &str| {
            let listener = std::net::TcpListener::bind(address)
                .map_err(|error| refusal(config, &error, key, address))?;
            listener.set_nonblocking(true).with_context(|| format!("cannot make the {key} non-blocking"))?;
            Ok::<_, anyhow::Error>(listener)
        };
        let tls = config.tls.as_ref();
        let tls_at = |port: fn(&TlsSettings) -> u16| {
            let bind = tls.and_then(|tls| tls.bind).unwrap_or(config.bind);
            tls.map(port).filter(|port| *port != 0).map(|port| SocketAddr::new(bind, port))
        };
        let (tls_clients, tls_http) = (tls_at(|tls| tls.client_port), tls_at(|tls| tls.http_port));
        let clients = config.has_plain_port(|tls| tls.client_port, |own| own.client_port);
        let clients = clients.then(|| for_worker(own.client_port, "client_port")).transpose()?;
        let peers = for_worker(own.peer_port, "peer_port")?;
        let http = config.has_plain_port(|tls| tls.http_port, |own| own.http_port);
        let http_at = SocketAddr::new(config.bind, own.http_port);
        let http = http.then(|| for_runtime(http_at, "http_port")).transpose()?;
        let tls_clients = tls_clients.map(|at| for_runtime(at, "tls.client_port")).transpose()?;
        let tls_http = tls_http.map(|at| for_runtime(at, "tls.http_port")).transpose()?;
        Ok(Listeners { clients, peers, http, tls_clients, tls_http })
    }
}

fn refusal(config: &Config, error: &io::Error, key: &str, address: SocketAddr) -> anyhow::Error {
    let (what, port) =
        (format!("cannot listen on {address}, the {key} of node {}", config.node), address.port());
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
