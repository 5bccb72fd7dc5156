//! What goes wrong on networks, at will.

pub mod mtu;
pub mod nat;
pub mod relay;
