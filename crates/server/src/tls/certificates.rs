//! The node's certificate and the other material for new connections, read again when the files change.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use mio::Waker;
use node::NodeAddress;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::names::{check_node, common_name, expires_s, last_day};
use super::refusals::untrusted;
use crate::config::{ClientCertificates, Config, PeerTls, TlsSettings};

/// How often the files are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In this time before a certificate expires, a warning is logged once a day.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// What new connections are made with.
#[derive(Clone)]
pub(crate) struct Current {
    /// For connections of clients.
    pub(crate) clients: Arc<ServerConfig>,
    /// For connections between nodes; `None` if they are plain.
    pub(crate) peers: Option<ForPeers>,
    /// Whether nodes speak TLS among themselves.
    pub(crate) mode: PeerTls,
    /// Until when this node's certificate is valid, in seconds since the Unix epoch.
    pub(crate) expires_s: Option<u64>,
    /// The files were changed since, and cannot be used.
    pub(crate) is_unusable: bool,
    /// The number of changes so far.
    pub(crate) generation: u64,
}

/// What connections between nodes are made with.
#[derive(Clone)]
pub(crate) struct ForPeers {
    pub(super) accepts: Arc<ServerConfig>,
    pub(super) dials: Arc<ClientConfig>,
    verifier: Arc<OfNodes>,
}

impl ForPeers {
    /// Whether a certificate, with its intermediate certificates, comes from an authority that is trusted now. An expired
    /// certificate counts as trusted.
    pub(crate) fn trusts(&self, chain: &[CertificateDer<'static>]) -> bool {
        let Some((certificate, others)) = chain.split_first() else { return false };
        matches!(self.verifier.is_trusted(certificate, others), Ok(()) | Err(Untrusted::ByTime(_)))
    }
}

/// The files, and what was read from them.
pub(crate) struct Certificates {
    /// The configuration file, whose table `[tls]` is read again on request.
    file: PathBuf,
    own: NodeAddress,
    settings: TlsSettings,
    current: RwLock<Current>,
    /// Set by SIGHUP: read everything now.
    is_asked: Arc<AtomicBool>,
}

/// A file's modification time, length and inode when it was last checked. `None` if it does not exist.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Certificates {
    /// Reads the files. Setting `is_asked` requests that they are read again.
    ///
    /// # Errors
    /// A file cannot be read, or lacks what it must contain.
    pub(crate) fn read(
        config: &Config,
        settings: &TlsSettings,
        is_asked: Arc<AtomicBool>,
    ) -> Result<Certificates> {
        let own = config.own()?.clone();
        let (current, what) = load(settings, &own, 0).context("tls")?;
        tracing::info!("TLS with {what}");
        let (file, settings, current) = (config.file.clone(), settings.clone(), RwLock::new(current));
        Ok(Certificates { file, own, settings, current, is_asked })
    }

    /// What the next connection is made with.
    pub(crate) fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks the files for as long as the node runs. Wakes the worker when something has changed.
    pub(crate) async fn watch(&self, waker: &Waker) {
        let mut settings = self.settings.clone();
        let mut known = stamps(&settings);
        let mut seen = known;
        let mut warned: Option<Instant> = None;
        loop {
            if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) && self.warn_of_expiry(&settings) {
                warned = Some(Instant::now());
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let is_asked = self.is_asked.swap(false, Ordering::Relaxed);
            if is_asked {
                match self.settings_now() {
                    Ok(now) => settings = now,
                    Err(error) => {
                        tracing::warn!("[tls] is not read again, and stays as it was read before: {error:#}");
                    }
                }
            }
            let stamps = stamps(&settings);
            // A certificate and its key are not replaced at the same moment: files that are still changing are left
            // for the next check.
            let is_settled = std::mem::replace(&mut seen, stamps) == stamps;
            if is_asked || (is_settled && stamps != known) {
                known = stamps;
                self.reload(&settings);
                let _ = waker.wake();
            }
        }
    }

    /// Logs that the certificate expires soon. Returns false if it does not.
    fn warn_of_expiry(&self, settings: &TlsSettings) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let expires = self.current().expires_s.map(Duration::from_secs);
        let Some(left) = expires.map(|expires| expires.saturating_sub(now)) else { return false };
        if left > WARN_BEFORE {
            return false;
        }
        let file = settings.certificate.display();
        let what = match left.as_secs() {
            0 => "has expired: clients that check it do not connect".to_owned(),
            seconds => format!("expires in {} days", seconds / (24 * 3600)),
        };
        tracing::warn!("the certificate in {file} {what}; put a new one there: it is read without a restart");
        true
    }

    fn settings_now(&self) -> Result<TlsSettings> {
        let config = Config::read(&self.file)?;
        config.tls.with_context(|| format!("{} has no table [tls] any more", self.file.display()))
    }

    fn reload(&self, settings: &TlsSettings) {
        let before = self.current();
        match load(settings, &self.own, before.generation + 1) {
            Ok((current, what)) => {
                if current.mode != before.mode {
                    tracing::info!("tls.peers is {:?} from now on", current.mode.word());
                }
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = current;
                tracing::info!("new connections get new certificates: TLS with {what}");
            }
            Err(error) => {
                self.current.write().unwrap_or_else(PoisonError::into_inner).is_unusable = true;
                tracing::warn!(
                    "the changed files for TLS are not used, and those read before still are: {error:#}"
                );
            }
        }
    }
}

fn stamps(settings: &TlsSettings) -> [Stamp; 3] {
    use std::os::unix::fs::MetadataExt as _;
    let stamp = |file: &Path| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    let TlsSettings { certificate, key, authority, .. } = settings;
    [stamp(certificate), stamp(key), authority.as_deref().and_then(stamp)]
}

