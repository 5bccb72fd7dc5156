//! Deletes entries of connection tracking (ctnetlink).
//!
//! The kernel translates the first packet of a flow by the rules of that time, and keeps the translation as long as packets
//! follow. UDP flows with constant ports, such as the end-to-end checks, would thus use a former translation forever.

use crate::kernel::netlink::Error;
use crate::ruleset::Translation;
use futures_util::StreamExt as _;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use rtnetlink::proto;
use rtnetlink::sys::{SocketAddr, protocols::NETLINK_NETFILTER};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const WHAT: &str = "delete entries of connection tracking";
const FEATURE: &str = "ctnetlink (CONFIG_NF_CT_NETLINK)";

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE` of `linux/netfilter/nfnetlink_conntrack.h`.
const CT_DELETE: u16 = 1 << 8 | 2;

/// `struct nfgenmsg`: family AF_INET, version, and `res_id`. From version 1 on, the family is a condition of the deletion.
const HEADER: [u8; 4] = [2, 1, 0, 0];

// Attributes of `linux/netfilter/nfnetlink_conntrack.h`.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_FILTER: u16 = 25;
const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;

/// Flag of `CTA_FILTER_ORIG_FLAGS`: the destination address (`CTA_FILTER_F_CTA_IP_DST` of `net/netfilter/nf_internals.h`).
const ORIG_DST: u32 = 1 << 1;

/// A netlink connection for requests to connection tracking.
pub(crate) struct Handle(proto::ConnectionHandle<Message>);

impl Handle {
    /// Opens the connection. Must be called within a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        let (connection, handle, _) =
            proto::new_connection(NETLINK_NETFILTER).map_err(Error::Socket)?;
        tokio::spawn(connection);

        Ok(Self(handle))
    }

    /// Deletes the entries of all flows to the mapped addresses of these translations. A failure is logged, because new
    /// flows do not depend on it.
    ///
    /// Each deletion walks the kernel's whole table, which takes about 0.3 ms.
    pub(crate) async fn forget(&self, translations: BTreeSet<Translation>) {
        let mapped: BTreeSet<_> = translations.into_iter().map(|(from, _)| from).collect();
        for address in mapped {
            if let Err(error) = delete(self.0.clone(), address).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    error,
                    "flows to mapped addresses that have changed keep the former translation"
                );
                return;
            }
        }
    }
}

async fn delete(
    handle: proto::ConnectionHandle<Message>,
    destination: Ipv4Addr,
) -> Result<(), Error> {
    let mut request = NetlinkMessage::from(Message(destination));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let responses = handle.request(request, SocketAddr::new(0, 0));
    let mut responses = responses.map_err(|error| Error::Protocol {
        what: WHAT,
        reason: error.to_string(),
    })?;
    while let Some(response) = responses.next().await {
        if let NetlinkPayload::Error(error) = &response.payload
            && error.code.is_some()
        {
            return Err(Error::refused(WHAT, FEATURE, error));
        }
    }

    Ok(())
}

/// Request to delete all entries with this original destination:
///
/// ```text
/// nlmsghdr | nfgenmsg | CTA_TUPLE_ORIG { CTA_TUPLE_IP { CTA_IP_V4_DST be32 } }
///                     | CTA_FILTER { CTA_FILTER_ORIG_FLAGS u32 }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message(Ipv4Addr);

impl Message {
    fn attributes(&self) -> [DefaultNla; 2] {
        let address = DefaultNla::new(CTA_IP_V4_DST, self.0.octets().to_vec());
        let addresses = nested(CTA_TUPLE_IP, &address);
        let flags = DefaultNla::new(CTA_FILTER_ORIG_FLAGS, ORIG_DST.to_ne_bytes().to_vec());

        [
            nested(CTA_TUPLE_ORIG, &addresses),
            nested(CTA_FILTER, &flags),
        ]
    }
}

fn nested(kind: u16, inner: &DefaultNla) -> DefaultNla {
    let mut value = vec![0; inner.buffer_len()];
    inner.emit(&mut value);

    DefaultNla::new(kind | NLA_F_NESTED, value)
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        CT_DELETE
    }

    fn buffer_len(&self) -> usize {
        HEADER.len() + self.attributes().as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(HEADER.len());
        header.copy_from_slice(&HEADER);
        self.attributes().as_slice().emit(attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, _: &[u8]) -> Result<Self, Self::Error> {
        // The kernel replies with an acknowledgement or an error only.
        Err("unexpected message of connection tracking".into())
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}
