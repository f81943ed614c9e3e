//! The load generator against a small server that misbehaves on demand, and against Redis where it is installed.

// A panic is how a test fails; the lint knows that of test functions, but not of their helpers.
#![allow(clippy::unwrap_used)]

mod mock;
#[path = "../../quorate/tests/required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use check::Verdict;
use lab::load::{
    Arrivals, Error, ErrorWord, KeyChoice, Login, Mix, Operation, Options, Outcome, Pace, Report, Sizes,
    Stop, Transport, Wait, compare, run,
};
use lab::systems::{Children, Etcd, Running, System, ZooKeeper};
use mock::http::{self, Manner};
use mock::{Behaviour, start};
use required::skip;

/// Few keys, a short run that ends by count, and no patience.
fn options(address: SocketAddr) -> Options {
    Options {
        addresses: vec![address],
        connections: 4,
        pipeline: 8,
        keys: 100,
        warmup: Duration::ZERO,
        stop: Stop::Count(1000),
        reply_timeout: Duration::from_secs(5),
        ..Options::default()
    }
}

fn run_quietly(options: &Options) -> Report {
    run(options, |_| {}).unwrap()
}

/// Every operation that was asked for ended in exactly one way.
fn assert_all_counted(report: &Report, count: u64) {
    assert_eq!(report.operations() + report.failures() + report.unknown(), count, "{report}");
}

#[test]
fn a_sound_server_answers_everything() {
    let mock = start(Behaviour::Sound);
    let mix = Mix { get: 3, set: 2, incr: 1, ping: 1, custom: 0 };
    let report = run_quietly(&Options { mix, ..options(mock.address) });
    assert_eq!(report.operations(), 1000, "{report}");
    assert_all_counted(&report, 1000);
    assert!(!report.has_wrong_answers());
    assert_eq!(report.rows().len(), 5, "each operation and all together");
}

#[test]
fn values_of_every_size_come_back_as_written() {
    let mock = start(Behaviour::Sound);
    for (number, value_bytes) in [0, 1, 16, 31, 32, 33, 5000, 300_000].into_iter().enumerate() {
        let key_prefix = format!("{number}:");
        let options = Options {
            value_bytes: Sizes::fixed(value_bytes),
            key_prefix,
            keys: 8,
            pipeline: 4,
            stop: Stop::Count(64),
            ..options(mock.address)
        };
        assert_eq!(run_quietly(&options).operations(), 64, "{value_bytes} bytes");
    }
}

#[test]
fn a_run_by_time_ends_and_reports_progress() {
    let mock = start(Behaviour::Sound);
    let stop = Stop::Duration(Duration::from_millis(1200));
    let mut reports = 0;
    let options = Options { stop, warmup: Duration::from_millis(100), ..options(mock.address) };
    let begun = Instant::now();
    let report = run(&options, |progress| reports += u32::from(progress.operations > 0)).unwrap();
    assert!(report.measured_from() >= begun + options.warmup);
    assert!(report.measured_from() + report.elapsed() <= Instant::now());
    assert!(report.operations() > 0 && report.failures() == 0, "{report}");
    assert_eq!(report.elapsed(), Duration::from_millis(1200));
    assert!(reports >= 1);
}

#[test]
fn threads_share_the_work() {
    let mock = start(Behaviour::Sound);
    let report = run_quietly(&Options { threads: 3, stop: Stop::Count(1001), ..options(mock.address) });
    assert_eq!(report.operations(), 1001, "{report}");
}

#[test]
fn wrong_values_are_failures() {
    let mock = start(Behaviour::WrongValues);
    let report = run_quietly(&Options { mix: Mix::only(Operation::Get), ..options(mock.address) });
    assert_eq!(report.count(Outcome::WrongValue), 1000, "{report}");
    assert_eq!(report.operations(), 0);
    assert!(report.has_wrong_answers());
}

#[test]
fn keys_that_were_never_written_are_misses() {
    let mock = start(Behaviour::Sound);
    let mix = Mix::only(Operation::Get);
    let report = run_quietly(&Options { mix, load: false, ..options(mock.address) });
    assert_eq!(report.count(Outcome::Miss), 1000, "{report}");
}

