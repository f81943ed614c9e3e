//! The faults of a run. They are drawn before it begins, so that they have numbers and can be left out one by one
//! when a failing run is shrunk.

mod class;
mod disk;
mod operator;

use crate::events::Place;
use crate::random::Random;
pub use class::{Class, Counts};
pub(crate) use disk::DiskFault;
pub(crate) use operator::{Leaders, Order};
use std::fmt;

/// One millisecond of simulated time, in microseconds.
pub(crate) const MS: u64 = 1000;
/// One second of simulated time, in microseconds.
pub(crate) const SECOND: u64 = 1_000_000;

/// A set of nodes, one bit for each place.
pub(crate) type Mask = u8;

pub(crate) fn has(mask: Mask, place: Place) -> bool {
    mask >> place & 1 == 1
}

fn ids(mask: Mask) -> String {
    let ids: Vec<String> =
        (0..8).filter(|place| has(mask, *place)).map(|place| (place + 1).to_string()).collect();
    ids.join("+")
}

/// How nodes are cut off from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Two parts that do not receive messages from each other.
    Halves(Mask),
    /// Messages from these nodes do not reach the others; messages in the other direction arrive.
    OneWay(Mask),
    /// Two parts that have one node in common.
    Bridge(Mask, Place),
    /// Each node receives messages only from its two neighbours.
    Ring,
}

impl Cut {
    /// Whether nothing arrives on the way from one node to another.
    pub(crate) fn blocks(self, from: Place, to: Place, nodes: Place) -> bool {
        match self {
            Cut::Halves(mask) => has(mask, from) != has(mask, to),
            Cut::OneWay(mask) => has(mask, from) && !has(mask, to),
            Cut::Bridge(mask, bridge) => from != bridge && to != bridge && has(mask, from) != has(mask, to),
            Cut::Ring => (from + 1) % nodes != to && (to + 1) % nodes != from,
        }
    }
}

/// How far a turn gets before the process dies within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    /// Only these peers receive what the turn sent.
    pub(crate) peers: Mask,
    /// Whether the clients receive it, too.
    pub(crate) clients: bool,
    /// Whether the turn's writes take place. If not, the process dies in the first turn that sends messages before it
    /// writes: these have left, and nothing has left for clients.
    pub(crate) writes: bool,
    /// How many sending turns pass, after the node has taken a request, before the one in which it dies: in the middle
    /// of the request's consequences. `None`: it dies in the next turn.
    pub(crate) after_request: Option<u8>,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Processes die and lose their memory, but nothing that they have written; later they start again.
    Crash {
        nodes: Mask,
        /// If set, it happens within a turn.
        within_turn: Option<Within>,
        down_us: u64,
        /// Whether peers and clients notice at once, as with a dead process; otherwise as with a machine without
        /// power.
        noticed: bool,
    },
    /// A process is paused, perhaps in the middle of a turn; then everything arrives at once.
    Pause { node: Place, within_turn: bool, us: u64 },
    /// Each turn of a node takes this long.
    SlowNode { node: Place, turn_us: u64, us: u64 },
    /// Each of the next `times` turns of these nodes takes this long, as with long commands, while their processes go on.
    LongTurns { nodes: Mask, us: u64, times: u16 },
    /// Nodes do not receive messages from each other, for `times` periods. They notice after up to `noticed_us`, or
    /// not at all.
    Partition { cut: Cut, noticed_us: Option<u64>, us: u64, times: u16 },
    /// Two parts do not receive messages from each other; one node dies, and is in the other part when it restarts.
    Defection { mask: Mask, node: Place, after_us: u64, down_us: u64, us: u64 },
    /// Messages over a link take longer.
    SlowLink { one: Place, other: Place, delay_us: u64, us: u64 },
    /// A connection breaks.
    BrokenConnection { one: Place, other: Place },
    /// The network is very bad for a while.
    Storm { us: u64 },
    /// A wall clock is set.
    ClockJump { node: Place, by_ms: i64 },
    /// A fault of disks or of the power.
    Disk(DiskFault),
    /// The current leader dies or is only paused.
    Leader { leaders: Leaders, pauses: bool, within_turn: Option<Within>, down_us: u64, noticed: bool },
    /// A node is told to stop, and stops after this long.
    PlannedStop { node: Place, leaves_us: u64, down_us: u64 },
    /// The operator gives a command.
    Order(Order),
}

/// A fault and when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) kind: Kind,
}

