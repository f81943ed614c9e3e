//! Buffers for bytes in flight. Slots are reused, so that a run allocates little.

/// Numbered byte strings.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    places: Vec<Vec<u8>>,
    free: Vec<u32>,
}

impl Buffers {
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Vec::new());
            self.places.len() as u32 - 1
        });
        self.places[place as usize].extend_from_slice(bytes);
        place
    }

    /// Returns the number of a new byte string with the same bytes.
    pub(crate) fn duplicate(&mut self, place: u32) -> u32 {
        let bytes = std::mem::take(&mut self.places[place as usize]);
        let copy = self.put(&bytes);
        self.places[place as usize] = bytes;
        copy
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &[u8] {
        &self.places[place as usize]
    }

    #[inline]
    pub(crate) fn release(&mut self, place: u32) {
        const RETAINED_BYTES_MAX: usize = 64 << 10;
        let bytes = &mut self.places[place as usize];
        bytes.clear();
        bytes.shrink_to(RETAINED_BYTES_MAX);
        self.free.push(place);
    }
}
