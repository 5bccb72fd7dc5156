//! The two headers before each packet on the TAP: virtio_net_hdr and Ethernet.
//!
//! In frames from the engine, the source MAC address contains the index of the peer. In frames to
//! the engine, the destination MAC address contains it.

use super::vnet;
use ebpf_common::settings::Settings;

/// Length of an Ethernet header in bytes.
pub(crate) const ETHERNET: usize = 14;

/// Length of virtio_net_hdr and Ethernet header together, in bytes.
pub(crate) const HEADROOM: usize = vnet::LEN + ETHERNET;

/// Maximum length of an IPv4 packet or super-packet, in bytes.
pub(crate) const PACKET_MAX: usize = 65_535;

/// Maximum length of a frame, in bytes.
pub(crate) const FRAME_MAX: usize = HEADROOM + PACKET_MAX;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];

/// Writes the Ethernet header of a packet from `peer` into the frame.
///
/// # Panics
///
/// Panics if `frame` is shorter than [`HEADROOM`].
pub(crate) fn write_ethernet(frame: &mut [u8], settings: &Settings, peer: u16) {
    frame[vnet::LEN..vnet::LEN + 6].copy_from_slice(&settings.node_mac);
    frame[vnet::LEN + 6..vnet::LEN + 12].copy_from_slice(&settings.peer_mac(peer));
    frame[vnet::LEN + 12..HEADROOM].copy_from_slice(&ETHERTYPE_IPV4);
}

/// Returns the index of the peer, which is part of the destination MAC address.
///
/// Returns `None` for frames that do not come from the gateway's eBPF programs, such as ARP
/// requests of the kernel.
pub(crate) fn destination(frame: &[u8], settings: &Settings) -> Option<u16> {
    let ethernet = frame.get(vnet::LEN..HEADROOM)?;
    if ethernet[12..14] != ETHERTYPE_IPV4 {
        return None;
    }

    settings.peer_of_mac(*ethernet.first_chunk()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_index_is_in_the_destination_address() {
        let settings = Settings::default();
        let mut frame = [0; HEADROOM];
        write_ethernet(&mut frame, &settings, 0x1234);
        assert_eq!(destination(&frame, &settings), None, "MAC of the node");

        frame[vnet::LEN..vnet::LEN + 6].copy_from_slice(&settings.peer_mac(0x1234));
        assert_eq!(destination(&frame, &settings), Some(0x1234));
        assert_eq!(destination(&frame[..HEADROOM - 1], &settings), None);

        frame[vnet::LEN + 13] = 0x06;
        assert_eq!(destination(&frame, &settings), None, "ARP");
    }
}
