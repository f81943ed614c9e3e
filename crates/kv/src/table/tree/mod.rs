//! A sequence of byte strings, long or short, that can be copied at no cost: the representation of large collections.
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

mod changes;
mod descent;
mod items;
pub(super) mod piece;
#[cfg(test)]
mod tests;

use arrayvec::ArrayVec;
use changes::{insert, leave, overwrite, remove, retain};
pub(super) use descent::Descent;
pub(super) use items::Items;
use piece::{Leaf, Piece};
use std::collections::BTreeSet;
use triomphe::Arc;

/// Most bytes of a leaf that has more than one item.
pub(super) const LEAF_BYTES: usize = if cfg!(test) { 32 } else { 512 };
/// Most items of a leaf.
pub(super) const LEAF_ITEMS: usize = if cfg!(test) { 4 } else { 64 };
/// Most children of an inner node.
const FANOUT: usize = if cfg!(test) { 4 } else { 32 };
/// Most nodes that are added behind a node when it is divided.
const NODES_ADDED: usize = 2;
/// Room for children.
const PLACES: usize = FANOUT + NODES_ADDED;
const _: () = assert!(PLACES <= u8::MAX as usize, "a path names places by bytes");
/// Most levels of a tree. Each level has at least about twice as many nodes as the one above it, so memory runs out
/// earlier.
const LEVELS: usize = 40;
/// Memory of a node beyond its contents: its counts, the allocator's overhead and its share in its parent.
const NODE_BYTES: usize = 64;

/// A sequence of byte strings.
#[derive(Debug)]
pub(super) struct Tree {
    root: Option<Node>,
    size: Size,
    shape: Shape,
    /// Its part of [`Discarded::shared_bytes`] that is not counted there yet.
    shared: isize,
}

impl Clone for Tree {
    /// Returns a copy that shares all nodes.
    fn clone(&self) -> Tree {
        let shared = self.size.bytes as isize;
        Tree { root: self.root.clone(), size: self.size, shape: self.shape, shared }
    }
}

/// How a tree stores its items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whether items are distinct and ascend by their bytes.
    pub(super) is_ordered: bool,
    /// How many times the usual length leaves may have. Longer leaves cost less memory, but more time for each search.
    pub(super) leaf_factor: u32,
}

impl Shape {
    /// A shape with leaves of the usual length.
    pub(super) fn usual(is_ordered: bool) -> Shape {
        Shape { is_ordered, leaf_factor: 1 }
    }

    fn leaf_bytes(self) -> usize {
        LEAF_BYTES * self.leaf_factor as usize
    }

    fn leaf_items(self) -> usize {
        LEAF_ITEMS * self.leaf_factor as usize
    }
}

/// A node, which trees share. Its kind is stored beside the pointer, so that a search need not load the node to learn it.
#[derive(Clone, Debug)]
enum Node {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

/// The children of a node, stored field by field in arrays of equal length. A search reads only the leads, without a branch
/// for each, and then one node. A change of one item reads little else, since each further place in memory may be out of
/// the processor's cache.
#[derive(Clone, Debug, Default)]
struct Inner {
    /// The total size of the children and their bounds.
    below: Size,
    leads: Leads,
    nodes: ArrayVec<Node, PLACES>,
    /// How many items each child has.
    items: ArrayVec<usize, PLACES>,
    /// In an ordered tree, for each child but the first: greater than all items of the previous child, and not greater than
    /// this child's first item. As short as that allows.
    bounds: Vec<Box<[u8]>>,
}

/// The first bytes of each child's bound, so that a comparison seldom has to read the rest of it. Behind the last child's
/// lead, all places hold the greatest number.
#[derive(Clone, Debug)]
struct Leads([u64; LEADS]);

/// A search first compares one lead out of this many.
const LEADS_STEP: usize = 8;
const LEADS: usize = PLACES.next_multiple_of(LEADS_STEP);

impl Default for Leads {
    fn default() -> Leads {
        Leads([u64::MAX; LEADS])
    }
}

impl Leads {
    fn insert(&mut self, at: usize, lead: u64) {
        self.0.copy_within(at..LEADS - 1, at + 1);
        self.0[at] = lead;
    }

    fn remove(&mut self, at: usize) {
        self.0.copy_within(at + 1.., at);
        self.0[LEADS - 1] = u64::MAX;
    }

