//! A sequence of byte strings, long or short, of which a copy costs nothing: what large collections consist of.
//!
//! A B+-tree whose leaves are pieces ([`piece`]). Each inner node knows how many items each of its children has, so an
//! item is found by its rank; in an **ordered** tree, whose items are distinct and ascending by their bytes, also by its
//! content. Every operation on one item takes a number of steps in proportion to the logarithm of the number of items,
//! with a base of some dozens.
//!
//! Nodes are shared between copies and never change while they are (path copying; Driscoll, Sarnak, Sleator and Tarjan,
//! 1989). A copy takes one step, and a change of a tree that has copies duplicates the nodes on its path. So snapshots,
//! scripts that are undone, and `COPY` cost in proportion to what changes, not to the collection.
//!
//! Where nodes begin and end depends on a tree's history and is not a part of its content: replicas have the same items
//! in the same order, perhaps in other nodes.

pub(super) mod piece;
#[cfg(test)]
mod tests;

use piece::{Leaf, Piece, item_bytes};
use std::sync::Arc;

/// Most bytes of a leaf that has more than one item.
pub(super) const LEAF_BYTES: usize = if cfg!(test) { 64 } else { 1024 };
/// Most items of a leaf.
pub(super) const LEAF_ITEMS: usize = if cfg!(test) { 8 } else { 128 };
/// Most children of an inner node.
const FANOUT: usize = if cfg!(test) { 4 } else { 32 };
/// Memory of a node beside what it holds: its counts, the allocator's overhead and its parent's part.
const NODE_BYTES: usize = 64;

/// A sequence of byte strings.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: Option<Arc<Node>>,
    size: Size,
    shape: Shape,
}

/// How a tree keeps its items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whether they are distinct and ascend by their bytes.
    pub(super) is_ordered: bool,
    /// How much longer leaves may be than usual. Long ones cost less memory, and more time for each search.
    pub(super) leaf_factor: usize,
}

impl Shape {
    /// With leaves of the usual length.
    pub(super) fn usual(is_ordered: bool) -> Shape {
        Shape { is_ordered, leaf_factor: 1 }
    }

    fn leaf_bytes(self) -> usize {
        LEAF_BYTES * self.leaf_factor
    }

    fn leaf_items(self) -> usize {
        LEAF_ITEMS * self.leaf_factor
    }
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    Inner(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    /// In an ordered tree, unless this is the first child: greater than all items of the child before, and not greater
    /// than this child's first one. As short as that allows.
    bound: Box<[u8]>,
    /// The first bytes of `bound`, so that a comparison seldom has to look at it.
    lead: u64,
    size: Size,
    node: Arc<Node>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    items: usize,
    /// Bytes of the items with their lengths. They follow from the content alone.
    content: usize,
    /// Memory of all nodes, as if none was shared.
    bytes: usize,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.items += other.items;
        self.content += other.content;
        self.bytes += other.bytes;
    }
}

/// Nodes that belong to no tree any more and still occupy memory. Millions of items take too long to be freed at once.
#[derive(Debug, Default)]
pub(super) struct Discarded(Vec<Arc<Node>>);

impl Discarded {
    /// Drops a part of a tree: a small one at once, a large one little by little.
    fn take(&mut self, node: Arc<Node>, items: usize) {
        const AT_ONCE: usize = 1000;
        if items > AT_ONCE {
            self.0.push(node);
        }
    }

    pub(super) fn take_tree(&mut self, tree: Tree) {
        if let Some(root) = tree.root {
            self.take(root, tree.size.items);
        }
    }

    pub(super) fn append(&mut self, other: &mut Discarded) {
        self.0.append(&mut other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees a node, unless another tree shares it, and returns how many items it held, at least one.
    pub(super) fn drop_some(&mut self) -> usize {
        match self.0.pop().and_then(Arc::into_inner) {
            Some(Node::Leaf(leaf)) => leaf.count().max(1),
            Some(Node::Inner(children)) => {
                self.0.extend(children.into_iter().map(|child| child.node));
                1
            }
            None => 1,
        }
    }
}

fn lead_of(bytes: &[u8]) -> u64 {
    let mut lead = [0; 8];
    let length = bytes.len().min(8);
    lead[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(lead)
}

/// The shortest string that is greater than `left` and not greater than `right`.
fn bound_between<'r>(left: &[u8], right: &'r [u8]) -> &'r [u8] {
    let shared = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    &right[..right.len().min(shared + 1)]
}

impl Node {
    /// Memory of the node itself.
    fn own_bytes(&self) -> usize {
        NODE_BYTES
            + match self {
                Node::Leaf(leaf) => leaf.capacity(),
                Node::Inner(children) => children.capacity() * size_of::<Child>(),
            }
    }

