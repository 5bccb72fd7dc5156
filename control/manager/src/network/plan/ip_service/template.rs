//! The allowed fields and addresses of an IP with `serviceTemplate`.
//!
//! The manager creates Services and EndpointSlices for users who may create IPs, but may lack rights to Services.
//! Therefore a template can only give a cluster-internal name to an address outside of the cluster. An address
//! inside would bypass NetworkPolicies (CVE-2021-25740), and external IPs would intercept the traffic of other
//! clients (CVE-2020-8554). The chart's ValidatingAdmissionPolicy `liqo-ip-services` refuses the same fields.

use crate::network::kind::Key;
use crate::network::plan::{Planner, label};
use control_api::ipam::ip::ServiceTemplate;
use control_api::{IP, labels};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use std::net::Ipv4Addr;

/// Allowed fields of a template's spec and of each of its ports. `targetPort` has no effect, like upstream's.
const SPEC_FIELDS: [&str; 2] = ["ports", "type"];
const PORT_FIELDS: [&str; 5] = ["name", "protocol", "port", "targetPort", "appProtocol"];

/// Allowed fields of a template's metadata. Annotations are not among them, because they control load balancers,
/// DNS, meshes and monitoring.
const METADATA_FIELDS: [&str; 1] = ["labels"];

/// The subdomain of a reserved domain whose labels are only descriptive.
const DESCRIPTIVE_DOMAIN: &str = "app.kubernetes.io";

/// Reason why an IP gets no Service, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::network::plan) enum Refusal {
    #[error(
        "spec.serviceTemplate.{field} is not allowed: a template has spec.ports, spec.type ClusterIP and \
         metadata.labels; remove the field"
    )]
    Field { field: String },
    #[error("spec.serviceTemplate.spec.type is {0}: only ClusterIP is allowed")]
    Type(String),
    #[error(
        "spec.serviceTemplate.metadata.labels[{0}] is not allowed: labels of kubernetes.io, k8s.io and \
         liqo.io steer controllers; remove it, or use app.kubernetes.io"
    )]
    Label(String),
    #[error(
        "spec.ip {address} is {what} ({cidr}): remove spec.serviceTemplate, or have an administrator \
         label the namespace ipam.liqo.io/allow-internal-addresses=true"
    )]
    Internal {
        address: Ipv4Addr,
        what: &'static str,
        cidr: Ipv4Net,
    },
}

/// Checks template and address of an IP.
///
/// # Errors
///
/// Returns [`Refusal`] if a Service of this template, or for this address, is not allowed.
pub(in crate::network::plan) fn check(
    planner: &Planner<'_>,
    key: &Key,
    ip: &IP,
) -> Result<(), Refusal> {
    let Some(template) = &ip.spec.service_template else {
        return Ok(());
    };
    check_fields(template)?;
    let Ok(address) = control_fabric::address(&ip.spec.ip) else {
        return Ok(()); // Another check refuses an invalid address, with or without a template.
    };
    let namespace = planner.local.namespaces.get(&Key::cluster(&key.namespace));
    let is_allowed = namespace.is_some_and(|namespace| {
        label(&namespace.metadata, labels::ALLOW_INTERNAL_ADDRESSES) == Some("true")
    });
    match planner.local.internal(address).filter(|_| !is_allowed) {
        Some((cidr, what)) => Err(Refusal::Internal {
            address,
            what,
            cidr,
        }),
        None => Ok(()),
    }
}

/// Returns a field of a Service that no template may set. An earlier release copied it from the template.
pub(super) fn exposing_field(service: &Service) -> Option<&'static str> {
    let spec = service.spec.as_ref()?;
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let mut ports = spec.ports.iter().flatten();
    let fields = [
        ("spec.type", type_ != "ClusterIP"),
        (
            "spec.externalIPs",
            spec.external_ips.iter().flatten().next().is_some(),
        ),
        ("spec.externalName", spec.external_name.is_some()),
        ("spec.loadBalancerIP", spec.load_balancer_ip.is_some()),
        (
            "spec.ports.nodePort",
            ports.any(|port| port.node_port.is_some_and(|port| port != 0)),
        ),
    ];

    fields
        .into_iter()
        .find_map(|(field, is_set)| is_set.then_some(field))
}