    fn split_off(&mut self, at: usize) -> Leads {
        let mut right = Leads::default();
        right.0[..LEADS - at].copy_from_slice(&self.0[at..]);
        self.0[at..].fill(u64::MAX);
        right
    }

    /// The number of leads, not counting the first one, that are less than `lead`. Leads ascend from the second one on.
    ///
    /// Sums take no branch that depends on the key; the branches of a binary search cannot be predicted. The first sum is
    /// over every eighth lead, the second one over the leads between two of these.
    #[inline]
    fn count_less(&self, lead: u64) -> usize {
        let is_less = |at: usize| usize::from(self.0[at] < lead);
        let from = (1..LEADS / LEADS_STEP).map(|step| is_less(step * LEADS_STEP)).sum::<usize>() * LEADS_STEP;
        let between: &[u64; LEADS_STEP] = self.0[from..].first_chunk().expect("the last step is a whole one");
        from + between[1..].iter().map(|it| usize::from(*it < lead)).sum::<usize>()
    }

    /// Loads all leads into the processor's cache.
    fn touch(&self) -> u64 {
        self.0.iter().step_by(LEADS_STEP).fold(0, |seen, lead| seen ^ lead)
    }
}

/// A child that is not in a node yet.
struct Child {
    bound: Box<[u8]>,
    node: Node,
}

impl Child {
    fn size(&self) -> Size {
        let size = self.node.size();
        Size { bytes: size.bytes + self.bound.len(), ..size }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    items: usize,
    /// Bytes of the items with their lengths. Depends only on the content.
    content: usize,
    /// Memory of all nodes, as if none were shared.
    bytes: usize,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.items += other.items;
        self.content += other.content;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Size {
    fn sub_assign(&mut self, other: Size) {
        self.items -= other.items;
        self.content -= other.content;
        self.bytes -= other.bytes;
    }
}

/// By how much the size of a node has changed.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    items: isize,
    content: isize,
    bytes: isize,
}

impl Size {
    /// The change from `before` to this size.
    fn since(self, before: Size) -> Change {
        let changed = |now: usize, before: usize| now as isize - before as isize;
        Change {
            items: changed(self.items, before.items),
            content: changed(self.content, before.content),
            bytes: changed(self.bytes, before.bytes),
        }
    }

    #[inline]
    fn changed(self, change: Change) -> Size {
        let Change { items, content, bytes } = change;
        let changed =
            |size: usize, change| size.checked_add_signed(change).expect("a node has what is taken from it");
        Size {
            items: changed(self.items, items),
            content: changed(self.content, content),
            bytes: changed(self.bytes, bytes),
        }
    }
}

/// Nodes that belong to no tree any more and still occupy memory. Freeing millions of items at once takes too long.
///
/// Also counts what trees share. So a tree must end here, and not simply be dropped, if it may share nodes.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    nodes: Vec<Node>,
    /// See [`Discarded::shared_bytes`].
    shared: isize,
}

impl Discarded {
    /// Drops a part of a tree: a small part at once, a large one little by little.
    fn take(&mut self, node: Node, items: usize) {
        const AT_ONCE: usize = 1000;
        if items > AT_ONCE && !node.is_shared() {
            self.nodes.push(node);
        } else {
            self.release(node);
        }
    }

    fn release(&mut self, mut node: Node) {
        if node.is_shared() {
            self.shared -= node.size().bytes as isize;
        } else if let Node::Inner(children) = &mut node
            && let Some(children) = Arc::get_mut(children)
        {
            children.nodes.drain(..).for_each(|child| self.release(child));
        }
    }

    pub(super) fn take_tree(&mut self, mut tree: Tree) {
        self.count_shared(tree.take_shared());
        if let Some(root) = tree.root {
            self.take(root, tree.size.items);
        }
    }

