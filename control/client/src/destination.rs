//! Addresses that this process connects to on behalf of a peer.
//!
//! A peer writes the address of its API server, or the name that resolves to it. The address must not be one by which this
//! process reaches itself, its node, or the credentials of its cloud.

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;
use tower::Service;

/// Address of the metadata service of AWS in IPv6; that in IPv4 is link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

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
                    || address.octets()[0] == 0)
            }
            (Self::Remote, IpAddr::V6(address)) => {
                !(address.is_loopback()
                    || address.is_unicast_link_local()
                    || address.is_unspecified()
                    || address.is_multicast()
                    || address == METADATA)
            }
        }
    }

    /// Returns whether a transport may connect to the host of a URL. Names are checked when they are resolved.
    pub fn permits_host(self, host: &str) -> bool {
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        literal
            .parse()
            .map_or(true, |address| self.permits(address))
    }
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
        ] {
            assert!(
                Destinations::Remote.permits(address.parse().unwrap()),
                "{address}"
            );
        }
        assert!(!Destinations::Remote.permits_host("[::1]"));
        assert!(Destinations::Remote.permits_host("example.com"));
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_at_each_connection() {
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
