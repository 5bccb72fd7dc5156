//! The desired state of one cluster's fabric, as gateways and route agents read it.

pub use view::{Fabric, MappedIp, Node, Peer, Replica, Role, Target};

mod view;
