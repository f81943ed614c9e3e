//! Long turns: a busy node is not a dead one.

use protocol::planted::{Fault, Planted};
use sim::{Broken, Class, Protocol, Settings, Totals};

/// Where nothing goes wrong but that commands take long, no leader changes, and every request has an outcome.
fn keeps_leaders(protocol: Protocol) {
    let settings = Settings { protocol: Some(protocol), busy: true, ..Settings::default() };
    let mut totals = Totals::default();
    // With consensus, 93 has turns of nearly half a round that follow one another: what the others have answered in such a
    // turn is read before the round is judged, although it became due only just before.
    // In 5021 a node reads its clock after a long command, and its next turn follows at once.
    // In 600041 a request comes a moment after the replicas became quiescent.
    for seed in (0..20).chain([93, 5021, 600_041]) {
        let report = sim::run(seed, &settings, false);
        totals.add(&report);
        assert_eq!(report.failure, None, "replay it with: {}", settings.command(seed));
    }
    assert!(totals.counts.of(Class::LongTurn) > 0, "there is no long turn");
}

#[test]
fn consensus_keeps_its_leaders_while_they_are_busy() {
    keeps_leaders(Protocol::Consensus);
}

#[test]
fn leader_follower_keeps_its_leaders_while_they_are_busy() {
    keeps_leaders(Protocol::LeaderFollower);
}

#[test]
fn registers_answer_while_nodes_are_busy() {
    keeps_leaders(Protocol::Abd);
    keeps_leaders(Protocol::Blocking);
}

/// Without the vouches the same runs have changes of leaders.
#[test]
fn a_busy_node_is_taken_for_a_dead_one() {
    for protocol in [Protocol::Consensus, Protocol::LeaderFollower] {
        let planted = Planted::one(Fault::VouchIgnored);
        let settings = Settings { protocol: Some(protocol), busy: true, planted, ..Settings::default() };
        let mut failures = (0..20).filter_map(|seed| sim::run(seed, &settings, false).failure);
        let broken = failures.next().map(|failure| failure.broken);
        assert_eq!(broken, Some(Broken::Leadership), "{protocol}");
    }
}
