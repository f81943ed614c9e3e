//! What a stream consists of, and how it is read. A stream is a collection ([`super::collections`]) whose items are of
//! several kinds.
//!
//! Reading order: [`items`], [`view`], [`checking`].

pub(super) mod checking;
pub(super) mod items;
pub(super) mod view;
