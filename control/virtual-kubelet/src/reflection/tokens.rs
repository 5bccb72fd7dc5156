//! Tokens of the ServiceAccounts of offloaded pods, in Secrets of the provider.
//!
//! They belong to one virtual node, so its virtual kubelet writes them, while another one may reflect the other objects.

pub(crate) mod awaited;
pub(crate) mod controller;
pub(crate) mod settings;

mod issued;
mod item;
mod plan;
mod registrations;
