//! The valid parts of a ShadowEndpointSlice, as its EndpointSlice has them.
//!
//! The parts are those that the API server accepts without change, so that what it stores is equal to what was sent.

use super::addresses::Addresses;
use super::dropped::Dropped;
use crate::offloading::{is_name, label_key};
use control_api::offloading::shadow_endpoint_slice::EndpointSliceTemplate;
use control_api::{ShadowEndpointSlice, annotations, labels};
use control_fabric::is_cluster_id as is_dns_label;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForZone,
};
use std::collections::{BTreeMap, BTreeSet};

/// The only type of addresses that is remapped.
pub(super) const ADDRESS_TYPE: &str = "IPv4";

/// Largest number of endpoints, which is that of the API server.
const ENDPOINTS_MAX: usize = 1000;

/// Largest number of addresses. Kubernetes' own slices have one for each endpoint, of which they have 100.
const ADDRESSES_MAX: usize = 2000;

/// Largest number of ports, which is that of the API.
const PORTS_MAX: usize = 100;

/// Largest number of zones in a hint, which is that of the API server.
const ZONES_MAX: usize = 8;

/// Longest field of a reference, which is that of names.
const REFERENCE_LEN_MAX: usize = 253;

/// Prefix of the kinds in references, which are to objects of the consumer.
const REMOTE_KIND: &str = "Remote";

/// Content of an EndpointSlice.
pub(crate) struct Content {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) ports: Vec<EndpointPort>,
}

/// Which endpoints of a peer are ready, if the peer reports them as ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// The endpoints that this cluster reaches through the peer.
    pub(crate) is_reached: bool,
    /// The endpoints at other providers, which this cluster reaches without the peer.
    pub(crate) is_current: bool,
}

impl Content {
    /// Returns the valid parts of a slice of a consumer. Notes the others.
    pub(super) fn of(
        shadow: &ShadowEndpointSlice,
        (peer, readiness): (&str, Readiness),
        addresses: &Addresses<'_>,
        dropped: &mut Dropped,
    ) -> Self {
        let default = EndpointSliceTemplate::default();
        let template = shadow.spec.template.as_ref().unwrap_or(&default);
        let (endpoints, ports) = Self::parts(template, (peer, readiness), addresses, dropped);

        Self {
            labels: labels(shadow),
            annotations: annotations(shadow),
            endpoints,
            ports,
        }
    }

    /// Returns the valid endpoints and ports of a slice of a peer. Notes the others.
    pub(crate) fn parts(
        template: &EndpointSliceTemplate,
        (peer, readiness): (&str, Readiness),
        addresses: &Addresses<'_>,
        dropped: &mut Dropped,
    ) -> (Vec<Endpoint>, Vec<EndpointPort>) {
        let mut endpoints = Vec::new();
        let mut room = ADDRESSES_MAX;
        for (number, endpoint) in template.endpoints.iter().enumerate() {
            if number >= ENDPOINTS_MAX {
                let surplus = template.endpoints[number..].iter();
                let surplus = surplus.map(|it| it.addresses.len()).sum();
                dropped.surplus_addresses(surplus, ADDRESSES_MAX);
                break;
            }
            let (taken, surplus) = endpoint
                .addresses
                .split_at(room.min(endpoint.addresses.len()));
            room -= taken.len();
            dropped.surplus_addresses(surplus.len(), ADDRESSES_MAX);
            let resolved = resolve((taken, readiness), addresses, dropped);
            if let Some((addresses, is_reached)) = resolved {
                endpoints.push(self::endpoint(endpoint, addresses, is_reached, peer));
            }
        }

        (endpoints, ports(&template.ports, dropped))
    }
}

/// Returns the addresses of an endpoint, and whether this cluster reaches them; `None` if there are none.
fn resolve(
    (texts, readiness): (&[String], Readiness),
    addresses: &Addresses<'_>,
    dropped: &mut Dropped,
) -> Option<(Vec<String>, bool)> {
    let mut taken: Vec<String> = Vec::new();
    let mut are_reached = true;
    for text in texts {
        match addresses.resolve(text) {
            Ok(resolved) => {
                let address = resolved.address.to_string();
                are_reached &= match resolved.is_connected {
                    Some(is_connected) => is_connected && readiness.is_current,
                    None => readiness.is_reached,
                };
                if !taken.contains(&address) {
                    taken.push(address);
                }
            }
            Err(refusal) => dropped.address(text, refusal),
        }
    }

    (!taken.is_empty()).then_some((taken, are_reached))
}

fn endpoint(shadow: &Endpoint, addresses: Vec<String>, is_reached: bool, peer: &str) -> Endpoint {
    Endpoint {
        addresses,
        conditions: Some(conditions(shadow.conditions.as_ref(), is_reached)),
        hints: shadow.hints.as_ref().and_then(hints),
        hostname: shadow.hostname.clone().filter(|name| is_dns_label(name)),
        // A node of this cluster would make the endpoint a local one there.
        node_name: shadow.node_name.as_ref().map(|_| peer.to_owned()),
        target_ref: shadow.target_ref.as_ref().and_then(reference),
        zone: shadow.zone.clone().filter(|zone| is_name(zone)),
        ..Endpoint::default()
    }
}

