//! Service -> Service of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

/// Annotation of a Service whose node ports are reflected. Value: `true`.
const FORCE_NODE_PORT: &str = "liqo.io/force-remote-node-port";

/// Namespace and name of the Service of the API server.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Type of Services that a load balancer serves.
const LOAD_BALANCER: &str = "LoadBalancer";

/// Address of a headless Service.
const HEADLESS: &str = "None";

/// Returns whether a Service is that of the API server, which each cluster has.
pub(super) fn is_api_server(namespace: &str, name: &str) -> bool {
    (namespace, name) == API_SERVER
}

/// Returns whether a Service has no ClusterIP.
pub(super) fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|it| it.cluster_ip.as_deref()) == Some(HEADLESS)
}

/// Returns the reflected Service. `load_balancer_class` is the class of the provider's load balancers, if the VirtualNode
/// offers one.
pub(crate) fn remote(
    local: &Service,
    peering: &Peering,
    load_balancer_class: Option<&str>,
) -> Service {
    let mut spec = content(local);
    spec.load_balancer_class = class(spec.type_.as_deref(), load_balancer_class);
    Service {
        metadata: reflected(&local.metadata, peering),
        spec: Some(spec),
        status: None,
    }
}

/// Returns the load balancer class of a reflected Service of a type.
pub(super) fn class(type_: Option<&str>, load_balancer_class: Option<&str>) -> Option<String> {
    let class = load_balancer_class.filter(|_| type_ == Some(LOAD_BALANCER));
    class.map(str::to_owned)
}

/// Returns the fields that a Service and the reflected one have in common. The others belong to one cluster.
pub(super) fn content(service: &Service) -> ServiceSpec {
    let has_node_ports = has_node_ports(service);
    let spec = service.spec.clone().unwrap_or_default();
    let type_ = spec.type_.as_deref();
    // The API server refuses it with other types, which have it because of addresses that are not reflected.
    let is_external = type_ == Some(LOAD_BALANCER) || type_ == Some("NodePort");
    let port = |port: ServicePort| ServicePort {
        node_port: port.node_port.filter(|_| has_node_ports),
        ..port
    };
    ServiceSpec {
        allocate_load_balancer_node_ports: spec.allocate_load_balancer_node_ports,
        cluster_ip: spec.cluster_ip.filter(|it| it == HEADLESS),
        external_name: spec.external_name,
        external_traffic_policy: spec.external_traffic_policy.filter(|_| is_external),
        internal_traffic_policy: spec.internal_traffic_policy,
        ip_family_policy: spec.ip_family_policy,
        load_balancer_source_ranges: spec.load_balancer_source_ranges,
        ports: spec.ports.map(|it| it.into_iter().map(port).collect()),
        publish_not_ready_addresses: spec.publish_not_ready_addresses,
        selector: spec.selector,
        session_affinity: spec.session_affinity,
        type_: spec.type_,
        ..ServiceSpec::default()
    }
}

fn has_node_ports(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let value = annotations.and_then(|it| it.get(FORCE_NODE_PORT));
    value.is_some_and(|it| it.eq_ignore_ascii_case("true"))
}