#[test]
fn errors_are_counted_by_their_first_word() {
    let mock = start(Behaviour::Errors);
    let report = run_quietly(&Options { load: false, ..options(mock.address) });
    assert_eq!(report.count(Outcome::Error(ErrorWord::of(b"CLUSTERDOWN"))), 1000, "{report}");
    assert_eq!((report.operations(), report.failures(), report.unknown()), (0, 1000, 0));
    assert!(report.rows().iter().all(|row| row.outcome != Outcome::Ok || row.count == 0));
}

#[test]
fn a_load_that_never_succeeds_is_given_up() {
    let mock = start(Behaviour::Errors);
    let options = Options { reply_timeout: Duration::from_millis(300), wait: None, ..options(mock.address) };
    let error = run(&options, |_| {}).err().unwrap();
    assert!(matches!(error, Error::Stalled { is_loading: true, .. }), "{error}");
    assert!(error.to_string().contains("SET error:CLUSTERDOWN"), "{error}");
}

#[test]
fn connections_dropped_in_mid_batch_are_unknown_and_reconnect() {
    // 13 is no multiple of the pipeline of 8: every second batch is cut in its middle.
    let mock = start(Behaviour::DropAfter(13));
    let report =
        run_quietly(&Options { load: false, mix: Mix::only(Operation::Set), ..options(mock.address) });
    assert!(report.operations() > 0 && report.connections_lost() > 1, "{report}");
    assert_eq!(report.count(Outcome::Lost), report.unknown());
    assert_eq!(report.failures(), 0);
    assert!(report.unknown() >= report.connections_lost(), "{report}");
    assert_all_counted(&report, 1000);
}

#[test]
fn keys_are_all_loaded_over_connections_that_drop() {
    let mock = start(Behaviour::DropAfter(13));
    run_quietly(&Options { stop: Stop::Count(1), ..options(mock.address) });
    assert!(mock.key_count() >= 100);
}

#[test]
fn garbage_closes_the_connection_and_counts_as_protocol() {
    let mock = start(Behaviour::GarbageAfter(13));
    let report =
        run_quietly(&Options { load: false, mix: Mix::only(Operation::Ping), ..options(mock.address) });
    assert_eq!(report.count(Outcome::Protocol), report.connections_lost(), "{report}");
    assert!(report.count(Outcome::Protocol) > 1 && report.has_wrong_answers(), "{report}");
    assert_all_counted(&report, 1000);
}

#[test]
fn more_replies_than_requests_are_a_protocol_failure() {
    let mock = start(Behaviour::Twice);
    let options =
        Options { pipeline: 1, load: false, mix: Mix::only(Operation::Set), ..options(mock.address) };
    let report = run_quietly(&options);
    assert!(report.has_wrong_answers(), "{report}");
    assert_all_counted(&report, 1000);
}

#[test]
fn a_server_that_falls_silent_is_unknown_after_the_timeout() {
    let mock = start(Behaviour::SilentAfter(4));
    let options = Options {
        connections: 1,
        pipeline: 4,
        mix: Mix::only(Operation::Ping),
        load: false,
        stop: Stop::Count(8),
        reply_timeout: Duration::from_millis(200),
        ..options(mock.address)
    };
    let report = run_quietly(&options);
    assert_eq!((report.operations(), report.count(Outcome::Timeout)), (4, 4), "{report}");
    assert_eq!(report.connections_lost(), 1);
}

#[test]
fn wait_must_count_enough_replicas() {
    let mock = start(Behaviour::Sound);
    let wait = |replicas| Some(Wait { replicas, timeout_ms: 100 });
    let enough = run_quietly(&Options { wait: wait(mock::REPLICAS), ..options(mock.address) });
    assert_eq!(enough.operations(), 1000, "{enough}");

    let mix = Mix::only(Operation::Set);
    let too_few = Options { wait: wait(mock::REPLICAS + 1), mix, load: false, ..options(mock.address) };
    let too_few = run_quietly(&too_few);
    assert_eq!(too_few.count(Outcome::TooFewReplicas), 1000, "{too_few}");
}

