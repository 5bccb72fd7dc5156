//! Addresses of remote pods that are not reflected, because networking with the provider is off and they are in use here.

use super::plan::Workload;
use control_runtime::{Key, Plan};
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
        let address = remote.status.as_ref().and_then(|it| it.pod_ip.as_deref());
        let address = address.and_then(|it| it.parse().ok());
        let Some((address, cidr)) =
            address.and_then(|it: IpAddr| Some((it, settings.reserving(it)?)))
        else {
            return self.forget(workload.key);
        };
        if self.0.insert(workload.key.clone(), address) == Some(address) {
            return;
        }
        let note = format!(
            "the pod has the address {address} at the provider, which is in {cidr} of this cluster or of another peer, so \
             podIP is empty: connect the networks, or use disjoint pod networks"
        );
        plan.events.push(workload.warning(NOT_REFLECTED, note));
    }
}
