//! A vector whose places are reused, with handles that are not.

/// Names a place while its value exists. A later value in the same place has another handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    index: u32,
    generation: u32,
}

impl Handle {
    /// The place's index: dense, small, reused.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// Names no place.
    pub(crate) const NONE: Handle = Handle { index: u32::MAX, generation: u32::MAX };

    /// The number of bits that a handle has as a number.
    pub const BITS: u32 = 32 + GENERATION_BITS;

    /// Returns the handle as one number of [`Handle::BITS`] bits.
    pub fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The reverse of [`Handle::to_bits`].
    pub fn from_bits(bits: u64) -> Handle {
        Handle { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A client, for as long as it is connected.
pub type ClientId = Handle;

/// Places for `T`, found by [`Handle`] in O(1).
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

const GENERATION_BITS: u32 = 29;
const GENERATIONS: u32 = 1 << GENERATION_BITS;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number of places that are taken.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts a value into a free place, and returns its handle.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Handle) -> T) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        let handle = Handle { index, generation: place.0 };
        place.1 = Some(make(handle));
        handle
    }

    /// Takes a value out; its handle is invalid from now on.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let place = self.places.get_mut(handle.index())?;
        if place.0 != handle.generation {
            return None;
        }
        let value = place.1.take()?;
        place.0 = (place.0 + 1) % GENERATIONS;
        self.free.push(handle.index);
        Some(value)
    }

    /// The value, unless it was removed.
    #[inline]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let place = self.places.get(handle.index())?;
        place.1.as_ref().filter(|_| place.0 == handle.generation)
    }

    /// The value, unless it was removed.
    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let place = self.places.get_mut(handle.index())?;
        place.1.as_mut().filter(|_| place.0 == handle.generation)
    }

    /// Every value, mutable, in the order of their places.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    /// Every value with its handle, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.places.iter().enumerate().filter_map(|(index, (generation, value))| {
            let handle = Handle { index: index as u32, generation: *generation };
            value.as_ref().map(|value| (handle, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_reused_and_its_handle_is_not() {
        let mut slab = Slab::default();
        let first = slab.insert(|_| "first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert(|_| "second");
        assert_eq!(second.index(), first.index());
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&"second")));
        assert_eq!(slab.remove(first), None);
        assert_eq!(Handle::from_bits(second.to_bits()), second);
        assert_eq!(slab.len(), 1);
    }
}
