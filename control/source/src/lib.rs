//! The source of the desired state of gateways and route agents: a file, or the API server of their
//! cluster.
//!
//! ```text
//! file --load-----------------------------------------------------> Fabric
//! API server --control_runtime--> Cache --changes--> Resolver --^
//! ```

#![forbid(unsafe_code)]

pub use arguments::Arguments;
pub use installation::Installation;
pub use metrics::Metrics;
pub use registrations::{Keys, Scope, registrations};
pub use source::{Error, Origin, Reading, Source};
pub use watch::{Error as WatchError, Watch};

pub mod file;

mod arguments;
mod blocks;
mod followed;
mod installation;
mod metrics;
mod prune;
mod registrations;
mod source;
mod watch;
