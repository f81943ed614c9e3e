//! One colour per system, the same in every figure of every study.

/// How an arm is drawn: a colour for the system, a line style and a mark for its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    /// Red, green and blue, 0 to 255 each.
    pub rgb: (u8, u8, u8),
    /// Whether its lines are dashed.
    pub is_dashed: bool,
}

impl Colour {
    const fn new(red: u8, green: u8, blue: u8) -> Colour {
        Colour { rgb: (red, green, blue), is_dashed: false }
    }

    /// Quorate, leader-follower, no follower awaited.
    pub const ACKS_NONE: Colour = Colour::new(0x56, 0xb4, 0xe9);
    /// Quorate, leader-follower, one follower awaited.
    pub const ACKS_ONE: Colour = Colour::new(0x1f, 0x83, 0xd6);
    /// Quorate, leader-follower, all followers awaited.
    pub const ACKS_ALL: Colour = Colour::new(0x0b, 0x3f, 0x8c);
    /// Quorate, consensus.
    pub const CONSENSUS: Colour = Colour::new(0x6a, 0x3d, 0x9a);
    /// Quorate, abd.
    pub const ABD: Colour = Colour::new(0x00, 0x8f, 0x6f);
    /// Quorate, blocking.
    pub const BLOCKING: Colour = Colour::new(0xcc, 0x79, 0xa7);
    /// Redis, no replica awaited.
    pub const REDIS: Colour = Colour::new(0xf0, 0x7f, 0x6a);
    /// Redis, one replica awaited.
    pub const REDIS_ONE: Colour = Colour::new(0xd6, 0x2f, 0x27);
    /// Redis, all replicas awaited.
    pub const REDIS_ALL: Colour = Colour::new(0x8c, 0x10, 0x1c);
    /// Valkey.
    pub const VALKEY: Colour = Colour::new(0x9c, 0x75, 0x5f);
    /// etcd.
    pub const ETCD: Colour = Colour::new(0x1b, 0x9e, 0x77);
    /// ZooKeeper.
    pub const ZOOKEEPER: Colour = Colour::new(0xb3, 0x8b, 0x00);
    /// Consul.
    pub const CONSUL: Colour = Colour::new(0xd1, 0x3d, 0x7f);
    /// A paper's own system.
    pub const PAPER: Colour = Colour::new(0xe6, 0x9f, 0x00);
    /// Anything that is not a system: a loop in this process, a model, a limit.
    pub const OTHER: Colour = Colour::new(0x59, 0x59, 0x59);

    /// Returns the colour with dashed lines: the same system, driven or set in another way.
    pub const fn dashed(mut self) -> Colour {
        self.is_dashed = true;
        self
    }

    /// Returns the colour `percent` of the way to white.
    pub const fn lighter(mut self, percent: u16) -> Colour {
        let (red, green, blue) = self.rgb;
        self.rgb = (toward(red, 255, percent), toward(green, 255, percent), toward(blue, 255, percent));
        self
    }

    /// Returns the colour `percent` of the way to black.
    pub const fn darker(mut self, percent: u16) -> Colour {
        let (red, green, blue) = self.rgb;
        self.rgb = (toward(red, 0, percent), toward(green, 0, percent), toward(blue, 0, percent));
        self
    }

    /// The colour in CSS syntax.
    pub fn css(self) -> String {
        let (red, green, blue) = self.rgb;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

/// The number `percent` of the way from one to the other.
const fn toward(from: u8, to: u8, percent: u16) -> u8 {
    ((from as u16 * (100 - percent) + to as u16 * percent) / 100) as u8
}
