//! Where gateways and route agents have the desired state from: a file, or the API server of
//! their cluster.
//!
//! ```text
//! file --load-----------------------------------------------------> Fabric
//! API server --control_runtime--> Cache --changes--> Resolver --^
//! ```

#![forbid(unsafe_code)]

pub use arguments::Arguments;
pub use registrations::Keys;
pub use source::{Error, Origin, Reading, Source};
pub use watch::{Error as WatchError, Installation, Scope, Watch};

pub mod file;

mod arguments;
mod blocks;
mod followed;
mod prune;
mod registrations;
mod source;
mod watch;
