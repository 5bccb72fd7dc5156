//! Shows the CIDRs that a peer claims, before a Configuration grants them.
//!
//! A cluster sends all traffic for those CIDRs to the peer and accepts packets from them, so an
//! administrator must see them first. Overlaps are no error, because the manager remaps them.

use crate::cidrs::Cidrs;
use crate::cluster::list_all;
use crate::commands::install::facts;
use crate::global::Global;
use crate::objects;
use crate::pair::Side;
use crate::{failure, progress, prompt, tenant};
use anyhow::Result;
use control_api::networking::configuration::{ClusterCidrs, Configuration};
use control_api::{Network, labels};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};

/// A claim of a peer, and the data with which the granting cluster judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// `local` or `remote`: the cluster that grants.
    side: &'static str,
    /// Cluster ID of the claiming peer.
    peer: String,
    claimed: Cidrs,
    /// Ranges of the granting cluster.
    own: Vec<Range>,
    /// Whether a Configuration already grants exactly these CIDRs.
    is_granted: bool,
}

/// A range of addresses of the granting cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// As in "overlaps the pod CIDR 10.244.0.0/16".
    name: String,
    cidr: Ipv4Net,
}

impl Grant {
    /// Reads the Configuration that `side` has for its peer, and the ranges of `side`.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn read(side: &Side, claimed: &Cidrs) -> Result<Self> {
        let existing = match tenant::find(&side.cluster, &side.peer).await? {
            Some(namespace) => {
                objects::find::<Configuration>(&side.cluster, &namespace, &side.peer).await?
            }
            None => None,
        };
        let (networks, nodes) = tokio::try_join!(networks(side), nodes(side))?;

        Ok(Self {
            side: side.cluster.side,
            peer: side.peer.clone(),
            claimed: claimed.clone(),
            own: own(&networks, &nodes),
            is_granted: existing.is_some_and(|existing| is_granted(&existing, claimed)),
        })
    }

    /// Returns lines for the administrator: the claim, then its overlaps.
    fn lines(&self) -> Vec<String> {
        let (side, peer) = (self.side, &self.peer);
        let list = |cidrs: &[String]| cidrs.iter().map(|it| shown(it)).collect::<Vec<_>>();
        let pods = list(&self.claimed.pod).join(", ");
        let external = list(&self.claimed.external).join(", ");
        let mut lines = vec![format!(
            "({side}) {peer} claims the pod CIDR {pods} and the external CIDR {external}"
        )];
        for claimed in self.claimed.pod.iter().chain(&self.claimed.external) {
            let Ok(cidr) = claimed.parse::<Ipv4Net>() else {
                continue;
            };
            let overlaps = self.own.iter().filter(|own| overlap(own.cidr, cidr));
            lines.extend(overlaps.map(|own| {
                let Range { name, cidr: range } = own;
                format!(
                    "({side}) {cidr} of {peer} overlaps {name} {range} of the {side} cluster, which will remap {peer}"
                )
            }));
        }
        lines
    }
}

/// Prints the claims. On a terminal, prompts for the confirmation of new claims.
///
/// # Errors
///
/// Returns an error if the user does not confirm.
pub(crate) async fn confirm(global: &Global, grants: &[Grant]) -> Result<()> {
    for line in grants.iter().flat_map(Grant::lines) {
        progress::info(line);
    }
    if needs_confirmation(global.skip_confirm, prompt::is_interactive(), grants) {
        prompt::confirm("Grant these CIDRs and connect the clusters?").await?;
    }
    Ok(())
}

fn needs_confirmation(skip_confirm: bool, is_interactive: bool, grants: &[Grant]) -> bool {
    is_interactive && !skip_confirm && grants.iter().any(|grant| !grant.is_granted)
}

fn is_granted(existing: &Configuration, claimed: &Cidrs) -> bool {
    let remote = existing.spec.remote.as_ref();
    remote.is_some_and(|remote| {
        let ClusterCidrs { external, pod } = &remote.cidr;
        *pod == claimed.pod && *external == claimed.external
    })
}

async fn networks(side: &Side) -> Result<Vec<Network>> {
    let cluster = &side.cluster;
    let api = Api::<Network>::namespaced(cluster.client.clone(), &side.liqo.namespace);
    cluster.list(&api, "Networks", labels::NETWORK_TYPE).await
}

/// Returns the nodes, or none if listing is forbidden, because their overlaps are only a hint.
async fn nodes(side: &Side) -> Result<Vec<Node>> {
    let api = Api::<Node>::all(side.cluster.client.clone());
    match list_all(&api, "").await {
        Ok(nodes) => Ok(nodes),
        Err(error) if failure::is_forbidden(&error) => Ok(Vec::new()),
        Err(error) => Err(side.cluster.failed("list nodes")(error)),
    }
}

