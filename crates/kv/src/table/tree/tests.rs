//! Compares trees with sequences and sorted sets of the standard library.

use super::piece::item_bytes;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn items_of(tree: &Tree) -> Vec<Vec<u8>> {
    tree.items().iter_from(0).map(<[u8]>::to_vec).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Replace(usize, Vec<u8>),
    /// Keeps the items the sum of whose bytes has this remainder, or those with another one.
    Retain(usize, usize, bool),
    Copy,
    End,
    CopyUncounted,
    EndUncounted,
}

fn step() -> impl Strategy<Value = Step> {
    let item =
        prop_oneof![8 => vec(any::<u8>(), 0..12), 1 => vec(any::<u8>(), 0..90), 1 => vec(0..2u8, 250..260)];
    prop_oneof![
        6 => (any::<u16>(), item).prop_map(|(at, item)| Step::Insert(at.into(), item)),
        1 => vec(any::<u8>(), 0..4).prop_map(|item| Step::Insert(usize::MAX, item)),
        1 => vec(any::<u8>(), 0..4).prop_map(|item| Step::Insert(0, item)),
        2 => any::<u16>().prop_map(|at| Step::Remove(at.into(), 1)),
        1 => (any::<u16>(), 0..40usize).prop_map(|(at, count)| Step::Remove(at.into(), count)),
        2 => (any::<u16>(), vec(any::<u8>(), 2..5)).prop_map(|(at, item)| Step::Replace(at.into(), item)),
        1 => (1..9usize, 0..9usize, any::<bool>()).prop_map(|(by, rest, same)| Step::Retain(by, rest, same)),
        2 => Just(Step::Copy),
        1 => Just(Step::End),
        1 => Just(Step::CopyUncounted),
        1 => Just(Step::EndUncounted),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_tree_behaves_like_a_sequence_and_copies_stay_unchanged(steps in vec(step(), 0..300)) {
        let (mut tree, mut model) = (Tree::new(false), Vec::new());
        let (mut copies, mut discarded) = (Vec::<(Tree, Vec<Vec<u8>>)>::new(), Discarded::default());
        let mut uncounted = Vec::<Tree>::new();
        for step in steps {
            match step {
                Step::Insert(at, item) => {
                    let at = if at == usize::MAX { model.len() } else { at % (model.len() + 1) };
                    tree.insert(at, &item);
                    model.insert(at, item);
                }
                Step::Remove(at, count) => {
                    let from = at % (model.len() + 1);
                    let to = model.len().min(from + count);
                    tree.remove(from, to, &mut discarded);
                    model.drain(from..to);
                }
                Step::Replace(at, item) if !model.is_empty() => {
                    let at = at % model.len();
                    tree.replace(at, &item, &mut discarded);
                    model[at] = item;
                }
                Step::Replace(..) => {}
                Step::Retain(by, rest, same) => {
                    let keeps = |item: &[u8]| (item.iter().map(|byte| usize::from(*byte)).sum::<usize>() % by == rest) == same;
                    let mut seen = Vec::new();
                    tree.retain(|item| {
                        seen.push(item.to_vec());
                        keeps(item)
                    });
                    prop_assert_eq!(&seen, &model, "each item is asked about once, in order");
                    model.retain(|item: &Vec<u8>| keeps(item));
                }
                Step::Copy => {
                    let mut copy = tree.clone();
                    discarded.count_shared(copy.take_shared());
                    copies.push((copy, model.clone()));
                }
                Step::End if !copies.is_empty() => discarded.take_tree(copies.swap_remove(0).0),
                Step::End => {}
                // As for a snapshot: a copy that is not counted.
                Step::CopyUncounted => uncounted.push(tree.clone()),
                Step::EndUncounted => uncounted.drain(..).for_each(|copy| discarded.take_tree(copy)),
            }
            discarded.count_shared(tree.take_shared());
            while !discarded.is_empty() {
                discarded.drop_some();
            }
            let trees = copies.iter().map(|(copy, _)| copy).chain([&tree]);
            let counted: usize = trees.clone().map(Tree::memory_bytes).sum();
            let mut nodes = Nodes::default();
            trees.chain(&uncounted).for_each(|tree| nodes.add(tree));
            prop_assert_eq!(discarded.shared, counted as isize - nodes.bytes() as isize);
            tree.check_invariants();
            prop_assert_eq!(tree.len(), model.len());
        }
        copies.push((tree, model));
        for (tree, model) in copies {
            prop_assert_eq!(&items_of(&tree), &model);
            let items = tree.items();
            for rank in 0..=model.len() {
                prop_assert_eq!(items.get(rank), model.get(rank).map(Vec::as_slice));
                prop_assert!(items.iter_from(rank).eq(model[rank..].iter().map(Vec::as_slice)));
                prop_assert!(items.iter_back(rank).eq(model[..rank].iter().rev().map(Vec::as_slice)));
            }
            tree.check_invariants();
        }
    }

    #[test]
    fn an_ordered_tree_behaves_like_a_sorted_set(steps in vec((any::<bool>(), vec(0..3u8, 0..14), 0..9usize), 0..400)) {
        let (mut tree, mut model) = (Tree::new(true), BTreeSet::new());
        let mut discarded = Discarded::default();
        for (adds, item, count) in steps {
            let rank = tree.items().seek(&item);
            prop_assert_eq!(rank, model.range(..item.clone()).count());
            let is_there = tree.items().get(rank) == Some(&item[..]);
            prop_assert_eq!(is_there, model.contains(&item));
            prop_assert_eq!(tree.items().contains(&item), is_there);
            let (from, rest) = tree.items().iter_from_key(&item);
            prop_assert_eq!(from, rank);
            prop_assert!(rest.eq(model.range(item.clone()..)));
            if adds && !is_there {
                tree.insert(rank, &item);
                model.insert(item);
            } else if !adds {
                let to = model.len().min(rank + count);
                let gone: Vec<Vec<u8>> = model.range(item..).take(to - rank).cloned().collect();
                tree.remove(rank, to, &mut discarded);
                model.retain(|item| !gone.contains(item));
            }
            tree.check_invariants();
        }
        prop_assert!(items_of(&tree).iter().eq(&model));
    }

    /// Names of two bytes, each with a value of four bytes behind it.
    #[test]
    fn overwriting_a_found_item_leaves_copies_unchanged(
        steps in vec((0..8u8, 0..9u8, any::<[u8; 4]>(), 0..9u8), 0..400),
    ) {
        let (mut tree, mut model, mut copies) = (Tree::new(true), BTreeMap::new(), Vec::new());
        for (first, second, value, kind) in steps {
            let name = [first, second];
            let found = tree.find_in_leaf(&name, |item| item.starts_with(&name));
            prop_assert_eq!(found.is_some(), model.contains_key(&name));
            // A search by a part of the name finds the item unless it is in another leaf, and never finds a different item.
            if let Some(found) = tree.find_in_leaf(&name[..1], |item| item.starts_with(&name)) {
                tree.overwrite_end(&found, &value[2..]);
                let held: &mut [u8; 4] = model.get_mut(&name).expect("only what is there is found");
                held[2..].copy_from_slice(&value[2..]);
            }
            match found {
                Some(found) => tree.overwrite_end(&found, &value),
                None => assert!(tree.insert_in_order(&[&name[..], &value].concat())),
            }
            model.insert(name, value);
            if kind == 0 {
                copies.push((tree.clone(), model.clone()));
            }
            tree.check_invariants();
        }
        copies.push((tree, model));
        for (tree, model) in copies {
            let items = model.iter().map(|(name, value)| [&name[..], value].concat());
            prop_assert!(items_of(&tree).into_iter().eq(items));
        }
    }
}

#[test]
fn a_tree_that_grows_at_an_end_has_full_leaves() {
    for at_front in [false, true] {
        let mut tree = Tree::new(false);
        for number in 0..4000u32 {
            tree.insert(if at_front { 0 } else { tree.len() }, &number.to_be_bytes());
        }
        tree.check_invariants();
        let Some(Node::Inner(_)) = tree.root.as_ref() else { panic!("a tree of many items has levels") };
        fn leaves(node: &Node) -> usize {
            match node {
                Node::Leaf(_) => 1,
                Node::Inner(children) => children.nodes.iter().map(leaves).sum(),
            }
        }
        assert!(leaves(tree.root.as_ref().unwrap()) <= 4000 / LEAF_ITEMS + 1);
    }
}

#[test]
fn discarded_nodes_are_freed_in_steps_and_shared_nodes_stay() {
    let mut tree = Tree::new(false);
    (0..20_000u32).for_each(|number| tree.insert(tree.len(), &number.to_le_bytes()));
    let (copy, mut discarded) = (tree.clone(), Discarded::default());
    discarded.take_tree(tree);
    assert!(discarded.is_empty(), "all of it is shared with the copy");
    copy.check_invariants();
    discarded.take_tree(copy);
    let (mut steps, mut blocks) = (0, 0);
    while !discarded.is_empty() {
        let some = discarded.drop_some();
        assert!((1..=2).contains(&some), "{some} blocks in one step");
        (steps, blocks) = (steps + 1, blocks + some);
    }
    assert!(blocks >= 2 * 20_000 / LEAF_ITEMS && steps > 1000, "{blocks} {steps}");
}

#[test]
fn an_item_is_read_back_at_every_length() {
    for length in [0, 1, 253, 254, 255, 65_535, 65_536, 100_000] {
        let (item, mut bytes) = (vec![7; length], Vec::new());
        piece::put_item(&item, &mut bytes);
        assert_eq!(bytes.len(), item_bytes(length));
        let mut reader = crate::codec::Reader::new(&bytes);
        assert_eq!(piece::take_item(&mut reader), Ok(&item[..]));
        assert!(reader.is_empty());
        assert!(Piece::new(&bytes, 1).iter().eq([&item[..]]));
        assert!(piece::take_item(&mut crate::codec::Reader::new(&bytes[..bytes.len() - 1])).is_err());
    }
    assert!(piece::take_item(&mut crate::codec::Reader::new(&[254, 1, 0, 7])).is_err(), "written too long");
}

#[test]
fn a_piece_without_lengths_has_the_same_items() {
    for length in [1, 2, 4, 8, 253, 254, 300] {
        let items: Vec<Vec<u8>> = (0..20).map(|number| vec![number * 3; length]).collect();
        let bytes = items.concat();
        let (bare, mut leaf) = (Piece::bare(&bytes, items.len()), piece::Leaf::default());
        leaf.load(bare);
        leaf.check_invariants();
        for piece in [bare, leaf.view()] {
            assert!(piece.iter().eq(&items));
            assert_eq!(piece.length_of_all(), Some(length));
            assert_eq!(piece.bytes_with_lengths(), items.len() * item_bytes(length));
            for (rank, item) in items.iter().enumerate() {
                assert_eq!(piece.iter_from(rank).next(), Some(&item[..]));
            }
            for number in 0..60 {
                let (rank, at, is_there) = piece.find(&vec![number; length]);
                assert_eq!((rank, is_there), (usize::from(number).div_ceil(3), number % 3 == 0), "{number}");
                assert!(piece.iter_at(at).eq(&items[rank..]));
            }
        }
    }
}
