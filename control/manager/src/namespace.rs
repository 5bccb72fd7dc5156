//! The namespace controller: namespaces of this cluster that are offloaded, and those of consumers.
//!
//! ```text
//! consumer                                            provider
//! offloading  NamespaceOffloading: label, status
//! mapping     NamespaceOffloading, VirtualNodes       remote   NamespaceMap -> namespaces with their
//!               -> entries of NamespaceMaps   ------>            bindings, status of the NamespaceMap
//! ```
//!
//! The replication controller copies a NamespaceMap to the provider, and its status back. `selector` evaluates which
//! virtual nodes a namespace selects, and `phase` computes conditions and the phase.

pub(crate) use binding::MANAGER_ROLE;
pub(crate) use controller::NamespaceController;
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use settings::Settings;

mod binding;
mod controller;
mod item;
mod mapping;
mod name;
mod objects;
mod offloading;
mod phase;
mod policy;
mod quota;
mod registrations;
mod remote;
mod selector;
mod settings;
mod withdrawal;

#[cfg(test)]
mod tests;