/// Returns the ranges of the Networks and the addresses of the nodes.
fn own(networks: &[Network], nodes: &[Node]) -> Vec<Range> {
    let networks = networks.iter().filter_map(|network| {
        let name = match network.labels().get(labels::NETWORK_TYPE)?.as_str() {
            labels::NETWORK_TYPE_POD => "the pod CIDR",
            labels::NETWORK_TYPE_SERVICE => "the service CIDR",
            labels::NETWORK_TYPE_EXTERNAL => "the external CIDR",
            labels::NETWORK_TYPE_INTERNAL => "the internal CIDR",
            labels::NETWORK_TYPE_RESERVED => "the reserved subnet",
            _ => return None,
        };
        let cidr = network.status.as_ref()?.cidr.as_ref()?.parse().ok()?;
        Some(Range {
            name: name.to_owned(),
            cidr,
        })
    });
    let nodes = nodes.iter().map(facts).flat_map(|node| {
        let name = format!("the address of node {}", node.name);
        node.addresses.into_iter().map(move |address| Range {
            name: name.clone(),
            cidr: address.into(),
        })
    });

    networks.chain(nodes).collect()
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Returns a claimed CIDR as printable text. A peer may send control characters.
fn shown(claimed: &str) -> String {
    match claimed.parse::<Ipv4Net>() {
        Ok(cidr) => cidr.to_string(),
        Err(_) => format!("{claimed:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn cidrs(pod: &str, external: &str) -> Cidrs {
        Cidrs {
            pod: vec![pod.to_owned()],
            external: vec![external.to_owned()],
        }
    }

    fn grant(claimed: Cidrs, own: Vec<Range>) -> Grant {
        Grant {
            side: "local",
            peer: "milan".to_owned(),
            claimed,
            own,
            is_granted: false,
        }
    }

    fn network(type_: &str, cidr: &str) -> Network {
        from_value(json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "Network",
            "metadata": {"name": type_, "labels": {labels::NETWORK_TYPE: type_}},
            "spec": {"cidr": cidr},
            "status": {"cidr": cidr},
        }))
        .unwrap()
    }

    fn node(name: &str, address: &str) -> Node {
        from_value(json!({
            "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_claim_without_overlap_is_one_line() {
        let own = own(&[network("pod-cidr", "10.200.0.0/16")], &[]);

        let lines = grant(cidrs("10.244.0.0/16", "10.70.0.0/16"), own).lines();

        assert_eq!(
            lines,
            ["(local) milan claims the pod CIDR 10.244.0.0/16 and the external CIDR 10.70.0.0/16"]
        );
    }

    #[test]
    fn overlaps_with_pods_services_and_nodes_are_named() {
        let networks = [
            network("pod-cidr", "10.244.0.0/16"),
            network("service-cidr", "10.96.0.0/12"),
        ];
        let nodes = [node("rome-worker", "172.18.1.3")];
        let own = own(&networks, &nodes);

        let lines = grant(cidrs("10.0.0.0/8", "172.18.0.0/16"), own).lines();

        let overlaps = lines[1..].join("\n");
        for expected in [
            "10.0.0.0/8 of milan overlaps the pod CIDR 10.244.0.0/16",
            "10.0.0.0/8 of milan overlaps the service CIDR 10.96.0.0/12",
            "172.18.0.0/16 of milan overlaps the address of node rome-worker 172.18.1.3/32",
        ] {
            assert!(overlaps.contains(expected), "{overlaps}");
        }
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn control_characters_of_a_claim_are_not_printed() {
        let lines = grant(cidrs("\u{1b}[2J", "10.70.0.0/16"), Vec::new()).lines();

        assert!(!lines[0].contains('\u{1b}'), "{lines:?}");
    }

    #[test]
    fn only_a_new_claim_on_a_terminal_needs_confirmation() {
        let new = grant(cidrs("10.244.0.0/16", "10.70.0.0/16"), Vec::new());
        let mut granted = new.clone();
        granted.is_granted = true;
        let both = [granted.clone(), new];

        assert!(needs_confirmation(false, true, &both));
        assert!(!needs_confirmation(true, true, &both), "--skip-confirm");
        assert!(!needs_confirmation(false, false, &both), "no terminal");
        assert!(!needs_confirmation(false, true, &[granted]), "granted");
    }

    #[test]
    fn a_configuration_grants_only_its_own_cidrs() {
        let existing: Configuration = from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Configuration",
            "metadata": {"name": "milan"},
            "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]}}},
        }))
        .unwrap();

        assert!(is_granted(
            &existing,
            &cidrs("10.244.0.0/16", "10.70.0.0/16")
        ));
        assert!(!is_granted(&existing, &cidrs("10.0.0.0/8", "10.70.0.0/16")));
    }
}
