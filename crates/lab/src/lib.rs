//! The lab: what measures Quorate and any other server that speaks the Redis protocol.

pub mod load;
pub mod network;
