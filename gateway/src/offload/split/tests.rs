use super::*;
use crate::offload::tests::packets;
use crate::offload::vnet::Partial;

#[test]
fn fin_and_push_end_the_last_segment_and_cwr_starts_the_first() {
    let mut packet = packets::tcp_segment(100, 0x10 | FIN | PSH | CWR, &[5; 250]);
    let vnet = vnet::Header {
        gso: Gso::TcpV4 { ecn: true },
        gso_size: 100,
        ..vnet::Header::default()
    };

    let mut split = Split::new(vnet, &mut packet).unwrap();
    let mut seen = Vec::new();
    while let Some(segment) = split.next() {
        packets::verified(segment);
        let sequence = u32::from_be_bytes(segment[24..28].try_into().unwrap());
        seen.push((sequence, segment[20 + TCP_FLAGS], segment.len()));
    }

    assert_eq!(
        seen,
        [
            (100, 0x10 | CWR, 140),
            (200, 0x10, 140),
            (300, 0x10 | FIN | PSH, 90)
        ]
    );
}

#[test]
fn a_checksum_left_open_is_completed() {
    let expected = packets::tcp_packet(b"hello");
    let mut packet = expected.clone();
    let ip = Header::parse(&packet).unwrap();
    let len = u16::try_from(packet.len() - 20).unwrap();
    let partial = Sum::pseudo(ip.source, ip.destination, ipv4::TCP, len).partial();
    packet[36..38].copy_from_slice(&partial);
    let vnet = vnet::Header {
        partial: Some(Partial {
            start: 34,
            offset: 16,
        }),
        ..vnet::Header::default()
    };

    let mut split = Split::new(vnet, &mut packet).unwrap();

    assert_eq!(split.next().unwrap(), expected);
    assert!(split.next().is_none());
}

#[test]
fn the_padding_of_a_short_frame_is_cut_off() {
    let expected = packets::tcp_packet(b"hi");
    let mut packet = expected.clone();
    packet.extend_from_slice(&[0; 6]);

    let mut split = Split::new(vnet::Header::default(), &mut packet).unwrap();

    assert_eq!(split.next().unwrap(), expected);
}

#[test]
fn a_packet_shorter_than_it_says_is_malformed() {
    let mut packet = packets::tcp_packet(b"hello");
    packet.pop();

    assert!(Split::new(vnet::Header::default(), &mut packet).is_err());
}
