//! `quorate keyspace`, `node`, `user` and `lock`: what they change, what they show, and what they refuse.

use std::fs;

use serde_json::Value;

use super::support::{Cluster, free_ports, quorate};

/// Runs a command to its end. Returns its exit code, and what it wrote.
fn run(port: u16, line: &str) -> (i32, String) {
    let address = format!("127.0.0.1:{port}");
    let mut words = line.split(' ');
    let output =
        quorate().arg(words.next().unwrap()).args(["--addr", &address]).args(words).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), text)
}

#[track_caller]
fn done(port: u16, line: &str) -> String {
    let (code, text) = run(port, line);
    assert_eq!(code, 0, "{line}: {text}");
    text
}

#[track_caller]
fn refused(port: u16, line: &str, why: &str) {
    let (code, text) = run(port, line);
    assert!(code == 1 && text.contains(why), "{line}: {code} {text}");
}

#[test]
fn the_environment_and_a_file_say_where_the_cluster_is() {
    let server = super::support::Server::start("password = \"pw\"", "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.toml");
    fs::write(folder.path().join("password"), "pw\n").unwrap();
    let address = format!("127.0.0.1:{}", server.client_port);
    fs::write(&file, format!("addr = \"{address}\"\npassword_file = \"password\"\n")).unwrap();
    let nowhere = format!("127.0.0.1:{}", free_ports(1));
    let code = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = quorate();
        command.args(words).env("QUORATE_CLIENT_CONFIG", &file).envs(variables.iter().copied());
        command.output().unwrap().status.code().unwrap()
    };
    let backup = folder.path().join("backup").display().to_string();
    for tool in [
        &["status"][..],
        &["keyspace", "list"],
        &["node", "list"],
        &["lock", "list"],
        &["backup", "--to", &backup],
    ] {
        assert_eq!(code(tool, &[]), 0, "{tool:?} by the file");
    }
    assert_eq!(code(&["status"], &[("QUORATE_ADDR", &nowhere)]), 2, "the environment counts before the file");
    assert_eq!(
        code(&["status", "--addr", &address], &[("QUORATE_ADDR", &nowhere)]),
        0,
        "and flags before both"
    );
    let config = server.folder().join("quorate.toml");
    assert_eq!(code(&["status", "--config", config.to_str().unwrap()], &[("QUORATE_ADDR", &nowhere)]), 0);
    assert_eq!(code(&["status"], &[("QUORATE_USER", "nobody")]), 3, "each setting by itself");
    assert_eq!(code(&["status"], &[("QUORATE_TLS", "1")]), 3);
}

fn json(port: u16, line: &str) -> Value {
    serde_json::from_str(&done(port, &line.replacen(' ', " --json ", 1))).unwrap()
}

#[test]
fn operators_manage_a_cluster_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let base = free_ports(9);
    let (cluster, _) = Cluster::start_with(folder.path(), base, 3, &[]);

    // Keyspaces, with their promises in words.
    let made = done(base, "keyspace create cart: replication=leader-follower acks=none");
    assert!(
        made.contains("keyspace 'cart:' is created\n  leader-follower: a write is acknowledged when"),
        "{made}"
    );
    let again = "keyspace create cart: replication=leader-follower acks=none";
    assert!(done(base, again).starts_with("keyspace 'cart:' exists already with these settings\n"));
    assert_eq!(json(base, again)["created"], false);
    refused(base, "keyspace create cart:", "EXISTS");
    assert!(
        done(base, "keyspace create cart: --if-not-exists").contains("is there already, and stays as it is")
    );
    assert_eq!(json(base, "keyspace create cart: --if-not-exists")["created"], false);
    refused(base, "keyspace create x: acks=nonsense", "acks");
    assert!(
        done(base, "keyspace alter cart: acks=all").contains("when all replicas that are in sync have it")
    );
    assert!(done(base, "keyspace get cart:").contains("acks"));
    assert_eq!(json(base, "keyspace get cart:")["acks"], "all");
    let listed = done(base, "keyspace list");
    assert!(listed.contains("default") && listed.contains("cart:") && listed.contains("promise"), "{listed}");
    assert_eq!(json(base, "keyspace list").as_array().unwrap().len(), 2);
    refused(base, "keyspace drop cart:", "repeat it with --yes");
    refused(base, "keyspace drop nosuch: --yes", "there is no keyspace 'nosuch:'");
    assert_eq!(json(base, "keyspace drop cart: --yes")["dropped"], true);
    assert_eq!(json(base, "keyspace list").as_array().unwrap().len(), 1);

    // Nodes.
    let listed = done(base, "node list");
    assert_eq!(listed.lines().skip(1).filter(|line| line.contains(" up ")).count(), 3, "{listed}");
    assert_eq!(json(base, "node list").as_array().unwrap().len(), 3);
    refused(base, "node remove 9", "9");

    // Users, whose hashes are not shown.
    let password = folder.path().join("password");
    fs::write(&password, "of the shop\n").unwrap();
    refused(base, "user create shop ~* +@read", "how does 'shop' log in?");
    refused(base, "user create shop ~* +@read --draw-password", "flags go before the rules");
    let made = done(
        base,
        &format!("user create shop --set-password {} ~shop:* +@all -@cluster", password.display()),
    );
    assert_eq!(made, "user 'shop' is created\n");
    refused(base, "user create shop --draw-password", "there is a user 'shop' already");
    let drawn = json(base, "user alter shop --draw-password -@dangerous");
    assert_eq!(drawn["password"].as_str().unwrap().len(), 64);
    let listed = done(base, "user list");
    assert!(listed.contains("shop") && listed.contains("~shop:*") && !listed.contains('#'), "{listed}");
    fs::write(&password, drawn["password"].as_str().unwrap()).unwrap();
    let as_shop = format!("--user shop --password-file {}", password.display());
    refused(base, &format!("keyspace create {as_shop} no:"), "NOPERM");
    refused(base, "user alter shop +@all --json", "flags go before the rules");
    done(base, "user drop shop");
    refused(base, "user drop shop", "there is no user 'shop'");
    refused(base, "user alter shop +@all", "there is no user 'shop'");

    // Locks of all nodes.
    let mut client = cluster.client(2);
    let token = client.ask("LOCK job ann PX 1000000").trim_start_matches(':').trim().to_owned();
    let listed = done(base, "lock list");
    assert!(listed.contains("job") && listed.contains("ann") && listed.contains(&token), "{listed}");
    assert_eq!(json(base, "lock list")[0]["owner"], "ann");
    assert_eq!(json(base, "lock get job")["owner"], "ann");
    refused(base, "lock release job --token 999999", "is not held with the token 999999");
    assert!(done(base, &format!("lock release job --token {token}")).contains("is released"));
    refused(base, "lock get job", "nobody holds the lock 'job'");
    assert_eq!(json(base, "lock list"), Value::Array(Vec::new()));

    assert_eq!(json(base, "quarantine list"), Value::Array(Vec::new()));
    refused(free_ports(1), "user list", "no node can be reached");
}
