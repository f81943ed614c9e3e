//! Features of some scenarios. Each is drawn from a random stream of its own, so that adding a feature does not change what a
//! seed otherwise means.

use super::{
    NetworkFaults, Scenario, Settings, USUAL_BEHIND_BYTES, USUAL_TIMEOUT_MS, draw_space, some, stream,
};
use crate::events::Place;
use crate::faults::{Cut, DiskFault, Draw, Fault, Kind as FaultKind, MS, Order, SECOND};
use crate::operation::Kind;
use crate::promise::{Durability, Protocol, Space};
use crate::random::Random;
use driver::Sizes;
use protocol::planted::{Fault as PlantedFault, Planted};

/// What an empty table takes, in bytes.
const EMPTY_TABLE_BYTES: u64 = 66_000;

/// The least length of parts where clients read all changes.
const READERS_PART_BYTES: usize = 16 << 10;

impl Scenario {
    /// In some clusters a keyspace or a node is added during the run.
    pub(super) fn draw_changes(
        &mut self,
        settings: &Settings,
        random: &mut Random,
    ) -> (Option<u8>, Option<Place>) {
        let is_drawn = random.percent(25) || self.finds_floors();
        let dynamic = is_drawn.then_some(self.spaces.len());
        if let Some(index) = dynamic {
            let mut space = draw_space(index, self.nodes, settings, random);
            space.is_created = true;
            self.spaces.push(space);
        }
        let spare = random.percent(25).then_some(self.nodes);
        if spare.is_some() {
            self.nodes += 1;
            self.drift_ppm.push(random.below(20_001) as i64 - 10_000);
            self.unix_ahead_ms.push(random.below(2_000) as i64 - 1_000);
        }
        (dynamic.map(|index| index as u8), spare)
    }

    /// Whether a planted fault is looked for that shows when a keyspace takes keys from another.
    fn finds_floors(&self) -> bool {
        PlantedFault::OF_FLOORS.into_iter().any(|fault| self.planted.has(fault))
    }

