//! The parts that every process of this project shares, independent of its work:
//! logs, metrics and health over HTTP, an instance name, a read-only status
//! socket, a watch on the configuration file and the stop signals.

#![forbid(unsafe_code)]

pub mod http;
pub mod instance;
pub mod logging;
pub mod status;
pub mod stop;
pub mod watch;
