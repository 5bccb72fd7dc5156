//! The desired state of one cluster's fabric, as gateways and route agents read it.
//!
//! ```text
//! text --parse--> Objects --plan--> Objects with status --Fabric::try_from--> Fabric
//! ```
//!
//! Objects of an API server pass [`Tenancy::prune`] and [`LastGood::resolve`] first, which remove the objects in
//! wrong namespaces, and those that are incomplete or invalid. [`Resolver`] does the same incrementally: a change
//! of an object costs as much as the objects that depend on it.
//!
//! All steps are pure. Errors name document, object, field and remedy, and are reported together.

#![forbid(unsafe_code)]

pub use cidr::{
    CIDRS_MAX, CidrError, RemoteCidrError, RemoteCidrs, address, cidr, is_cluster_id, is_host,
    is_routable, overlaps, probe_network, remote_cidrs,
};
pub use error::{Error, Errors, Place, Position, Problem};
pub use network::AllocationRules;
pub use objects::{Object, Objects, OtherKind};
pub use parse::parse;
pub use plan::plan;
pub use resolve::{LastGood, Resolution, Waiting, resolve};
pub use resolver::{Blocks, Changes, ObjectKey, Resolver};
pub use spec::MTU_RANGE;
pub use tenancy::Tenancy;
pub use view::{
    Difference, Fabric, FabricChange, Keyed, List, MappedIp, Node, Peer, Replica, Role, Target,
};

/// Maximum number of gateway replicas of a cluster: the number of addresses of the overlay probe.
pub const REPLICAS_MAX: usize = 254;

/// Maximum number of peers of a cluster: the number of bits in a reply to the overlay probe.
pub const PEERS_MAX: usize = 1024;

use cidr::overlap;

pub mod addresses;

#[cfg(any(test, feature = "generate"))]
pub mod generate;

mod check;
mod cidr;
mod decode;
mod error;
mod network;
mod objects;
mod parse;
mod plan;
mod resolve;
mod resolver;
mod spec;
mod tenancy;
mod view;

#[cfg(test)]
mod fixture;