impl Kind {
    pub(crate) fn class(&self) -> Class {
        match self {
            Kind::Crash { .. } => Class::Crash,
            Kind::Pause { .. } => Class::Pause,
            Kind::SlowNode { .. } => Class::SlowNode,
            Kind::LongTurns { .. } => Class::LongTurn,
            Kind::Partition { cut: Cut::Halves(_), .. } => Class::Partition,
            Kind::Partition { cut: Cut::OneWay(_), .. } => Class::OneWayPartition,
            Kind::Partition { cut: Cut::Bridge(..), .. } => Class::BridgePartition,
            Kind::Partition { cut: Cut::Ring, .. } => Class::RingPartition,
            Kind::Defection { .. } => Class::Defection,
            Kind::SlowLink { .. } => Class::SlowLink,
            Kind::BrokenConnection { .. } => Class::BrokenConnection,
            Kind::Storm { .. } => Class::Storm,
            Kind::ClockJump { .. } => Class::ClockJump,
            Kind::Disk(fault) => fault.class(),
            Kind::Leader { pauses: false, .. } => Class::KilledLeader,
            Kind::Leader { pauses: true, .. } => Class::PausedLeader,
            Kind::PlannedStop { .. } => Class::PlannedStop,
            Kind::Order(order) => order.class(),
        }
    }
}

/// The parameters from which the scheduled faults of a run are drawn.
pub(crate) struct Draw<'r> {
    pub(crate) random: &'r mut Random,
    pub(crate) nodes: Place,
    /// How long the run has faults.
    pub(crate) length_us: u64,
}

