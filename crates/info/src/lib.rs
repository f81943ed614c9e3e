//! What a node reports about itself, and the text of `INFO`.
//!
//! Plain data: the node fills it in, when it is asked. Nothing here knows a node.
//!
//! Reading order: [`report`] (what others get: `CLUSTER REPORT`, `GET /health`), [`facts`] (the report, and
//! what only the node's own texts show) with [`usage`], [`render`] (`INFO`), [`metrics`] (Prometheus).

pub mod facts;
pub mod metrics;
pub mod report;
mod sections;
pub mod usage;

pub use report::{FollowerHealth, Health, KeyspaceHealth, Report};
pub use sections::render;
pub use usage::{Rate, Usage};

/// The version of Quorate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
