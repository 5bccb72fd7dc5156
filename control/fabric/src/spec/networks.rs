//! The Networks of this cluster.

use super::Reader;
use crate::error::Problem;
use crate::network::{AllocationRules, NetworkType};
use crate::objects::Object;
use crate::overlap::Claimed;
use control_api::{Network, labels};
use ipnet::Ipv4Net;

/// The validated spec of a Network of this cluster.
#[derive(Clone, Debug)]
pub(crate) struct NetworkSpec {
    pub(crate) index: usize,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) network_type: NetworkType,
    pub(crate) cidr: Ipv4Net,
    pub(crate) rules: AllocationRules,
}

impl Reader<'_> {
    /// Reads the Networks of this cluster, in the order of the objects.
    pub(super) fn networks(&mut self) -> Vec<NetworkSpec> {
        let networks: Vec<_> = self
            .indexed_of()
            .filter_map(|(index, object, network)| self.network(index, object, network))
            .collect();

        self.check_count(&networks, NetworkType::Pod, labels::NETWORK_TYPE_POD, false);
        let external = labels::NETWORK_TYPE_EXTERNAL;
        self.check_count(&networks, NetworkType::External, external, true);
        let internal = labels::NETWORK_TYPE_INTERNAL;
        self.check_count(&networks, NetworkType::Internal, internal, true);

        // Pod and service CIDRs of one cluster are shared with other clusters, but must not overlap each other.
        let distinct = |network: &&NetworkSpec| match network.network_type {
            NetworkType::Pod | NetworkType::Service => true,
            NetworkType::Reserved => false,
            NetworkType::External | NetworkType::Internal | NetworkType::Other => {
                network.rules.is_fixed && !network.rules.is_shared
            }
        };
        let claims: Vec<_> = networks
            .iter()
            .filter(distinct)
            .map(|network| Claimed {
                cidr: network.cidr,
                shared: false,
                owner: (network.index, "spec.cidr".to_owned()),
            })
            .collect();
        self.refuse_overlaps(&claims);

        networks
    }

    fn network(&mut self, index: usize, object: &Object, network: &Network) -> Option<NetworkSpec> {
        if object
            .label_value(labels::CONFIGURATION_CIDR_TYPE)
            .is_some()
        {
            // The Network copies a CIDR of a Configuration, which `peers` reads.
            return None;
        }

        let cidr = self.cidr(index, "spec.cidr", &network.spec.cidr);
        let label = object.label_value(labels::NETWORK_TYPE);
        let Some(network_type) = NetworkType::parse(label) else {
            let value = label.unwrap_or_default().to_owned();
            let field = format!("metadata.labels[{}]", labels::NETWORK_TYPE);
            self.refuse(index, field, Problem::BadNetworkType { value });
            return None;
        };

        Some(NetworkSpec {
            index,
            namespace: network.metadata.namespace.clone(),
            name: network.metadata.name.clone().unwrap_or_default(),
            network_type,
            cidr: cidr?,
            rules: AllocationRules::of(network),
        })
    }

    /// Adds an error if a required type is missing, or if a `single` type occurs more than once.
    fn check_count(
        &mut self,
        networks: &[NetworkSpec],
        network_type: NetworkType,
        label: &'static str,
        single: bool,
    ) {
        // An invalid Network is not missing: `network` reports its error.
        let is_present = self
            .indexed_of::<Network>()
            .any(|(_, object, _)| object.label_value(labels::NETWORK_TYPE) == Some(label));
        let is_needed = network_type != NetworkType::Internal;
        if is_needed && !is_present {
            self.refuse_all(Problem::NoNetwork {
                network_type: label,
            });
        }

        let mut of_type = networks
            .iter()
            .filter(|network| network.network_type == network_type);
        if let Some(first) = of_type.next().filter(|_| single) {
            for network in of_type {
                let problem = Problem::TwoNetworks {
                    network_type: label,
                    other: Box::new(self.objects.place(first.index, "")),
                };
                self.refuse(network.index, "", problem);
            }
        }
    }
}
