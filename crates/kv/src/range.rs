//! The range of a value that `GETRANGE` returns.

/// Returns the bytes from `start` to `end` inclusive; negative positions count from the end of the value.
pub(crate) fn part_of(value: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let length = value.len() as i64;
    let position = |at: i64| {
        if at < 0 { at.saturating_add(length).max(0) } else { at }
    };
    let (start, end) = (position(start), position(end).min(length - 1));
    if start > end { b"" } else { &value[start as usize..=end as usize] }
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn parts_are_cut_by_the_rules_of_getrange() {
        let cases: &[(i64, i64, &[u8])] = &[
            (0, 3, b"This"),
            (0, -1, b"This is a string"),
            (-3, -1, b"ing"),
            (10, 100, b"string"),
            (5, 3, b""),
            (-5000, 10_000, b"This is a string"),
            (-1, -3, b""),
            (-1, -5000, b""),
            (0, -5000, b"T"),
            (16, 20, b""),
            (i64::MIN, i64::MAX, b"This is a string"),
        ];
        for (start, end, expected) in cases {
            assert_eq!(part_of(b"This is a string", *start, *end), *expected, "{start}..{end}");
        }
        assert_eq!(part_of(b"", 0, -1), b"");
    }
}
