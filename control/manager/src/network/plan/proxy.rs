//! The IP of the proxy in front of the API server: peers reach the ClusterIP of its Service at the address of the IP.

use super::own_ip::OwnIp;
use super::{Plan, Planner};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind, PROXY_IP, PROXY_SERVICE};
use crate::network::local::is_terminating;
use control_api::labels;
use k8s_openapi::api::core::v1::Service;
use std::net::Ipv4Addr;

/// Returns whether an IP is that of the proxy.
pub(super) fn has_ip(planner: &Planner<'_>, ip: &Key) -> bool {
    *ip == ip_key(planner) && service(planner).is_some()
}

/// Creates the IP of the proxy, recreates it when the ClusterIP changes, and deletes it with the Service.
///
/// The ClusterIP is in the Service CIDR, which IPs of users may name only without a Service template.
pub(super) fn plan(planner: &mut Planner<'_>) -> Plan {
    let mut plan = Plan::default();
    let key = ip_key(planner);
    let service = service(planner);
    let is_gone = service.is_none();
    let address = service.and_then(cluster_ip);
    let has_ip = planner.local.ips.get(&key).is_some();
    if is_gone && !has_ip {
        // The IP may have been deleted before the Service.
        let waiting = planner.allocation.release_address(&key);
        plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
    }
    if !is_gone && address.is_none() {
        let note = "it has no IPv4 ClusterIP: peers cannot reach the API server in-band";
        let service = service_key(planner);
        plan.warn(Kind::ProxyService, &service, "NoAddress", note);
    }
    let own_ip = OwnIp {
        key,
        type_: labels::IP_TYPE_API_SERVER_PROXY,
        is_preinstalled: true,
        address,
        source: (Kind::ProxyService, service_key(planner)),
        is_gone,
    };
    own_ip.plan(planner, &mut plan);

    plan
}

fn service<'a>(planner: &Planner<'a>) -> Option<&'a Service> {
    let service = planner.local.services.get(&service_key(planner));
    service.filter(|service| !is_terminating(&service.metadata))
}

/// Returns the ClusterIP; `None` for a headless Service.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = service.spec.as_ref()?;
    let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    all.into_iter().find_map(|address| address.parse().ok())
}

fn service_key(planner: &Planner<'_>) -> Key {
    Key::new(planner.settings.namespace.clone(), PROXY_SERVICE)
}

fn ip_key(planner: &Planner<'_>) -> Key {
    Key::new(planner.settings.namespace.clone(), PROXY_IP)
}
