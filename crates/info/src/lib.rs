//! What a node reports about itself, and the text of `INFO`.
//!
//! Plain data: the node fills it in, when it is asked. Nothing here knows a node.
//!
//! Reading order: [`facts`] and [`usage`] (what `INFO` is written from), [`render`] (its sections), [`health`] (`GET /health`),
//! [`figures`] (`CLUSTER REPORT`), [`metrics`] (Prometheus).

pub mod facts;
pub mod figures;
pub mod health;
pub mod metrics;
mod sections;
pub mod usage;

pub use health::{FollowerHealth, Health, KeyspaceHealth};
pub use sections::render;
pub use usage::{Rate, Usage};

/// The version of Quorate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
