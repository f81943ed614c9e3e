//! Backups of real clusters in a real object store, versitygw, which keeps each object as a file, so that a test can
//! damage it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::dump::{Draw, compare, fill, keys_of, run};
use crate::required::is_installed;
use crate::support::{Cluster, as_text, ask, free_ports, until};

const KEEPS: &str = "prefix= changes_bytes=64mb";
const KEY: &str = "its-key";
const SECRET: &str = "very-hidden-secret";
const PLACE: &str = "s3://backups/of/shop";

/// A running object store with one bucket.
struct Store {
    server: Child,
    port: u16,
    folder: TempDir,
}

impl Store {
    /// Starts a store, if the program is installed.
    fn start() -> Option<Store> {
        Store::start_with(&[])
    }

    fn start_with(more: &[&str]) -> Option<Store> {
        let what = "versitygw (go install github.com/versity/versitygw/cmd/versitygw@v1.8.0)";
        if !is_installed(what, Command::new("versitygw").arg("--version")) {
            return None;
        }
        let (folder, port) = (tempfile::tempdir().unwrap(), free_ports(1));
        let objects = folder.path().join("objects");
        fs::create_dir_all(objects.join("backups")).unwrap();
        let mut command = Command::new("versitygw");
        command.args([
            "--access",
            KEY,
            "--secret",
            SECRET,
            "--port",
            &format!("127.0.0.1:{port}"),
            "--quiet",
        ]);
        command.args(more).arg("posix").arg("--sidecar").arg(folder.path().join("about")).arg(&objects);
        fs::create_dir(folder.path().join("about")).unwrap();
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let store = Store { server, port, folder };
        until("the store listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Some(store)
    }

    /// A command of the program with the store's keys.
    fn command(&self, port: u16, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        for name in ["AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"] {
            command.env_remove(name);
        }
        command
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("NO_PROXY", "127.0.0.1");
        command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
        command.args(words);
        command
    }

    fn quorate(&self, words: &[&str]) -> (i32, String) {
        outcome(&mut self.command(self.port, words))
    }

    fn back_up(&self, cluster: &Cluster, more: &[&str]) -> String {
        let (code, output) =
            self.quorate(&[&["backup", "--to", PLACE, "--addr", &address(cluster)], more].concat());
        assert_eq!(code, 0, "{output}");
        output
    }

    /// The folder of the objects.
    fn place(&self) -> PathBuf {
        self.folder.path().join("objects/backups/of/shop")
    }

    /// The objects whose names end with `end`, sorted.
    fn objects(&self, end: &str) -> Vec<PathBuf> {
        let Ok(folders) = fs::read_dir(self.place()) else { return Vec::new() };
        let folders = folders.map(|it| it.unwrap().path()).filter(|path| path.is_dir());
        let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|it| it.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().ends_with(end)).collect();
        files.sort();
        files
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn address(cluster: &Cluster) -> String {
    format!("127.0.0.1:{}", cluster.client_port(1))
}

fn outcome(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.concat();
    assert!(!text.contains(SECRET) && !text.contains("X-Amz-Signature"), "{text}");
    (output.status.code().unwrap(), text)
}

/// Values that compression does not shorten, and more of them than fit into one part of an object.
fn fill_much(cluster: &Cluster) {
    let mut client = cluster.client(1);
    let mut state = 7_u64;
    for at in 0..40 {
        let value: Vec<u8> = (0..1 << 17)
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state ^ (state >> 29)).to_le_bytes()
            })
            .collect();
        run(&mut client, &[b"SET", format!("large {at}").as_bytes(), &value]);
    }
}

fn damage(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(file, damaged).unwrap();
    bytes
}

