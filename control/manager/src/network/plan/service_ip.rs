//! The IPs of Services of this cluster: peers reach the ClusterIP of the Service at the address of the IP.

use super::own_ip::OwnIp;
use super::{Plan, Planner};
use crate::network::item::WorkItem;
use crate::network::kind::{Key, ReachedService};
use crate::network::local::is_terminating;
use k8s_openapi::api::core::v1::Service;
use std::net::Ipv4Addr;

/// Returns whether an IP is that of a Service that exists.
pub(super) fn has_ip(planner: &Planner<'_>, ip: &Key) -> bool {
    let mut all = ReachedService::ALL.into_iter();
    all.any(|reached| *ip == ip_key(planner, reached) && service(planner, reached).is_some())
}

/// Creates the IP of a Service, recreates it when the ClusterIP changes, and deletes it with the Service.
///
/// The ClusterIP is in the Service CIDR, which IPs of users may name only without a Service template.
pub(super) fn plan(planner: &mut Planner<'_>, reached: ReachedService) -> Plan {
    let mut plan = Plan::default();
    let key = ip_key(planner, reached);
    let service = service(planner, reached);
    let is_gone = service.is_none();
    let address = service.and_then(cluster_ip);
    let has_ip = planner.local.ips.get(&key).is_some();
    if is_gone && !has_ip {
        // The IP may have been deleted before the Service.
        let waiting = planner.allocation.release_address(&key);
        plan.again = waiting.into_iter().map(WorkItem::Ip).collect();
    }
    let source = (reached.kind(), service_key(planner, reached));
    if !is_gone && address.is_none() {
        let note = format!("it has no IPv4 ClusterIP: {}", reached.consequence());
        plan.warn(source.0, &source.1, "NoAddress", note);
    }
    let own_ip = OwnIp {
        key,
        type_: reached.ip(),
        is_preinstalled: true,
        address,
        source,
        is_gone,
    };
    own_ip.plan(planner, &mut plan);

    plan
}

/// Returns a Service that peers are to reach.
fn service<'a>(planner: &Planner<'a>, reached: ReachedService) -> Option<&'a Service> {
    if reached == ReachedService::ApiServer && !planner.settings.exposes_api_server {
        return None;
    }
    let service = planner.local.services.get(&service_key(planner, reached));
    service.filter(|service| !is_terminating(&service.metadata))
}

/// Returns the ClusterIP; `None` for a headless Service.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = service.spec.as_ref()?;
    let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    all.into_iter().find_map(|address| address.parse().ok())
}

fn service_key(planner: &Planner<'_>, reached: ReachedService) -> Key {
    reached.key(&planner.settings.namespace)
}

fn ip_key(planner: &Planner<'_>, reached: ReachedService) -> Key {
    Key::new(planner.settings.namespace.clone(), reached.ip())
}