    fn size(&self) -> Size {
        let bytes = self.own_bytes();
        match self {
            Node::Leaf(leaf) => Size { items: leaf.count(), content: leaf.byte_count(), bytes },
            Node::Inner(children) => {
                let mut size = Size { bytes, ..Size::default() };
                for child in children {
                    size += child.size;
                    size.bytes += child.bound.len();
                }
                size
            }
        }
    }

    /// The first item, or the last one.
    #[cfg(test)]
    fn end_item(&self, is_last: bool) -> &[u8] {
        match self {
            Node::Leaf(leaf) if is_last => {
                leaf.view().iter_from(leaf.count().saturating_sub(1)).next().unwrap_or_default()
            }
            Node::Leaf(leaf) => leaf.view().iter().next().unwrap_or_default(),
            Node::Inner(children) if is_last => children[children.len() - 1].node.end_item(true),
            Node::Inner(children) => children[0].node.end_item(false),
        }
    }
}

impl Child {
    fn of(node: Node, bound: Box<[u8]>) -> Child {
        Child { lead: lead_of(&bound), bound, size: node.size(), node: Arc::new(node) }
    }

    fn is_above(&self, lead: u64, key: &[u8]) -> bool {
        if self.lead == lead { *self.bound > *key } else { self.lead > lead }
    }
}

/// The child that holds the item of this rank, or into which an item goes that gets this rank, and the number of items
/// in front of it.
fn child_for(children: &[Child], rank: usize, new: Option<&[u8]>) -> (usize, usize) {
    let mut before = 0;
    for (at, child) in children.iter().enumerate() {
        let end = before + child.size.items;
        let is_here = match (new, children.get(at + 1)) {
            (_, None) => true,
            (Some(item), Some(next)) => rank < end || rank == end && next.is_above(lead_of(item), item),
            (None, Some(_)) => rank < end,
        };
        if is_here {
            return (at, before);
        }
        before = end;
    }
    unreachable!("an inner node has children, and the last one takes what is left")
}

/// What an item that was added has changed.
enum Added {
    /// Only nodes on its path, each of which now has so many more bytes of memory.
    InPlace { bytes: isize },
    /// Nodes were divided: these are to be added behind the node, and its size is another.
    Divided(Vec<Child>),
}

impl Size {
    /// The size with one more item.
    fn with(self, item: &[u8], bytes: isize) -> Size {
        Size {
            items: self.items + 1,
            content: self.content + item_bytes(item.len()),
            bytes: self.bytes.saturating_add_signed(bytes),
        }
    }
}

/// Adds an item below a node.
fn insert(node: &mut Arc<Node>, rank: usize, item: &[u8], shape: Shape) -> Added {
    // A node that was shared is copied here, which may change what it takes.
    let bytes_before = node.own_bytes() as isize;
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            let more = insert_into_leaf(leaf, rank, item, shape);
            if more.is_empty() {
                return Added::InPlace { bytes: node.own_bytes() as isize - bytes_before };
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
            Added::Divided(more.map(|(leaf, bound)| Child::of(Node::Leaf(leaf), bound)).collect())
        }
        Node::Inner(children) => {
            let (at, before) = child_for(children, rank, Some(item));
            let child = &mut children[at];
            let more = match insert(&mut child.node, rank - before, item, shape) {
                Added::InPlace { bytes } => {
                    child.size = child.size.with(item, bytes);
                    return Added::InPlace { bytes: bytes + node.own_bytes() as isize - bytes_before };
                }
                Added::Divided(more) => more,
            };
            child.size = child.node.size();
            children.splice(at + 1..at + 1, more);
            if children.len() <= FANOUT {
                return Added::Divided(Vec::new());
            }
            // A tree that grows at an end has full nodes.
            let cut = match at {
                0 => 2,
                _ if at + 2 >= children.len() - 1 => children.len() - 2,
                _ => children.len() / 2,
            };
            let right = children.split_off(cut);
            children.shrink_to_fit();
            let bound = right[0].bound.clone();
            Added::Divided(vec![Child::of(Node::Inner(right), bound)])
        }
    }
}