#[test]
fn one_wait_covers_all_writes_of_a_batch_and_no_read() {
    let mock = start(Behaviour::Sound);
    let once = |replicas| Options {
        wait: Some(Wait { replicas, timeout_ms: 100 }),
        wait_once: true,
        pipeline: 10,
        ..options(mock.address)
    };
    let enough = run_quietly(&once(mock::REPLICAS));
    assert_eq!(enough.operations(), 1000, "{enough}");

    // The keys are there by now.
    let too_few = run_quietly(&Options { load: false, ..once(mock::REPLICAS + 1) });
    let missed = too_few.count(Outcome::TooFewReplicas);
    assert!((400..600).contains(&missed) && too_few.operations() == 1000 - missed, "{too_few}");
}

#[test]
fn writes_whose_wait_is_never_answered_are_unknown() {
    let mock = start(Behaviour::SilentAfter(4));
    let options = Options {
        connections: 1,
        pipeline: 4,
        mix: Mix::only(Operation::Set),
        wait: Some(Wait { replicas: 1, timeout_ms: 100 }),
        wait_once: true,
        load: false,
        stop: Stop::Count(4),
        reply_timeout: Duration::from_millis(200),
        ..options(mock.address)
    };
    let report = run_quietly(&options);
    assert_eq!((report.operations(), report.count(Outcome::Timeout)), (0, 4), "{report}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let address = free_address();
    let error = run(&options(address), |_| {}).err().unwrap();
    assert!(error.to_string().starts_with(&format!("cannot use {address}: ")), "{error}");
}

fn login(password: &str) -> Login {
    Login { user: None, password: password.to_owned() }
}

#[test]
fn a_refused_password_is_reported_at_once() {
    let mock = start(Behaviour::Sound);
    let refused = Options { login: Some(login("wrong")), ..options(mock.address) };
    let error = run(&refused, |_| {}).err().unwrap();
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    let accepted = Options { login: Some(login(mock::PASSWORD)), ..options(mock.address) };
    assert_eq!(run_quietly(&accepted).operations(), 1000);
}

#[test]
fn connections_are_spread_over_all_addresses() {
    let (first, second) = (start(Behaviour::Sound), start(Behaviour::Sound));
    let addresses = vec![first.address, second.address];
    run_quietly(&Options {
        addresses,
        mix: Mix::only(Operation::Set),
        load: false,
        ..options(first.address)
    });
    assert!(first.key_count() > 0 && second.key_count() > 0);
}

#[test]
fn two_servers_are_measured_alternately() {
    let (first, second) = (start(Behaviour::Sound), start(Behaviour::Sound));
    let sides = [&options(first.address), &options(second.address)];
    let comparison = compare(sides, 2, |_, _| {}).unwrap();
    assert_eq!(comparison.rounds().len(), 2);
    assert!(comparison.rounds().iter().flatten().all(|report| report.operations() == 1000));
    assert!(comparison.rate_ratio() > 0.0);
}

#[test]
fn a_second_server_that_is_dead_is_found_before_the_first_is_measured() {
    let alive = start(Behaviour::Sound);
    // No server listens on this port: it was free a moment ago.
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let error = compare([&options(alive.address), &options(free)], 2, |_, _| {}).err().unwrap();
    assert!(error.to_string().contains(&format!("cannot use {free}")), "{error}");
    assert_eq!(alive.key_count(), 0);
}

#[test]
fn redis_answers_everything() {
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed (package redis-server)");
    };
    let mix = Mix { get: 2, set: 2, incr: 1, ping: 1, custom: 0 };
    for pipeline in [1, 16, 64] {
        let options = Options { pipeline, mix, stop: Stop::Count(20_000), ..options(redis.address) };
        let report = run_quietly(&options);
        assert_eq!(report.operations(), 20_000, "{report}");
    }
    // A Redis without replicas counts none of them.
    let wait = Some(Wait { replicas: 1, timeout_ms: 1 });
    let mix = Mix::only(Operation::Set);
    let options =
        Options { wait, mix, load: false, pipeline: 1, stop: Stop::Count(20), ..options(redis.address) };
    assert_eq!(run_quietly(&options).count(Outcome::TooFewReplicas), 20);
    let once = Options { wait_once: true, pipeline: 10, ..options };
    assert_eq!(run_quietly(&once).count(Outcome::TooFewReplicas), 20);
}

