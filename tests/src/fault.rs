//! Injects network faults.

pub mod mtu;
pub mod nat;
pub mod relay;
