//! Computes the parts of `liqoctl info` from objects. PURE.

use super::boxes::Item;
use control_api::{Network, labels as keys};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Health of the installation: the pods that are not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    unhealthy: Vec<UnhealthyPod>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnhealthyPod {
    name: String,
    status: String,
    ready: usize,
    total: usize,
    restarts: i32,
}

/// The CIDRs of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Networks {
    pods: Vec<String>,
    service: String,
    external: String,
    internal: String,
}

/// Returns the pods that are not ready.
pub(super) fn health(pods: &[Pod]) -> Health {
    Health {
        unhealthy: pods.iter().filter_map(unhealthy).collect(),
    }
}

fn unhealthy(pod: &Pod) -> Option<UnhealthyPod> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let is_ready = conditions
        .filter(|condition| condition.type_ == "Ready")
        .any(|condition| condition.status == "True");
    if is_ready {
        return None;
    }
    let containers = status.container_statuses.clone().unwrap_or_default();
    Some(UnhealthyPod {
        name: pod.name_any(),
        status: status.phase.clone().unwrap_or_default(),
        ready: containers
            .iter()
            .filter(|container| container.ready)
            .count(),
        total: containers.len(),
        restarts: containers
            .iter()
            .map(|container| container.restart_count)
            .sum(),
    })
}

impl Health {
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"healthy": self.unhealthy.is_empty()});
        for pod in &self.unhealthy {
            value["unhealthyPods"][&pod.name] = json!({
                "status": pod.status,
                "readyContainers": pod.ready,
                "totalContainers": pod.total,
                "restarts": pod.restarts,
            });
        }
        value
    }

    pub(super) fn items(&self) -> Vec<Item> {
        if self.unhealthy.is_empty() {
            return vec![Item::Line("✔    Liqo is healthy".to_owned())];
        }
        let pods = self.unhealthy.iter().map(|pod| {
            Item::section(
                &pod.name,
                vec![
                    Item::entry("Status", &pod.status),
                    Item::entry("Ready", format!("{}/{}", pod.ready, pod.total)),
                    Item::entry("Restarts", pod.restarts.to_string()),
                ],
            )
        });
        vec![
            Item::Line("✖    Liqo is unhealthy".to_owned()),
            Item::section("Unhealthy pods", pods.collect()),
        ]
    }
}

/// Returns the CIDRs, and a warning for each Network without a status.
pub(super) fn networks(all: &[Network]) -> (Networks, Vec<String>) {
    let mut warnings = Vec::new();
    let mut of = |type_: &str, title: &str, word: &str| -> Vec<String> {
        let found: Vec<&Network> = all
            .iter()
            .filter(|network| {
                network
                    .labels()
                    .get(keys::NETWORK_TYPE)
                    .is_some_and(|t| t == type_)
            })
            .collect();
        let cidr = |network: &&Network| network.status.as_ref()?.cidr.clone();
        let cidrs: Option<Vec<String>> = found.iter().map(cidr).collect();
        match cidrs {
            Some(cidrs) if !cidrs.is_empty() => cidrs,
            Some(_) | None => {
                let which = match found.first() {
                    Some(network) if type_ == keys::NETWORK_TYPE_POD => {
                        format!("Network \"{}\"", network.name_any())
                    }
                    _ => "the Network resource".to_owned(),
                };
                warnings.push(format!(
                    "unable to get {title}: the {word} CIDR is not yet configured: missing status on {which}"
                ));
                Vec::new()
            }
        }
    };
    let pods = of(keys::NETWORK_TYPE_POD, "PodCIDRs", "pod");
    let mut one = |type_, title, word| {
        of(type_, title, word)
            .into_iter()
            .next()
            .unwrap_or_default()
    };
    let networks = Networks {
        pods,
        service: one(keys::NETWORK_TYPE_SERVICE, "ServiceCIDR", "service"),
        external: one(keys::NETWORK_TYPE_EXTERNAL, "ExternalCIDR", "external"),
        internal: one(keys::NETWORK_TYPE_INTERNAL, "InternalCIDR", "internal"),
    };
    (networks, warnings)
}

impl Networks {
    pub(super) fn value(&self) -> Value {
        json!({
            "podCIDRs": self.pods,
            "serviceCIDR": self.service,
            "externalCIDR": self.external,
            "internalCIDR": self.internal,
        })
    }

    pub(super) fn items(&self) -> Vec<Item> {
        let pods = self.pods.iter().cloned().map(Item::Line).collect();
        vec![
            Item::section("Pod CIDRs", pods),
            Item::entry("Service CIDR", &self.service),
            Item::entry("External CIDR", &self.external),
            Item::entry("Internal CIDR", &self.internal),
        ]
    }
}

/// Parses labels in the format `key=value,key=value`.
pub(super) fn labels(text: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = text
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    pairs.sort();
    pairs
}
