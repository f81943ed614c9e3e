//! Changing: an item is added, removed or overwritten below a node, and nodes are divided and joined.

use super::piece::{Leaf, item_bytes};
use super::{Added, Change, Child, Discarded, FANOUT, Inner, Node, Shape, Spot, bound_between};
use triomphe::Arc;

/// Subtracts a shared node from what trees share: it is about to be copied. Returns the node.
#[inline]
pub(super) fn leave<'n>(node: &'n mut Node, shared: &mut isize) -> &'n mut Node {
    if node.is_shared() {
        *shared -= node.alone_bytes() as isize;
    }
    node
}

/// Adds an item below a node. If the item starts a new leaf, in front of a full one or behind it, that leaf gets room for
/// `room` bytes. `shared`: see [`Discarded::shared_bytes`].
pub(super) fn insert(
    node: &mut Node,
    spot: Spot<'_>,
    item: &[u8],
    (shape, room): (Shape, usize),
    shared: &mut isize,
) -> Added {
    // A shared node is copied here, which may change how much memory it takes.
    let bytes_before = node.own_bytes() as isize;
    match leave(node, shared) {
        Node::Leaf(leaf) => {
            let leaf = Arc::make_mut(leaf);
            let more = insert_into_leaf(leaf, spot, item, shape, room);
            if more.is_empty() {
                let bytes = node.own_bytes() as isize - bytes_before;
                return Added::InPlace(Change { items: 1, content: item_bytes(item.len()) as isize, bytes });
            }
            let mut left = leaf.view();
            let bounds = more.iter().map(|next| {
                let (last, first) = (left.iter().last(), next.view().iter().next());
                left = next.view();
                if shape.is_ordered {
                    bound_between(last.unwrap_or_default(), first.unwrap_or_default())
                } else {
                    b""
                }
            });
            let bounds: Vec<Box<[u8]>> = bounds.map(Into::into).collect();
            let more = more.into_iter().zip(bounds);
            Added::Divided(
                more.map(|(leaf, bound)| Child { bound, node: Node::Leaf(Arc::new(leaf)) }).collect(),
            )
        }
        Node::Inner(children) => {
            let children = Arc::make_mut(children);
            let (at, below) = spot.below(children, Some(item));
            let before = children.nodes[at].size();
            let more = match insert(&mut children.nodes[at], below, item, (shape, room), shared) {
                Added::InPlace(change) => {
                    if let Node::Leaf(leaf) = &mut children.nodes[at]
                        && shape.is_ordered
                        && leaf.needs_marks()
                    {
                        Arc::make_mut(leaf).mark();
                    }
                    children.note(at, change);
                    let bytes = change.bytes + node.own_bytes() as isize - bytes_before;
                    return Added::InPlace(Change { bytes, ..change });
                }
                Added::Divided(more) => more,
            };
            children.note(at, children.nodes[at].size().since(before));
            for (child, at) in more.into_iter().zip(at + 1..) {
                children.insert(at, child);
            }
            if children.len() <= FANOUT {
                return Added::Divided(Vec::new());
            }
            // In a tree that grows at one end, nodes should stay full.
            let cut = match at {
                0 => 2,
                _ if at + 2 >= children.len() - 1 => children.len() - 2,
                _ => children.len() / 2,
            };
            let right = children.split_off(cut);
            let bound = right.bounds[0].clone();
            Added::Divided(vec![Child { bound, node: Node::Inner(Arc::new(right)) }])
        }
    }
}

/// Adds an item to a leaf, and returns the leaves to be added behind it: at most two.
fn insert_into_leaf(leaf: &mut Leaf, spot: Spot<'_>, item: &[u8], shape: Shape, room: usize) -> Vec<Leaf> {
    let (rank, at) = spot.in_leaf();
    let fits = |leaf: &Leaf| {
        leaf.count() == 0
            || leaf.count() < shape.leaf_items()
                && leaf.byte_count() + item_bytes(item.len()) <= shape.leaf_bytes()
    };
    if fits(leaf) {
        let at = at.unwrap_or_else(|| leaf.view().offset(rank));
        leaf.insert_at(rank, at, item);
        return Vec::new();
    }
    let count = leaf.count();
    if rank == count || rank == 0 {
        leaf.shrink();
        let new = Leaf::with_room(item, room, rank == 0);
        return vec![if rank == 0 { std::mem::replace(leaf, new) } else { new }];
    }
    let middle = leaf.middle();
    let mut right = leaf.split_off(middle);
    if rank <= middle && fits(leaf) {
        leaf.insert(rank, item);
        return vec![right];
    }
    if rank >= middle && fits(&right) {
        right.insert(rank - middle, item);
        return vec![right];
    }
    leaf.append(right.view());
    let right = leaf.split_off(rank);
    vec![Leaf::of(item), right]
}

