//! Injects faults into the laboratory's network: small MTUs, NAT, loss, delay and reordering.

pub mod mtu;
pub mod nat;
pub mod relay;
