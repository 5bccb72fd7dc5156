//! Faults of networks: impaired uplinks and disconnected pods.
//!
//! The faults of nodes and components are in [`Node`](crate::node::Node) and
//! [`control`](crate::node::control).

mod nat;
mod pod;
mod relay;

pub use ::tests::fault::relay::Faults;
pub use pod::set_pod_network;
pub use relay::run as run_relay;

use crate::cluster::Cluster;
use crate::host::ip;
use crate::underlay::{DEVICE, NETNS, Underlay, bridge, node_netns};
use anyhow::{Context as _, Result};
use std::time::Duration;

/// The network link between a cluster and the underlay.
#[derive(Clone, Debug, PartialEq)]
pub enum Uplink {
    /// A link without faults.
    Plain,
    /// No link: the cluster is disconnected.
    Down,
    /// A link that loses, delays or duplicates frames.
    Relay {
        /// The faults of the frames in each direction.
        faults: Faults,
        /// The numbers of the remote clusters with affected traffic. If the list is empty, all
        /// traffic is affected.
        towards: Vec<u8>,
    },
    /// A router with source NAT. Other clusters cannot reach the cluster, and receive its packets
    /// from the router's address. The machine reaches the cluster without NAT.
    Nat {
        /// The time-out of an idle UDP flow, in whole seconds.
        udp_timeout: Duration,
    },
}

/// Replaces the uplink of a cluster.
///
/// # Errors
///
/// Returns an error if the kernel refuses a change.
pub fn set_uplink(cluster: &Cluster, uplink: &Uplink) -> Result<()> {
    let underlay = Underlay::existing()?.context("the underlay is gone: run `up` again")?;
    let number = cluster.number;
    clear(underlay, number);
    match uplink {
        Uplink::Plain => underlay.connect(number)?,
        Uplink::Down => {}
        Uplink::Relay { faults, towards } => relay::start(cluster, *faults, towards)?,
        Uplink::Nat { udp_timeout } => nat::start(underlay, cluster, *udp_timeout)?,
    }
    flush_neighbours()
}

/// Restores the plain uplink of the cluster with this number, if it is missing. Returns whether the
/// uplink was missing.
///
/// # Errors
///
/// Returns an error if the kernel refuses.
pub(crate) fn restore(underlay: Underlay, number: u8) -> Result<bool> {
    if underlay.is_connected(number) {
        return Ok(false);
    }
    clear(underlay, number);
    underlay.connect(number)?;

    Ok(true)
}

/// Removes the uplink of the cluster with this number. The uplink may be of any kind.
pub fn clear(underlay: Underlay, number: u8) {
    relay::stop(number);
    nat::stop(number);
    // Each kind of uplink has other devices, so the removal of some devices fails.
    let _ = underlay.disconnect(number);
    let _ = ip(Some(NETNS), &[format!("link delete dn{number}")]);
}

/// Returns the `ip` commands that create two pairs of devices. The pairs replace the single pair of
/// a plain uplink. Also returns the two ends between which a relay or a router is inserted.
fn split(number: u8, netns: &str) -> ([String; 4], [String; 2]) {
    let [near, far] = ["ru", "rd"].map(|end| format!("{end}{number}"));
    let commands = [
        format!("link add up{number} type veth peer name {near} netns {netns}"),
        format!("link add dn{number} type veth peer name {far} netns {netns}"),
        format!("link set up{number} master br0 up"),
        format!("link set dn{number} master {} up", bridge(number)),
    ];
    (commands, [near, far])
}

/// Flushes neighbour caches. A NAT router replies to ARP requests for nodes with its own MAC
/// address, so entries become invalid when the router is inserted or removed.
fn flush_neighbours() -> Result<()> {
    ip(None, &[format!("neighbour flush dev {DEVICE}")])?;
    for cluster in Cluster::all()? {
        for node in cluster.nodes().iter().filter(|node| node.pid().is_some()) {
            ip(
                Some(&node_netns(node.name())),
                &["neighbour flush dev eth0"],
            )?;
        }
    }

    Ok(())
}