/// Removes items below a node.
pub(super) fn remove(
    node: &mut Node,
    from: usize,
    to: usize,
    shape: Shape,
    discarded: &mut Discarded,
) -> Change {
    let bytes_before = node.own_bytes() as isize;
    let mut change = Change::default();
    match leave(node, &mut discarded.shared) {
        Node::Leaf(leaf) => {
            let leaf = Arc::make_mut(leaf);
            let content_before = leaf.byte_count() as isize;
            leaf.remove(from, to);
            change.items -= (to - from) as isize;
            change.content += leaf.byte_count() as isize - content_before;
        }
        Node::Inner(children) => {
            let children = Arc::make_mut(children);
            let (first, mut before) = children.child_for(from, None);
            let (mut at, mut from) = (first, from);
            let (mut left, below) = (to - from, children.below);
            while left > 0 {
                let items = children.items[at];
                let (start, count) = (from - before, left.min(items - (from - before)));
                if count == items {
                    discarded.take(children.remove(at).node, items);
                } else {
                    let less = remove(&mut children.nodes[at], start, start + count, shape, discarded);
                    children.note(at, less);
                    before += children.items[at];
                    at += 1;
                }
                from = before;
                left -= count;
            }
            // The children at both ends of the gap may be small now.
            for at in (first.saturating_sub(1)..=first + 1).rev() {
                join(children, at, shape, &mut discarded.shared);
            }
            change = children.below.since(below);
        }
    }
    change.bytes += node.own_bytes() as isize - bytes_before;
    change
}

/// Removes the items below a node that `keep` returns false for. What has such items is copied if it is shared; a leaf without
/// any is not touched.
pub(super) fn retain(
    node: &mut Node,
    shape: Shape,
    keep: &mut impl FnMut(&[u8]) -> bool,
    shared: &mut isize,
) -> Change {
    let before = node.size();
    match node {
        Node::Leaf(leaf) => {
            let mut kept = Leaf::default();
            leaf.view().iter().filter(|item| keep(item)).for_each(|item| kept.insert(kept.count(), item));
            if kept.count() < leaf.count() {
                kept.shrink();
                *leave(node, shared) = Node::Leaf(Arc::new(kept));
            }
        }
        Node::Inner(_) => {
            let Node::Inner(children) = leave(node, shared) else { unreachable!("it is one") };
            let children = Arc::make_mut(children);
            let mut at = 0;
            while at < children.len() {
                let change = retain(&mut children.nodes[at], shape, keep, shared);
                children.note(at, change);
                if children.items[at] == 0 {
                    children.remove(at);
                } else {
                    at += 1;
                }
            }
            (0..children.len()).rev().for_each(|at| join(children, at, shape, shared));
        }
    }
    node.size().since(before)
}

/// Changes bytes of an item. Returns the change in memory: copying a shared node drops its spare room.
pub(super) fn overwrite(
    node: &mut Node,
    spot: Spot<'_>,
    write: impl FnOnce(&mut [u8]),
    shared: &mut isize,
) -> isize {
    // Whether the node is shared is known from the descent; its memory costs another look.
    let bytes_before = node.is_shared().then(|| {
        leave(node, shared);
        node.own_bytes() as isize
    });
    let below = match node {
        Node::Leaf(leaf) => {
            let (rank, at) = spot.in_leaf();
            let at = at.unwrap_or_else(|| leaf.view().offset(rank));
            write(Arc::make_mut(leaf).item_mut(at));
            0
        }
        Node::Inner(children) => {
            let children = Arc::make_mut(children);
            let (at, below) = spot.below(children, None);
            let bytes = overwrite(&mut children.nodes[at], below, write, shared);
            if bytes != 0 {
                children.below.bytes = children.below.bytes.strict_add_signed(bytes);
            }
            bytes
        }
    };
    below + bytes_before.map_or(0, |before| node.own_bytes() as isize - before)
}

/// Joins a child and the next one, if both are small.
fn join(children: &mut Inner, at: usize, shape: Shape, shared: &mut isize) {
    let [left, right, ..] = &children.nodes[at.min(children.len())..] else { return };
    let is_small = match (left, right) {
        // A leaf's content is its bytes.
        (Node::Leaf(left), Node::Leaf(right)) => {
            left.byte_count() + right.byte_count() <= shape.leaf_bytes() * 3 / 4
                && left.count() + right.count() <= shape.leaf_items() * 3 / 4
        }
        (Node::Inner(left), Node::Inner(right)) => left.len() + right.len() <= FANOUT * 3 / 4,
        _ => unreachable!("the children of a node have the same height"),
    };
    if !is_small {
        return;
    }
    let next = children.remove(at + 1);
    let before = children.nodes[at].size();
    if next.node.is_shared() {
        *shared -= next.node.alone_bytes() as isize;
    }
    match (leave(&mut children.nodes[at], shared), &next.node) {
        (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(right.view()),
        (Node::Inner(left), Node::Inner(more)) => Arc::make_mut(left).append(more, next.bound),
        _ => unreachable!("the children of a node have the same height"),
    }
    children.note(at, children.nodes[at].size().since(before));
}
