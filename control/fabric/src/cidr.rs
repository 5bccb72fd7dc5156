//! CIDRs, addresses and names, as users write them.

use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

pub use remote::{CIDRS_MAX, RemoteCidrError, RemoteCidrs, remote_cidrs};

pub(crate) mod overlap;
mod remote;

/// Networks that are never routed between clusters: this host, loopback, link-local (which includes the
/// tunnels' own addresses), multicast and reserved.
const UNROUTABLE: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Maximum prefix length of the probe network, so that it has an address for each of
/// [`REPLICAS_MAX`](crate::REPLICAS_MAX) gateway replicas.
const PROBE_PREFIX_LEN_MAX: u8 = 24;

const _: () = assert!(crate::REPLICAS_MAX + 2 <= 1 << (32 - PROBE_PREFIX_LEN_MAX));

/// Reason why a text is not a routable CIDR or address, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// The text is not a CIDR.
    #[error("`{0}` is not a CIDR; write it as 10.244.0.0/16")]
    NotACidr(String),
    /// The text is not an address.
    #[error("`{0}` is not an IPv4 address; write it as 10.244.1.10")]
    NotAnAddress(String),
    /// The text is IPv6. Only IPv4 is remapped.
    #[error("`{0}`: IPv6 is not supported yet; use an IPv4 one")]
    Ipv6(String),
    /// The CIDR does not start with its network address.
    #[error("{cidr} has bits set behind the prefix; write {}", cidr.trunc())]
    HostBits {
        /// The CIDR.
        cidr: Ipv4Net,
    },
    /// The probe network has fewer addresses than a cluster may have gateway replicas.
    #[error("{cidr} is too small: use a prefix length of at most {PROBE_PREFIX_LEN_MAX}")]
    TooSmall {
        /// The CIDR.
        cidr: Ipv4Net,
    },
    /// The CIDR overlaps a network that is never routed.
    #[error(
        "{cidr} contains addresses that are never routed (of {reserved}); use a CIDR of the private \
         address space"
    )]
    Unroutable {
        /// The CIDR.
        cidr: Ipv4Net,
        /// The network that it overlaps.
        reserved: Ipv4Net,
    },
    /// The address is in a network that is never routed.
    #[error("{address} is never routed (of {reserved}); use an address that other hosts can reach")]
    UnroutableAddress {
        /// The address.
        address: Ipv4Addr,
        /// The network that contains it.
        reserved: Ipv4Net,
    },
}

/// Parses a CIDR that can be routed between clusters.
///
/// # Errors
///
/// Returns why the text is refused.
pub fn cidr(text: &str) -> Result<Ipv4Net, CidrError> {
    let cidr = network(text)?;
    let reserved = UNROUTABLE.into_iter().find(|it| overlaps(*it, cidr));

    reserved.map_or(Ok(cidr), |reserved| {
        Err(CidrError::Unroutable { cidr, reserved })
    })
}

/// Reads the network of the addresses at which nodes probe gateway replicas. It may be link-local.
///
/// # Errors
///
/// Returns why the text is refused.
pub fn probe_network(text: &str) -> Result<Ipv4Net, CidrError> {
    let cidr = network(text)?;
    let is_small = cidr.prefix_len() > PROBE_PREFIX_LEN_MAX;

    (!is_small)
        .then_some(cidr)
        .ok_or(CidrError::TooSmall { cidr })
}

/// Reads an IPv4 CIDR without host bits.
fn network(text: &str) -> Result<Ipv4Net, CidrError> {
    let cidr = match text.parse() {
        Ok(IpNet::V4(cidr)) => cidr,
        Ok(IpNet::V6(_)) => return Err(CidrError::Ipv6(text.to_owned())),
        Err(_) => return Err(CidrError::NotACidr(text.to_owned())),
    };
    if cidr != cidr.trunc() {
        return Err(CidrError::HostBits { cidr });
    }

    Ok(cidr)
}

