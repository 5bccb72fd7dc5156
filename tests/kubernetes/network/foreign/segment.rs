//! Hosts that belong to no cluster, on the Ethernet segment of the nodes.

use anyhow::{Context as _, Result};
use kubernetes_lab::suite;
use kubernetes_lab::underlay::{NETNS, Underlay};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tests::lab::Identity;
use tests::lab::link::ip;
use tests::lab::netns::Netns;
use tests::lab::underlay::Host;

/// The third octet of these hosts' addresses. Clusters have 1 to 250, NAT routers have 254, and the
/// machine has 255.
const NET: u8 = 253;

/// The last octet of the next host's address. An octet is never used again, since neighbour caches
/// may hold the MAC address of the earlier host.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// The owner of the hosts. Dropping this value removes the hosts.
pub(crate) struct Segment(Arc<Identity>);

impl Segment {
    pub(crate) fn claim() -> Result<Self> {
        Ok(Self(Identity::claim()?))
    }

    /// Returns the owner of the hosts' files and network namespaces.
    pub(crate) fn identity(&self) -> &Identity {
        &self.0
    }

    pub(crate) fn host(&self) -> Result<Host> {
        let underlay = Underlay::existing()?.context("there is no underlay")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [a, b, ..] = underlay.net().addr().octets();
        let address = Ipv4Addr::new(a, b, NET, number);
        let mac = format!("02:42:{a:02x}:{b:02x}:{NET:02x}:{number:02x}");
        let port = format!("x{number}");
        let netns = Netns::create(&self.0, &format!("host-{number}"))?;

        // The device of an earlier run may still exist, because the kernel removes veth devices
        // with a delay.
        let _ = suite::machine("ip", &["-n", NETNS, "link", "delete", &port]);
        let words = ["-n", NETNS, "link", "add", &port, "type", "veth", "peer"];
        let peer = ["name", "eth0", "address", &mac, "netns", netns.name()];
        suite::machine("ip", &[words.as_slice(), &peer].concat())?;
        let words = ["-n", NETNS, "link", "set", &port, "master", "br0", "up"];
        suite::machine("ip", &words)?;
        ip(
            &netns,
            &[
                "link set dev lo up".to_owned(),
                format!("addr add {address}/16 dev eth0"),
                "link set dev eth0 up".to_owned(),
            ],
        )?;

        Ok(Host { netns, address })
    }
}
