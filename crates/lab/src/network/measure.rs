//! Compares the relay's behaviour on this machine with its settings: over real sockets, by the clock.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::namespaces::Namespaces;
use super::relay::Relay;
use super::request::Route;
use super::settings::{Bandwidth, Interface, Link};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// During this time queues fill, and nothing is counted.
const SETTLE: Duration = Duration::from_millis(200);

/// How many round trips are timed for each delay.
const ROUND_TRIPS: usize = 200;

/// A message of one packet.
const MESSAGE_BYTES: usize = 64;

/// The number of parallel connections that lose packets, and what each sends: a loss costs a fifth of a second.
const LOSS_CONNECTIONS: usize = 50;
const LOSS_MESSAGES: usize = 200;

/// Measures the relay, printing a table row by row.
pub(super) fn print_table(seed: u64, duration: Duration) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "| requested | measured | off by |")?;
    writeln!(out, "|---|---|---|")?;
    let mut row = |asked: &str, measured: &str, off: &str| {
        writeln!(out, "| {asked} | {measured} | {off} |").and_then(|()| out.flush())
    };

    for megabits in [1, 10, 25, 40, 55, 70, 1_000, 10_000] {
        let bandwidth = Bandwidth::megabits(megabits);
        let link = Link { bandwidth: Some(bandwidth), ..Link::default() };
        let measured = throughput(seed, &link, duration)?;
        let asked = bandwidth.as_bits_per_second() as f64;
        row(&format!("bandwidth {bandwidth}"), &bits(measured), &percent(measured / asked - 1.0))?;
    }
    let (sender, receiver) = pair()?;
    let measured = throughput_between(sender, receiver, duration)?;
    row("no relay", &format!("{} ({:.2} GB/s)", bits(measured), measured / 8e9), "")?;
    let measured = throughput(seed, &Link::default(), duration)?;
    row("no limit", &format!("{} ({:.2} GB/s)", bits(measured), measured / 8e9), "")?;
    let (first, second) = shared(seed, Bandwidth::megabits(10), duration)?;
    let off = percent((first + second) / 10e6 - 1.0);
    row("node up 10mbit, two links", &format!("{} + {}", bits(first), bits(second)), &off)?;

    for words in ["delay=0", "delay=1ms", "delay=10ms", "delay=50ms"] {
        let link = parsed(words)?;
        let mut ways = one_ways(seed, &link, link)?;
        ways.sort();
        let (median, high) = (ways[ways.len() / 2], ways[ways.len() * 99 / 100]);
        let measured = format!("median {}, p99 {}", millis(median), millis(high));
        row(
            &format!("delay {:?} each way", link.delay),
            &measured,
            &millis(median.saturating_sub(link.delay)),
        )?;
    }
    let link = parsed("delay=10ms jitter=2ms")?;
    let there = one_ways(seed, &link, parsed("delay=10ms")?)?;
    let there: Vec<f64> = there.iter().map(|way| (way.as_secs_f64() * 2.0 - 0.010) * 1e3).collect();
    let mean = there.iter().sum::<f64>() / there.len() as f64;
    let (least, most) =
        there.iter().fold((f64::MAX, 0.0f64), |(least, most), it| (least.min(*it), most.max(*it)));
    let measured = format!("mean {mean:.2} ms, least {least:.2} ms, most {most:.2} ms");
    row("delay 10ms, jitter 2ms", &measured, &format!("{:.2} ms", mean - 10.0))?;

    for words in ["delay=1ms loss=1%", "delay=1ms loss=5%"] {
        let link = parsed(words)?;
        let (late, lost) = late_and_lost(seed, &link)?;
        let messages = LOSS_CONNECTIONS * LOSS_MESSAGES;
        let measured = format!("{late} of {messages} messages took a timeout more; {lost} losses were drawn");
        let expected = link.loss * messages as f64;
        row(&format!("loss {} %", link.loss * 100.0), &measured, &format!("{:+.0}", late as f64 - expected))?;
    }
    Ok(())
}

/// Measures the kernel's shaping in network namespaces, printing a table row by row.
#[cfg(target_os = "linux")]
pub(super) fn print_namespaces_table(duration: Duration) -> io::Result<()> {
    let mut network = Namespaces::start(2)?;
    let mut out = io::stdout().lock();
    writeln!(out, "| requested of tbf | measured | off by |")?;
    writeln!(out, "|---|---|---|")?;
    for megabits in [1, 10, 25, 40, 55, 70, 1_000, 10_000] {
        let bandwidth = Bandwidth::megabits(megabits);
        network.set_interface(1, Interface { up: Some(bandwidth), down: None })?;
        let (sender, receiver) = namespace_pair(&network)?;
        let measured = throughput_between(sender, receiver, duration)?;
        let off = percent(measured / bandwidth.as_bits_per_second() as f64 - 1.0);
        writeln!(out, "| node up {bandwidth} | {} | {off} |", bits(measured))?;
        out.flush()?;
    }
    Ok(())
}

/// A connection from node 1 to node 2. The sender is the first of the pair.
#[cfg(target_os = "linux")]
fn namespace_pair(network: &Namespaces) -> io::Result<(TcpStream, TcpStream)> {
    // A thread stays in the namespace that it has entered, and so do its sockets.
    thread::scope(|scope| {
        let listening = scope.spawn(|| {
            network.enter(2)?;
            TcpListener::bind((network.peer_address(2), 0))
        });
        let listener = listening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let address = listener.local_addr()?;
        let dialling = scope.spawn(move || {
            network.enter(1)?;
            TcpStream::connect(address)
        });
        let dialler = dialling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((dialler, listener.accept()?.0))
    })
}

