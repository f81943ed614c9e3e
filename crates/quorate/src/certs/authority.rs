//! A cluster's own authority: a key, and the certificate that clients and nodes trust.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose as Purpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose as Usage, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use server::tls::names::{common_name, last_day};

/// How many days the authority is valid.
const AUTHORITY_DAYS: u32 = 7300;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The file of the authority's certificate in its folder.
pub(crate) const AUTHORITY_FILE: &str = "authority.crt";
/// The file of the authority's key.
pub(crate) const AUTHORITY_KEY_FILE: &str = "authority.key";

/// An authority and the folder that has its files.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// The owner of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A node's, with the names and addresses by which clients reach it.
    Node { id: u16, hosts: Vec<String> },
    /// A client's, with its name.
    Client { name: String },
}

impl Owner {
    /// The names of the files with its certificate and its key.
    pub(crate) fn files(&self) -> [String; 2] {
        let stem = match self {
            Owner::Node { id, .. } => format!("node-{id}"),
            Owner::Client { name } => format!("client-{name}"),
        };
        [format!("{stem}.crt"), format!("{stem}.key")]
    }

    /// The names and addresses of a node, with those by which this machine reaches itself.
    pub(crate) fn all_hosts(&self) -> Vec<String> {
        let Owner::Node { hosts, .. } = self else { return Vec::new() };
        let local = ["localhost".into(), Ipv4Addr::LOCALHOST.to_string(), Ipv6Addr::LOCALHOST.to_string()];
        let mut all = hosts.clone();
        all.extend(local.into_iter().filter(|host| !hosts.contains(host)));
        all
    }
}

impl Authority {
    /// Opens the authority of a folder, or makes one if there is none. Also returns whether it was made.
    ///
    /// # Errors
    /// Its files cannot be read or written, or were made by another program.
    pub(crate) fn open(folder: &Path) -> Result<(Authority, bool)> {
        let [certificate, key] = [AUTHORITY_FILE, AUTHORITY_KEY_FILE].map(|name| folder.join(name));
        match (certificate.exists(), key.exists()) {
            (true, true) => Ok((Authority::read(folder)?, false)),
            (false, false) => Ok((Authority::make(folder)?, true)),
            (has_certificate, _) => {
                let (there, missing) = if has_certificate { (certificate, key) } else { (key, certificate) };
                bail!("{} exists, but {} does not: use another folder", there.display(), missing.display())
            }
        }
    }

    fn make(folder: &Path) -> Result<Authority> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let number = getrandom::u32().context("the system gives no random numbers")?;
        let mut params = authority_params(&format!("Quorate authority {number:08x}"));
        set_validity(&mut params, AUTHORITY_DAYS);
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.self_signed(&key).context("cannot make a certificate")?;
        write_new(&folder.join(AUTHORITY_KEY_FILE), &key.serialize_pem(), 0o600)?;
        write_new(&folder.join(AUTHORITY_FILE), &certificate.pem(), 0o644)?;
        Ok(Authority { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    fn read(folder: &Path) -> Result<Authority> {
        let file = folder.join(AUTHORITY_FILE);
        let key_file = folder.join(AUTHORITY_KEY_FILE);
        let certificate = CertificateDer::from_pem_file(&file)
            .with_context(|| format!("{} has no certificate in PEM", file.display()))?;
        let text =
            fs::read_to_string(&key_file).with_context(|| format!("cannot read {}", key_file.display()))?;
        let key = KeyPair::from_pem(&text)
            .with_context(|| format!("{} has no private key in PEM", key_file.display()))?;
        let own = key.public_key_raw();
        ensure!(
            certificate.windows(own.len()).any(|part| part == own),
            "{} and {} do not belong together",
            file.display(),
            key_file.display()
        );
        let name = common_name(&certificate).unwrap_or_default();
        ensure!(
            name.starts_with("Quorate authority "),
            "{} was not made by `quorate certs`: issue certificates by the program that made it, or use another folder",
            file.display()
        );
        Ok(Authority { folder: folder.to_owned(), issuer: Issuer::new(authority_params(&name), key) })
    }

    /// Issues a certificate that is valid for this many days, and writes it and its key. Returns the last day.
    ///
    /// # Errors
    /// A file exists already or cannot be written, or a name is not one that a certificate can have.
    pub(crate) fn issue(&self, owner: &Owner, days: u32) -> Result<String> {
        let [certificate_file, key_file] = owner.files().map(|name| self.folder.join(name));
        let mut params = CertificateParams::default();
        params.subject_alt_names =
            owner.all_hosts().iter().map(|host| alternative(host)).collect::<Result<_>>()?;
        params.key_usages = vec![Usage::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let (name, purposes) = match owner {
            // Nodes are clients of each other.
            Owner::Node { id, .. } => (format!("node-{id}"), vec![Purpose::ServerAuth, Purpose::ClientAuth]),
            Owner::Client { name } => (name.clone(), vec![Purpose::ClientAuth]),
        };
        params.extended_key_usages = purposes;
        params.distinguished_name = named(&name);
        set_validity(&mut params, days);
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("cannot make a certificate")?;
        write_new(&key_file, &key.serialize_pem(), 0o600)?;
        write_new(&certificate_file, &certificate.pem(), 0o644)?;
        Ok(last_day(certificate.der()).unwrap_or_default())
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![Usage::KeyCertSign, Usage::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// From yesterday on, since clocks differ.
fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
}

fn alternative(host: &str) -> Result<SanType> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    node::check_host(host).map_err(|why| anyhow::anyhow!("{host}: {why}"))?;
    let name = host.try_into().with_context(|| format!("{host} is no name that a certificate can have"))?;
    Ok(SanType::DnsName(name))
}

/// Writes a file that must not exist yet.
fn write_new(file: &Path, text: &str, mode: u32) -> Result<()> {
    let write = || {
        let mut target = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
        target.write_all(text.as_bytes())?;
        target.sync_all()
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}
