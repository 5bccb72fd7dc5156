//! Computes the remapped address of a peer's address. PURE.

use control_api::Configuration;
use control_api::networking::configuration::ClusterCidrs;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Returns the remapped address of `address` of the peer.
///
/// # Errors
///
/// Returns an error if the Configuration has no CIDR of the address.
pub(crate) fn map(configuration: &Configuration, address: Ipv4Addr) -> Result<Ipv4Addr, String> {
    let spec = configuration.spec.remote.as_ref();
    let status = configuration
        .status
        .as_ref()
        .and_then(|status| status.remote.as_ref());
    let (Some(spec), Some(status)) = (spec, status) else {
        return Err(
            "its Configuration has no status: wait until `liqoctl network connect` is complete"
                .to_owned(),
        );
    };
    let pairs = |of: fn(&ClusterCidrs) -> &Vec<String>| of(&spec.cidr).iter().zip(of(&status.cidr));
    let all = pairs(|cidrs| &cidrs.pod).chain(pairs(|cidrs| &cidrs.external));
    for (original, remapped) in all {
        let (Ok(original), Ok(remapped)) =
            (original.parse::<Ipv4Net>(), remapped.parse::<Ipv4Net>())
        else {
            continue;
        };
        if original.contains(&address) {
            return Ok(remap(original, remapped, address));
        }
    }
    Err(format!("{address} is in none of its CIDRs"))
}

/// Replaces the prefix of an address.
fn remap(original: Ipv4Net, remapped: Ipv4Net, address: Ipv4Addr) -> Ipv4Addr {
    let host = address.to_bits() & original.hostmask().to_bits();
    Ipv4Addr::from_bits(remapped.network().to_bits() | host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Configuration {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration", "metadata": {"name": "milan"},
            "spec": {"remote": {"cidr": {"pod": ["10.244.0.0/16", "10.9.0.0/16"], "external": ["10.70.0.0/16"]}}},
            "status": {"remote": {"cidr": {"pod": ["10.71.0.0/16", "10.9.0.0/16"], "external": ["10.68.0.0/16"]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_host_part_is_kept() {
        let map = |address: [u8; 4]| map(&configuration(), address.into()).map(|a| a.to_string());

        assert_eq!(map([10, 244, 1, 7]).unwrap(), "10.71.1.7");
        assert_eq!(map([10, 9, 1, 7]).unwrap(), "10.9.1.7");
        assert_eq!(map([10, 70, 0, 4]).unwrap(), "10.68.0.4");
        assert!(map([172, 18, 0, 4]).is_err());
        assert!(super::map(&Configuration::default(), [10, 70, 0, 4].into()).is_err());
    }
}