/// One node of a system, where it is installed, is driven in its own language; every value comes back as it was written,
/// and the history is linearizable.
fn assert_answers_everything(system: &dyn System, transport: Transport, pipeline: usize) {
    if let Err(missing) = system.version() {
        // ZooKeeper is never required: CI does not install it.
        return match transport {
            Transport::ZooKeeper => println!("skipped: {missing}"),
            _ => skip(missing),
        };
    }
    let (folder, children) = (tempfile::tempdir().unwrap(), Children::default());
    let mut running = Running::start(system, &folder.path().join("work"), &children).unwrap();
    running.wait_until_ready().unwrap();
    let address = running.nodes().find_map(|node| system.client_address(node)).unwrap();
    let mixes =
        [Mix { get: 2, set: 1, ..Mix::default() }, Mix::only(Operation::Get), Mix::only(Operation::Set)];
    for (mix, bytes) in mixes.into_iter().zip([256, 0, 8000]) {
        let mut report = run_quietly(&Options {
            transport,
            pipeline,
            mix,
            keys: 20,
            key_prefix: format!("{bytes}:"),
            value_bytes: Sizes::fixed(bytes),
            record: bytes >= 256,
            ..options(address)
        });
        assert_eq!(report.operations(), 1000, "{report}");
        if let Some(history) = report.take_history() {
            let verdict = check::linearizable(&history);
            assert!(matches!(verdict, Verdict::Ok { .. }), "{}", verdict.words(&history));
        }
    }
    // What was never written is missing.
    let unwritten =
        Options { load: false, mix: Mix::only(Operation::Get), transport, pipeline, ..options(address) };
    assert_eq!(run_quietly(&unwritten).count(Outcome::Miss), 1000);
    running.stop();
}

#[test]
fn etcd_answers_everything_in_its_own_protocol() {
    assert_answers_everything(&Etcd::new(1), Transport::Etcd, 1);
    assert_answers_everything(&Etcd::new(1), Transport::Etcd, 4);
}

#[test]
fn zookeeper_answers_everything_in_its_own_protocol() {
    assert_answers_everything(&ZooKeeper::new(1), Transport::ZooKeeper, 4);
}

