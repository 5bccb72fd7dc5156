//! Addresses of remote pods that are not reflected, because they are in use here while networking with the provider is off, or
//! because no pod network has them.

use super::plan::Workload;
use crate::settings::{reserving, special};
use control_runtime::{Key, Plan};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Reason of the Event about such a pod.
const NOT_REFLECTED: &str = "PodIPNotReflected";

/// The addresses of which an Event was published, by the pods.
#[derive(Debug, Default)]
pub(super) struct Addresses(BTreeMap<Key, IpAddr>);

impl Addresses {
    /// Forgets a pod that is gone.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.0.remove(pod);
    }

    /// Plans one Event for a pod whose address is not reflected.
    pub(super) fn plan(&mut self, workload: &Workload<'_>, plan: &mut Plan<Key>) {
        let settings = workload.settings;
        let Some((_, remote)) = workload.running().filter(|_| settings.reflects_ips) else {
            return;
        };
        let reserved = workload.reserved();
        let address = remote.status.as_ref().and_then(|it| it.pod_ip.as_deref());
        let address = address.and_then(|it| it.parse().ok());
        let Some((address, cause)) =
            address.and_then(|it: IpAddr| Some((it, cause(it, &reserved)?)))
        else {
            return self.forget(workload.key);
        };
        if self.0.insert(workload.key.clone(), address) == Some(address) {
            return;
        }
        let note = format!("the pod has the address {address} at the provider, which {cause}");
        plan.events.push(workload.warning(NOT_REFLECTED, note));
    }
}

/// Returns why an address is not reflected, and the remedy; `None` if it is, or if the networks of the provider are not known yet.
fn cause(address: IpAddr, reserved: &[Ipv4Net]) -> Option<String> {
    if let Some(cidr) = reserving(address, reserved) {
        return Some(format!(
            "is in {cidr} of this cluster or of another peer, so podIP is empty: connect the networks, or use disjoint pod networks"
        ));
    }
    let kind = match address {
        IpAddr::V6(_) => "an IPv6 address, which is not reflected",
        IpAddr::V4(_) => special(address)?,
    };

    Some(format!(
        "is {kind}, so podIP is empty: the provider needs an IPv4 pod network"
    ))
}
