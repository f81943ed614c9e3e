//! Which events clients are notified of (`notify-keyspace-events`).

use kv::table::ChangeClass::{self, *};

/// The letters of classes, in the order in which Redis writes them. `A` means the first [`IN_ALL`]; `d`, for modules,
/// is one of these and has no events here.
const CLASSES: [(char, Option<ChangeClass>); 14] = [
    ('g', Some(Generic)),
    ('$', Some(String)),
    ('l', Some(List)),
    ('s', Some(Set)),
    ('h', Some(Hash)),
    ('z', Some(Sorted)),
    ('x', Some(Expired)),
    ('e', Some(Evicted)),
    ('t', Some(Stream)),
    ('d', None),
    ('n', Some(New)),
    ('o', Some(Overwritten)),
    ('c', Some(TypeChanged)),
    ('m', Some(Missed)),
];
const IN_ALL: usize = 10;

/// The events that clients are notified of, and on which channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFlags {
    /// On `__keyspace@0__:KEY` (`K`).
    by_key: bool,
    /// On `__keyevent@0__:EVENT` (`E`).
    by_event: bool,
    /// A bit for each of [`CLASSES`].
    classes: u16,
}

impl EventFlags {
    const ALL: u16 = (1 << IN_ALL) - 1;

    /// `None` if there is an unknown letter.
    pub(crate) fn parse(text: &[u8]) -> Option<EventFlags> {
        let mut flags = EventFlags::default();
        for letter in text {
            match char::from(*letter) {
                'K' => flags.by_key = true,
                'E' => flags.by_event = true,
                'A' => flags.classes |= Self::ALL,
                letter => flags.classes |= 1 << CLASSES.iter().position(|(known, _)| *known == letter)?,
            }
        }
        Some(flags)
    }

    /// Whether they are announced on `__keyspace@0__:KEY`.
    pub(crate) fn are_by_key(self) -> bool {
        self.by_key
    }

    /// Whether they are announced on `__keyevent@0__:EVENT`.
    pub(crate) fn are_by_event(self) -> bool {
        self.by_event
    }

    /// Whether there are any notifications.
    pub(crate) fn is_on(self) -> bool {
        (self.by_key || self.by_event) && self.classes != 0
    }

    /// Whether clients are notified of events of this class.
    pub(crate) fn has(self, class: ChangeClass) -> bool {
        let mut known = CLASSES.iter().enumerate();
        known.any(|(number, (_, known))| *known == Some(class) && self.classes & 1 << number != 0)
    }
}

impl std::fmt::Display for EventFlags {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_all = self.classes & Self::ALL == Self::ALL;
        if is_all {
            formatter.write_str("A")?;
        }
        let (mut classes, mut misses) = (std::string::String::new(), "");
        for (number, (letter, _)) in CLASSES.iter().enumerate() {
            match letter {
                _ if self.classes & 1 << number == 0 || is_all && number < IN_ALL => {}
                'm' => misses = "m",
                letter => classes.push(*letter),
            }
        }
        let (by_key, by_event) = (if self.by_key { "K" } else { "" }, if self.by_event { "E" } else { "" });
        write!(formatter, "{classes}{by_key}{by_event}{misses}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_redis_writes_them() {
        let cases = [
            ("", ""),
            ("KEA", "AKE"),
            ("EK", "KE"),
            ("gKE", "gKE"),
            ("gglsKhztE$", "g$lshztKE"),
            ("Km$nxe", "$xenKm"),
            ("AEn", "AnE"),
            ("co", "oc"),
            ("EAo", "AoE"),
            ("Ag$lshzxetdE", "AE"),
        ];
        for (given, written) in cases {
            let flags = EventFlags::parse(given.as_bytes()).unwrap();
            assert_eq!(flags.to_string(), written, "{given}");
            assert_eq!(EventFlags::parse(written.as_bytes()), Some(flags));
        }
        assert_eq!(EventFlags::parse(b"KEq"), None);
    }

    #[test]
    fn without_a_channel_or_a_class_there_are_no_notifications() {
        let is_on = |text: &[u8]| EventFlags::parse(text).unwrap().is_on();
        assert!(!is_on(b"KE") && !is_on(b"A") && is_on(b"Kg") && is_on(b"EA"));
        let flags = EventFlags::parse(b"KA").unwrap();
        assert!(flags.has(Expired) && flags.has(Generic) && !flags.has(New) && !flags.has(Missed));
    }
}
