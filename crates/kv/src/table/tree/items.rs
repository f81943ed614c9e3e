//! Reading: a view of items, in a piece or in a tree.

use super::piece::{Piece, PieceIter};
use super::{Inner, Node, Tree, lead_of};
use crate::limits::is_worth_a_walk;

/// A read-only view of items, wherever they are.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) enum Items<'a> {
    Piece(Piece<'a>),
    Tree(&'a Tree),
}

impl<'a> Items<'a> {
    pub(in crate::table) const EMPTY: Items<'static> = Items::Piece(Piece::EMPTY);

    pub(in crate::table) fn len(self) -> usize {
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
            match node {
                Node::Leaf(leaf) => return (leaf.view(), rank.min(leaf.count())),
                Node::Inner(children) => {
                    let (at, before) = children.child_for(rank, None);
                    rank -= before;
                    node = &children.nodes[at];
                }
            }
        }
    }

    pub(in crate::table) fn get(self, rank: usize) -> Option<&'a [u8]> {
        let (piece, rank) = self.piece_at(rank);
        piece.iter_from(rank).next()
    }

    /// The items of these ranks, which must ascend.
    pub(in crate::table) fn at(self, ranks: &[usize]) -> impl Iterator<Item = &'a [u8]> {
        let mut walk = is_worth_a_walk(ranks.len(), self.len()).then(|| self.iter_from(0).enumerate());
        ranks.iter().filter_map(move |rank| match &mut walk {
            Some(walk) => walk.find(|(at, _)| at == rank).map(|(_, item)| item),
            None => self.get(*rank),
        })
    }

    /// The items from a rank on.
    pub(in crate::table) fn iter_from(self, rank: usize) -> impl Iterator<Item = &'a [u8]> {
        let (piece, within) = self.piece_at(rank);
        self.iter_in(rank, piece.iter_from(within))
    }

    /// The items from a rank on: first those left in `piece`, then those of the following pieces.
    fn iter_in(self, rank: usize, piece: PieceIter<'a>) -> impl Iterator<Item = &'a [u8]> {
        let (mut next, mut items) = (rank, piece);
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
    pub(in crate::table) fn iter_back(self, rank: usize) -> impl Iterator<Item = &'a [u8]> {
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

    /// Whether an item is present. The items must be in order.
    pub(in crate::table) fn contains(self, item: &[u8]) -> bool {
        self.piece_below(item, |_, _| {}).find(item).2
    }

    /// The number of items that are less than `key`. The items must be in order.
    pub(in crate::table) fn seek(self, key: &[u8]) -> usize {
        self.find(key).0
    }

    /// The number of items that are less than `key`, and the items from there on. The items must be in order.
    pub(in crate::table) fn iter_from_key(
        self,
        key: &[u8],
    ) -> (usize, impl Iterator<Item = &'a [u8]> + use<'a>) {
        let (before, piece) = self.piece_with(key);
        let (rank, at, _) = piece.find(key);
        (before + rank, self.iter_in(before + rank, piece.iter_at(at)))
    }

    /// The number of items that are less than `key`, and whether the next one is equal to it. The items must be in order.
    pub(in crate::table) fn find(self, key: &[u8]) -> (usize, bool) {
        let (before, piece) = self.piece_with(key);
        let (rank, _, is_there) = piece.find(key);
        (before + rank, is_there)
    }

    /// The piece that holds a key or would hold it, and the number of items in front of that piece. All items behind the
    /// piece are greater than `key`: they are not less than the next piece's bound, and `key` is.
    fn piece_with(self, key: &[u8]) -> (usize, Piece<'a>) {
        let mut before = 0;
        let piece =
            self.piece_below(key, |children, at| before += children.items[..at].iter().sum::<usize>());
        (before, piece)
    }

    /// Like [`Items::piece_with`], without the number. `visit` gets each node on the way and the index of the child where
    /// the search continues.
    #[inline]
    pub(super) fn piece_below(self, key: &[u8], mut visit: impl FnMut(&'a Inner, usize)) -> Piece<'a> {
        let mut node = match self {
            Items::Piece(piece) => return piece,
            Items::Tree(tree) => match &tree.root {
                Some(root) => root,
                None => return Piece::EMPTY,
            },
        };
        let lead = lead_of(key);
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.view(),
                Node::Inner(children) => {
                    let at = children.child_with(lead, key);
                    visit(children, at);
                    node = &children.nodes[at];
                }
            }
        }
    }
}