    /// In some keyspaces clients make transactions.
    pub(super) fn draw_transactions(&mut self) {
        let mut random = Random::new(self.seed, stream::TRANSACTIONS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            if random.percent(40) {
                let times = random.between(1, 3) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Transact, times));
            }
        }
    }

    /// In some clusters clients make transactions over several keyspaces and shards.
    pub(super) fn draw_across(&mut self, settings: &Settings) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_TWO_PHASE.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::ACROSS);
        let is_drawn = random.percent(30) && !is_planted;
        // All lists at once, in parts of a few bytes, would take longer than a command may.
        let is_slow = self.long_command_bytes < 1_000
            || self.command_timeout_ms < USUAL_TIMEOUT_MS && self.long_command_bytes < 10_000;
        if settings.calm.is_some()
            || is_slow
            || self.has_old_programs
            || !(is_drawn || finds || settings.across)
        {
            return;
        }
        // Keyspaces without an order, or that forget, take no part. One that is
        // created or dropped in the run, or that has no room or loses keys, would break what is checked.
        let mut there: Vec<&mut Space> =
            self.spaces.iter_mut().filter(|space| space.takes_part_in_transactions()).collect();
        let groups: u32 = there.iter().map(|space| u32::from(space.keyspace.shards)).sum();
        if groups == 1 && (finds || settings.across || random.percent(60)) {
            // No other draw depends on the number of shards.
            there[0].set_shards(random.between(2, 4) as u16);
        }
        let times = random.between(2, 20) as usize;
        for space in there {
            space.kinds.extend(std::iter::repeat_n(Kind::Across, times));
            space.kinds.push(Kind::ReadAcross);
            // Some clients wait at all lists of a keyspace.
            if !is_planted && random.percent(40) {
                space.set_shards(random.between(3, 5) as u16);
                if space.queues_are_apart() {
                    let times = random.between(1, 6) as usize;
                    for kind in [Kind::Push, Kind::Push, Kind::Take, Kind::TakeAny] {
                        space.kinds.extend(std::iter::repeat_n(kind, times));
                    }
                }
            }
        }
    }

    /// In some clusters nodes are cut off from the control leader, but not from all others, while a keyspace is made or dropped: they
    /// may lead groups that lose keys by that.
    pub(super) fn draw_moves(&mut self) {
        let mut random = Random::new(self.seed, stream::MOVES);
        let finds = self.finds_floors();
        let is_there = self.spaces.get(1).is_some_and(|space| !space.is_created);
        if self.planted.has(PlantedFault::DroppedGroupGoesOn) && is_there {
            let at = random.below(self.length_us);
            self.faults.push(Some(Fault { at, kind: FaultKind::Order(Order::Drop { space: 1 }) }));
        }
        let moves =
            |kind: &FaultKind| matches!(kind, FaultKind::Order(Order::Create { .. } | Order::Drop { .. }));
        let moved: Vec<u64> =
            self.faults.iter().flatten().filter(|it| moves(&it.kind)).map(|fault| fault.at).collect();
        let is_planted = self.planted != Planted::default() && !finds;
        if moved.is_empty() || self.nodes < 3 || is_planted || !(finds || random.percent(50)) {
            return;
        }
        for moved_at in moved {
            self.draw_cuts(moved_at, &mut random);
        }
    }

    /// Cuts nodes off from others around a moment.
    fn draw_cuts(&mut self, around: u64, random: &mut Random) {
        for _ in 0..random.between(2, 8) {
            let at = (around + random.below(4 * SECOND)).saturating_sub(SECOND).min(self.length_us - 1);
            let all = ((1u64 << self.nodes) - 1) as u8;
            let mask = random.between(1, u64::from(all) - 1) as u8;
            let cut = Cut::Bridge(mask, random.below(self.nodes.into()) as Place);
            let us = random.scaled(200 * MS, 4 * SECOND);
            self.faults
                .push(Some(Fault { at, kind: FaultKind::Partition { cut, noticed_us: None, us, times: 1 } }));
        }
    }

    /// In some keyspaces every other increment is a script. No other draw depends on this one.
    pub(super) fn draw_scripts(&mut self) {
        // Runs with a planted fault have no scripts: the seeds known to find planted faults were found without them.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::SCRIPTS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            space.runs_scripts = random.percent(50);
        }
    }

    /// In some keyspaces of consensus clients use locks, in some of these almost exclusively.
    pub(super) fn draw_locks(&mut self) {
        let mut random = Random::new(self.seed, stream::LOCKS);
        for space in self.spaces.iter_mut().filter(|space| space.protocol == Protocol::Consensus) {
            if random.percent(35) {
                let times = random.between(2, 20) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Lock, times));
            }
        }
    }

    /// In some keyspaces clients push elements and wait for them, in some of these almost exclusively.
    pub(super) fn draw_queues(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_of_queues = PlantedFault::OF_QUEUES.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !is_of_queues {
            return;
        }
        let mut random = Random::new(self.seed, stream::QUEUES);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            if random.percent(35) {
                let times = random.between(2, 10) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Push, times));
                space.kinds.extend(std::iter::repeat_n(Kind::Take, times + 1));
            }
        }
    }

    /// In some keyspaces clients use lists from both ends, sets, sorted sets, and streams with a group.
    pub(super) fn draw_collections(&mut self) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_COLLECTIONS.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !finds {
            return;
        }
        use Kind::*;
        const TYPES: [&[Kind]; 4] = [
            &[Push, PushFront, Push, PopFront, PopBack, Rotate, Take, Take],
            &[Add, Add, Remove, Contains, Draw],
            &[SetScore, SetScore, AddScore, RemoveScored, PopLowest, TakeLowest],
            &[CreateGroup, Append, Append, Deliver, Deliver, Claim, Acknowledge],
        ];
        // A search for a fault of collections meets them more often.
        let percent = if finds { 60 } else { 15 };
        let mut random = Random::new(self.seed, stream::COLLECTIONS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            for kinds in TYPES {
                if random.percent(percent) {
                    let times = random.between(1, 2) as usize;
                    (0..times).for_each(|_| space.kinds.extend(kinds));
                }
            }
        }
    }

    /// Some keyspaces have a bound on memory, which they reach. In most of these, keys are evicted.
    pub(super) fn draw_bounds(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.bounded && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        const POLICIES: [&str; 8] =
            ["none", "lru", "lfu", "random", "ttl", "volatile-lru", "volatile-lfu", "volatile-random"];
        let mut random = Random::new(self.seed, stream::BOUNDS);
        if !random.percent(15) && !settings.bounded {
            return;
        }
        let value_bytes = random.scaled(50, 3_000) as u16;
        for space in &mut self.spaces {
            let (eviction, share) = (random.pick(&POLICIES), random.scaled(300, 20_000));
            let eviction =
                if self.planted.has(PlantedFault::EvictsWithoutPolicy) { "none" } else { eviction };
            let eviction = if space.protocol.has_registers() { "none" } else { eviction };
            // Each shard has an empty table, too.
            let bytes = u64::from(space.keyspace.shards) * (EMPTY_TABLE_BYTES + share);
            space.set_bound(bytes, eviction);
            // No keys that only change together: one of two may be evicted alone. No streams: one may be evicted with its
            // group, or there is no room for one; and no client creates the group again.
            let evicts = space.evicts();
            space
                .kinds
                .retain(|kind| kind.collection() != Some(b'x') && !(evicts && *kind == Kind::Transact));
        }
        self.value_bytes = self.value_bytes.max(value_bytes);
        // A longer value, too, has no more parts than `draw_long` allows.
        self.long_command_bytes = self.long_command_bytes.max(usize::from(self.value_bytes) / 4);
    }

    /// In some clusters there are clients that cache what they read.
    pub(super) fn draw_keepers(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_TRACKING.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::TRACKING);
        let is_drawn = random.percent(25) && !is_planted;
        if is_drawn || finds || settings.tracking {
            let count = random.between(1, 4);
            let keeper = |_| (random.scaled(20 * MS, 400 * MS), random.percent(25));
            self.keepers = (0..count).map(keeper).collect();
        }
    }

    /// In some clusters there are clients that read all changes of a keyspace.
    pub(super) fn draw_readers(&mut self, settings: &Settings) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_CHANGES.into_iter().any(|fault| self.planted.has(fault))
            || PlantedFault::OF_BACKUPS.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::READERS);
        let is_drawn = random.percent(25) && !is_planted;
        let bytes = random.pick(&[3_000, 100_000, 10_000_000]);
        let can_be_read: Vec<u8> = (0..self.spaces.len() as u8)
            .filter(|index| self.spaces[usize::from(*index)].can_keep_changes())
            .collect();
        let is_read = is_drawn || finds || settings.changes || settings.backup;
        if !is_read || can_be_read.is_empty() {
            return;
        }
        let bytes = if finds { 10_000_000 } else { bytes };
        for index in &can_be_read {
            self.spaces[usize::from(*index)].keep_changes(bytes);
        }
        let count = random.between(2, 5);
        let reader = |_| (random.scaled(20 * MS, 400 * MS), random.pick(&can_be_read));
        self.readers = (0..count).map(reader).collect();
        if !self.readers.is_empty() {
            // What these clients read is much longer than a value: in parts of a few bytes it would exceed their patience.
            self.long_command_bytes = self.long_command_bytes.max(READERS_PART_BYTES);
        }
    }

    /// Clients make backups of some keyspaces that keep their changes; the backups are restored at the end.
    pub(super) fn draw_backups(&mut self, settings: &Settings) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_BACKUPS.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::BACKUPS);
        let is_drawn = random.percent(50) && !is_planted;
        if !(is_drawn || finds || settings.backup) {
            return;
        }
        // Backups need keyspaces whose changes are read. Copies lack values that are not in memory.
        let mut spaces: Vec<u8> = self.readers.iter().map(|(_, space)| *space).collect();
        spaces.retain(|space| !self.spaces[usize::from(*space)].is_spilled());
        spaces.sort_unstable();
        spaces.dedup();
        self.backups = spaces.into_iter().map(|space| (random.scaled(50 * MS, 3 * SECOND), space)).collect();
    }

    /// In some clusters nodes run programs of two releases, and may get the other program at each start. In some of these an
    /// operator holds the level, or tries to.
    pub(super) fn draw_programs(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = self.planted.has(PlantedFault::FeatureUsedEarly);
        if !settings.releases && (storage_planted || self.planted != Planted::default() && !finds) {
            return;
        }
        let mut random = Random::new(self.seed, stream::LEVELS);
        self.has_old_programs = random.percent(25) || finds || settings.releases;
        if !self.has_old_programs || !random.percent(60) {
            return;
        }
        let mut at = random.below(self.length_us);
        for order in [Order::HoldLevel, Order::LetLevelRise] {
            self.faults.push(Some(Fault { at, kind: FaultKind::Order(order) }));
            if order == Order::LetLevelRise {
                // A node may start with the last release's program in the moment in which the level rises.
                let nodes = 1 << random.below(u64::from(self.first_nodes));
                let at = (at + random.below(60 * MS)).saturating_sub(50 * MS);
                let down_us = random.below(50 * MS);
                let kind = FaultKind::Crash { nodes, within_turn: None, down_us, noticed: true };
                self.faults.push(Some(Fault { at, kind }));
            }
            at += random.below(self.length_us - at);
        }
    }

    /// Some runs end with the loss of a majority of the control nodes, and a recovery from the remaining folders: runs whose
    /// keyspaces have records and an order.
    pub(super) fn draw_recovery(&mut self, settings: &Settings) {
        let is_planted = self.planted_in_storage != storage::planted::Planted::default()
            || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::RECOVERY);
        let is_drawn = random.percent(15) && !is_planted && !self.spaces.iter().any(Space::is_coded);
        if !settings.recovery && !is_drawn {
            return;
        }
        // Programs of the last release do not know of recoveries.
        self.has_old_programs = false;
        if settings.recovery {
            self.spaces.iter_mut().for_each(Space::keep_records);
        }
        if self.spaces.iter().all(Space::is_recoverable) && self.first_nodes >= 3 {
            // After the recovery all other copies of a changed value may be lost.
            let rots = |fault: &Fault| matches!(fault.kind, FaultKind::Disk(DiskFault::RottenValues { .. }));
            self.faults.retain(|fault| !fault.as_ref().is_some_and(rots));
            let (nodes, length_us) = (self.first_nodes, self.length_us);
            let recovery = Draw { random: &mut random, nodes, length_us }.recovery();
            self.faults.push(Some(recovery));
        }
    }

    /// In some clusters nodes are told to stop, drained, and told to lead.
    pub(super) fn draw_handovers(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_planted =
            self.planted != Planted::default() && !self.planted.has(PlantedFault::ResignedLeaderAnswers);
        let mut random = Random::new(self.seed, stream::HANDOVERS);
        let is_drawn = random.percent(25) && !storage_planted && !is_planted;
        if !is_drawn && !settings.handovers {
            return;
        }
        let (nodes, length_us) = (self.first_nodes, self.length_us);
        let spaces = self.spaces.iter().filter(|space| !space.is_created).count() as u8;
        let faults = Draw { random: &mut random, nodes, length_us }.handovers(spaces);
        self.faults.extend(faults.into_iter().map(Some));
    }

    /// In some clusters commands take long now and then. In some tests nothing else goes wrong.
    pub(super) fn draw_long_turns(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let is_planted = self.planted_in_storage != storage::planted::Planted::default()
            || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::LONG_TURNS);
        if !settings.busy && (is_planted || !random.percent(25)) {
            return;
        }
        if settings.busy {
            self.be_only_busy(&mut random);
        }
        let (nodes, length_us) = (self.first_nodes, self.length_us);
        let mut faults = Draw { random: &mut random, nodes, length_us }.long_turns();
        if settings.busy {
            // Groups that have just begun may still settle on a leader.
            faults.iter_mut().for_each(|fault| fault.at = fault.at.max(2 * SECOND));
        }
        self.faults.extend(faults.into_iter().map(Some));
    }

    /// Leaves out everything that goes wrong.
    fn be_only_busy(&mut self, random: &mut Random) {
        self.is_only_busy = true;
        self.faults.clear();
        self.nodes = self.first_nodes;
        self.spaces.retain(|space| !space.is_created);
        (self.keepers, self.readers, self.backups) = (Vec::new(), Vec::new(), Vec::new());
        (self.patience_us, self.missing, self.has_old_programs) = (None, None, false);
        (self.latency_us, self.jitter_us) = (random.scaled(20, 2_000), random.scaled(1, 1_000));
        (self.network_faults, self.hold_ups, self.stale_deliveries) = (NetworkFaults::default(), 0, false);
        (self.client_room, self.peer_room) = (usize::MAX, usize::MAX);
        self.command_timeout_ms = USUAL_TIMEOUT_MS;
        self.behind_bytes = USUAL_BEHIND_BYTES;
        self.sizes = Sizes::default();
    }

    /// Where nodes write before a turn ends, some die before that write.
    pub(super) fn draw_unwritten(&mut self) {
        let mut random = Random::new(self.seed, stream::UNWRITTEN);
        if !self.spaces.iter().any(|space| space.durability == Durability::Os) {
            return;
        }
        for fault in self.faults.iter_mut().flatten() {
            if let FaultKind::Crash { within_turn: Some(within), .. }
            | FaultKind::Leader { within_turn: Some(within), .. } = &mut fault.kind
            {
                within.writes = !random.percent(30);
            }
        }
    }

    /// In some clusters one node's wall clock is set far ahead or behind, and back after a while.
    pub(super) fn draw_clocks(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_planted =
            self.planted != Planted::default() && !self.planted.has(PlantedFault::ClockUnbounded);
        let mut random = Random::new(self.seed, stream::CLOCKS);
        if storage_planted || is_planted || !random.percent(30) {
            return;
        }
        self.lifetime_ms_max = 60_000;
        let node = random.below(u64::from(self.first_nodes)) as Place;
        for _ in 0..random.between(1, 3) {
            let by_ms = random.scaled(10_000, 24 * 3_600_000) as i64;
            let by_ms = if random.percent(70) { by_ms } else { -by_ms };
            let at = random.below(self.length_us);
            let back_at = at + random.scaled(20 * MS, 20 * SECOND);
            for (at, by_ms) in [(at, by_ms), (back_at, -by_ms)] {
                self.faults.push(Some(Fault { at, kind: FaultKind::ClockJump { node, by_ms } }));
            }
        }
    }

    /// In half of the clusters nodes read and write little at once. In some there is little room on the way to other
    /// nodes, or to clients, which read late. In some a log counts as behind when it has little to write.
    pub(super) fn draw_buffers(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_of_drivers = PlantedFault::OF_DRIVERS.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !is_of_drivers {
            return;
        }
        let mut random = Random::new(self.seed, stream::BUFFERS);
        if random.percent(50) {
            self.sizes = Sizes {
                buffer_bytes: random.scaled(16, 4_000) as usize,
                client_bytes_max: random.scaled(50, 20_000) as usize,
                input_bytes_max: random.scaled(50, 20_000),
                output_bytes_max: random.scaled(50, 20_000) as usize,
                peer_bytes_max: random.scaled(500, 50_000) as usize,
                lent_bytes_min: random.scaled(50, 3_000) as usize,
            };
        }
        if random.percent(40) {
            self.client_room = random.scaled(10, 10_000) as usize;
            self.reading_us = random.scaled(MS, SECOND);
        }
        if random.percent(40) {
            self.peer_room = random.scaled(2_000, 200_000) as usize;
        }
        if random.percent(40) {
            self.behind_bytes = random.scaled(200, 50_000);
        }
    }

    /// Where values are stored as fragments, half of the runs end with a power loss of all machines at once.
    pub(super) fn draw_outage(&mut self) {
        let mut random = Random::new(self.seed, stream::OUTAGE);
        if random.percent(50) && self.spaces.iter().any(Space::is_coded) {
            let (nodes, length_us) = (self.first_nodes, self.length_us);
            let outage = Draw { random: &mut random, nodes, length_us }.outage();
            self.faults.push(Some(outage));
        }
    }

    /// In most clusters nodes have the second connection for urgent messages; in some of these the first one is often
    /// held up, as if behind a long value.
    pub(super) fn draw_lanes(&mut self) {
        // The seeds known to find planted faults were found with one connection.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::LANES);
        self.has_urgent_links = random.percent(75);
        self.hold_up_us = random.scaled(MS, 2 * SECOND);
        self.hold_ups = some(&mut random, 20_000);
        self.splits_writes = random.percent(50);
    }

    /// Half of the clusters have the usual times. In the others unfinished operations stay unfinished for long, or
    /// commands time out early, though not so early that a healthy cluster could not execute them.
    pub(super) fn draw_timing(&mut self) {
        let mut random = Random::new(self.seed, stream::TIMING);
        let round_ms = 2 * (self.latency_us + self.jitter_us) / MS;
        if random.percent(50) {
            self.sweep_ms = random.scaled(1_000, 60_000);
        }
        if random.percent(50) {
            self.command_timeout_ms = random.scaled(100, 3_000) + 4 * round_ms;
        }
    }

    /// Half of the keyspaces of registers survive crashes.
    pub(super) fn draw_registers(&mut self) {
        let mut random = Random::new(self.seed, stream::REGISTERS);
        for space in self.spaces.iter_mut().filter(|space| space.protocol.has_registers()) {
            match random.below(8) {
                0 => space.set_durability(Durability::Os),
                1..=3 => space.set_durability(Durability::Fsync),
                _ => {}
            }
        }
    }

    /// Some keyspaces of consensus store their values as fragments. Their values are then long enough for that.
    pub(super) fn draw_coding(&mut self, settings: &Settings) {
        let mut random = Random::new(self.seed, stream::CODING);
        let nodes = usize::from(self.first_nodes);
        for space in &mut self.spaces {
            let is_drawn = random.percent(25) || settings.coded;
            let replicas = match usize::from(space.keyspace.replicas) {
                0 => nodes,
                replicas => replicas.min(nodes),
            };
            let parts = random.between(1, (replicas - (replicas - 1) / 2) as u64);
            if is_drawn && space.protocol == Protocol::Consensus {
                space.set_coding(&parts.to_string());
            }
        }
        self.draw_adaptive();
        let value_bytes = random.scaled(50, 3_000) as u16;
        if self.spaces.iter().any(Space::is_coded) {
            self.value_bytes = self.value_bytes.max(value_bytes);
        }
    }

    /// In some of these the nodes choose how to store each value, from their own measurements. No other draw depends on this
    /// one.
    pub(super) fn draw_adaptive(&mut self) {
        // The seeds known to find planted faults were found with fixed numbers of parts.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::ADAPTIVE);
        for space in self.spaces.iter_mut().filter(|space| space.is_coded()) {
            if random.percent(40) {
                space.set_coding("adaptive");
            }
        }
    }

    /// Some keyspaces of consensus and leader-follower keep their values on the disk. Their values are then long
    /// enough for that, and memory holds only a few of them.
    pub(super) fn draw_spilling(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.spilled && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        let mut random = Random::new(self.seed, stream::SPILLING);
        for space in &mut self.spaces {
            let is_drawn = random.percent(25) || settings.spilled;
            let log_bytes = random.pick(&[2_000, 20_000, 200_000]);
            // The seeds known to find planted faults were found without fragments on the disk.
            let may_be_coded = self.planted == Planted::default() || settings.coded;
            if is_drawn && space.can_spill() && (may_be_coded || !space.is_coded()) {
                space.set_spilling(log_bytes);
            }
        }
        let value_bytes = random.scaled(64, 3_000) as u16;
        let cache_bytes = random.pick(&[0, 1_000, 20_000]);
        if self.spaces.iter().any(Space::is_spilled) {
            self.value_bytes = self.value_bytes.max(value_bytes);
            self.cache_bytes = cache_bytes;
        }
    }

    /// In half of the clusters with values on the disk, some of these values change there; in half, all nodes scrub them now
    /// and then. Nodes of the last release get no values from others.
    pub(super) fn draw_rotten_values(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_of_damage = PlantedFault::OF_DAMAGE.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !is_of_damage {
            return;
        }
        let mut random = Random::new(self.seed, stream::ROTTEN_VALUES);
        if !self.spaces.iter().any(Space::is_spilled) {
            return;
        }
        // The planted faults show in the values that clients read.
        let period_us = random.scaled(SECOND / 10, 60 * SECOND);
        if random.percent(50) && !is_of_damage {
            self.scrub_period_us = period_us;
        }
        if random.percent(50) && !self.has_old_programs {
            let (nodes, length_us) = (self.nodes, self.length_us);
            let faults = Draw { random: &mut random, nodes, length_us }.rotten_values();
            self.faults.extend(faults.into_iter().map(Some));
        }
    }

    /// In some clusters many writes are too long for one record.
    pub(super) fn draw_long(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.long && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        let mut random = Random::new(self.seed, stream::LONG);
        let (is_drawn, value_bytes) = (random.percent(40) || settings.long, random.scaled(20, 2_000));
        if is_drawn {
            self.value_bytes = self.value_bytes.max(value_bytes as u16);
            // A value has no more than about thirty parts, of which a few are in flight at a time.
            let length = u64::from(self.value_bytes);
            self.long_command_bytes = random.between(length / 4, length) as usize;
            // A healthy cluster takes all parts in time, though one after the other: a part goes to the leader, to the
            // followers and back, and its answer to the node.
            const BESIDE_VALUE_BYTES: usize = 40;
            const MESSAGES: u64 = 4;
            let parts = 1 + (length as usize + BESIDE_VALUE_BYTES) / self.long_command_bytes.max(1);
            let in_time_ms = 100 + parts as u64 * MESSAGES * (self.latency_us + self.jitter_us) / MS;
            self.command_timeout_ms = self.command_timeout_ms.max(in_time_ms);
        }
    }

    /// The disks' properties and faults, drawn after everything else.
    pub(super) fn draw_disk_faults(&mut self) {
        let mut random = Random::new(self.seed, stream::DISK_FAULTS);
        self.segment_bytes = random.pick(&[8 << 10, 32 << 10, 128 << 10]);
        self.checkpoint_bytes = self.segment_bytes * random.pick(&[1, 2, 8]);
        // A stuck disk makes many operations overlap; with too many on one key, their order cannot be checked.
        const AT_ONCE_MAX: u64 = 16;
        let at_once = (self.think_us.len() as u64 * self.pipeline).div_ceil(AT_ONCE_MAX) as u8;
        for space in self.spaces.iter_mut().filter(|space| space.is_durable()) {
            space.keys = space.keys.max(at_once);
        }
        let (nodes, length_us) = (self.nodes, self.length_us);
        let faults = Draw { random: &mut random, nodes, length_us }.disk_faults();
        self.faults.extend(faults.into_iter().map(Some));
    }
}
