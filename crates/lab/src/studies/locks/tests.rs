//! Small runs with real clients and the installed systems.

use std::time::Duration;

use super::faults::{self, Trials};
use super::load::Load;
use super::sides::{self, Side, WithClients};
use super::workers::LockClients;
use super::{TTL_MS, rows};
use crate::harness::{Figures, Plan, Scale};
use crate::systems::{Children, Running, System};

/// Systems that start within a second, each with the best recipe and, if different, the paper's.
const ARMS: [&str; 3] = [sides::REDIS_PAPER, sides::REDIS_BEST, sides::ETCD_BEST];

/// Runs a test on each installed system, and names those that are missing.
fn on_each(act: impl Fn(&Side, &mut Running<'_>, &std::path::Path)) {
    on(&ARMS, act);
}

fn on(arms: &[&str], act: impl Fn(&Side, &mut Running<'_>, &std::path::Path)) {
    let plan = Plan { scale: Scale::Quick, verify: false, quorate: "quorate".into() };
    for arm in arms {
        let side = sides::find(arm).unwrap();
        let system = WithClients { inner: (side.system)(&plan), clients: LockClients::new() };
        if let Err(missing) = system.version() {
            eprintln!("skipped {arm}: {missing}");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let children = Children::new(None);
        let mut running = Running::start(&system, folder.path(), &children).unwrap();
        act(side, &mut running, folder.path());
    }
}

fn load(running: &mut Running<'_>, side: &Side, folder: &std::path::Path, is_same_key: bool) -> Figures {
    let load = Load {
        contenders: 4,
        processes: 2,
        is_same_key,
        keys: format!("lock-{is_same_key}-"),
        ttl_ms: TTL_MS,
        hold_ms: 0.0,
        think_ms: 0.0,
        warmup: Duration::from_millis(100),
        measured: Duration::from_millis(400),
    };
    let loaded = load.run(running, &side.recipe, folder, |_| Ok(())).unwrap();
    rows::figures(&loaded.tries, load.contenders, is_same_key, loaded.from, loaded.to)
}

#[test]
fn contenders_acquire_and_never_two_hold_one_lock() {
    on_each(|side, running, folder| {
        let different = load(running, side, folder, false);
        assert!(different["acquires"] >= 4.0, "{}: {different:?}", side.name);
        let same = load(running, side, folder, true);
        assert!(same["acquires"] > 0.0 && same["overlaps"] == 0.0, "{}: {same:?}", side.name);
    });
}

#[test]
fn a_holder_that_was_paused_or_cut_off_still_writes_where_nothing_guards() {
    on_each(|side, running, folder| {
        let trials = Trials { recipe: &side.recipe, folder, keys: "gone-".to_owned(), count: 1 };
        let figures = trials.run(running).unwrap();
        assert_eq!((figures["stale_paused"], figures["stale_cut_off"]), (1.0, 1.0), "{}", side.name);
        assert_eq!(figures.get("guarded_paused").copied(), side.recipe.is_guarded.then_some(0.0));
        assert_eq!(figures.get("guarded_cut_off").copied(), side.recipe.is_guarded.then_some(0.0));
        assert_eq!(figures["never_granted"], 0.0, "{}", side.name);
        let least = figures.get("lease_min_ms").copied().unwrap_or(f64::INFINITY);
        // Redis counts leases in milliseconds.
        assert!(least >= figures["lease_ms"] - 2.0, "{}: the lock went on after {least} ms", side.name);
    });
}

#[test]
fn only_servers_that_forget_grant_a_lock_twice_when_they_are_restarted() {
    on(&[sides::REDIS_PAPER_UNSYNCED, sides::REDIS_PAPER, sides::ETCD_PAPER], |side, running, folder| {
        let figures = faults::restart_nodes(running, &side.recipe, folder, "lock-", 1).unwrap();
        let expected = if side.name == sides::REDIS_PAPER_UNSYNCED { 1.0 } else { 0.0 };
        assert_eq!(figures["two_holders_restarted"], expected, "{}", side.name);
    });
}

#[test]
fn between_zones_acquiring_takes_at_least_as_long_as_its_messages() {
    on(&[sides::REDIS_ZONES, sides::ETCD_ZONES], |side, running, folder| {
        // From the client to a node and back: three times in sequence with redlock-py.
        let round_trips = if side.recipe.asks_all { 3.0 } else { 1.0 };
        let figures = load(running, side, folder, false);
        assert!(figures["min_ms"] > 0.5 * round_trips, "{}: {figures:?}", side.name);
    });
}

#[test]
fn clocks_that_jump_end_a_lease_early_or_late() {
    on(&[sides::REDIS_CLOCKS], |side, running, folder| {
        let jump = |running: &mut Running<'_>, clocks| {
            faults::clocks_jump(running, &side.recipe, folder, "lock-", clocks).unwrap()
        };
        assert_eq!(jump(running, "ahead")["two_holders_jumped"], 1.0);
        let back = jump(running, "back");
        assert!(back["takeover_jumped_ms"] > back["lease_ms"] + 5_000.0, "{back:?}");
    });
}