/// Returns the conditions of an endpoint that this cluster reaches, or does not.
///
/// An endpoint that is not reached does not serve either: kube-proxy sends packets to terminating endpoints that serve while no
/// endpoint is ready. Upstream's consumers report `ready` only, and then the other conditions remain absent.
fn conditions(shadow: Option<&EndpointConditions>, is_reached: bool) -> EndpointConditions {
    let shadow = shadow.cloned().unwrap_or_default();
    let is_ready = shadow.ready.unwrap_or(true);
    let serves = shadow.serving.or(shadow.terminating.map(|_| is_ready));

    EndpointConditions {
        ready: Some(is_ready && is_reached),
        serving: serves.map(|it| it && is_reached),
        terminating: shadow.terminating,
    }
}

/// Returns the zones of a hint. Nodes are those of the consumer.
fn hints(shadow: &EndpointHints) -> Option<EndpointHints> {
    let zones = shadow.for_zones.iter().flatten();
    let zones: BTreeSet<_> = zones.map(|zone| &zone.name).collect();
    let zones = zones.into_iter().filter(|name| is_name(name));
    let zones: Vec<_> = zones
        .take(ZONES_MAX)
        .map(|name| ForZone { name: name.clone() })
        .collect();

    (!zones.is_empty()).then(|| EndpointHints {
        for_zones: Some(zones),
        ..EndpointHints::default()
    })
}

/// Returns a reference to an object of the consumer.
fn reference(shadow: &ObjectReference) -> Option<ObjectReference> {
    let bounded = |text: &Option<String>| {
        let text = text.clone();
        text.filter(|text| text.len() <= REFERENCE_LEN_MAX)
    };
    let kind = bounded(&shadow.kind).filter(|kind| kind.starts_with(REMOTE_KIND))?;

    Some(ObjectReference {
        kind: Some(kind),
        name: bounded(&shadow.name),
        namespace: bounded(&shadow.namespace),
        uid: bounded(&shadow.uid),
        ..ObjectReference::default()
    })
}

/// Returns the ports with valid numbers and different names, as the API server completes them.
fn ports(shadow: &[EndpointPort], dropped: &mut Dropped) -> Vec<EndpointPort> {
    let mut ports: Vec<EndpointPort> = Vec::new();
    let mut names = BTreeSet::new();
    for port in shadow.iter().take(PORTS_MAX) {
        let name = port.name.clone().unwrap_or_default();
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let number = port.port.and_then(|number| u16::try_from(number).ok());
        let reason = if !name.is_empty() && !is_dns_label(&name) {
            Some("its name is no DNS label")
        } else if !["TCP", "UDP", "SCTP"].contains(&&*protocol) {
            Some("its protocol is not TCP, UDP or SCTP")
        } else if number.is_none_or(|number| number == 0) {
            Some("its number is not from 1 to 65535")
        } else if !names.insert(name.clone()) {
            Some("its name is that of another one")
        } else {
            None
        };
        if let Some(reason) = reason {
            dropped.part("port", &name, reason);
            continue;
        }
        let protocol_of_application = port.app_protocol.clone();
        ports.push(EndpointPort {
            app_protocol: protocol_of_application.filter(|it| label_key(it).is_ok()),
            name: Some(name),
            port: port.port,
            protocol: Some(protocol),
        });
    }
    let surplus = shadow.len().saturating_sub(PORTS_MAX);
    if surplus > 0 {
        let reason = format!("more than {PORTS_MAX}");
        dropped.part("ports", &surplus.to_string(), &reason);
    }

    ports
}

/// Returns the labels: those of the slice, but of Liqo only those that mark it as reflected.
fn labels(shadow: &ShadowEndpointSlice) -> BTreeMap<String, String> {
    let labels = shadow.metadata.labels.clone().unwrap_or_default();
    let mut labels: BTreeMap<_, _> = labels
        .into_iter()
        .filter(|(key, _)| {
            let is_marker = [labels::ORIGIN, labels::DESTINATION].contains(&key.as_str());
            is_marker || !is_of_liqo(key)
        })
        .collect();
    for (key, value) in [
        (labels::MANAGED, "true"),
        (labels::MANAGED_BY, labels::MANAGED_BY_SHADOW_ENDPOINT_SLICE),
        (
            labels::SLICE_MANAGED_BY,
            labels::SLICE_MANAGED_BY_REFLECTION,
        ),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }

    labels
}

fn is_of_liqo(key: &str) -> bool {
    let domain = labels::domain(key).unwrap_or_default();
    domain == "liqo.io" || domain.ends_with(".liqo.io")
}

/// Returns the annotations without those that concern the ShadowEndpointSlice itself.
fn annotations(shadow: &ShadowEndpointSlice) -> BTreeMap<String, String> {
    let mut annotations = shadow.metadata.annotations.clone().unwrap_or_default();
    for key in [
        annotations::DIRECT_CONNECTIONS_DATA,
        annotations::LAST_APPLIED,
    ] {
        annotations.remove(key);
    }

    annotations
}
