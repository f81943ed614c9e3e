//! The reserve: files that take room on the disk in advance, for the operations that free room when the disk is full.
//!
//! A full disk must not prevent a log from being shortened, nor the deletions that make this worthwhile from being recorded.
//! So three files wait, allocated and unused: one becomes the next segment, one the next snapshot, and a small one the next
//! manifest. Each is renamed to what it becomes, so nothing else on the disk can take the room. They are made again when
//! there is room, the first two from segments that are no longer needed if there are any.

/// What a file of the reserve is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The next segment. It holds nothing but zeros, or what an older segment left.
    Segment,
    /// The next snapshot.
    Snapshot,
    /// The next manifest.
    Manifest,
}

impl Kept {
    /// The small one first: the room that it was made from must not go into part of a large one.
    pub(crate) const ALL: [Kept; 3] = [Kept::Manifest, Kept::Segment, Kept::Snapshot];

    pub(crate) fn file(self) -> String {
        format!("reserve-{}", self as u8)
    }

    /// The file's length in bytes.
    pub(crate) fn bytes(self, segment_bytes: u64) -> u64 {
        match self {
            Kept::Segment | Kept::Snapshot => segment_bytes,
            Kept::Manifest => segment_bytes.min(64 << 10),
        }
    }
}

/// The files of the reserve that exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserve(Vec<Kept>);

impl Reserve {
    pub(crate) fn new(found: Vec<Kept>) -> Reserve {
        Reserve(found)
    }

    pub(crate) fn has(&self, kept: Kept) -> bool {
        self.0.contains(&kept)
    }

    pub(crate) fn add(&mut self, kept: Kept) {
        assert!(!self.has(kept), "a file of the reserve is made that exists");
        self.0.push(kept);
    }

    /// Takes a file out of the reserve for use, and returns its name, if it exists.
    pub(crate) fn take(&mut self, kept: Kept) -> Option<String> {
        let place = self.0.iter().position(|other| *other == kept)?;
        self.0.swap_remove(place);
        Some(kept.file())
    }

    /// Returns a file of the reserve that does not exist.
    #[inline]
    pub(crate) fn missing(&self) -> Option<Kept> {
        // None exists twice.
        if self.0.len() == Kept::ALL.len() {
            return None;
        }
        Kept::ALL.into_iter().find(|kept| !self.has(*kept))
    }
}
