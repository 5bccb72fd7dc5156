//! API group `ipam.liqo.io`.

pub use ip::{IP, IPSpec, IPStatus};
pub use network::{Network, NetworkSpec, NetworkStatus};

pub mod ip;
pub mod network;
