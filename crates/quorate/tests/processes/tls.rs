//! TLS: clients, HTTP, certificates that are replaced, and strangers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lab::load::{Options, Sizes, Stop, Tls, Transport, Trust};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use server::tls::names::common_name;

use super::support::{
    Client, Cluster, Server, cluster_command, configuration, connect, free_ports, quorate, request, signal,
    until,
};

/// A folder with an authority, made by `quorate certs`.
pub(crate) struct Certs(tempfile::TempDir);

impl Certs {
    /// Makes an authority and issues the requested certificates.
    pub(crate) fn new(arguments: &[&str]) -> Certs {
        let certs = Certs(tempfile::tempdir().unwrap());
        let (went_well, output) = certs.issue(arguments);
        assert!(went_well, "{output}");
        certs
    }

    /// Issues more. Returns whether it succeeded, and what it printed.
    pub(crate) fn issue(&self, arguments: &[&str]) -> (bool, String) {
        let output = quorate().arg("certs").arg("--dir").arg(self.0.path()).args(arguments).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(printed).unwrap())
    }

    /// The authority itself, for certificates that `quorate certs` does not issue.
    pub(crate) fn authority(&self) -> Issuer<'static, KeyPair> {
        let own = CertificateDer::from_pem_file(self.file("authority.crt")).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name(&own).unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::from_pem(&fs::read_to_string(self.file("authority.key")).unwrap()).unwrap();
        Issuer::new(params, key)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A node with a port for clients over TLS and one for HTTP.
struct Node {
    server: Server,
    tls_port: u16,
    https_port: u16,
}

impl Node {
    /// Starts it with the certificate of node 1 and these lines in `[tls]`.
    fn start(certs: &Path, more: &str) -> Node {
        let base = free_ports(5);
        let (tls_port, https_port) = (base + 3, base + 4);
        let tls = format!(
            "[tls]\nclient_port = {tls_port}\nhttp_port = {https_port}\ncertificate = {:?}\nkey = {:?}\nauthority = {:?}\n{more}\n",
            certs.join("node-1.crt"),
            certs.join("node-1.key"),
            certs.join("authority.crt")
        );
        let server = Server::start_at(base, &configuration(base, 1, "", &tls));
        Node { server, tls_port, https_port }
    }

    /// Connects a client that trusts an authority and presents this certificate, if any.
    fn connect(&self, certs: &Certs, own: Option<&str>) -> Sealed {
        Sealed::connect(self.tls_port, certs, own)
    }

    fn awaits_line(&self, what: &str) {
        until(what, || self.server.log().contains(what));
    }
}