fn check_fields(template: &ServiceTemplate) -> Result<(), Refusal> {
    let template = serde_json::to_value(template).unwrap_or_default();
    let (spec, metadata) = (&template["spec"], &template["metadata"]);
    only(&template, "", &["metadata", "spec"])?;
    only(spec, "spec.", &SPEC_FIELDS)?;
    for (number, port) in spec["ports"].as_array().into_iter().flatten().enumerate() {
        only(port, &format!("spec.ports[{number}]."), &PORT_FIELDS)?;
    }
    if let Some(type_) = spec["type"].as_str().filter(|type_| *type_ != "ClusterIP") {
        return Err(Refusal::Type(type_.to_owned()));
    }
    only(metadata, "metadata.", &METADATA_FIELDS)?;
    let mut keys = metadata["labels"].as_object().into_iter().flatten();
    match keys.find(|(key, _)| is_reserved(key)) {
        Some((key, _)) => Err(Refusal::Label(key.clone())),
        None => Ok(()),
    }
}

/// Checks that an object has no other fields than these.
fn only(object: &Value, path: &str, allowed: &[&str]) -> Result<(), Refusal> {
    let mut fields = object.as_object().into_iter().flatten();
    let other = fields.find(|(field, _)| !allowed.contains(&field.as_str()));
    match other {
        Some((field, _)) => Err(Refusal::Field {
            field: format!("{path}{field}"),
        }),
        None => Ok(()),
    }
}

fn is_reserved(label: &str) -> bool {
    labels::domain(label) != Some(DESCRIPTIVE_DOMAIN) && labels::is_reserved(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn refused(template: Value) -> String {
        let template: ServiceTemplate = from_value(template).unwrap();
        check_fields(&template).map_or_else(|refusal| refusal.to_string(), |()| String::new())
    }

    #[test]
    fn a_template_has_ports_the_type_cluster_ip_and_labels() {
        let all = json!({
            "metadata": {"labels": {"app": "printer", "app.kubernetes.io/name": "printer", "a.example/b": "c"}},
            "spec": {"type": "ClusterIP", "ports": [
                {"name": "a", "protocol": "TCP", "port": 80, "targetPort": 8080, "appProtocol": "http"},
            ]},
        });

        assert_eq!(refused(all), "");
        assert_eq!(refused(json!({})), "");
    }

    #[test]
    fn every_other_field_is_refused_by_name() {
        for (spec, named) in [
            (json!({"externalIPs": ["192.0.2.1"]}), "spec.externalIPs"),
            (json!({"selector": {"app": "x"}}), "spec.selector"),
            (json!({"externalName": "x"}), "spec.externalName"),
            (json!({"clusterIP": "None"}), "spec.clusterIP"),
            (
                json!({"loadBalancerIP": "192.0.2.1"}),
                "spec.loadBalancerIP",
            ),
            (json!({"loadBalancerClass": "x"}), "spec.loadBalancerClass"),
            (
                json!({"sessionAffinity": "ClientIP"}),
                "spec.sessionAffinity",
            ),
            (
                json!({"ports": [{"port": 1}, {"port": 2, "nodePort": 30000}]}),
                "spec.ports[1].nodePort",
            ),
            (json!({"type": "NodePort"}), "spec.type is NodePort"),
            (json!({"type": "LoadBalancer"}), "spec.type is LoadBalancer"),
            (json!({"type": "ExternalName"}), "spec.type is ExternalName"),
        ] {
            let message = refused(json!({ "spec": spec }));
            assert!(message.contains(named), "{named}: {message}");
        }
        for (metadata, named) in [
            (json!({"annotations": {"a": "b"}}), "metadata.annotations"),
            (json!({"finalizers": ["a/b"]}), "metadata.finalizers"),
            (json!({"name": "x"}), "metadata.name"),
            (json!({"namespace": "kube-system"}), "metadata.namespace"),
            (
                json!({"labels": {"service.kubernetes.io/service-proxy-name": "x"}}),
                "labels[service.kubernetes.io/",
            ),
            (
                json!({"labels": {"networking.liqo.io/component": "gateway"}}),
                "labels[networking.liqo.io/component]",
            ),
            (json!({"labels": {"k8s.io/x": "y"}}), "labels[k8s.io/x]"),
        ] {
            let message = refused(json!({ "metadata": metadata }));
            assert!(message.contains(named), "{named}: {message}");
        }
    }

    #[test]
    fn a_domain_with_the_suffix_of_a_reserved_one_is_not_reserved() {
        assert!(!is_reserved("notkubernetes.io/x"));
        assert!(!is_reserved("kubernetes.io.example/x"));
        assert!(is_reserved("x.app.kubernetes.io/y"));
    }
}
