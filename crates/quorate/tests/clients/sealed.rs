//! `quorate import rediss://…`: imports over TLS.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::dump::{client_of, run};
use crate::live::Import;
use crate::scripts::Redis;
use crate::support::{Cluster, as_text, free_ports, until};

/// An authority, and the files of the certificates that it issues.
struct Authority {
    folder: PathBuf,
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &'static str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder: folder.to_owned(), name, issuer: Issuer::new(params, key) }
    }

    /// The file with its certificate.
    fn file(&self) -> String {
        self.folder.join(format!("{}.pem", self.name)).to_str().unwrap().to_owned()
    }

    /// Issues a certificate. Returns the certificate's and the key's file.
    fn issue(&self, names: Vec<SanType>) -> [String; 2] {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a server");
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let number = std::fs::read_dir(&self.folder).unwrap().count();
        [("crt", certificate.pem()), ("key", key.serialize_pem())].map(|(end, text)| {
            let file = self.folder.join(format!("{number}.{end}"));
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        })
    }
}

/// Starts a server that also speaks TLS, at the returned port.
fn start(authority: &Authority, [certificate, key]: &[String; 2], more: &[&str]) -> Option<(Redis, u16)> {
    let sealed = free_ports(1);
    let port = sealed.to_string();
    let trusted = authority.file();
    let own = ["--tls-port", &port, "--tls-cert-file", certificate, "--tls-key-file", key, "--save", ""];
    let own = [&own[..], &["--tls-ca-cert-file", &trusted, "--repl-diskless-sync-delay", "0"], more].concat();
    Some((Redis::start_with(&own)?, sealed))
}

fn local() -> Vec<SanType> {
    vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))]
}

#[test]
fn a_server_with_tls_is_imported_only_if_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "others"));
    let files = authority.issue(local());
    let Some((redis, sealed)) = start(&authority, &files, &["--tls-auth-clients", "no"]) else { return };
    let mut client = client_of(redis.1);
    for number in 0..2000 {
        run(&mut client, &[b"SET", format!("k{number}").as_bytes(), &[b'v'; 300]]);
    }
    let cluster = Cluster::start(1, &[]);
    let mut ours = cluster.client(1);
    run(&mut ours, &[b"SET", b"ours", b"v"]);
    let from = |port: u16| format!("rediss://127.0.0.1:{port}");
    let refused = |from: &str, more: &[&str], why: &str| {
        let more = [&["--empty-first", "--until", "caught-up"], more].concat();
        let (went_well, output) = Import::start_from(from, &cluster, &more).finish();
        assert!(!went_well && output.contains(why), "{more:?}: {output}");
    };
    let (trusted, others) = (authority.file(), other.file());
    refused(
        &from(sealed),
        &["--tls-ca", &others],
        "its certificate was issued by \"ours\", which is not among",
    );
    refused(&from(sealed), &[], "which is not among those that this machine trusts");
    let wrong = ["--tls-ca", &trusted, "--tls-server-name", "redis.example"];
    refused(&from(sealed), &wrong, "its certificate is for 127.0.0.1, and not for redis.example");
    refused(
        &format!("redis://127.0.0.1:{sealed}"),
        &[],
        "it has closed the connection without an answer: is it a port for TLS",
    );
    refused(&format!("redis://127.0.0.1:{sealed}"), &["--tls-ca", &trusted], "are for rediss://");
    refused(&from(redis.1), &["--tls-ca", &trusted], "is this its port for TLS?");
    refused(&from(sealed), &["--tls-ca", "missing.pem"], "missing.pem has no certificates in PEM");
    refused(&from(sealed), &["--tls-ca", &files[1]], "has no certificates in PEM");
    // Refused imports have changed nothing.
    assert_eq!(as_text(&run(&mut ours, &[b"KEYS", b"*"])), "[\"ours\"]");

    let import = Import::start_from(
        &from(sealed),
        &cluster,
        &["--empty-first", "--compare", "whole", "--tls-ca", &trusted],
    );
    until("the snapshot is loaded", || as_text(&run(&mut ours, &[b"EXISTS", b"k1999"])) == "1");
    for number in 1000..3000 {
        run(&mut client, &[b"APPEND", format!("k{number}").as_bytes(), b"w"]);
    }
    let (went_well, output) = import.end();
    assert!(went_well && output.contains("compared: 3000 keys, 0 differ"), "{output}");
    assert_eq!(as_text(&run(&mut ours, &[b"STRLEN", b"k1999"])), "301");
    assert_eq!(as_text(&run(&mut ours, &[b"EXISTS", b"ours"])), "0");
}

