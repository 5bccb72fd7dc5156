//! CIDRs and addresses, as users write them.

use super::error::Problem;
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

/// Reads a CIDR that the fabric can route.
pub(super) fn cidr(text: &str) -> Result<Ipv4Net, Problem> {
    let value = || text.to_owned();
    let net: IpNet = text
        .parse()
        .map_err(|_| Problem::NotACidr { value: value() })?;
    let IpNet::V4(cidr) = net else {
        return Err(Problem::Ipv6 { value: value() });
    };
    if cidr != cidr.trunc() {
        return Err(Problem::HostBits { cidr });
    }
    for reserved in UNROUTABLE {
        if reserved.contains(&cidr) || cidr.contains(&reserved) {
            return Err(Problem::Unroutable { cidr, reserved });
        }
    }

    Ok(cidr)
}

/// Reads an IPv4 address that the fabric can route.
///
/// A mapped one, above all, must not lead remote pods to what only this host may talk to:
/// its loopback, a cloud's metadata service.
pub(super) fn address(text: &str) -> Result<Ipv4Addr, Problem> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => {
            let reserved = UNROUTABLE.into_iter().find(|net| net.contains(&address));
            reserved.map_or(Ok(address), |reserved| {
                Err(Problem::UnroutableAddress { address, reserved })
            })
        }
        Ok(IpAddr::V6(_)) => Err(Problem::Ipv6 {
            value: text.to_owned(),
        }),
        Err(_) => Err(Problem::NotAnAddress {
            value: text.to_owned(),
        }),
    }
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
        assert!(matches!(problem("10.244.0.1/16"), Problem::HostBits { .. }));
        assert!(matches!(problem("fd00::/64"), Problem::Ipv6 { .. }));
        assert!(matches!(problem("10.244.0.0"), Problem::NotACidr { .. }));
        assert!(matches!(problem("10.244.0.0/33"), Problem::NotACidr { .. }));
        for text in [
            "0.0.0.0/0",
            "127.0.0.0/8",
            "169.254.18.0/24",
            "239.1.0.0/16",
        ] {
            assert!(
                matches!(problem(text), Problem::Unroutable { .. }),
                "{text}"
            );
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
