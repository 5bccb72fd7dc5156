//! The network controller.
//!
//! ```text
//! kind        the kinds of objects that it follows
//! world       the objects, and the work items that a change causes
//! item        the work items
//! plan        the writes of a work item, one file per concern
//! write       writes, as values
//! controller  connects them to the runtime, which has watches, requests, Events and Lease
//! ```

pub(crate) use controller::NetworkController;
pub(crate) use plan::{Planner, Settings};

mod condition;
mod controller;
mod item;
mod kind;
mod plan;
mod world;
mod write;
