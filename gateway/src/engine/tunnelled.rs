//! Addresses that are routed into a tunnel. None of them may be an endpoint.
//!
//! Packets to the remapped prefixes of remote clusters are routed into a tunnel. A malicious peer
//! can send one of its own data messages as a packet through its tunnel. If the source of that
//! message became the session's endpoint, every datagram to the peer would be routed into the
//! tunnel again. Each round would encapsulate the datagram once more.

use super::Engine;
use super::drops::Drop;
use super::inner::Sources;
use ipnet::Ipv4Net;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Prefixes to which remote clusters are remapped in this cluster. Clones share the prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnelled(Arc<Sources>);

impl Tunnelled {
    pub(super) fn new(nets: &[Ipv4Net]) -> Self {
        Self(Arc::new(Sources::new(nets)))
    }

    /// Returns whether packets to `address` are routed into a tunnel. An IPv4-mapped IPv6 address
    /// counts as IPv4.
    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => self.0.contains(ip.to_bits()),
            IpAddr::V6(_) => false,
        }
    }
}

impl Engine {
    /// Sets the prefixes that are routed into tunnels. No endpoint may be in these prefixes, so the
    /// engine neither accepts datagrams from them nor sends any to them. The shell calls this
    /// before the first [`Engine::set_peers`].
    pub(crate) fn set_tunnelled(&mut self, nets: &[Ipv4Net]) {
        let tunnelled = Tunnelled::new(nets);
        if tunnelled == self.tunnelled {
            return;
        }

        self.tunnelled = tunnelled;
        for index in self.peers.indices().collect::<Vec<_>>() {
            if let Some(client) = self.peers.get_mut(index).and_then(|p| p.client.as_mut()) {
                client.endpoints.set_tunnelled(self.tunnelled.clone());
            }
        }
        let inside: Vec<_> = self
            .sessions
            .iter()
            .filter(|session| self.tunnelled.contains(session.endpoint))
            .map(|session| session.id)
            .collect();
        for id in inside {
            self.drops.count(Drop::EndpointInsideTunnel);
            self.remove_session(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_either_family() {
        let nets = ["10.101.0.0/16", "10.70.0.9/32"].map(|net| net.parse().unwrap());
        let tunnelled = Tunnelled::new(&nets);
        let contains = |address: &str| tunnelled.contains(address.parse().unwrap());

        for inside in ["10.101.2.3:1", "[::ffff:10.101.2.3]:1", "10.70.0.9:1"] {
            assert!(contains(inside), "{inside}");
        }
        for outside in ["10.102.0.0:1", "10.70.0.8:1", "[2001:db8::a65:203]:1"] {
            assert!(!contains(outside), "{outside}");
        }
    }
}
