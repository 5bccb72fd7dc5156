//! Tests that segmentation and coalescing are inverse functions.

pub(super) mod packets;

use super::coalesce::Coalescer;
use super::frame::{self, HEADROOM};
use super::split::Split;
use super::vnet::{self, Gso};
use ebpf_common::settings::Settings;
use packets::SuperPacket;
use proptest::prelude::*;

const PEER: u16 = 7;

/// Segments a frame into its packets.
fn split(frame: &[u8]) -> Vec<Vec<u8>> {
    let header = vnet::Header::parse(frame).unwrap();
    let mut packet = frame[HEADROOM..].to_vec();
    let mut split = Split::new(header, &mut packet).unwrap();
    let mut segments = Vec::new();
    while let Some(segment) = split.next() {
        segments.push(segment.to_vec());
    }
    segments
}

/// Coalesces packets into frames.
fn coalesce<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new(Settings::default(), true);
    let mut frames = Vec::new();
    let mut write = |frame: &[u8]| frames.push(frame.to_vec());
    for packet in packets {
        coalescer.room()[..packet.len()].copy_from_slice(packet);
        coalescer.push(PEER, packet.len(), &mut write);
    }
    coalescer.flush(&mut write);
    frames
}

proptest! {
    #[test]
    fn coalescing_undoes_splitting(original in packets::super_packet()) {
        let frame = original.frame();

        let segments = split(&frame);
        let frames = coalesce(segments.iter().map(Vec::as_slice));

        prop_assert_eq!(segments.len(), original.segments());
        prop_assert_eq!(frames, [frame]);
    }

    #[test]
    fn every_segment_is_a_valid_packet(original in packets::super_packet()) {
        let SuperPacket { payload, size, .. } = &original;
        let segments = split(&original.frame());

        let mut joined = Vec::new();
        for segment in &segments {
            let (header_len, part) = packets::verified(segment);
            prop_assert!(part.len() <= *size);
            prop_assert_eq!(header_len, original.header_len());
            joined.extend_from_slice(part);
        }
        prop_assert_eq!(&joined, payload);
    }

    #[test]
    fn splitting_undoes_coalescing(batch in packets::batch()) {
        let frames = coalesce(batch.iter().map(Vec::as_slice));

        let again: Vec<_> = frames.iter().flat_map(|frame| split(frame)).collect();

        // The coalescer may reorder packets of different flows.
        for flow in batch.iter().map(|packet| packets::flow(packet)) {
            let of_flow = |packet: &&Vec<u8>| packets::flow(packet) == flow;
            let before: Vec<_> = batch.iter().filter(of_flow).map(|packet| packets::without_id(packet)).collect();
            let after: Vec<_> = again.iter().filter(of_flow).map(|packet| packets::without_id(packet)).collect();
            prop_assert_eq!(before, after);
        }
        prop_assert_eq!(batch.len(), again.len());
    }

    #[test]
    fn an_arbitrary_frame_of_the_tap_never_panics(
        vnet: [u8; vnet::LEN],
        mut packet in prop::collection::vec(any::<u8>(), 0..300),
        plausible: bool,
    ) {
        if plausible && !packet.is_empty() {
            packet[0] = 0x45;
        }
        let Some(header) = vnet::Header::parse(&vnet) else { return Ok(()) };
        if let Ok(mut split) = Split::new(header, &mut packet) {
            while split.next().is_some() {}
        }
    }

    #[test]
    fn a_plausible_header_before_arbitrary_bytes_never_panics(
        mut packet in prop::collection::vec(any::<u8>(), 20..300),
        gso_size: u16,
        start: u16,
        offset in 0..40_u16,
        udp: bool,
    ) {
        packet[0] = 0x45;
        packet[6..8].fill(0);
        packet[9] = if udp { 17 } else { 6 };
        let gso = if udp { Gso::UdpL4 } else { Gso::TcpV4 { ecn: false } };
        let partial = Some(vnet::Partial { start, offset });
        for gso in [gso, Gso::None] {
            let header = vnet::Header { gso, gso_size, header_len: 0, partial };
            if let Ok(mut split) = Split::new(header, &mut packet) {
                while split.next().is_some() {}
            }
        }
    }

    #[test]
    fn arbitrary_packets_of_a_peer_never_panic(
        batch in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20),
        plausible: bool,
    ) {
        let mut batch = batch;
        for packet in batch.iter_mut().filter(|packet| plausible && packet.len() > 10) {
            packet[0] = 0x45;
            packet[9] = 6;
        }

        let frames = coalesce(batch.iter().map(Vec::as_slice));

        prop_assert_eq!(frames.len(), batch.len());
    }
}

#[test]
fn a_frame_carries_the_index_of_its_sender() {
    let frames = coalesce([packets::tcp_packet(b"x").as_slice()]);

    let settings = Settings::default();
    assert_eq!(frames[0][vnet::LEN..][..6], settings.node_mac);
    assert_eq!(frames[0][vnet::LEN..][6..12], settings.peer_mac(PEER));
    assert_eq!(frame::destination(&frames[0], &settings), None);
}
