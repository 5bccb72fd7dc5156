//! Where gateways and route agents have the desired state from: a file, or the API server of
//! their cluster.
//!
//! ```text
//! file --load-----------------------------------------------------> Fabric
//! API server --watch--> Store --objects--> Tenancy::prune --> control_fabric::admit --^
//! ```

#![forbid(unsafe_code)]

pub use arguments::Arguments;
pub use blocks::Blocks;
pub use source::{Error, Origin, Reading, Source};
pub use store::{Id, Item, Keys, Store, Update};
pub use watch::{Error as WatchError, Installation, Scope, Watch};

pub mod file;

mod arguments;
mod blocks;
mod pauses;
mod select;
mod source;
mod store;
mod trim;
mod watch;