/// Parses an IPv4 address that can be routed between clusters.
///
/// An IP object must not give remote pods access to addresses that only this host may reach, such as its
/// loopback address or the metadata service of a cloud.
///
/// # Errors
///
/// Returns why the text is refused.
pub fn address(text: &str) -> Result<Ipv4Addr, CidrError> {
    let address = match text.parse() {
        Ok(IpAddr::V4(address)) => address,
        Ok(IpAddr::V6(_)) => return Err(CidrError::Ipv6(text.to_owned())),
        Err(_) => return Err(CidrError::NotAnAddress(text.to_owned())),
    };
    let reserved = UNROUTABLE.into_iter().find(|net| net.contains(&address));

    reserved.map_or(Ok(address), |reserved| {
        Err(CidrError::UnroutableAddress { address, reserved })
    })
}

/// Returns whether packets to an address may be routed between clusters.
pub fn is_routable(address: Ipv4Addr) -> bool {
    !UNROUTABLE.iter().any(|net| net.contains(&address))
}

/// Returns whether two CIDRs have an address in common.
pub fn overlaps(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Returns whether a text is a cluster ID: a label of DNS (RFC 1123) in lower case.
pub fn is_cluster_id(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';

    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns whether a text is an address or a host name (RFC 1123, with underscores).
pub fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = || {
        let name = text.strip_suffix('.').unwrap_or(text);
        // A name of digits and dots would be a mistyped address.
        name.len() <= 253
            && name.split('.').all(is_label)
            && name.bytes().any(|byte| byte.is_ascii_alphabetic())
    };

    text.parse::<IpAddr>().is_ok() || is_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cidr_must_be_of_ipv4_without_host_bits_and_routable() {
        let problem = |text| cidr(text).unwrap_err();

        assert!(cidr("10.244.0.0/16").is_ok());
        assert!(matches!(
            problem("10.244.0.1/16"),
            CidrError::HostBits { .. }
        ));
        assert!(matches!(problem("fd00::/64"), CidrError::Ipv6(_)));
        assert!(matches!(problem("10.244.0.0"), CidrError::NotACidr(_)));
        assert!(matches!(problem("10.244.0.0/33"), CidrError::NotACidr(_)));
        for text in [
            "0.0.0.0/0",
            "127.0.0.0/8",
            "169.254.18.0/24",
            "239.1.0.0/16",
        ] {
            assert!(
                matches!(problem(text), CidrError::Unroutable { .. }),
                "{text}"
            );
        }
    }

    #[test]
    fn the_probe_network_may_be_link_local_and_has_an_address_for_each_replica() {
        let problem = |text| probe_network(text).unwrap_err();

        assert!(probe_network("169.254.19.0/24").is_ok());
        assert!(probe_network("10.0.0.0/8").is_ok());
        assert!(matches!(
            problem("169.254.19.0/25"),
            CidrError::TooSmall { .. }
        ));
        assert!(matches!(
            problem("169.254.19.1/24"),
            CidrError::HostBits { .. }
        ));
        assert!(matches!(problem("169.254.19.0"), CidrError::NotACidr(_)));
        assert!(matches!(problem("fe80::/64"), CidrError::Ipv6(_)));
    }

    #[test]
    fn an_address_must_be_of_ipv4_and_routable() {
        assert!(address("192.0.2.9").is_ok());
        for text in ["", "10.0.0", "::1", "127.0.0.1", "224.0.0.1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cluster_id_is_a_label_of_dns() {
        for id in ["rome", "a", "7-x", &"a".repeat(63)] {
            assert!(is_cluster_id(id), "{id}");
        }
        for id in ["", "Rome", "-a", "a-", "a.b", "a_b", &"a".repeat(64)] {
            assert!(!is_cluster_id(id), "{id}");
        }
    }

    #[test]
    fn a_host_is_an_address_or_a_name() {
        for text in ["192.0.2.1", "2001:db8::1", "gw", "a-b.example.org."] {
            assert!(is_host(text), "{text}");
        }
        for text in [
            "",
            "-a",
            "a..b",
            "192.0.2.256",
            "a b",
            "gw:51840",
            "host/path",
        ] {
            assert!(!is_host(text), "{text}");
        }
    }
}
