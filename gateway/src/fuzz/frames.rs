//! Harness that passes TAP frames, or packets from peers, through the split and coalesce offloads.
//! The input has this format:
//!
//! ```text
//! flags | length, frame with the virtio header | length, frame | ..
//! ```
//! Invariants:
//! - No function panics.
//! - A frame is split only into well-formed packets.
//! - Coalescing neither loses nor adds packets.

use super::input::Input;
use crate::offload::coalesce::Coalescer;
use crate::offload::fragment::Fragments;
use crate::offload::frame::{HEADROOM, PACKET_MAX};
use crate::offload::icmp;
use crate::offload::ipv4::Header;
use crate::offload::split::{SEGMENTS_MAX, Split};
use crate::offload::vnet;
use ebpf_common::settings::Settings;

const PEER: u16 = 7;

/// Flag: the kernel supports segmentation of UDP super-packets.
const UDP: u8 = 1;
/// Flag: the input has packets from a peer, without virtio headers, instead of TAP frames.
const FROM_PEER: u8 = 2;

/// Maximum number of packets per input. More packets only slow the fuzzer down.
const PACKETS_MAX: usize = 1_000;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mtu = input.word();
    let mut packets = Vec::new();
    while !input.is_empty() && packets.len() < PACKETS_MAX {
        let frame = input.chunk();
        if flags & FROM_PEER != 0 {
            packets.push(frame.to_vec());
        } else {
            split(frame, &mut packets);
        }
    }
    packets.truncate(PACKETS_MAX);
    packets.retain(|packet| !packet.is_empty());
    for packet in &packets {
        refuse_or_fragment(packet, mtu);
    }

    let frames = coalesce(&packets, flags & UDP != 0);

    let mut again = Vec::new();
    for frame in &frames {
        let is_whole = vnet::Header::parse(frame).is_some_and(|it| it.gso == vnet::Gso::None);
        if is_whole {
            again.push(frame[HEADROOM..].to_vec());
        } else {
            split(frame, &mut again);
        }
    }
    assert_eq!(sorted(packets), sorted(again));
}

/// Splits a frame into packets, if its header is valid.
fn split(frame: &[u8], packets: &mut Vec<Vec<u8>>) {
    let Some(header) = vnet::Header::parse(frame) else {
        return;
    };
    let Some(packet) = frame.get(HEADROOM..) else {
        return;
    };
    let mut packet = packet.to_vec();
    let Ok(mut split) = Split::new(header, &mut packet) else {
        return;
    };
    for count in 0.. {
        let len = split.segment_len();
        let Some(segment) = split.next() else {
            break;
        };
        assert!(count < SEGMENTS_MAX, "more segments than the limit");
        assert!(segment.len() <= len, "longer than announced");
        let header = Header::parse(segment).expect("a segment has an IPv4 header");
        assert_eq!(usize::from(header.total_len), segment.len());
        if packets.len() < PACKETS_MAX {
            packets.push(segment.to_vec());
        }
    }
}

/// Builds the ICMP error for a packet that exceeds the MTU, and fragments the packet.
fn refuse_or_fragment(packet: &[u8], mtu: u16) {
    let mut out = vec![0; PACKET_MAX];
    if let Some(len) = icmp::too_big(packet, mtu, &mut out[..icmp::LEN_MAX]) {
        assert!(len <= icmp::LEN_MAX);
    }
    if let Some(mut fragments) = Fragments::new(packet, mtu) {
        let mut count = 0;
        while let Some(len) = fragments.next(&mut out) {
            assert!(len <= usize::from(mtu), "longer than the MTU");
            count += 1;
            assert!(count <= PACKET_MAX / 8, "more fragments than bytes");
        }
    }
}

fn coalesce(packets: &[Vec<u8>], udp: bool) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new(Settings::default(), udp);
    let mut frames = Vec::new();
    let mut write = |frame: &[u8]| frames.push(frame.to_vec());
    for packet in packets {
        coalescer.room()[..packet.len()].copy_from_slice(packet);
        coalescer.push(PEER, packet.len(), &mut write);
    }
    coalescer.flush(&mut write);
    frames
}

/// Sorts the packets, and sets their identification and header checksum to zero, because a
/// super-packet does not preserve these fields.
fn sorted(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for packet in &mut packets {
        for at in [4, 5, 10, 11] {
            if let Some(byte) = packet.get_mut(at) {
                *byte = 0;
            }
        }
    }
    packets.sort_unstable();
    packets
}