/// Reads the files. Returns what connections are made with, and a description for the log.
fn load(settings: &TlsSettings, own: &NodeAddress, generation: u64) -> Result<(Current, String)> {
    let TlsSettings { certificate, key, authority, client_certificates, peers, .. } = settings;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = authority.as_deref().map(authorities_in).transpose()?.map(Arc::new);
    let chain = certificates_in(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("{} has no private key in PEM", key.display()))?;
    let apart = || format!("{} and {} do not belong together", certificate.display(), key.display());

    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match (client_certificates, &roots) {
        (ClientCertificates::Off, _) | (_, None) => builder.with_no_client_auth(),
        (wanted, Some(roots)) => builder.with_client_cert_verifier(of_clients(roots, &provider, *wanted)?),
    };
    let clients = builder.with_single_cert(chain.clone(), secret.clone_key()).with_context(apart)?;
    let clients = Arc::new(without_sessions(clients));

    let peers_now = match (peers, &roots) {
        (PeerTls::Off, _) | (_, None) => None,
        (_, Some(roots)) => {
            let verifier = Arc::new(OfNodes::new(roots, &provider)?);
            check_own(&chain, own, &verifier).with_context(|| certificate.display().to_string())?;
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
            let accepts = builder
                .with_protocol_versions(&[&TLS13])?
                .with_client_cert_verifier(of_clients(roots, &provider, ClientCertificates::Required)?)
                .with_single_cert(chain.clone(), secret.clone_key())
                .with_context(apart)?;
            let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
            let mut dials = builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
                .with_client_auth_cert(chain.clone(), secret)
                .with_context(apart)?;
            dials.resumption = Resumption::disabled();
            Some(ForPeers { accepts: Arc::new(without_sessions(accepts)), dials: Arc::new(dials), verifier })
        }
    };
    let own = &chain[0];
    let name = common_name(own).map_or(String::new(), |name| format!(" of \"{}\"", name.escape_debug()));
    let day = last_day(own).map_or(String::new(), |day| format!(", valid until {day}"));
    let what = format!("the certificate{name} in {}{day}", certificate.display());
    let expires_s = expires_s(own);
    Ok((Current { clients, peers: peers_now, mode: *peers, expires_s, is_unusable: false, generation }, what))
}

/// Disables session resumption: each connection authenticates again, so that new certificates and authorities apply
/// to all later ones.
fn without_sessions(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Returns what checks clients' certificates.
fn of_clients(
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    wanted: ClientCertificates,
) -> Result<Arc<dyn ClientCertVerifier>> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    let verifier = match wanted {
        ClientCertificates::Required => verifier,
        ClientCertificates::Off | ClientCertificates::Wanted => verifier.allow_unauthenticated(),
    };
    Ok(verifier.build()?)
}

/// Checks that other nodes would accept this node's certificate. An expired certificate is logged and still used, since
/// clients may accept it.
fn check_own(chain: &[CertificateDer<'static>], own: &NodeAddress, verifier: &OfNodes) -> Result<()> {
    let (certificate, others) = chain.split_first().context("it has no certificate")?;
    check_node(certificate, own.id, &own.host).map_err(|why| anyhow!("tls.peers: {why}"))?;
    match verifier.is_trusted(certificate, others) {
        Ok(()) => Ok(()),
        Err(Untrusted::ByTime(error)) => {
            tracing::warn!("other nodes accept no new link from this one: {}", untrusted(&error));
            Ok(())
        }
        Err(Untrusted::Never(Error::InvalidCertificate(error))) => bail!("tls.peers: {}", untrusted(&error)),
        Err(Untrusted::Never(error)) => Err(error.into()),
    }
}

/// Why a certificate is not trusted.
enum Untrusted {
    /// It is not valid now.
    ByTime(CertificateError),
    /// For another reason.
    Never(Error),
}

/// Checks the certificates of dialled nodes, except for their names: only the worker knows which node it must be.
#[derive(Debug)]
struct OfNodes(Arc<WebPkiServerVerifier>);

impl OfNodes {
    fn new(roots: &Arc<RootCertStore>, provider: &Arc<CryptoProvider>) -> Result<OfNodes> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
        Ok(OfNodes(verifier.build()?))
    }

    /// Checks a certificate outside a handshake.
    fn is_trusted(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<(), Untrusted> {
        // Names are checked by the worker.
        let any_name = ServerName::IpAddress(IpAddr::from(Ipv4Addr::UNSPECIFIED).into());
        match self.verify_server_cert(certificate, others, &any_name, &[], UnixTime::now()) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(
                error @ (CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }),
            )) => Err(Untrusted::ByTime(error)),
            Err(error) => Err(Untrusted::Never(error)),
        }
    }
}

impl ServerCertVerifier for OfNodes {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // The name is checked last, so everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The certificates in a file, in PEM.
///
/// # Errors
/// It cannot be read, or has none.
pub fn certificates_in(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let what = || format!("{} has no certificates in PEM", file.display());
    let found = CertificateDer::pem_file_iter(file).with_context(what)?;
    let found = found.collect::<Result<Vec<_>, _>>().with_context(what)?;
    ensure!(!found.is_empty(), what());
    Ok(found)
}

/// The authorities in a file, in PEM.
///
/// # Errors
/// It cannot be read, has none, or has a certificate that is no authority's.
pub fn authorities_in(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for found in certificates_in(file)? {
        let what = || format!("{} has a certificate that is no authority's", file.display());
        roots.add(found).with_context(what)?;
    }
    Ok(roots)
}
