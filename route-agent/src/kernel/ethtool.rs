//! Reads the features of network devices by generic netlink (Linux 5.7).

use crate::kernel::netlink::{self, Error};
use message::Message;
use rtnetlink::proto;
use rtnetlink::sys::protocols::NETLINK_GENERIC;
use std::collections::BTreeSet;

mod message;

const FEATURE: &str = "the netlink interface of ethtool (Linux 5.7, CONFIG_ETHTOOL_NETLINK)";

/// A connection for requests to the family `ethtool`.
pub(crate) struct Handle {
    connection: proto::ConnectionHandle<Message>,
    /// Number of the family, as the kernel has assigned it.
    family: Option<u16>,
}

impl Handle {
    /// Opens the connection. Must be called within a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        Ok(Self {
            connection: netlink::connect(NETLINK_GENERIC)?,
            family: None,
        })
    }

    /// Returns the names of a device's active features, such as `rx-gro`.
    pub(crate) async fn features(&mut self, device: &str) -> Result<BTreeSet<String>, Error> {
        let family = self.family().await?;
        let request = Message::GetFeatures {
            family,
            device: device.to_owned(),
        };
        let what = ("read the features of a device", FEATURE);
        let responses = netlink::request(&self.connection, what, request, 0).await?;
        let features = responses.into_iter().find_map(|response| match response {
            Message::Features(active) => Some(active),
            Message::GetFamily | Message::Family(_) | Message::GetFeatures { .. } => None,
        });

        Ok(features.unwrap_or_default())
    }

    async fn family(&mut self) -> Result<u16, Error> {
        if let Some(family) = self.family {
            return Ok(family);
        }
        let what = "find the family ethtool";
        let request = netlink::request(&self.connection, (what, FEATURE), Message::GetFamily, 0);
        let responses = request.await?;
        let family = responses.into_iter().find_map(|response| match response {
            Message::Family(id) => Some(id),
            Message::GetFamily | Message::GetFeatures { .. } | Message::Features(_) => None,
        });
        let missing = || Error::Protocol {
            what,
            reason: "the response has no number".to_owned(),
        };
        let family = family.ok_or_else(missing)?;
        self.family = Some(family);

        Ok(family)
    }
}
