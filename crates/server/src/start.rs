//! Startup and shutdown of a node.

use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use driver::{Clients, Clock as _};
use mio::Poll;
use node::{Configuration, Node, ProcessFacts, StartError, StorageSettings, TlsFacts};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use storage::{Cause, Disk as _, StorageError};
use wire::handshake::{Identity, table_seed};

use crate::bridge::bridge;
use crate::config::{ClientCertificates, Config};
use crate::descriptors;
use crate::disk::{FolderDisk, WorkThreads};
use crate::files::DataFolder;
use crate::home;
use crate::http::{Http, Sealed};
use crate::listen::Listeners;
use crate::log;
use crate::notebook;
use crate::peers::{Peers, Security};
use crate::resolver::Resolver;
use crate::tls::{self, Certificates};
use crate::traces::Exporter;
use crate::turn::Clock;
use crate::values::{TreeValues, ValueThreads};
use crate::vouching::Vouching;
use crate::worker::{self, Parts, Worker};

/// How many files the log has at least.
const LOG_FILES_LEAST: u64 = 4;

/// Runs one node until SIGTERM or SIGINT asks it to stop. Prints nothing but its log, to standard error.
///
/// # Errors
/// A sentence that says why the node cannot start, or what has stopped it.
///
/// `adopts` makes a copied or moved folder the node's home (`home`). `log_file` is the file that standard error appends to,
/// if the node should keep it short. `release` returns memory that is free but still held by the process to the system.
pub fn run(mut config: Config, adopts: bool, log_file: Option<PathBuf>, release: fn()) -> Result<()> {
    let _settled = log::start(log_file)?;
    let signals = stop_signals()?;
    let certificates = match &config.tls {
        Some(settings) => {
            let read = Certificates::read(&config, settings, reload_signal()?);
            let read =
                read.with_context(|| format!("the node cannot start with {}", config.file.display()))?;
            Some(Arc::new(read))
        }
        None => None,
    };
    let listeners = patiently(|| Listeners::bind(&config))?;
    let folder = patiently(|| DataFolder::open(&config.data))?;
    home::check(&folder, &config, adopts)?;
    if config.is_file_exposed() {
        tracing::warn!(
            "{} holds the cluster's secret, and others may read it: chmod 600",
            config.file.display()
        );
    }
    if let Some(tls) = config.tls.as_ref().filter(|tls| tls.is_key_exposed()) {
        tracing::warn!("{} holds the key for TLS, and all users may read it: chmod 600", tls.key.display());
    }
    let mut limits = config.limits.within_memory();
    let sockets = descriptors::share(&mut limits)?;
    tracing::info!(
        "this node may use {} MiB of memory (limits.memory_max), and values may have up to {} bytes",
        limits.memory_max >> 20,
        limits.value_bytes_max
    );
    config.limits = limits;

    let mut disk = FolderDisk::open(&folder.storage())
        .with_context(|| format!("cannot use the folder {}", folder.storage().display()))?;
    let mut values = TreeValues::new(&folder.values())
        .with_context(|| format!("the node cannot start with {}", config.file.display()))?;
    let past = notebook::open(&folder)?;
    let (configuration, now) = (node_configuration(&config)?, Clock.now());
    disk.begin_reading();
    let node = Node::open_again(configuration, &mut disk, Some(&mut values), Some(past), now);
    disk.end_reading();
    let node = node.map_err(|error| explain(&error, &config, &folder, &disk))?;
    warn_of_small_disk(&config, &folder, &mut disk);
    home::name_cluster(&config);
    let poll = Poll::new().context("cannot watch sockets")?;
    let waker = worker::waker(&poll)?;
    let wake = {
        let waker = Arc::clone(&waker);
        move || {
            // It fails only when the poll no longer exists, and then nothing waits.
            let _ = waker.wake();
        }
    };
    let threads = WorkThreads::start(&disk, wake.clone()).context("cannot start the threads of the log")?;
    let value_threads =
        ValueThreads::start(&values, wake).context("cannot start the threads of large values")?;
    drop(values);
    let (caller, bridge) = bridge(Arc::clone(&waker), config.limits.http_bytes_max);
    let tls_counters = Arc::new(tls::Counters::default());
    let sealed = certificates.as_ref().map(|certificates| Sealed {
        certificates: Arc::clone(certificates),
        counters: Arc::clone(&tls_counters),
    });
    let ports = (listeners.http, listeners.tls_http.zip(sealed));
    let http = Http::start(ports, &config, sockets.http, caller)?;
    let door = certificates.map(|certificates| {
        let (counters, waker) = (Arc::clone(&tls_counters), Arc::clone(&waker));
        tls::Door::start(listeners.tls_clients, certificates, counters, sockets.clients, waker)
    });
    let (door, arrivals, handshakes) = match door.transpose()? {
        Some((door, arrivals, handshakes)) => (Some(door), Some(arrivals), Some(handshakes)),
        None => (None, None, None),
    };

    let exporter = Exporter::start(config.traces.as_ref(), &config.cluster, config.node)?;
    let limits = &config.limits;
    let identity = Identity::new(&config.name_for_peers(), config.node, config.secret.as_bytes())?;
    let identity = identity.reached_at_port(config.own()?.peer_port).of_lineage(node.lineage());
    let vouching = Vouching::start(Arc::clone(&waker), limits.patience)
        .context("cannot start the thread that vouches for the node")?;
    let resolver = Resolver::new(waker);
    let scratch = tls::scratch();
    let security = Security::new(handshakes, tls::Scratch::clone(&scratch));
    let worker = Worker::new(Parts {
        poll,
        client_listener: listeners.clients,
        peer_listener: listeners.peers,
        arrivals,
        tls_counters,
        exporter,
        signals: mio::net::UnixStream::from_std(signals),
        node,
        clients: Clients::new(limits.input_bytes_max, limits.request_timeout_ms),
        sockets: sockets.clients,
        peers: Peers::new(
            identity,
            config.node,
            config.dial.clone(),
            resolver,
            limits.patience,
            security,
            vouching,
        ),
        scratch,
        bridge,
        folder,
        disk,
        threads,
        value_threads,
        clock: Clock,
        release,
    })?;
    let own = config.own()?;
    if let Some(tls) = &config.tls {
        let ports = [("clients", tls.client_port), ("HTTP", tls.http_port)];
        let ports = ports.iter().filter(|(_, port)| *port != 0);
        let ports: Vec<String> = ports.map(|(name, port)| format!("{name} at {port}")).collect();
        let ports = if ports.is_empty() { "no port of its own".to_owned() } else { ports.join(", ") };
        let (bind, peers) = (tls.bind.unwrap_or(config.bind), tls.peers.word());
        tracing::info!("with TLS on {bind}: {ports}; between nodes: {peers} (tls.peers)");
    }
    tracing::info!(
        "node {} of cluster {} started, process {}: clients at {}:{}, HTTP at {}, peers at {}",
        config.node,
        config.cluster,
        std::process::id(),
        config.bind,
        own.client_port,
        own.http_port,
        own.peer_port
    );
    let (folder, exporter) = worker.run()?;
    http.stop();
    exporter.into_iter().for_each(Exporter::stop);
    if let Some(door) = door {
        door.stop();
    }
    folder.close();
    tracing::info!("node {} stopped", config.node);
    Ok(())
}

