//! Addresses that lead into a tunnel: none of them is ever an outer one.
//!
//! Remote clusters are seen here under prefixes, and what is sent to such a prefix
//! goes through a tunnel. A peer can send us, through its own tunnel, a packet that
//! holds one of its own data messages. If its session followed that message's source,
//! every datagram to the peer would come back to be sealed again, longer each time,
//! for ever.

use super::Engine;
use super::drops::Drop;
use super::inner::Sources;
use ipnet::Ipv4Net;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The prefixes under which remote clusters are seen here; cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnelled(Arc<Sources>);

impl Tunnelled {
    pub(super) fn new(nets: &[Ipv4Net]) -> Self {
        Self(Arc::new(Sources::new(nets)))
    }

    /// Returns whether what is sent to `address` goes through a tunnel. In whichever
    /// family an IPv4 address is written, it is the same one.
    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => self.0.contains(ip.to_bits()),
            IpAddr::V6(_) => false,
        }
    }
}

impl Engine {
    /// Tells the prefixes that lead into tunnels. As no peer is there, nothing is
    /// accepted from or sent to an address in one of them; so this comes before
    /// [`Engine::set_peers`].
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
        let strayed: Vec<_> = self
            .sessions
            .iter()
            .filter(|session| self.tunnelled.contains(session.endpoint))
            .map(|session| session.id)
            .collect();
        for id in strayed {
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
