//! CIDRs, addresses and cluster ids, as people write them.

use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

/// What is never routed between clusters: this host, loopback, link-local (the tunnels' own addresses
/// among it), multicast and what lies above.
const UNROUTABLE: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Why a text is refused, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("`{0}` is not a CIDR: write one like 10.244.0.0/16")]
    NotACidr(String),
    #[error("`{0}` is not an IPv4 address: write one like 192.0.2.9")]
    NotAnAddress(String),
    #[error("{cidr} has bits beyond its prefix: write {}", cidr.trunc())]
    HostBits { cidr: Ipv4Net },
    #[error("`{0}` is IPv6: only IPv4 is mapped between clusters")]
    Ipv6(String),
    #[error("{cidr} meets {reserved}, which is never routed between clusters: choose another one")]
    Unroutable { cidr: Ipv4Net, reserved: Ipv4Net },
    #[error(
        "`{0}` is not a cluster id: use up to 63 small letters, digits and `-`, not at the ends"
    )]
    NotAClusterId(String),
}

/// Reads a CIDR that can be routed between clusters.
pub(crate) fn cidr(text: &str) -> Result<Ipv4Net, Refusal> {
    let cidr = match text.parse() {
        Ok(IpNet::V4(cidr)) => cidr,
        Ok(IpNet::V6(_)) => return Err(Refusal::Ipv6(text.to_owned())),
        Err(_) => return Err(Refusal::NotACidr(text.to_owned())),
    };
    if cidr != cidr.trunc() {
        return Err(Refusal::HostBits { cidr });
    }

    routable(cidr)
}

/// Reads an address that can be routed between clusters.
pub(crate) fn address(text: &str) -> Result<Ipv4Addr, Refusal> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => routable(Ipv4Net::from(address)).map(|_| address),
        Ok(IpAddr::V6(_)) => Err(Refusal::Ipv6(text.to_owned())),
        Err(_) => Err(Refusal::NotAnAddress(text.to_owned())),
    }
}

/// Accepts a cluster id.
pub(crate) fn cluster_id(text: &str) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_id = (1..=63).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.starts_with('-')
        && !text.ends_with('-');

    is_id
        .then_some(())
        .ok_or_else(|| Refusal::NotAClusterId(text.to_owned()))
}

fn routable(cidr: Ipv4Net) -> Result<Ipv4Net, Refusal> {
    let meets = |reserved: &Ipv4Net| reserved.contains(&cidr) || cidr.contains(reserved);
    match UNROUTABLE.into_iter().find(meets) {
        Some(reserved) => Err(Refusal::Unroutable { cidr, reserved }),
        None => Ok(cidr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_routed_is_refused_with_the_cure() {
        for (text, cure) in [
            ("10.244.0.1/16", "write 10.244.0.0/16"),
            ("fd00::/64", "IPv6"),
            ("nonsense", "not a CIDR"),
            ("0.0.0.0/0", "choose another"),
            ("169.254.18.0/24", "choose another"),
        ] {
            assert!(cidr(text).unwrap_err().to_string().contains(cure), "{text}");
        }
        for text in ["", "10.0.0", "::1", "127.0.0.1", "224.0.0.1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cluster_id_is_a_label_of_a_domain() {
        for id in ["rome", "a", "7-x", &"a".repeat(63)] {
            assert!(cluster_id(id).is_ok(), "{id}");
        }
        for id in ["", "Rome", "-a", "a-", "a.b", "a_b", &"a".repeat(64)] {
            assert!(cluster_id(id).is_err(), "{id}");
        }
    }
}