/// Adds an item to a leaf, and returns the leaves to be added behind it: at most two.
fn insert_into_leaf(leaf: &mut Leaf, rank: usize, item: &[u8], shape: Shape) -> Vec<Leaf> {
    let fits = |leaf: &Leaf| {
        leaf.count() == 0
            || leaf.count() < shape.leaf_items()
                && leaf.byte_count() + item_bytes(item.len()) <= shape.leaf_bytes()
    };
    if fits(leaf) {
        leaf.insert(rank, item);
        return Vec::new();
    }
    let count = leaf.count();
    if rank == count {
        leaf.shrink();
        return vec![Leaf::of(item)];
    }
    if rank == 0 {
        return vec![std::mem::replace(leaf, Leaf::of(item))];
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
fn remove(node: &mut Arc<Node>, from: usize, to: usize, shape: Shape, discarded: &mut Discarded) {
    let children = match Arc::make_mut(node) {
        Node::Leaf(leaf) => return leaf.remove(from, to),
        Node::Inner(children) => children,
    };
    let (first, mut before) = child_for(children, from, None);
    let (mut at, mut from) = (first, from);
    let mut left = to - from;
    while left > 0 {
        let child = &mut children[at];
        let (start, count) = (from - before, left.min(child.size.items - (from - before)));
        if count == child.size.items {
            let Child { node, size, .. } = children.remove(at);
            discarded.take(node, size.items);
        } else {
            remove(&mut child.node, start, start + count, shape, discarded);
            child.size = child.node.size();
            before += child.size.items;
            at += 1;
        }
        from = before;
        left -= count;
    }
    // The children at both ends of the gap may be small now.
    for at in (first.saturating_sub(1)..=first + 1).rev() {
        join(children, at, shape);
    }
}

/// Overwrites an item by another one of the same length. Returns false, with nothing done, if its length is another.
fn overwrite(node: &mut Arc<Node>, rank: usize, item: &[u8]) -> bool {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => leaf.overwrite(rank, item),
        Node::Inner(children) => {
            let (at, before) = child_for(children, rank, None);
            let child = &mut children[at];
            let is_done = overwrite(&mut child.node, rank - before, item);
            child.size = child.node.size();
            is_done
        }
    }
}

/// Makes one of a child and the next one, if they are small.
fn join(children: &mut Vec<Child>, at: usize, shape: Shape) {
    let Some([left, right]) = children.get_mut(at..at + 2) else { return };
    let is_small = match (&*left.node, &*right.node) {
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
    match (Arc::make_mut(&mut left.node), &*right.node) {
        (Node::Leaf(left), Node::Leaf(right)) => left.append(right.view()),
        (Node::Inner(left), Node::Inner(more)) => {
            let seam = left.len();
            left.extend_from_slice(more);
            (left[seam].bound, left[seam].lead) = (right.bound.clone(), right.lead);
        }
        _ => {}
    }
    left.size = left.node.size();
    children.remove(at + 1);
}

impl Tree {
    /// Returns an empty tree. In an ordered one, items must be inserted where their order demands.
    pub(super) fn new(is_ordered: bool) -> Tree {
        Tree::shaped(Shape::usual(is_ordered))
    }

    /// Returns an empty tree of this shape.
    pub(super) fn shaped(shape: Shape) -> Tree {
        Tree { root: None, size: Size::default(), shape }
    }

    /// Replaces the contents by those of a piece; keeps memory where it can.
    pub(super) fn load(&mut self, piece: Piece<'_>, shape: Shape) {
        self.shape = shape;
        if piece.len() == 0 {
            self.root = None;
        } else {
            let root = self.root.get_or_insert_with(|| Arc::new(Node::Leaf(Leaf::default())));
            match Arc::get_mut(root) {
                Some(Node::Leaf(leaf)) => leaf.load(piece),
                _ => {
                    let mut leaf = Leaf::default();
                    leaf.load(piece);
                    *root = Arc::new(Node::Leaf(leaf));
                }
            }
        }
        self.measure();
    }

    fn measure(&mut self) {
        self.size = self.root.as_ref().map_or(Size::default(), |root| root.size());
    }

    pub(super) fn len(&self) -> usize {
        self.size.items
    }

    /// Estimated bytes of memory, as if nothing was shared with copies.
    pub(super) fn memory_bytes(&self) -> usize {
        self.size.bytes
    }

    /// Bytes of all items with their lengths.
    pub(super) fn content_bytes(&self) -> usize {
        self.size.content
    }

    /// All items, if they are in one piece.
    pub(super) fn only_piece(&self) -> Option<Piece<'_>> {
        match self.root.as_deref() {
            None => Some(Piece::default()),
            Some(Node::Leaf(leaf)) => Some(leaf.view()),
            Some(Node::Inner(_)) => None,
        }
    }

    /// Adds an item, which gets this rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(super) fn insert(&mut self, rank: usize, item: &[u8]) {
        assert!(rank <= self.len(), "a place between the items");
        match &mut self.root {
            None => self.root = Some(Arc::new(Node::Leaf(Leaf::of(item)))),
            Some(root) => {
                let more = match insert(root, rank, item, self.shape) {
                    Added::InPlace { bytes } => return self.size = self.size.with(item, bytes),
                    Added::Divided(more) => more,
                };
                if !more.is_empty() {
                    let size = root.size();
                    let left = Child { bound: Box::default(), lead: 0, size, node: Arc::clone(root) };
                    *root = Arc::new(Node::Inner(std::iter::once(left).chain(more).collect()));
                }
            }
        }
        self.measure();
    }

    /// Removes the items from one rank to before another.
    ///
    /// # Panics
    /// If there are no such ranks.
    pub(super) fn remove(&mut self, from: usize, to: usize, discarded: &mut Discarded) {
        assert!(from <= to && to <= self.len(), "ranks of items");
        if from == to {
            return;
        }
        if to - from == self.len() {
            discarded.take_tree(std::mem::replace(self, Tree::shaped(self.shape)));
            return;
        }
        let Some(root) = &mut self.root else { return };
        remove(root, from, to, self.shape, discarded);
        while let Node::Inner(children) = &**root
            && let [only] = &children[..]
        {
            *root = Arc::clone(&only.node);
        }
        self.measure();
    }

    /// Replaces the item of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(super) fn replace(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        assert!(rank < self.len(), "the rank of an item");
        if self.root.as_mut().is_some_and(|root| overwrite(root, rank, item)) {
            return self.measure();
        }
        self.measure(); // A node that was shared may have been copied.
        self.remove(rank, rank + 1, discarded);
        self.insert(rank, item);
    }

    pub(super) fn items(&self) -> Items<'_> {
        Items::Tree(self)
    }

    /// Asserts what every operation relies on.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        fn check(node: &Node, shape: Shape) -> usize {
            let Node::Inner(children) = node else {
                let Node::Leaf(leaf) = node else { return 0 };
                assert_eq!(leaf.view().iter().count(), leaf.count());
                let is_short = leaf.byte_count() <= shape.leaf_bytes() && leaf.count() <= shape.leaf_items();
                assert!(leaf.count() == 1 || is_short);
                assert!(leaf.count() > 0);
                return 0;
            };
            assert!(!children.is_empty() && children.len() <= FANOUT, "{}", children.len());
            let heights: Vec<usize> = children.iter().map(|child| check(&child.node, shape)).collect();
            assert!(heights.iter().all(|height| *height == heights[0]), "all leaves are equally deep");
            for (at, child) in children.iter().enumerate() {
                assert_eq!(child.size, child.node.size());
                if at > 0 && shape.is_ordered {
                    assert_eq!(child.lead, lead_of(&child.bound));
                    assert!(children[at - 1].node.end_item(true) < &*child.bound);
                    assert!(&*child.bound <= child.node.end_item(false));
                }
            }
            heights[0] + 1
        }
        let Some(root) = &self.root else { return assert_eq!(self.size, Size::default()) };
        check(root, self.shape);
        assert_eq!(self.size, root.size());
        assert!(!matches!(&**root, Node::Inner(children) if children.len() == 1), "no needless level");
        let items: Vec<&[u8]> = self.items().iter_from(0).collect();
        assert_eq!(items.len(), self.len());
        assert!(!self.shape.is_ordered || items.is_sorted_by(|one, other| one < other));
    }
}