    pub(super) fn append(&mut self, other: &mut Discarded) {
        self.nodes.append(&mut other.nodes);
        self.shared += std::mem::take(&mut other.shared);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// By how many bytes all trees that are counted here are larger than their nodes, each of which is there once: so much
    /// memory changes of these trees may still take, even if they only remove. What a copy that is not counted holds
    /// alone, is subtracted: that is free once the copy ends.
    pub(super) fn shared_bytes(&self) -> usize {
        self.shared.max(0) as usize
    }

    /// Counts what [`Tree::take_shared`] has returned.
    #[inline]
    pub(super) fn count_shared(&mut self, change: isize) {
        self.shared += change;
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Frees a node, unless another tree shares it. Returns how many blocks of memory that were, at least 1.
    pub(super) fn drop_some(&mut self) -> usize {
        match self.nodes.pop() {
            Some(node) if node.is_shared() => {
                self.release(node);
                1
            }
            // The node, and its items.
            Some(Node::Leaf(_)) => 2,
            Some(Node::Inner(mut children)) => {
                let children = Arc::get_mut(&mut children);
                self.nodes.extend(children.into_iter().flat_map(|children| children.nodes.drain(..)));
                1
            }
            None => 1,
        }
    }
}

/// The nodes of some trees, each once. To check what is counted.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    seen: BTreeSet<usize>,
    bytes: usize,
}

impl Nodes {
    /// Bytes of all nodes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, tree: &Tree) {
        tree.root.iter().for_each(|root| self.visit(root));
    }

    fn visit(&mut self, node: &Node) {
        let address = match node {
            Node::Leaf(leaf) => Arc::as_ptr(leaf).addr(),
            Node::Inner(children) => Arc::as_ptr(children).addr(),
        };
        if self.seen.insert(address) {
            self.bytes += node.alone_bytes();
            if let Node::Inner(children) = node {
                children.nodes.iter().for_each(|child| self.visit(child));
            }
        }
    }
}

/// The first eight bytes as a number; a shorter string is padded with zeros. If the numbers of two strings differ, they
/// have the same order as the strings.
#[inline]
fn lead_of(bytes: &[u8]) -> u64 {
    if let Some(lead) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*lead);
    }
    let mut lead = [0; 8];
    lead[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(lead)
}

/// The shortest string that is greater than `left` and not greater than `right`.
fn bound_between<'r>(left: &[u8], right: &'r [u8]) -> &'r [u8] {
    let shared = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    &right[..right.len().min(shared + 1)]
}

impl Node {
    /// Whether another tree shares this node.
    fn is_shared(&self) -> bool {
        match self {
            Node::Leaf(leaf) => Arc::strong_count(leaf) > 1,
            Node::Inner(children) => Arc::strong_count(children) > 1,
        }
    }

    /// Memory of the node with its bounds, and without its children.
    fn alone_bytes(&self) -> usize {
        let bounds = match self {
            Node::Leaf(_) => 0,
            Node::Inner(children) => children.bounds.iter().map(|bound| bound.len()).sum(),
        };
        self.own_bytes() + bounds
    }

    /// Memory of the node itself.
    fn own_bytes(&self) -> usize {
        NODE_BYTES
            + match self {
                Node::Leaf(leaf) => leaf.capacity(),
                Node::Inner(children) => children.own_bytes(),
            }
    }

    fn size(&self) -> Size {
        let bytes = self.own_bytes();
        match self {
            Node::Leaf(leaf) => Size { items: leaf.count(), content: leaf.byte_count(), bytes },
            Node::Inner(children) => Size { bytes: bytes + children.below.bytes, ..children.below },
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
            Node::Inner(children) if is_last => children.nodes[children.len() - 1].end_item(true),
            Node::Inner(children) => children.nodes[0].end_item(false),
        }
    }
}

