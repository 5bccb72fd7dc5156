//! The offloading controller: what a consumer may use at a provider, on both sides.
//!
//! ```text
//! provider                                   consumer
//! quota        ResourceSlice -> Quota
//!                                            virtual_node   ResourceSlice, Identity -> VirtualNode
//!                                            status         defaults and status of a VirtualNode
//!                                            virtual_kubelet  VirtualNode -> Deployment, and its rights
//! ```
//!
//! `bounds` limits what the status of a ResourceSlice may contain, because the other cluster may be hostile, `write`
//! compares objects with their desired state, `observe` finds the work items that a change concerns, and `controller`
//! connects them to the runtime.

pub(crate) use bounds::{check_label, is_name, label_key};
pub(crate) use controller::{OffloadingController, Settings};
#[cfg(test)]
pub(crate) use registrations::registrations;
pub(crate) use virtual_kubelet::Kubelets;

mod bounds;
mod controller;
mod item;
mod objects;
mod observe;
mod quota;
mod registrations;
mod status;
mod virtual_kubelet;
mod virtual_node;
mod write;

#[cfg(test)]
mod tests;
