//! The reserve: files that take room on the disk in advance, for what gives room back when there is none.
//!
//! A full disk must not keep a log from being shortened, nor the deletions from being recorded that make it worth while.
//! So three files wait, allocated and unused: one becomes the next segment, one the next snapshot, and a small one the next
//! manifest. Each is renamed to what it becomes, so nobody else on the disk can take the room away. They are made again when
//! there is room, the first two of segments that are not needed any more where there are such.

/// What a file of the reserve is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The next segment. Nothing but zeros, or what an older segment left, stands in it.
    Segment,
    /// The next snapshot.
    Snapshot,
    /// The next manifest.
    Manifest,
}

impl Kept {
    /// The small one first: what it was made of must not go into part of a large one.
    pub(crate) const ALL: [Kept; 3] = [Kept::Manifest, Kept::Segment, Kept::Snapshot];

    /// The file's name.
    pub(crate) fn file(self) -> String {
        format!("reserve-{}", self as u8)
    }

    /// The file's length.
    pub(crate) fn bytes(self, segment_bytes: u64) -> u64 {
        match self {
            Kept::Segment | Kept::Snapshot => segment_bytes,
            Kept::Manifest => segment_bytes.min(64 << 10),
        }
    }
}

/// Which of the files are there.
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
        self.0.push(kept);
    }

    /// A file that is used now, if it is there.
    pub(crate) fn take(&mut self, kept: Kept) -> Option<String> {
        let place = self.0.iter().position(|other| *other == kept)?;
        self.0.swap_remove(place);
        Some(kept.file())
    }

    /// One that is not there.
    pub(crate) fn missing(&self) -> Option<Kept> {
        Kept::ALL.into_iter().find(|kept| !self.has(*kept))
    }
}