/// Warns where the log will be short of room: it has begun, and its reserve does not fit.
fn warn_of_small_disk(config: &Config, folder: &DataFolder, disk: &mut FolderDisk) {
    let needed = LOG_FILES_LEAST * config.storage.segment_bytes;
    let files = disk.list().unwrap_or_default();
    let taken: u64 = files.iter().map(|file| disk.length(file).unwrap_or(0)).sum();
    let Some(room) = disk.free_bytes().map(|free| free + taken).filter(|room| *room < needed) else { return };
    tracing::warn!(
        "the disk of {} is too small: this node has {} MiB there for its log, which needs {} MiB, {LOG_FILES_LEAST} files of \
         storage.segment_bytes = {}. Writes are refused when it is full: make room, use another folder (data), or make \
         segment_bytes smaller",
        folder.storage().display(),
        room >> 20,
        needed >> 20,
        config.storage.segment_bytes
    );
}

/// Why a node cannot start, in an operator's words.
fn explain(error: &StartError, config: &Config, folder: &DataFolder, disk: &FolderDisk) -> anyhow::Error {
    let (file, storage) = (config.file.display(), folder.storage());
    let storage = storage.display();
    match error {
        StartError::Configuration(why) => anyhow!("the node cannot start with {file}: {why}"),
        StartError::Quarantine(why) => anyhow!("{why}"),
        StartError::Storage(StorageError::Foreign { found, expected, .. })
            if (found.cluster, found.node) != (expected.cluster, expected.node) =>
        {
            let theirs = match home::cluster_of(config) {
                _ if found.cluster == expected.cluster => format!("of this cluster, '{}'", config.cluster),
                Some(name) => format!("of the cluster '{name}'"),
                None => "of another cluster".to_owned(),
            };
            anyhow!(
                "{storage} holds the data of node {} {theirs}, and {file} is for node {} of the cluster '{}': start each node with \
                 its own file, or give this one another folder (data)",
                found.node,
                config.node,
                config.cluster
            )
        }
        StartError::Storage(StorageError::Disk(failed)) if failed.cause == Cause::Full => {
            let needed = LOG_FILES_LEAST * config.storage.segment_bytes;
            let free = disk.free_bytes().map_or("little".to_owned(), |free| format!("{} MiB", free >> 20));
            anyhow!(
                "the disk of {storage} is too small: {free} are free there, and the log takes at least {} MiB, {LOG_FILES_LEAST} \
                 files of storage.segment_bytes = {}. Make room, use another folder (data), or make segment_bytes smaller \
                 in {file} ({failed})",
                needed >> 20,
                config.storage.segment_bytes
            )
        }
        error => anyhow!("the node cannot start with what is in {storage}: {error}"),
    }
}

