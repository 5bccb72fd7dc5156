//! What a cluster tells its peer about itself.

use super::pair::Side;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::configuration::{Configuration, NETWORK_CIDRS_CONFIGURED};
use control_api::{Network, labels};
use kube::{Api, ResourceExt as _};

/// The CIDRs of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cidrs {
    /// Of its pods.
    pub(crate) pod: Vec<String>,
    /// Of single addresses that it makes reachable.
    pub(crate) external: Vec<String>,
}

/// Reads the CIDRs of a cluster, waiting for its manager to confirm them.
///
/// # Errors
///
/// Returns an error that names what is missing when the time is over.
pub(crate) async fn cidrs(side: &Side, deadline: Deadline) -> Result<Cidrs> {
    let (cluster, namespace) = (&side.cluster, &side.liqo.namespace);
    let api = Api::<Network>::namespaced(cluster.client.clone(), namespace);
    deadline
        .until("reading the network configuration", async || {
            let listed = api
                .list(&kube::api::ListParams::default().labels(labels::NETWORK_TYPE))
                .await
                .map_err(cluster.failed("list Networks"))?;
            Ok(match decide(&listed.items) {
                Ok(cidrs) => Found::Ready(cidrs),
                Err(missing) => Found::Missing(format!(
                    "{missing} in namespace {namespace} of {}",
                    cluster.place()
                )),
            })
        })
        .await
}

/// Returns the CIDRs that the Networks of the Liqo namespace give.
///
/// # Errors
///
/// Returns what is missing.
pub(crate) fn decide(networks: &[Network]) -> Result<Cidrs, String> {
    let of = |type_: &str| -> Result<Vec<String>, String> {
        let mut found: Vec<&Network> = networks
            .iter()
            .filter(|network| {
                network
                    .labels()
                    .get(labels::NETWORK_TYPE)
                    .is_some_and(|t| t == type_)
            })
            .collect();
        found.sort_by_key(|network| network.name_any());
        if found.is_empty() {
            return Err(format!(
                "there is no Network with label {}={type_}",
                labels::NETWORK_TYPE
            ));
        }
        found.iter().map(|network| status(network)).collect()
    };
    let pod = of(labels::NETWORK_TYPE_POD)?;
    let external = of(labels::NETWORK_TYPE_EXTERNAL)?;
    if external.len() > 1 {
        return Err(format!(
            "there are {} Networks with label {}={}, one is allowed",
            external.len(),
            labels::NETWORK_TYPE,
            labels::NETWORK_TYPE_EXTERNAL
        ));
    }
    Ok(Cidrs { pod, external })
}

fn status(network: &Network) -> Result<String, String> {
    let cidr = network
        .status
        .as_ref()
        .and_then(|status| status.cidr.clone());
    cidr.filter(|cidr| !cidr.is_empty()).ok_or_else(|| {
        format!(
            "Network {} has no status yet (does the controller-manager run?)",
            network.name_any()
        )
    })
}

/// Returns whether the manager has dealt with the Configuration as it is now.
///
/// # Errors
///
/// Returns what is missing, with the manager's reason.
pub(crate) fn is_applied(configuration: &Configuration) -> Result<(), String> {
    let name = configuration.name_any();
    let conditions = configuration
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let Some(condition) = conditions
        .iter()
        .find(|condition| condition.type_ == NETWORK_CIDRS_CONFIGURED)
    else {
        return Err(format!(
            "Configuration {name} has no condition {NETWORK_CIDRS_CONFIGURED} (does the controller-manager run?)"
        ));
    };
    if condition.observed_generation != configuration.metadata.generation {
        return Err(format!(
            "the controller-manager has not seen the last change of Configuration {name}"
        ));
    }
    if condition.status != "True" {
        return Err(format!(
            "Configuration {name} is not applied: {}: {}",
            condition.reason, condition.message
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str, type_: &str, cidr: Option<&str>) -> Network {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "Network",
            "metadata": {"name": name, "labels": {labels::NETWORK_TYPE: type_}},
            "spec": {"cidr": "10.0.0.0/16"},
            "status": cidr.map(|cidr| serde_json::json!({"cidr": cidr})),
        }))
        .unwrap()
    }

    #[test]
    fn all_pod_cidrs_and_one_external_are_told() {
        let networks = [
            network("pod-b", "pod-cidr", Some("10.1.0.0/16")),
            network("pod-a", "pod-cidr", Some("10.0.0.0/16")),
            network("ext", "external-cidr", Some("10.70.0.0/16")),
            network("svc", "service-cidr", None),
        ];

        let cidrs = decide(&networks).unwrap();

        assert_eq!(cidrs.pod, ["10.0.0.0/16", "10.1.0.0/16"]);
        assert_eq!(cidrs.external, ["10.70.0.0/16"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let pod = network("pod", "pod-cidr", None);
        assert!(
            decide(std::slice::from_ref(&pod))
                .unwrap_err()
                .contains("Network pod has no status")
        );
        assert!(
            decide(&[])
                .unwrap_err()
                .contains("ipam.liqo.io/network-type=pod-cidr")
        );
    }

    fn configured(generation: i64, observed: i64, status: &str) -> Configuration {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Configuration",
            "metadata": {"name": "milan", "generation": generation},
            "spec": {},
            "status": {"conditions": [{
                "type": "NetworkCIDRsConfigured", "status": status, "reason": "R", "message": "M",
                "observedGeneration": observed, "lastTransitionTime": "2026-11-21T08:15:18Z",
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn a_condition_counts_only_for_its_generation() {
        assert!(is_applied(&configured(2, 2, "True")).is_ok());
        assert!(
            is_applied(&configured(2, 1, "True"))
                .unwrap_err()
                .contains("last change")
        );
        assert!(
            is_applied(&configured(2, 2, "False"))
                .unwrap_err()
                .contains("R: M")
        );
    }
}
