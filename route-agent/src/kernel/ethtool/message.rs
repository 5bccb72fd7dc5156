//! Encoding of the messages of generic netlink and of the family `ethtool`.
//!
//! ```text
//! nlmsghdr | genlmsghdr: cmd u8, version u8, reserved u16 | attributes
//!
//! get family:   CTRL_ATTR_FAMILY_NAME string        response: CTRL_ATTR_FAMILY_ID u16, ..
//! get features: ETHTOOL_A_FEATURES_HEADER { ETHTOOL_A_HEADER_DEV_NAME string }
//! features:     ETHTOOL_A_FEATURES_ACTIVE { ETHTOOL_A_BITSET_BITS { ETHTOOL_A_BITSET_BITS_BIT {
//!               ETHTOOL_A_BITSET_BIT_NAME string, .. }, .. }, .. }, ..
//! ```
//! The numbers are those of `linux/genetlink.h` and `linux/ethtool_netlink.h`.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable as _, NLA_F_NESTED, NLA_TYPE_MASK, NetlinkDeserializable,
    NetlinkHeader, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use std::collections::BTreeSet;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// Length of `struct genlmsghdr` in bytes.
const HEADER_LEN: usize = 4;
/// Version of both families.
const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Request for the number of the family `ethtool`.
    GetFamily,
    /// The number of the family.
    Family(u16),
    /// Request for the features of a device.
    GetFeatures {
        /// Number of the family.
        family: u16,
        device: String,
    },
    /// The names of a device's active features.
    Features(BTreeSet<String>),
}

impl Message {
    fn command(&self) -> u8 {
        match self {
            Self::GetFamily | Self::Family(_) => CTRL_CMD_GETFAMILY,
            Self::GetFeatures { .. } | Self::Features(_) => ETHTOOL_MSG_FEATURES_GET,
        }
    }

    fn attributes(&self) -> Vec<DefaultNla> {
        match self {
            Self::GetFamily => vec![text(CTRL_ATTR_FAMILY_NAME, "ethtool")],
            Self::GetFeatures { device, .. } => {
                let name = text(ETHTOOL_A_HEADER_DEV_NAME, device);
                let mut header = vec![0; name.buffer_len()];
                name.emit(&mut header);
                vec![DefaultNla::new(
                    ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED,
                    header,
                )]
            }
            Self::Family(_) | Self::Features(_) => Vec::new(),
        }
    }
}

/// Returns an attribute with a string and the final zero.
fn text(kind: u16, value: &str) -> DefaultNla {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);

    DefaultNla::new(kind, bytes)
}

/// Returns the value of the attribute of a kind.
fn find(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(attributes).filter_map(Result::ok);
    let found = attributes.find(|it| it.kind() & NLA_TYPE_MASK == kind)?;

    Some(found.value().to_vec())
}

/// Returns the names in a bitset without a mask, which lists the set bits only.
fn names(bitset: &[u8]) -> BTreeSet<String> {
    let bits = find(bitset, ETHTOOL_A_BITSET_BITS).unwrap_or_default();
    let bits = NlasIterator::new(bits.as_slice()).filter_map(Result::ok);
    let names = bits.filter_map(|bit| {
        let name = find(bit.value(), ETHTOOL_A_BITSET_BIT_NAME)?;
        let name = name.strip_suffix(b"\0").unwrap_or(&name);
        Some(String::from_utf8_lossy(name).into_owned())
    });

    names.collect()
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        match self {
            Self::GetFamily | Self::Family(_) | Self::Features(_) => GENL_ID_CTRL,
            Self::GetFeatures { family, .. } => *family,
        }
    }

    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes().as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&[self.command(), VERSION, 0, 0]);
        self.attributes().as_slice().emit(attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        let too_small = || DecodeError::buffer_too_small(payload.len(), HEADER_LEN);
        let attributes = payload.get(HEADER_LEN..).ok_or_else(too_small)?;
        if header.message_type == GENL_ID_CTRL {
            let id = find(attributes, CTRL_ATTR_FAMILY_ID);
            let id = id.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
            return id
                .map(Self::Family)
                .ok_or_else(|| "a family without a number".into());
        }
        let active = find(attributes, ETHTOOL_A_FEATURES_ACTIVE).unwrap_or_default();

        Ok(Self::Features(names(&active)))
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}
