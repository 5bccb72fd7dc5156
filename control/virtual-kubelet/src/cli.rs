//! The flags, and the process that they describe.

mod flags;
mod process;
mod reflection;

pub(crate) use flags::Cli;