/// Retries for a moment: a process that was just killed may still hold its ports and its folder's lock.
fn patiently<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(20);
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}

/// Returns a stream that becomes readable when the process is asked to stop.
fn stop_signals() -> Result<UnixStream> {
    let (receiver, sender) = UnixStream::pair().context("cannot make a pipe for signals")?;
    receiver.set_nonblocking(true).context("cannot make the pipe for signals non-blocking")?;
    for signal in [SIGTERM, SIGINT] {
        let sender = sender.try_clone().context("cannot make a pipe for signals")?;
        pipe::register(signal, sender).with_context(|| format!("cannot handle signal {signal}"))?;
    }
    Ok(receiver)
}

/// Returns a flag that SIGHUP sets from now on, instead of ending the process.
fn reload_signal() -> Result<Arc<AtomicBool>> {
    let is_asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&is_asked)).context("cannot handle SIGHUP")?;
    Ok(is_asked)
}

/// Returns what a node is created with.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn node_configuration(config: &Config) -> Result<Configuration> {
    Ok(Configuration {
        node: config.node,
        cluster: config.cluster.clone(),
        nodes: config.nodes.clone(),
        keyspaces: config.keyspaces.clone(),
        value_bytes_max: config.limits.value_bytes_max,
        connections_max: config.limits.connections_max,
        output_bytes_max: config.limits.output_bytes_max,
        memory_max: config.limits.memory_max,
        command_timeout_ms: config.limits.command_timeout_ms,
        long_command_bytes: node::LONG_COMMAND_BYTES,
        patience: config.limits.patience,
        groups_max: config.limits.groups_max,
        sweep_ms: protocol::registers::Timing::default().sweep_ms,
        password: config.password.clone(),
        operator_password: config.operator_password.clone(),
        default_changes_cluster: config.default_changes_cluster(),
        password_seed: password_seed()?,
        enable_debug_command: config.enable_debug_command,
        masters: config.masters,
        redis_version: config.redis_version,
        identity: getrandom::u64().map_err(|error| anyhow!("the system gives no random numbers: {error}"))?,
        life: 0,
        storage: StorageSettings { scrub_period_us: config.values.scrub_period_us(), ..config.storage },
        seed: getrandom::u64().map_err(|error| anyhow!("the system gives no random numbers: {error}"))?,
        table_seed: table_seed(config.secret.as_bytes()),
        releases: wire::release::RELEASES,
        traced_share: config.traces.as_ref().map(|traces| traces.sample),
        process: process_facts(config)?,
        planted: Default::default(),
    })
}

fn password_seed() -> Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| anyhow!("the system gives no random numbers: {error}"))?;
    Ok(seed)
}

fn process_facts(config: &Config) -> Result<ProcessFacts> {
    let mut random = [0; 20];
    getrandom::fill(&mut random).map_err(|error| anyhow!("the system gives no random numbers: {error}"))?;
    let run_id = random.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let system = rustix::system::uname();
    let words = [system.sysname(), system.release(), system.machine()];
    Ok(ProcessFacts {
        process_id: std::process::id(),
        run_id,
        executable: std::env::current_exe().unwrap_or_default().display().to_string(),
        config_file: config.file.display().to_string(),
        os: words.map(|word| word.to_string_lossy()).join(" "),
        tls: tls_facts(config),
        multiplexing_api: if cfg!(target_os = "linux") { "epoll" } else { "kqueue" },
    })
}

fn tls_facts(config: &Config) -> Option<TlsFacts> {
    let tls = config.tls.as_ref()?;
    let path = |file: &std::path::Path| file.display().to_string();
    Some(TlsFacts {
        client_port: tls.client_port,
        is_only: !config.has_plain_port(|tls| tls.client_port, |own| own.client_port),
        files: [path(&tls.certificate), path(&tls.key), tls.authority.as_deref().map_or(String::new(), path)],
        client_certificates: match tls.client_certificates {
            ClientCertificates::Off => "no",
            ClientCertificates::Wanted => "optional",
            ClientCertificates::Required => "yes",
        },
        certificates_name_users: tls.certificates_name_users,
    })
}