#[test]
fn a_server_that_requires_client_certificates_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "others"));
    let name = SanType::DnsName("redis.example".try_into().unwrap());
    let Some((redis, sealed)) = start(&authority, &authority.issue(vec![name]), &[]) else { return };
    run(&mut client_of(redis.1), &[b"SET", b"k", b"v"]);
    let cluster = Cluster::start(1, &[]);
    let from = format!("rediss://127.0.0.1:{sealed}");
    let (trusted, [cert, key]) = (authority.file(), authority.issue(Vec::new()));
    let [others_cert, others_key] = other.issue(Vec::new());
    let tried = |more: &[&str]| {
        let more = [&["--until", "caught-up", "--tls-ca", &trusted], more].concat();
        Import::start_from(&from, &cluster, &more).finish()
    };
    let any = "--tls-any-name";
    for (more, why) in [
        (&[any][..], "it wants a certificate of this client: give one by --tls-cert and --tls-key"),
        (
            &[any, "--tls-cert", &others_cert, "--tls-key", &others_key],
            "it does not accept this client's certificate",
        ),
        (&[any, "--tls-cert", &cert, "--tls-key", &others_key], "do not belong together"),
        (&[any, "--tls-cert", &cert], "--tls-key"),
        (&["--tls-cert", &cert, "--tls-key", &key], "is for redis.example, and not for 127.0.0.1"),
    ] {
        let (went_well, output) = tried(more);
        assert!(!went_well && output.contains(why), "{more:?}: {output}");
    }
    for named in [&[any][..], &["--tls-server-name", "redis.example"]] {
        let (went_well, output) =
            tried(&[named, &["--empty-first", "--tls-cert", &cert, "--tls-key", &key]].concat());
        assert!(went_well, "{output}");
        assert_eq!(as_text(&run(&mut cluster.client(1), &[b"GET", b"k"])), "\"v\"");
    }
}

#[test]
fn the_shards_of_a_redis_cluster_are_imported_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ours");
    let files = authority.issue(local());
    let mut servers = Vec::new();
    for number in 0..2 {
        let file = folder.path().join(format!("nodes-{number}"));
        let bus = free_ports(1).to_string();
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file"];
        let more =
            [&cluster[..], &[file.to_str().unwrap(), "--tls-auth-clients", "no", "--tls-cluster", "yes"]]
                .concat();
        let Some((redis, sealed)) = start(&authority, &files, &more) else { return };
        let mut client = client_of(redis.1);
        let (first, last) = [("0", "8191"), ("8192", "16383")][number];
        run(&mut client, &[b"CLUSTER", b"ADDSLOTSRANGE", first.as_bytes(), last.as_bytes()]);
        servers.push((redis, sealed, bus));
    }
    let (_, sealed, bus) = &servers[1];
    let mut clients: Vec<_> = servers.iter().map(|(redis, _, _)| client_of(redis.1)).collect();
    let meet = [&b"CLUSTER"[..], b"MEET", b"127.0.0.1", &sealed.to_string().into_bytes(), bus.as_bytes()]
        .map(<[u8]>::to_vec);
    run(&mut clients[0], &meet.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let is_ready = |client: &mut redis::Connection| {
        as_text(&run(client, &[b"CLUSTER", b"INFO"])).contains("cluster_state:ok")
    };
    until("the cluster is ready", || clients.iter_mut().all(is_ready));
    for number in 0..500 {
        let key = format!("k{number}");
        let owner = usize::from(cluster::slots::slot_of(key.as_bytes()) / 8192);
        run(&mut clients[owner], &[b"SET", key.as_bytes(), b"v"]);
    }
    let cluster = Cluster::start(1, &[]);
    let trusted = authority.file();
    let more = ["--until", "caught-up", "--tls-ca", &trusted];
    let (went_well, output) =
        Import::start_from(&format!("rediss://127.0.0.1:{}", servers[0].1), &cluster, &more).finish();
    assert!(went_well && output.contains("a cluster of 2 servers"), "{output}");
    assert_eq!(as_text(&run(&mut cluster.client(1), &[b"DBSIZE"])), "500");
}