#[test]
fn a_cluster_under_writes_goes_into_an_object_store_and_back() {
    let Some(store) = Store::start() else { return };
    let cluster = Cluster::start(3, &[KEEPS, "prefix=reg: replication=abd"]);
    let mut client = cluster.client(1);
    fill(&mut client, &mut Draw(3));
    fill_much(&cluster);
    run(&mut client, &[b"SET", b"reg:1", b"v"]);
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client(2);
            while !is_over.load(Ordering::Relaxed) {
                let both = redis::pipe().atomic().cmd("INCR").arg("one").cmd("INCR").arg("two").clone();
                both.query::<redis::Value>(&mut client).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("there are writes", || written.load(Ordering::Relaxed) > 100);
            let output = store.back_up(&cluster, &[]);
            assert!(output.contains("2 shards copied"), "{output}");
            let output = store.back_up(&cluster, &[]);
            assert!(output.contains("1 shard copied") && output.contains("1 continued"), "{output}");
        }));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    let largest = store.objects(".rdb").iter().map(|file| fs::metadata(file).unwrap().len()).max();
    assert!(largest > Some(32 << 20), "one was uploaded in parts: {largest:?}");
    run(&mut client, &[b"SET", b"last", b"v"]);
    store.back_up(&cluster, &[]);
    let (code, output) = store.quorate(&["backup", "--list", PLACE]);
    assert!(code == 0 && output.matches("at any time from").count() == 3, "{output}");
    let (code, output) = store.quorate(&["backup", "--verify", PLACE]);
    assert!(code == 0 && output.matches(": whole").count() == 3, "{output}");

    // A damaged object is found, with its place.
    let other = Cluster::start(1, &[]);
    let mut theirs = other.client(1);
    let restore = ["restore", "--from", PLACE, "--addr", &address(&other), "--compare", "whole"];
    for object in [&store.objects("/1.rdb")[0], &store.objects(".changes")[0]] {
        let bytes = damage(object);
        let name = object.file_name().unwrap().to_str().unwrap();
        let (code, output) = store.quorate(&["backup", "--verify", PLACE]);
        assert!(code == 1 && output.contains(": damaged: ") && output.contains(name), "{output}");
        let (code, output) = store.quorate(&restore);
        assert!(code == 1 && output.contains("damaged between byte") && output.contains(name), "{output}");
        assert_eq!(keys_of(&mut theirs), Vec::<Vec<u8>>::new());
        fs::write(object, bytes).unwrap();
    }
    let object = &store.objects(".changes")[0];
    let bytes = fs::read(object).unwrap();
    fs::remove_file(object).unwrap();
    let (code, output) = store.quorate(&["backup", "--verify", PLACE]);
    assert!(code == 1 && output.contains("is not there"), "{output}");
    fs::write(object, bytes).unwrap();

    // Files that an interrupted backup has left are removed, and so are old backups, except for files that newer ones
    // need.
    let kept = store.objects("/1.rdb")[0].clone();
    let interrupted = store.place().join("20200101T000000.000Z");
    fs::create_dir(&interrupted).unwrap();
    fs::write(interrupted.join("1.rdb"), "REDIS").unwrap();
    run(&mut client, &[b"SET", b"last", b"w"]);
    let output = store.back_up(&cluster, &["--keep", "2"]);
    assert!(output.contains("2 old backups removed") && output.contains("1 continued"), "{output}");
    assert_eq!(store.objects("manifest.json").len(), 2);
    assert!(kept.exists() && !interrupted.join("1.rdb").exists());
    assert!(!store.place().join("lock").exists(), "no backup writes there now");

    let (code, output) = store.quorate(&restore);
    assert!(code == 0 && output.contains("keys compared"), "{output}");
    let mut ours = cluster.client(2);
    let keys = keys_of(&mut ours);
    assert_eq!(keys_of(&mut theirs), keys);
    assert_eq!(
        (ask(&mut theirs, "GET last"), ask(&mut theirs, "GET reg:1")),
        ("\"w\"".into(), "\"v\"".into())
    );
    assert_eq!(ask(&mut theirs, "GET one"), ask(&mut theirs, "GET two"));
    let keys: Vec<Vec<u8>> = keys.into_iter().filter(|key| key != b"reg:1").collect();
    for client in [&mut ours, &mut theirs] {
        run(client, &[b"DEL", b"reg:1"]);
    }
    compare(&mut ours, &mut theirs, &keys);
}

/// What happens to a request on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    /// Is answered with 503.
    IsRefused,
    /// Loses its connection: before it reaches the store or, if an object is read, in the middle of the answer.
    IsLost,
    /// Stays where it is, for now.
    Waits,
}

type Decide = dyn Fn(u64, &str) -> Fate + Send + Sync;

/// Forwards requests between the program and the store. It decides about each request by its number and its head.
struct Network {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Network {
    fn before(store: u16, decide: impl Fn(u64, &str) -> Fate + Send + Sync + 'static) -> Network {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, decide): (_, Arc<Decide>) = (Arc::clone(&is_over), Arc::new(decide));
        std::thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (client, decide, over) = (client.unwrap(), Arc::clone(&decide), Arc::clone(&over));
                std::thread::spawn(move || _ = pass(client, store, number, &*decide, &over));
            }
        });
        Network { port, is_over }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Passes a request on, or not. The store ends each connection after its answer.
