//! Encoding of the netlink messages of connection tracking.
//!
//! ```text
//! nlmsghdr | nfgenmsg: family u8, version u8, res_id be16 | attributes
//!
//! dump:   CTA_TUPLE_ORIG { CTA_TUPLE_IP { CTA_IP_V4_DST be32 } }, CTA_FILTER { CTA_FILTER_ORIG_FLAGS u32 }
//! entry:  CTA_TUPLE_ORIG, CTA_TUPLE_REPLY { .. }, CTA_STATUS be32, CTA_ZONE be16, ..
//! tuple:  CTA_TUPLE_IP { CTA_IP_V4_SRC be32, CTA_IP_V4_DST be32 },
//!         CTA_TUPLE_PROTO { CTA_PROTO_NUM u8, CTA_PROTO_SRC_PORT be16, CTA_PROTO_DST_PORT be16 }
//! delete: CTA_TUPLE_ORIG and CTA_ZONE of the entry
//! ```
//! The numbers are those of `linux/netfilter/nfnetlink_conntrack.h`.

use crate::gro::{Flow, Tuple};
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NLA_F_NESTED, NLA_TYPE_MASK, NetlinkDeserializable,
    NetlinkHeader, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use std::net::Ipv4Addr;

/// `NFNL_SUBSYS_CTNETLINK << 8`, to which `IPCTNL_MSG_CT_*` are added.
const SUBSYSTEM: u16 = 1 << 8;
const CT_NEW: u16 = SUBSYSTEM;
const CT_GET: u16 = SUBSYSTEM | 1;
const CT_DELETE: u16 = SUBSYSTEM | 2;

/// `struct nfgenmsg` of AF_INET.
const HEADER: [u8; 4] = [2, 0, 0, 0];

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_ZONE: u16 = 18;
const CTA_FILTER: u16 = 25;

const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;

const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;

const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const CTA_FILTER_REPLY_FLAGS: u16 = 2;
/// The filter compares the source (`CTA_FILTER_F_CTA_IP_SRC` of `net/netfilter/nf_internals.h`).
const BY_SOURCE: u32 = 1 << 0;
/// The filter compares the destination (`CTA_FILTER_F_CTA_IP_DST`).
const BY_DESTINATION: u32 = 1 << 1;

/// Bit of `CTA_STATUS`: the flow has packets in both directions (`IPS_ASSURED` of
/// `linux/netfilter/nf_conntrack_common.h`).
const ASSURED: u32 = 1 << 2;

/// The flows of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Flows that this address has initiated.
    From(Ipv4Addr),
    /// Flows to this address, before translation.
    To(Ipv4Addr),
    /// Flows that this address replies to: flows to it, after translation.
    RepliesFrom(Ipv4Addr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Request to list entries.
    Dump(Selection),
    /// An entry in a list.
    Entry(Entry),
    /// Request to delete an entry.
    Delete(Entry),
}

/// An entry of connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Both directions, if the protocol has ports.
    pub(super) flow: Option<Flow>,
    /// Destination of the flow before translation.
    pub(super) destination: Option<Ipv4Addr>,
    /// Destination of the flow after translation, which is the source of its replies.
    pub(super) translated: Option<Ipv4Addr>,
    /// Value of `CTA_TUPLE_ORIG`.
    original: Vec<u8>,
    /// Value of `CTA_ZONE`, which the default zone lacks.
    zone: Option<Vec<u8>>,
}

impl Message {
    fn attributes(&self) -> Vec<DefaultNla> {
        match self {
            Self::Dump(selection) => selection.attributes(),
            Self::Entry(entry) | Self::Delete(entry) => {
                let zone = entry.zone.clone();
                let zone = zone.map(|zone| DefaultNla::new(CTA_ZONE, zone));
                let tuple = nested(CTA_TUPLE_ORIG, entry.original.clone());
                [tuple].into_iter().chain(zone).collect()
            }
        }
    }
}

impl Selection {
    fn attributes(self) -> Vec<DefaultNla> {
        let original = (CTA_TUPLE_ORIG, CTA_FILTER_ORIG_FLAGS);
        let reply = (CTA_TUPLE_REPLY, CTA_FILTER_REPLY_FLAGS);
        let ((tuple, filter), (kind, flag), address) = match self {
            Self::From(address) => (original, (CTA_IP_V4_SRC, BY_SOURCE), address),
            Self::To(address) => (original, (CTA_IP_V4_DST, BY_DESTINATION), address),
            Self::RepliesFrom(address) => (reply, (CTA_IP_V4_SRC, BY_SOURCE), address),
        };
        let address = DefaultNla::new(kind, address.octets().to_vec());
        let addresses = nested(CTA_TUPLE_IP, bytes(&address));
        let flags = DefaultNla::new(filter, flag.to_ne_bytes().to_vec());

        vec![
            nested(tuple, bytes(&addresses)),
            nested(CTA_FILTER, bytes(&flags)),
        ]
    }
}

fn nested(kind: u16, value: Vec<u8>) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

fn bytes(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);

    bytes
}

/// Returns the value of the attribute of a kind.
fn find(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).filter_map(Result::ok);
    let found = attributes.find(|it| it.kind() & NLA_TYPE_MASK == kind)?;

    Some(found.value().to_vec())
}

/// Returns an address of a tuple.
fn address(tuple: &[u8], kind: u16) -> Option<Ipv4Addr> {
    let value = find(&find(tuple, CTA_TUPLE_IP)?, kind)?;

    <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
}

fn tuple(tuple: &[u8]) -> Option<Tuple> {
    let protocol = find(tuple, CTA_TUPLE_PROTO)?;
    let port = find(&protocol, CTA_PROTO_DST_PORT)?;

    Some(Tuple {
        protocol: *find(&protocol, CTA_PROTO_NUM)?.first()?,
        source: address(tuple, CTA_IP_V4_SRC)?,
        destination: address(tuple, CTA_IP_V4_DST)?,
        destination_port: u16::from_be_bytes(port.try_into().ok()?),
    })
}

/// Returns both directions of a flow.
fn flow(attributes: &[u8], original: &[u8], reply: &[u8]) -> Option<Flow> {
    let status = find(attributes, CTA_STATUS)?.try_into().ok()?;

    Some(Flow {
        original: tuple(original)?,
        reply: tuple(reply)?,
        is_assured: u32::from_be_bytes(status) & ASSURED != 0,
    })
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Self::Dump(_) => CT_GET,
            Self::Entry(_) => CT_NEW,
            Self::Delete(_) => CT_DELETE,
        }
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

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        if header.message_type != CT_NEW {
            return Err("unexpected message of connection tracking".into());
        }
        let too_small = || DecodeError::buffer_too_small(payload.len(), HEADER.len());
        let attributes = payload.get(HEADER.len()..).ok_or_else(too_small)?;
        let original = find(attributes, CTA_TUPLE_ORIG).unwrap_or_default();
        let reply = find(attributes, CTA_TUPLE_REPLY).unwrap_or_default();

        Ok(Self::Entry(Entry {
            flow: flow(attributes, &original, &reply),
            destination: address(&original, CTA_IP_V4_DST),
            translated: address(&reply, CTA_IP_V4_SRC),
            original,
            zone: find(attributes, CTA_ZONE),
        }))
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}
