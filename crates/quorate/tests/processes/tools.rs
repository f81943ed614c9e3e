//! The program's own tools, over TLS, with a cluster that speaks nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::support::{Server, configuration, free_ports, quorate, until};
use super::tls::Certs;

/// Three nodes without a plain port.
struct Sealed {
    certs: Certs,
    base: u16,
    servers: Vec<Server>,
}

impl Sealed {
    fn start(top: &str, more: &str) -> Sealed {
        let certs = Certs::new(&[
            "--node",
            "127.0.0.1",
            "--node",
            "127.0.0.1",
            "--node",
            "127.0.0.1",
            "--client",
            "ann",
        ]);
        let base = free_ports(12);
        let servers = (1..=3).map(|id| {
            let first = base + 3 * (id - 1);
            let file = |name: &str| format!("{:?}", certs.file(name));
            let tls = format!(
                "[tls]\nclient_port = {first}\nhttp_port = {}\ncertificate = {}\nkey = {}\nauthority = {}\npeers = \
                 \"required\"\n{more}\n",
                first + 1,
                file(&format!("node-{id}.crt")),
                file(&format!("node-{id}.key")),
                file("authority.crt")
            );
            let config = configuration(base, 3, top, &tls);
            Server::start_node(id, 3, base, &config.replace("node = 1\ncluster", &format!("node = {id}\ncluster")))
        });
        let sealed = Sealed { servers: servers.collect(), certs, base };
        until("it is healthy", || sealed.run(&["status", "--config", &sealed.config(1)]).0 == 0);
        sealed
    }

    fn config(&self, id: usize) -> String {
        self.servers[id - 1].folder().join("quorate.toml").display().to_string()
    }

    /// Runs a tool. Returns its exit code, and its output.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let output = quorate().args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        let (code, text) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {text}");
        text
    }

    #[track_caller]
    fn refused(&self, words: &[&str], why: &str) {
        let (code, text) = self.run(words);
        assert!(code != 0 && text.contains(why), "{words:?}: {code} {text}");
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn all_tools_reach_a_cluster_that_speaks_tls_only() {
    let cluster = Sealed::start("", "");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    let (config, authority) = (cluster.config(1), text(&cluster.certs.file("authority.crt")));
    let address = format!("127.0.0.1:{}", cluster.base + 3);
    // With a node's configuration, and with address and authority.
    let by_address = ["--addr", &address, "--cacert", &authority];
    for how in [&["--config", &config][..], &by_address] {
        let with = |words: &[&str]| cluster.done(&[words, how].concat());
        let output = with(&["status"]);
        assert!(output.contains("healthy") && output.matches(" up ").count() >= 3, "{output}");
        assert_eq!(with(&["status", "--here"]).lines().count(), 1);
        assert!(with(&["top", "--count", "1"]).contains("node"));
        assert!(with(&["node", "list"]).matches(" up ").count() >= 3);
        with(&["keyspace", "create", "cart:", "acks=all", "replication=leader-follower"]);
        with(&["keyspace", "drop", "cart:", "--yes"]);
        assert!(with(&["user", "list"]).contains("default"));
        with(&["lock", "list"]);
        with(&["quarantine", "list"]);
    }
    let with = |words: &[&str]| cluster.done(&[words, &by_address[..]].concat());
    // Keys are imported, exported, backed up, and restored.
    fs::write(
        file("keys.aof"),
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n",
    )
    .unwrap();
    with(&["import", &text(&file("keys.aof"))]);
    assert!(with(&["export", &text(&file("keys.rdb"))]).contains("2 keys are in"));
    let backups = text(&file("backups"));
    assert!(with(&["backup", "--to", &backups]).contains("1 shard copied (2 keys)"));
    let output = with(&["restore", "--from", &backups, "--same-cluster", "--empty-first"]);
    assert!(output.contains('2'), "{output}");

    // Errors are reported, with what to do.
    cluster.refused(&["node", "list", "--addr", &address], "no node can be reached");
    cluster.refused(
        &["node", "list", "--tls", "--addr", &address],
        "give the certificate of that authority by --cacert",
    );
    let named = format!("localhost.localdomain:{}", cluster.base);
    cluster.refused(&["node", "list", "--addr", &named, "--cacert", &authority], "localhost.localdomain");
    cluster.refused(&["node", "list", "--cert", &authority], "--key");
}

#[test]
fn a_node_joins_a_cluster_that_speaks_tls_only() {
    let cluster = Sealed::start("", "");
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("node-4");
    let certs = cluster.certs.file("authority.crt");
    let certs = text(certs.parent().unwrap());
    let (like, dir) = (cluster.config(1), text(&target));
    let base = cluster.base;
    // Its ports follow those of node 3.
    let ports = [base + 9, base + 10, base + 11].map(|port| port.to_string());
    let words = ["--client-port", &ports[0], "--http-port", &ports[1], "--peer-port", &ports[2]];
    let output =
        cluster.done(&[&["join", "--like", &like, "--dir", &dir, "--certs", &certs][..], &words].concat());
    assert!(output.contains("node 4 is added"), "{output}");
    assert!(target.join("node-4.key").exists() && target.join("authority.crt").exists());
    let _fourth =
        Running(quorate().args(["server", "--config", &text(&target.join("quorate.toml"))]).spawn().unwrap());
    let is_up = || {
        let (_, output) = cluster.run(&["node", "list", "--config", &like]);
        output.lines().any(|line| line.trim_start().starts_with('4') && line.contains(" up "))
    };
    until("node 4 is up", is_up);
    // It is reached like the others.
    let (code, output) = cluster.run(&["status", "--config", &text(&target.join("quorate.toml"))]);
    assert!(code < 2 && output.contains(&format!("127.0.0.1:{}", base + 9)), "{output}");
}

#[test]
fn a_client_presents_its_certificate_and_its_password() {
    let cluster = Sealed::start(
        "password = \"secret-one\"\noperator_password = \"secret-two\"",
        "client_certificates = \"required\"",
    );
    // The node's file contains all of it.
    cluster.done(&["keyspace", "list", "--config", &cluster.config(2)]);
    let address = format!("127.0.0.1:{}", cluster.base);
    let [authority, cert, key] =
        ["authority.crt", "client-ann.crt", "client-ann.key"].map(|name| text(&cluster.certs.file(name)));
    let password = tempfile::NamedTempFile::new().unwrap();
    fs::write(password.path(), "secret-one\n").unwrap();
    let password = text(password.path());
    let mut words = vec!["keyspace", "list", "--addr", &address, "--cacert", &authority];
    cluster.refused(&words, "it wants a certificate of this client: give one by --cert and --key");
    words.extend(["--cert", &cert, "--key", &key]);
    cluster.refused(&words, "wants a password: name its file with --password-file");
    words.extend(["--password-file", &password]);
    cluster.done(&words);
}