/// Connects two sockets through a new route of a relay.
fn connect(relay: &Relay, from: u16, to: u16) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOOPBACK)?;
    let target = listener.local_addr()?;
    let address = relay.add_route(Route { from, to, listen: LOOPBACK, target })?;
    let dialer = TcpStream::connect(address)?;
    let (accepted, _) = listener.accept()?;
    dialer.set_nodelay(true)?;
    accepted.set_nodelay(true)?;
    Ok((dialer, accepted))
}

/// Bits per second that one connection carries over a link.
fn throughput(seed: u64, link: &Link, duration: Duration) -> io::Result<f64> {
    let relay = Relay::start(seed)?;
    relay.set_link(1, 2, *link)?;
    let (sender, receiver) = connect(&relay, 1, 2)?;
    throughput_between(sender, receiver, duration)
}

fn throughput_between(sender: TcpStream, receiver: TcpStream, duration: Duration) -> io::Result<f64> {
    let sending = thread::spawn(move || send_forever(sender));
    let measured = receive(receiver, duration);
    let _ = sending.join();
    measured
}

/// Two sockets connected without a relay.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOOPBACK)?;
    let dialer = TcpStream::connect(listener.local_addr()?)?;
    Ok((dialer, listener.accept()?.0))
}

/// Bits per second of two links that share a node's interface.
fn shared(seed: u64, up: Bandwidth, duration: Duration) -> io::Result<(f64, f64)> {
    let relay = Relay::start(seed)?;
    relay.set_interface(1, Interface { up: Some(up), down: None })?;
    let mut measured = Vec::new();
    for to in [2, 3] {
        let (sender, receiver) = connect(&relay, 1, to)?;
        measured.push((
            thread::spawn(move || send_forever(sender)),
            thread::spawn(move || receive(receiver, duration)),
        ));
    }
    let mut rates = Vec::new();
    for (sending, receiving) in measured {
        rates.push(receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        let _ = sending.join();
    }
    Ok((rates[0], rates[1]))
}

/// Sends until the receiver is gone.
fn send_forever(mut sender: TcpStream) {
    let bytes = vec![7; 256 << 10];
    while sender.write_all(&bytes).is_ok() {}
}

/// Reads for `duration`, then closes. The rate is computed between two arrivals.
fn receive(mut receiver: TcpStream, duration: Duration) -> io::Result<f64> {
    let mut buffer = vec![0; 256 << 10];
    let start = Instant::now();
    let (mut first, mut bytes) = (None, 0u64);
    loop {
        let count = receiver.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let now = Instant::now();
        match first {
            None if now - start < SETTLE => {}
            None => first = Some(now),
            Some(first) => {
                bytes += count as u64;
                let elapsed: Duration = now - first;
                if elapsed >= duration {
                    return Ok(bytes as f64 * 8.0 / elapsed.as_secs_f64());
                }
            }
        }
    }
}

/// Half of each round trip of a small message.
fn one_ways(seed: u64, there: &Link, back: Link) -> io::Result<Vec<Duration>> {
    let relay = Relay::start(seed)?;
    relay.set_link(1, 2, *there)?;
    relay.set_link(2, 1, back)?;
    let (mut asking, answering) = connect(&relay, 1, 2)?;
    let answering = thread::spawn(move || echo(answering));
    let mut trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        trips.push(round_trip(&mut asking)? / 2);
    }
    drop(asking);
    let _ = answering.join();
    Ok(trips)
}

/// How many single messages came later than any delay explains, and how many losses the relay drew: a message may be
/// lost twice.
fn late_and_lost(seed: u64, link: &Link) -> io::Result<(usize, u64)> {
    let relay = Relay::start(seed)?;
    relay.set_link(1, 2, *link)?;
    let (sender, late) = channel();
    let mut threads = Vec::new();
    for _ in 0..LOSS_CONNECTIONS {
        let (mut asking, answering) = connect(&relay, 1, 2)?;
        threads.push(thread::spawn(move || echo(answering)));
        let sender = sender.clone();
        threads.push(thread::spawn(move || {
            let trips = (0..LOSS_MESSAGES).filter_map(|_| round_trip(&mut asking).ok());
            let late = trips.filter(|trip| *trip >= Duration::from_millis(200)).count();
            // The receiver outlives the threads.
            let _ = sender.send(late);
        }));
    }
    drop(sender);
    let late: usize = late.iter().sum();
    threads.into_iter().for_each(|thread| {
        let _ = thread.join();
    });
    let lost = relay.traffic()?.iter().map(|it| it.traffic.lost).sum();
    Ok((late, lost))
}

fn round_trip(socket: &mut TcpStream) -> io::Result<Duration> {
    let mut message = [1; MESSAGE_BYTES];
    let start = Instant::now();
    socket.write_all(&message)?;
    socket.read_exact(&mut message)?;
    Ok(start.elapsed())
}

fn echo(mut socket: TcpStream) {
    let mut message = [0; MESSAGE_BYTES];
    while socket.read_exact(&mut message).and_then(|()| socket.write_all(&message)).is_ok() {}
}

fn parsed(words: &str) -> io::Result<Link> {
    Link::default().change(words).map_err(io::Error::other)
}

fn bits(bits_per_second: f64) -> String {
    if bits_per_second >= 1e9 {
        format!("{:.2} Gbit/s", bits_per_second / 1e9)
    } else {
        format!("{:.2} Mbit/s", bits_per_second / 1e6)
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:+.2} %", share * 100.0)
}