fn pass(
    mut client: TcpStream,
    store: u16,
    number: u64,
    decide: &Decide,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    let mut from = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head)? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let mut fate = decide(number, &text);
    while fate == Fate::Waits && !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
        fate = decide(number, &text);
    }
    let is_read = text.starts_with("get ");
    if fate == Fate::IsLost && !is_read {
        return client.shutdown(Shutdown::Both);
    }
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    from.read_exact(&mut body)?;
    if fate == Fate::IsRefused {
        let output =
            "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Please wait.</Message></Error>";
        let length = output.len();
        let head = format!("HTTP/1.1 503 Slow Down\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        return client.write_all(format!("{head}{output}").as_bytes());
    }
    let mut store = TcpStream::connect((Ipv4Addr::LOCALHOST, store))?;
    store.write_all(&head)?;
    store.write_all(&body)?;
    let most = if fate == Fate::IsLost { 100_000 } else { u64::MAX };
    std::io::copy(&mut (&store).take(most), &mut client)?;
    client.shutdown(Shutdown::Both)
}

#[test]
fn requests_that_a_store_fails_are_repeated() {
    let Some(store) = Store::start() else { return };
    let cluster = Cluster::start(1, &[KEEPS]);
    let mut client = cluster.client(1);
    fill(&mut client, &mut Draw(4));
    fill_much(&cluster);
    // Of four requests one is refused, and one is lost.
    let faults = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&faults);
    let network = Network::before(store.port, move |number, _| {
        counted.fetch_add(1 - number % 2, Ordering::Relaxed);
        [Fate::IsRefused, Fate::Passes, Fate::IsLost, Fate::Passes][number as usize % 4]
    });
    let through = |words: &[&str]| {
        let (code, output) = outcome(&mut store.command(network.port, words));
        assert_eq!(code, 0, "{output}");
        output
    };
    for _ in 0..2 {
        run(&mut client, &[b"INCR", b"n"]);
        through(&["backup", "--to", PLACE, "--addr", &address(&cluster)]);
    }
    let output = through(&["backup", "--verify", PLACE]);
    assert_eq!(output.matches(": whole").count(), 2, "{output}");
    let other = Cluster::start(1, &[]);
    through(&["restore", "--from", PLACE, "--addr", &address(&other), "--compare", "whole"]);
    let faults = faults.load(Ordering::Relaxed);
    assert!(faults > 20, "{faults} faults");
    let keys = keys_of(&mut client);
    let mut theirs = other.client(1);
    assert_eq!(keys_of(&mut theirs), keys);
    compare(&mut client, &mut theirs, &keys);

    // A store that is down is given up, and its last error is shown.
    let down = Network::before(store.port, |_, _| Fate::IsRefused);
    let (code, output) = outcome(&mut store.command(down.port, &["backup", "--list", PLACE]));
    assert!(code == 1 && output.contains("503 SlowDown Please wait (tried 3 times)"), "{output}");
}

#[test]
fn refusals_of_the_store_are_reported_with_what_to_do() {
    let Some(store) = Store::start() else { return };
    let cluster = Cluster::start(1, &[KEEPS]);
    let words = |place: &'static str, cluster: &Cluster| {
        ["backup", "--to", place, "--addr"].map(str::to_owned).into_iter().chain([address(cluster)])
    };
    let refused = |change: &dyn Fn(&mut Command), place: &'static str, why: &[&str]| {
        let mut command = store.command(store.port, &[]);
        command.args(words(place, &cluster));
        change(&mut command);
        let (code, output) = outcome(&mut command);
        let begins = format!("quorate backup: {}", place.split("/of").next().unwrap());
        assert!(code == 1 && output.starts_with(&begins), "{output}");
        assert!(why.iter().all(|why| output.contains(why)), "{output}");
    };
    refused(
        &|command| _ = command.env("AWS_SECRET_ACCESS_KEY", "another-secret"),
        PLACE,
        &["403 SignatureDoesNotMatch", "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"],
    );
    refused(
        &|command| _ = command.env("AWS_ACCESS_KEY_ID", "another-key"),
        PLACE,
        // Amazon's store answers 403 InvalidAccessKeyId.
        &["404 XAdminUserNotFound No user exists with the provided access key ID"],
    );
    refused(&|_| (), "s3://nothing/of/shop", &["404 NoSuchBucket", "make the bucket nothing"]);
    refused(
        &|command| _ = command.env_remove("AWS_SECRET_ACCESS_KEY"),
        PLACE,
        &["the environment has no AWS_SECRET_ACCESS_KEY"],
    );
    let port = free_ports(1);
    let nowhere = format!("http://127.0.0.1:{port}");
    refused(
        &|command| _ = command.env("AWS_ENDPOINT_URL", &nowhere),
        PLACE,
        &[&format!("127.0.0.1:{port}"), "(tried 3 times)"],
    );
    let (code, output) = store.quorate(&["restore", "--from", PLACE, "--dry-run"]);
    assert!(code == 1 && output.contains("there is no backup in s3://backups/of/shop"), "{output}");
}