impl Inner {
    /// Memory in addition to [`NODE_BYTES`].
    fn own_bytes(&self) -> usize {
        size_of::<Inner>() + self.bounds.capacity() * size_of::<Box<[u8]>>()
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Updates the counts after a child's size has changed.
    #[inline]
    fn note(&mut self, at: usize, change: Change) {
        self.items[at] = self.items[at].strict_add_signed(change.items);
        self.below = self.below.changed(change);
    }

    fn insert(&mut self, at: usize, child: Child) {
        let size = child.size();
        self.below += size;
        self.leads.insert(at, lead_of(&child.bound));
        self.nodes.insert(at, child.node);
        self.items.insert(at, size.items);
        self.bounds.insert(at, child.bound);
    }

    fn remove(&mut self, at: usize) -> Child {
        self.leads.remove(at);
        self.items.remove(at);
        let child = Child { node: self.nodes.remove(at), bound: self.bounds.remove(at) };
        self.below -= child.size();
        child
    }

    fn split_off(&mut self, at: usize) -> Inner {
        let mut right = Inner {
            below: Size::default(),
            leads: self.leads.split_off(at),
            nodes: self.nodes.drain(at..).collect(),
            items: self.items.drain(at..).collect(),
            bounds: self.bounds.split_off(at),
        };
        self.bounds.shrink_to_fit();
        for (node, bound) in right.nodes.iter().zip(&right.bounds) {
            right.below += node.size();
            right.below.bytes += bound.len();
        }
        self.below -= right.below;
        right
    }

    /// Appends the children of the next node, whose bound is given.
    fn append(&mut self, more: &Inner, bound: Box<[u8]>) {
        let seam = self.len();
        self.below += more.below;
        self.below.bytes = self.below.bytes + bound.len() - more.bounds[0].len();
        self.leads.0[seam..seam + more.len()].copy_from_slice(&more.leads.0[..more.len()]);
        self.nodes.extend(more.nodes.iter().cloned());
        self.items.extend(more.items.iter().copied());
        self.bounds.extend_from_slice(&more.bounds);
        self.leads.0[seam] = lead_of(&bound);
        self.bounds[seam] = bound;
    }

    #[inline]
    fn is_above(&self, at: usize, lead: u64, key: &[u8]) -> bool {
        let bound_lead = self.leads.0[at];
        if bound_lead == lead { *self.bounds[at] > *key } else { bound_lead > lead }
    }

    /// The child that holds the item of this rank, or that takes a new item with this rank, and the number of items in
    /// front of that child. The children at both ends are found at once, because lists and streams grow and shrink there.
    #[inline]
    fn child_for(&self, rank: usize, new: Option<&[u8]>) -> (usize, usize) {
        let last = self.len() - 1;
        if rank < self.items[0] {
            return (0, 0);
        }
        let before = self.below.items - self.items[last];
        if rank > before { (last, before) } else { self.child_between(rank, new) }
    }

    fn child_between(&self, rank: usize, new: Option<&[u8]>) -> (usize, usize) {
        let mut before = 0;
        let last = self.len() - 1;
        for (at, items) in self.items[..last].iter().enumerate() {
            let end = before + items;
            let is_here = match new {
                Some(item) => rank < end || rank == end && self.is_above(at + 1, lead_of(item), item),
                None => rank < end,
            };
            if is_here {
                return (at, before);
            }
            before = end;
        }
        (last, before)
    }

    /// In an ordered tree, the child that holds a key or would hold it.
    #[inline]
    fn child_with(&self, lead: u64, key: &[u8]) -> usize {
        let mut at = self.leads.count_less(lead);
        while at + 1 < self.len() && !self.is_above(at + 1, lead, key) {
            at += 1;
        }
        at
    }
}

/// The effect of adding an item.
enum Added {
    /// Only nodes on its path have changed.
    InPlace(Change),
    /// Nodes were divided: these nodes must be added behind the node, and its own size has changed.
    Divided(Vec<Child>),
}

/// Where an item is, or where it will be added.
#[derive(Clone, Copy, Debug)]
enum Spot<'p> {
    /// By rank: the item has this rank, or gets it.
    Rank(usize),
    /// By the result of a search: below the children at these places, in the leaf with this rank and at this offset.
    Found { path: &'p [u8], rank: usize, at: usize },
}

impl Spot<'_> {
    /// The child to which the spot leads, and the spot below that child. `new`: the item, if it is to be added.
    #[inline]
    fn below(self, children: &Inner, new: Option<&[u8]>) -> (usize, Self) {
        match self {
            Spot::Rank(rank) => {
                let (at, before) = children.child_for(rank, new);
                (at, Spot::Rank(rank - before))
            }
            Spot::Found { path: [], .. } => unreachable!("a path ends at a leaf"),
            Spot::Found { path: [at, path @ ..], rank, at: offset } => {
                (usize::from(*at), Spot::Found { path, rank, at: offset })
            }
        }
    }

    /// The rank in the leaf, and the offset if it is known.
    fn in_leaf(self) -> (usize, Option<usize>) {
        match self {
            Spot::Rank(rank) => (rank, None),
            Spot::Found { path, rank, at } => {
                assert!(path.is_empty(), "a path ends at a leaf");
                (rank, Some(at))
            }
        }
    }
}

/// The result of a search in an ordered tree: the spot of an item, valid until the tree changes.
#[derive(Debug)]
pub(super) struct Found {
    path: ArrayVec<u8, LEVELS>,
    rank: usize,
    at: usize,
}

impl Found {
    fn spot(&self) -> Spot<'_> {
        Spot::Found { path: &self.path, rank: self.rank, at: self.at }
    }
}

