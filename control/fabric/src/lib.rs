//! The desired state of one cluster's fabric, as gateways and route agents read it.
//!
//! ```text
//! text --parse--> Objects --plan--> Objects with status --Fabric::try_from--> Fabric
//! ```
//!
//! Objects of an API server pass [`Tenancy::prune`] and [`admit()`] first, which leave out those that do
//! not count where they are, and those that cannot be served yet.
//!
//! All steps are pure. An error names document, object, field and cure, and comes with all others.

#![forbid(unsafe_code)]

pub use admit::{Admission, Steady, Waiting, admit};
pub use cidr::{CidrError, address, cidr, is_cluster_id, is_host, overlaps};
pub use error::{Error, Errors, Place, Position, Problem};
pub use objects::{Object, Objects, OtherKind};
pub use parse::parse;
pub use plan::plan;
pub use spec::MTU_RANGE;
pub use tenancy::Tenancy;
pub use view::{Fabric, MappedIp, Node, Peer, Replica, Role, Target};

/// Most gateway replicas of a cluster: as many as the overlay's probe has addresses for.
pub const REPLICAS_MAX: usize = 254;

/// Most peers of a cluster: as many as an answer to the overlay's probe can tell of.
pub const PEERS_MAX: usize = 1024;

use cidr::overlap;

pub mod addresses;

mod admit;
mod check;
mod cidr;
mod decode;
mod error;
mod objects;
mod parse;
mod plan;
mod spec;
mod tenancy;
mod view;

#[cfg(test)]
mod fixture;
