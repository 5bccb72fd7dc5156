//! What goes wrong in real life, on purpose.
//!
//! Nodes and their components are killed and stopped by [`Node`](crate::node::Node) and
//! [`control`](crate::node::control); here is what happens to networks.

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

/// What the way between a cluster and everything else does.
#[derive(Clone, Debug, PartialEq)]
pub enum Uplink {
    /// Nothing.
    Plain,
    /// There is none.
    Down,
    /// Frames are lost, late, doubled.
    Relay {
        /// What happens to them.
        faults: Faults,
        /// The numbers of the clusters that this concerns; all of the world if empty.
        towards: Vec<u8>,
    },
    /// The cluster is behind a router that translates addresses: the others cannot reach
    /// it, and see one address when it reaches them. The machine reaches it as before.
    Nat {
        /// After how long a silence a UDP flow is forgotten, in whole seconds.
        udp_timeout: Duration,
    },
}

/// Gives a cluster another uplink, instead of the one that it has.
///
/// # Errors
///
/// Returns an error if the kernel refuses.
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
    forget_neighbours()
}

/// Gives the `number`th cluster its plain uplink, if it has another or none, and tells
/// whether it did.
///
/// # Errors
///
/// Returns an error if the kernel refuses.
pub(crate) fn mend(underlay: Underlay, number: u8) -> Result<bool> {
    if underlay.is_connected(number) {
        return Ok(false);
    }
    clear(underlay, number);
    underlay.connect(number)?;

    Ok(true)
}

/// Removes the uplink of the `number`th cluster, of whatever kind.
pub fn clear(underlay: Underlay, number: u8) {
    relay::stop(number);
    nat::stop(number);
    // There may be none.
    let _ = underlay.disconnect(number);
    let _ = ip(Some(NETNS), &[format!("link delete dn{number}")]);
}

/// The `ip` commands for two pairs of devices instead of the one of a plain uplink, and
/// the ends of both that something is to sit between.
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

/// Nobody may go on with an Ethernet address that now belongs to another.
fn forget_neighbours() -> Result<()> {
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
