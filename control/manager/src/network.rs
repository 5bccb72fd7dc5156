//! The network controller.
//!
//! ```text
//! kind        the kinds of objects that it follows
//! local       the objects in the cache, their indexes, and the work items that a change causes
//! item        the work items
//! plan        the writes of a work item, one file per concern
//! write       writes, as values
//! settings    values of the flags
//! service_request  the Service that a GatewayServer requests
//! controller  connects them to the runtime, which has watches, requests, Events and Lease
//! ```

pub(crate) use condition::Verdict;
#[cfg(test)]
pub(crate) use controller::registrations;
pub(crate) use controller::{FIELD_MANAGER, NetworkController};
pub(crate) use kind::{ReachedService, SERVICE_ACCOUNT, TENANT_ROLE};
pub(crate) use local::{ADDRESS_TYPES, MIRROR_POD, id_of, is_bound, is_real, keep};
pub(crate) use plan::State;
#[cfg(test)]
pub(crate) use plan::tests::settings;
pub(crate) use settings::Settings;
pub(crate) use write::{covers, removals};

mod condition;
mod controller;
mod item;
mod kind;
mod local;
mod plan;
mod service_request;
mod settings;
mod write;
