//! The part of this cluster in the status of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Values of this cluster that the status of a pod depends on.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The pod of this cluster.
    pub(crate) pod: &'a Pod,
    /// Maps the remote pod's address to the address that it has in this cluster; none if it has none, or must not be
    /// reflected.
    pub(crate) map_ip: &'a dyn Fn(IpAddr) -> Option<IpAddr>,
    /// Address of the virtual kubelet's pod.
    pub(crate) host_ip: Option<IpAddr>,
    /// Whether the Node is not ready, so that the remote status may be outdated.
    pub(crate) is_unavailable: bool,
    /// Generation of the remote pod; `None` if changes of the pod have not arrived at the provider yet.
    pub(crate) generation: Option<i64>,
    /// Restarts to add to those of each container, see [`Restarts`](super::Restarts).
    pub(crate) restarts: i32,
    /// Types of the conditions that the provider has reported, of any remote pod of this one. Such a condition ends when the provider
    /// no longer reports it, for instance after another remote pod has replaced one that was disrupted.
    pub(crate) reported: &'a BTreeSet<String>,
    /// Time of transitions that the status reports.
    pub(crate) now: Timestamp,
}
