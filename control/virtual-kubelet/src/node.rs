//! The Node of a VirtualNode, with its Lease.

pub(crate) use controller::{NodeController, WorkItem};

mod condition;
mod controller;
mod lease;
mod object;

#[cfg(test)]
mod tests;
