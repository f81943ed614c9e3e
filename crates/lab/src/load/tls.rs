//! TLS to the servers: whom to trust, and a socket that encrypts what goes over it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};

use super::Error;

/// Which authorities to trust, and which certificate to present.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The file with the certificates of the authorities to trust; without it, the authorities that this machine
    /// trusts.
    pub authority: Option<PathBuf>,
    /// The files of this client's certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// How to speak TLS with the servers.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// The names that the servers' certificates must have, in the order of their addresses.
    names: Vec<ServerName<'static>>,
}

impl Tls {
    /// Reads the named files. `hosts` has one host for each address, as the user gave it.
    ///
    /// # Errors
    /// A file cannot be read, or lacks what it must contain; or a host is not a name that a certificate can have.
    pub fn new<'a>(trust: &Trust, hosts: impl Iterator<Item = &'a str>) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(usage)?
            .with_root_certificates(roots(trust)?);
        let config = match &trust.own {
            Some((certificate, key)) => {
                let chain = certificates_in(certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| usage(format!("{}: no private key in PEM: {error}", key.display())))?;
                builder.with_client_auth_cert(chain, secret).map_err(usage)?
            }
            None => builder.with_no_client_auth(),
        };
        let name = |host: &str| {
            let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            ServerName::try_from(bare)
                .map_err(|_| usage(format!("\"{host}\" is no name that a certificate can have")))
        };
        Ok(Tls { config: Arc::new(config), names: hosts.map(name).collect::<Result<_, _>>()? })
    }

    fn session(&self, address: usize) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.names[address].clone()).map_err(in_words)
    }
}

fn usage(error: impl ToString) -> Error {
    Error::Usage(error.to_string())
}

fn roots(trust: &Trust) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match &trust.authority {
        Some(file) => {
            for certificate in certificates_in(file)? {
                roots.add(certificate).map_err(|error| usage(format!("{}: {error}", file.display())))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(usage("this machine trusts no authority: name one by --cacert"));
            }
        }
    }
    Ok(roots)
}

fn certificates_in(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let of_file = |error: &dyn std::fmt::Display| usage(format!("{}: {error}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(|error| of_file(&error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| of_file(&error))?;
    if found.is_empty() { Err(of_file(&"it has no certificate in PEM")) } else { Ok(found) }
}

/// A TLS error in words, with what to do about it.
fn in_words(error: rustls::Error) -> io::Error {
    let words = match &error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is from no trusted authority: if you trust that one, give its certificate by --cacert".into()
        }
        rustls::Error::InvalidMessage(_) => {
            "what it sends is not TLS: its TLS port is a different one".into()
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it wants a certificate of this client: give one by --cert and --key".into()
        }
        error => error.to_string(),
    };
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// A connected or connecting socket, plain or with TLS.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl Socket {
    /// Starts connecting to an address: the one with this number among the servers'.
    pub(crate) fn open(address: SocketAddr, number: usize, tls: Option<&Tls>) -> io::Result<Socket> {
        let session = tls.map(|tls| tls.session(number)).transpose()?.map(Box::new);
        Ok(Socket { stream: TcpStream::connect(address)?, session })
    }

    /// Sends what is encrypted and has not left yet. Returns whether all of it has.
    pub(crate) fn push(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else { return Ok(true) };
        while session.wants_write() {
            match session.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads until the buffer is full or the socket has no more: encrypted records have no edges of their own.
    fn decrypt(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.read(room) };
        let mut filled = 0;
        let end = loop {
            match session.reader().read(&mut room[filled..]) {
                Ok(0) => break Ok(0),
                Ok(count) => {
                    filled += count;
                    if filled == room.len() {
                        return Ok(filled);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => break Err(error),
            }
            match session.read_tls(&mut self.stream) {
                Ok(0) => break Ok(0),
                Ok(_) => {
                    if let Err(error) = session.process_new_packets() {
                        // The server's log then says why this client left.
                        let _ = session.write_tls(&mut self.stream);
                        break Err(in_words(error));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        // The handshake goes on, or the server has new keys.
        self.push()?;
        // What ends the stream is found again by the next read.
        if filled > 0 { Ok(filled) } else { end }
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.decrypt(room)
    }
}

impl Write for Socket {
    /// Bytes count as written once they are encrypted: [`Socket::push`] sends what the socket did not take.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.push()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(session) = &mut self.session else { return self.stream.write(bytes) };
        let written = session.writer().write(bytes)?;
        self.push()?;
        match written {
            // There is no room for more before the handshake is over.
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
