//! The network controller.
//!
//! ```text
//! kind        the kinds of objects that it follows
//! local       the objects in the cache, their indexes, and the work items that a change causes
//! item        the work items
//! plan        the writes of a work item, one file per concern
//! write       writes, as values
//! controller  connects them to the runtime, which has watches, requests, Events and Lease
//! ```

pub(crate) use controller::NetworkController;
pub(crate) use plan::{Settings, State};

mod condition;
mod controller;
mod item;
mod kind;
mod local;
mod plan;

mod write;