impl Draw<'_> {
    /// Draws the faults of a run, in order of their numbers. Most runs have only some kinds: a search in which
    /// everything always happens at once finds less.
    pub(crate) fn faults(&mut self) -> Vec<Fault> {
        type One = fn(&mut Draw<'_>) -> Kind;
        const DRAWS: [One; 11] = [
            |draw| draw.crash(),
            |draw| draw.crash_of_several(),
            |draw| draw.pause(),
            |draw| draw.slow_node(),
            |draw| draw.partition(),
            |draw| draw.isolation(),
            |draw| draw.defection(),
            |draw| draw.slow_link(),
            |draw| draw.broken_connection(),
            |draw| draw.storm(),
            |draw| draw.clock_jump(),
        ];
        let chosen: Vec<One> = DRAWS.into_iter().filter(|_| self.random.percent(35)).collect();
        if chosen.is_empty() {
            return Vec::new();
        }
        let per_minute = self.random.scaled(2, 120);
        let count = 1 + self.length_us * per_minute / (60 * SECOND);
        (0..count)
            .map(|_| {
                let at = self.random.below(self.length_us);
                let kind = self.random.pick(&chosen)(self);
                Fault { at, kind }
            })
            .collect()
    }

    /// Draws long turns: of all nodes where they carry out the same record, at once or one after the other, or of some. A pipeline of
    /// commands that take long makes many in a row.
    pub(crate) fn long_turns(&mut self) -> Vec<Fault> {
        let per_minute = self.random.scaled(5, 80);
        let count = 1 + self.length_us * per_minute / (60 * SECOND);
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = self.random.below(self.length_us);
            let all = ((1u64 << self.nodes) - 1) as Mask;
            let nodes = match self.random.below(3) {
                0 => all,
                1 => self.some(),
                _ => 1 << self.node(),
            };
            let (us, times) = match self.random.below(20) {
                0 => (2 * SECOND, 1),
                1..=8 => (self.random.scaled(10 * MS, 100 * MS), 2 + self.random.below(40) as u16),
                _ => (self.random.scaled(50 * MS, 500 * MS), 1),
            };
            if self.random.below(2) == 0 {
                faults.push(Fault { at, kind: Kind::LongTurns { nodes, us, times } });
                continue;
            }
            // Requests must be done within their time, so the nodes also have time for others.
            let (repeats, every_us) = match us < SECOND {
                true => (1 + self.random.below(16), us * (4 + self.random.below(4)) / 2),
                false => (1, 0),
            };
            for repeat in 0..repeats {
                for node in (0..self.nodes).filter(|node| has(nodes, *node)) {
                    let at = (at + repeat * every_us + self.random.below(us)).min(self.length_us - 1);
                    faults.push(Fault { at, kind: Kind::LongTurns { nodes: 1 << node, us, times: 1 } });
                }
            }
        }
        faults
    }

    /// Draws planned stops, and commands that move leaders or drain nodes.
    pub(crate) fn handovers(&mut self, spaces: u8) -> Vec<Fault> {
        let per_minute = self.random.scaled(4, 60);
        let count = 1 + self.length_us * per_minute / (60 * SECOND);
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = self.random.below(self.length_us);
            let node = self.node();
            let kind = match self.random.below(4) {
                0 | 1 => {
                    let leaves_us = self.random.scaled(MS, 2 * SECOND);
                    Kind::PlannedStop { node, leaves_us, down_us: self.random.scaled(MS, 8 * SECOND) }
                }
                2 => Kind::Order(Order::Lead { space: self.random.below(spaces.into()) as u8, node }),
                _ => {
                    let end = at + self.random.scaled(10 * MS, 10 * SECOND);
                    faults.push(Fault {
                        at: end.min(self.length_us - 1),
                        kind: Kind::Order(Order::EndDrain { node }),
                    });
                    Kind::Order(Order::Drain { node })
                }
            };
            faults.push(Fault { at, kind });
        }
        faults
    }

    fn node(&mut self) -> Place {
        self.random.below(u64::from(self.nodes)) as Place
    }

    fn pair(&mut self) -> (Place, Place) {
        let one = self.node();
        let step = 1 + self.random.below(u64::from(self.nodes).saturating_sub(1).max(1)) as Place;
        (one, (one + step) % self.nodes)
    }

    /// Draws some nodes: at least one, and not all.
    fn some(&mut self) -> Mask {
        let all = (1u64 << self.nodes) - 1;
        if all == 1 {
            return 1;
        }
        (1 + self.random.below(all - 1)) as Mask
    }

    fn crash(&mut self) -> Kind {
        let nodes = 1 << self.node();
        self.crash_of(nodes)
    }

    fn crash_of_several(&mut self) -> Kind {
        let nodes = self.some();
        self.crash_of(nodes)
    }

    fn crash_of(&mut self, nodes: Mask) -> Kind {
        let within = self.random.percent(60);
        let sent = self.within();
        Kind::Crash {
            nodes,
            within_turn: within.then_some(sent),
            down_us: self.random.scaled(MS, 8 * SECOND),
            noticed: self.random.percent(70),
        }
    }

    fn within(&mut self) -> Within {
        Within {
            peers: self.random.draw() as Mask,
            clients: self.random.percent(50),
            writes: true,
            after_request: self.random.percent(70).then_some(self.random.below(4) as u8),
        }
    }

    fn pause(&mut self) -> Kind {
        let (node, within_turn) = (self.node(), self.random.percent(50));
        Kind::Pause { node, within_turn, us: self.random.scaled(5 * MS, 8 * SECOND) }
    }

    fn slow_node(&mut self) -> Kind {
        let (node, turn_us) = (self.node(), self.random.scaled(MS, 200 * MS));
        Kind::SlowNode { node, turn_us, us: self.random.scaled(50 * MS, 5 * SECOND) }
    }

    fn partition(&mut self) -> Kind {
        let mask = self.some();
        let cut = match self.random.below(5) {
            0 | 1 => Cut::Halves(mask),
            2 => Cut::OneWay(mask),
            3 => Cut::Bridge(mask, self.node()),
            _ => Cut::Ring,
        };
        self.cut(cut)
    }

    fn isolation(&mut self) -> Kind {
        let mask = 1 << self.node();
        let cut = match self.random.below(4) {
            0 | 1 => Cut::Halves(mask),
            2 => Cut::OneWay(mask),
            _ => Cut::OneWay(((1u64 << self.nodes) - 1) as Mask & !mask),
        };
        self.cut(cut)
    }

    fn cut(&mut self, cut: Cut) -> Kind {
        let noticed = self.random.percent(50);
        let noticed_us = self.random.scaled(MS, 3 * SECOND);
        Kind::Partition {
            cut,
            noticed_us: noticed.then_some(noticed_us),
            us: self.random.scaled(5 * MS, 10 * SECOND),
            times: if self.random.percent(20) { self.random.between(2, 6) as u16 } else { 1 },
        }
    }

    fn defection(&mut self) -> Kind {
        let mask = self.some();
        Kind::Defection {
            mask,
            node: self.node(),
            after_us: self.random.scaled(MS, 2 * SECOND),
            down_us: self.random.scaled(MS, SECOND),
            us: self.random.scaled(20 * MS, 5 * SECOND),
        }
    }

    fn slow_link(&mut self) -> Kind {
        let (one, other) = self.pair();
        let delay_us = self.random.scaled(MS, SECOND);
        Kind::SlowLink { one, other, delay_us, us: self.random.scaled(50 * MS, 10 * SECOND) }
    }

    fn broken_connection(&mut self) -> Kind {
        let (one, other) = self.pair();
        Kind::BrokenConnection { one, other }
    }

    fn storm(&mut self) -> Kind {
        Kind::Storm { us: self.random.scaled(20 * MS, 5 * SECOND) }
    }

    fn clock_jump(&mut self) -> Kind {
        let node = self.node();
        let by_ms = self.random.scaled(1, 10_000) as i64;
        Kind::ClockJump { node, by_ms: if self.random.percent(50) { by_ms } else { -by_ms } }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Halves(mask) => {
                write!(formatter, "nodes {} and the others do not hear each other", ids(*mask))
            }
            Cut::OneWay(mask) => write!(formatter, "the others do not hear nodes {}", ids(*mask)),
            Cut::Bridge(mask, bridge) => {
                write!(formatter, "nodes {} and the others both hear only node {}", ids(*mask), bridge + 1)
            }
            Cut::Ring => formatter.write_str("each node hears only its two neighbours"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: &u64| us / MS;
        match self {
            Kind::Crash { nodes, within_turn, down_us, noticed } => {
                let how = if within_turn.is_some() { " within a turn" } else { "" };
                let told = if *noticed { "" } else { ", without any notice" };
                write!(formatter, "nodes {} crash{how} for {} ms{told}", ids(*nodes), ms(down_us))
            }
            Kind::Pause { node, within_turn, us } => {
                let how = if *within_turn { " within a turn" } else { "" };
                write!(formatter, "node {} stands still{how} for {} ms", node + 1, ms(us))
            }
            Kind::SlowNode { node, turn_us, us } => {
                write!(formatter, "turns of node {} take {} ms, for {} ms", node + 1, ms(turn_us), ms(us))
            }
            Kind::LongTurns { nodes, us, times } => {
                write!(formatter, "{times} turns of nodes {} take {} ms each", ids(*nodes), ms(us))
            }
            Kind::Partition { cut, noticed_us, us, times } => {
                let told =
                    noticed_us.map_or("unnoticed".into(), |us| format!("noticed after {} ms", us / MS));
                write!(formatter, "{cut}, {times} times for {} ms, {told}", ms(us))
            }
            Kind::Defection { mask, node, after_us, us, .. } => {
                let cut = Cut::Halves(*mask);
                let (node, after, ms) = (node + 1, ms(after_us), ms(us));
                write!(formatter, "{cut}; after {after} ms node {node} dies and changes sides, for {ms} ms")
            }
            Kind::SlowLink { one, other, delay_us, us } => {
                let (one, other) = (one + 1, other + 1);
                write!(formatter, "the link {one}-{other} takes {} ms more, for {} ms", ms(delay_us), ms(us))
            }
            Kind::BrokenConnection { one, other } => {
                write!(formatter, "the connection {}-{} breaks", one + 1, other + 1)
            }
            Kind::Storm { us } => write!(formatter, "the network is at its worst for {} ms", ms(us)),
            Kind::ClockJump { node, by_ms } => {
                write!(formatter, "the wall clock of node {} is set by {by_ms} ms", node + 1)
            }
            Kind::Disk(fault) => write!(formatter, "{fault}"),
            Kind::Leader { leaders, pauses, down_us, .. } => {
                let what = if *pauses { "stands still" } else { "crashes" };
                write!(formatter, "{leaders} {what} for {} ms", ms(down_us))
            }
            Kind::PlannedStop { node, leaves_us, down_us } => {
                let (node, leaves, down) = (node + 1, ms(leaves_us), ms(down_us));
                write!(
                    formatter,
                    "node {node} is told to stop, stops after {leaves} ms, and is down for {down} ms"
                )
            }
            Kind::Order(order) => write!(formatter, "{order}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_blocks_the_right_directions() {
        let blocked = |cut: Cut| -> Vec<(Place, Place)> {
            let ways = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
            ways.filter(|(from, to)| from != to && cut.blocks(*from, *to, 4)).collect()
        };
        assert_eq!(blocked(Cut::OneWay(1)), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(blocked(Cut::Halves(1)), [(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(blocked(Cut::Bridge(0b0001, 1)), [(0, 2), (0, 3), (2, 0), (3, 0)]);
        assert_eq!(blocked(Cut::Ring), [(0, 2), (1, 3), (2, 0), (3, 1)]);
    }

    #[test]
    fn each_class_has_its_own_place_and_name() {
        for (place, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, place);
            let names = Class::ALL.iter().filter(|other| other.name() == class.name());
            assert_eq!(names.count(), 1, "{}", class.name());
        }
    }
}
