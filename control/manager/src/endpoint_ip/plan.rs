//! Compares the IP object of an address with its desired state.

use super::objects::Local;
use crate::authentication::{label, warn};
use control_api::{IP, labels};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use serde_json::json;
use std::net::Ipv4Addr;

/// Value of [`labels::IP_TYPE`] on the IP objects of this controller.
const TYPE: &str = "endpoint";

/// Most IP objects of this controller in a namespace, besides those of pods: as many as an EndpointSlice has endpoints. The
/// smallest external CIDR that a cluster has by default has 65,536 addresses.
const IPS_MAX: usize = 1000;

/// Most IP objects of this controller in a namespace.
const ALL_MAX: usize = 8192;

/// Plans the IP object of an address of a namespace.
pub(super) fn plan<I>(local: &Local<'_>, namespace: &str, address: Ipv4Addr) -> Plan<I> {
    let mut plan = Plan::default();
    let key = Key::new(namespace, name(address));
    let present = local.ips.get(&key);
    let own = present.filter(|it| is_own(it));
    let needed = local.object_with(namespace, address);
    let refusal = local.check(namespace, address).err();
    let Some(object) = needed.clone().filter(|_| refusal.is_none()) else {
        if let (Some(object), Some(refusal)) = (needed, refusal) {
            let note = format!(
                "{address} gets no IP object, so no other cluster reaches it: {refusal}. Remove it, or have an administrator \
                 label the namespace {}=true",
                labels::ALLOW_INTERNAL_ADDRESSES
            );
            warn(&mut plan, object, ("AddressRefused", note));
        }
        if let Some(ip) = own.filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let uid = ip.metadata.uid.clone().unwrap_or_default();
            plan.delete(Ref::of::<IP>(&Cluster::Local, &key), uid);
        }
        return plan;
    };
    // One of a user has the address, or the name.
    if present.is_some() || is_translated(local, namespace, address) {
        return plan;
    }
    if is_full(local, namespace, address) {
        let note = format!(
            "{address} gets no IP object: the namespace has {IPS_MAX} of them, or {ALL_MAX} with those of pods. Create an IP object, or \
             remove endpoints or pods"
        );
        warn(&mut plan, object, ("TooManyAddresses", note));
        // The end of an IP object of another address makes room.
        plan.is_incomplete = true;
        return plan;
    }
    let object = json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "IP",
        "metadata": {
            "name": key.name,
            "namespace": namespace,
            "labels": {labels::MANAGED: "true", labels::IP_TYPE: TYPE},
        },
        "spec": {"ip": address},
    });
    let write = Write::new(Ref::of::<IP>(&Cluster::Local, &key), Action::Create(object));
    plan.writes.push(write);

    plan
}

/// Returns whether a namespace has no room for the IP object of an address.
fn is_full(local: &Local<'_>, namespace: &str, address: Ipv4Addr) -> bool {
    let is_of_pod = |it: Ipv4Addr| local.pod_with(namespace, it).is_some();
    let own = || {
        let ips = local.ips.within(namespace);
        ips.filter(|(_, ip)| is_own(ip))
    };
    let count = own().count();
    if count < IPS_MAX || is_of_pod(address) {
        return count >= ALL_MAX;
    }
    let of_pods = own().filter(|(_, ip)| ip.spec.ip.parse().is_ok_and(is_of_pod));

    count >= ALL_MAX || count - of_pods.count() >= IPS_MAX
}

/// Returns the name of the IP object of an address.
fn name(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("endpoint-{a}-{b}-{c}-{d}")
}

/// Returns whether this controller has created an IP object.
pub(super) fn is_own(ip: &IP) -> bool {
    label(&ip.metadata, labels::IP_TYPE) == Some(TYPE)
        && label(&ip.metadata, labels::MANAGED) == Some("true")
}

/// Returns whether a namespace has an IP object for an address.
fn is_translated(local: &Local<'_>, namespace: &str, address: Ipv4Addr) -> bool {
    let text = address.to_string();
    let mut ips = local.ips.indexed(super::objects::IP_BY_ADDRESS, &text);
    ips.any(|(key, _)| key.namespace == namespace)
}
