//! The CIDRs that a cluster advertises to its peers.

use control_api::{Network, labels};
use kube::ResourceExt as _;

/// The CIDRs of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cidrs {
    /// CIDRs of pods.
    pub(crate) pod: Vec<String>,
    /// CIDR of the addresses that IP objects get. The list has one item.
    pub(crate) external: Vec<String>,
}

impl Cidrs {
    /// Returns the CIDRs in the status of the Networks of the Liqo namespace.
    ///
    /// # Errors
    ///
    /// Returns the missing Network or status.
    pub(crate) fn of(networks: &[Network]) -> Result<Self, String> {
        let with_type = |type_: &str| -> Result<Vec<String>, String> {
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
        let pod = with_type(labels::NETWORK_TYPE_POD)?;
        let external = with_type(labels::NETWORK_TYPE_EXTERNAL)?;
        if external.len() > 1 {
            return Err(format!(
                "there are {} Networks with label {}={}, one is allowed",
                external.len(),
                labels::NETWORK_TYPE,
                labels::NETWORK_TYPE_EXTERNAL
            ));
        }
        Ok(Self { pod, external })
    }
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
    fn all_pod_cidrs_and_one_external_cidr_are_read() {
        let networks = [
            network("pod-b", "pod-cidr", Some("10.1.0.0/16")),
            network("pod-a", "pod-cidr", Some("10.0.0.0/16")),
            network("ext", "external-cidr", Some("10.70.0.0/16")),
            network("svc", "service-cidr", None),
        ];

        let cidrs = Cidrs::of(&networks).unwrap();

        assert_eq!(cidrs.pod, ["10.0.0.0/16", "10.1.0.0/16"]);
        assert_eq!(cidrs.external, ["10.70.0.0/16"]);
    }

    #[test]
    fn a_missing_network_is_named() {
        let pod = network("pod", "pod-cidr", None);
        assert!(
            Cidrs::of(std::slice::from_ref(&pod))
                .unwrap_err()
                .contains("Network pod has no status")
        );
        assert!(
            Cidrs::of(&[])
                .unwrap_err()
                .contains("ipam.liqo.io/network-type=pod-cidr")
        );
    }
}
