//! What every process of this project has around its work.
//!
//! Logs, metrics and health over HTTP, a name on its machine, a read-only status
//! socket, a watched configuration file and a graceful stop. Nothing here knows what the process
//! does.

#![forbid(unsafe_code)]

pub mod http;
pub mod instance;
pub mod logging;
pub mod status;
pub mod stop;
pub mod watch;