/// A read-only view of items, wherever they are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items<'a> {
    Piece(Piece<'a>),
    Tree(&'a Tree),
}

impl<'a> Items<'a> {
    pub(super) const EMPTY: Items<'static> = Items::Piece(Piece::EMPTY);

    pub(super) fn len(self) -> usize {
        match self {
            Items::Piece(piece) => piece.len(),
            Items::Tree(tree) => tree.len(),
        }
    }

    /// The piece that holds the item of this rank, and the rank of the item in it.
    fn piece_at(self, mut rank: usize) -> (Piece<'a>, usize) {
        let mut node = match self {
            Items::Piece(piece) => return (piece, rank.min(piece.len())),
            Items::Tree(tree) => match &tree.root {
                Some(root) => root,
                None => return (Piece::EMPTY, 0),
            },
        };
        loop {
            match &**node {
                Node::Leaf(leaf) => return (leaf.view(), rank.min(leaf.count())),
                Node::Inner(children) => {
                    let (at, before) = child_for(children, rank, None);
                    rank -= before;
                    node = &children[at].node;
                }
            }
        }
    }

    pub(super) fn get(self, rank: usize) -> Option<&'a [u8]> {
        let (piece, rank) = self.piece_at(rank);
        piece.iter_from(rank).next()
    }

    /// The items from a rank on.
    pub(super) fn iter_from(self, rank: usize) -> impl Iterator<Item = &'a [u8]> {
        let (piece, within) = self.piece_at(rank);
        let (mut next, mut items) = (rank, piece.iter_from(within));
        std::iter::from_fn(move || {
            if let Some(item) = items.next() {
                next += 1;
                return Some(item);
            }
            if next >= self.len() {
                return None;
            }
            let (piece, within) = self.piece_at(next);
            items = piece.iter_from(within);
            next += 1;
            items.next()
        })
    }

    /// The items in front of a rank, the last one first.
    pub(super) fn iter_back(self, rank: usize) -> impl Iterator<Item = &'a [u8]> {
        let (mut left, mut items) = (rank.min(self.len()), Vec::new());
        std::iter::from_fn(move || {
            if items.is_empty() && left > 0 {
                let (piece, within) = self.piece_at(left - 1);
                items.extend(piece.iter().take(within + 1));
            }
            let item = items.pop()?;
            left -= 1;
            Some(item)
        })
    }

    /// Whether an item is there: the items must be in order.
    pub(super) fn contains(self, item: &[u8]) -> bool {
        self.find(item).1
    }

    /// The number of items that are less than `key`: the items must be in order.
    pub(super) fn seek(self, key: &[u8]) -> usize {
        self.find(key).0
    }

    /// The number of items that are less than `key`, and whether the next one is equal to it: the items must be in
    /// order.
    pub(super) fn find(self, key: &[u8]) -> (usize, bool) {
        let mut node = match self {
            Items::Piece(piece) => return piece.find(key),
            Items::Tree(tree) => match &tree.root {
                Some(root) => root,
                None => return (0, false),
            },
        };
        let (mut before, lead) = (0, lead_of(key));
        loop {
            match &**node {
                Node::Leaf(leaf) => {
                    // All items of the next leaf are greater than its bound, and so than `key`.
                    let (rank, is_there) = leaf.view().find(key);
                    return (before + rank, is_there);
                }
                Node::Inner(children) => {
                    let at = children[1..].partition_point(|child| !child.is_above(lead, key));
                    before += children[..at].iter().map(|child| child.size.items).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }
}
