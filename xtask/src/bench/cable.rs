//! The network between two tunnel ends: one pair of virtual Ethernet devices.
//!
//! ```text
//! near eth0 ------ eth0 far        MTU 1500
//! ```

use super::metric::Underlay;
use ::tests::lab::Identity;
use ::tests::lab::link::{End, connect, ip};
use ::tests::lab::netns::Netns;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Two namespaces that reach each other.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    /// The client's.
    pub(super) near: Netns,
    /// The server's.
    pub(super) far: Netns,
}

impl Cable {
    /// Lays the cable.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a part of it.
    pub(super) fn lay(identity: &Arc<Identity>, underlay: Underlay) -> Result<Self> {
        let cable = Self {
            near: Netns::create(identity, "near")?,
            far: Netns::create(identity, "far")?,
        };
        let [near, far] = [&cable.near, &cable.far].map(|netns| End {
            netns,
            device: DEVICE,
        });
        connect(near, far, MTU)?;

        for (end, address) in [(near, NEAR), (far, FAR)] {
            if underlay == Underlay::Nouso {
                without_segmentation(end)?;
            }
            ip(
                end.netns,
                &[
                    format!("addr add {address}/24 dev {DEVICE}"),
                    format!("link set dev {DEVICE} up"),
                ],
            )?;
        }
        Ok(cable)
    }
}

/// The client's address.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);

/// The server's address.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 2);

const DEVICE: &str = "eth0";

const MTU: u32 = 1500;

/// Makes the kernel cut what it sends, and the receiving kernel join what arrives.
///
/// A receiving veth joins only what comes from one that cannot segment TCP either
/// (`veth_skb_is_eligible_for_gro`), so that goes, too.
///
/// # Errors
///
/// Returns an error if the device does not take it.
pub(super) fn without_segmentation(end: End<'_>) -> Result<()> {
    let features = [
        ("tx-udp-segmentation", "off"),
        ("tso", "off"),
        ("gro", "on"),
    ];
    let mut arguments = vec!["-K", end.device];
    arguments.extend(features.iter().flat_map(|(name, value)| [*name, *value]));
    end.netns.exec("ethtool", &arguments, "")?;

    Ok(())
}
