//! Encoding of the netlink messages RTM_NEWNEXTHOP, RTM_DELNEXTHOP and RTM_GETNEXTHOP.
//!
//! ```text
//! nlmsghdr | nhmsg: family u8, scope u8, protocol u8, 0 u8, flags u32 | attributes
//!
//! NHA_ID u32
//! a hop:   NHA_OIF u32, NHA_ENCAP_TYPE u16 = LWTUNNEL_ENCAP_IP,
//!          NHA_ENCAP { LWTUNNEL_IP_ID be64, LWTUNNEL_IP_DST be32, LWTUNNEL_IP_SRC be32 }
//! a group: NHA_GROUP [{ id u32, weight - 1 u8, 0 u8, 0 u16 }]
//! ```
//! The numbers are those of `linux/nexthop.h`, `linux/lwtunnel.h` and `linux/rtnetlink.h`.

use crate::state::Hop;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NLA_F_NESTED, NetlinkDeserializable, NetlinkHeader,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;

const LWTUNNEL_ENCAP_IP: u16 = 2;
const LWTUNNEL_IP_ID: u16 = 1;
const LWTUNNEL_IP_DST: u16 = 2;
const LWTUNNEL_IP_SRC: u16 = 3;

/// Length of `struct nhmsg` in bytes.
const HEADER_LEN: usize = 8;
/// Length of `struct nexthop_grp` in bytes.
const MEMBER_LEN: usize = 8;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Request to create or replace a nexthop. In a response or notification, the message describes
    /// an existing nexthop.
    New(Nexthop),
    /// Request to delete a nexthop. In a notification, the message reports a deleted nexthop.
    Delete(Nexthop),
    /// Request to list all nexthops.
    Get,
}

/// A nexthop object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nexthop {
    /// Id, unique in the network namespace.
    pub(crate) id: u32,
    /// Routing protocol number of the program that created the nexthop.
    pub(crate) protocol: u8,
    /// Content of the nexthop. `None` if the nexthop is neither a group nor has IP encapsulation.
    pub(crate) target: Option<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A single nexthop with IP encapsulation (lwtunnel).
    Hop {
        hop: Hop,
        /// Interface index of the VXLAN device that encapsulates the packets.
        device: u32,
    },
    /// Ids of the hops in the group. The kernel selects one of them for a packet by a hash of the
    /// packet's header fields.
    Group(BTreeSet<u32>),
}

impl Nexthop {
    fn header(&self) -> [u8; HEADER_LEN] {
        let family = match self.target {
            Some(Target::Hop { .. }) => AF_INET,
            Some(Target::Group(_)) | None => AF_UNSPEC,
        };

        [family, 0, self.protocol, 0, 0, 0, 0, 0]
    }

    fn attributes(&self) -> Vec<DefaultNla> {
        let mut attributes = vec![DefaultNla::new(NHA_ID, self.id.to_ne_bytes().to_vec())];
        match &self.target {
            None => {}
            Some(Target::Group(members)) => {
                let members = members.iter().flat_map(|id| {
                    let [a, b, c, d] = id.to_ne_bytes();
                    [a, b, c, d, 0, 0, 0, 0]
                });
                attributes.push(DefaultNla::new(NHA_GROUP, members.collect()));
            }
            Some(Target::Hop { hop, device }) => attributes.extend([
                DefaultNla::new(NHA_OIF, device.to_ne_bytes().to_vec()),
                DefaultNla::new(NHA_ENCAP_TYPE, LWTUNNEL_ENCAP_IP.to_ne_bytes().to_vec()),
                DefaultNla::new(NHA_ENCAP | NLA_F_NESTED, encap(hop)),
            ]),
        }

        attributes
    }

    /// Parses the payload that follows a netlink header.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let too_small = || DecodeError::buffer_too_small(payload.len(), HEADER_LEN);
        let (header, attributes) = payload
            .split_first_chunk::<HEADER_LEN>()
            .ok_or_else(too_small)?;

        let mut nexthop = Self {
            id: 0,
            protocol: header[2],
            target: None,
        };
        let (mut device, mut hop) = (None, None);
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            match attribute.kind() {
                NHA_ID => nexthop.id = u32_of(attribute.value()).unwrap_or_default(),
                NHA_OIF => device = u32_of(attribute.value()),
                NHA_ENCAP => hop = Some(parse_encap(attribute.value())?),
                NHA_GROUP => nexthop.target = Some(Target::Group(members(attribute.value()))),
                _ => {}
            }
        }
        if let (Some(device), Some(hop)) = (device, hop) {
            nexthop.target = Some(Target::Hop { hop, device });
        }

        Ok(nexthop)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Self::New(_) => RTM_NEWNEXTHOP,
            Self::Delete(_) => RTM_DELNEXTHOP,
            Self::Get => RTM_GETNEXTHOP,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::New(nexthop) | Self::Delete(nexthop) => {
                HEADER_LEN + nexthop.attributes().as_slice().buffer_len()
            }
            Self::Get => HEADER_LEN,
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(HEADER_LEN);
        match self {
            Self::New(nexthop) | Self::Delete(nexthop) => {
                header.copy_from_slice(&nexthop.header());
                nexthop.attributes().as_slice().emit(attributes);
            }
            Self::Get => header.fill(0),
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        match header.message_type {
            RTM_NEWNEXTHOP => Nexthop::parse(payload).map(Self::New),
            RTM_DELNEXTHOP => Nexthop::parse(payload).map(Self::Delete),
            other => Err(DecodeError::from(format!(
                "message type {other} is no nexthop message"
            ))),
        }
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

fn encap(hop: &Hop) -> Vec<u8> {
    let attributes = [
        DefaultNla::new(LWTUNNEL_IP_ID, u64::from(hop.vni).to_be_bytes().to_vec()),
        DefaultNla::new(LWTUNNEL_IP_DST, hop.dst.octets().to_vec()),
        DefaultNla::new(LWTUNNEL_IP_SRC, hop.src.octets().to_vec()),
    ];
    let attributes = attributes.as_slice();
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);

    bytes
}

fn parse_encap(payload: &[u8]) -> Result<Hop, DecodeError> {
    let mut hop = Hop::UNKNOWN;
    for attribute in NlasIterator::new(payload) {
        let attribute = attribute?;
        match attribute.kind() {
            LWTUNNEL_IP_ID => {
                let id = attribute.value().try_into().map(u64::from_be_bytes);
                hop.vni = id.unwrap_or_default().try_into().unwrap_or_default();
            }
            LWTUNNEL_IP_DST => hop.dst = address(attribute.value()),
            LWTUNNEL_IP_SRC => hop.src = address(attribute.value()),
            _ => {}
        }
    }

    Ok(hop)
}

fn members(payload: &[u8]) -> BTreeSet<u32> {
    let (members, _) = payload.as_chunks::<MEMBER_LEN>();
    members
        .iter()
        .map(|[a, b, c, d, ..]| u32::from_ne_bytes([*a, *b, *c, *d]))
        .collect()
}

fn u32_of(payload: &[u8]) -> Option<u32> {
    payload.try_into().map(u32::from_ne_bytes).ok()
}

fn address(payload: &[u8]) -> Ipv4Addr {
    <[u8; 4]>::try_from(payload)
        .map(Ipv4Addr::from)
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
}

#[cfg(test)]
mod tests;
