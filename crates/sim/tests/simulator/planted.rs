//! A search that cannot fail proves nothing: the simulator finds each fault that is planted in replicas, by the promise that
//! it breaks, and the same run without the fault breaks none.
//!
//! Each test begins at a seed that found its fault, so that it is quick; a search from 0 needs at most (seed + 1)
//! runs. When scenarios or protocols change, the test searches on from there.

use protocol::planted::{Fault, Planted};
use sim::{Broken, Protocol, Settings};
use storage::planted as storage_planted;

/// Looks for a fault planted in replicas, from a seed on, and returns the kind of promise that was broken.
fn find(fault: Fault, protocol: Protocol, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, protocol, first)
}

/// The same where values are kept as fragments.
fn find_coded(fault: Fault, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), coded: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

/// The same where values are on the disk.
fn find_spilled(fault: Fault, protocol: Protocol, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), spilled: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, protocol, first)
}

/// The same where values are kept as fragments, and these are on the disk.
fn find_coded_on_disk(fault: Fault, first: u64) -> Broken {
    let settings =
        Settings { planted: Planted::one(fault), coded: true, spilled: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

/// The same where writes are sent in parts.
fn find_long(fault: Fault, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), long: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

/// The same where all keyspaces have bounds on memory.
fn find_bounded(fault: Fault, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), bounded: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

/// The same where the cluster is recovered after the loss of a majority.
fn find_recovered(fault: Fault, first: u64) -> Broken {
    let settings = Settings { planted: Planted::one(fault), recovery: true, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

/// The same for a fault of logs.
fn find_in_storage(fault: storage_planted::Fault, first: u64) -> Broken {
    let planted_in_storage = storage_planted::Planted::one(fault);
    let settings = Settings { planted_in_storage, ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, Protocol::Consensus, first)
}

fn find_with(fault: &str, settings: Settings, protocol: Protocol, first: u64) -> Broken {
    const RUNS_MAX: u64 = 2000;
    let settings = Settings { protocol: Some(protocol), ..settings };
    for seed in first..first + RUNS_MAX {
        if let Some(failure) = sim::run(seed, &settings, false).failure {
            let (broken, why) = (failure.broken, failure.words.lines().next().unwrap_or_default().to_owned());
            println!("{protocol} {fault}: seed {seed}, {}: {why}", broken.name());
            let sound = sim::run(seed, &Settings { mended: true, ..settings }, false);
            assert_eq!(sound.failure, None, "{fault}: seed {seed} fails without it, too");
            return broken;
        }
    }
    panic!("{fault} is not found in {RUNS_MAX} runs");
}

#[test]
fn leader_follower_shows_uncommitted_writes() {
    assert_eq!(find(Fault::VisibleBeforeCommitted, Protocol::LeaderFollower, 168), Broken::Safety);
}

#[test]
fn leader_follower_follows_one_wall_clock() {
    assert_eq!(find(Fault::ClockUnbounded, Protocol::LeaderFollower, 530), Broken::Safety);
}

#[test]
fn consensus_follows_one_wall_clock() {
    assert_eq!(find(Fault::ClockUnbounded, Protocol::Consensus, 754), Broken::Safety);
}

#[test]
fn abd_follows_one_wall_clock() {
    assert_eq!(find(Fault::ClockUnbounded, Protocol::Abd, 15), Broken::Safety);
}

#[test]
fn blocking_follows_one_wall_clock() {
    assert_eq!(find(Fault::ClockUnbounded, Protocol::Blocking, 20), Broken::Safety);
}

#[test]
fn consensus_leaves_parts_of_long_commands_out_of_snapshots() {
    assert_eq!(find_long(Fault::PartsNotInSnapshot, 12), Broken::Convergence);
}

#[test]
fn leader_follower_waits_for_one_too_few() {
    assert_eq!(find(Fault::OneAcknowledgementTooFew, Protocol::LeaderFollower, 274), Broken::Safety);
}

#[test]
fn leader_follower_overlooks_gaps() {
    assert_eq!(find(Fault::GapNotNoticed, Protocol::LeaderFollower, 2), Broken::Safety);
}

#[test]
fn leader_follower_starts_a_new_history_without_asking() {
    assert_eq!(find(Fault::NoRecovery, Protocol::LeaderFollower, 167), Broken::Safety);
}

#[test]
fn leader_follower_reports_unknown_as_refused() {
    assert_eq!(find(Fault::UnknownReportedAsRefused, Protocol::LeaderFollower, 2), Broken::Safety);
}

#[test]
fn leader_follower_compares_watched_keys_too_early() {
    assert_eq!(find(Fault::WatchNotRechecked, Protocol::LeaderFollower, 12), Broken::Safety);
}

#[test]
fn consensus_compares_watched_keys_too_early() {
    assert_eq!(find(Fault::WatchNotRechecked, Protocol::Consensus, 11), Broken::Safety);
}

#[test]
fn a_dropped_group_of_consensus_goes_on() {
    assert_eq!(find(Fault::DroppedGroupGoesOn, Protocol::Consensus, 449), Broken::Safety);
}

#[test]
fn a_dropped_group_of_abd_goes_on() {
    assert_eq!(find(Fault::DroppedGroupGoesOn, Protocol::Abd, 47), Broken::Safety);
}

#[test]
fn abd_goes_on_by_an_old_map() {
    assert_eq!(find(Fault::OldMapGoesOn, Protocol::Abd, 59), Broken::Safety);
}

#[test]
fn blocking_goes_on_by_an_old_map() {
    assert_eq!(find(Fault::OldMapGoesOn, Protocol::Blocking, 103), Broken::Safety);
}

#[test]
fn abd_reuses_a_tag() {
    assert_eq!(find(Fault::TagWithoutWriter, Protocol::Abd, 6), Broken::Safety);
}

#[test]
fn abd_reads_without_writing_back() {
    assert_eq!(find(Fault::ReadWithoutWriteBack, Protocol::Abd, 1199), Broken::Safety);
}

#[test]
fn abd_asks_the_first_majority_only() {
    assert_eq!(find(Fault::FixedQuorum, Protocol::Abd, 0), Broken::Liveness);
}

#[test]
fn abd_answers_without_memory() {
    assert_eq!(find(Fault::AnswerWithoutRefill, Protocol::Abd, 3), Broken::Liveness);
}

#[test]
fn abd_forgets_tombstones_early() {
    assert_eq!(find(Fault::TombstoneForgottenEarly, Protocol::Abd, 187), Broken::Safety);
}

#[test]
fn abd_reports_unknown_as_refused() {
    assert_eq!(find(Fault::UnknownReportedAsRefused, Protocol::Abd, 2), Broken::Safety);
}

#[test]
fn abd_acknowledges_what_is_not_durable() {
    assert_eq!(find(Fault::RegisterAcknowledgedBeforeDurable, Protocol::Abd, 1), Broken::Safety);
}

#[test]
fn blocking_acknowledges_what_is_not_durable() {
    assert_eq!(find(Fault::RegisterAcknowledgedBeforeDurable, Protocol::Blocking, 306), Broken::Safety);
}

#[test]
fn blocking_writes_without_checking_the_lock() {
    assert_eq!(find(Fault::WriteWithoutLockCheck, Protocol::Blocking, 1967), Broken::Safety);
}

#[test]
fn blocking_reads_without_repairing() {
    assert_eq!(find(Fault::ReadWithoutRepair, Protocol::Blocking, 686), Broken::Safety);
}

#[test]
fn blocking_keeps_surplus_locks() {
    assert_eq!(find(Fault::SurplusLockKept, Protocol::Blocking, 7), Broken::Liveness);
}

#[test]
fn blocking_reports_unknown_as_refused() {
    assert_eq!(find(Fault::UnknownReportedAsRefused, Protocol::Blocking, 45), Broken::Safety);
}

#[test]
fn consensus_records_no_promise() {
    assert_eq!(find(Fault::VoteNotPersisted, Protocol::Consensus, 13), Broken::Liveness);
}

#[test]
fn consensus_reads_without_a_quorum() {
    assert_eq!(find(Fault::ReadWithoutQuorum, Protocol::Consensus, 1633), Broken::Safety);
}

#[test]
fn consensus_cuts_its_log_past_what_is_applied() {
    assert_eq!(find(Fault::LogCutPastApplied, Protocol::Consensus, 16), Broken::Safety);
}

#[test]
fn consensus_lets_a_new_leader_serve_early() {
    assert_eq!(find(Fault::NewLeaderServesEarly, Protocol::Consensus, 417), Broken::Safety);
}

#[test]
fn consensus_copies_a_table_with_a_wrong_number() {
    assert_eq!(find(Fault::SnapshotIndexOffByOne, Protocol::Consensus, 0), Broken::Convergence);
}

#[test]
fn consensus_lets_a_newcomer_vote_before_it_has_a_copy() {
    assert_eq!(find(Fault::NewMemberVotesEarly, Protocol::Consensus, 0), Broken::Safety);
}

#[test]
fn consensus_applies_a_retried_command_twice() {
    assert_eq!(find(Fault::RetriedCommandAppliedTwice, Protocol::Consensus, 18), Broken::Safety);
}

#[test]
fn consensus_repeats_what_may_have_taken_effect() {
    assert_eq!(find(Fault::DoubtTakenForVoid, Protocol::Consensus, 29), Broken::Safety);
}

#[test]
fn consensus_forgets_the_floor_of_a_log_that_it_takes_over() {
    assert_eq!(find(Fault::FloorForgotten, Protocol::Consensus, 267), Broken::Safety);
}

#[test]
fn consensus_orders_what_was_meant_for_an_earlier_leadership() {
    assert_eq!(find(Fault::LeadershipNotCompared, Protocol::Consensus, 308), Broken::Safety);
}

#[test]
fn fragments_of_two_values_are_mixed() {
    // A value joined from fragments of two values is one that no client has written.
    assert_eq!(find_coded(Fault::FragmentsMixed, 0), Broken::Language);
}

#[test]
fn fragments_are_acknowledged_before_they_are_durable() {
    // All machines lose power; among those that restart first, too few hold fragments.
    assert_eq!(find_coded(Fault::FragmentAcknowledgedBeforeDurable, 326), Broken::Liveness);
}

#[test]
fn a_coded_value_is_ordered_when_only_a_bare_majority_keeps_it() {
    assert_eq!(find_coded(Fault::CodedOnBareMajority, 22), Broken::Liveness);
}

#[test]
fn a_lock_is_released_by_a_non_owner() {
    assert_eq!(find(Fault::LockFreedByNonOwner, Protocol::Consensus, 0), Broken::Safety);
}

#[test]
fn a_lock_reuses_a_token() {
    assert_eq!(find(Fault::LockTokenReused, Protocol::Consensus, 0), Broken::Safety);
}

#[test]
fn consensus_gives_elements_to_two_clients() {
    assert_eq!(find(Fault::QueueClaimedGivenBack, Protocol::Consensus, 16), Broken::Safety);
}

#[test]
fn consensus_forgets_what_was_served() {
    assert_eq!(find(Fault::QueueServedForgotten, Protocol::Consensus, 13), Broken::Safety);
}

#[test]
fn consensus_gives_elements_back_to_the_other_end() {
    assert_eq!(find(Fault::QueueGivenBackBehind, Protocol::Consensus, 559), Broken::Safety);
}

#[test]
fn replicas_draw_different_members_of_a_set() {
    assert_eq!(find(Fault::SetDrawnApart, Protocol::Consensus, 14), Broken::Safety);
}

#[test]
fn a_follower_evicts_another_key_than_its_leader() {
    assert_eq!(find_bounded(Fault::EvictsApart, 9), Broken::Safety);
}

#[test]
fn a_leader_evicts_though_the_policy_is_none() {
    assert_eq!(find_bounded(Fault::EvictsWithoutPolicy, 0), Broken::Safety);
}

#[test]
fn a_lock_is_granted_under_a_session_that_is_over() {
    assert_eq!(find(Fault::LockSessionNotRechecked, Protocol::Consensus, 216), Broken::Safety);
}

#[test]
fn a_control_leader_admits_an_older_disk() {
    assert_eq!(find(Fault::OlderDiskAdmitted, Protocol::Consensus, 69), Broken::Safety);
}

#[test]
fn a_client_gets_an_invalidation_before_its_reply() {
    assert_eq!(find(Fault::InvalidatedBeforeReply, Protocol::Consensus, 2), Broken::Safety);
}

#[test]
fn clients_keep_cached_values_though_their_node_is_cut_off() {
    assert_eq!(find(Fault::CachesOutliveLink, Protocol::Consensus, 31), Broken::Safety);
}

#[test]
fn clients_keep_cached_values_though_a_snapshot_is_installed() {
    assert_eq!(find(Fault::CachesOutliveSnapshot, Protocol::LeaderFollower, 604), Broken::Safety);
}

#[test]
fn readers_of_changes_miss_what_a_snapshot_brought() {
    assert_eq!(find(Fault::ChangesOutliveSnapshot, Protocol::LeaderFollower, 18), Broken::Safety);
}

#[test]
fn readers_of_changes_get_a_change_twice() {
    assert_eq!(find(Fault::ChangesRepeated, Protocol::Consensus, 0), Broken::Safety);
}

#[test]
fn a_copy_has_a_later_version_than_it_announces() {
    assert_eq!(find(Fault::CopyOfLaterVersion, Protocol::Consensus, 1), Broken::Safety);
}

#[test]
fn a_recovered_group_reuses_versions_of_lost_replicas() {
    assert_eq!(find_recovered(Fault::RecoveryKeepsVersions, 163), Broken::Safety);
}

#[test]
fn a_driver_gives_back_a_lent_buffer_with_a_request_in_it() {
    assert_eq!(find(Fault::BufferGivenBackEarly, Protocol::Consensus, 0), Broken::Safety);
}

#[test]
fn a_driver_reads_peers_though_the_log_is_behind() {
    assert_eq!(find(Fault::PeerReadWhileBehind, Protocol::Consensus, 0), Broken::Backpressure);
}

#[test]
fn a_driver_takes_finished_work_twice() {
    assert_eq!(find(Fault::FinishedTakenTwice, Protocol::Consensus, 0), Broken::Panic);
}

#[test]
fn a_log_accepts_a_torn_tail() {
    assert_eq!(find_in_storage(storage_planted::Fault::TornTailAccepted, 1), Broken::Liveness);
}

#[test]
fn a_log_does_not_compare_checksums() {
    assert_eq!(find_in_storage(storage_planted::Fault::ChecksumNotCompared, 1), Broken::Liveness);
}

#[test]
fn a_log_counts_a_sync_for_writes_made_while_it_ran() {
    assert_eq!(find_in_storage(storage_planted::Fault::SyncCoversLaterWrites, 27), Broken::Storage);
}

#[test]
fn a_log_does_not_sync_its_folder() {
    assert_eq!(find_in_storage(storage_planted::Fault::FolderNotSynced, 14), Broken::Storage);
}

#[test]
fn a_checkpoint_counts_before_its_values_are_durable() {
    assert_eq!(find_spilled(Fault::CheckpointBeforeValues, Protocol::Consensus, 885), Broken::Storage);
}

#[test]
fn a_value_is_removed_while_a_start_may_still_need_it() {
    assert_eq!(find_spilled(Fault::ValueRemovedEarly, Protocol::Consensus, 0), Broken::Storage);
}

#[test]
fn a_leader_follower_checkpoint_counts_before_its_values_are_durable() {
    assert_eq!(find_spilled(Fault::CheckpointBeforeValues, Protocol::LeaderFollower, 4535), Broken::Storage);
}

#[test]
fn a_leader_follower_value_is_removed_while_a_start_may_still_need_it() {
    assert_eq!(find_spilled(Fault::ValueRemovedEarly, Protocol::LeaderFollower, 220), Broken::Storage);
}

#[test]
fn a_value_damaged_on_a_disk_is_trusted() {
    assert_eq!(find_spilled(Fault::DamagedValueBelieved, Protocol::Consensus, 91), Broken::Language);
}

#[test]
fn a_value_damaged_on_a_disk_is_not_fetched() {
    assert_eq!(find_spilled(Fault::DamagedValueNotFetched, Protocol::Consensus, 580), Broken::Liveness);
}

#[test]
fn a_leader_follower_value_damaged_on_a_disk_is_trusted() {
    assert_eq!(find_spilled(Fault::DamagedValueBelieved, Protocol::LeaderFollower, 10), Broken::Language);
}

#[test]
fn a_leader_follower_value_damaged_on_a_disk_is_not_fetched() {
    assert_eq!(find_spilled(Fault::DamagedValueNotFetched, Protocol::LeaderFollower, 2075), Broken::Liveness);
}

#[test]
fn a_checkpoint_counts_before_its_fragments_are_durable() {
    assert_eq!(find_coded_on_disk(Fault::CheckpointBeforeValues, 326), Broken::Storage);
}

#[test]
fn a_fragment_is_removed_while_a_start_may_still_need_it() {
    assert_eq!(find_coded_on_disk(Fault::ValueRemovedEarly, 2), Broken::Storage);
}

#[test]
fn the_cluster_uses_a_levels_features_before_it_has_risen() {
    assert_eq!(find(Fault::FeatureUsedEarly, Protocol::Consensus, 1), Broken::Liveness);
}

fn find_across(fault: Fault, protocol: Protocol, first: u64) -> Broken {
    let settings = Settings { across: true, planted: Planted::one(fault), ..Settings::default() };
    find_with(&format!("{fault:?}"), settings, protocol, first)
}

#[test]
fn a_transaction_is_committed_by_one_vote() {
    assert_eq!(find_across(Fault::VotesNotAwaited, Protocol::Consensus, 1), Broken::Safety);
}

#[test]
fn a_group_gives_up_a_transaction_alone() {
    assert_eq!(find_across(Fault::GivesUpAlone, Protocol::Consensus, 31), Broken::Safety);
}

#[test]
fn half_a_transaction_is_read() {
    assert_eq!(find_across(Fault::LockedKeyRead, Protocol::Consensus, 8), Broken::Safety);
}

#[test]
fn a_transaction_is_repeated_after_an_unknown_outcome() {
    assert_eq!(find_across(Fault::RepeatedAfterUnknown, Protocol::Consensus, 1), Broken::Safety);
}

#[test]
fn a_vote_counts_that_was_never_recorded() {
    assert_eq!(find_across(Fault::UnknownTakenForVote, Protocol::Consensus, 1), Broken::Safety);
}

#[test]
fn a_refusal_is_forgotten() {
    assert_eq!(find_across(Fault::RefusalForgotten, Protocol::Consensus, 33), Broken::Safety);
}

#[test]
fn reads_without_locks_do_not_compare_versions() {
    assert_eq!(find_across(Fault::VersionsNotCompared, Protocol::Consensus, 1), Broken::Safety);
}

#[test]
fn values_that_a_transaction_needs_are_not_locked() {
    assert_eq!(find_across(Fault::ValuesNotLocked, Protocol::Consensus, 1), Broken::Safety);
}
