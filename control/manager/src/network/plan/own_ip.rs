//! The IPs that the manager itself creates: their address follows that of another object.

use super::metadata::{is_ours, network_labels, repaired};
use super::{Plan, Planner, label};
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use control_api::{annotations, labels};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// An IP that the manager creates.
pub(super) struct OwnIp<'a> {
    pub(super) key: Key,
    /// Value of [`labels::IP_TYPE`].
    pub(super) type_: &'a str,
    /// Whether the IP has the annotation of upstream's preinstalled IPs.
    pub(super) is_preinstalled: bool,
    /// The desired address.
    pub(super) address: Option<Ipv4Addr>,
    /// The object with this address, which gets the Events: those of the IP report whether it has an address.
    pub(super) source: (Kind, Key),
    /// Whether that object is gone, so that the IP is deleted.
    pub(super) is_gone: bool,
}

impl OwnIp<'_> {
    /// Creates the IP, creates it again when the address changes, and deletes it when its object is gone.
    pub(super) fn plan(&self, planner: &Planner<'_>, plan: &mut Plan) {
        let ip = planner.local.ips.get(&self.key);
        let installation = planner.settings.installation.as_ref();
        let installation = installation.map(|owner| owner.uid.as_str());
        let is_ours = ip.is_some_and(|ip| {
            label(&ip.metadata, labels::IP_TYPE) == Some(self.type_)
                || is_ours(&ip.metadata, installation)
        });
        let address = self.address.map(|address| address.to_string());
        let is_right = ip.is_some_and(|ip| Some(&ip.spec.ip) == address.as_ref());
        match (ip, &address) {
            (None, Some(address)) => plan.writes.push(self.create(planner, address)),
            (Some(_), Some(_)) if !is_right && !is_ours => {
                let note = format!("its IP {} has another address: delete that IP", self.key);
                let (kind, source) = &self.source;
                plan.warn(*kind, source, "NameTaken", note);
            }
            // The address is immutable, so the IP is created again after its deletion.
            (Some(ip), Some(_)) if !is_right && !is_terminating(&ip.metadata) => {
                plan.writes.push(self.delete(ip.metadata.uid.clone()));
            }
            (Some(ip), Some(_)) if is_ours && !is_terminating(&ip.metadata) => {
                let patch = repaired(&ip.metadata, &self.metadata(planner));
                let patch =
                    patch.map(|patch| Write::new(Kind::Ip, &self.key, Action::Merge(patch)));
                plan.writes.extend(patch);
            }
            (Some(ip), None) if is_ours && self.is_gone && !is_terminating(&ip.metadata) => {
                plan.writes.push(self.delete(ip.metadata.uid.clone()));
            }
            _ => {}
        }
    }

    fn create(&self, planner: &Planner<'_>, address: &str) -> Write {
        let mut ip = json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "IP",
            "metadata": self.metadata(planner),
            "spec": {"ip": address},
        });

        if self.is_preinstalled {
            ip["metadata"]["annotations"] = json!({annotations::PREINSTALLED: "true"});
        }
        if let (Some(network), Some(labels)) = (
            &planner.local.cluster().external,
            ip["metadata"]["labels"].as_object_mut(),
        ) {
            labels.extend(network_labels(network));
        }

        Write::new(Kind::Ip, &self.key, Action::Create(ip))
    }

    fn metadata(&self, planner: &Planner<'_>) -> Value {
        json!({
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": {
                labels::MANAGED: "true",
                labels::IP_TYPE: self.type_,
            },
            "ownerReferences": Vec::from_iter(&planner.settings.installation),
        })
    }

    fn delete(&self, uid: Option<String>) -> Write {
        Write::new(Kind::Ip, &self.key, Action::Delete(uid))
    }
}
