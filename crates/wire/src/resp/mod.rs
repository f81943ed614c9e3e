//! The Redis serialization protocol, versions 2 and 3.

pub mod arguments;
pub mod client;
mod inline;
pub mod reply;
pub mod request;

pub use arguments::{Arguments, ArgumentsBuffer};
pub use reply::{Protocol, element_end, write_reply};
pub use request::{Limits, Progress, ProtocolError, RequestParser};
