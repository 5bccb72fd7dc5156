//! Addresses that this process connects to on behalf of a peer.
//!
//! A peer writes the address of its API server, or the name that resolves to it. The address must not be one by which this
//! process reaches itself, its node, or the credentials of its cloud.

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;
use tower::Service;

/// Addresses of the metadata services of clouds that are not link-local: Azure, Alibaba and Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Likewise in IPv6: AWS and Google.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Segments before an IPv4 address that a NAT64 gateway translates (RFC 6052).
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// Addresses that a transport may connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destinations {
    /// All but loopback, link-local, multicast and metadata addresses.
    #[default]
    Remote,
    /// All, for the API server of this process's own cluster, and for tests on one machine.
    Any,
}

impl Destinations {
    /// Returns whether a transport may connect to an address.
    pub fn permits(self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Self::Any, _) => true,
            (Self::Remote, IpAddr::V4(address)) => {
                !(address.is_loopback()
                    || address.is_link_local()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || address.is_broadcast()
                    || METADATA_V4.contains(&address)
                    || address.octets()[0] == 0)
            }
            (Self::Remote, IpAddr::V6(address)) => {
                !(address.is_loopback()
                    || address.is_unicast_link_local()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || METADATA_V6.contains(&address))
                    && embedded(address).is_none_or(|it| self.permits(it.into()))
            }
        }
    }

    /// Returns whether a transport may connect to the host of a URL. Names are checked when they are resolved.
    pub fn permits_host(self, host: &str) -> bool {
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let name = literal.trim_end_matches('.').to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return self == Self::Any; // RFC 6761
        }
        literal
            .parse()
            .map_or(true, |address| self.permits(address))
    }
}

/// Returns the IPv4 address that packets to an address of NAT64 reach.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    let is_nat64 = address.segments().starts_with(&NAT64);

    is_nat64.then(|| Ipv4Addr::new(a, b, c, d))
}

/// Resolves names to the addresses that are permitted. Each connection resolves its name again.
#[derive(Clone)]
pub(crate) struct Resolver {
    inner: GaiResolver,
    destinations: Destinations,
}

impl Resolver {
    pub(crate) fn new(destinations: Destinations) -> Self {
        Self {
            inner: GaiResolver::new(),
            destinations,
        }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let destinations = self.destinations;
        let text = name.as_str().to_owned();
        let resolved = self.inner.call(name);
        Box::pin(async move {
            let all: Vec<_> = resolved.await?.collect();
            let permitted = all.iter().filter(|it| destinations.permits(it.ip()));
            let permitted: Vec<_> = permitted.copied().collect();
            match all.first() {
                Some(first) if permitted.is_empty() => Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "{text} resolves to {}, which is no address of another cluster",
                        first.ip()
                    ),
                )),
                _ => Ok(permitted.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_its_cloud_are_not_those_of_a_peer() {
        let local = [
            "127.0.0.1",
            "127.8.0.1",
            "169.254.169.254",
            "169.254.1.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd20:ce::254",
        ];
        for address in local {
            let address: IpAddr = address.parse().unwrap();
            assert!(!Destinations::Remote.permits(address), "{address}");
            assert!(Destinations::Any.permits(address));
        }
        for address in [
            "10.0.0.1",
            "192.0.2.1",
            "172.18.0.2",
            "2001:db8::1",
            "fd00::1",
            "64:ff9b::c000:201",
        ] {
            assert!(
                Destinations::Remote.permits(address.parse().unwrap()),
                "{address}"
            );
        }
        assert!(!Destinations::Remote.permits_host("[::1]"));
        assert!(Destinations::Remote.permits_host("example.com"));
        assert!(Destinations::Remote.permits_host("localhost.example.com"));
        for name in ["localhost", "LOCALHOST.", "api.localhost"] {
            assert!(!Destinations::Remote.permits_host(name), "{name}");
            assert!(Destinations::Any.permits_host(name));
        }
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_at_each_connection() {
        // Decimal, short and hexadecimal forms of 127.0.0.1 are names for the parser of URLs.
        for name in ["2130706433", "127.1", "0x7f.0.0.1"] {
            let name: Name = name.parse().unwrap();
            let resolved = Resolver::new(Destinations::Remote).call(name.clone());
            assert!(resolved.await.is_err(), "{name}");
        }
        let name: Name = "localhost".parse().unwrap();
        let error = Resolver::new(Destinations::Remote)
            .call(name.clone())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("localhost resolves to"),
            "{error}"
        );
        let resolved = Resolver::new(Destinations::Any).call(name).await.unwrap();
        assert!(resolved.count() > 0);
    }
}
