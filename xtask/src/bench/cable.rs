//! The underlay of a tunnel: a client namespace and a server namespace, connected by a veth pair.
//!
//! ```text
//! client eth0 ------ eth0 server        MTU 1500 or 9000
//! ```

use super::metric::Underlay;
use ::tests::lab::Identity;
use ::tests::lab::link::{End, connect, ip, without_segmentation};
use ::tests::lab::netns::Netns;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Two network namespaces that are connected by a veth pair.
#[derive(Clone, Debug)]
pub(super) struct Cable {
    /// The namespace of the measuring client, for instance `iperf3 --client`.
    pub(super) client: Netns,
    /// The namespace of the measuring server.
    pub(super) server: Netns,
}

impl Cable {
    /// Creates the namespaces and the veth pair.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a namespace or a device.
    pub(super) fn new(identity: &Arc<Identity>, underlay: Underlay) -> Result<Self> {
        let cable = Self {
            client: Netns::create(identity, "client")?,
            server: Netns::create(identity, "server")?,
        };
        let [client, server] = [&cable.client, &cable.server].map(|netns| End {
            netns,
            device: DEVICE,
        });
        connect(client, server, underlay.mtu().into())?;

        for (end, address) in [(client, CLIENT), (server, SERVER)] {
            if underlay.is_segmented() {
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

/// The client's address on the underlay.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);

/// The server's address on the underlay.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 2);

const DEVICE: &str = "eth0";
