//! The sizes of the allocator's blocks.

/// Bytes that the allocator uses for `capacity` bytes. mimalloc has blocks of multiples of 16 bytes up to 128, four sizes for
/// each doubling up to 128 KiB, and whole pages beyond that.
#[inline]
pub(super) fn allocated_bytes(capacity: usize) -> usize {
    const CLASSES_END: usize = 128 << 10;
    const PAGE_BYTES: usize = 4096;
    let step = match capacity {
        0..=128 => 16,
        129..=CLASSES_END => capacity.next_power_of_two() / 8,
        _ => PAGE_BYTES,
    };
    capacity.next_multiple_of(step)
}