#[test]
fn a_server_that_is_not_etcd_or_zookeeper_is_detected() {
    let mock = start(Behaviour::Sound);
    for transport in [Transport::Etcd, Transport::ZooKeeper] {
        let options = Options { transport, pipeline: 1, ..options(mock.address) };
        let error = run(&options, |_| {}).err().unwrap();
        assert!(error.to_string().starts_with(&format!("cannot use {}: ", mock.address)), "{error}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_reports_delays() {
    let mock = start(Behaviour::Sound);
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        let options = Options {
            pace: Pace::Open { per_second: 4000.0, arrivals },
            connections: 8,
            stop: Stop::Duration(Duration::from_millis(500)),
            ..options(mock.address)
        };
        let report = run_quietly(&options);
        let delays = report.delays().unwrap();
        let due = report.operations() + delays.unsent;
        assert!((1800..2200).contains(&due), "{arrivals:?}: {due} requests were due\n{report}");
        assert_eq!(report.failures() + report.unknown(), 0, "{report}");
    }
}

#[test]
fn an_open_loop_counts_the_time_for_which_requests_had_to_wait() {
    // One connection, on which the third request is not answered: until it is given up, 200 per second become due.
    let mock = start(Behaviour::SilentAfter(2));
    let report = run_quietly(&Options {
        pace: Pace::Open { per_second: 200.0, arrivals: Arrivals::Even },
        connections: 1,
        pipeline: 1,
        mix: Mix::only(Operation::Ping),
        load: false,
        stop: Stop::Duration(Duration::from_millis(600)),
        reply_timeout: Duration::from_millis(200),
        ..options(mock.address)
    });
    let delays = report.delays().unwrap();
    assert_eq!(report.operations() + report.unknown() + delays.unsent, 120, "{report}");
    assert!(report.count(Outcome::Timeout) >= 1 && delays.late >= 1, "{report}");
    assert!(delays.unsent > 60 && delays.max_us > 150_000, "{delays:?}");
    let latencies = report.latencies(Operation::Ping, Outcome::Ok).unwrap();
    assert!(latencies.max() > 150_000, "the latency runs from when the request was due\n{report}");
}

#[test]
fn an_open_loop_by_count_sends_them_all() {
    let mock = start(Behaviour::DropAfter(13));
    let pace = Pace::Open { per_second: 20_000.0, arrivals: Arrivals::Poisson };
    let mix = Mix::only(Operation::Set);
    let report = run_quietly(&Options { pace, mix, load: false, threads: 2, ..options(mock.address) });
    assert_all_counted(&report, 1000);
    assert_eq!(report.delays().unwrap().unsent, 0);
}

#[test]
fn keys_and_values_have_the_sizes_that_were_asked_for() {
    let mock = start(Behaviour::Sound);
    let options = Options {
        key_choice: KeyChoice::Sequential,
        key_bytes: Some(40),
        value_bytes: Sizes { min: 10, max: 90 },
        ..options(mock.address)
    };
    assert_eq!(run_quietly(&options).operations(), 1000);
    assert!(mock.keys().iter().all(|key| key.len() == 40));
}

#[test]
fn a_run_that_is_recorded_can_be_checked() {
    let mock = start(Behaviour::Sound);
    let mix = Mix { get: 3, set: 2, incr: 1, ping: 1, custom: 0 };
    let recorded = Options { record: true, mix, keys: 10, threads: 2, ..options(mock.address) };
    let mut report = run_quietly(&recorded);
    let history = report.take_history().unwrap();
    let pings = report.latencies(Operation::Ping, Outcome::Ok).map_or(0, |latencies| latencies.len());
    assert_eq!(history.operations().len() as u64, 10 + 1000 - pings);
    assert!(matches!(check::linearizable(&history), Verdict::Ok { .. }));

    let wrong = start(Behaviour::WrongValues);
    let history =
        run_quietly(&Options { addresses: vec![wrong.address], ..recorded }).take_history().unwrap();
    assert!(matches!(check::linearizable(&history), Verdict::Violation(_)));
}

#[test]
fn writes_that_were_lost_are_unknown_in_the_history() {
    let mock = start(Behaviour::DropAfter(13));
    let mut report = run_quietly(&Options { record: true, keys: 10, ..options(mock.address) });
    let history = report.take_history().unwrap();
    assert!(history.operations().iter().any(|operation| operation.end.is_none()));
    assert!(matches!(check::linearizable(&history), Verdict::Ok { .. }));
}

#[test]
fn an_http_server_answers_everything_on_connections_that_stay_open() {
    for manner in [Manner::Plain, Manner::Chunked] {
        let server = http::start(manner);
        let mix = Mix { get: 3, set: 2, incr: 0, ping: 1, custom: 0 };
        for pipeline in [1, 8] {
            let mut report = run_quietly(&Options {
                transport: Transport::Http,
                record: true,
                key_prefix: "a b/\"".to_owned(),
                mix,
                pipeline,
                ..options(server.address)
            });
            assert_eq!((report.operations(), report.connections_lost()), (1000, 0), "{manner:?}\n{report}");
            let history = report.take_history().unwrap();
            assert!(matches!(check::linearizable(&history), Verdict::Ok { .. }));
        }
        assert_eq!(server.connections(), 2 * 4);
    }
}

#[test]
fn refusals_of_an_http_server_are_counted_by_their_code() {
    let server = http::start(Manner::Refuses);
    let mix = Mix::only(Operation::Set);
    let report =
        run_quietly(&Options { transport: Transport::Http, mix, load: false, ..options(server.address) });
    assert_eq!(report.count(Outcome::Error(ErrorWord::of(b"CLUSTERDOWN"))), 1000, "{report}");
}

#[test]
fn an_http_server_that_closes_after_each_reply_loses_nothing() {
    let server = http::start(Manner::Closes);
    let report = run_quietly(&Options {
        transport: Transport::Http,
        pipeline: 1,
        keys: 4,
        stop: Stop::Count(20),
        ..options(server.address)
    });
    assert_eq!((report.operations(), report.unknown()), (20, 0), "{report}");
    assert!(report.connections_lost() >= 20);
}

/// An address of this machine on which no process listens.
fn free_address() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

/// A Redis of our own that ends with the test.
struct Redis {
    process: Child,
    address: SocketAddr,
}

impl Redis {
    /// Starts it and waits until it says that it accepts connections; `None` when it is not installed.
    fn start() -> Option<Self> {
        let address = free_address();
        let mut process = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .args(["--port", &address.port().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let lines = BufReader::new(process.stdout.take()?).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.contains("Ready to accept connections"));
        let redis = Self { process, address };
        assert!(is_ready, "redis-server ended before it was ready");
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