#[test]
fn a_store_is_used_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut certs = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let (code, output) = outcome(certs.args(["certs", "--dir", &file(""), "--node", "127.0.0.1"]));
    assert_eq!(code, 0, "{output}");
    let Some(store) = Store::start_with(&["--cert", &file("node-1.crt"), "--key", &file("node-1.key")])
    else {
        return;
    };
    let cluster = Cluster::start(1, &[KEEPS]);
    run(&mut cluster.client(1), &[b"SET", b"k", b"v"]);
    let back_up = |authority: Option<&str>| {
        let mut command = store.command(store.port, &["backup", "--to", PLACE, "--addr", &address(&cluster)]);
        command.env("AWS_ENDPOINT_URL", format!("https://127.0.0.1:{}", store.port));
        outcome(command.envs(authority.map(|file| ("AWS_CA_BUNDLE", file))))
    };
    let (code, output) = back_up(None);
    assert!(code == 1 && output.contains("no TLS with it") && output.contains("AWS_CA_BUNDLE"), "{output}");
    let (code, output) = back_up(Some(&file("authority.crt")));
    assert!(code == 0 && output.contains("1 shard copied (1 key)"), "{output}");
}

#[test]
fn one_backup_at_a_time_writes_into_a_place() {
    let Some(store) = Store::start() else { return };
    let cluster = Cluster::start(1, &[KEEPS]);
    let mut client = cluster.client(1);
    run(&mut client, &[b"SET", b"k", b"v"]);
    let lock = store.place().join("lock");
    // As if its holder had not renewed it for a long time.
    let age = || {
        let file = File::options().write(true).open(&lock).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    };
    // A backup whose manifest does not reach the store, nor do the renewals of its lock.
    let is_open = Arc::new(AtomicBool::new(false));
    let (opened, waits) = (Arc::clone(&is_open), Arc::new(AtomicBool::new(false)));
    let waiting = Arc::clone(&waits);
    let network = Network::before(store.port, move |_, head| {
        let is_last = head.starts_with("put ") && head.contains("manifest.json");
        waiting.fetch_or(is_last, Ordering::Relaxed);
        let is_lock = head.starts_with("put ") && head.contains("/lock?") && waiting.load(Ordering::Relaxed);
        match (is_last || is_lock) && !opened.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Passes,
        }
    });
    let words = ["backup", "--to", PLACE, "--addr", &address(&cluster)];
    let begin = || {
        waits.store(false, Ordering::Relaxed);
        is_open.store(false, Ordering::Relaxed);
        let mut command = store.command(network.port, &words);
        let backup = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("its manifest is on its way", || waits.load(Ordering::Relaxed));
        backup
    };
    let slow = begin();
    let (code, output) = store.quorate(&words);
    assert!(code == 1 && output.contains("another backup into") && output.contains("process"), "{output}");
    assert_eq!(store.objects("manifest.json").len(), 0);

    // A backup that has not renewed the lock for a long time loses the place. Its manifest comes too late: its files
    // are removed.
    age();
    store.back_up(&cluster, &[]);
    is_open.store(true, Ordering::Relaxed);
    let slow = slow.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&slow.stderr);
    assert!(!slow.status.success() && output.contains("has begun, since"), "{output}");
    assert_eq!(store.objects("manifest.json").len(), 1);

    // A killed backup leaves the lock, for a while.
    let mut killed = begin();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (code, output) = store.quorate(&words);
    assert!(code == 1 && output.contains("was killed less than 60 s ago"), "{output}");
    age();

    // With `--every`, several one after the other.
    let mut command = store.command(store.port, &[&words[..], &["--every", "1s", "--keep", "2"]].concat());
    let mut scheduled = command.stdout(Stdio::null()).spawn().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    until("there were four", || {
        seen.extend(store.objects("manifest.json"));
        seen.len() >= 4
    });
    scheduled.kill().unwrap();
    scheduled.wait().unwrap();
    run(&mut client, &[b"SET", b"k", b"w"]);
    // Requests that it had sent may still arrive.
    until("the place is free", || {
        if lock.exists() {
            age();
        }
        let (code, output) = store.quorate(&[&words[..], &["--keep", "1"]].concat());
        assert!(code == 0 || output.contains("was killed less than"), "{output}");
        code == 0
    });
    let (code, output) = store.quorate(&["backup", "--verify", PLACE]);
    assert!(code == 0 && output.matches(": whole").count() == 1, "{output}");
    let other = Cluster::start(1, &[]);
    let (code, output) = store.quorate(&["restore", "--from", PLACE, "--addr", &address(&other)]);
    assert_eq!((code, as_text(&run(&mut other.client(1), &[b"GET", b"k"]))), (0, "\"w\"".into()), "{output}");
}
