//! Any k fragments suffice, whichever others are lost; and pieces that do not belong are detected.

use coding::{CodingError, Layout, PIECE_BYTES_MAX, data_fragments_max};
use proptest::prelude::*;

/// A value in which every byte depends on its position.
fn value(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn fragments(layout: &Layout, value: &[u8], numbers: &[u8], stripe: usize) -> Vec<(u8, Vec<u8>)> {
    let encode = |number: &u8| {
        let mut piece = Vec::new();
        layout.encode(value, *number, stripe, &mut piece);
        // Memory with old content must give the same result.
        let mut memory = vec![0xff; 3 * piece.len() % 1000];
        assert_eq!(layout.piece(value, *number, stripe, &mut memory), piece);
        (*number, piece)
    };
    numbers.iter().map(encode).collect()
}

fn borrowed(pieces: &[(u8, Vec<u8>)]) -> Vec<(u8, &[u8])> {
    pieces.iter().map(|(number, piece)| (*number, piece.as_slice())).collect()
}

/// All choices of some of `count` places, as sets of bits.
fn choices(count: usize, of: usize) -> impl Iterator<Item = u32> {
    (0..1u32 << count).filter(move |set| set.count_ones() as usize == of)
}

#[test]
fn every_pattern_of_losses_is_survived_in_groups_of_up_to_nine() {
    for members in 1..=9usize {
        for parts in 1..=data_fragments_max(members) {
            for length in [0, 1, parts - 1, parts, 1000] {
                let layout = Layout::new(length, parts as u8).expect("there is a part");
                let value = value(length);
                let numbers: Vec<u8> = (0..members as u8).collect();
                let all = fragments(&layout, &value, &numbers, 0);
                for kept in choices(members, parts) {
                    let left: Vec<_> =
                        all.iter().filter(|(number, _)| kept & 1 << number != 0).cloned().collect();
                    let mut joined = Vec::new();
                    layout.join(0, &borrowed(&left), &mut joined).expect("there are enough");
                    assert_eq!(joined, value, "{parts} of {members}, kept {kept:b}");
                    for (number, lost) in all.iter().filter(|(number, _)| kept & 1 << number == 0) {
                        let mut rebuilt = Vec::new();
                        layout.rebuild(*number, 0, &borrowed(&left), &mut rebuilt).expect("there are enough");
                        assert_eq!(&rebuilt, lost, "{parts} of {members}, kept {kept:b}, lost {number}");
                    }
                }
                for kept in choices(members, parts - 1) {
                    let left: Vec<_> =
                        all.iter().filter(|(number, _)| kept & 1 << number != 0).cloned().collect();
                    let refused = layout.join(0, &borrowed(&left), &mut Vec::new());
                    assert_eq!(refused, Err(CodingError::TooFew { have: parts - 1, need: parts }));
                }
            }
        }
    }
}

#[test]
fn a_fragment_is_the_same_however_many_others_there_are() {
    // A group that grows or replaces members re-encodes nothing: fragments with distant numbers can be combined.
    let layout = Layout::new(999, 3).expect("there are parts");
    let value = value(999);
    for numbers in [[0, 100, 255], [7, 3, 200], [253, 254, 255], [2, 1, 0]] {
        let left = fragments(&layout, &value, &numbers, 0);
        let mut joined = Vec::new();
        layout.join(0, &borrowed(&left), &mut joined).expect("there are enough");
        assert_eq!(joined, value, "{numbers:?}");
    }
}

#[test]
fn with_one_part_every_fragment_is_a_copy() {
    let layout = Layout::new(9, 1).expect("there is a part");
    for (number, piece) in fragments(&layout, b"the value", &[0, 1, 8, 255], 0) {
        assert_eq!(piece, b"the value", "{number}");
    }
}

#[test]
fn the_first_computed_fragment_is_the_sum_of_all_parts() {
    for parts in 2..=5u8 {
        let layout = Layout::new(30_000 * usize::from(parts), parts).expect("there are parts");
        let value = value(layout.length());
        let sum = |at: usize| value.iter().skip(at).step_by(30_000).fold(0, |sum, byte| sum ^ byte);
        let computed = fragments(&layout, &value, &[parts], 0);
        assert!((0..30_000).all(|at| computed[0].1[at] == sum(at)), "{parts}");
    }
}

#[test]
fn pieces_that_do_not_belong_are_refused() {
    let layout = Layout::new(10, 2).expect("there are parts");
    let pieces = fragments(&layout, &value(10), &[0, 2], 0);
    let twice = [pieces[0].clone(), pieces[0].clone()];
    let few = Err(CodingError::TooFew { have: 1, need: 2 });
    assert_eq!(layout.join(0, &borrowed(&twice), &mut Vec::new()), few, "the same fragment twice");
    let short = [(0, &b"1234"[..]), (2, b"12345")];
    let length = Err(CodingError::Length { have: 4, need: 5 });
    assert_eq!(layout.join(0, &short, &mut Vec::new()), length);
    assert_eq!(layout.join(1, &borrowed(&pieces), &mut Vec::new()), Err(CodingError::Stripe(1)));
    assert_eq!(Layout::new(10, 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn values_of_many_stripes_come_back_from_any_fragments(
        parts in 1u8..=10,
        stripes in 1usize..=3,
        cut_short in 0usize..70_000,
        order in Just((0u8..20).collect::<Vec<u8>>()).prop_shuffle(),
    ) {
        let length = (stripes * usize::from(parts) * PIECE_BYTES_MAX).saturating_sub(cut_short);
        let layout = Layout::new(length, parts).expect("there are parts");
        let value = value(length);
        let kept = &order[..usize::from(parts)];
        let (mut joined, mut bytes) = (Vec::new(), 0);
        for stripe in 0..layout.stripes() {
            let left = fragments(&layout, &value, kept, stripe);
            bytes += left[0].1.len();
            layout.join(stripe, &borrowed(&left), &mut joined).expect("there are enough");
            let lost = order[usize::from(parts)];
            let mut rebuilt = Vec::new();
            layout.rebuild(lost, stripe, &borrowed(&left), &mut rebuilt).expect("there are enough");
            prop_assert_eq!(&rebuilt, &fragments(&layout, &value, &[lost], stripe)[0].1);
        }
        prop_assert!(joined == value);
        prop_assert_eq!(bytes, layout.fragment_bytes());
        let exact = length.div_ceil(usize::from(parts));
        prop_assert!(bytes >= exact && bytes <= exact + 1, "nothing is stored that is not needed");
    }
}
