//! Allocation of a Network's CIDR and addresses, according to its labels.

use control_api::{Network, labels};
use ipam::Claim;
use ipnet::Ipv4Net;

/// Purpose of a Network, according to its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkType {
    Pod,
    Service,
    External,
    Internal,
    Reserved,
    /// A Network without the label, which a user has created. Its CIDR is allocated exclusively.
    Other,
}

/// How a Network gets its CIDR, and IPs get addresses from it, in `gateway plan` and in the controller manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRules {
    /// Whether the Network must get the CIDR of its spec.
    pub is_fixed: bool,
    /// Whether other shared Networks may overlap the CIDR.
    pub is_shared: bool,
    /// Number of addresses at the start of the CIDR that are not allocated to IPs.
    pub pre_allocated: u32,
}

/// Number of reserved addresses of the external CIDR: the first one represents senders of unknown origin.
const EXTERNAL_PRE_ALLOCATED: u32 = 1;

impl NetworkType {
    /// Reads the value of the label; `None` for a value that is unknown.
    pub(crate) fn parse(label: Option<&str>) -> Option<Self> {
        match label {
            Some(labels::NETWORK_TYPE_POD) => Some(Self::Pod),
            Some(labels::NETWORK_TYPE_SERVICE) => Some(Self::Service),
            Some(labels::NETWORK_TYPE_EXTERNAL) => Some(Self::External),
            Some(labels::NETWORK_TYPE_INTERNAL) => Some(Self::Internal),
            Some(labels::NETWORK_TYPE_RESERVED) => Some(Self::Reserved),
            Some(_) => None,
            None => Some(Self::Other),
        }
    }
}

impl AllocationRules {
    /// Returns the rules of a Network.
    ///
    /// The cluster's configuration determines its pod, service and reserved CIDRs. They are therefore fixed and
    /// shared even without the respective labels.
    pub fn of(network: &Network) -> Self {
        let labels = network.metadata.labels.as_ref();
        let value = |key| {
            labels
                .and_then(|labels| labels.get(key))
                .map(String::as_str)
        };
        let network_type = NetworkType::parse(value(labels::NETWORK_TYPE));
        let (is_given, reserved) = match network_type {
            Some(NetworkType::Pod | NetworkType::Service | NetworkType::Reserved) => (true, 0),
            Some(NetworkType::External) => (false, EXTERNAL_PRE_ALLOCATED),
            Some(NetworkType::Internal | NetworkType::Other) | None => (false, 0),
        };
        let pre_allocated = network.spec.pre_allocated.unwrap_or_default();

        Self {
            is_fixed: is_given || value(labels::NETWORK_NOT_REMAPPED) == Some("true"),
            is_shared: is_given || value(labels::NETWORK_SHARED) == Some("true"),
            pre_allocated: u32::try_from(pre_allocated)
                .unwrap_or_default()
                .max(reserved),
        }
    }

    /// Returns the claim of the Network.
    pub fn claim(&self, cidr: Ipv4Net) -> Claim {
        match (self.is_fixed, self.is_shared) {
            (true, true) => Claim::Shared(cidr),
            (true, false) => Claim::Exclusive(cidr),
            (false, _) => Claim::Remappable(cidr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn rules(labels: &[(&str, &str)], pre_allocated: Option<i64>) -> AllocationRules {
        let labels: serde_json::Map<_, _> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let mut network = json!({"metadata": {"labels": labels}, "spec": {"cidr": "10.1.0.0/16"}});
        if let Some(number) = pre_allocated {
            network["spec"]["preAllocated"] = number.into();
        }
        AllocationRules::of(&from_value(network).unwrap())
    }

    #[test]
    fn the_labels_determine_the_claim() {
        let cidr = Ipv4Net::new_assert([10, 1, 0, 0].into(), 16);
        let claim = |labels: &[_]| rules(labels, None).claim(cidr);
        let (shared, fixed) = (
            (labels::NETWORK_SHARED, "true"),
            (labels::NETWORK_NOT_REMAPPED, "true"),
        );

        assert_eq!(claim(&[]), Claim::Remappable(cidr));
        assert_eq!(claim(&[shared]), Claim::Remappable(cidr));
        assert_eq!(claim(&[fixed]), Claim::Exclusive(cidr));
        assert_eq!(claim(&[fixed, shared]), Claim::Shared(cidr));
        assert_eq!(
            claim(&[(labels::NETWORK_NOT_REMAPPED, "false")]),
            Claim::Remappable(cidr)
        );
    }

    #[test]
    fn the_cidrs_of_the_cluster_are_fixed_and_shared_without_further_labels() {
        let cidr = Ipv4Net::new_assert([10, 1, 0, 0].into(), 16);
        let claim = |network_type| rules(&[(labels::NETWORK_TYPE, network_type)], None).claim(cidr);

        for network_type in ["pod-cidr", "service-cidr", "reserved"] {
            assert_eq!(claim(network_type), Claim::Shared(cidr));
        }
        for network_type in ["external-cidr", "internal-cidr", "unknown"] {
            assert_eq!(claim(network_type), Claim::Remappable(cidr));
        }
    }

    #[test]
    fn the_first_external_address_is_reserved() {
        let pre_allocated = |network_type, number| {
            rules(&[(labels::NETWORK_TYPE, network_type)], number).pre_allocated
        };

        assert_eq!(pre_allocated("external-cidr", None), 1);
        assert_eq!(pre_allocated("external-cidr", Some(5)), 5);
        assert_eq!(pre_allocated("internal-cidr", None), 0);
        assert_eq!(pre_allocated("internal-cidr", Some(-1)), 0);
    }
}
