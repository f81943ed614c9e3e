//! Searches that go down trees together, before the commands that need what they find.

use super::piece::Piece;
use super::{Node, Tree, lead_of};

/// A search that goes down a tree step by step beside other searches: each step waits for memory, and the waits overlap. It
/// compares only the first bytes of the key, so it may end beside the right leaf.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct Descent<'a> {
    node: Option<&'a Node>,
    lead: u64,
}

impl<'a> Descent<'a> {
    /// Starts at the root of an ordered tree.
    pub(in crate::table) fn new(tree: &'a Tree, key: &[u8]) -> Descent<'a> {
        Descent { node: tree.root.as_ref(), lead: lead_of(key) }
    }

    /// Advances all these searches together, down to the leaves.
    pub(in crate::table) fn all(descents: &mut [Descent<'a>]) {
        loop {
            // First start all loads, none of which depends on another, then wait for them.
            let touched = descents.iter().fold(0, |seen, descent| seen ^ descent.touch());
            std::hint::black_box(touched); // The result is unused, but the loads must not be optimised away.
            let mut is_under_way = false;
            for Descent { node, lead } in &mut *descents {
                if let Some(Node::Inner(children)) = *node {
                    *node = Some(&children.nodes[children.child_with(*lead, &[])]);
                    is_under_way = true;
                }
            }
            if !is_under_way {
                break;
            }
        }
        let touched = descents.iter().fold(0, |seen, descent| seen ^ descent.touch_items());
        std::hint::black_box(touched);
    }

    /// Loads what a search reads first in the node.
    fn touch(&self) -> u64 {
        match self.node {
            None => 0,
            Some(Node::Leaf(leaf)) => leaf.count() as u64,
            Some(Node::Inner(children)) => children.leads.touch(),
        }
    }

    fn touch_items(&self) -> u64 {
        const LINE_BYTES: usize = 64;
        let lines = self.leaf().bytes().iter().step_by(LINE_BYTES);
        lines.fold(0, |seen, byte| seen ^ u64::from(*byte))
    }

    fn leaf(&self) -> Piece<'a> {
        match self.node {
            Some(Node::Leaf(leaf)) => leaf.view(),
            _ => Piece::EMPTY,
        }
    }

    /// The item found, if it begins with the same bytes as the key.
    pub(in crate::table) fn item(&self) -> Option<&'a [u8]> {
        let (_, at, _) = self.leaf().find(&self.lead.to_be_bytes());
        self.leaf().iter_at(at).next().filter(|item| lead_of(item) == self.lead)
    }
}