impl Tree {
    /// Returns an empty tree. In an ordered one, items must be inserted at their place in the order.
    pub(super) fn new(is_ordered: bool) -> Tree {
        Tree::shaped(Shape::usual(is_ordered))
    }

    /// Returns an empty tree of this shape.
    pub(super) fn shaped(shape: Shape) -> Tree {
        Tree { root: None, size: Size::default(), shape, shared: 0 }
    }

    /// Replaces the contents by those of a piece. Reuses memory where possible.
    pub(super) fn load(&mut self, piece: Piece<'_>, shape: Shape) {
        self.shape = shape;
        if piece.len() == 0 {
            self.root = None;
        } else {
            if !matches!(self.root, Some(Node::Leaf(_))) {
                self.root = Some(Node::Leaf(Arc::new(Leaf::default())));
            }
            let Some(Node::Leaf(leaf)) = &mut self.root else { unreachable!("it has just been made one") };
            Arc::make_mut(leaf).load(piece);
        }
        self.measure();
    }

    /// Returns by how much [`Discarded::shared_bytes`] has to be changed for this tree: the tree counts from now on.
    #[inline]
    pub(super) fn take_shared(&mut self) -> isize {
        std::mem::take(&mut self.shared)
    }

    fn measure(&mut self) {
        self.size = self.root.as_ref().map_or(Size::default(), |root| root.size());
    }

    pub(super) fn len(&self) -> usize {
        self.size.items
    }

    /// Estimated bytes of memory, as if nothing were shared with copies.
    pub(super) fn memory_bytes(&self) -> usize {
        self.size.bytes
    }

    /// Bytes of all items with their lengths.
    pub(super) fn content_bytes(&self) -> usize {
        self.size.content
    }

    /// All items, if they are in one piece.
    pub(super) fn only_piece(&self) -> Option<Piece<'_>> {
        match &self.root {
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
        self.insert_at(Spot::Rank(rank), item);
    }

    /// Adds an item to an ordered tree at its place in the order. Returns false, and does nothing, if the item is present.
    pub(super) fn insert_in_order(&mut self, item: &[u8]) -> bool {
        let (found, is_there, _) = self.search(item);
        if !is_there {
            self.insert_at(found.spot(), item);
        }
        !is_there
    }

    /// Searches for `key`. Returns its spot, whether it is present, and the leaf.
    #[inline]
    fn search(&self, key: &[u8]) -> (Found, bool, Piece<'_>) {
        let mut path = ArrayVec::new();
        let piece = self.items().piece_below(key, |_, at| path.push(at as u8));
        let (rank, at, is_there) = piece.find(key);
        (Found { path, rank, at }, is_there, piece)
    }

    /// Finds an item that begins with `start` and satisfies `is_it`. Searches an ordered tree, but only the leaf where the
    /// first such item belongs.
    #[inline]
    pub(super) fn find_in_leaf(&self, start: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Option<Found> {
        let (mut found, _, piece) = self.search(start);
        let mut items = piece.iter_at(found.at);
        loop {
            let item = items.next().filter(|item| item.starts_with(start))?;
            if is_it(item) {
                return Some(found);
            }
            (found.rank, found.at) = (found.rank + 1, items.offset());
        }
    }

    fn insert_at(&mut self, spot: Spot<'_>, item: &[u8]) {
        match &mut self.root {
            None => self.root = Some(Node::Leaf(Arc::new(Leaf::of(item)))),
            Some(root) => {
                // A tree that is not ordered grows mostly at its ends, and fills a new leaf there. One leaf's room is
                // little beside 16.
                let is_long = self.size.content > 16 * self.shape.leaf_bytes();
                let room = if is_long && !self.shape.is_ordered { self.shape.leaf_bytes() } else { 0 };
                let more = match insert(root, spot, item, (self.shape, room), &mut self.shared) {
                    Added::InPlace(change) => return self.size = self.size.changed(change),
                    Added::Divided(more) => more,
                };
                if !more.is_empty() {
                    let mut above = Inner::default();
                    above.insert(0, Child { bound: Box::default(), node: root.clone() });
                    more.into_iter().zip(1..).for_each(|(child, at)| above.insert(at, child));
                    *root = Node::Inner(Arc::new(above));
                }
            }
        }
        self.measure();
    }

    /// Removes the items with ranks from `from` to before `to`.
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
        let change = remove(root, from, to, self.shape, discarded);
        self.size = self.size.changed(change);
        self.lower();
    }

