//! The flags, and the process that they describe.

mod flags;
mod process;
mod reflection;
mod server;

pub(crate) use flags::Cli;