/// A connection over TLS.
pub(crate) struct Sealed {
    pub(crate) stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

impl Sealed {
    pub(crate) fn connect(port: u16, certs: &Certs, own: Option<&str>) -> Sealed {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certs.file("authority.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            Some(name) => {
                let chain = vec![CertificateDer::from_pem_file(certs.file(&format!("{name}.crt"))).unwrap()];
                let key = PrivateKeyDer::from_pem_file(certs.file(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Sealed { stream: BufReader::new(StreamOwned::new(session, connect(port))) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Returns the next line without its end, or why there is none.
    pub(crate) fn try_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("the end".into()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn line(&mut self) -> String {
        self.try_line().unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }

    /// The certificate that the node presented.
    fn shown(&self) -> Vec<u8> {
        self.stream.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    }
}

fn one_node() -> Certs {
    Certs::new(&["--node", "127.0.0.1"])
}

#[test]
fn requests_of_all_sizes_go_over_tls_beside_the_plain_port() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut client = node.connect(&certs, None);
    assert_eq!(client.ask("PING"), "+PONG");
    let value: Vec<u8> = (0..9_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client.send(request(&[b"SET", b"large", &value]));
    assert_eq!(client.line(), "+OK");
    client.send(request(&[b"GET", b"large"]));
    assert_eq!(client.line(), "$9000000");
    assert!(client.bytes(9_000_002)[..9_000_000] == value[..], "the value comes back");
    // Many requests at once, and their replies in order.
    let mut many = Vec::new();
    (0..20_000).for_each(|number| many.extend(request(&[b"ECHO", format!("{number:07}").as_bytes()])));
    let mut writer = node.connect(&certs, None);
    writer.send(&many);
    for number in 0..20_000 {
        assert_eq!((writer.line(), writer.line()), ("$7".into(), format!("{number:07}")));
    }
    // The plain port has the same data, and is unchanged.
    let mut plain = node.server.client();
    assert_eq!(plain.ask("STRLEN large"), ":9000000");
    assert_eq!(plain.ask("CONFIG GET tls-port"), "*2");
    assert_eq!(
        [plain.line(), plain.line(), plain.line(), plain.line()],
        ["$8", "tls-port", "$5", &node.tls_port.to_string()].map(String::from)
    );
    let file = certs.file("node-1.crt").display().to_string();
    assert_eq!(client.ask(&format!("CONFIG SET tls-cert-file {file}")), "+OK");
    assert!(client.ask("CONFIG SET tls-cert-file /other").starts_with("-ERR CONFIG SET failed"));
    assert_eq!(node.server.metric("quorate_tls_handshakes_total"), 2);
    assert_eq!(client.ask("QUIT"), "+OK");
    assert_eq!(client.try_line(), Err("the end".into()), "it is closed in order");
}

#[test]
fn a_client_that_reads_late_gets_everything_and_delays_no_other() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut client = node.connect(&certs, None);
    let value = vec![b'v'; 1 << 20];
    client.send(request(&[b"SET", b"key", &value]));
    assert_eq!(client.line(), "+OK");
    let mut slow = node.connect(&certs, None);
    let ask = request(&[b"GET", b"key"]);
    slow.send(ask.repeat(60));
    // Its replies do not fit into the socket.
    until("it is served", || node.server.metric("quorate_client_bytes_out_total") > 1 << 20);
    for _ in 0..100 {
        assert_eq!(client.ask("PING"), "+PONG");
    }
    for _ in 0..60 {
        assert_eq!(slow.line(), "$1048576");
        assert!(slow.bytes((1 << 20) + 2)[..1 << 20] == value[..]);
    }
    assert_eq!(slow.ask("PING"), "+PONG");
}

#[test]
fn http_is_served_over_tls() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut client = Sealed::connect(node.https_port, &certs, None);
    client.send("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert_eq!(client.line(), "HTTP/1.1 200 OK");
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"keyspaces\""), "{rest}");
    // A connection without TLS gets nothing.
    let mut plain = Client::connect(node.https_port);
    plain.send("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(!String::from_utf8_lossy(&plain.rest()).contains("HTTP"));
}

#[test]
fn only_the_connection_without_tls_is_closed_and_it_is_logged() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut client = node.connect(&certs, None);
    assert_eq!(client.ask("PING"), "+PONG");
    let mut garbage = vec![0x16, 3, 1, 0xff, 0xff];
    garbage.extend([b'x'; 300_000]);
    for sent in [&request(&[b"PING"])[..], b"PING\r\n", &garbage, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"]
    {
        let mut stranger = Client::connect(node.tls_port);
        // It may be closed before all is sent.
        let _ = stranger.stream.write_all(sent);
        let _ = stranger.stream.shutdown(std::net::Shutdown::Write);
        let answer = stranger.rest();
        assert!(answer.len() < 20 && !answer.starts_with(b"+"), "{answer:?}");
        assert_eq!(client.ask("PING"), "+PONG");
    }
    node.awaits_line("got no connection over TLS: what it sends is not TLS");
    until("they are counted", || node.server.metric("quorate_tls_refused_total") >= 3);
    // However many there are, the log has only a few lines about them.
    for _ in 0..50 {
        let mut stranger = Client::connect(node.tls_port);
        stranger.send("PING\r\n");
        stranger.rest();
    }
    assert!(node.server.log().matches("got no connection over TLS").count() <= 5);
    // A TLS connection that ends in the middle of a record.
    let mut client = node.connect(&certs, None);
    assert_eq!(client.ask("PING"), "+PONG");
    let socket = &mut client.stream.get_mut().sock;
    socket.write_all(&[0x17, 3, 3, 0, 50, 1, 2, 3]).unwrap();
    socket.write_all(&[9; 60]).unwrap();
    assert!(client.try_line().is_err(), "a forged record ends the connection");
}

#[test]
fn handshakes_that_never_end_block_no_client_and_are_closed() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut strangers: Vec<TcpStream> = (0..300).map(|_| connect(node.tls_port)).collect();
    // A record that stays incomplete.
    strangers.iter_mut().for_each(|stream| _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1]));
    let mut client = node.connect(&certs, None);
    assert_eq!(client.ask("PING"), "+PONG");
    // More than fit at a time: the oldest were closed to make room.
    let mut buffer = [0; 16];
    assert_eq!(strangers[0].read(&mut buffer).unwrap_or(0), 0);
    node.awaits_line("too many handshakes were under way");
    // The others end in time.
    assert_eq!(strangers[299].read(&mut buffer).unwrap_or(0), 0);
    until("all are counted", || node.server.metric("quorate_tls_refused_total") == 300);
    assert_eq!(client.ask("PING"), "+PONG");
}

#[test]
fn clients_present_certificates_where_they_are_asked() {
    let (certs, others) = (Certs::new(&["--node", "127.0.0.1", "--client", "alice"]), one_node());
    assert!(others.issue(&["--client", "mallory"]).0);
    let cross = |node: &Node| {
        // This client trusts the node, and presents a certificate of another authority.
        fs::copy(others.file("client-mallory.crt"), certs.file("client-mallory.crt")).unwrap();
        fs::copy(others.file("client-mallory.key"), certs.file("client-mallory.key")).unwrap();
        let mut client = node.connect(&certs, Some("client-mallory"));
        let sent = client.stream.get_mut().write_all(b"PING\r\n");
        sent.map_err(|error| error.to_string()).and_then(|()| client.try_line())
    };
    let required = Node::start(certs.0.path(), "client_certificates = \"required\"");
    assert_eq!(required.connect(&certs, Some("client-alice")).ask("PING"), "+PONG");
    let mut without = required.connect(&certs, None);
    let refusal = without.stream.get_mut().write_all(b"PING\r\n").map_err(|error| error.to_string());
    let refusal = refusal.and_then(|()| without.try_line()).unwrap_err();
    assert!(refusal.contains("CertificateRequired"), "{refusal}");
    required.awaits_line("it presents no certificate, and client_certificates = \"required\"");
    assert!(cross(&required).is_err());
    required.awaits_line("its certificate does not come from tls.authority");

    let wanted = Node::start(certs.0.path(), "client_certificates = \"wanted\"");
    assert_eq!(wanted.connect(&certs, Some("client-alice")).ask("PING"), "+PONG");
    assert_eq!(wanted.connect(&certs, None).ask("PING"), "+PONG");
    assert!(cross(&wanted).is_err(), "a bad one is worse than none");

    // A node whose authority the client does not know.
    let node = Node::start(others.0.path(), "");
    let mut client = node.connect(&certs, None);
    assert!(client.stream.get_mut().write_all(b"PING\r\n").is_err());
    node.awaits_line("it does not accept this node's certificate");
}

#[test]
fn the_load_generator_measures_over_tls() {
    let (certs, others) = (Certs::new(&["--node", "127.0.0.1", "--client", "alice"]), one_node());
    let node = Node::start(certs.0.path(), "client_certificates = \"required\"");
    let alice = || Some((certs.file("client-alice.crt"), certs.file("client-alice.key")));
    let load = |port: u16, (authority, own): (&Certs, _), more: Options| {
        let trust = Trust { authority: Some(authority.file("authority.crt")), own };
        let options = Options {
            addresses: vec![([127, 0, 0, 1], port).into()],
            tls: Some(Tls::new(&trust, ["127.0.0.1"].into_iter()).unwrap()),
            connections: 8,
            keys: 100,
            warmup: Duration::ZERO,
            stop: Stop::Count(2000),
            ..more
        };
        lab::load::run(&options, |_| {}).map_err(|error| error.to_string())
    };
    // Batches that fill several records and the socket, whose values are compared.
    for (pipeline, bytes) in [(1, 64), (16, 100), (4, 60_000)] {
        let more = Options { pipeline, value_bytes: Sizes::fixed(bytes), ..Options::default() };
        let report = load(node.tls_port, (&certs, alice()), more).unwrap();
        assert!(report.operations() == 2000 && !report.has_wrong_answers(), "{report}");
    }
    let http = || Options { transport: Transport::Http, ..Options::default() };
    let report = load(node.https_port, (&certs, alice()), http()).unwrap();
    assert!(report.operations() == 2000 && !report.has_wrong_answers(), "{report}");

    let refused = |port, trust, what: &str| {
        let error = load(port, trust, Options::default()).err().unwrap();
        assert!(
            error.starts_with(&format!("cannot use 127.0.0.1:{port}: ")) && error.contains(what),
            "{error}"
        );
    };
    refused(
        node.tls_port,
        (&certs, None),
        "it wants a certificate of this client: give one by --cert and --key",
    );
    refused(node.tls_port, (&others, alice()), "give its certificate by --cacert");
    refused(node.server.client_port, (&certs, alice()), "its TLS port is a different one");
}

#[test]
fn a_certificate_names_a_user_where_that_is_wanted() {
    let certs = one_node();
    assert!(certs.issue(&["--client", "alice", "--client", "carol"]).0);
    let with = |more: &str| Node::start(certs.0.path(), &format!("client_certificates = \"wanted\"\n{more}"));
    let who = |node: &Node, own: Option<&str>| {
        let mut client = node.connect(&certs, own);
        assert!(client.ask("ACL WHOAMI").starts_with('$'));
        client.line()
    };
    let node = with("certificates_name_users = true");
    assert_eq!(node.connect(&certs, None).ask("ACL SETUSER alice on ~a* +@all"), "+OK");
    until("the node knows its user", || who(&node, Some("client-alice")) == "alice");
    let mut alice = node.connect(&certs, Some("client-alice"));
    assert_eq!(alice.ask("SET a1 v"), "+OK");
    assert!(alice.ask("SET b1 v").starts_with("-NOPERM"));
    assert_eq!(alice.ask("RESET"), "+RESET");
    assert!(alice.ask("SET b1 v").starts_with("-NOPERM"), "it is alice still");
    assert_eq!(who(&node, Some("client-carol")), "default", "there is no such user");
    assert_eq!(who(&node, None), "default");

    let node = with("");
    assert_eq!(node.connect(&certs, None).ask("ACL SETUSER alice on ~a* +@all"), "+OK");
    assert_eq!(who(&node, Some("client-alice")), "default");
}

#[test]
fn certificates_are_replaced_under_traffic() {
    let certs = one_node();
    let node = Node::start(certs.0.path(), "");
    let mut old = node.connect(&certs, None);
    assert_eq!(old.ask("SET k v"), "+OK");
    let first = old.shown();
    let mut plain = node.server.client();
    let mut works = |old: &mut Sealed| {
        assert_eq!(old.ask("GET k"), "$1");
        assert_eq!(old.line(), "v");
        assert_eq!(plain.ask("PING"), "+PONG");
        let mut new = node.connect(&certs, None);
        assert_eq!(new.ask("PING"), "+PONG");
        new.shown()
    };
    // First the certificate, and its key somewhat later, as people do it: files that do not belong together are not
    // used.
    let renew = || {
        for name in ["node-1.crt", "node-1.key"] {
            fs::remove_file(certs.file(name)).unwrap();
        }
        let (went_well, output) = certs.issue(&["--node", "127.0.0.1"]);
        assert!(went_well, "{output}");
    };
    renew();
    until("new connections get the new one", || works(&mut old) != first);
    node.awaits_line("new connections get new certificates: TLS with the certificate of \"node-1\"");
    let second = works(&mut old);
    let good = fs::read(certs.file("node-1.crt")).unwrap();
    fs::write(certs.file("node-1.crt"), "broken").unwrap();
    node.awaits_line("the changed files for TLS are not used, and those read before still are");
    assert_eq!(works(&mut old), second);
    fs::write(certs.file("node-1.crt"), good).unwrap();
    // At once, by a signal.
    renew();
    signal(node.server.process(), Signal::HUP);
    until("new connections get the new one", || works(&mut old) != second);
    assert_eq!(old.shown(), first, "the connection is the one from before");
}

#[test]
fn a_port_can_speak_tls_only() {
    let certs = one_node();
    let base = free_ports(3);
    let tls = format!(
        "[tls]\nclient_port = {base}\ncertificate = {:?}\nkey = {:?}\n",
        certs.file("node-1.crt"),
        certs.file("node-1.key")
    );
    let server = Server::start_at(base, &configuration(base, 1, "", &tls));
    let mut client = Sealed::connect(base, &certs, None);
    assert_eq!(client.ask("PING"), "+PONG");
    assert_eq!(client.ask("CONFIG GET port"), "*2");
    assert_eq!(
        [client.line(), client.line(), client.line(), client.line()],
        ["$4", "port", "$1", "0"].map(String::from)
    );
    let mut plain = Client::connect(server.client_port);
    plain.send("PING\r\n");
    assert!(!plain.rest().starts_with(b"+"));
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    let (certs, others) = (one_node(), one_node());
    let refused = |lines: &str, why: &str| {
        let base = free_ports(4);
        let tls = format!("[tls]\nclient_port = {}\n{lines}\n", base + 3);
        let file = certs.file("quorate.toml");
        fs::write(&file, configuration(base, 1, "", &tls)).unwrap();
        let output = quorate().arg("server").arg("--config").arg(&file).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && printed.contains(why), "{lines}: {printed}");
    };
    refused("certificate = \"missing.crt\"\nkey = \"node-1.key\"", "missing.crt has no certificates in PEM");
    refused("certificate = \"node-1.crt\"\nkey = \"node-1.crt\"", "node-1.crt has no private key in PEM");
    let key = others.file("node-1.key");
    refused(&format!("certificate = \"node-1.crt\"\nkey = {key:?}"), "do not belong together");
}

#[test]
fn certificates_are_made_and_never_overwritten() {
    let certs = Certs::new(&["--node", "10.0.0.1,db1.example", "--node", "10.0.0.2", "--client", "alice"]);
    for (name, mode) in [("authority.key", 0o600), ("node-1.key", 0o600), ("client-alice.key", 0o600)] {
        assert_eq!(fs::metadata(certs.file(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
    }
    let before = fs::read(certs.file("node-2.crt")).unwrap();
    let (went_well, output) = certs.issue(&["--node", "3=10.0.0.3", "--node", "10.0.0.9"]);
    assert!(!went_well && output.contains("node-2.crt exists and is not overwritten"), "{output}");
    assert!(!certs.file("node-3.crt").exists(), "nothing is issued then");
    assert_eq!(fs::read(certs.file("node-2.crt")).unwrap(), before);
    let (went_well, output) = certs.issue(&["--node", "3=10.0.0.3"]);
    assert!(
        went_well
            && output.contains("of node 3, reached as 10.0.0.3, localhost, 127.0.0.1, ::1, valid until"),
        "{output}"
    );
    for (arguments, why) in [
        (&["--node", "5=a b"][..], "a b"),
        (&["--client", "../x"], "a client's name has"),
        (&[], "give --node or --client"),
        (&["--node", "4=x", "--node", "4=y"], "node-4.crt would be made twice"),
    ] {
        let (went_well, output) = certs.issue(arguments);
        assert!(!went_well && output.contains(why), "{arguments:?}: {output}");
    }
    fs::remove_file(certs.file("authority.key")).unwrap();
    let (went_well, output) = certs.issue(&["--client", "bob"]);
    assert!(!went_well && output.contains("authority.key does not: use another folder"), "{output}");
}

fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(folder.join("authority.crt"), copy.path().join("authority.crt")).unwrap();
    copy
}

#[test]
fn a_cluster_starts_with_tls_and_prints_how_to_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(10);
    let mut command = cluster_command(folder.path(), base, 2);
    let ports = [(base + 6).to_string(), (base + 8).to_string()];
    command.args(["--tls", "--tls-client-port", &ports[0], "--tls-http-port", &ports[1]]);
    let (mut cluster, _) = Cluster::start_by(command, folder.path(), base, 2);
    assert!(cluster.line().starts_with("try: redis-cli -p"));
    let line = cluster.line();
    let shown = line.strip_prefix("over TLS: ").and_then(|rest| rest.strip_suffix(" get hello")).unwrap();
    let certs = folder.path().join("certs");
    assert_eq!(
        shown,
        format!("redis-cli --tls --cacert {} -p {}", certs.join("authority.crt").display(), base + 6)
    );
    assert_eq!(cluster.client(1).ask("SET hello world"), "+OK");
    if Command::new("redis-cli").arg("--version").output().is_ok() {
        for port in [base + 6, base + 7] {
            let words: Vec<&str> = shown.split(' ').collect();
            let mut command = Command::new(words[0]);
            command.args(&words[1..words.len() - 1]).arg(port.to_string()).args(["get", "hello"]);
            let output = command.output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(printed.trim(), "world", "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    // Clients of Redis Cluster are sent to the TLS ports, and plain ones to the plain ports.
    let mut client = Sealed::connect(base + 7, &Certs(copy_of(&certs)), None);
    let nodes = client.ask("CLUSTER NODES");
    let length = nodes.strip_prefix('$').unwrap().parse::<usize>().unwrap();
    let nodes = String::from_utf8(client.bytes(length)).unwrap();
    assert!([base + 6, base + 7].iter().all(|port| nodes.contains(&format!("127.0.0.1:{port}@"))), "{nodes}");
    let mut plain = cluster.client(1);
    plain.send("CLUSTER NODES\r\n");
    plain.line();
    assert!(plain.line().contains(&format!("127.0.0.1:{base}@")));
    cluster.stop(Signal::TERM);
    // And once more, unchanged.
    let (mut cluster, lines) = Cluster::start_again(folder.path(), base, 2);
    assert!(lines[0].contains(&format!("redis over TLS 127.0.0.1:{}", base + 6)), "{lines:?}");
    cluster.stop(Signal::TERM);
}

#[test]
fn status_sees_a_certificate_that_expires_or_is_unusable_at_the_next_start() {
    let certs = Certs::new(&["--node", "1=127.0.0.1,localhost", "--days", "5"]);
    let node = Node::start(&certs.file(""), "");
    let status = || {
        let address = format!("127.0.0.1:{}", node.server.client_port);
        let output = quorate().args(["status", "--addr", &address]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let says = |what: &str| {
        until(what, || {
            let (code, text) = status();
            code == 1 && text.contains(what)
        });
    };
    says("node 1: its certificate expires in 4 d");
    assert!(status().1.contains("quorate certs --dir DIR --node 1=127.0.0.1"), "{}", status().1);

    fs::write(certs.file("node-1.key"), "no key at all").unwrap();
    says("its changed files for TLS cannot be used");
    // It does what the advice says.
    for name in ["node-1.crt", "node-1.key"] {
        fs::remove_file(certs.file(name)).unwrap();
    }
    let (went_well, output) = certs.issue(&["--node", "1=127.0.0.1"]);
    assert!(went_well, "{output}");
    until("nothing is at risk", || status().0 == 0);
}
