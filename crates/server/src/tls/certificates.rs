//! The node's certificate and what else new connections are made with, read again when the files change.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::names::{common_name, last_day};
use crate::config::{ClientCertificates, TlsSettings};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What new connections are made with.
pub(crate) struct Certificates {
    settings: TlsSettings,
    current: RwLock<Arc<ServerConfig>>,
    /// Set by SIGHUP: read the files now.
    is_asked: Arc<AtomicBool>,
}

/// How a file stood when it was looked at: when it was written, its length and its number. `None` if it is not there.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Certificates {
    /// Reads the files. `is_asked` is set by whoever wants them to be read again.
    ///
    /// # Errors
    /// One cannot be read, or has not what it should have.
    pub(crate) fn read(settings: &TlsSettings, is_asked: Arc<AtomicBool>) -> Result<Certificates> {
        let (config, what) = load(settings).context("tls")?;
        tracing::info!("TLS with {what}");
        Ok(Certificates { settings: settings.clone(), current: RwLock::new(Arc::new(config)), is_asked })
    }

    /// What the next connection is made with.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the files for as long as the node runs.
    pub(crate) async fn watch(&self) {
        let mut known = self.stamps();
        let mut seen = known;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let stamps = self.stamps();
            // A certificate and its key are not replaced at one moment: what is still changing is left for the next look.
            let is_settled = std::mem::replace(&mut seen, stamps) == stamps;
            let is_asked = self.is_asked.swap(false, Ordering::Relaxed);
            if is_asked || (is_settled && stamps != known) {
                known = stamps;
                self.reload();
            }
        }
    }

    fn reload(&self) {
        match load(&self.settings) {
            Ok((config, what)) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!("new connections get new certificates: TLS with {what}");
            }
            Err(error) => {
                tracing::warn!(
                    "the changed files for TLS are not used, and those read before still are: {error:#}"
                );
            }
        }
    }

    fn stamps(&self) -> [Stamp; 3] {
        use std::os::unix::fs::MetadataExt as _;
        let stamp = |file: &Path| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        };
        let TlsSettings { certificate, key, authority, .. } = &self.settings;
        [stamp(certificate), stamp(key), authority.as_deref().and_then(stamp)]
    }
}

/// Reads the files. Returns what connections are made with, and a description for the log.
fn load(settings: &TlsSettings) -> Result<(ServerConfig, String)> {
    let TlsSettings { certificate, key, authority, client_certificates, .. } = settings;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match (client_certificates, authority) {
        (ClientCertificates::Off, _) | (_, None) => builder.with_no_client_auth(),
        (wanted, Some(authority)) => {
            let roots = authorities_in(authority)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match wanted {
                ClientCertificates::Wanted => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = certificates_in(certificate)?;
    let own = chain[0].clone();
    let secret = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("{} has no private key in PEM", key.display()))?;
    let what = || format!("{} and {} do not belong together", certificate.display(), key.display());
    let mut config = builder.with_single_cert(chain, secret).with_context(what)?;
    // Each connection proves anew who it is, so that new certificates and authorities hold for all that follow.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let name = common_name(&own).map_or(String::new(), |name| format!(" of \"{}\"", name.escape_debug()));
    let day = last_day(&own).map_or(String::new(), |day| format!(", valid until {day}"));
    Ok((config, format!("the certificate{name} in {}{day}", certificate.display())))
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
