//! Observability and process control that all programs of this project share.
//!
//! The crate contains logs, metrics and health over HTTP, instance names, a read-only status
//! socket, a watch on a configuration file, and stop signals.

#![forbid(unsafe_code)]

pub mod http;
pub mod instance;
pub mod logging;
pub mod status;
pub mod stop;
pub mod watch;
