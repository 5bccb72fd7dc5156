//! The flags, and the process that they describe.

mod flags;
mod process;

pub(crate) use flags::Cli;
