//! The IP of a peer's unknown sources: the source address of packets whose source has no remapped address.

use super::Side;
use super::networks::delete;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::plan::metadata::{is_ours, repaired};
use crate::network::plan::{Planner, label, owner};
use crate::network::write::{Action, Write};
use control_api::{Configuration, IP, labels};
use ipnet::Ipv4Net;
use serde_json::json;

/// Suffix of the name of the IP of a peer's unknown sources, after the name of the Configuration.
const UNKNOWN_SOURCE: &str = "unknown-source";

/// Creates the IP of the peer's unknown sources.
pub(super) fn unknown_source(
    planner: &Planner<'_>,
    key: &Key,
    configuration: &Configuration,
    sides: &[Side; 2],
) -> Option<Write> {
    let [_, external] = sides;
    let first = external
        .remapped
        .as_ref()?
        .first()?
        .parse::<Ipv4Net>()
        .ok()?;
    let address = first.network().to_string();
    let name = format!("{}-{UNKNOWN_SOURCE}", key.name);
    let ip_key = Key::new(key.namespace.clone(), name);
    let uid = configuration.metadata.uid.as_deref();
    let is_own = |ip: &IP| is_ours(&ip.metadata, uid) && !is_terminating(&ip.metadata);
    let metadata = json!({
        "name": ip_key.name,
        "namespace": ip_key.namespace,
        "labels": {
            labels::REMOTE_CLUSTER_ID: label(&configuration.metadata, labels::REMOTE_CLUSTER_ID),
            labels::MANAGED: "true",
        },
        "ownerReferences": [owner(configuration)],
    });
    match planner.local.ips.get(&ip_key) {
        None => {
            let ip = json!({
                "apiVersion": "ipam.liqo.io/v1alpha1",
                "kind": "IP",
                "metadata": metadata,
                "spec": {"ip": address},
            });
            Some(Write::new(Kind::Ip, &ip_key, Action::Create(ip)))
        }
        // The address is immutable, so the IP is created again after its deletion.
        Some(ip) if ip.spec.ip != address && is_own(ip) => {
            Some(delete(Kind::Ip, &ip_key, ip.metadata.uid.clone()))
        }
        Some(ip) if is_own(ip) => {
            let patch = repaired(&ip.metadata, &metadata)?;
            Some(Write::new(Kind::Ip, &ip_key, Action::Merge(patch)))
        }
        Some(_) => None,
    }
}
