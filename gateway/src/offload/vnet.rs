//! `struct virtio_net_hdr`, which precedes each frame of a TAP with `IFF_VNET_HDR`
//! (`include/uapi/linux/virtio_net.h`).
//!
//! ```text
//!  0      1         2        4         6           8            10
//! +------+---------+--------+---------+-----------+------------+
//! | flags| gso_type| hdr_len| gso_size| csum_start| csum_offset|   native byte order
//! +------+---------+--------+---------+-----------+------------+
//! ```

/// Length of the header in bytes.
pub(crate) const LEN: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum of the bytes from `csum_start` on is incomplete.
const NEEDS_CSUM: u8 = 1;

/// `VIRTIO_NET_HDR_F_DATA_VALID`: the kernel has verified the checksum. The gateway ignores this
/// flag.
const DATA_VALID: u8 = 2;

/// `VIRTIO_NET_HDR_GSO_ECN`: the first segment of a TCP super-packet has the flag CWR.
const ECN: u8 = 0x80;

/// The kind of segmentation that a frame needs, from the field `gso_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gso {
    /// A single packet, which needs no segmentation.
    #[default]
    None,
    /// A TCP super-packet over IPv4, with `gso_size` payload bytes in each segment.
    TcpV4 {
        /// Whether the first segment has the flag CWR; later segments never have it (RFC 3168
        /// section 6.1.2).
        ecn: bool,
    },
    /// UDP datagrams with `gso_size` payload bytes each (`UDP_SEGMENT`).
    UdpL4,
}

impl Gso {
    /// Parses `gso_type`; returns `None` for types that the gateway does not support, such as TCP
    /// over IPv6.
    fn parse(value: u8) -> Option<Self> {
        match (value & !ECN, value & ECN != 0) {
            (0, false) => Some(Self::None),
            (1, ecn) => Some(Self::TcpV4 { ecn }),
            (5, false) => Some(Self::UdpL4),
            _ => None,
        }
    }

    fn encode(self) -> u8 {
        match self {
            Self::None => 0,
            Self::TcpV4 { ecn: false } => 1,
            Self::TcpV4 { ecn: true } => 1 | ECN,
            Self::UdpL4 => 5,
        }
    }
}

/// Location of an incomplete checksum, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Offset of the first byte that the checksum covers, from the start of the Ethernet header.
    pub(crate) start: u16,
    /// Offset of the checksum field from `start`.
    pub(crate) offset: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) gso: Gso,
    /// Length of Ethernet, IPv4 and transport header of a super-packet, in bytes. The receiver of
    /// the frame must not rely on this field.
    pub(crate) header_len: u16,
    /// Payload bytes of each segment except the last.
    pub(crate) gso_size: u16,
    /// The checksum that the receiver of the frame must complete; `None` if no checksum is
    /// incomplete.
    pub(crate) partial: Option<Partial>,
}

impl Header {
    /// Parses the header at the start of `frame`; returns `None` if it is truncated, or if its
    /// flags or its type are not supported.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let bytes = frame.first_chunk::<LEN>()?;
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        if bytes[0] & !(NEEDS_CSUM | DATA_VALID) != 0 {
            return None;
        }

        Some(Self {
            gso: Gso::parse(bytes[1])?,
            header_len: word(2),
            gso_size: word(4),
            partial: (bytes[0] & NEEDS_CSUM != 0).then(|| Partial {
                start: word(6),
                offset: word(8),
            }),
        })
    }

    pub(crate) fn encode(self) -> [u8; LEN] {
        let (flags, start, offset) = match self.partial {
            Some(Partial { start, offset }) => (NEEDS_CSUM, start, offset),
            None => (0, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[0] = flags;
        bytes[1] = self.gso.encode();
        for (at, word) in [
            (2, self.header_len),
            (4, self.gso_size),
            (6, start),
            (8, offset),
        ] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ecn_bit_is_not_part_of_the_type() {
        let bytes = [1, 0x81, 66, 0, 0x78, 0x05, 34, 0, 16, 0];

        let header = Header::parse(&bytes).unwrap();

        assert_eq!(header.gso, Gso::TcpV4 { ecn: true });
        assert_eq!(header.encode(), bytes);
    }

    #[test]
    fn an_unsupported_segmentation_type_is_rejected() {
        for gso_type in [3, 4, 0x80, 0x85, 0xff] {
            assert_eq!(Header::parse(&[0, gso_type, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        }
        assert_eq!(Header::parse(&[0; LEN - 1]), None);
    }

    proptest! {
        #[test]
        fn encoding_undoes_parsing(bytes: [u8; LEN]) {
            if let Some(header) = Header::parse(&bytes) {
                prop_assert_eq!(Header::parse(&header.encode()), Some(header));
            }
        }
    }
}
