//! How long commands take, beside what they are estimated to take.
//!
//! What a node admits, how it shares a turn among clients, and where a script ends depend on these estimates. They are
//! counts, since all replicas must agree on them, so only a measurement shows whether they are true.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod cases;
mod stores;

use cases::{Case, TARGET, cases};
use kv::Command;
use kv::command::COMMAND_NS;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hint::black_box;
use stores::{SIZES, Store, kept, key};

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Estimates are in nanoseconds of this machine: the known loop takes so long there, in a release build.
const LOOP_NS: f64 = 420_000.0;

/// What takes less than this is not compared, in nanoseconds.
const FLOOR_NS: f64 = 50_000.0;

/// How often what seems wrong is measured.
const ATTEMPTS: usize = 8;

/// By which factor an estimate may be wrong, either way.
const FACTOR: f64 = 2.0;

/// Time that this thread has had a processor, in nanoseconds.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn took(work: impl FnOnce()) -> f64 {
    let begun = processor_ns();
    work();
    processor_ns() - begun
}

/// Work like that of commands: searches, comparisons, short copies and allocations.
fn known_loop() {
    const COUNT: u64 = 1_000;
    let name_of =
        |number: u64| format!("key:{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
    let mut map = BTreeMap::new();
    (0..COUNT).for_each(|number| drop(map.insert(name_of(number), vec![number as u8; 40])));
    let mut sum = 0_u64;
    for (name, value) in &map {
        sum = sum.wrapping_add(name.iter().chain(value).map(|byte| u64::from(*byte)).sum());
    }
    for number in 0..COUNT {
        sum += map.get(&name_of(number)).map_or(0, |value| value.len() as u64);
    }
    black_box(sum);
}

/// The least that the known loop takes in a few moments.
fn loop_ns() -> f64 {
    (0..4).map(|_| took(known_loop)).fold(f64::MAX, f64::min)
}

/// What one command took, and the known loop in the same moments.
struct Measured {
    took_ns: f64,
    loop_ns: f64,
    estimate_ns: f64,
}

impl Measured {
    /// What it would have taken on the machine for which the estimates are made.
    fn usual_ns(&self) -> f64 {
        self.took_ns * LOOP_NS / self.loop_ns
    }

    /// By how much the estimate is wrong.
    fn factor(&self) -> f64 {
        self.usual_ns() / self.estimate_ns
    }

    fn is_right(&self, is_lucky: bool) -> bool {
        let is_small = self.usual_ns().max(self.estimate_ns) < FLOOR_NS;
        is_small || self.factor() <= FACTOR && (is_lucky || self.factor() >= 1.0 / FACTOR)
    }
}

/// Measures a case at one size: the least time of several runs, and of the loop. Other processes slow both down: they share
/// caches and cores.
fn measured(store: &mut Store, case: &Case, command: &Command<'_>, size: usize) -> Measured {
    let repeats = if case.again { (2_000 / size).clamp(1, 100) } else { 1 };
    let mut least = Measured { took_ns: f64::MAX, loop_ns: loop_ns(), estimate_ns: 0.0 };
    let mut spent = 0.0;
    for run in 0..20 {
        prepare(store, case, size);
        least.estimate_ns = (command.walk_ns(&store.table) + COMMAND_NS) as f64;
        let took = took(|| (0..repeats).for_each(|_| store.carry_out(command)));
        if let Some(error) = store.forget() {
            panic!("{} of {size}: {error}", case.name);
        }
        while store.table.tidy(10_000) {}
        least.took_ns = least.took_ns.min(took / repeats as f64);
        spent += took;
        if run >= 3 && spent > 5e6 {
            break;
        }
    }
    least.loop_ns = least.loop_ns.min(loop_ns());
    least
}

/// `RESTORE` with the payload that is the value of the key which it names.
fn with_payload(store: &mut Store, command: Command<'static>) -> Command<'static> {
    let Command::Restore { key, payload: name, deadline, options } = command else { return command };
    Command::Restore { key, payload: kept(store.get(name)), deadline, options }
}

fn prepare(store: &mut Store, case: &Case, size: usize) {
    let mut scratch = Vec::new();
    let keys = kv::List::build(&mut scratch, [TARGET]);
    store.carry_out(&Command::Delete { keys });
    match case.copied {
        "" => {}
        "huge" => store.set(TARGET, b"1e300"),
        "keys" => store.carry_out(&Command::MultiSet { pairs: stores::pairs(size, 0), if_absent: false }),
        kind => store.copy(key(kind, size), TARGET),
    }
    assert_eq!(store.forget(), None);
}

/// Keeps the payload of each value, and strings of zeros.
fn add_payloads(store: &mut Store) {
    for size in SIZES {
        for kind in ["text", "list", "set", "sorted", "hash", "stream"] {
            let payload = store.bulk(&Command::Dump { key: key(kind, size) });
            store.set(key(&format!("payload {kind}"), size), &payload);
        }
        store.set(key("zeros", size), &vec![0; size * 100]);
    }
}

#[test]
fn every_command_takes_about_its_estimate() {
    let mut store = Store::new();
    add_payloads(&mut store);
    let mut wrong = Vec::new();
    for case in cases() {
        for size in SIZES.into_iter().filter(|size| *size <= case.most) {
            let command = with_payload(&mut store, (case.make)(size));
            let mut found = measured(&mut store, &case, &command, size);
            for _ in 1..ATTEMPTS {
                if found.is_right(case.is_lucky) {
                    break;
                }
                // Other processes disturb it for a while: the least of more moments is nearer to the truth.
                let again = measured(&mut store, &case, &command, size);
                found.took_ns = found.took_ns.min(again.took_ns);
                found.loop_ns = found.loop_ns.min(again.loop_ns);
            }
            let text = format!(
                "{:30} {size:7} took {:10.1} us, estimated {:10.1} us, {:6.2}, loop {:.2} ms",
                case.name,
                found.usual_ns() / 1e3,
                found.estimate_ns / 1e3,
                found.factor(),
                found.loop_ns / 1e6
            );
            println!("{text}");
            if !found.is_right(case.is_lucky) {
                wrong.push(text);
            }
        }
    }
    assert!(wrong.is_empty(), "{} estimates are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