    /// Removes the items that `keep` returns false for: it gets each item once, in order. O(items).
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let Some(root) = &mut self.root else { return };
        let change = retain(root, self.shape, &mut keep, &mut self.shared);
        self.size = self.size.changed(change);
        if self.len() == 0 {
            (self.root, self.size) = (None, Size::default());
        }
        self.lower();
    }

    /// Takes away the levels that have only one node.
    fn lower(&mut self) {
        while let Some(Node::Inner(children)) = &self.root
            && let [only] = &children.nodes[..]
        {
            let only = only.clone();
            if let Some(root) = &mut self.root {
                leave(root, &mut self.shared);
            }
            self.size = only.size();
            self.root = Some(only);
        }
    }

    /// Replaces the item of a rank. In an ordered tree, the new item must belong at the same place.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(super) fn replace(&mut self, rank: usize, item: &[u8], discarded: &mut Discarded) {
        assert!(rank < self.len(), "the rank of an item");
        if self.items().get(rank).is_some_and(|before| before.len() == item.len()) {
            return self.overwrite(rank, item);
        }
        self.remove(rank, rank + 1, discarded);
        self.insert(rank, item);
    }

    /// Like [`Tree::replace`], with an item of the same length. Goes down the tree once.
    ///
    /// # Panics
    /// If there is no such rank, or the item has another length.
    pub(super) fn overwrite(&mut self, rank: usize, item: &[u8]) {
        assert!(rank < self.len(), "the rank of an item");
        self.overwrite_at(Spot::Rank(rank), |before| before.copy_from_slice(item));
    }

    /// Overwrites the last bytes of an item that was found. They must not affect its place in the order.
    ///
    /// # Panics
    /// If the item is shorter.
    pub(super) fn overwrite_end(&mut self, found: &Found, end: &[u8]) {
        self.overwrite_at(found.spot(), |item| {
            let from = item.len().strict_sub(end.len());
            item[from..].copy_from_slice(end);
        });
    }

    fn overwrite_at(&mut self, spot: Spot<'_>, write: impl FnOnce(&mut [u8])) {
        let Some(root) = &mut self.root else { unreachable!("a tree with items has a root") };
        let bytes = overwrite(root, spot, write, &mut self.shared);
        self.size.bytes = self.size.bytes.saturating_add_signed(bytes);
    }

    pub(super) fn items(&self) -> Items<'_> {
        Items::Tree(self)
    }

    /// Asserts the invariants that every operation relies on.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        fn check(node: &Node, shape: Shape) -> usize {
            let Node::Inner(children) = node else {
                let Node::Leaf(leaf) = node else { return 0 };
                leaf.check_invariants();
                let is_short = leaf.byte_count() <= shape.leaf_bytes() && leaf.count() <= shape.leaf_items();
                assert!(leaf.count() == 1 || is_short);
                assert!(leaf.count() > 0);
                return 0;
            };
            assert!((1..=FANOUT).contains(&children.len()) && children.bounds.len() == children.len());
            let heights: Vec<usize> = children.nodes.iter().map(|node| check(node, shape)).collect();
            assert!(heights.iter().all(|height| *height == heights[0]), "all leaves are equally deep");
            assert_eq!(children.items.len(), children.len());
            assert!(children.leads.0[children.len()..].iter().all(|lead| *lead == u64::MAX));
            let mut below = Size::default();
            for (at, (node, bound)) in children.nodes.iter().zip(&children.bounds).enumerate() {
                assert_eq!(children.items[at], node.size().items);
                below += node.size();
                below.bytes += bound.len();
                if at > 0 && shape.is_ordered {
                    assert_eq!(children.leads.0[at], lead_of(bound));
                    assert!(children.nodes[at - 1].end_item(true) < &**bound);
                    assert!(&**bound <= node.end_item(false));
                }
            }
            assert_eq!(children.below, below);
            heights[0] + 1
        }
        let Some(root) = &self.root else { return assert_eq!(self.size, Size::default()) };
        check(root, self.shape);
        assert_eq!(self.size, root.size());
        assert!(!matches!(root, Node::Inner(children) if children.len() == 1), "no needless level");
        let items: Vec<&[u8]> = self.items().iter_from(0).collect();
        assert_eq!(items.len(), self.len());
        assert!(!self.shape.is_ordered || items.is_sorted_by(|one, other| one < other));
    }
}
