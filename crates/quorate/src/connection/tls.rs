//! TLS to a cluster, or to the server that keys are imported from: whom to trust, and errors in plain words.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    OtherError, RootCertStore, SignatureScheme,
};
use server::tls::names::readable;
use server::tls::{authorities_in, certificates_in};

/// Which authorities to trust, and which certificate to present.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The file with the certificates of the authorities to trust; without it, the authorities that this machine
    /// trusts.
    pub(crate) authority: Option<PathBuf>,
    /// The files of this client's certificate and its key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
    /// The name that certificates must have, if not the server's host.
    pub(crate) name: Option<String>,
    /// A certificate may have any name.
    pub(crate) takes_any_name: bool,
}

/// What to do about an error, in terms of the command's options.
#[derive(Debug)]
pub(crate) struct Hints {
    authority: &'static str,
    own: &'static str,
    name: &'static str,
}

/// The options of commands that connect to a cluster.
pub(crate) static FOR_CLUSTERS: Hints = Hints {
    authority: "--cacert",
    own: "--cert and --key",
    name: "ask it by a name that its certificate has, or make it another one (quorate certs)",
};

/// The options for a server that keys are imported from.
pub(crate) static FOR_OLD_SERVERS: Hints = Hints {
    authority: "--tls-ca",
    own: "--tls-cert and --tls-key",
    name: "give its name by --tls-server-name, or --tls-any-name",
};

/// How to speak TLS with servers.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// The name that certificates must have, if not the server's host.
    name: Option<ServerName<'static>>,
    hints: &'static Hints,
}

impl Tls {
    /// Reads the named files.
    ///
    /// # Errors
    /// A file cannot be read, or lacks what it must contain.
    pub(crate) fn new(trust: &Trust, hints: &'static Hints) -> Result<Tls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (roots, trusted) = match &trust.authority {
            Some(file) => (authorities_in(file)?, format!("the authorities of {}", file.display())),
            None => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                let option = hints.authority;
                ensure!(!roots.is_empty(), "this machine trusts no authority: name one by {option}");
                (roots, "those that this machine trusts".to_owned())
            }
        };
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
        let verifier = Verifier { inner, trusted, takes_any_name: trust.takes_any_name, hints };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &trust.own {
            Some((cert, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key)
                    .with_context(|| format!("{} has no private key in PEM", key.display()))?;
                let what = || format!("{} and {} do not belong together", cert.display(), key.display());
                builder.with_client_auth_cert(certificates_in(cert)?, secret).with_context(what)?
            }
            None => builder.with_no_client_auth(),
        };
        let name = trust.name.as_deref().map(server_name).transpose()?;
        Ok(Tls { config: Arc::new(config), name, hints })
    }

    /// A new session with the server at HOST:PORT.
    ///
    /// # Errors
    /// The host is not a name that a certificate can have.
    pub(super) fn session(&self, address: &str) -> Result<ClientConnection> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(address.rsplit_once(':').map_or(address, |(host, _)| host))?,
        };
        Ok(ClientConnection::new(self.config.clone(), name)?)
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .with_context(|| format!("\"{host}\" is no name that a certificate can have"))
}

/// Checks certificates in the usual way, and explains in plain words why one is refused.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    /// The trusted authorities, in words.
    trusted: String,
    takes_any_name: bool,
    hints: &'static Hints,
}

/// Why a certificate is refused.
#[derive(Debug)]
struct Untrusted(String);

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked = self.inner.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        match checked {
            // The name is checked last, so everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.takes_any_name => Ok(ServerCertVerified::assertion()),
            Err(Error::InvalidCertificate(error)) => {
                let why = Untrusted(self.words(&error, certificate));
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why)))))
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl Verifier {
    fn words(&self, error: &CertificateError, certificate: &CertificateDer<'_>) -> String {
        const DAY: u64 = 24 * 60 * 60;
        match error {
            CertificateError::UnknownIssuer => {
                let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
                    return "its certificate does not come from a trusted authority".to_owned();
                };
                let issuer = match readable(certificate.issuer()) {
                    own if own == readable(certificate.subject()) => format!("itself ({own})"),
                    issuer => issuer,
                };
                format!(
                    "its certificate was issued by {issuer}, which is not among {}: if you trust it, give the certificate of that \
                     authority by {}",
                    self.trusted, self.hints.authority
                )
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
                let names = match &names[..] {
                    [] => "no name at all".to_owned(),
                    names => names.join(", "),
                };
                format!(
                    "its certificate is for {names}, and not for {}: {}",
                    expected.to_str(),
                    self.hints.name
                )
            }
            CertificateError::ExpiredContext { time, not_after } => {
                let days = time.as_secs().saturating_sub(not_after.as_secs()) / DAY;
                format!("its certificate expired {days} days ago, by this machine's clock")
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                let days = not_before.as_secs().saturating_sub(time.as_secs()) / DAY;
                format!("its certificate is valid in {days} days only, by this machine's clock")
            }
            CertificateError::Other(OtherError(why)) => match why.downcast_ref() {
                Some(webpki::Error::CaUsedAsEndEntity) => format!(
                    "its certificate is one for authorities (CA:TRUE), and not for servers: issue one for the server by it, \
                     and give the authority's by {}",
                    self.hints.authority
                ),
                Some(webpki::Error::UnsupportedCertVersion) => {
                    "its certificate is of version 1, which has no names of \
                     servers: issue one of version 3, with subjectAltName"
                        .to_owned()
                }
                _ => format!("its certificate is not accepted: {why}"),
            },
            other => format!("its certificate is not accepted: {other}"),
        }
    }
}

/// The name in `DnsName("name")`.
fn bare(presented: &str) -> &str {
    let inner = presented.split_once('(').map_or(presented, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

impl Tls {
    /// Whether TLS itself failed, and not the connection below it.
    pub(super) fn is_of_tls(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Error>())
    }

    /// Explains why a handshake failed.
    pub(super) fn refusal(&self, error: &io::Error) -> String {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => self.words(error),
            None => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    "no answer to TLS: is this its port for TLS?".to_owned()
                }
                _ => format!("it does not answer to TLS ({error}): is this its port for TLS?"),
            },
        }
    }

    /// A TLS error in plain words.
    pub(super) fn words(&self, error: &Error) -> String {
        use AlertDescription as Alert;
        match error {
            Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => why.to_string(),
            Error::InvalidMessage(_) => {
                "what it sends is not TLS: its TLS port is a different one".to_owned()
            }
            Error::AlertReceived(Alert::CertificateRequired) => {
                format!("it wants a certificate of this client: give one by {}", self.hints.own)
            }
            Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied),
            ) => {
                format!("it does not accept this client's certificate ({alert:?}): see {}", self.hints.own)
            }
            Error::AlertReceived(alert) => format!("it ends TLS with \"{alert:?}\""),
            error => error.to_string(),
        }
    }
}
